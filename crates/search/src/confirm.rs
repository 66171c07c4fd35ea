//! Repeats what an answer rests on until chance is ruled out.
//!
//! A search takes each outcome at its word, so a failure that shows in seven of ten runs can make it answer with
//! deltas that only happened to be there when it showed. Before an answer is called proven its set must fail again
//! and its neighbours must not. Design note 0021 has what is excluded by that, and with which probability.

use std::collections::BTreeMap;

use faultscope_model::outcome::Unresolved;
use faultscope_model::{DeltaSet, Outcome};

use crate::Ticket;

/// The highest failure rate of a "stable" failure that must be excluded: above it, three start-up checks and a
/// usual search seldom meet a contradiction, and the failure is close to one that always shows.
const EXCLUDED_RATE: f64 = 0.7;

/// The most passes that are asked of a neighbour: 30 show a failure of one run in seven with 99 %.
const MAX_PASSES: u32 = 30;

/// How often the sets of an answer must show the same, those trials counted that were there before.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ConfirmPlan {
    /// How often the set itself must fail.
    pub failures: u32,
    /// How often each neighbour must not fail.
    pub passes: u32,
    /// With which probability what is to be excluded would have shown.
    pub confidence: f64,
    /// How often the failure shows where its cause is there; 1 for a stable one.
    pub rate: f64,
}

impl ConfirmPlan {
    /// The failure rate that a stable failure is shown to exceed.
    pub const EXCLUDED_RATE: f64 = EXCLUDED_RATE;

    /// The cheapest plan with this confidence for a failure that shows at this rate.
    ///
    /// Stable: as many failures that a rate of 0.7 would have let one run pass. A neighbour that fails as often as
    /// the set itself, at whatever rate p, shows all that is asked for with p^f (1-p)^n, which is largest at
    /// f / (f + n). The trial of each that ended the search is left out there: the answer was chosen by it.
    ///
    /// ```
    /// use faultscope_search::ConfirmPlan;
    /// let plan = ConfirmPlan::new(0.99, 1.0);
    /// assert_eq!((plan.failures, plan.passes), (13, 3));
    /// ```
    pub fn new(confidence: f64, rate: f64) -> Self {
        let missed = (1.0 - confidence).clamp(1e-9, 1.0);
        if rate < 1.0 {
            let passes = (missed.ln() / (1.0 - rate).ln()).ceil() as u32;
            return Self { failures: 1, passes: passes.clamp(2, MAX_PASSES), confidence, rate };
        }
        let failures = ((missed.ln() / EXCLUDED_RATE.ln()).ceil() as u32).max(2);
        let fresh = failures - 1;
        let likely = |passes: u32| {
            let (f, n) = (f64::from(fresh), f64::from(passes));
            (f / (f + n)).powf(f) * (n / (f + n)).powf(n)
        };
        let more = (1..MAX_PASSES).find(|&passes| likely(passes) <= missed).unwrap_or(MAX_PASSES);
        Self { failures, passes: 1 + more, confidence, rate }
    }

    fn is_flaky(&self) -> bool {
        self.rate < 1.0
    }
}

/// What trials of one set have shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// How often it failed as it should.
    pub failed: u32,
    /// How often it passed.
    pub passed: u32,
    /// How often it failed in another way.
    pub other: u32,
    /// How often it could not be judged.
    pub unresolved: u32,
}

impl Tally {
    /// Adds an outcome.
    pub fn add(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Fail { .. } => self.failed += 1,
            Outcome::Pass => self.passed += 1,
            Outcome::Unresolved { reason: Unresolved::OtherFailure { .. } } => self.other += 1,
            Outcome::Unresolved { .. } => self.unresolved += 1,
        }
    }

    /// How often it did not show the failure.
    pub fn not_failed(&self) -> u32 {
        self.passed + self.other + self.unresolved
    }

    /// Whether the same set failed as it should, and at another time passed or failed otherwise.
    pub fn is_mixed(&self) -> bool {
        self.failed > 0 && self.passed + self.other > 0
    }
}

