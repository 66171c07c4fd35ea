//! Compares the searches on instances with known causes: instances in, rows out.
//!
//! The cells are those of the research note (family, number of deltas, size of the cause), run in
//! virtual time with 1, 4, 6 and 12 slots and with unit and lognormal durations; `ddmin` and
//! `ddmin-par` are the paper's algorithms and the reference (section 6.1 measures the same).

use std::collections::BTreeMap;
use std::fmt;

use faultscope_model::DeltaSet;
use faultscope_search::{Bayes, BayesOptions, Ddmin, DdminPar, Problem, Search, Tuning};

use crate::simulate::{Durations, Family, Instance, Oracle, Run, Slots, simulate};

/// A search by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Strategy {
    /// Algorithm 1 of the paper.
    Ddmin,
    /// ddminPar of the paper.
    DdminPar,
    /// The default.
    Bayes,
}

impl Strategy {
    /// All searches.
    pub const ALL: [Self; 3] = [Self::Ddmin, Self::DdminPar, Self::Bayes];

    /// The name on the command line and in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ddmin => "ddmin",
            Self::DdminPar => "ddmin-par",
            Self::Bayes => "bayes",
        }
    }

    /// Creates the search; only the default one can find all causes and uses the seed.
    pub fn search(self, problem: Problem, options: BayesOptions) -> Box<dyn Search + Send> {
        match self {
            Self::Ddmin => Box::new(Ddmin::new(problem)),
            Self::DdminPar => Box::new(DdminPar::new(problem)),
            Self::Bayes => Box::new(Bayes::new(problem, options)),
        }
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What is measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The searches.
    pub strategies: Vec<Strategy>,
    /// Numbers of slots.
    pub slots: Vec<usize>,
    /// With unit durations, with lognormal ones, or both.
    pub durations: Vec<Durations>,
    /// The most trials of a run.
    pub most: u32,
    /// Added to the seeds of the instances.
    pub seed: u64,
    /// The time that cancelling a trial takes, as a share of its duration.
    pub cancel_share: f64,
    /// The constants of the default search.
    pub tuning: Tuning,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            strategies: Strategy::ALL.to_vec(),
            slots: vec![1, 4, 6, 12],
            durations: vec![Durations::Unit, Durations::Lognormal(0)],
            most: 100_000,
            seed: 0,
            cancel_share: 0.0,
            tuning: Tuning::default(),
        }
    }
}

/// What a search needed for the instances of a cell.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// The search.
    pub strategy: Strategy,
    /// The name of the cell.
    pub cell: String,
    /// The family.
    pub family: Family,
    /// Number of deltas.
    pub n: usize,
    /// Size of a cause.
    pub k: usize,
    /// Number of slots.
    pub slots: usize,
    /// Unit or lognormal.
    pub durations: &'static str,
    /// Number of instances.
    pub instances: usize,
    /// Finished trials, mean.
    pub trials: f64,
    /// Finished trials, maximum.
    pub most: u32,
    /// Started trials, mean.
    pub started: f64,
    /// Makespan in units, mean.
    pub makespan: f64,
    /// The share of answers that are 1-minimal.
    pub minimal: f64,
    /// The share of answers that are exactly the cause; all causes and no other if there are several.
    pub exact: f64,
}

impl Row {
    /// log2 of the number of possible causes of this size: no search needs fewer trials on average.
    pub fn bound(&self) -> f64 {
        (0..self.k).map(|i| ((self.n - i) as f64 / (self.k - i) as f64).log2()).sum()
    }

    /// Whether another row has the same cell, slots and durations.
    pub fn matches(&self, other: &Self) -> bool {
        self.cell == other.cell && self.slots == other.slots && self.durations == other.durations
    }
}

/// Measures all rows; `done` is called after each, to show progress.
pub fn rows(instances: &[Instance], plan: &Plan, mut done: impl FnMut(&Row)) -> Vec<Row> {
    let mut cells: BTreeMap<(Family, usize, usize, &str), Vec<&Instance>> = BTreeMap::new();
    for instance in instances {
        let key = (instance.family, instance.n, instance.k, instance.cell());
        cells.entry(key).or_default().push(instance);
    }
    let mut rows = Vec::new();
    for ((family, n, k, cell), members) in cells {
        for &durations in &plan.durations {
            for &slots in &plan.slots {
                for &strategy in &plan.strategies {
                    // Sequential ddmin is the same on any number of slots.
                    if strategy == Strategy::Ddmin && slots > 1 {
                        continue;
                    }
                    let mut row = Row {
                        strategy,
                        cell: cell.to_owned(),
                        family,
                        n,
                        k,
                        slots,
                        durations: durations.word(),
                        instances: members.len(),
                        trials: 0.0,
                        most: 0,
                        started: 0.0,
                        makespan: 0.0,
                        minimal: 0.0,
                        exact: 0.0,
                    };
                    for &instance in &members {
                        let run = run(strategy, instance, durations, slots, plan);
                        row.add(instance, &run, members.len() as f64);
                    }
                    done(&row);
                    rows.push(row);
                }
            }
        }
    }
    rows
}

impl Row {
    fn add(&mut self, instance: &Instance, run: &Run, count: f64) {
        self.trials += f64::from(run.finished) / count;
        self.started += f64::from(run.started) / count;
        self.makespan += run.makespan / count;
        self.most = self.most.max(run.finished);
        let minimal = Oracle::new(instance).is_one_minimal(run.answer());
        self.minimal += f64::from(u8::from(minimal)) / count;
        let exact = if self.strategy == Strategy::Bayes && instance.causes.len() > 1 {
            finds_all_causes(instance, run)
        } else {
            instance.causes.iter().any(|cause| cause.iter().copied().collect::<DeltaSet>() == *run.answer())
        };
        self.exact += f64::from(u8::from(exact)) / count;
    }
}

/// Whether a search has found all causes, no other, and shown that none is left.
pub fn finds_all_causes(instance: &Instance, run: &Run) -> bool {
    let mut found: Vec<Vec<usize>> =
        run.standing.causes.iter().map(|cause| cause.core.iter().collect()).collect();
    let mut wanted = instance.causes.clone();
    wanted.iter_mut().for_each(|cause| cause.sort_unstable());
    found.sort();
    wanted.sort();
    found == wanted && run.standing.none_left
}

/// Runs one search on one instance, for all causes if there are several. The same instance has the same
/// durations for every search.
pub fn run(strategy: Strategy, instance: &Instance, durations: Durations, slots: usize, plan: &Plan) -> Run {
    run_for(strategy, instance, durations, slots, plan, instance.causes.len() > 1)
}

/// As [`run`], for all causes or only for one.
pub fn run_for(
    strategy: Strategy,
    instance: &Instance,
    durations: Durations,
    slots: usize,
    plan: &Plan,
    all: bool,
) -> Run {
    let durations = match durations {
        Durations::Unit => Durations::Unit,
        Durations::Lognormal(seed) => Durations::Lognormal(seed ^ instance.seed ^ plan.seed),
    };
    let options = BayesOptions {
        seed: instance.seed ^ plan.seed,
        all,
        tuning: plan.tuning.clone(),
        ..BayesOptions::default()
    };
    let mut search = strategy.search(Problem::new(instance.n), options);
    let slots = Slots::new(slots, durations).clearing(plan.cancel_share);
    simulate(&mut *search, &Oracle::new(instance), &slots, plan.most)
}
