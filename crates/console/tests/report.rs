//! Reports of simulated campaigns as pages.

use std::sync::Arc;
use std::time::Duration;

use faultscope_console::debug_report;
use faultscope_engine::debug::{self, DebugOptions, Document, Strategy};
use faultscope_engine::{Session, SessionOptions};
use faultscope_model::{Application, CampaignKind};
use faultscope_platform::memory::{Condition, Cost, Effect, Fault, MemoryPlatform, Simulation};
use faultscope_store::Store;
use tokio_util::sync::CancellationToken;

const FILE: &str = r#"
name: shop
services:
  order: { command: [order], ports: [8080] }
  stock: { command: [stock], ports: [8081] }
tests:
  - { name: "pay <b>twice</b>", run: [pay] }
failing:
  instances: { order: 3, stock: 2 }
  config: { order: { memory: 64MiB, env.A: "<script>alert(1)</script>" }, stock: { env.B: "2" } }
"#;

async fn document(strategy: Strategy, when: Condition) -> Document {
    let folder = tempfile::tempdir().unwrap();
    let application = Application::read_alone(FILE, "shop.yaml").unwrap();
    let simulation = Simulation {
        seed: 3,
        apply: Cost::fixed(Duration::from_secs(9)),
        exec: Cost::fixed(Duration::from_secs(3)),
        clear: Duration::ZERO,
        faults: vec![Fault {
            when,
            probability: 1.0,
            effect: Effect::Fail { message: "<script>alert(2)</script> & more".into() },
        }],
    };
    let mut options = SessionOptions::new(CampaignKind::Debug, folder.path().to_owned(), "faultscope".into());
    options.slots = 2;
    let platform = Arc::new(MemoryPlatform::new(simulation));
    let session = Arc::new(Session::open(application, platform, options).await.unwrap());
    let options = DebugOptions { strategy, ..DebugOptions::default() };
    let mut report = debug::debug(&session, &options, &CancellationToken::new()).await.unwrap();
    for cause in &mut report.causes {
        cause.reproduce = Some("faultscope test 'a' && echo".into());
    }
    session.campaign().put_report(&report).unwrap();
    let id = session.id().to_string();
    Arc::try_unwrap(session).unwrap().close("done").await.unwrap();
    let store = Store::open(folder.path().join(".faultscope")).unwrap();
    Document::read(&store.find_campaign(&id).unwrap()).unwrap().unwrap()
}

fn poison() -> Condition {
    Condition::Config { service: "order".parse().unwrap(), item: "env.A".into(), equals: None }
}

#[tokio::test(start_paused = true)]
async fn cause_rounds_and_time_line_are_there() {
    let page = debug_report(&document(Strategy::DdminPar, poison()).await);
    for part in [
        "<!DOCTYPE html>",
        "1 of 5 deltas makes the test fail",
        "config order.env.A",
        "faultscope test 'a' &amp;&amp; echo",
        "Time line of the slots",
        "<svg",
        "slot 1",
        "Rounds",
        "1/2",
        "prefers-color-scheme: dark",
    ] {
        assert!(page.contains(part), "no `{part}` in\n{page}");
    }
}

#[tokio::test(start_paused = true)]
async fn boundaries_and_the_smallest_input_are_there() {
    let mut document = document(Strategy::Bayes, poison()).await;
    document.report.boundaries = serde_json::from_value(serde_json::json!([{
        "delta": "config order.memory", "fails": "95MiB", "passes": "96MiB", "passes_above": true,
        "sharp": true, "trials": 3,
    }]))
    .unwrap();
    document.report.input = serde_json::from_value(serde_json::json!({
        "test": "pay", "from": "orders.json", "ending": { "kind": "minimal" }, "bytes_before": 900,
        "bytes": 12, "stages": [{ "stage": "members", "before": 40, "after": 2 }], "trials": 17,
        "text": "[\"<b>13</b>\"]",
    }))
    .unwrap();
    let page = debug_report(&document);
    for part in [
        "order.memory: fails at 95MiB and below, passes from 96MiB",
        "Minimal input: 12 of 900 bytes of orders.json, 17 trials",
        "&lt;b&gt;13&lt;/b&gt;",
        "members 40 → 2",
    ] {
        assert!(page.contains(part), "no `{part}` in\n{page}");
    }
}

#[tokio::test(start_paused = true)]
async fn whatever_services_say_stays_text() {
    let document = document(Strategy::Bayes, poison()).await;
    let page = debug_report(&document);
    assert!(!page.contains("<script") && !page.contains("<b>twice"), "{page}");
    assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;"), "{page}");
    assert!(
        !page.contains("http://") && !page.contains("https://"),
        "nothing is loaded from outside: {page}"
    );
    // A search without rounds of its own has those of its event log.
    assert!(document.report.rounds.is_empty() && !document.course.rounds.is_empty());
    let finished: usize = document.course.rounds.iter().map(|round| round.finished).sum();
    assert!(finished > 0 && finished <= document.course.bars.len());
}

#[tokio::test(start_paused = true)]
async fn a_campaign_without_a_cause_says_why() {
    let page = debug_report(&document(Strategy::Bayes, Condition::Not(Box::new(Condition::Always))).await);
    assert!(page.contains("The test does not fail with all deltas"), "{page}");
}
