//! Delta debugging on the simulated platform: checks, causes, budgets, going on, flaky failures, trouble.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use faultscope_engine::debug::{
    self, DebugOptions, DebugReport, Flaky, Rest, Strategy, ValueBoundary, Verdict,
};
use faultscope_engine::{EngineError, stored};
use faultscope_model::event::Event;
use faultscope_model::{Application, Treatment, TrialId, TrialRole};
use faultscope_platform::memory::{Condition, Effect, Fault};
use faultscope_store::Store;
use tokio_util::sync::CancellationToken;

use crate::bed::{fails, fault, instances};
use crate::shop::{Case, FILE, causes, config};

/// The sets that trials of the search had, in the only campaign of a folder: all that began, all that ended.
fn tried(state: &Path) -> (Vec<Treatment>, Vec<Treatment>) {
    let store = Store::open(state).unwrap();
    let campaigns = store.campaigns().unwrap();
    assert_eq!(campaigns.len(), 1, "it goes on in the same folder");
    let started = campaigns[0].events::<Event>(0).unwrap().events.into_iter().filter_map(|e| match e.event {
        Event::TrialStarted { trial, treatment, .. } if trial.is_chosen() => Some(treatment),
        _ => None,
    });
    let runs = stored::runs(&campaigns[0].reader().unwrap()).unwrap();
    let finished = runs.into_iter().filter(|run| run.trial.is_chosen()).map(|run| run.treatment);
    (started.collect(), finished.collect())
}

fn repeated(mut sets: Vec<Treatment>) -> usize {
    let all = sets.len();
    sets.sort();
    sets.dedup();
    all - sets.len()
}

#[tokio::test(start_paused = true)]
async fn a_stable_failure_is_reduced_and_proven() {
    let case = Case::new(vec![fault(
        Condition::All(vec![instances("c", 2), config("e", "memory")]),
        fails("broken"),
    )]);
    let report = case.debug(DebugOptions::default()).await;
    assert_eq!(report.verdict, Verdict::Reduced);
    assert_eq!(causes(&report), [["instance c", "config e.memory"]]);
    assert!(report.causes[0].minimal && report.causes[0].run.is_some());
    assert_eq!((report.trials.checks, report.trials.earlier), (4, 0), "the failing end is tried three times");
    assert_eq!(report.calibration.unwrap().rate, 1.0);
    assert_eq!(report.trials.finished, tried(&case.state()).1.len());
}

#[tokio::test(start_paused = true)]
async fn all_causes_are_found_and_none_is_left() {
    let either = Condition::Any(vec![
        config("b", "memory"),
        Condition::All(vec![instances("d", 2), config("a", "env.X")]),
    ]);
    for slots in [1, 4] {
        let mut case = Case::new(vec![fault(either.clone(), fails("broken"))]);
        case.slots = slots;
        let report = case.debug(DebugOptions { all: true, ..DebugOptions::default() }).await;
        let expected: [&[&str]; 2] = [&["config b.memory"], &["instance d", "config a.env.X"]];
        assert_eq!(causes(&report), expected, "{slots} slots");
        assert!(report.none_left, "{slots} slots");
    }
}

#[tokio::test(start_paused = true)]
async fn a_budget_of_trials_ends_with_the_best_so_far_and_can_be_resumed() {
    let faults = vec![fault(Condition::All(vec![instances("c", 2), config("e", "memory")]), fails("broken"))];
    let whole = Case::new(faults.clone()).debug(DebugOptions::default()).await;
    let case = Case::new(faults);
    let report = case.debug(DebugOptions { most_trials: Some(4), ..DebugOptions::default() }).await;
    assert_eq!(report.verdict, Verdict::OutOfBudget);
    assert_eq!(report.trials.finished, 4);
    assert!(report.causes.is_empty() && !report.best.is_empty());
    let report = case.resume(DebugOptions::default()).await;
    assert_eq!(report.verdict, Verdict::Reduced);
    assert_eq!(causes(&report), causes(&whole));
    assert_eq!(report.trials.earlier, 4);
    assert_eq!(report.trials.checks, 4, "known checks are not repeated");
    let (started, finished) = tried(&case.state());
    assert_eq!((repeated(started), repeated(finished.clone())), (0, 0), "nothing is tried twice");
    assert_eq!(finished.len(), report.trials.finished);
}

