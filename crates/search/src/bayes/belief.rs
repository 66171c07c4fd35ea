//! Belief about the cause: a sample of the causes that are likely after all trials so far.
//!
//! Each particle is a possible cause. After a trial the particles are weighed by how well they explain
//! it, drawn again, and moved by Markov chain steps that keep the posterior (exchange of one delta,
//! birth, death). A masked pass and a second cause are possible but dear, so that an outcome which
//! contradicts the likely causes moves the belief instead of ending it.

use faultscope_model::DeltaSet;

use super::evidence::{Evidence, Mask};
use super::model::{Model, Particle};
use crate::ledger::Verdict;
use crate::random::Random;

/// Logarithms of the model's probabilities.
#[derive(Debug)]
struct Logs {
    masked: f32,
    other: f32,
    noise: f32,
    unexplained: f32,
    neighbours: f32,
}

#[derive(Debug)]
pub(super) struct Belief {
    model: Model,
    logs: Logs,
    /// The logarithm of the suspicion of each delta.
    suspicion: Vec<f32>,
    /// The deltas that may belong to the cause: those of the smallest set that failed.
    pub(super) candidates: Vec<usize>,
    pub(super) particles: Vec<Particle>,
    evidence: Evidence,
    random: Random,
}

impl Belief {
    pub(super) fn new(model: Model, candidates: Vec<usize>, seed: u64) -> Self {
        let logs = Logs {
            masked: model.masked.ln(),
            other: model.other.ln(),
            noise: model.noise.ln(),
            unexplained: model.unexplained.ln(),
            neighbours: model.neighbours.ln(),
        };
        let mut belief = Self {
            suspicion: model.suspicion.iter().map(|suspicion| suspicion.ln()).collect(),
            model,
            logs,
            candidates,
            particles: Vec::new(),
            evidence: Evidence::default(),
            random: Random::new(seed),
        };
        belief.evidence = Evidence::encode(&belief.candidates, &[], false);
        belief.particles = (0..belief.model.particles).map(|_| belief.draw()).collect();
        belief.move_all(4);
        belief
    }

    /// Whether two candidates were left out by the same trials that did not fail.
    pub(super) fn is_alike(&self, a: usize, b: usize) -> bool {
        let (a, b) = (&self.evidence.left_out[a], &self.evidence.left_out[b]);
        (0..self.evidence.words).all(|word| (a[word] ^ b[word]) & !self.evidence.failed[word] == 0)
    }

