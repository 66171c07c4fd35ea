//! Belief about the cause: a sample of the causes that are likely after all trials so far.
//!
//! Each particle is a possible cause. After a trial the particles are weighed by how well they explain
//! it, drawn again, and moved by Markov chain steps that keep the posterior (exchange of one delta,
//! birth, death). A masked pass and a second cause are possible but dear, so that an outcome which
//! contradicts the likely causes moves the belief instead of ending it.

use std::collections::HashMap;

use faultscope_model::DeltaSet;
use foldhash::fast::FixedState;

use super::evidence::{Evidence, Hits, Needed};
use super::model::{Model, Particle};
use crate::ledger::Verdict;
use crate::random::Random;

/// Logarithms of the model's probabilities.
#[derive(Debug)]
pub(super) struct Logs {
    masked: f32,
    other: f32,
    noise: f32,
    unexplained: f32,
}

#[derive(Debug)]
pub(super) struct Belief {
    pub(super) model: Model,
    pub(super) logs: Logs,
    /// The logarithm of the suspicion of each delta.
    pub(super) suspicion: Vec<f32>,
    /// The deltas that may belong to the cause: those of the smallest set that failed.
    pub(super) candidates: Vec<usize>,
    pub(super) particles: Vec<Particle>,
    pub(super) evidence: Evidence,
    /// The candidates in all pools of a mask, for the masks that were asked for.
    pub(super) fits: HashMap<Needed, Vec<u32>, FixedState>,
    /// The logarithm of [`Self::growth`] by size.
    growth: Vec<f32>,
    /// The logarithm of [`Model::closeness`] by size, then by pairs of neighbours.
    closeness: Vec<Vec<f32>>,
    pub(super) random: Random,
}

/// The most candidates that are remembered for masks, times masks.
pub(super) const MAX_FITS: usize = 1 << 21;

/// Beyond this many deltas of a cause its growth is computed each time.
const MAX_GROWTH: usize = 64;

/// The same for how close its deltas lie.
const MAX_CLOSENESS: usize = 24;

impl Belief {
    pub(super) fn new(model: Model, candidates: Vec<usize>, seed: u64) -> Self {
        let logs = Logs {
            masked: model.masked.ln(),
            other: model.other.ln(),
            noise: model.noise.ln(),
            unexplained: model.unexplained.ln(),
        };
        let closeness = |size| (0..=size).map(|pairs| model.closeness(size, pairs).ln()).collect();
        let mut belief = Self {
            closeness: (0..MAX_CLOSENESS).map(closeness).collect(),
            suspicion: model.suspicion.iter().map(|suspicion| suspicion.ln()).collect(),
            model,
            logs,
            candidates,
            particles: Vec::new(),
            evidence: Evidence::default(),
            fits: HashMap::default(),
            growth: Vec::new(),
            random: Random::new(seed),
        };
        belief.take_evidence(&[]);
        belief.particles = (0..belief.model.particles).map(|_| belief.draw()).collect();
        belief.move_all(4);
        belief
    }

    /// Whether two candidates were left out by the same trials that did not fail.
    pub(super) fn is_alike(&self, a: usize, b: usize) -> bool {
        let left_out = self.evidence.left_out.iter().zip(&self.evidence.failed);
        left_out.into_iter().all(|(left_out, failed)| (left_out[a] ^ left_out[b]) & !failed == 0)
    }

    /// Whether a failing trial left this candidate out.
    pub(super) fn is_cleared(&self, place: usize) -> bool {
        self.evidence.is_cleared(place)
    }

    /// How probable it is that a trial of this set is unresolved because it has a part of the cause.
    pub(super) fn splits_cause(&self, set: &DeltaSet) -> f64 {
        let has = |&&item: &&u32| set.contains(self.candidates[item as usize]);
        let splits = |particle: &&Particle| {
            let present = particle.items.iter().filter(has).count();
            particle.partial && present > 0 && present < particle.items.len()
        };
        self.particles.iter().filter(splits).count() as f64 / self.particles.len().max(1) as f64
    }

