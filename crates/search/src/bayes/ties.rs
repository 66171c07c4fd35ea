//! Which neighbouring deltas only make sense together.
//!
//! Some services only start with all of their deltas or with none, and a trial that splits one of them is unresolved
//! wherever the cause is. The belief about the cause must not learn from such a trial, and the next trials should not
//! split there again. Deltas are ordered by service, so what belongs together lies side by side: a *tie* holds a delta
//! to its neighbour. A trial that could be judged shows that there was none where it cut; an unresolved one shows that
//! there is one somewhere among its cuts, unless something else explains it.

use std::borrow::Cow;
use std::cmp::Reverse;

use faultscope_model::DeltaSet;

use crate::ledger::Verdict;

/// How often the probabilities of all ties are weighed against each other. They settle after three or four times.
const ROUNDS: usize = 5;

/// How many ties there are, before any trial: one to this many pairs of neighbours. A guess on the low side, as most
/// applications have none; a few unresolved trials outweigh it.
const PAIRS_A_TIE: f64 = 30.0;

/// How probable each tie between neighbouring deltas is. Empty until a trial was unresolved, so that nothing changes for
/// applications whose trials can all be judged.
#[derive(Debug, Default)]
pub(super) struct Ties {
    /// For each delta, the probability of a tie to the next one.
    chances: Vec<f64>,
}

/// An unresolved trial, by what can explain it.
struct Unresolved {
    /// The pairs that it split and no other trial has shown to be free.
    cuts: Vec<usize>,
    /// The probability that it was unresolved for another reason.
    other: f64,
}

impl Ties {
    /// Learns from all trials; `explained` says how probable it is that the cause itself made a trial of a set
    /// unresolved.
    pub(super) fn learn(
        size: usize,
        trials: &[(DeltaSet, Verdict)],
        noise: f64,
        explained: impl Fn(&DeltaSet) -> f64,
    ) -> Self {
        if size < 2 || trials.iter().all(|(_, verdict)| *verdict != Verdict::Unresolved) {
            return Self::default();
        }
        let mut free = vec![false; size - 1];
        for (set, _) in trials.iter().filter(|(_, verdict)| *verdict != Verdict::Unresolved) {
            find_cuts(set, size).for_each(|pair| free[pair] = true);
        }
        let unresolved: Vec<Unresolved> = trials
            .iter()
            .filter(|(_, verdict)| *verdict == Verdict::Unresolved)
            .map(|(set, _)| Unresolved {
                cuts: find_cuts(set, size).filter(|&pair| !free[pair]).collect(),
                other: 1.0 - (1.0 - explained(set)) * (1.0 - noise),
            })
            .collect();
        let mut ties =
            Self { chances: free.iter().map(|&free| if free { 0.0 } else { 1.0 / PAIRS_A_TIE }).collect() };
        let mut suspects: Vec<usize> =
            unresolved.iter().flat_map(|trial| trial.cuts.iter().copied()).collect();
        suspects.sort_unstable();
        suspects.dedup();
        for _ in 0..ROUNDS {
            ties.weigh(&unresolved, &suspects, &free);
        }
        ties
    }

    /// Weighs every suspected tie by how well the other ones explain the trials that it would explain.
    fn weigh(&mut self, unresolved: &[Unresolved], suspects: &[usize], free: &[bool]) {
        // How common ties are follows from those that are likely, among all pairs that something is known about.
        let known = free.iter().filter(|free| **free).count() + suspects.len();
        let likely: f64 = suspects.iter().map(|&pair| self.chances[pair]).sum();
        let common = ((1.0 + likely) / (PAIRS_A_TIE + known as f64)).min(0.5);
        let mut odds = vec![(common / (1.0 - common)).ln(); self.chances.len()];
        for trial in unresolved {
            let untied: f64 = trial.cuts.iter().map(|&pair| 1.0 - self.chances[pair]).product();
            for &pair in &trial.cuts {
                let without = (untied / (1.0 - self.chances[pair]).max(1e-9)).min(1.0);
                // A trial with this tie is unresolved for certain; without it something else must explain it.
                odds[pair] -= (1.0 - (1.0 - trial.other) * without).max(1e-6).ln();
            }
        }
        for (pair, chance) in self.chances.iter_mut().enumerate().filter(|(pair, _)| !free[*pair]) {
            *chance = (1.0 / (1.0 + (-odds[pair]).exp())).min(0.999);
        }
    }

