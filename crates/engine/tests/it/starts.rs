//! Services that do not come up, as the failure that is debugged.

use std::sync::Arc;
use std::time::Duration;

use faultscope_engine::debug::{DebugOptions, Flaky, Verdict};
use faultscope_engine::stored;
use faultscope_model::Circumstance;
use faultscope_model::outcome::StartEnding;
use faultscope_platform::memory::{Condition, Effect, Fault};
use faultscope_store::Store;

use crate::bed::{fails, fault, instances};
use crate::shop::{Case, causes, config};

#[tokio::test(start_paused = true)]
async fn what_keeps_a_service_from_coming_up_is_reduced() {
    let dies = |ending| Effect::NotReady {
        service: "d".parse().unwrap(),
        ending,
        last_lines: vec!["no room for X".into()],
    };
    let cause = Condition::All(vec![config("d", "memory"), config("d", "env.X")]);
    // With c alone it ends otherwise, which is not the failure; where it comes up, the test may fail as it likes.
    let otherwise = Condition::All(vec![instances("c", 2), Condition::Not(Box::new(config("d", "env.X")))]);
    let mut case = Case::new(vec![
        fault(cause.clone(), dies(StartEnding::OutOfMemory)),
        fault(otherwise, dies(StartEnding::Code(3))),
        fault(instances("a", 2), fails("broken")),
    ]);
    case.slots = 2;
    let report = case.debug(DebugOptions { boundary: true, ..DebugOptions::default() }).await;
    assert_eq!(causes(&report), [["config d.env.X", "config d.memory"]], "{report:#?}");
    assert!(report.causes[0].minimal);
    let signature = report.signature.unwrap();
    assert_eq!(signature.to_string(), "service d does not come up: killed: out of memory");
    let start = report.start.unwrap();
    assert_eq!(
        (start.instance.to_string().as_str(), start.last_lines),
        ("d-1", vec!["no room for X".into()])
    );
    assert_eq!(Some(start.failing), report.causes[0].run);
    assert!(start.passing.is_some() && !start.without.is_empty());
    assert_eq!(report.difference, None);
    assert!(!report.boundaries.is_empty(), "numbers of the cause are looked into as for a test");
    let runs = stored::runs(&Store::open(case.state()).unwrap().campaigns().unwrap()[0].reader().unwrap());
    let tested = |run: &&faultscope_model::Run| run.trial.is_chosen() && !run.evidence.tests.is_empty();
    assert_eq!(runs.unwrap().iter().filter(tested).count(), 0, "no test is needed");

    // A budget and the way on, as for a test.
    let case = Case::new(vec![fault(cause, dies(StartEnding::Late))]);
    let report = case.debug(DebugOptions { most_trials: Some(2), ..DebugOptions::default() }).await;
    assert_eq!((report.verdict, report.trials.finished), (Verdict::OutOfBudget, 2));
    let report = case.resume(DebugOptions::default()).await;
    assert_eq!(causes(&report), [["config d.env.X", "config d.memory"]]);
    assert_eq!(report.trials.earlier, 2);
}

#[tokio::test(start_paused = true)]
async fn starts_that_fail_at_times_or_always() {
    let dies = Effect::NotReady {
        service: "d".parse().unwrap(),
        ending: StartEnding::Code(1),
        last_lines: Vec::new(),
    };
    let report = Case::new(vec![fault(Condition::Always, dies.clone())]).debug(DebugOptions::default()).await;
    assert_eq!(report.verdict, Verdict::FailsAlready);
    assert_eq!(
        report.summary(),
        "service d does not come up in the simplest circumstance either: look inside the service"
    );
    let shaky = Fault { probability: 0.5, ..fault(config("d", "memory"), dies.clone()) };
    let report = Case::new(vec![shaky.clone()]).debug(DebugOptions::default()).await;
    assert_eq!(causes(&report), [["config d.memory"]]);
    assert!(report.calibration.unwrap().rate < 1.0);
    // A test that fails where it comes up is what was asked for.
    let mut tests = 0;
    for seed in 1..=4 {
        let mut case = Case::new(vec![shaky.clone(), fault(instances("c", 2), fails("broken"))]);
        case.seed = seed;
        let report = case.debug(DebugOptions::default()).await;
        let is_test = report.signature.as_ref().unwrap().failing_test() == Some("pay");
        // Chance may keep it from coming up in all checks; then that is what is looked for.
        let cause = if is_test { "instance c" } else { "config d.memory" };
        assert_eq!(causes(&report), [[cause]], "seed {seed}");
        tests += usize::from(is_test);
    }
    assert!(tests > 0, "the seeds must let it come up");
}

/// The memory limit of a service in MiB; none where there is no limit.
fn memory_of(circumstance: &Circumstance, service: &str) -> Option<f64> {
    let value = circumstance.config.get(service)?.get("memory")?;
    match value.strip_suffix("MiB") {
        Some(number) => number.parse().ok(),
        None => value.strip_suffix("GiB")?.parse().ok().map(|number: f64| number * 1024.0),
    }
}