    /// Learns all trials so far; `candidates` may have become fewer.
    pub(super) fn learn(&mut self, candidates: Vec<usize>, trials: &[(DeltaSet, Verdict)]) {
        // Particles already stand for the belief before the newest trials: only the change counts.
        let before: Vec<f32> = self.particles.iter().map(|p| self.likelihood(p)).collect();
        if candidates != self.candidates {
            // Particles with a delta that is no candidate any more are impossible.
            let place = |old: u32| candidates.binary_search(&self.candidates[old as usize]).ok();
            for particle in &mut self.particles {
                let items: Option<Vec<u32>> =
                    particle.items.iter().map(|&item| place(item).map(|p| p as u32)).collect();
                match items {
                    Some(items) => particle.items = items,
                    None => *particle = Particle::default(),
                }
            }
            self.candidates = candidates;
        }
        self.take_evidence(trials);
        let gains: Vec<f32> = self
            .particles
            .iter()
            .zip(before)
            .map(
                |(p, before)| {
                    if p.items.is_empty() { f32::NEG_INFINITY } else { self.likelihood(p) - before }
                },
            )
            .collect();
        self.resample(&gains);
    }

    fn take_evidence(&mut self, trials: &[(DeltaSet, Verdict)]) {
        self.evidence = Evidence::encode(&self.candidates, trials, self.model.repeated);
        self.fits.clear();
        self.growth = (0..MAX_GROWTH).map(|size| self.growth(size).ln()).collect();
    }

    /// Draws the particles again by how well they explain what is new, then moves them.
    fn resample(&mut self, gains: &[f32]) {
        let best = gains.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let mut alive = 0;
        if best.is_finite() {
            let weights: Vec<f32> = gains.iter().map(|gain| (gain - best).exp()).collect();
            alive = weights.iter().filter(|&&w| w > 0.3).count();
            let total: f32 = weights.iter().sum();
            let count = self.model.particles;
            let mut drawn = Vec::with_capacity(count);
            let step = total / count as f32;
            let mut at = self.random.unit() as f32 * step;
            let mut sum = 0.0;
            for (particle, weight) in self.particles.iter().zip(&weights) {
                sum += weight;
                while at < sum && drawn.len() < count {
                    drawn.push(particle.clone());
                    at += step;
                }
            }
            while drawn.len() < count {
                drawn.push(drawn[drawn.len() - 1].clone());
            }
            self.particles = drawn;
        }
        if alive * 50 < self.model.particles {
            // Too few to stand for the belief: half are drawn anew and brought in line by moving.
            let every = if best.is_finite() { 2 } else { 1 };
            for i in (0..self.particles.len()).step_by(every) {
                self.particles[i] = self.draw();
            }
            self.move_all(24);
            // New particles that explain less must not stay because the steps ran out.
            self.sift();
        }
        let rounds = (self.model.particles / (alive + 1)).clamp(1, 4);
        self.move_all(4 * rounds);
    }

    fn sift(&mut self) {
        let scores: Vec<f32> = self.particles.iter().map(|p| self.score(p)).collect();
        let best = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let least = best - (self.candidates.len() as f32).ln() - 6.0;
        let good: Vec<usize> = (0..scores.len()).filter(|&i| scores[i] >= least).collect();
        let from = |i: usize| if scores[i] >= least { i } else { good[i % good.len()] };
        self.particles = (0..scores.len()).map(|i| self.particles[from(i)].clone()).collect();
    }

    /// A cause that hits every pool of a passing trial, of a size as the prior has it.
    fn draw(&mut self) -> Particle {
        let count = self.candidates.len();
        let mut size = 1;
        let mut particle = Particle::default();
        let mut mass = 1.0f32;
        let mut masses = vec![1.0f32];
        while size < count && masses.len() < 64 {
            mass *= self.growth(size);
            masses.push(mass);
            size += 1;
        }
        let mut at = self.random.unit() as f32 * masses.iter().sum::<f32>();
        size = 1;
        for mass in &masses {
            if at < *mass {
                break;
            }
            at -= mass;
            size += 1;
        }
        particle.partial = self.random.unit() < f64::from(self.model.partial);
        for pool in 0..self.evidence.pools.len() {
            let (word, bit) = (pool / 64, 1u64 << (pool % 64));
            let unresolved = particle.partial && self.evidence.unresolved[word] & bit != 0;
            if self.evidence.passed[word] & bit == 0 && !unresolved {
                continue;
            }
            let hit = particle.items.iter().any(|&i| self.evidence.left_out[word][i as usize] & bit != 0);
            if !hit {
                let items = &self.evidence.pools[pool];
                let mut item = items[self.random.below(items.len())];
                for _ in 0..8 {
                    if !particle.partial || self.is_untouched(item) {
                        break;
                    }
                    item = items[self.random.below(items.len())];
                }
                particle.items.push(item);
            }
        }
        self.fill(&mut particle, size.min(count));
        particle
    }

