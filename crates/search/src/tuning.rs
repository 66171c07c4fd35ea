//! The constants of the default searches, in one place, with where each comes from.
//!
//! None of them may be taken from a goal of a yardstick: a search that knows the limit it is measured by is tuned to
//! the measurement. Design note 0020 has what was measured, what was rejected, and how the values do on families of
//! causes that they were not chosen by (`faultscope bench debug --hold-out`).
//!
//! Sizes of tables and caches are not here: they change what a search costs, not what it chooses.

use serde::{Deserialize, Serialize};

/// The constants of the default searches. They are meant for every application: nobody has to set them, but
/// experiments can.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tuning {
    /// What is believed about causes, and how finely.
    pub belief: BeliefTuning,
    /// Which trials are chosen.
    pub choice: ChoiceTuning,
    /// Where on a line of values a failure starts.
    pub boundary: BoundaryTuning,
    /// Which perturbations are suspicious.
    pub suspicion: SuspicionTuning,
}

/// What is believed about causes before any trial, how outcomes arise from them, and how finely that is computed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BeliefTuning {
    /// How probable it is that the deltas of a cause lie side by side, as the settings of one service do. Two of the
    /// paper's four causes do (F3, F4); less than that half, because a space also has deltas of one setting each.
    pub together: f64,
    /// How probable it is that a further delta of such a cause is a neighbour of one that belongs to it. F4 is one
    /// delta and a run of three: two of three steps stay in a run.
    pub beside: f64,
    /// How much less likely a cause is for each delta more. A little below 1: sizes are nearly alike likely, but a
    /// sum over all sizes must converge.
    pub ratio: f64,
    /// The same for causes larger than the square root of the number of deltas, which are rarer.
    pub tail: f64,
    /// How suspicious the delta is that is ranked first; 1 is the mean of all. With `last_rank` a straight line whose
    /// ends are as 7 to 1: ranks (section 4.4 of the paper) are hints, and a cause at the end must still be found.
    pub first_rank: f64,
    /// How suspicious the delta is that is ranked last; both ends must have the mean 1.
    pub last_rank: f64,
    /// How probable it is that a set with the whole cause does not fail, divided by the number of deltas. Dearer than
    /// one more delta in the cause, or every cause would look like a smaller one that was masked.
    pub masked: f64,
    /// How probable it is that a set without the cause fails for another one. One in twenty: rare enough that a
    /// failure clears what it left out, likely enough that a second cause does not end the belief.
    pub other: f64,
    /// How probable it is that a trial is unresolved for a reason that has nothing to do with the cause. A guess: often
    /// enough that one such trial does not turn the belief.
    pub noise: f64,
    /// How probable it is that a trial with the whole cause is unresolved instead of failing, divided by the number of
    /// deltas and at most 0.1. As for `masked`, dearer than one more delta.
    pub unexplained: f64,
    /// How probable it is that parts of the cause make trials unresolved, before any trial has shown it.
    pub partial: f64,
    /// How many possible causes are kept for one slot. A bound on the time of a decision, which grows with the number:
    /// 300 for all made twelve slots a twentieth slower, 1,000 changed only the time (0013).
    pub least_particles: usize,
    /// How many more are kept for each slot: what runs at the same time must be told apart, too.
    pub particles_a_slot: usize,
    /// The most that are kept; 12 slots and more have as many.
    pub most_particles: usize,
}

impl Default for BeliefTuning {
    fn default() -> Self {
        Self {
            together: 0.3,
            beside: 0.8,
            ratio: 0.8,
            tail: 0.6,
            first_rank: 1.75,
            last_rank: 0.25,
            masked: 0.1,
            other: 0.05,
            noise: 0.1,
            unexplained: 0.5,
            partial: 0.1,
            least_particles: 275,
            particles_a_slot: 10,
            most_particles: 400,
        }
    }
}

