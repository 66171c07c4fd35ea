//! Tests whose own process is perturbed and says what happened, through the two files; and how sure a campaign is
//! of what it found.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use faultscope_engine::resilience::{Flaky, ResilienceOptions, ResilienceReport, Strategy, Verdict};
use faultscope_model::perturbation::{Configuration, Kind, PERTURBATION_FILE, Perturbation, TRACE_FILE};
use faultscope_platform::loopback::{Loopback, Test};
use serde_json::json;

use crate::bed::{Bed, defects};

const FILE: &str = "name: actors\ntests: [ { name: process, run: [process] } ]\n";
const DEFECT: &str = "duplicate a.Go/b.Go";

/// A process with the actors `a`, `b` and `c`, of which the last one keeps its state. Everything it is asked to
/// do to a message it does, when that is sent.
pub(crate) struct Actors {
    asked: Vec<Perturbation>,
    done: Vec<Perturbation>,
    lines: Vec<String>,
    path: PathBuf,
}

impl Actors {
    fn start(test: &Test) -> Self {
        let file = |name: &str| PathBuf::from(test.env(name).expect("a path"));
        let asked: Configuration =
            serde_json::from_str(&std::fs::read_to_string(file(PERTURBATION_FILE)).unwrap()).unwrap();
        let mut actors =
            Self { asked: asked.perturbations, done: Vec::new(), lines: Vec::new(), path: file(TRACE_FILE) };
        actors.tell(json!({ "faultscope_trace": 1, "adapter": "rust" }));
        for actor in ["a", "b", "c"] {
            actors.tell(json!({ "event": "create", "child": actor, "persistent": actor == "c" }));
        }
        actors
    }

    fn tell(&mut self, event: serde_json::Value) {
        self.lines.push(event.to_string());
    }

    /// Sends a message in a turn that an earlier one caused.
    fn send(&mut self, number: u64, turn: Option<u64>, to: &str, cause: &str) {
        let target = if cause.is_empty() { format!("{to}.Go") } else { format!("{cause}/{to}.Go") };
        self.tell(json!({
            "event": "send", "from": "x", "to": to, "message": "Go", "send": number, "turn": turn,
            "at_least_once": true, "target": target,
        }));
        self.tell(json!({ "event": "turn", "to": to, "send": number, "turn": number }));
        for perturbation in self.asked.clone() {
            if perturbation.target.to_string() == target {
                self.tell(json!({ "event": "applied", "perturbation": perturbation }));
                self.done.push(perturbation);
            }
        }
    }

    /// `a` tells `b` and `c`.
    fn play(&mut self) {
        self.send(1, None, "a", "");
        self.send(2, Some(1), "b", "a.Go");
        self.send(3, Some(1), "c", "a.Go");
    }

    fn did(&self, text: &str) -> bool {
        self.done.iter().any(|done| done.to_string() == text)
    }

    fn write(&self) {
        std::fs::write(&self.path, self.lines.join("\n") + "\n").unwrap();
    }
}

fn broken() -> Result<(), String> {
    Err("process.rs:7: error@[b] 2 != 1".into())
}

/// A repeated message to `b` is a defect.
pub(crate) fn fails_twice(actors: &Actors) -> Result<(), String> {
    if actors.did(DEFECT) { broken() } else { Ok(()) }
}

/// A process that plays, does something more, and ends as that says; the number counts its runs from 0.
pub(crate) fn process(end: impl Fn(&mut Actors, u32) -> Result<(), String> + Send + Sync + 'static) -> Bed {
    let (end, runs) = (Arc::new(end), Arc::new(AtomicU32::new(0)));
    let run = move |test: Test| {
        let (end, number) = (end.clone(), runs.fetch_add(1, Ordering::Relaxed));
        async move {
            let mut actors = Actors::start(&test);
            actors.play();
            let ended = end(&mut actors, number);
            actors.write();
            ended
        }
    };
    Bed::new(FILE, Loopback::new().program("process", run))
}

