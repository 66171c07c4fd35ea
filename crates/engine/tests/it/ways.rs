//! Ways in which a test fails: words that differ from run to run, other failures nearby, ends the wrong way round.

use faultscope_engine::debug::{DebugOptions, Verdict};
use faultscope_engine::stored;
use faultscope_model::Outcome;
use faultscope_platform::memory::{Condition, Fault};
use faultscope_store::Store;

use crate::bed::{fails, fault, instances};
use crate::shop::{Case, causes, config};

#[tokio::test(start_paused = true)]
async fn words_that_differ_from_run_to_run_do_not_count() {
    let says = |text: &str| fault(config("d", "memory"), fails(text));
    for seed in 1..=5 {
        let plum = Fault { probability: 0.5, ..says("item plum is missing") };
        let mut case = Case::new(vec![plum, says("item kiwi is missing")]);
        (case.seed, case.slots) = (seed, 2);
        let report = case.debug(DebugOptions { repeat: 8, ..DebugOptions::default() }).await;
        assert_eq!(causes(&report), [["config d.memory"]], "seed {seed}");
        assert_eq!(report.signature.unwrap().message, "item <any> is missing", "seed {seed}");
        assert_eq!(report.calibration.unwrap().rate, 1.0, "it always fails");
        assert_eq!(report.trials.unresolved, 0, "seed {seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn other_failures_beside_the_cause_are_reported() {
    let (tax, rounding) = (|| config("b", "memory"), || config("d", "memory"));
    let case = Case::new(vec![
        fault(Condition::All(vec![tax(), rounding()]), fails("total 31.9")),
        fault(tax(), fails("total 32.9")),
        fault(rounding(), fails("total 29.0")),
    ]);
    let report = case.debug(DebugOptions::default()).await;
    assert_eq!(causes(&report), [["config b.memory", "config d.memory"]]);
    let cause = &report.causes[0];
    let told: Vec<_> = cause.otherwise.iter().map(|o| (o.without.as_str(), o.is_failure())).collect();
    assert_eq!(told, [("config b.memory", true), ("config d.memory", true)]);
    assert!(cause.otherwise[0].describe().ends_with("another failure: pay: exit code 1: total 29.0"));
    assert!(cause.hint().is_some());
    let plain = Case::new(vec![fault(Condition::All(vec![tax(), rounding()]), fails("total 31.9"))]);
    let report = plain.debug(DebugOptions::default()).await;
    assert!(report.causes[0].otherwise.is_empty() && report.causes[0].hint().is_none());
}

#[tokio::test(start_paused = true)]
async fn ends_the_wrong_way_round_are_noticed_at_once() {
    let without = Condition::Not(Box::new(config("d", "memory")));
    let report = Case::new(vec![fault(without, fails("broken"))]).debug(DebugOptions::default()).await;
    assert_eq!(report.verdict, Verdict::FailsWithout);
    assert!(report.trials.checks <= 4, "{}", report.trials.checks);
    assert!(report.summary().contains("exchange `simplest` and `failing`"), "{}", report.summary());
}

#[tokio::test(start_paused = true)]
async fn the_run_that_is_shown_failed() {
    for seed in 1..=4 {
        let pair = Condition::All(vec![instances("c", 2), config("e", "memory")]);
        let mut case = Case::new(vec![Fault { probability: 0.5, ..fault(pair, fails("shaky")) }]);
        (case.seed, case.slots) = (seed, 4);
        let report = case.debug(DebugOptions::default()).await;
        let shown = report.causes[0].run.clone().unwrap();
        let campaign = Store::open(case.state()).unwrap().campaigns().unwrap().remove(0);
        let runs = stored::runs(&campaign.reader().unwrap()).unwrap();
        let run = runs.iter().find(|run| run.id == shown).unwrap();
        assert!(matches!(run.outcome, Outcome::Fail { .. }), "seed {seed}: {:?}", run.outcome);
        let passing = &report.difference.as_ref().map(|difference| difference.without.len());
        assert_ne!(*passing, Some(0), "a passing run with the whole cause passed by chance");
    }
}
