//! Slots with namespaces of their own.

use faultscope_model::SlotId;
use faultscope_model::plan::Reset;
use faultscope_platform::contract::call;
use faultscope_platform::{Platform, WantedIsolation};
use tokio_util::sync::CancellationToken;

use crate::support::{App, id, instance, plan, platform, run};

#[tokio::test(flavor = "multi_thread")]
async fn starts_dials_runs_and_stops() {
    let app = App::new();
    let platform = platform(WantedIsolation::Netns);
    eprintln!("{:?}", platform.capabilities());
    let slot = SlotId(0);
    platform.open_slot(&app.slot(0)).await.unwrap();
    let plan = plan(
        vec![
            instance("order-1", 8080, &["say", "hello"]),
            instance("order-2", 8080, &[]),
        ],
        Reset::Restart,
    );
    let reservation = platform.reserve(slot, &plan).await.unwrap();
    eprintln!("{reservation:?}");
    let cancel = CancellationToken::new();
    let deployment = platform.apply(slot, &plan, &cancel).await.unwrap();
    eprintln!("{deployment:?}");
    let stream = platform
        .dial(slot, &id("order-2"), 8080)
        .await
        .unwrap()
        .into_std()
        .unwrap();
    stream.set_nonblocking(false).unwrap();
    let name = tokio::task::spawn_blocking(move || call(stream, "/name"))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(name, "order-2");
    assert_eq!(platform.logs(slot, &id("order-1")).await.unwrap(), ["hello"]);
    let exit = platform
        .exec(slot, &run("cat /etc/hosts; hostname; id -u; ps ax"), &cancel)
        .await
        .unwrap();
    eprintln!("{}{}", exit.stdout, exit.stderr);
    assert_eq!(exit.code, Some(0));
    eprintln!("{:?}", platform.metrics(slot).await.unwrap());
    platform.close_slot(slot).await.unwrap();
    assert!(
        !app.path()
            .join(".faultscope/slots")
            .read_dir()
            .unwrap()
            .next()
            .is_some()
    );
}
