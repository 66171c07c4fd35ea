//! What trials show and how long they take in the simulation.

use std::hash::{DefaultHasher, Hash, Hasher};

use faultscope_model::outcome::{Ending, Signature};
use faultscope_model::{DeltaSet, Outcome};
use faultscope_search::Ticket;

use super::{Family, Instance};
use crate::random::{Random, mix};

/// Answers trials as an instance says.
#[derive(Debug, Clone)]
pub struct Oracle {
    family: Family,
    causes: Vec<DeltaSet>,
    blockers: Vec<(usize, usize)>,
    groups: Vec<DeltaSet>,
    /// How often a failing set shows its failure.
    rate: f64,
    seed: u64,
}

impl Oracle {
    /// The oracle of an instance.
    pub fn new(instance: &Instance) -> Self {
        Self {
            family: instance.family,
            causes: sets(&instance.causes),
            groups: sets(&instance.groups),
            blockers: instance.blockers.clone(),
            rate: 1.0,
            seed: instance.seed,
        }
    }

    /// The same, but a failing set fails only at this rate.
    pub fn flaky(mut self, rate: f64) -> Self {
        self.rate = rate;
        self
    }

    /// Whether a set can fail.
    pub fn fails(&self, set: &DeltaSet) -> bool {
        self.causes.iter().any(|cause| cause.is_subset(set))
            && !self
                .blockers
                .iter()
                .any(|&(blocker, antidote)| set.contains(blocker) && !set.contains(antidote))
            && !self.splits_group(set)
    }

    /// Whether a set has some, but not all deltas of a group.
    fn splits_group(&self, set: &DeltaSet) -> bool {
        self.groups.iter().any(|group| {
            let present = group.intersection(set).len();
            present > 0 && present < group.len()
        })
    }

    /// Whether a set can fail and no set with one delta less can.
    pub fn is_one_minimal(&self, set: &DeltaSet) -> bool {
        self.fails(set)
            && set.iter().all(|delta| {
                let mut less = set.clone();
                less.remove(delta);
                !self.fails(&less)
            })
    }

    /// What this trial of a set shows.
    pub fn outcome(&self, set: &DeltaSet, trial: Ticket) -> Outcome {
        if self.fails(set) {
            let shown =
                self.rate >= 1.0 || Random::new(mix(self.seed) ^ mix(trial.0) ^ hash(set)).unit() < self.rate;
            if shown {
                let signature =
                    Signature { test: "t".into(), ending: Ending::Code(1), message: String::new() };
                return Outcome::Fail { signature };
            }
            return Outcome::Pass;
        }
        if self.splits_group(set) {
            return Outcome::Unresolved { reason: "some deltas of a service that needs all".into() };
        }
        let partly = |cause: &DeltaSet| !cause.intersection(set).is_empty();
        if self.family == Family::Unres && self.causes.iter().any(partly) {
            return Outcome::Unresolved { reason: "some deltas of the cause".into() };
        }
        Outcome::Pass
    }
}

/// How long trials take, in units of the mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durations {
    /// One each.
    Unit,
    /// Lognormal with sigma 0.5 and mean 1, always the same for a set; drawn from this seed.
    Lognormal(u64),
}

impl Durations {
    /// The duration of a trial of a set.
    pub fn of(self, set: &DeltaSet) -> f64 {
        const SIGMA: f64 = 0.5;
        match self {
            Self::Unit => 1.0,
            Self::Lognormal(seed) => {
                let normal = Random::new(mix(seed) ^ hash(set)).normal();
                (SIGMA * normal - SIGMA * SIGMA / 2.0).exp()
            }
        }
    }

    /// `unit` or `lognormal`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Unit => "unit",
            Self::Lognormal(_) => "lognormal",
        }
    }
}

fn sets(lists: &[Vec<usize>]) -> Vec<DeltaSet> {
    lists.iter().map(|list| list.iter().copied().collect()).collect()
}

fn hash(set: &DeltaSet) -> u64 {
    // The default hasher has fixed keys when made this way.
    let mut hasher = DefaultHasher::new();
    set.hash(&mut hasher);
    hasher.finish()
}
