//! The default search: Bayesian group testing with proof.
//!
//! Beyond Zhou et al. 2019: instead of halving, every trial is chosen so that its outcome tells most
//! about the cause, given all outcomes so far and all trials that run (research note, section 5). The
//! belief only chooses trials; what is answered is proven by them: a set that failed, no one-smaller
//! set of which did. When the belief leads nowhere a sweep as in ddmin does.

mod belief;
mod evidence;
mod pools;

use std::collections::HashMap;
use std::time::Duration;

use faultscope_model::{DeltaSet, Outcome, TrialId};

use crate::ledger::{Ledger, Verdict};
use crate::random::Random;
use crate::standing::{Cause, Proof, Standing};
use crate::{Moves, Problem, Search, SlotView, Start};
use belief::{Belief, Model};
use pools::{Cells, Choice, Shape};

/// The pools that are drawn for each trial.
const SHAPES: [Shape; 8] = [
    Shape::Nested,
    Shape::Nested,
    Shape::Nested,
    Shape::Nested,
    Shape::Contiguous,
    Shape::Contiguous,
    Shape::Scattered,
    Shape::Scattered,
];

/// What can be chosen about the default search.
#[derive(Debug, Clone, PartialEq)]
pub struct BayesOptions {
    /// What random choices are drawn from; the same seed makes the same choices.
    pub seed: u64,
    /// How often a failing set shows its failure, as calibrated; 1 for a stable test.
    pub rate: f64,
    /// Whether to go on after the first cause until none is left.
    pub all: bool,
    /// How probable an answer must be when the test is flaky.
    pub confidence: f64,
    /// The least worth of a trial, in bits, for which a slot is used.
    pub least: f64,
    /// What nested pools are worth more than others.
    pub nested: f64,
    /// x
    pub ratio: f64,
    /// x
    pub tail: f64,
    /// x
    pub neighbours: f64,
    /// x
    pub partial: f64,
    /// x
    pub particles: usize,
}

impl Default for BayesOptions {
    fn default() -> Self {
        Self { seed: 1, rate: 1.0, all: false, confidence: 0.99, least: 0.08, nested: 0.05, ratio: 0.8, tail: 0.6, neighbours: 2.0, partial: 0.05, particles: 1000 }
    }
}

/// The default search.
///
/// ```
/// use faultscope_search::{Bayes, BayesOptions, Problem};
/// use faultscope_search::simulate::{simulate, read, Durations, Oracle};
/// let instance = &read(r#"{"id":"a-0","n":36,"k":2,"family":"mono","failing":[2,16]}"#).unwrap()[0];
/// let mut search = Bayes::new(Problem::new(36), BayesOptions::default());
/// let run = simulate(&mut search, &Oracle::new(instance), Durations::Unit, 4, 1000);
/// assert_eq!(run.answer(), &instance.critical());
/// ```
#[derive(Debug)]
pub struct Bayes {
    problem: Problem,
    options: BayesOptions,
    ledger: Ledger,
    trials: Vec<(DeltaSet, Verdict)>,
    belief: Belief,
    /// How many trials the belief has learnt.
    learnt: usize,
    best: DeltaSet,
    /// Trials since the best set became smaller.
    idle: usize,
    random: Random,
    done: bool,
    causes: Vec<Cause>,
}

impl Bayes {
    /// Searches all deltas of a problem.
    pub fn new(problem: Problem, options: BayesOptions) -> Self {
        let best = problem.full();
        let mut ledger = Ledger::default();
        ledger.learn(DeltaSet::new(), Verdict::Pass);
        ledger.learn(best.clone(), Verdict::Fail);
        let belief = Belief::new(model(&problem, &options), best.iter().collect(), options.seed);
        let random = Random::new(options.seed ^ 0x5eed);
        let mut search = Self {
            problem,
            options,
            ledger,
            trials: Vec::new(),
            belief,
            learnt: 0,
            best,
            idle: 0,
            random,
            done: false,
            causes: Vec::new(),
        };
        search.settle();
        search
    }

