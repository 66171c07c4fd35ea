//! What a slot of containers needs and leaves.

use std::process::Command;
use std::time::Duration;

use faultscope_model::SlotId;
use faultscope_model::plan::{Probe, Reset};
use faultscope_platform::{Action, Execution, Place, Platform, PlatformErrorKind, PlatformEvent};
use tokio_util::sync::CancellationToken;

use crate::support::{App, instance, plan, platform};

const SLOT: SlotId = SlotId(0);

fn docker(words: &[&str]) -> String {
    let output = Command::new("docker").args(words).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a Docker engine: ./test.sh docker"]
async fn a_lost_sidecar_spoils_the_trial_and_is_replaced() {
    let (app, platform, cancel) = (App::new(), platform().await, CancellationToken::new());
    let spec = app.slot(0);
    platform.open_slot(&spec).await.unwrap();
    let wanted = plan(vec![instance("order-1", 8080)], Reset::Restart);
    platform.apply(SLOT, &wanted, &cancel).await.unwrap();
    platform.intact(SLOT).await.unwrap();
    docker(&["rm", "-f", &format!("faultscope-{}-sidecar", spec.label)]);
    let error = platform.intact(SLOT).await.unwrap_err();
    assert_eq!(error.kind, PlatformErrorKind::Infrastructure);
    platform.clear_slot(SLOT).await.unwrap();
    platform.apply(SLOT, &wanted, &cancel).await.unwrap();
    platform.intact(SLOT).await.unwrap();
    let id = &wanted.instances[0].id;
    platform.dial(SLOT, id, 8080).await.unwrap();
    platform.act(SLOT, id, Action::Restart).await.unwrap();
    platform.dial(SLOT, id, 8080).await.unwrap();
    platform.close_slot(SLOT).await.unwrap();
    let label = format!("label=faultscope.slot={}", spec.label);
    assert_eq!(docker(&["ps", "-aq", "--filter", &label]), "");
    assert_eq!(docker(&["network", "ls", "-q", "--filter", &label]), "");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a Docker engine: ./test.sh docker"]
async fn exits_are_reported_and_commands_run_inside() {
    let (app, platform, cancel) = (App::new(), platform().await, CancellationToken::new());
    platform.open_slot(&app.slot(0)).await.unwrap();
    let mut order = instance("order-1", 8080);
    let script = "trap 'exit 5' TERM; touch up; echo up; while :; do sleep 0.1; done";
    order.command = ["sh", "-c", script].map(String::from).to_vec();
    order.ready.probe = Probe::Command { command: ["ls", "up"].map(String::from).to_vec() };
    platform.apply(SLOT, &plan(vec![order.clone()], Reset::Restart), &cancel).await.unwrap();
    let mut events = platform.events(SLOT);
    let run = Execution {
        command: ["sh", "-c", "hostname; kill -TERM 1"].map(String::from).to_vec(),
        env: Default::default(),
        directory: String::new(),
        within: Duration::from_secs(20),
        output_limit: 4096,
        place: Place::Instance(order.id.clone()),
    };
    let exit = platform.exec(SLOT, &run, &cancel).await.unwrap();
    assert_eq!((exit.code, exit.stdout.as_str()), (Some(0), "order-1\n"));
    let event = tokio::time::timeout(Duration::from_secs(20), events.recv()).await.unwrap().unwrap();
    let (instance, out_of_memory) = (order.id.clone(), false);
    assert_eq!(event, PlatformEvent::Exited { instance, code: Some(5), signal: None, out_of_memory });
    let refused = platform.dial(SLOT, &order.id, 8080).await.unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    platform.close_slot(SLOT).await.unwrap();
}
