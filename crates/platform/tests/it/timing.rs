//! How long things take; printed, and bounded generously because test machines are busy.
#![expect(clippy::print_stderr, reason = "timings are read by people")]

use std::time::Duration;

use faultscope_model::SlotId;
use faultscope_model::plan::Reset;
use faultscope_platform::{Platform, WantedIsolation};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::support::{App, id, instance, plan, platform};

#[tokio::test(flavor = "multi_thread")]
async fn forty_instances() {
    let app = App::new();
    let slot = SlotId(0);
    let cancel = CancellationToken::new();
    let timed = |what: &str, since: Instant| eprintln!("{what}: {:?}", since.elapsed());
    let started = Instant::now();
    let platform = platform(WantedIsolation::Netns);
    timed("platform", started);
    let started = Instant::now();
    platform.open_slot(&app.slot(0)).await.unwrap();
    timed("open slot", started);
    let wanted =
        |n: u32, reset| plan((1..=n).map(|n| instance(&format!("order-{n}"), 8080, &[])).collect(), reset);
    let forty = wanted(40, Reset::Keep);
    for round in ["first", "second"] {
        let started = Instant::now();
        platform.reserve(slot, &wanted(40, Reset::Restart)).await.unwrap();
        timed(&format!("{round} reserve of 40"), started);
        platform.apply(slot, &forty, &cancel).await.unwrap();
        timed(&format!("{round} reserve and apply of 40"), started);
        assert!(started.elapsed() < Duration::from_secs(10));
    }
    let mut changed = forty.clone();
    changed.instances[7].env.insert("CHANGED".into(), "1".into());
    let started = Instant::now();
    platform.reserve(slot, &changed).await.unwrap();
    timed("  its reserve", started);
    let deployment = platform.apply(slot, &changed, &cancel).await.unwrap();
    timed("one changed setting, rest kept", started);
    assert_eq!((deployment.created, deployment.destroyed, deployment.kept), (1, 1, 39));
    let started = Instant::now();
    for _ in 0..1000 {
        platform.dial(slot, &id("order-3"), 8080).await.unwrap();
    }
    timed("1000 dials", started);
    let started = Instant::now();
    platform.clear_slot(slot).await.unwrap();
    timed("clear slot", started);
    platform.close_slot(slot).await.unwrap();
    timed("clear and close slot", started);
}
