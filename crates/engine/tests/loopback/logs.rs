//! What services print is kept with the run in which they print it.

use std::collections::BTreeSet;

use faultscope_engine::views::RunLogs;
use faultscope_model::Run;
use faultscope_platform::loopback::{Call, Loopback, Reply};
use tokio_util::sync::CancellationToken;

use crate::bed::{Bed, close, request, run};

const FILE: &str = "name: talkers
services:
  front: { command: [front], ports: [8080] }
  quiet: { command: [quiet], ports: [8081] }
tests:
  - { name: fine, http: { get: \"http://front:8080/fine\" } }
  - { name: broken, http: { get: \"http://front:8080/broken\", expect: { status: 500 } } }
";

async fn front(call: Call) -> Reply {
    call.instance.print(format!("asked for {}", call.path()));
    if call.path() == "/broken" {
        call.instance.print("no column \u{1b}[31mprice, password=hunter2-and-more");
        return (500, "oops").into();
    }
    "ok".into()
}

async fn quiet(_: Call) -> Reply {
    "ok".into()
}

fn bed(rest: &str) -> Bed {
    Bed::new(&format!("{FILE}{rest}"), Loopback::new().service("front", front).service("quiet", quiet))
}

fn logs_of(bed: &Bed, run: &Run) -> RunLogs {
    let campaigns = bed.store().campaigns().unwrap();
    RunLogs::read(&campaigns[0].reader().unwrap(), run).unwrap()
}

fn texts(logs: &RunLogs) -> Vec<String> {
    logs.timeline().into_iter().map(|line| format!("{} {}", line.instance, line.text)).collect()
}

#[tokio::test]
async fn lines_are_kept_without_secrets_and_found_around_a_failing_call() {
    let bed = bed("");
    let tested = bed.test(&[]).await;
    assert_eq!(tested.outcome(), "pass");
    let logs = logs_of(&bed, &tested.run);
    let lines = texts(&logs);
    assert_eq!(lines[..2], ["front-1 asked for /fine", "front-1 asked for /broken"]);
    assert!(lines[2].starts_with("front-1 no column") && !lines[2].contains("hunter2"), "{}", lines[2]);
    assert_eq!((lines.len(), tested.run.evidence.log_lines), (3, 3));
    let [excerpt] = &logs.around_failures(&tested.spans, &BTreeSet::new())[..] else {
        panic!("one call failed")
    };
    let failed = tested.spans.iter().find(|span| span.failed()).unwrap();
    assert_eq!(excerpt.span, failed.id);
    assert!(excerpt.lines.iter().any(|line| line.text.starts_with("no column")), "{excerpt:?}");
    let fine = tested.spans.iter().find(|span| !span.failed()).unwrap();
    assert!(fine.start_us <= logs.timeline()[0].at_us, "a line has the time at which it arrived");
}

#[tokio::test]
async fn lines_of_an_instance_that_goes_on_belong_to_the_run_of_their_time() {
    let bed = bed("reset: keep\n");
    let session = bed.open().await;
    let requests = vec![request(&session, &[]), request(&session, &[])];
    let done = run(&session, requests, &CancellationToken::new()).await;
    close(session).await;
    assert_eq!(done.runs[1].cost.kept, 2);
    for tested in &done.runs {
        assert_eq!(texts(&logs_of(&bed, tested)).len(), 3, "run {}", tested.id);
    }
}
