//! Campaigns that go on after an interruption: nothing that has finished is done again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use faultscope_engine::debug::{DebugOptions, Verdict as DebugVerdict};
use faultscope_engine::resilience::{ResilienceOptions, ResilienceReport, Verdict};
use faultscope_engine::{Drive as _, EngineError, PerturbedTests, Unperturbed, stored};
use faultscope_model::application::TestCase;
use faultscope_model::event::Event;
use faultscope_model::{Application, Run, Treatment, TrialRole};
use faultscope_platform::loopback::{Call, Loopback, Test};
use tokio_util::sync::CancellationToken;

use crate::bed::{Bed, causes, defects};
use crate::{processes, shop};

/// Sixteen deltas of which one breaks `back`. A second test counts its runs, and hangs in one of them until it is
/// told to stop.
fn decoys(hang_at: u32, stop: &CancellationToken) -> Bed {
    let (runs, stop) = (Arc::new(AtomicU32::new(0)), stop.clone());
    let platform = Loopback::new()
        .service("back", |call: Call| async move {
            let status = if call.instance.env("D11").is_some() { 503 } else { 200 };
            (status, "a word")
        })
        .program("count", move |_: Test| {
            let (number, stop) = (runs.fetch_add(1, Ordering::Relaxed) + 1, stop.clone());
            async move {
                if number == hang_at {
                    stop.cancel();
                    std::future::pending::<()>().await;
                }
                0
            }
        });
    let items: Vec<String> = (1..=16).map(|n| format!("env.D{n}: \"{n}\"")).collect();
    let file = format!(
        "name: decoys
services: {{ back: {{ command: [back], ports: [80] }} }}
tests: [ {{ name: word, http: {{ get: \"http://back/\" }} }}, {{ name: count, run: [count] }} ]
failing: {{ config: {{ back: {{ {} }} }} }}
",
        items.join(", ")
    );
    Bed::new(&file, platform)
}

fn stored_runs(bed: &Bed) -> Vec<Run> {
    let campaigns = bed.store().campaigns().unwrap();
    assert_eq!(campaigns.len(), 1, "it goes on in the same campaign");
    stored::runs(&campaigns[0].reader().unwrap()).unwrap()
}

/// Sets of a search that more than one stored run has.
fn repeated(bed: &Bed) -> Vec<Treatment> {
    let mut sets: BTreeMap<Treatment, u32> = BTreeMap::new();
    for run in stored_runs(bed).iter().filter(|run| run.trial.is_chosen()) {
        *sets.entry(run.treatment.clone()).or_default() += 1;
    }
    sets.into_iter().filter(|(_, times)| *times > 1).map(|(set, _)| set).collect()
}

#[tokio::test]
async fn an_interrupted_search_goes_on_where_it_was() {
    let stop = CancellationToken::new();
    // Four checks and two trials end; the third trial of the search is interrupted.
    let bed = decoys(7, &stop);
    let options = DebugOptions::default();
    let report = bed.try_debug(&options, false, &stop).await.unwrap();
    assert_eq!((report.verdict, report.trials.finished), (DebugVerdict::Stopped, 2));
    assert_eq!(stored_runs(&bed).len(), 6, "a cancelled trial is no run");
    let report = bed.try_debug(&options, true, &CancellationToken::new()).await.unwrap();
    assert_eq!(
        (report.verdict.clone(), causes(&report)),
        (DebugVerdict::Reduced, vec![vec!["config back.env.D11"]])
    );
    assert_eq!((report.trials.earlier, report.trials.checks), (2, 4));
    assert_eq!(repeated(&bed), [] as [Treatment; 0]);
    let checks = stored_runs(&bed)
        .iter()
        .filter(|run| matches!(run.trial.role, TrialRole::CheckSimplest | TrialRole::CheckFailing))
        .count();
    assert_eq!(checks, 4, "known checks are not repeated");
    assert!(report.difference.is_some(), "runs from before are evidence, too");
    let again = bed.try_debug(&options, true, &CancellationToken::new()).await;
    assert!(matches!(again, Err(EngineError::CannotResume { .. })), "{again:?}");
}

#[tokio::test]
async fn a_search_that_ran_out_of_trials_goes_on_unless_something_else_is_asked() {
    let bed = decoys(u32::MAX, &CancellationToken::new()).with(|options| options.slots = 2);
    let never = CancellationToken::new();
    let few = DebugOptions { most_trials: Some(2), ..DebugOptions::default() };
    let report = bed.debug(few).await;
    assert_eq!((report.verdict, report.trials.finished), (DebugVerdict::OutOfBudget, 2));
    let other = bed.try_debug(&DebugOptions { all: true, ..DebugOptions::default() }, true, &never).await;
    let refused = other.unwrap_err().to_string();
    assert!(refused.contains("the option `all` has changed"), "{refused}");
    let report = bed.try_debug(&DebugOptions::default(), true, &never).await.unwrap();
    assert_eq!(causes(&report), [["config back.env.D11"]]);
    assert_eq!((report.trials.earlier, repeated(&bed)), (2, vec![]));
}

#[tokio::test]
async fn a_changed_program_is_noticed() {
    let mut bed = decoys(u32::MAX, &CancellationToken::new());
    bed.file = bed.file.replace("command: [back]", "command: [back, ./back.sh]");
    let program = bed.folder.path().join("back.sh");
    std::fs::write(&program, "one").unwrap();
    let few = DebugOptions { most_trials: Some(2), ..DebugOptions::default() };
    assert_eq!(bed.debug(few).await.verdict, DebugVerdict::OutOfBudget);
    let (options, never) = (DebugOptions::default(), CancellationToken::new());
    let resume = || bed.try_debug(&options, true, &never);
    std::fs::write(&program, "two").unwrap();
    let refused = resume().await.unwrap_err().to_string();
    assert!(refused.contains("the program `./back.sh` of back has changed"), "{refused}");
    std::fs::write(&program, "one").unwrap();
    assert_eq!(causes(&resume().await.unwrap()), [["config back.env.D11"]]);
}

/// A campaign in pieces of a few trials, until the answer is there.
async fn in_pieces(bed: &Bed) -> ResilienceReport {
    let options = ResilienceOptions { most_trials: Some(3), ..ResilienceOptions::default() };
    let mut report = bed.resilience(options.clone()).await;
    while report.verdict == Verdict::OutOfBudget {
        let before = n_chosen(bed);
        report = bed.try_resilience(&options, true, &CancellationToken::new()).await.unwrap();
        let now = n_chosen(bed) - before;
        assert!((1..=3).contains(&now), "{now} of 3 trials, after {before}");
    }
    report
}

fn n_chosen(bed: &Bed) -> usize {
    stored_runs(bed).iter().filter(|run| run.trial.is_chosen()).count()
}

#[tokio::test]
async fn an_interrupted_look_for_defects_does_nothing_twice() {
    let actors = || processes::process(|actors, _| processes::fails_twice(actors));
    let at_once = actors();
    let whole = at_once.resilience(ResilienceOptions::default()).await;
    let bed = actors();
    let report = in_pieces(&bed).await;
    assert_eq!((report.verdict.clone(), defects(&report)), (Verdict::Defects, defects(&whole)));
    assert_eq!(n_chosen(&bed), n_chosen(&at_once), "it took as many trials as at once");
    assert!(report.tests[0].trials.earlier > 0);
}

#[tokio::test]
async fn an_interrupted_look_for_defects_of_services_takes_the_same_course() {
    let (at_once, bed) = (shop::shop(&[]), shop::shop(&[]));
    let whole = at_once.resilience(ResilienceOptions::default()).await;
    let report = in_pieces(&bed).await;
    assert_eq!((report.verdict.clone(), defects(&report)), (Verdict::Defects, defects(&whole)));
    assert_eq!(course(&bed), course(&at_once), "no trial is repeated, and none is new");
}

/// What trials of the search were given, in the order in which they began.
fn course(bed: &Bed) -> Vec<Treatment> {
    let started = bed.events().into_iter().filter_map(|event| match event {
        Event::TrialStarted { trial, treatment, .. } if trial.is_chosen() => Some(treatment),
        _ => None,
    });
    started.collect()
}

/// How long a command may take follows from how long it took unperturbed, which is never twice the same.
#[tokio::test]
async fn a_limit_that_follows_from_the_baselines_is_no_other_question() {
    let question = |within: Duration| {
        let text = "name: x\nservices: { a: { command: [a] } }\ntests: [ { name: t, run: [t] } ]\n";
        let test = Application::read_alone(text, "x.yaml").unwrap().tests.remove(0);
        let drive = PerturbedTests {
            test: TestCase { within, ..test },
            perturbations: Vec::new(),
            invariants: Vec::new(),
            tolerant: false,
            unperturbed: Unperturbed::default(),
            repeats: false,
        };
        drive.question()
    };
    assert_eq!(question(Duration::from_secs(40)), question(Duration::from_millis(41_300)));
}