async fn usual(bed: &Bed) -> ResilienceReport {
    bed.resilience(ResilienceOptions::default()).await
}

fn of(kinds: &[Kind]) -> ResilienceOptions {
    ResilienceOptions { kinds: kinds.to_vec(), ..ResilienceOptions::default() }
}

#[tokio::test]
async fn messages_are_perturbed_whatever_the_strategy() {
    let bed = process(|actors, _| fails_twice(actors));
    let report = usual(&bed).await;
    assert_eq!(defects(&report), [DEFECT]);
    let test = &report.tests[0];
    let candidates: Vec<_> = test.candidates.iter().map(|(kind, count)| (*kind, *count)).collect();
    assert_eq!(candidates, [(Kind::Duplicate, 3), (Kind::Restart, 1)]);
    assert_eq!(
        (&test.defects[0].blamed[..], test.defects[0].location.as_deref()),
        (&["b".to_owned()][..], Some("process.rs:7"))
    );
    for strategy in [Strategy::RtR, Strategy::RtDd, Strategy::RtDdO] {
        let report = bed.resilience(ResilienceOptions { strategy, ..ResilienceOptions::default() }).await;
        assert_eq!(defects(&report), [DEFECT], "{strategy:?}");
    }
}

#[tokio::test]
async fn a_process_that_speaks_nonsense_shows_nothing() {
    let report = usual(&process(|actors, _| {
        actors.lines.push("nonsense".into());
        Ok(())
    }))
    .await;
    let Verdict::Unresolved { reason } = &report.verdict else { panic!("{report:#?}") };
    assert!(
        reason.to_string().starts_with("the trace of the test's process cannot be read: line 11: "),
        "{reason}"
    );
    assert_eq!(report.tests[0].trials.all(), 2, "both baselines were under way");

    let bed = process(|actors, _| {
        if !actors.asked.is_empty() {
            actors.lines.push("nonsense".into());
        }
        Ok(())
    });
    let report = bed.resilience(of(&[Kind::Restart])).await;
    assert!(matches!(report.verdict, Verdict::Unresolved { .. }), "{report:#?}");
    let why = report.tests[0].missed[0].why.to_string();
    assert!(why.contains("cannot be read: line 12"), "{why}");

    // A trace that is gone tells of nothing that was done.
    let bed = process(|actors, _| {
        if !actors.asked.is_empty() {
            actors.lines.truncate(1);
        }
        Ok(())
    });
    let report = bed.resilience(of(&[Kind::Restart])).await;
    let Verdict::Unresolved { reason } = &report.verdict else { panic!("{report:#?}") };
    assert_eq!(reason.to_string(), "not applied: restart a.Go/c.Go (no such call or message came)");
    let trials = report.tests[0].trials;
    assert_eq!((trials.baseline, trials.neutral, trials.unresolved), (2, 1, 1));
}

/// What comes after the first perturbation is never reached, so it cannot be applied.
#[tokio::test]
async fn a_process_that_dies_or_hangs_when_perturbed_shows_a_defect() {
    let ends = |hangs: bool| {
        let run = move |test: Test| async move {
            let mut actors = Actors::start(&test);
            actors.send(1, None, "a", "");
            if !actors.done.is_empty() {
                actors.write();
                test.print("dying");
                if hangs {
                    std::future::pending::<()>().await;
                }
                return 139;
            }
            actors.send(2, Some(1), "b", "a.Go");
            actors.write();
            0
        };
        Bed::new(FILE, Loopback::new().program("process", run))
    };
    let report = ends(false).resilience(of(&[Kind::Duplicate])).await;
    let first = &report.tests[0].defects[0];
    assert_eq!(first.signature.as_ref().unwrap().to_string(), "process: exit code 139: dying");
    assert!(first.run.is_some() && first.perturbations[0].target.to_string() == "a.Go", "{first:#?}");

    let within = Some(Duration::from_millis(200));
    let options = ResilienceOptions { within, most_trials: Some(1), ..of(&[Kind::Duplicate]) };
    let report = ends(true).resilience(options).await;
    assert_eq!(report.verdict, Verdict::OutOfBudget);
    let message = &report.tests[0].defects[0].signature.as_ref().unwrap().message;
    assert!(message.starts_with("did not end within 200ms"), "{message}");
}

