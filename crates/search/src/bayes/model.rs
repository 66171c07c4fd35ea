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
    /// The probability that the deltas of a cause lie side by side, as the settings of one service do.
    pub(super) together: f32,
    /// The probability that a further delta of such a cause is a neighbour of one that belongs to it.
    pub(super) beside: f32,
    /// How much less likely a cause is for each delta more.
    pub(super) ratio: f32,
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
    /// How many particles there are for one slot, how many more for each, and the most.
    particles_for: (usize, usize, usize),
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
    /// How many of its deltas have the next one in it, too.
    pub(super) pairs: u16,
}

impl Particle {
    /// A number that is the same for the same deltas.
    pub(super) fn key(&self) -> u64 {
        self.items.iter().fold(0, |key, &item| key ^ mix(u64::from(item) + 1))
    }
}

impl Model {
    /// What is believed about a problem; the figures are meant for any space, not for one.
    pub(super) fn new(problem: &Problem, options: &BayesOptions) -> Self {
        let tuning = &options.tuning.belief;
        let count = problem.size.max(1) as f32;
        let (first, last) = (tuning.first_rank as f32, tuning.last_rank as f32);
        let suspicion = (0..problem.size)
            .map(|delta| match problem.ranks.get(delta) {
                Some(&rank) if problem.ranked => first - (first - last) * (rank as f32 - 0.5) / count,
                _ => 1.0,
            })
            .map(|suspicion: f32| suspicion.max(0.1))
            .collect();
        Self {
            size: problem.full().len(),
            suspicion,
            together: tuning.together as f32,
            beside: tuning.beside as f32,
            ratio: tuning.ratio as f32,
            tail: tuning.tail as f32,
            // Dearer than one more delta, or every cause would look like a smaller one that was masked.
            masked: if options.rate < 1.0 { 1.0 - options.rate as f32 } else { tuning.masked as f32 / count },
            other: tuning.other as f32,
            noise: tuning.noise as f32,
            unexplained: (tuning.unexplained as f32 / count).min(0.1),
            partial: tuning.partial as f32,
            particles: tuning.most_particles,
            particles_for: (tuning.least_particles, tuning.particles_a_slot, tuning.most_particles),
            repeated: options.rate < 1.0,
        }
    }

    /// Makes the belief as fine as this many slots need it.
    pub(super) fn suit(&mut self, slots: usize) {
        let (least, each, most) = self.particles_for;
        self.particles = (least + each * slots).min(most);
    }

    /// How many times likelier a cause is for how its deltas lie; 1 in the mean of all causes of a size up
    /// to half of the deltas.
    ///
    /// Either they lie anywhere, or in runs of neighbours: each further delta goes on with a run or begins
    /// another, and all causes with as many runs are alike.
    pub(super) fn closeness(&self, size: usize, pairs: usize) -> f32 {
        let size = size.clamp(1, self.size.max(1));
        let pairs = pairs.min(size - 1);
        let runs = size - pairs;
        let (beside, apart) = (f64::from(self.beside), f64::from(1.0 - self.beside));
        let chance = beside.ln() * pairs as f64 + apart.ln() * (runs - 1) as f64;
        let close = chance + ln_choose(self.size, size) - ln_choose(self.size + 1 - size, runs);
        let together = f64::from(self.together);
        // Beyond e^80 a 32-bit number ends, and nothing else is likely.
        (1.0 - together + together * close.min(80.0).exp()) as f32
    }
}

/// The logarithm of the number of subsets of a size.
fn ln_choose(from: usize, count: usize) -> f64 {
    (0..count.min(from)).map(|i| ((from - i) as f64 / (i + 1) as f64).ln()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(set: u32) -> usize {
        (set & (set >> 1)).count_ones() as usize
    }

    #[test]
    fn how_close_deltas_lie_does_not_change_how_many_there_are() {
        let model = Model::new(&Problem::new(10), &BayesOptions::default());
        for size in 1..=5 {
            let sets: Vec<u32> = (0..1 << 10).filter(|set: &u32| set.count_ones() == size).collect();
            let sum: f32 = sets.iter().map(|&set| model.closeness(size as usize, pairs(set))).sum();
            let mean = sum / sets.len() as f32;
            assert!((mean - 1.0).abs() < 1e-4, "{mean} for {size}");
        }
    }

    #[test]
    fn neighbours_are_likelier_than_others_and_the_more_so_the_more_others_there_are() {
        let likelier = |count| {
            let model = Model::new(&Problem::new(count), &BayesOptions::default());
            model.closeness(2, 1) / model.closeness(2, 0)
        };
        assert!(likelier(10) > 2.0, "{}", likelier(10));
        assert!(likelier(1_000) > 10.0 * likelier(10), "{}", likelier(1_000));
        assert!(likelier(1).is_finite());
    }
}