#[tokio::test(start_paused = true)]
async fn a_value_passes_where_the_tests_do_not_where_the_service_merely_comes_up() {
    let within = |from: f64, below: f64| {
        Condition::Custom(Arc::new(move |circumstance: &Circumstance| {
            memory_of(circumstance, "d").is_some_and(|memory| (from..below).contains(&memory))
        }))
    };
    let dies = Effect::NotReady {
        service: "d".parse().unwrap(),
        ending: StartEnding::OutOfMemory,
        last_lines: Vec::new(),
    };
    let case = Case::new(vec![fault(within(0.0, 96.0), dies), fault(within(96.0, 300.0), fails("too slow"))]);
    let report = case.debug(DebugOptions { boundary: true, ..DebugOptions::default() }).await;
    assert_eq!(causes(&report), [["config d.memory"]]);
    let [boundary] = &report.boundaries[..] else { panic!("{:#?}", report.boundaries) };
    let runs = stored::runs(&Store::open(case.state()).unwrap().campaigns().unwrap()[0].reader().unwrap());
    let passing =
        runs.unwrap().into_iter().find(|run| Some(&run.id) == boundary.passing_run.as_ref()).unwrap();
    assert!(memory_of(&passing.circumstance, "d").unwrap() >= 300.0, "{}", boundary.describe());
    assert!(
        passing.evidence.tests.iter().all(|test| test.failure.is_none())
            && !passing.evidence.tests.is_empty()
    );
    assert!(
        boundary.describe().contains("could not be judged (another failure: pay:"),
        "{}",
        boundary.describe()
    );
}

/// A shop whose service `d` may take two minutes, and takes ten seconds.
fn patient(faults: Vec<Fault>) -> Case {
    let mut case = Case::new(faults);
    let waits = "d: { command: [d], ports: [80], ready: { tcp: 80, within: 120s } }";
    case.file = case.file.replace("d: { command: [d] }", waits);
    case
}

fn late(service: &str) -> Effect {
    Effect::NotReady { service: service.parse().unwrap(), ending: StartEnding::Late, last_lines: Vec::new() }
}

/// The runs of the only campaign in which a service was late: how many were waited out, and how many were cut.
fn late_runs(case: &Case) -> (usize, usize) {
    let campaign = &Store::open(case.state()).unwrap().campaigns().unwrap()[0];
    let runs = stored::runs(&campaign.reader().unwrap()).unwrap();
    let late = runs.iter().filter(|run| run.evidence.start_failure().is_some());
    let (cut, waited_out): (Vec<_>, Vec<_>) = late.partition(|run| run.evidence.is_cut());
    // A deployment takes ten seconds, so that five times as much is waited for.
    assert!(cut.iter().all(|run| run.cost.total < Duration::from_secs(61)), "{cut:#?}");
    assert!(waited_out.iter().all(|run| run.cost.total > Duration::from_secs(120)));
    (waited_out.len(), cut.len())
}

#[tokio::test(start_paused = true)]
async fn a_port_that_never_opens_is_waited_for_twice() {
    let cause = Condition::All(vec![config("d", "memory"), config("d", "env.X")]);
    let case = patient(vec![fault(cause, late("d"))]);
    let report = case.debug(DebugOptions::default()).await;
    assert_eq!(causes(&report), [["config d.env.X", "config d.memory"]]);
    assert!(report.causes[0].confirmation.is_confirmed());
    let (waited_out, cut) = late_runs(&case);
    assert_eq!(waited_out, 2, "the first check, and the first repetition of the answer");
    assert!(cut > 12, "{cut}");
    let start = report.start.unwrap();
    assert!(!start.reason.to_string().contains("in vain"), "the run that is shown waited: {}", start.reason);
}

#[tokio::test(start_paused = true)]
async fn a_start_that_is_slow_is_not_taken_for_one_that_fails() {
    let slow = Effect::SlowStart { service: "d".parse().unwrap(), takes: Duration::from_secs(80) };
    let cause = Condition::All(vec![config("d", "memory"), config("d", "env.X")]);
    for slots in [1, 3] {
        let mut case =
            patient(vec![fault(cause.clone(), late("d")), fault(config("d", "memory"), slow.clone())]);
        case.slots = slots;
        let report = case.debug(DebugOptions::default()).await;
        assert_eq!(causes(&report), [["config d.env.X", "config d.memory"]], "{slots} slots");
        assert!(report.causes[0].confirmation.is_confirmed());
        assert_eq!(report.calibration.unwrap().rate, 1.0, "it is slow, not flaky");
    }
}

#[tokio::test(start_paused = true)]
async fn starts_that_are_late_at_times_are_waited_out() {
    let shaky = Fault { probability: 0.5, ..fault(config("d", "memory"), late("d")) };
    let case = patient(vec![shaky]);
    let report = case.debug(DebugOptions::default()).await;
    assert_eq!(causes(&report), [["config d.memory"]]);
    assert!(report.calibration.unwrap().rate < 1.0);
    let rate = patient(vec![fault(config("d", "memory"), late("d"))]);
    rate.debug(DebugOptions { flaky: Flaky::Rate(0.5), ..DebugOptions::default() }).await;
    assert_eq!(late_runs(&rate).1, 0, "a known rate is that of starts with their full time");
}

#[tokio::test(start_paused = true)]
async fn a_test_behind_a_slow_start_is_waited_for() {
    let slow = Effect::SlowStart { service: "d".parse().unwrap(), takes: Duration::from_secs(80) };
    let case = patient(vec![fault(config("d", "memory"), slow), fault(instances("c", 2), fails("broken"))]);
    let report = case.debug(DebugOptions::default()).await;
    assert_eq!(causes(&report), [["instance c"]]);
    assert_eq!(late_runs(&case), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_resumed_campaign_waits_its_answer_out() {
    let cause = Condition::All(vec![config("d", "memory"), config("d", "env.X")]);
    let case = patient(vec![fault(cause, late("d"))]);
    let report = case.debug(DebugOptions { most_trials: Some(6), ..DebugOptions::default() }).await;
    assert_eq!(report.verdict, Verdict::OutOfBudget);
    let report = case.resume(DebugOptions::default()).await;
    assert_eq!(causes(&report), [["config d.env.X", "config d.memory"]]);
    assert!(report.causes[0].confirmation.is_confirmed());
    assert!(late_runs(&case).0 >= 2);
}
