//! The default search: Bayesian group testing with proof.
//!
//! Beyond Zhou et al. 2019: instead of halving, every trial is chosen so that its outcome tells most
//! about the cause, given all outcomes so far and all trials that run (research note, section 5). The
//! belief only chooses trials; what is answered is proven by them: a set that failed, no one-smaller
//! set of which did. When the belief leads nowhere a sweep as in ddmin does.

mod belief;
mod choose;
mod evidence;
mod model;
mod moves;
mod pools;
mod proof;
mod ties;

use std::time::Duration;

use crate::Ticket;
use faultscope_model::{DeltaSet, Outcome};

use crate::ledger::{Ledger, Verdict};
use crate::random::Random;
use crate::standing::{Cause, Proof, Standing};
use crate::{Moves, Problem, Search, SlotView, Start, Tuning};
use belief::Belief;
use model::Model;
use ties::Ties;

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
    /// The constants of the search.
    pub tuning: Tuning,
}

impl Default for BayesOptions {
    fn default() -> Self {
        Self { seed: 1, rate: 1.0, all: false, confidence: 0.99, tuning: Tuning::default() }
    }
}

/// What is searched for at the moment.
#[derive(Debug, Clone, PartialEq)]
enum Phase {
    /// A cause, among the deltas of the best set.
    Find,
    /// Whether deltas that cannot be left out alone belong to the cause just found.
    Pin,
    /// Whether this set, without all causes found, still fails.
    Rest(DeltaSet),
    /// Nothing more.
    Done,
}

/// The default search.
///
/// ```
/// use faultscope_search::{Bayes, BayesOptions, Problem};
/// use faultscope_bench::simulate::{Durations, Oracle, Slots, read, simulate};
/// let instance = &read(r#"{"id":"a-0","n":36,"k":2,"family":"mono","failing":[2,16]}"#).unwrap()[0];
/// let mut search = Bayes::new(Problem::new(36), BayesOptions::default());
/// let run = simulate(&mut search, &Oracle::new(instance), &Slots::new(4, Durations::Unit), 1000);
/// assert_eq!(run.answer(), &instance.critical());
/// ```
#[derive(Debug)]
pub struct Bayes {
    problem: Problem,
    options: BayesOptions,
    ledger: Ledger,
    /// Every outcome that says something about the cause that is searched for.
    trials: Vec<(DeltaSet, Verdict)>,
    belief: Belief,
    /// Which deltas only make sense together.
    ties: Ties,
    /// How many trials the belief has learnt.
    learnt: usize,
    phase: Phase,
    best: DeltaSet,
    /// Trials since the best set became smaller.
    idle: usize,
    random: Random,
    causes: Vec<Cause>,
    none_left: bool,
    /// How probable it is that the causes that are found are minimal; the least of them.
    certain: f64,
    /// After how many trials a probe was last made, see [`Self::probe`].
    probed: usize,
    /// How often trials were started.
    round: u32,
}

impl Bayes {
    /// Searches all deltas of a problem.
    pub fn new(problem: Problem, options: BayesOptions) -> Self {
        let best = problem.full();
        let mut ledger = Ledger::default();
        ledger.learn(DeltaSet::new(), Verdict::Pass);
        ledger.learn(best.clone(), Verdict::Fail);
        let belief = Belief::new(Model::new(&problem, &options), best.iter().collect(), options.seed);
        let random = Random::new(options.seed ^ 0x5eed);
        let mut search = Self {
            problem,
            options,
            ledger,
            trials: Vec::new(),
            belief,
            ties: Ties::default(),
            learnt: 0,
            phase: Phase::Find,
            best,
            idle: 0,
            random,
            causes: Vec::new(),
            none_left: false,
            certain: 1.0,
            probed: 0,
            round: 0,
        };
        search.settle();
        search
    }

    fn is_flaky(&self) -> bool {
        self.options.rate < 1.0
    }

    /// What is deployed when a delta is left out; none when that is impossible or changes nothing.
    fn one_less(&self, set: &DeltaSet, delta: usize) -> Option<DeltaSet> {
        self.problem.one_less(set, delta)
    }

    /// Learns an outcome, whether it was asked for or not.
    fn learn(&mut self, set: &DeltaSet, verdict: Verdict) {
        // A set with a cause that is found fails because of that one.
        let explained = self.causes.iter().any(|cause| cause.witness.is_subset(set));
        if !explained {
            self.trials.push((set.clone(), verdict));
            self.idle += 1;
            if verdict == Verdict::Fail && set.len() < self.best.len() && self.phase == Phase::Find {
                self.best = set.clone();
                self.idle = 0;
            }
        }
        self.settle();
    }

