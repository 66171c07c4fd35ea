//! The contract, for each way in which processes can be kept apart.

use faultscope_platform::contract::{ContractApp, contract};
use faultscope_platform::{Isolation, Platform, ProcessPlatform, WantedIsolation};

use crate::support::{App, platform, program, run_without_privileges};

async fn check(platform: &ProcessPlatform) {
    let app = App::new();
    let application = ContractApp {
        slot: Box::new(move |id| app.slot(id.0)),
        service: vec![program().display().to_string(), "service".into()],
        image: None,
    };
    contract(platform, application).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn netns() {
    check(&platform(WantedIsolation::Netns)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ports() {
    let platform = platform(WantedIsolation::Ports);
    assert_eq!(platform.capabilities().isolation, Isolation::Ports);
    check(&platform).await;
}

#[test]
fn netns_without_privileges() {
    run_without_privileges("contract::netns");
}
