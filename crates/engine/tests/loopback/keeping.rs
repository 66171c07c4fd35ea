//! Services that are kept between trials, beside others that start fresh.

use std::io;

use faultscope_platform::loopback::{Call, Loopback, Reply};
use tokio_util::sync::CancellationToken;

use crate::bed::{Bed, calls, close, request, run, text};

const FILE: &str = "name: mixed
services:
  slow: { command: [slow], ports: [8080], reset: keep }
  quick: { command: [quick], ports: [8081] }
tests:
  - { name: asks, http: { get: \"http://slow:8080/ask\" } }
failing: { config: { slow: { env.MODE: other }, quick: { env.MODE: other } } }
";

async fn slow(call: Call) -> io::Result<Reply> {
    Ok(Reply::from(text(&call.client().get("http://quick:8081/word").await?)))
}

async fn quick(_: Call) -> Reply {
    "word".into()
}

#[tokio::test]
async fn a_kept_service_goes_on_until_its_own_settings_change() {
    let bed = Bed::new(FILE, Loopback::new().service("slow", slow).service("quick", quick));
    let session = bed.open().await;
    let deltas: [&[&str]; 5] = [&[], &[], &["config quick.env.MODE"], &["config slow.env.MODE"], &[]];
    let requests = deltas.iter().map(|deltas| request(&session, deltas)).collect();
    let done = run(&session, requests, &CancellationToken::new()).await;
    let costs: Vec<(u32, u32)> = done.runs.iter().map(|run| (run.cost.created, run.cost.kept)).collect();
    assert_eq!(costs, [(2, 0), (1, 1), (1, 1), (2, 0), (2, 0)]);
    for tested in &done.runs {
        let spans = session.spans_of(tested.trial).await.unwrap();
        assert_eq!(
            calls(&spans),
            ["test-1 -> slow-1 GET /ask 200 root", "slow-1 -> quick-1 GET /word 200 propagated"],
            "run {}",
            tested.id
        );
    }
    close(session).await;
}