    /// Whether a failing trial left this candidate out.
    pub(super) fn is_cleared(&self, place: usize) -> bool {
        self.evidence.is_cleared(place)
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
                particle.items = items.unwrap_or_default();
            }
            self.candidates = candidates;
        }
        self.evidence = Evidence::encode(&self.candidates, trials, self.model.repeated);
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
            // New particles that explain less must not stay for want of steps.
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
            let hit = particle.items.iter().any(|&i| self.evidence.left_out[i as usize][word] & bit != 0);
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
        while particle.items.len() < size.min(count) {
            let item = self.random.below(count) as u32;
            if !particle.items.contains(&item) {
                particle.items.push(item);
            }
        }
        particle
    }

    /// Whether every passing trial left it out: there a cause is when parts of it are unresolved.
    fn is_untouched(&self, item: u32) -> bool {
        self.has_all(item, &self.evidence.passed)
    }

    /// The prior of one more delta for a cause of this size, given that it is among the candidates.
    fn growth(&self, size: usize) -> f32 {
        let (n, m, k) = (self.model.size as f32, self.candidates.len() as f32, size as f32);
        let ratio = if k < n.sqrt() { self.model.ratio } else { self.model.tail };
        let ratio = if size == 1 { ratio * self.model.single } else { ratio };
        ratio * ((m - k) / (n - k).max(1.0)).max(0.0)
    }

    fn move_all(&mut self, steps: usize) {
        let mut particles = std::mem::take(&mut self.particles);
        for particle in &mut particles {
            let steps = steps + steps * particle.items.len() / 2;
            let mut likelihood = self.likelihood(particle);
            for _ in 0..steps {
                self.step(particle, &mut likelihood);
            }
        }
        self.particles = particles;
    }

    fn step(&mut self, particle: &mut Particle, likelihood: &mut f32) {
        match self.random.below(8) {
            0 => self.birth(particle, likelihood),
            1 => self.death(particle, likelihood),
            2 if self.model.partial > 0.0 && particle.items.len() > 1 => self.flip(particle, likelihood),
            _ => self.exchange(particle, likelihood),
        }
    }

    /// Decides about a change that was made, by its prior and what it does to the likelihood.
    fn decide(&mut self, particle: &Particle, likelihood: &mut f32, prior: f32) -> bool {
        let now = self.likelihood(particle);
        let accepted = self.accept(now - *likelihood + prior);
        if accepted {
            *likelihood = now;
        }
        accepted
    }

    fn accept(&mut self, log_ratio: f32) -> bool {
        log_ratio >= 0.0 || (self.random.unit() as f32) < log_ratio.exp()
    }

    fn birth(&mut self, particle: &mut Particle, likelihood: &mut f32) {
        let item = self.random.below(self.candidates.len()) as u32;
        if particle.items.contains(&item) {
            return;
        }
        let prior = self.growth(particle.items.len()).ln() + self.attraction(item, particle, None);
        particle.items.push(item);
        if !self.decide(particle, likelihood, prior) {
            particle.items.pop();
        }
    }

    fn death(&mut self, particle: &mut Particle, likelihood: &mut f32) {
        if particle.items.len() < 2 {
            return;
        }
        let place = self.random.below(particle.items.len());
        let item = particle.items.swap_remove(place);
        let prior = -self.growth(particle.items.len()).ln() - self.attraction(item, particle, None);
        if !self.decide(particle, likelihood, prior) {
            particle.items.push(item);
        }
    }

    fn flip(&mut self, particle: &mut Particle, likelihood: &mut f32) {
        let odds = (self.model.partial / (1.0 - self.model.partial)).ln();
        particle.partial = !particle.partial;
        let prior = if particle.partial { odds } else { -odds };
        if !self.decide(particle, likelihood, prior) {
            particle.partial = !particle.partial;
        }
    }

    /// Exchanges one delta for another that hits the same pools.
    fn exchange(&mut self, particle: &mut Particle, likelihood: &mut f32) {
        let place = self.random.below(particle.items.len());
        let old = particle.items[place];
        let item = if self.random.below(32) == 0 {
            self.random.below(self.candidates.len()) as u32
        } else {
            let mut needed = self.evidence.passed;
            let mut others = Mask::default();
            for (_, &other) in particle.items.iter().enumerate().filter(|&(i, _)| i != place) {
                let mask = &self.evidence.left_out[other as usize];
                others.iter_mut().zip(mask).for_each(|(others, mask)| *others |= mask);
            }
            for (word, needed) in needed.iter_mut().enumerate().take(self.evidence.words) {
                if particle.partial {
                    // None of it may be in a trial that passed.
                    *needed |= self.evidence.unresolved[word] & !others[word];
                } else {
                    *needed &= !others[word];
                }
            }
            match self.find(&needed) {
                Some(item) => item,
                None => return,
            }
        };
        if particle.items.contains(&item) {
            return;
        }
        particle.items[place] = item;
        let prior =
            self.attraction(item, particle, Some(place)) - self.attraction(old, particle, Some(place));
        if !self.decide(particle, likelihood, prior) {
            particle.items[place] = old;
        }
    }

    /// Whether a candidate is in all these pools.
    fn has_all(&self, item: u32, needed: &Mask) -> bool {
        let mask = &self.evidence.left_out[item as usize];
        (0..self.evidence.words).all(|word| needed[word] & !mask[word] == 0)
    }

    /// A random candidate in all these pools.
    fn find(&mut self, needed: &Mask) -> Option<u32> {
        for _ in 0..12 {
            let item = self.random.below(self.candidates.len());
            if self.has_all(item as u32, needed) {
                return Some(item as u32);
            }
        }
        let pool = (0..self.evidence.pools.len())
            .filter(|&pool| needed[pool / 64] >> (pool % 64) & 1 == 1)
            .min_by_key(|&pool| self.evidence.pools[pool].len())?;
        let pool = &self.evidence.pools[pool];
        // From a random start, so that every fitting one is about as likely; counting them costs more.
        let start = self.random.below(pool.len());
        (0..pool.len()).map(|i| pool[(start + i) % pool.len()]).find(|&item| self.has_all(item, needed))
    }

    /// The logarithm of what suspicion and neighbours add to the prior of a delta.
    fn attraction(&self, item: u32, particle: &Particle, except: Option<usize>) -> f32 {
        let delta = self.candidates[item as usize];
        let mut result = self.suspicion[delta];
        for (place, &other) in particle.items.iter().enumerate() {
            if Some(place) != except && self.candidates[other as usize].abs_diff(delta) == 1 {
                result += self.logs.neighbours;
            }
        }
        result
    }

    /// The logarithm of the probability of all outcomes, up to a constant.
    fn likelihood(&self, particle: &Particle) -> f32 {
        let evidence = &self.evidence;
        let (mut fails, mut masked, mut unexplained, mut unresolved, mut apart) = (0, 0, 0, 0, 0);
        for word in 0..evidence.words {
            let (mut left_out, mut kept) = (0u64, 0u64);
            for &item in &particle.items {
                let mask = evidence.left_out[item as usize][word];
                left_out |= mask;
                kept |= !mask;
            }
            fails += (evidence.failed[word] & left_out).count_ones();
            masked += (evidence.passed[word] & !left_out).count_ones();
            unexplained += (evidence.unresolved[word] & !left_out).count_ones();
            unresolved += evidence.unresolved[word].count_ones();
            apart += (evidence.passed[word] & kept).count_ones();
            apart += (evidence.unresolved[word] & !kept).count_ones();
        }
        let common = fails as f32 * self.logs.other
            + masked as f32 * self.logs.masked
            + unexplained as f32 * self.logs.unexplained;
        if particle.partial {
            common + apart as f32 * self.logs.unexplained
        } else {
            common + unresolved as f32 * self.logs.noise
        }
    }

    /// The logarithm of the posterior, up to a constant.
    fn score(&self, particle: &Particle) -> f32 {
        let mut prior = 0.0;
        for size in 1..particle.items.len() {
            // Growth has the number of ways to choose in it, which belongs to all causes of a size.
            let ways = (self.candidates.len() - size) as f32 / (size + 1) as f32;
            prior += self.growth(size).ln() - ways.ln();
        }
        for place in 0..particle.items.len() {
            prior += self.suspicion[self.candidates[particle.items[place] as usize]];
        }
        prior + self.likelihood(particle)
    }
}
