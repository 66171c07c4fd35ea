//! What is believed before any trial, and how outcomes arise from a cause.

use super::BayesOptions;
use crate::Problem;
use crate::random::mix;

/// What is believed before any trial, and how outcomes arise.
#[derive(Debug, Clone)]
pub(super) struct Model {
    /// How many deltas there are in all.
    pub(super) size: usize,
    /// How suspicious each is; 1 on average.
    pub(super) suspicion: Vec<f32>,
    /// How many times likelier a cause is for each two neighbours in it.
    pub(super) neighbours: f32,
    /// How much less likely a cause is for each delta more.
    pub(super) ratio: f32,
    /// How much less likely more than one is.
    pub(super) single: f32,
    /// The same beyond the square root of the number of all deltas.
    pub(super) tail: f32,
    /// The probability that a set with the whole cause does not fail.
    pub(super) masked: f32,
    /// The probability that a set fails for another cause.
    pub(super) other: f32,
    /// The probability that a trial is unresolved for no reason that has to do with the cause.
    pub(super) noise: f32,
    /// How much less likely a trial with the whole cause is unresolved than fails.
    pub(super) unexplained: f32,
    /// The prior probability that a part of the cause makes trials unresolved.
    pub(super) partial: f32,
    /// How many particles.
    pub(super) particles: usize,
    /// Whether outcomes can differ between trials of a set.
    pub(super) repeated: bool,
}

/// A possible cause.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Particle {
    /// Places of its deltas among the candidates.
    pub(super) items: Vec<u32>,
    /// Whether a part of it makes a trial unresolved.
    pub(super) partial: bool,
}

impl Particle {
    /// A number that is the same for the same deltas.
    pub(super) fn key(&self) -> u64 {
        self.items.iter().fold(0, |key, &item| key ^ mix(u64::from(item) + 1))
    }
}

impl Model {
    /// What is believed about a problem; the figures are meant for any space, not for one.
    pub(super) fn of(problem: &Problem, options: &BayesOptions) -> Self {
        let count = problem.size.max(1) as f32;
        let suspicion = (0..problem.size)
            .map(|delta| match problem.ranks.get(delta) {
                // The first is seven times as suspicious as the last.
                Some(&rank) if problem.ranked => 1.75 - 1.5 * (rank as f32 - 0.5) / count,
                _ => 1.0,
            })
            .map(|suspicion: f32| suspicion.max(0.1))
            .collect();
        Self {
            size: problem.full().len(),
            suspicion,
            neighbours: 2.0,
            ratio: 0.8,
            tail: 0.6,
            // The more deltas differ, the less can be said for more than one of them.
            single: (128.0 / count).min(1.0),
            // Dearer than one more delta, or every cause would look like a smaller one that was masked.
            masked: if options.rate < 1.0 { 1.0 - options.rate as f32 } else { 0.1 / count },
            other: 0.05,
            noise: 0.1,
            unexplained: (0.5 / count).min(0.1),
            partial: 0.1,
            particles: 400,
            repeated: options.rate < 1.0,
        }
    }
}