/// What trials for boundaries and inputs were started, by their names, in the only campaign of a folder.
fn looked_deeper(state: &Path) -> Vec<String> {
    let store = Store::open(state).unwrap();
    let events = store.campaigns().unwrap()[0].events::<Event>(0).unwrap().events;
    let is_deeper = |trial: TrialId| matches!(trial.role, TrialRole::Boundary | TrialRole::Input);
    let deeper = events.into_iter().filter_map(|e| match e.event {
        Event::TrialStarted { trial, .. } if is_deeper(trial) => Some(trial.to_string()),
        _ => None,
    });
    deeper.collect()
}

/// A memory limit that is too small, and a test whose input has much that does not matter.
fn deep() -> Case {
    let below = Condition::Config { service: "e".parse().unwrap(), item: "memory".into(), equals: None };
    let mut case = Case::new(vec![fault(below, fails("broken"))]);
    case.file = FILE.replace("run: [pay] }", "run: [pay, \"{input}\"], input: orders.json }");
    let orders: Vec<String> = (0..12).map(|n| format!(r#"{{"id": {n}, "lines": [1, 2, 3]}}"#)).collect();
    std::fs::write(case.folder.path().join("orders.json"), format!("[{}]", orders.join(", "))).unwrap();
    case
}

#[tokio::test(start_paused = true)]
async fn a_budget_counts_boundaries_and_inputs_and_neither_is_tried_twice() {
    let options =
        |most_trials| DebugOptions { boundary: true, input: true, most_trials, ..DebugOptions::default() };
    let case = deep();
    let whole = case.debug(options(None)).await;
    assert_eq!(whole.verdict, Verdict::Reduced);
    let (alone, confirmed, deeper) = (whole.trials.finished, whole.trials.confirmations, whole.trials.deeper);
    assert_eq!(deeper, looked_deeper(&case.state()).len());
    assert!(deeper > 3, "{deeper} trials for boundaries and inputs");

    let case = deep();
    let report = case.debug(options(Some(alone + confirmed + 2))).await;
    assert_eq!(report.verdict, Verdict::OutOfBudget);
    assert_eq!((report.trials.finished, report.trials.deeper), (alone, 2));
    assert_eq!(causes(&report), causes(&whole), "the cause was found before");
    assert!(report.summary().starts_with("the cause is found"), "{}", report.summary());
    // One at a time, until nothing is missing.
    let mut last = report;
    for _ in 0..deeper {
        last = case.resume(options(Some(1))).await;
        assert!(last.trials.deeper <= 1, "{}", last.trials.deeper);
        if last.verdict == Verdict::Reduced {
            break;
        }
    }
    assert_eq!(last.verdict, Verdict::Reduced);
    let described =
        |report: &DebugReport| report.boundaries.iter().map(ValueBoundary::describe).collect::<Vec<_>>();
    assert_eq!(described(&last), described(&whole));
    assert_eq!(last.input.map(|input| input.text), whole.input.map(|input| input.text));
    let tried = looked_deeper(&case.state());
    assert_eq!(tried.len(), deeper, "nothing is tried twice: {tried:?}");
}

#[tokio::test(start_paused = true)]
async fn a_budget_of_time_counts_the_checks_too() {
    let case = Case::new(vec![fault(instances("c", 2), fails("broken"))]);
    let options =
        |seconds| DebugOptions { most_time: Some(Duration::from_secs(seconds)), ..DebugOptions::default() };
    let report = case.debug(options(20)).await;
    assert_eq!((report.verdict, report.trials.finished), (Verdict::OutOfBudget, 0));
    // One check had finished; three are left, and then there is time for three trials.
    let report = case.resume(options(100)).await;
    assert_eq!((report.verdict, report.trials.finished), (Verdict::OutOfBudget, 3));
    assert_eq!(case.resume(DebugOptions::default()).await.verdict, Verdict::Reduced);
}

#[tokio::test(start_paused = true)]
async fn the_outcome_of_the_rest_is_reported_unless_it_passes() {
    // Without the cause another failure comes to light: it could hide a second cause.
    let hidden = fault(config("b", "memory"), fails("something else"));
    let case = Case::new(vec![fault(instances("c", 2), fails("broken")), hidden]);
    let all = DebugOptions { all: true, ..DebugOptions::default() };
    let report = case.debug(all.clone()).await;
    assert_eq!((causes(&report), report.none_left), (vec![vec!["instance c"]], false));
    let Some(rest @ Rest::Unresolved { .. }) = &report.rest else { panic!("{:?}", report.rest) };
    let run = rest.run().unwrap();
    assert_eq!(
        rest.describe(),
        format!(
            "Further causes are not excluded: with all other deltas together something else happens in run \
             {run}: another failure: pay: exit code 1: something else"
        )
    );
    let stored = stored::runs(&Store::open(case.state()).unwrap().campaigns().unwrap()[0].reader().unwrap());
    let shown = stored.unwrap().into_iter().find(|stored| stored.id == *run).unwrap();
    assert_eq!(shown.treatment.size(), report.deltas - 1, "all deltas but that of the cause");
    // Where one cause was asked for, or where nothing is left, nothing is said.
    assert_eq!(case.debug(DebugOptions::default()).await.rest, None);
    let report = Case::new(vec![fault(instances("c", 2), fails("broken"))]).debug(all).await;
    assert_eq!((report.none_left, report.rest), (true, None));
}

#[tokio::test(start_paused = true)]
async fn an_interrupted_search_repeats_at_most_what_was_running() {
    for (strategy, slots) in [(Strategy::Bayes, 3), (Strategy::Ddmin, 1), (Strategy::DdminPar, 3)] {
        let mut case =
            Case::new(vec![fault(Condition::All(vec![instances("a", 2), config("d", "env.X")]), fails("x"))]);
        case.slots = slots;
        let options = DebugOptions { strategy, ..DebugOptions::default() };
        let stop = CancellationToken::new();
        let later = async {
            tokio::time::sleep(Duration::from_secs(82)).await;
            stop.cancel();
        };
        let (report, ()) = tokio::join!(case.try_debug(&options, false, &stop), later);
        let report = report.unwrap();
        assert_eq!(report.verdict, Verdict::Stopped, "{strategy:?}");
        let (started, finished) = tried(&case.state());
        let lost = started.len() - finished.len() - report.trials.cancelled;
        assert!((1..=usize::from(slots)).contains(&lost), "{strategy:?}: {lost} were running");
        let report = case.resume(options).await;
        assert_eq!(causes(&report), [["instance a", "config d.env.X"]], "{strategy:?}");
        assert_eq!(report.trials.earlier, finished.len());
        let (_, finished) = tried(&case.state());
        assert_eq!(repeated(finished), 0, "{strategy:?}: what had finished is not repeated");
    }
}

#[tokio::test(start_paused = true)]
async fn what_rests_on_something_else_is_not_resumed() {
    let mut case = Case::new(vec![fault(instances("c", 2), fails("broken"))]);
    let stopped = DebugOptions { most_trials: Some(1), ..DebugOptions::default() };
    case.debug(stopped.clone()).await;
    let refused = async |case: &Case, options: &DebugOptions| {
        case.try_debug(options, true, &CancellationToken::new()).await.unwrap_err().to_string()
    };
    let all = refused(&case, &DebugOptions { all: true, ..DebugOptions::default() }).await;
    assert!(
        all.starts_with("the campaign cannot be resumed: the option `all` has changed since campaign `"),
        "{all}"
    );
    case.file = case.file.replace("f: 2 }", "f: 3 }");
    let file = refused(&case, &stopped).await;
    assert!(
        file.contains(": the application file and the list of deltas have changed since campaign `"),
        "{file}"
    );
    // A newer campaign of another file with the same name does not stand in the way.
    case.debug(stopped.clone()).await;
    let other = std::mem::replace(&mut case.file, FILE.into());
    assert_eq!(case.resume(DebugOptions::default()).await.verdict, Verdict::Reduced);
    case.file = other;
    assert_eq!(case.resume(DebugOptions::default()).await.verdict, Verdict::Reduced);
    assert_eq!(
        refused(&case, &stopped).await,
        "the campaign cannot be resumed: there is no unfinished debug campaign of `shop`"
    );
}

#[tokio::test(start_paused = true)]
async fn a_flaky_failure_is_calibrated_and_reduced() {
    for seed in 1..=3 {
        let shaky = Fault { probability: 0.3, ..fault(config("d", "memory"), fails("shaky")) };
        let mut case = Case::new(vec![shaky]);
        (case.seed, case.slots) = (seed, 4);
        let report = case.debug(DebugOptions::default()).await;
        let rate = report.calibration.unwrap().rate;
        assert!((0.1..0.6).contains(&rate), "seed {seed}: {rate}");
        assert_eq!(causes(&report), [["config d.memory"]], "seed {seed}");
        assert!(report.causes[0].confirmation.is_confirmed(), "seed {seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_known_rate_needs_no_calibration() {
    let shaky = Fault { probability: 0.5, ..fault(config("d", "memory"), fails("shaky")) };
    let case = Case::new(vec![shaky]);
    let report = case.debug(DebugOptions { flaky: Flaky::Rate(0.5), ..DebugOptions::default() }).await;
    assert_eq!(report.calibration.unwrap().rate, 0.5);
    assert_eq!(causes(&report), [["config d.memory"]]);
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_comes_at_times_without_deltas_too() {
    let case = Case::new(vec![Fault { probability: 0.4, ..fault(Condition::Always, fails("shaky")) }]);
    let report = case.debug(DebugOptions::default()).await;
    assert!(matches!(report.verdict, Verdict::FailsAtTimes | Verdict::FailsAlready), "{:?}", report.verdict);
    assert_eq!(report.trials.finished, 0);
}

#[tokio::test(start_paused = true)]
async fn ends_that_are_not_as_they_should_be() {
    let report =
        Case::new(vec![fault(Condition::Always, fails("always"))]).debug(DebugOptions::default()).await;
    assert_eq!(report.verdict, Verdict::FailsAlready);
    let case = Case::new(Vec::new());
    let report = case.debug(DebugOptions { flaky: Flaky::Off, ..DebugOptions::default() }).await;
    assert_eq!((report.verdict, report.trials.checks), (Verdict::NotReproduced, 2));
    let report = case.debug(DebugOptions::default()).await;
    assert_eq!(report.verdict, Verdict::NotReproduced);
    assert!(report.trials.checks > 10, "a flaky failure is waited for: {}", report.trials.checks);
    let mut case = Case::new(vec![fault(instances("c", 2), fails("broken"))]);
    case.file = case.file.replace("run: [pay] }", "run: [pay] }\n  - { name: list, run: [list] }");
    let report = case.debug(DebugOptions::default()).await;
    let failing = vec!["pay".to_owned(), "list".to_owned()];
    assert_eq!(report.verdict, Verdict::OtherTestsFail { named: None, failing });
    // Who names one of them is not stopped by the other.
    let named = DebugOptions { test: Some("list".into()), ..DebugOptions::default() };
    let report = case.debug(named).await;
    assert_eq!((report.verdict.clone(), causes(&report)), (Verdict::Reduced, vec![vec!["instance c"]]));
    assert_eq!(report.signature.unwrap().test, "list");
}

#[tokio::test(start_paused = true)]
async fn a_sentinel_that_disagrees_stops_the_search() {
    // After twelve trials everything fails.
    let seen = Arc::new(AtomicUsize::new(0));
    let changed = Condition::Custom(Arc::new(move |_| seen.fetch_add(1, Ordering::Relaxed) >= 12));
    let cause = Condition::All(vec![instances("a", 2), instances("b", 2), config("d", "env.X")]);
    let mut case = Case::new(vec![fault(changed, fails("broken")), fault(cause, fails("broken"))]);
    case.sentinel_every = 2;
    let options = DebugOptions::default();
    let end = case.try_debug(&options, false, &CancellationToken::new()).await;
    assert!(matches!(end, Err(EngineError::Sentinel { .. })), "{end:?}");
    let end = case.try_debug(&options, true, &CancellationToken::new()).await.unwrap_err().to_string();
    assert_eq!(
        end,
        "the campaign cannot be resumed: the environment changed during it, so its trials cannot be trusted"
    );
}

#[tokio::test(start_paused = true)]
async fn sentinels_that_agree_cost_no_evidence() {
    let faults = vec![fault(instances("c", 2), fails("broken"))];
    let plain = Case::new(faults.clone()).debug(DebugOptions::default()).await;
    let mut case = Case::new(faults);
    case.sentinel_every = 1;
    let report = case.debug(DebugOptions::default()).await;
    assert_eq!(causes(&report), causes(&plain));
    assert_eq!(report.trials.finished, plain.trials.finished);
    assert!(report.trials.sentinels >= 2, "{}", report.trials.sentinels);
}

#[tokio::test(start_paused = true)]
async fn spoiled_trials_are_no_evidence() {
    let spoiled = Fault { probability: 0.2, ..fault(Condition::Always, Effect::Invalid) };
    let cause = fault(instances("c", 2), fails("broken"));
    let case = Case::new(vec![spoiled, cause.clone()]);
    let report = case.debug(DebugOptions::default()).await;
    assert_eq!(causes(&report), [["instance c"]]);
    let plain = Case::new(vec![cause]).debug(DebugOptions::default()).await;
    assert_eq!(report.trials.finished, plain.trials.finished);
}

#[tokio::test(start_paused = true)]
async fn what_deltas_cost_is_remembered() {
    let case = Case::new(vec![fault(instances("c", 2), fails("broken"))]);
    case.debug(DebugOptions::default()).await;
    let space = Application::read_alone(FILE, "shop.yaml").unwrap().space().unwrap();
    let known = debug::Costs::load(&case.state(), "shop").apply(space.clone());
    assert_ne!(known, space);
}
