//! Actor systems with known defects, each on ractor and on kameo: the paper's ten generated systems and
//! its Listing 1 (De Bleser et al. 2020).
//!
//! [`trial`] runs one perturbed test in this process, as the bench does many times; the binary of this
//! crate runs one for each start, as a user's test would.

mod accumulator;
mod counter;
mod on_kameo;
mod on_ractor;

use faultscope_model::outcome::{Ending, Signature};
use faultscope_model::perturbation::{Configuration, Event, Kind, Perturbation};
use faultscope_model::{DeltaSet, Outcome};
use faultscope_probe::{Probe, ProbeError};
use faultscope_search::resilience::simulate::System;
use faultscope_search::resilience::{Clues, Targets};

/// An actor framework.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framework {
    /// ractor.
    Ractor,
    /// kameo.
    Kameo,
}

/// What is run.
#[derive(Debug, Clone, PartialEq)]
pub enum Sample {
    /// Actors that count and pass on, and those among them with a defect in what the system is tested for.
    Counters(System, Vec<usize>),
    /// Listing 1: ten numbers are delivered at least once and summed up. The sum is wrong when one comes
    /// twice, unless the receiver remembers what it has seen.
    Accumulator {
        /// Whether it does.
        repaired: bool,
    },
}

/// What a run showed.
#[derive(Debug, Clone, PartialEq)]
pub struct Trial {
    /// The actors whose assertions failed, in order, with what was found and expected.
    pub wrong: Vec<(String, u64, u64)>,
    /// What was asked for and not carried out.
    pub missed: Vec<Perturbation>,
    /// Everything that happened.
    pub events: Vec<Event>,
}

/// Runs a sample under a probe and gives the assertions that fail.
pub async fn run(framework: Framework, sample: &Sample, probe: &Probe) -> Vec<(String, u64, u64)> {
    let found = match (framework, sample) {
        (Framework::Ractor, Sample::Counters(system, faulty)) => {
            on_ractor::count(probe, system, faulty).await
        }
        (Framework::Kameo, Sample::Counters(system, faulty)) => on_kameo::count(probe, system, faulty).await,
        (Framework::Ractor, Sample::Accumulator { repaired }) => on_ractor::sum(probe, *repaired).await,
        (Framework::Kameo, Sample::Accumulator { repaired }) => on_kameo::sum(probe, *repaired).await,
    };
    let expected: Vec<u64> = match sample {
        Sample::Counters(system, _) => system.ways().iter().map(|&ways| ways as u64).collect(),
        Sample::Accumulator { .. } => vec![(1..=accumulator::NUMBERS).sum()],
    };
    let pairs = found.into_iter().zip(expected);
    pairs
        .filter(|((_, found), wanted)| found != wanted)
        .map(|((name, found), wanted)| (name, found, wanted))
        .collect()
}

/// Runs one perturbed test in this process, on a runtime of its own.
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
    /// The outcome and the clues for a search over these targets; `first` tells only the first actor that
    /// is wrong, as an assertion that ends the test does.
    pub fn judged(&self, targets: &Targets, first: bool) -> (Outcome, Clues) {
        let told = if first { 1 } else { self.wrong.len() };
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
        (Outcome::Unresolved { reason }, Clues { blamed, missed, shown: Some(shown), ..Clues::default() })
    }
}

/// Whether an actor's defect is in what the system is perturbed with.
fn defect(system: &System, faulty: &[usize], actor: usize) -> Option<Kind> {
    faulty.contains(&actor).then_some(system.kind)
}

fn actor_name(actor: usize) -> String {
    format!("a{actor}")
}
