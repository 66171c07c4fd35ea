//! The contract, for each way in which processes can be kept apart.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use faultscope_platform::contract::{ContractApp, contract};
use faultscope_platform::{Isolation, Platform, ProcessPlatform, WantedIsolation};

use crate::support::{App, PROGRAM, platform, program};

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

/// The same test once more without privileges: as nobody, from a folder that nobody may read.
#[test]
fn netns_without_privileges() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    let (test, launch) = (folder.path().join("test"), folder.path().join("launch"));
    std::fs::copy(std::env::current_exe().unwrap(), &test).unwrap();
    std::fs::copy(program(), &launch).unwrap();
    // Whoever is not root has none to give up.
    let mut command = if rustix::process::geteuid().is_root() {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(test);
        command
    } else {
        Command::new(test)
    };
    command.args(["--exact", "contract::netns", "--nocapture"]).current_dir("/");
    let output = command.env("HOME", "/").env(PROGRAM, launch).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}