/// Which trials are chosen. Worth is measured in bits of information.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ChoiceTuning {
    /// How many pools are drawn that keep to what earlier trials did not tell apart; half of all, because they are the
    /// best with one slot.
    pub nested_pools: usize,
    /// How many pools of neighbours are drawn. They find causes that lie together.
    pub contiguous_pools: usize,
    /// How many pools of any deltas are drawn. They tell most beside trials that already run.
    pub scattered_pools: usize,
    /// How many pools are drawn that split as little as possible of what may belong together, once a trial was
    /// unresolved. As many as of the other shapes that are not nested.
    pub untied_pools: usize,
    /// How many trials without a smaller failing set pass before a run that probably belongs together is left out
    /// against the belief: rare enough to cost an eighth of the trials at most.
    pub probe: usize,
    /// How many changes are tried on a scattered pool to fit it to the trials that run. Bounded by the time of a
    /// decision; twice as many for small spaces made no difference that shows (0020).
    pub polish: usize,
    /// The least worth of a trial for which a slot is used. A coin that falls on one side in 99 of 100 cases tells 0.08
    /// bits: what is as certain is not worth a deployment.
    pub least: f64,
    /// How much more that must be for each trial that runs, `near` trials before the end: the more run, the more are
    /// cancelled when the answer comes. By experiment on drawn instances, before anything was held out.
    pub crowd: f64,
    /// How many trials before the end that begins: as many as a proof of a usual cause takes.
    pub near: f64,
    /// What nested pools are worth more, because they keep the belief simple. Enough to decide between equals.
    pub nested: f64,
    /// What it costs to take deltas apart that are likely to make sense only together. A guess: a trial that does is
    /// unresolved often enough to lose about a third of its best worth.
    pub kin: f64,
    /// What it is worth to complete a proof at once, for each slot that would otherwise wait for it: somewhat more than
    /// the one bit that a trial tells at best, because it saves that slot a whole trial.
    pub finish: f64,
    /// What the change of every delta of a slot costs. Enough to decide between equals.
    pub switch: f64,
    /// A trial whose outcome is more certain than this tells nothing any more and may be cancelled; one particle of the
    /// most that are kept.
    pub certain: f64,
    /// The least share of the belief that a cause needs for its proof to be considered: fewer than 8 particles are noise.
    pub proof_share: f64,
    /// How many of the likeliest causes are considered.
    pub proof_causes: usize,
    /// How many trials for their proofs are considered, which bounds the time of a decision.
    pub most_proofs: usize,
    /// After this many trials without a smaller failing set the belief is not trusted and a sweep as in ddmin begins.
    /// A safety net: it must be rare, so it is larger than the proof of a usual cause takes.
    pub patience: f64,
    /// How many more of them for each doubling of the best set, as halving it takes one trial at best.
    pub patience_a_bit: f64,
    /// And how many more for each trial so far: a belief that was right for long may be trusted for longer.
    pub patience_share: f64,
    /// How many other sets are tried for a delta that cannot be left out alone. One shows that it is not needed; the
    /// second is for the case that the first is unresolved.
    pub alternatives: usize,
}

impl Default for ChoiceTuning {
    fn default() -> Self {
        Self {
            nested_pools: 4,
            contiguous_pools: 2,
            scattered_pools: 2,
            untied_pools: 4,
            probe: 8,
            polish: 100,
            least: 0.1,
            crowd: 0.12,
            near: 5.0,
            nested: 0.05,
            kin: 0.3,
            finish: 1.2,
            switch: 0.02,
            certain: 0.003,
            proof_share: 0.02,
            proof_causes: 16,
            most_proofs: 24,
            patience: 16.0,
            patience_a_bit: 8.0,
            patience_share: 2.0 / 3.0,
            alternatives: 2,
        }
    }
}

/// Where on a line of values a failure starts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BoundaryTuning {
    /// More trials than this are not spent on one boundary. Halving 64 bits, repeated for a flaky test, stays below.
    pub most_trials: u32,
    /// Where the scale is relative, values that differ by less than one part in this many are neighbours: nobody sets a
    /// memory limit more exactly than by 2 %.
    pub parts: u64,
}

impl Default for BoundaryTuning {
    fn default() -> Self {
        Self { most_trials: 200, parts: 50 }
    }
}

/// Which perturbations are suspicious: shares of one whole.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SuspicionTuning {
    /// The share of actors whose own assertions failed and that nobody else who failed leads to. A defect mostly shows
    /// where it is.
    pub blamed: f64,
    /// The share of those that lead to them; what is left of the whole is for all others.
    pub upstream: f64,
    /// How much less suspicious one message farther away is: a wrong value can be corrected at every hop.
    pub farther: f64,
    /// How much less suspicious an actor is for each end that it leads to and that did not fail.
    pub spared: f64,
    /// How suspicious an actor is that does not lead to all ends that failed. Two defects at once are rare, but must be
    /// found.
    pub elsewhere: f64,
    /// What is left of the suspicion of an actor after its likeliest perturbation alone passed: others of its
    /// perturbations can still be needed.
    pub missed: f64,
    /// A class with this share of all suspicion is tried by itself. Of three classes that are alike one is: where that
    /// fails, the trial is the confirmation, too, which a cut would still need.
    pub aim: f64,
}

impl Default for SuspicionTuning {
    fn default() -> Self {
        Self {
            blamed: 0.9,
            upstream: 0.08,
            farther: 0.7,
            spared: 0.4,
            elsewhere: 0.01,
            missed: 0.3,
            aim: 0.33,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn experiments_change_single_constants_and_misspelt_ones_are_refused() {
        let changed: Tuning = serde_json::from_str(r#"{"choice": {"least": 0.5}}"#).unwrap();
        assert_eq!(changed.choice, ChoiceTuning { least: 0.5, ..ChoiceTuning::default() });
        assert_eq!(changed.belief, BeliefTuning::default());
        assert!(serde_json::from_str::<Tuning>(r#"{"choice": {"leest": 0.5}}"#).is_err());
    }

    #[test]
    fn suspicions_are_shares() {
        let tuning = Tuning::default();
        assert!(tuning.suspicion.blamed + tuning.suspicion.upstream < 1.0);
        assert_eq!((tuning.belief.first_rank + tuning.belief.last_rank) / 2.0, 1.0);
    }
}