#[tokio::test]
async fn kinds_that_messages_do_not_know_are_refused_with_a_reason() {
    let report = process(|_, _| Ok(())).resilience(of(&[Kind::LostAnswer, Kind::Error])).await;
    assert_eq!(report.verdict, Verdict::NothingToPerturb);
    assert_eq!(report.tests[0].notes, ["messages of actors know only duplicate and restart"]);
}

#[tokio::test]
async fn a_test_that_fails_by_itself_at_times_is_measured() {
    // Every eighth run fails, whatever is done to it.
    let report =
        usual(&process(|actors, n| if n % 8 == 0 { Err("by chance".into()) } else { fails_twice(actors) }))
            .await;
    assert_eq!(defects(&report), [DEFECT]);
    assert_eq!(report.tests[0].flaky, Some(Flaky { failed: 1, tried: 8, must_fail: 3 }));
}

#[tokio::test]
async fn chance_makes_no_defects_and_hides_none() {
    // The two runs without perturbations pass; then one in four fails, whatever is done.
    let chance = |n: u32| if n % 4 == 2 { Err("by chance".to_owned()) } else { Ok(()) };
    let report = usual(&process(move |_, n| chance(n))).await;
    assert_eq!(defects(&report), [""; 0], "{report:#?}");
    assert!(report.tests[0].flaky.is_some(), "it was noticed: {report:#?}");
    let report = usual(&process(move |actors, n| chance(n).and_then(|()| fails_twice(actors)))).await;
    assert_eq!(defects(&report), [DEFECT], "what is really wrong is still found");
}

#[tokio::test]
async fn a_failure_that_does_not_recur_is_reported_but_not_counted() {
    let bed = process(|_, n| if n == 2 || n == 3 { Err("once".into()) } else { Ok(()) });
    let report = bed.resilience(of(&[Kind::Restart])).await;
    assert_eq!(defects(&report), [""; 0]);
    let test = &report.tests[0];
    let is_told = test.flaky.is_some() || test.notes.join("\n").contains("failed once and passed again");
    assert!(is_told, "{report:#?}");
}

#[tokio::test]
async fn alternatives_at_the_same_receiver_are_listed_with_a_defect() {
    let bed = process(|actors, _| {
        actors.send(4, Some(1), "b", "a.Go#2");
        actors.send(5, Some(1), "b", "a.Go#3");
        if actors.did(DEFECT) || actors.did("duplicate a.Go#2/b.Go") { broken() } else { Ok(()) }
    });
    let report = usual(&bed).await;
    let [found] = &report.tests[0].defects[..] else { panic!("{report:#?}") };
    let mut names: Vec<String> =
        found.perturbations.iter().chain(found.also.iter().flatten()).map(ToString::to_string).collect();
    names.sort();
    assert_eq!(names, ["duplicate a.Go#2/b.Go", DEFECT]);
}

#[tokio::test]
async fn what_had_no_chance_beside_others_is_tried_alone() {
    // A restart is carried out only when nothing else is asked for.
    let bed = process(|actors, _| {
        if actors.asked.len() > 1 {
            actors.lines.retain(|line| !(line.contains("\"applied\"") && line.contains("\"restart\"")));
            return Ok(());
        }
        if actors.did("restart a.Go/c.Go") { broken() } else { Ok(()) }
    });
    let report = usual(&bed).await;
    assert_eq!(defects(&report), ["restart a.Go/c.Go"], "{report:#?}");
    assert!(report.tests[0].missed.is_empty());
}
