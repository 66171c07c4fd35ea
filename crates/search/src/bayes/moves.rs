//! Moves the particles of a belief: Markov chain steps that keep the posterior.

use super::belief::{Belief, MAX_FITS};
use super::evidence::{Mask, Needed};
use super::model::Particle;

impl Belief {
    pub(super) fn move_all(&mut self, steps: usize) {
        let mut particles = std::mem::take(&mut self.particles);
        for particle in &mut particles {
            // Every delta should have its turn, but half of them do for a belief that is as good.
            let steps = steps + steps * particle.items.len() / 4;
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

    /// Decides about a change by its prior and what it makes of the likelihood.
    fn decide(&mut self, now: f32, likelihood: &mut f32, prior: f32) -> bool {
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
        let size = particle.items.len();
        let pairs = particle.pairs + self.beside(item, &particle.items, None);
        let closer = self.log_closeness(size + 1, pairs) - self.log_closeness(size, particle.pairs);
        let prior = self.log_growth(size) + self.suspicion(item) + closer;
        particle.items.push(item);
        let now = self.likelihood(particle);
        if self.decide(now, likelihood, prior) {
            particle.pairs = pairs;
        } else {
            particle.items.pop();
        }
    }

    fn death(&mut self, particle: &mut Particle, likelihood: &mut f32) {
        if particle.items.len() < 2 {
            return;
        }
        let place = self.random.below(particle.items.len());
        let item = particle.items.swap_remove(place);
        let size = particle.items.len();
        let pairs = particle.pairs - self.beside(item, &particle.items, None);
        let closer = self.log_closeness(size, pairs) - self.log_closeness(size + 1, particle.pairs);
        let prior = closer - self.log_growth(size) - self.suspicion(item);
        let now = self.likelihood(particle);
        if self.decide(now, likelihood, prior) {
            particle.pairs = pairs;
        } else {
            particle.items.push(item);
        }
    }

    fn flip(&mut self, particle: &mut Particle, likelihood: &mut f32) {
        let odds = (self.model.partial / (1.0 - self.model.partial)).ln();
        particle.partial = !particle.partial;
        let prior = if particle.partial { odds } else { -odds };
        let now = self.likelihood(particle);
        if !self.decide(now, likelihood, prior) {
            particle.partial = !particle.partial;
        }
    }

    /// Exchanges one delta for another that hits the same pools.
    fn exchange(&mut self, particle: &mut Particle, likelihood: &mut f32) {
        let place = self.random.below(particle.items.len());
        let old = particle.items[place];
        let others = particle.items.iter().enumerate().filter(|&(other, _)| other != place);
        let others = self.evidence.hits(others.map(|(_, &other)| other));
        let item = if self.random.below(32) == 0 {
            self.random.below(self.candidates.len()) as u32
        } else {
            let mut needed = Mask::default();
            for (word, needed) in needed.iter_mut().enumerate().take(self.evidence.left_out.len()) {
                *needed = if particle.partial {
                    // None of it may be in a trial that passed.
                    self.evidence.passed[word] | self.evidence.unresolved[word] & !others.any[word]
                } else {
                    self.evidence.passed[word] & !others.any[word]
                };
            }
            match self.find(&needed) {
                Some(item) => item,
                None => return,
            }
        };
        if particle.items.contains(&item) {
            return;
        }
        let size = particle.items.len();
        let mut pairs = 0;
        let mut prior = self.suspicion(item) - self.suspicion(old);
        if size > 1 {
            pairs = particle.pairs + self.beside(item, &particle.items, Some(place))
                - self.beside(old, &particle.items, Some(place));
            if pairs != particle.pairs {
                prior += self.log_closeness(size, pairs) - self.log_closeness(size, particle.pairs);
            }
        }
        let now = self.likelihood_of(&self.evidence.hits_with(others, item), particle.partial);
        if self.decide(now, likelihood, prior) {
            particle.items[place] = item;
            particle.pairs = pairs;
        }
    }

    /// A random candidate in all these pools.
    fn find(&mut self, needed: &Mask) -> Option<u32> {
        // In up to two pools one is soon met by chance.
        if needed.iter().map(|word| word.count_ones()).sum::<u32>() <= 2 {
            for _ in 0..4 {
                let item = self.random.below(self.candidates.len());
                if self.evidence.has_all(item as u32, needed) {
                    return Some(item as u32);
                }
            }
        }
        if self.fits.len() * self.candidates.len() >= MAX_FITS {
            self.fits.clear();
        }
        let evidence = &self.evidence;
        let fits = self.fits.entry(Needed(*needed)).or_insert_with(|| evidence.in_all(needed));
        (!fits.is_empty()).then(|| fits[self.random.below(fits.len())])
    }

    /// How many of these deltas are neighbours of a candidate.
    pub(super) fn beside(&self, item: u32, items: &[u32], except: Option<usize>) -> u16 {
        let delta = self.candidates[item as usize];
        let is_beside = |&(place, &other): &(usize, &u32)| {
            Some(place) != except && self.candidates[other as usize].abs_diff(delta) == 1
        };
        items.iter().enumerate().filter(is_beside).count() as u16
    }

    /// The logarithm of how suspicious a candidate is.
    fn suspicion(&self, item: u32) -> f32 {
        self.suspicion[self.candidates[item as usize]]
    }
}