    /// The one-smaller sets whose outcome is not known.
    fn unproven(&self) -> Vec<DeltaSet> {
        let smaller = self.best.iter().filter_map(|delta| self.one_less(&self.best, delta));
        smaller.filter(|set| self.ledger.get(set).is_none()).collect()
    }

    /// What is deployed when a delta is left out; none when that is impossible or changes nothing.
    fn one_less(&self, set: &DeltaSet, delta: usize) -> Option<DeltaSet> {
        let mut less = set.clone();
        less.remove(delta);
        self.problem.close(&less).filter(|closed| closed != set)
    }

    fn learn(&mut self, set: &DeltaSet, verdict: Verdict) {
        self.trials.push((set.clone(), verdict));
        self.idle += 1;
        if verdict == Verdict::Fail && set.len() < self.best.len() {
            self.best = set.clone();
            self.idle = 0;
        }
        self.settle();
    }

    fn settle(&mut self) {
        if self.unproven().is_empty() {
            self.done = true;
        }
    }

    /// Brings the belief up to date with all trials.
    fn update(&mut self) {
        if self.learnt < self.trials.len() {
            self.learnt = self.trials.len();
            self.belief.learn(self.best.iter().collect(), &self.trials);
        }
    }

    /// After so many trials without a smaller set the belief is not trusted any more.
    fn patience(&self) -> usize {
        let count = self.best.len().max(2) as f64;
        (16.0 + 8.0 * count.log2()) as usize + 2 * self.trials.len() / 3
    }

    /// The next sets of a sweep over complements, from halves to single deltas.
    fn sweep(&self, most: usize) -> Vec<DeltaSet> {
        let items: Vec<usize> = self.best.iter().collect();
        let mut sets = Vec::new();
        let mut parts = 2;
        while sets.len() < most {
            for part in crate::ddmin::partition(&items, parts) {
                let part: DeltaSet = part.iter().copied().collect();
                let Some(set) = self.problem.close(&self.best.difference(&part)) else {
                    continue;
                };
                if set != self.best && self.is_new(&set) && !sets.contains(&set) && sets.len() < most {
                    sets.push(set);
                }
            }
            if parts >= items.len() {
                break;
            }
            parts = (2 * parts).min(items.len());
        }
        sets
    }

    fn is_new(&self, set: &DeltaSet) -> bool {
        self.ledger.get(set).is_none() && self.ledger.running_as(set).is_none()
    }

    /// Chooses the trials for so many free slots.
    fn choose(&mut self, slots: usize) -> Vec<DeltaSet> {
        if self.idle > self.patience() {
            return self.sweep(slots);
        }
        let mut random = self.random.clone();
        let mut cells = Cells::new(&self.belief, self.options.rate as f32);
        for set in self.ledger.running().values() {
            cells.add(set);
        }
        let proofs = self.proofs(&cells);
        let mut chosen: Vec<DeltaSet> = Vec::new();
        for _ in 0..slots {
            let mut best: Option<Choice> = None;
            let mut consider = |set: DeltaSet, proof: f64, cells: &Cells<'_>| {
                let worth = cells.gain(&set) + proof;
                if best.as_ref().is_none_or(|best| worth > best.worth) {
                    best = Some(Choice { set, worth });
                }
            };
            for (set, share) in &proofs {
                if !chosen.contains(set) {
                    consider(set.clone(), *share, &cells);
                }
            }
            for shape in SHAPES {
                let polish = if self.ledger.running().is_empty() && chosen.is_empty() { 0 } else { 40 };
                let polish = if shape == Shape::Scattered { polish } else { 0 };
                let asked = cells.propose(&mut random, shape, polish);
                let Some(set) = self.problem.close(&asked) else {
                    continue;
                };
                if self.is_new(&set) && !chosen.contains(&set) {
                    let bonus = if shape == Shape::Nested { self.options.nested } else { 0.0 };
                    consider(set, bonus, &cells);
                }
            }
            match best {
                Some(Choice { set, worth }) if worth >= self.options.least => {
                    cells.add(&set);
                    chosen.push(set);
                }
                _ => break,
            }
        }
        self.random = random;
        if chosen.is_empty() && self.ledger.running().is_empty() {
            return self.sweep(slots);
        }
        chosen
    }

    /// The trials that the likeliest causes need for their proof, with the probability that they do.
    fn proofs(&self, cells: &Cells<'_>) -> Vec<(DeltaSet, f64)> {
        let mut shares: HashMap<DeltaSet, f64> = HashMap::new();
        for (cause, share) in cells.likeliest(16) {
            if share < 0.02 {
                break;
            }
            let Some(cause) = self.problem.close(&cause) else {
                continue;
            };
            let smaller = cause.iter().filter_map(|delta| self.one_less(&cause, delta));
            for set in smaller.chain([cause.clone()]) {
                if self.is_new(&set) {
                    *shares.entry(set).or_default() += share;
                }
            }
        }
        let mut shares: Vec<_> = shares.into_iter().collect();
        shares.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        shares.truncate(24);
        shares
    }
}