/// A set that is repeated.
#[derive(Debug, Clone)]
struct Repeated {
    set: DeltaSet,
    must_fail: bool,
    tally: Tally,
    running: u32,
}

impl Repeated {
    /// How many trials it still needs.
    fn missing(&self, plan: &ConfirmPlan) -> u32 {
        match self.must_fail {
            true => plan.failures.saturating_sub(self.tally.failed),
            // What shows something else does not show this failure.
            false => plan.passes.saturating_sub(self.tally.not_failed()),
        }
    }

    fn disagrees(&self, plan: &ConfirmPlan) -> bool {
        if self.must_fail && plan.is_flaky() {
            return false;
        }
        // A set that fails in this way at one time and in another way at the next does not always fail in this way.
        if self.must_fail { self.tally.passed + self.tally.other > 0 } else { self.tally.failed > 0 }
    }

    /// It must fail, and cannot be judged as often as it would have to.
    fn is_hopeless(&self, plan: &ConfirmPlan) -> bool {
        self.must_fail && self.missing(plan) > 0 && self.tally.unresolved >= plan.failures
    }
}

/// Confirms one answer: a state machine that is asked for trials and told their outcomes.
///
/// ```
/// use faultscope_model::{DeltaSet, Outcome};
/// use faultscope_search::{Confirm, ConfirmPlan};
/// let cause: DeltaSet = [3].into_iter().collect();
/// let mut confirm = Confirm::new(ConfirmPlan::new(0.99, 1.0), cause, vec![DeltaSet::new()]);
/// confirm.recall(&DeltaSet::new(), &Outcome::Pass);
/// assert_eq!(confirm.left(), 13 + 2);
/// let started = confirm.plan(1);
/// assert_eq!(started[0].1, DeltaSet::new(), "what tells most about chance comes first");
/// ```
#[derive(Debug, Clone)]
pub struct Confirm {
    plan: ConfirmPlan,
    repeated: Vec<Repeated>,
    running: BTreeMap<Ticket, usize>,
    next: u64,
}

impl Confirm {
    /// Confirms that a set fails and that its neighbours do not.
    pub fn new(plan: ConfirmPlan, set: DeltaSet, neighbours: Vec<DeltaSet>) -> Self {
        let repeated = |set, must_fail| Repeated { set, must_fail, tally: Tally::default(), running: 0 };
        // If the failure comes by chance, a neighbour shows it sooner than the set itself for rates above 0.5.
        let mut all: Vec<Repeated> = neighbours.into_iter().map(|set| repeated(set, false)).collect();
        all.push(repeated(set, true));
        Self { plan, repeated: all, running: BTreeMap::new(), next: 1 }
    }

    /// Counts a trial that was there before.
    pub fn recall(&mut self, set: &DeltaSet, outcome: &Outcome) {
        let mut one = Tally::default();
        one.add(outcome);
        self.recall_tally(set, one);
    }

    /// Counts trials that were there before.
    pub fn recall_tally(&mut self, set: &DeltaSet, known: Tally) {
        if let Some(repeated) = self.repeated.iter_mut().find(|repeated| repeated.set == *set) {
            repeated.tally.failed += known.failed;
            repeated.tally.passed += known.passed;
            repeated.tally.other += known.other;
            repeated.tally.unresolved += known.unresolved;
        }
    }

    /// Sets to try on the free slots.
    pub fn plan(&mut self, free: usize) -> Vec<(Ticket, DeltaSet)> {
        let mut start = Vec::new();
        while start.len() < free && !self.is_done() {
            let plan = self.plan;
            let wanted = |repeated: &Repeated| repeated.missing(&plan).saturating_sub(repeated.running);
            // Neighbours in turn, then the set itself.
            let next = (0..self.repeated.len())
                .filter(|&place| wanted(&self.repeated[place]) > 0)
                .max_by_key(|&place| {
                    let repeated = &self.repeated[place];
                    (!repeated.must_fail, wanted(repeated), usize::MAX - place)
                });
            let Some(place) = next else { break };
            let ticket = Ticket(self.next);
            self.next += 1;
            self.repeated[place].running += 1;
            self.running.insert(ticket, place);
            start.push((ticket, self.repeated[place].set.clone()));
        }
        start
    }

