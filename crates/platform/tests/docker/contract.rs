//! The contract every back end keeps.

use faultscope_platform::contract::{ContractApp, contract};

use crate::support::{App, IMAGE, SERVICE, platform};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a Docker engine: ./test.sh docker"]
async fn containers() {
    let app = App::new();
    let application = ContractApp {
        slot: Box::new(move |id| app.slot(id.0)),
        service: SERVICE.map(String::from).to_vec(),
        image: Some(IMAGE.into()),
    };
    contract(&platform().await, application).await;
}