    /// Draws what is missing of a cause, anywhere or beside what it has.
    fn fill(&mut self, particle: &mut Particle, size: usize) {
        let count = self.candidates.len();
        let together = self.random.unit() < f64::from(self.model.together);
        let beside = if together { f64::from(self.model.beside) } else { 0.0 };
        while particle.items.len() < size {
            let mut item = self.random.below(count);
            if !particle.items.is_empty() && self.random.unit() < beside {
                let near = particle.items[self.random.below(particle.items.len())] as usize;
                let next = if self.random.below(2) == 0 { near.checked_sub(1) } else { Some(near + 1) };
                item = next.filter(|&next| next < count).unwrap_or(item);
            }
            if !particle.items.contains(&(item as u32)) {
                particle.items.push(item as u32);
            }
        }
        let items = &particle.items;
        let pairs = (0..items.len()).map(|place| self.beside(items[place], &items[..place], None));
        particle.pairs = pairs.sum();
    }

    /// Whether every passing trial left it out: there a cause is when parts of it are unresolved.
    fn is_untouched(&self, item: u32) -> bool {
        self.evidence.has_all(item, &self.evidence.passed)
    }

    /// The prior of one more delta for a cause of this size, given that it is among the candidates.
    fn growth(&self, size: usize) -> f32 {
        let (n, m, k) = (self.model.size as f32, self.candidates.len() as f32, size as f32);
        let ratio = if k < n.sqrt() { self.model.ratio } else { self.model.tail };
        ratio * ((m - k) / (n - k).max(1.0)).max(0.0)
    }

    pub(super) fn log_closeness(&self, size: usize, pairs: u16) -> f32 {
        let known = self.closeness.get(size).and_then(|row| row.get(usize::from(pairs)));
        known.copied().unwrap_or_else(|| self.model.closeness(size, usize::from(pairs)).ln())
    }

    pub(super) fn log_growth(&self, size: usize) -> f32 {
        self.growth.get(size).copied().unwrap_or_else(|| self.growth(size).ln())
    }

    /// The logarithm of the probability of all outcomes, up to a constant.
    pub(super) fn likelihood(&self, particle: &Particle) -> f32 {
        self.likelihood_of(&self.evidence.hits(particle.items.iter().copied()), particle.partial)
    }

    /// The same for a cause of which only this is known.
    pub(super) fn likelihood_of(&self, hits: &Hits, partial: bool) -> f32 {
        let evidence = &self.evidence;
        let (mut fails, mut masked, mut unexplained, mut apart) = (0, 0, 0, 0);
        for word in 0..evidence.left_out.len() {
            let (any, all) = (hits.any[word], hits.all[word]);
            fails += ones(evidence.failed[word] & any);
            masked += ones(evidence.passed[word] & !any);
            unexplained += ones(evidence.unresolved[word] & !any);
            if partial {
                apart += ones(evidence.passed[word] & !all) + ones(evidence.unresolved[word] & all);
            }
        }
        let common = fails as f32 * self.logs.other
            + masked as f32 * self.logs.masked
            + unexplained as f32 * self.logs.unexplained;
        if partial {
            common + apart as f32 * self.logs.unexplained
        } else {
            common + evidence.n_unresolved as f32 * self.logs.noise
        }
    }

    /// The logarithm of the posterior, up to a constant.
    fn score(&self, particle: &Particle) -> f32 {
        let mut prior = 0.0;
        for size in 1..particle.items.len() {
            // Growth has the number of ways to choose in it, which belongs to all causes of a size.
            let ways = (self.candidates.len() - size) as f32 / (size + 1) as f32;
            prior += self.log_growth(size) - ways.ln();
        }
        for place in 0..particle.items.len() {
            prior += self.suspicion[self.candidates[particle.items[place] as usize]];
        }
        prior + self.log_closeness(particle.items.len(), particle.pairs) + self.likelihood(particle)
    }
}

/// Counts bits; of what is mostly zero that is quickest with a look first.
fn ones(word: u64) -> u32 {
    if word == 0 { 0 } else { word.count_ones() }
}