    /// Records what a trial showed, and returns the set that it repeated; none if it was not asked for.
    pub fn record(&mut self, trial: Ticket, outcome: &Outcome) -> Option<&DeltaSet> {
        let repeated = &mut self.repeated[self.running.remove(&trial)?];
        repeated.running -= 1;
        repeated.tally.add(outcome);
        Some(&repeated.set)
    }

    /// Says that a trial was not carried out.
    pub fn lose(&mut self, trial: Ticket) {
        if let Some(place) = self.running.remove(&trial) {
            self.repeated[place].running -= 1;
        }
    }

    /// Whether no further trial is needed.
    pub fn is_done(&self) -> bool {
        self.left() == 0 || self.contradiction().is_some() || self.is_unjudged()
    }

    /// Whether everything was seen as often as the plan asks.
    pub fn is_confirmed(&self) -> bool {
        self.left() == 0 && self.contradiction().is_none()
    }

    /// Whether the set could not be judged too often.
    pub fn is_unjudged(&self) -> bool {
        self.repeated.iter().any(|repeated| repeated.is_hopeless(&self.plan))
    }

    /// How many trials it still takes if all agree.
    pub fn left(&self) -> u32 {
        self.repeated.iter().map(|repeated| repeated.missing(&self.plan)).sum()
    }

    /// The set that showed both, or a smaller one that fails.
    pub fn contradiction(&self) -> Option<(&DeltaSet, Tally)> {
        let found = self.repeated.iter().find(|repeated| repeated.disagrees(&self.plan))?;
        Some((&found.set, found.tally))
    }

    /// What trials of the set itself have shown.
    pub fn failing(&self) -> Tally {
        self.repeated
            .iter()
            .find(|repeated| repeated.must_fail)
            .map(|repeated| repeated.tally)
            .unwrap_or_default()
    }

    /// The tallies of the neighbours.
    pub fn neighbours(&self) -> impl Iterator<Item = (&DeltaSet, Tally)> {
        self.repeated
            .iter()
            .filter(|repeated| !repeated.must_fail)
            .map(|repeated| (&repeated.set, repeated.tally))
    }
}

#[cfg(test)]
mod tests {
    use faultscope_model::outcome::{Ending, Signature};
    use proptest::prelude::*;

    use super::*;

    fn fails() -> Outcome {
        let signature = Signature { test: "t".into(), ending: Ending::Code(1), message: String::new() };
        Outcome::Fail { signature }
    }

    fn set(deltas: &[usize]) -> DeltaSet {
        deltas.iter().copied().collect()
    }

    fn pair() -> Confirm {
        let mut confirm = Confirm::new(ConfirmPlan::new(0.99, 1.0), set(&[1, 2]), vec![set(&[1]), set(&[2])]);
        confirm.recall(&set(&[1, 2]), &fails());
        confirm.recall(&set(&[1]), &Outcome::Pass);
        confirm.recall(&set(&[2]), &Outcome::Pass);
        confirm
    }

    #[test]
    fn plans_exclude_what_they_say() {
        for confidence in [0.5, 0.75, 0.9, 0.99, 0.999] {
            let ConfirmPlan { failures, passes, .. } = ConfirmPlan::new(confidence, 1.0);
            let missed = 1.0 - confidence;
            assert!(0.7_f64.powf(failures.into()) <= missed);
            for percent in 1..100 {
                let p = f64::from(percent) / 100.0;
                let seen = p.powf((failures - 1).into()) * (1.0 - p).powf((passes - 1).into());
                assert!(seen <= missed, "{confidence}: at {p} with {seen}");
            }
        }
        let plan = |confidence| ConfirmPlan::new(confidence, 1.0);
        assert_eq!((plan(0.9).failures, plan(0.9).passes), (7, 2));
        let flaky = ConfirmPlan::new(0.99, 0.3);
        assert_eq!((flaky.failures, flaky.passes), (1, 13));
        assert_eq!(ConfirmPlan::new(0.99, 0.01).passes, MAX_PASSES);
    }