    /// Runs of a set whose deltas probably belong together, the longest first.
    pub(super) fn likely_runs(&self, set: &DeltaSet) -> Vec<DeltaSet> {
        let deltas: Vec<usize> = set.iter().collect();
        let tied = |a: &usize, b: &usize| *b == a + 1 && self.chance(*a) > 0.5;
        let mut runs: Vec<DeltaSet> = deltas
            .chunk_by(tied)
            .filter(|run| run.len() > 1 && run.len() < deltas.len())
            .map(|run| run.iter().copied().collect())
            .collect();
        runs.sort_by_key(|run| Reverse(run.len()));
        runs
    }

    /// Whether no trial was unresolved so far.
    pub(super) fn is_empty(&self) -> bool {
        self.chances.is_empty()
    }

    /// The probability of a tie between a delta and the next one.
    pub(super) fn chance(&self, delta: usize) -> f64 {
        self.chances.get(delta).copied().unwrap_or(0.0)
    }

    /// The trials that tell something about the cause: one that was unresolved because it split what belongs together
    /// says nothing about the rest.
    pub(super) fn drop_split<'t>(&self, trials: &'t [(DeltaSet, Verdict)]) -> Cow<'t, [(DeltaSet, Verdict)]> {
        if self.is_empty() {
            return Cow::Borrowed(trials);
        }
        let tells = |set: &DeltaSet, verdict| verdict != Verdict::Unresolved || self.resolves(set) > 0.5;
        trials.iter().filter(|(set, verdict)| tells(set, *verdict)).cloned().collect()
    }

    /// How probable it is that a trial of this set splits nothing that belongs together.
    pub(super) fn resolves(&self, set: &DeltaSet) -> f64 {
        if self.is_empty() {
            return 1.0;
        }
        find_cuts(set, self.chances.len() + 1).map(|pair| 1.0 - self.chances[pair]).product()
    }
}

/// The pairs of neighbours of which a set has exactly one; each is named by its first delta.
fn find_cuts(set: &DeltaSet, size: usize) -> impl Iterator<Item = usize> {
    (0..size.saturating_sub(1)).filter(move |&delta| set.contains(delta) != set.contains(delta + 1))
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::*;

    fn set(range: Range<usize>) -> DeltaSet {
        range.collect()
    }

    fn learn(trials: &[(DeltaSet, Verdict)]) -> Ties {
        Ties::learn(12, trials, 0.1, |_| 0.0)
    }

    #[test]
    fn without_unresolved_trials_every_set_is_expected_to_be_judged() {
        let ties = learn(&[(set(0..6), Verdict::Pass), (set(3..12), Verdict::Fail)]);
        assert!(ties.is_empty());
        assert_eq!(ties.resolves(&set(2..5)), 1.0);
    }

    #[test]
    fn the_one_cut_that_all_unresolved_trials_share_is_a_tie() {
        let trials = [
            (set(0..6), Verdict::Unresolved),
            (set(6..9), Verdict::Unresolved),
            (set(2..6), Verdict::Unresolved),
            (set(0..9), Verdict::Pass),
            (set(2..12), Verdict::Fail),
        ];
        let ties = learn(&trials);
        assert!(ties.chance(5) > 0.9, "{ties:?}");
        assert_eq!((ties.chance(1), ties.chance(8)), (0.0, 0.0), "judged trials have cut there");
        assert!(ties.resolves(&set(0..9)) > 0.99);
        assert!(ties.resolves(&set(3..6)) < 0.1);
        assert_eq!(ties.drop_split(&trials).len(), 2, "what a tie explains says nothing about the cause");
    }

    #[test]
    fn what_the_cause_explains_needs_no_tie() {
        let trials = [(set(0..6), Verdict::Unresolved), (set(2..6), Verdict::Unresolved)];
        let ties = Ties::learn(12, &trials, 0.1, |_| 0.99);
        assert!(ties.chance(5) < 0.1, "{ties:?}");
        assert_eq!(ties.drop_split(&trials).len(), 2);
    }

    #[test]
    fn runs_are_found_only_where_every_pair_is_tied() {
        let mut ties = Ties { chances: vec![0.0; 11] };
        for delta in [2, 3, 4, 8] {
            ties.chances[delta] = 0.9;
        }
        assert_eq!(ties.likely_runs(&set(0..12)), [set(2..6), set(8..10)]);
        assert_eq!(ties.likely_runs(&set(0..3)), []);
    }
}