    /// Goes from phase to phase as far as outcomes are known.
    fn settle(&mut self) {
        loop {
            if self.phase == Phase::Find
                && let Some(smaller) = self.known_smaller()
            {
                self.best = smaller;
                self.idle = 0;
                continue;
            }
            match &self.phase {
                Phase::Find if self.is_proven() => {
                    let cause = Cause {
                        witness: self.best.clone(),
                        core: self.best.clone(),
                        proof: self.proof(),
                        confirmations: self.confirmations(&self.best),
                    };
                    self.causes.push(cause);
                    if self.is_flaky() && self.best.len() > 1 {
                        self.certain = self.certain.min(self.confidence());
                    }
                    self.phase = Phase::Pin;
                }
                Phase::Pin if self.pins().is_empty() => {
                    self.pin();
                    let found = self.causes.iter().fold(DeltaSet::new(), |all, c| all.union(&c.witness));
                    let rest = self.problem.full().difference(&found);
                    self.phase = match self.problem.close(&rest) {
                        Some(rest) if self.options.all && !self.holds_cause(&rest) => Phase::Rest(rest),
                        _ => Phase::Done,
                    };
                }
                Phase::Rest(rest) => match self.rest_verdict(rest) {
                    None => return,
                    Some(Verdict::Fail) => {
                        self.best = rest.clone();
                        self.restart();
                    }
                    Some(verdict) => {
                        self.none_left = verdict == Verdict::Pass;
                        self.phase = Phase::Done;
                    }
                },
                _ => return,
            }
        }
    }

    fn holds_cause(&self, set: &DeltaSet) -> bool {
        self.causes.iter().any(|cause| cause.witness.is_subset(set))
    }

    /// Searches the best set anew. Passes stay evidence: no cause is in a set that passed.
    fn restart(&mut self) {
        let causes = &self.causes;
        self.trials.retain(|(set, _)| !causes.iter().any(|cause| cause.witness.is_subset(set)));
        let failing = self.trials.iter().filter(|(_, verdict)| *verdict == Verdict::Fail);
        if let Some((smallest, _)) = failing.min_by_key(|(set, _)| set.len())
            && smallest.len() < self.best.len()
        {
            self.best = smallest.clone();
        }
        let seed = self.random.next();
        self.belief = Belief::new(Model::new(&self.problem, &self.options), self.best.iter().collect(), seed);
        self.learnt = 0;
        self.idle = 0;
        self.phase = Phase::Find;
    }

    fn learn_ties(&self, explained: impl Fn(&DeltaSet) -> f64) -> Ties {
        Ties::learn(self.problem.size, &self.trials, self.options.tuning.belief.noise, explained)
    }

    /// Brings the belief up to date with all trials.
    fn update(&mut self) {
        let moved = self.belief.candidates.len() != self.best.len();
        if self.phase == Phase::Find && (moved || self.learnt < self.trials.len()) {
            self.learnt = self.trials.len();
            self.ties = self.learn_ties(|set| self.belief.splits_cause(set));
            self.belief.learn(self.best.iter().collect(), &self.ties.drop_split(&self.trials));
        }
    }
}

impl Search for Bayes {
    fn plan(&mut self, slots: &[SlotView], in_flight: &[Ticket]) -> Moves {
        let mut moves = Moves::default();
        if self.phase == Phase::Done {
            moves.cancel = in_flight.to_vec();
            return moves;
        }
        let mut free: Vec<&SlotView> = slots.iter().filter(|slot| slot.busy.is_none()).collect();
        self.belief.model.suit(slots.len());
        self.update();
        for trial in self.needless(free.is_empty()) {
            self.ledger.drop(trial);
            moves.cancel.push(trial);
            free.extend(slots.iter().filter(|slot| slot.busy == Some(trial)));
        }
        free.sort_by_key(|slot| slot.slot);
        for set in self.choose(&free) {
            // The slot that has least to change.
            let change =
                |slot: &&SlotView| slot.current.as_ref().map_or(usize::MAX, |now| distance(now, &set));
            let Some(place) = (0..free.len()).min_by_key(|&place| change(&free[place])) else {
                break;
            };
            let slot = free.remove(place).slot;
            let trial = self.ledger.start(set.clone());
            moves.start.push(Start { trial, set, slot });
        }
        self.round += u32::from(!moves.start.is_empty());
        moves
    }

    fn record(&mut self, trial: Ticket, outcome: &Outcome, _cost: Duration) {
        let verdict = outcome.into();
        if let Some(set) = self.ledger.finish(trial, verdict) {
            self.learn(&set, verdict);
        }
    }

    fn is_done(&self) -> bool {
        self.phase == Phase::Done
    }

    fn recall(&mut self, set: &DeltaSet, outcome: &Outcome) {
        let verdict = outcome.into();
        self.ledger.learn(set.clone(), verdict);
        self.learn(set, verdict);
    }

    fn lose(&mut self, trial: Ticket) {
        self.ledger.drop(trial);
    }

    fn standing(&self) -> Standing {
        let found = self.causes.first();
        let searching = self.phase == Phase::Find;
        let best = found.map_or(&self.best, |cause| &cause.witness);
        let (belief, remaining) = if searching { self.outlook() } else { (self.certain, 0.0) };
        Standing {
            best: best.clone(),
            proof: match found {
                Some(cause) => cause.proof,
                None if self.best != self.problem.full() => Proof::Fails,
                None => Proof::Given,
            },
            causes: self.causes.clone(),
            none_left: self.none_left,
            round: self.round,
            left: if searching { self.best.len() } else { 0 },
            unproven: if searching { self.unproven().len() } else { 0 },
            belief,
            finished: self.ledger.finished(),
            remaining,
        }
    }
}

fn distance(a: &DeltaSet, b: &DeltaSet) -> usize {
    a.difference(b).len() + b.difference(a).len()
}
