//! What the search itself costs: one decision among 1,000 deltas, and a campaign over 10,000.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use faultscope_engine::debug::{self, DebugOptions, Verdict};
use faultscope_engine::{Session, SessionOptions};
use faultscope_model::figures::{Better, Figure};
use faultscope_model::{Application, DeltaSet, Outcome, TrialId};
use faultscope_platform::memory::{Condition, Cost, Effect, Fault, MemoryPlatform, Simulation};
use faultscope_search::simulate::{Durations, Family, Instance, Oracle, simulate};
use faultscope_search::{Bayes, BayesOptions, Moves, Problem, Search, SlotView, Standing};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::bench::usage::own_thread;
use crate::error::CommandError;
use crate::exit::Exit;
use crate::project;

/// A search whose decisions are timed: everything between two trials.
struct Timed {
    search: Bayes,
    recorded: Duration,
    decisions: Vec<Duration>,
}

impl Search for Timed {
    fn plan(&mut self, slots: &[SlotView], in_flight: &[TrialId]) -> Moves {
        let began = own_thread();
        let moves = self.search.plan(slots, in_flight);
        self.decisions.push(own_thread() - began + std::mem::take(&mut self.recorded));
        moves
    }

    fn record(&mut self, trial: TrialId, outcome: &Outcome, cost: Duration) {
        let began = own_thread();
        self.search.record(trial, outcome, cost);
        self.recorded += own_thread() - began;
    }

    fn is_done(&self) -> bool {
        self.search.is_done()
    }

    fn standing(&self) -> Standing {
        self.search.standing()
    }
}

/// What deciding costs at 1,000 deltas in CPU time, with causes of 1, 2, 4 and 8.
pub(super) fn decisions(seed: u64) -> Vec<Figure> {
    const DELTAS: usize = 1_000;
    let mut all: Vec<f64> = Vec::new();
    for (number, k) in (0..).zip([1, 2, 4, 8]) {
        let seed = seed.wrapping_add(number);
        let instance = Instance {
            id: format!("decisions-{k}"),
            n: DELTAS,
            k,
            family: Family::Mono,
            causes: vec![(0..k).map(|i| (i * 127 + seed as usize * 31) % DELTAS).collect()],
            blockers: Vec::new(),
            seed,
        };
        let search = Bayes::new(Problem::new(DELTAS), BayesOptions { seed, ..BayesOptions::default() });
        let mut timed = Timed { search, recorded: Duration::ZERO, decisions: Vec::new() };
        simulate(&mut timed, &Oracle::new(&instance), Durations::Lognormal(seed), 4, 10_000);
        all.extend(timed.decisions.iter().map(|took| took.as_secs_f64() * 1000.0));
    }
    let mean = all.iter().sum::<f64>() / all.len().max(1) as f64;
    let largest = all.iter().copied().fold(0.0, f64::max);
    vec![
        crate::bench::lower("a decision at 1,000 deltas, mean", mean, "ms", 1.0),
        Figure::new("a decision at 1,000 deltas, largest", largest, "ms", Better::Lower),
    ]
}

/// A whole campaign over 10,000 settings of which five together fail, on the simulated platform, whose
/// trials take no time: what is measured is the tool.
pub(super) async fn ten_thousand(seed: u64) -> Result<Figure, CommandError> {
    const DELTAS: usize = 10_000;
    let cause: Vec<usize> = (0..5).map(|i| (i * 1_973 + seed as usize * 97) % DELTAS).collect();
    let mut text = String::from(
        "name: large\nservices: { s: { command: [s], ports: [80] } }\ntests: [ { name: t, run: [t] } ]\n\
         failing:\n  config:\n    s:\n",
    );
    for number in 0..DELTAS {
        let _ = writeln!(text, "      env.V{number:05}: \"1\"");
    }
    let internal =
        |e: &dyn std::fmt::Display| CommandError::internal("the large space").because(e.to_string());
    let application = Application::read_alone(&text, "large.yaml")?;
    let service = application.services.keys().next().cloned().ok_or_else(|| internal(&"no service"))?;
    let item = |number: &usize| Condition::Config {
        service: service.clone(),
        item: format!("env.V{number:05}"),
        equals: None,
    };
    let simulation = Simulation {
        seed,
        apply: Cost::fixed(Duration::ZERO),
        exec: Cost::fixed(Duration::ZERO),
        clear: Duration::ZERO,
        faults: vec![Fault {
            when: Condition::All(cause.iter().map(item).collect()),
            probability: 1.0,
            effect: Effect::Fail { message: "broken".into() },
        }],
    };
    let folder = tempfile::tempdir()
        .map_err(|e| CommandError::new(Exit::Environment, "there is no temporary folder").because(e))?;
    let mut options = SessionOptions::new("bench", folder.path().to_owned(), project::own_program()?);
    options.slots = 4;
    options.seed = seed;
    let platform = Arc::new(MemoryPlatform::new(simulation));
    let began = Instant::now();
    let session = Arc::new(Session::open(application, platform, options).await?);
    let space = session.application().space().map_err(|e| internal(&e))?;
    let wanted: DeltaSet = cause.iter().filter_map(|n| find(&space, *n)).collect();
    let report = debug::debug(&session, &DebugOptions::default(), &CancellationToken::new()).await;
    let took = began.elapsed().as_secs_f64();
    crate::campaign::close(session, "measured").await?;
    let report = report?;
    let found: DeltaSet = report
        .causes
        .iter()
        .flat_map(|cause| &cause.deltas)
        .filter_map(|delta| space.deltas.iter().position(|d| d.name == delta.name))
        .collect();
    if report.verdict != Verdict::Reduced || found != wanted {
        return Err(CommandError::internal("the cause among 10,000 deltas was not found").because(format!(
            "{} deltas, {:?}",
            found.len(),
            report.verdict
        )));
    }
    let name = format!("10,000 deltas, a cause of 5, simulated platform ({} trials)", report.trials.finished);
    Ok(crate::bench::lower(&name, took, "s", 10.0))
}

fn find(space: &faultscope_model::Space, number: usize) -> Option<usize> {
    let suffix = format!("env.V{number:05}");
    space.deltas.iter().position(|delta| delta.name.ends_with(&suffix))
}
