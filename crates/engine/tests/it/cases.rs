//! The seeded cases of the sample on the simulated platform: exactly the expected answer, whatever the seed.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use faultscope_engine::debug::{self, DebugOptions, DebugReport};
use faultscope_engine::{Session, SessionOptions};
use faultscope_model::compare::compare;
use faultscope_model::{Application, CampaignKind};
use faultscope_platform::memory::{Condition, Cost, Effect, Fault, MemoryPlatform, Simulation};
use serde::Deserialize;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

const SEEDS: u64 = 20;

/// A case as `cases/expected.yaml` has it.
#[derive(Debug, Deserialize)]
struct Case {
    case: String,
    file: PathBuf,
    good: Option<PathBuf>,
    deltas: usize,
    #[serde(default)]
    all: bool,
    #[serde(default)]
    flaky: bool,
    #[serde(default = "reduced")]
    verdict: String,
    #[serde(default)]
    causes: Vec<Vec<String>>,
    faults: Vec<Fault>,
}

fn reduced() -> String {
    "reduced".into()
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../apps/ticketing/cases")
}

fn cases() -> Vec<Case> {
    let text = std::fs::read_to_string(folder().join("expected.yaml")).unwrap();
    serde_saphyr::from_str(&text).unwrap()
}

fn read(file: &Path) -> Application {
    let path = folder().join(file);
    let load = |base: &str, next: &str| {
        let path = Path::new(base).parent().unwrap().join(next);
        let text = std::fs::read_to_string(&path).map_err(|e| e.to_string())?;
        Ok((text, path.to_string_lossy().into_owned()))
    };
    let text = std::fs::read_to_string(&path).unwrap();
    Application::read(&text, &path.to_string_lossy(), &load).unwrap()
}

/// The application of a case: one file, or a good deployment beside a bad one.
fn application(case: &Case) -> Application {
    let bad = read(&case.file);
    match &case.good {
        None => bad,
        Some(good) => compare(&read(good), &bad).unwrap().application,
    }
}

async fn answer(case: &Case, seed: u64) -> DebugReport {
    let folder = TempDir::new().unwrap();
    let application = application(case);
    let spread = |seconds| Cost { spread: 0.3, ..Cost::fixed(Duration::from_secs(seconds)) };
    let simulation = Simulation {
        seed,
        apply: spread(8),
        exec: spread(4),
        clear: Duration::ZERO,
        faults: case.faults.clone(),
    };
    let mut options = SessionOptions::new(CampaignKind::Test, folder.path().to_owned(), "faultscope".into());
    options.seed = seed;
    // All numbers of slots take their turn.
    options.slots = [1, 2, 4, 6][(seed % 4) as usize];
    let platform = Arc::new(MemoryPlatform::new(simulation));
    let session = Arc::new(Session::open(application, platform, options).await.unwrap());
    let options = DebugOptions { all: case.all, only_failing_test: true, ..DebugOptions::default() };
    let report = debug::debug(&session, &options, &CancellationToken::new()).await.unwrap();
    Arc::try_unwrap(session).unwrap().close("tested").await.unwrap();
    report
}

fn is_right(case: &Case, report: &DebugReport) -> bool {
    let verdict = serde_json::to_value(&report.verdict).unwrap();
    let mut found: Vec<Vec<String>> = report
        .causes
        .iter()
        .map(|cause| {
            let mut names: Vec<_> = cause.deltas.iter().map(|delta| delta.name.clone()).collect();
            names.sort();
            names
        })
        .collect();
    found.sort();
    let mut wanted = case.causes.clone();
    wanted.sort();
    let answered = match (case.all, wanted.is_empty()) {
        (_, true) => found.is_empty(),
        (true, _) => found == wanted && report.none_left,
        (false, _) => found.len() == 1 && wanted.contains(&found[0]),
    };
    verdict["kind"] == case.verdict.as_str() && answered
}

async fn holds(name: &str) {
    let case = cases().into_iter().find(|case| case.case == name).unwrap();
    assert_eq!(application(&case).space().unwrap().deltas.len(), case.deltas);
    let mut wrong = Vec::new();
    for seed in 1..=SEEDS {
        let report = answer(&case, seed).await;
        if !is_right(&case, &report) {
            let causes: Vec<Vec<_>> =
                report.causes.iter().map(|c| c.deltas.iter().map(|d| d.name.clone()).collect()).collect();
            wrong.push(format!("seed {seed}: {} {causes:?}", report.summary()));
        }
    }
    let allowed = usize::from(case.flaky);
    assert!(wrong.len() <= allowed, "{name}: {} of {SEEDS} wrong\n{}", wrong.len(), wrong.join("\n"));
}

macro_rules! holds {
    ($($function:ident: $case:literal),+ $(,)?) => {
        $(#[tokio::test(start_paused = true)]
        async fn $function() {
            holds($case).await;
        })+

        #[test]
        fn every_case_is_tested() {
            let tested = [$($case),+];
            for case in cases() {
                assert!(tested.contains(&case.case.as_str()), "{} has no test", case.case);
            }
        }
    };
}

holds! {
    dd_f1: "DD-F1",
    dd_f2: "DD-F2",
    dd_f3: "DD-F3",
    dd_f4: "DD-F4",
    two_independent_causes: "two independent causes",
    three_dimensions: "three dimensions",
    nodes: "nodes",
    fails_already: "fails already",
    not_reproduced: "not reproduced",
    unresolved_trials: "unresolved trials",
    flaky: "flaky",
    good_and_bad: "good and bad",
}

/// DD-F2 as it is with real processes: all tests run, and a scheme that only one of two services has makes
/// another one fail.
#[tokio::test(start_paused = true)]
async fn all_causes_of_dd_f2_among_unresolved_trials() {
    let mut case = cases().into_iter().find(|case| case.case == "DD-F2").unwrap();
    case.all = true;
    let has = |service: &str| Condition::Config {
        service: service.parse().unwrap(),
        item: "env.TOKEN_SCHEME".into(),
        equals: None,
    };
    let only = |one: &str, other: &str| Condition::All(vec![has(one), Condition::Not(Box::new(has(other)))]);
    let when = Condition::Any(vec![only("auth", "dashboard"), only("dashboard", "auth")]);
    let effect = Effect::Fail { message: "status 401 != 200".into() };
    case.faults.insert(0, Fault { when, probability: 1.0, effect });
    let mut wrong = Vec::new();
    for seed in 1..=SEEDS {
        let report = answer(&case, seed).await;
        if !is_right(&case, &report) || report.trials.finished > 60 {
            let causes: Vec<Vec<_>> =
                report.causes.iter().map(|c| c.deltas.iter().map(|d| d.name.clone()).collect()).collect();
            wrong.push(format!("seed {seed}: {} {causes:?}, {}", report.summary(), report.none_left));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
