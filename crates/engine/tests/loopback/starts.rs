//! Services that do not come up: unresolved, or a failure for those who look for it.

use std::time::Duration;

use faultscope_engine::{EngineError, TrialRequest};
use faultscope_model::event::Event;
use faultscope_platform::PlatformErrorKind;
use faultscope_platform::loopback::{Ending, Instance, Loopback};
use tokio_util::sync::CancellationToken;

use crate::bed::{Bed, close, request, run};
use crate::greeter::platform;

const FILE: &str = r#"name: starts
services:
  back: { command: [back], ports: [8081], ready: { http: /health, within: 200ms } }
tests: [ { name: word, http: { get: "http://back:8081/word" } } ]
failing: { config: { back: { env.MODE: "MODE", memory: 32MiB } } }
"#;

/// `back` comes up as its environment says.
fn starting() -> Loopback {
    platform().on_start("back", |instance: Instance| async move {
        instance.print("reading settings");
        match instance.env("MODE") {
            Some("dies") => {
                instance.print("no database");
                return Err(Ending::Exit(4));
            }
            Some("killed") => return Err(Ending::Signal(11)),
            Some("stuck") => std::future::pending().await,
            Some("hungry") => instance.allocate(64 << 20).await,
            _ => {}
        }
        Ok(())
    })
}

fn bed(mode: &str) -> Bed {
    Bed::new(&FILE.replace("\"MODE\"", &format!("\"{mode}\"")), starting())
}

#[tokio::test]
async fn every_way_not_to_come_up_has_its_reason() {
    for (mode, reason) in [
        ("dies", "exited with 4"),
        ("killed", "killed by signal 11"),
        ("stuck", "not ready within 200ms: GET /health on port 8081 refuses connections"),
        ("hungry", "killed: out of memory (limit 32MiB)"),
    ] {
        let tested = bed(mode).test(&["config back.env.MODE", "config back.memory"]).await;
        assert_eq!(tested.reason(), format!("back-1 did not become ready: {reason}"));
        assert_eq!(tested.exits(), [format!("back-1 {reason}")]);
        assert!(
            tested.run.evidence.tests.is_empty() && tested.spans.is_empty(),
            "{mode}: nothing was tested"
        );
        let lines = tested.run.evidence.logs.values().next().expect("its last lines");
        assert_eq!(lines[0], "reading settings", "{mode}");
        assert_eq!(lines.get(1).map(String::as_str), (mode == "dies").then_some("no database"));
    }
}

#[tokio::test]
async fn the_start_that_is_looked_for_is_a_failure_and_another_is_not() {
    let bed = bed("dies");
    let session = bed.open().await;
    let failing = ["config back.env.MODE"];
    let never = CancellationToken::new();
    let of = |wanted| TrialRequest { wanted, ..request(&session, &failing) };
    let first = run(&session, vec![of(None)], &never).await.runs.remove(0);
    assert_eq!(first.outcome.word(), "unresolved");
    let wanted = first.evidence.start_failure().expect("a start that failed");
    assert_eq!(wanted.to_string(), "service back does not come up: exited with 4");
    let mut other = wanted.clone();
    other.test = "front".into();
    let asked = vec![of(Some(wanted)), of(Some(other)), request(&session, &[])];
    let done = run(&session, asked, &never).await;
    let outcomes: Vec<_> = done.runs.iter().map(|run| run.outcome.word()).collect();
    assert_eq!(outcomes, ["fail", "unresolved", "pass"], "and the slot can be used again");
    assert!(done.runs[2].cost.deploy > Duration::ZERO);
    close(session).await;
    assert!(!bed.events().iter().any(|event| matches!(event, Event::TrialInvalid { .. })));
}

#[tokio::test]
async fn a_service_that_nobody_can_start_stops_the_campaign() {
    let file = "name: nothing\nservices: { back: { command: [no-such-program], ports: [1] } }\ntests: [ { name: t, run: [get, x] } ]\n";
    let bed = Bed::new(file, Loopback::new());
    let session = bed.open().await;
    let asked = vec![request(&session, &[])];
    let end = faultscope_engine::testing::run_trials(&session, asked, false, &CancellationToken::new()).await;
    let Err(EngineError::Platform(error)) = end else { panic!("{end:?}") };
    assert_eq!(error.kind, PlatformErrorKind::BadPlan);
    close(session).await;
}
