//! Instances that end during a trial, as evidence.

use faultscope_model::event::Event;

use crate::greeter::greeter;

#[tokio::test]
async fn an_instance_that_ends_is_named_with_its_last_lines() {
    let bed = greeter("tests: [ { name: end, http: { get: \"http://front:8080/end\" } } ]\n");
    let tested = bed.test(&[]).await;
    let said = "GET http://front:8080/end: the connection was closed before an answer";
    assert_eq!(tested.signature(), format!("end: step 1: {said}"));
    assert_eq!(tested.exits(), ["front-1 exited with 7"]);
    let logs: Vec<_> =
        tested.run.evidence.logs.iter().map(|(id, lines)| (id.to_string(), lines.join("\n"))).collect();
    assert_eq!(logs, [("front-1".into(), "I am done".into())]);
    assert_eq!(tested.calls(), ["test-1 -> front-1 GET /end closed by callee root"]);
    let told = bed.events().into_iter().filter_map(|event| match event {
        Event::InstanceExited { instance, reason, .. } => Some(format!("{instance} {reason}")),
        _ => None,
    });
    // It may be known only when the trial settles, and then the run tells of it.
    assert!(told.collect::<Vec<_>>().iter().all(|told| told == "front-1 exited with 7"));
}

#[tokio::test]
async fn memory_that_runs_out_is_the_reason() {
    let bed = greeter(
        "tests: [ { name: heap, http: { get: \"http://front:8080/heap\", expect: { body: fine } } } ]
failing: { config: { back: { memory: 32MiB } } }
",
    );
    let tested = bed.test(&[]).await;
    assert_eq!((tested.outcome(), tested.exits()), ("pass", vec![]));
    let tested = bed.test(&["config back.memory"]).await;
    assert_eq!((tested.outcome(), tested.exits()), ("fail", vec!["back-1 killed: out of memory".to_owned()]));
}

#[tokio::test]
async fn an_exit_that_no_test_minds_is_evidence_all_the_same() {
    let file = "tests:
  - { name: back ends, http: { get: \"http://front:8080/back-end\", expect: { status: 502 } } }
  - { name: it stays away, http: { get: \"http://front:8080/hello\", expect: { status: 502 } } }
";
    let tested = greeter(file).test(&[]).await;
    assert_eq!((tested.outcome(), tested.exits()), ("pass", vec!["back-1 exited with 3".to_owned()]));
    let logs: Vec<_> = tested.run.evidence.logs.keys().map(ToString::to_string).collect();
    assert_eq!(logs, ["back-1"], "whoever looks at the run finds its last lines");
    let of_front: Vec<_> = tested.calls().into_iter().filter(|call| call.starts_with("front-1")).collect();
    assert_eq!(
        of_front,
        [
            "front-1 -> back-1 GET /back-end closed by callee propagated",
            "front-1 -> back-1 GET /word connect refused propagated"
        ]
    );
}
