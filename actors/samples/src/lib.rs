//! Actor systems with known defects, each on ractor and on kameo: the paper's ten generated systems and
//! its Listing 1 (De Bleser et al. 2020).
//!
//! [`trial`] runs one perturbed test in this process, as the bench does many times; the binary of this
//! crate runs one for each start, as a user's test would.

mod accumulator;
pub mod bench;
mod counter;
mod on_kameo;
mod on_ractor;

pub use faultscope_bench::resilience::Framework;
use faultscope_bench::resilience::simulate::{Asserted, System};
use faultscope_model::outcome::{Ending, Signature, Unresolved};
use faultscope_model::{DeltaSet, Outcome};
use faultscope_probe::{Probe, ProbeError};
use faultscope_probe_format::{Configuration, Event, Perturbation, TargetId};
use faultscope_search::resilience::{Clues, Targets};

/// The sample to run.
#[derive(Debug, Clone, PartialEq)]
pub enum Sample {
    /// Actors that count and forward, and their defects.
    Counters(System, Faults),
    /// Listing 1: ten numbers are delivered at least once and summed up. The sum is wrong if one is delivered
    /// twice, unless the receiver deduplicates.
    Accumulator {
        /// Whether the receiver deduplicates.
        repaired: bool,
    },
}

/// The defects of a system of counting actors.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Faults {
    /// Actors with a defect in what the system is tested for.
    pub actors: Vec<usize>,
    /// The only message whose perturbation triggers it; if none, any at these actors does.
    pub trigger: Option<TargetId>,
    /// Two messages whose perturbations are not tolerated together.
    pub pair: Option<[TargetId; 2]>,
}

impl Faults {
    /// A defect in each of these actors.
    pub fn at(actors: impl Into<Vec<usize>>) -> Self {
        Self { actors: actors.into(), ..Self::default() }
    }
}

/// The result of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Trial {
    /// The actors whose assertions failed, in order, with the actual and the expected value.
    pub wrong: Vec<(String, u64, u64)>,
    /// The requested perturbations that had no effect.
    pub missed: Vec<Perturbation>,
    /// All events.
    pub events: Vec<Event>,
}

/// Runs a sample under a probe and returns the failed assertions.
pub async fn run(framework: Framework, sample: &Sample, probe: &Probe) -> Vec<(String, u64, u64)> {
    let found = match (framework, sample) {
        (Framework::Ractor, Sample::Counters(system, faults)) => {
            on_ractor::count(probe, system, faults).await
        }
        (Framework::Kameo, Sample::Counters(system, faults)) => on_kameo::count(probe, system, faults).await,
        (Framework::Ractor, Sample::Accumulator { repaired }) => on_ractor::sum(probe, *repaired).await,
        (Framework::Kameo, Sample::Accumulator { repaired }) => on_kameo::sum(probe, *repaired).await,
    };
    let expected: Vec<u64> = match sample {
        // A pair does not affect a counter: the last value is 1 then.
        Sample::Counters(system, _) => system.ways().iter().map(|&ways| ways as u64).chain([0]).collect(),
        Sample::Accumulator { .. } => vec![(1..=accumulator::NUMBERS).sum()],
    };
    let pairs = found.into_iter().zip(expected);
    pairs
        .filter(|((_, found), wanted)| found != wanted)
        .map(|((name, found), wanted)| (name, found, wanted))
        .collect()
}

/// Runs one perturbed test in this process, on its own runtime.
pub fn trial(
    framework: Framework,
    sample: &Sample,
    perturbations: Vec<Perturbation>,
) -> Result<Trial, ProbeError> {
    let probe = Probe::start(Configuration::new(perturbations))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e| ProbeError::Write("a runtime".into(), e))?;
    let wrong = runtime.block_on(run(framework, sample, &probe));
    for (actor, found, expected) in &wrong {
        probe.blame(actor, &format!("error@[{actor}] {found} != {expected}"));
    }
    Ok(Trial { wrong, missed: probe.missed(), events: probe.events() })
}

impl Trial {
    /// The outcome and the clues for a search over these targets, depending on what the test asserts.
    pub fn judged(&self, targets: &Targets, asserted: Asserted) -> (Outcome, Clues) {
        let told = match asserted {
            Asserted::First => 1,
            Asserted::Verdict => 0,
            Asserted::All | Asserted::Sinks => self.wrong.len(),
        };
        let blamed = self.wrong.iter().take(told).map(|(actor, ..)| actor.clone()).collect();
        let shown = match self.wrong.first() {
            None => Outcome::Pass,
            Some((actor, found, expected)) => {
                let message = format!("error@[{actor}] {found} != {expected}");
                let signature = Signature { test: "sample".into(), ending: Ending::Case, message };
                Outcome::Fail { signature }
            }
        };
        let missed: DeltaSet = targets.set_of(&self.missed);
        if self.missed.is_empty() {
            return (shown, Clues { blamed, ..Clues::default() });
        }
        let reason = format!("{} perturbations were not applied", self.missed.len());
        (
            Outcome::Unresolved { reason: Unresolved::Described { text: reason } },
            Clues { blamed, missed, shown: Some(shown), ..Clues::default() },
        )
    }
}

fn actor_name(actor: usize) -> String {
    format!("a{actor}")
}