fn model(problem: &Problem, options: &BayesOptions) -> Model {
    let count = problem.size.max(1) as f32;
    let suspicion = (0..problem.size)
        .map(|delta| match problem.ranks.get(delta) {
            Some(&rank) if problem.ranked => 1.75 - 1.5 * (rank as f32 - 0.5) / count,
            _ => 1.0,
        })
        .map(|suspicion: f32| suspicion.max(0.1))
        .collect();
    Model {
        size: problem.size,
        suspicion,
        neighbours: options.neighbours as f32,
        ratio: options.ratio as f32,
        tail: options.tail as f32,
        // Dearer than one more delta, or every cause would look like a smaller one that was masked.
        masked: if options.rate < 1.0 { 1.0 - options.rate as f32 } else { 0.1 / count },
        other: 0.05,
        noise: 0.1,
        partial: options.partial as f32,
        particles: options.particles,
        repeated: options.rate < 1.0,
    }
}

impl Search for Bayes {
    fn plan(&mut self, slots: &[SlotView], in_flight: &[TrialId]) -> Moves {
        let mut moves = Moves::default();
        if self.done {
            moves.cancel = in_flight.to_vec();
            return moves;
        }
        let free: Vec<_> = slots.iter().filter(|slot| slot.busy.is_none()).collect();
        if free.is_empty() {
            return moves;
        }
        self.update();
        let sets = self.choose(free.len());
        for (set, slot) in sets.into_iter().zip(free) {
            let trial = self.ledger.start(set.clone());
            moves.start.push(Start { trial, set, slot: slot.slot });
        }
        moves
    }

    fn record(&mut self, trial: TrialId, outcome: &Outcome, _cost: Duration) {
        let verdict = outcome.into();
        if let Some(set) = self.ledger.finish(trial, verdict) {
            if std::env::var("TRACE").is_ok() {
                let cells = Cells::new(&self.belief, 1.0);
                let k: usize = self.belief.particles.iter().map(|p| p.items.len()).sum();
                let top = cells.likeliest(1);
                println!("{} of {} -> {verdict:?} predicted fail {:.2} mean k {:.2} top {} {:.2} idle {}", set.len(), self.best.len(), cells.failing(&set), k as f64 / self.belief.particles.len() as f64, top[0].0, top[0].1, self.idle);
            }
            self.learn(&set, verdict);
        }
    }

    fn is_done(&self) -> bool {
        self.done
    }

    fn recall(&mut self, set: &DeltaSet, outcome: &Outcome) {
        let verdict = outcome.into();
        self.ledger.learn(set.clone(), verdict);
        self.learn(set, verdict);
    }

    fn lose(&mut self, trial: TrialId) {
        self.ledger.drop(trial);
    }

    fn standing(&self) -> Standing {
        Standing {
            best: self.best.clone(),
            proof: if self.done { Proof::Minimal } else { Proof::Fails },
            causes: self.causes.clone(),
            left: self.best.len(),
            unproven: self.unproven().len(),
            belief: if self.done { 1.0 } else { 0.0 },
            finished: self.ledger.finished(),
            remaining: 0.0,
            none_left: false,
        }
    }
}