    #[test]
    fn neighbours_come_first_and_nothing_is_asked_too_often() {
        let mut confirm = pair();
        assert_eq!(confirm.left(), 12 + 4);
        let first = confirm.plan(3);
        let sets: Vec<_> = first.iter().map(|(_, set)| set.clone()).collect();
        assert_eq!(sets, [set(&[1]), set(&[2]), set(&[1])]);
        let rest = confirm.plan(100);
        assert_eq!((first.len(), rest.len()), (3, 13));
        assert!(confirm.plan(100).is_empty(), "everything is under way");
        for (ticket, tried) in first.into_iter().chain(rest) {
            let outcome = if tried.len() == 2 { fails() } else { Outcome::Pass };
            confirm.record(ticket, &outcome);
        }
        assert!(confirm.is_done() && confirm.is_confirmed());
        assert_eq!(confirm.failing(), Tally { failed: 13, ..Tally::default() });
    }

    fn fails_otherwise() -> Outcome {
        let signature = Signature { test: "u".into(), ending: Ending::Code(1), message: String::new() };
        Outcome::Unresolved { reason: Unresolved::OtherFailure { signature } }
    }

    #[test]
    fn a_neighbour_that_fails_otherwise_does_not_fail() {
        let mut confirm = pair();
        confirm.recall(&set(&[2]), &fails_otherwise());
        assert_eq!((confirm.left(), confirm.contradiction()), (12 + 3, None));
    }

    #[test]
    fn one_pass_of_the_set_or_one_failure_of_a_neighbour_is_a_contradiction() {
        let whole = set(&[1, 2]);
        for (tried, outcome) in
            [(whole.clone(), Outcome::Pass), (whole, fails_otherwise()), (set(&[2]), fails())]
        {
            let mut confirm = pair();
            confirm.recall(&tried, &outcome);
            assert_eq!(confirm.contradiction().map(|(set, _)| set.clone()), Some(tried));
            assert!(confirm.is_done() && !confirm.is_confirmed());
        }
    }

    #[test]
    fn what_cannot_be_judged_ends_unconfirmed() {
        let mut confirm = pair();
        let unresolved = Outcome::Unresolved { reason: "?".into() };
        let mut trials = 0;
        while !confirm.is_done() {
            for (ticket, tried) in confirm.plan(1) {
                trials += 1;
                confirm.record(ticket, if tried.len() == 2 { &unresolved } else { &Outcome::Pass });
            }
        }
        assert!(confirm.is_unjudged() && !confirm.is_confirmed());
        assert_eq!(trials, 4 + 13);
    }

    proptest! {
        /// Whatever comes, it ends, and nothing is confirmed that was contradicted.
        #[test]
        fn it_always_ends(outcomes in prop::collection::vec(0u8..3, 1..200), free in 1usize..5) {
            let mut confirm = pair();
            let mut outcomes = outcomes.into_iter().cycle();
            for _ in 0..200 {
                if confirm.is_done() {
                    break;
                }
                for (ticket, tried) in confirm.plan(free) {
                    let outcome = match outcomes.next() {
                        Some(0) => Outcome::Unresolved { reason: "?".into() },
                        Some(1) => {
                            confirm.lose(ticket);
                            continue;
                        }
                        _ if tried.len() == 2 => fails(),
                        _ => Outcome::Pass,
                    };
                    confirm.record(ticket, &outcome);
                }
            }
            prop_assert!(confirm.failing().passed == 0);
            prop_assert!(confirm.is_confirmed() == (confirm.left() == 0));
        }
    }
}
