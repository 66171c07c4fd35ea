//! Which trial is worth most: pools of deltas to leave out, and how much their outcome would tell.
//!
//! The worth of a trial is the information it adds to the trials that already run (joint entropy over
//! the particles, research note, section 5), in bits, plus the probability that exactly this trial is
//! needed in the end, to show that the cause fails or that none of its deltas can be left out.

use std::collections::HashMap;

use faultscope_model::DeltaSet;

use super::belief::Belief;
use super::model::Particle;
use crate::random::Random;

/// The particles, sorted by what the running trials will show if they are right.
pub(super) struct Cells<'a> {
    belief: &'a Belief,
    /// For each particle, its cell.
    cell: Vec<u32>,
    /// How many particles each cell has.
    counts: Vec<u32>,
    /// For each candidate, the particles that hold it.
    holders: Vec<Vec<u32>>,
    /// x log2 x.
    logs: Vec<f32>,
    /// The sum over cells of x log2 x.
    before: f32,
    /// How often a failing set fails.
    rate: f32,
}

/// How a pool is put together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// Neighbours.
    Contiguous,
    /// Candidates that no passing trial tells apart: what is learnt stays easy to overlook.
    Nested,
    /// Any.
    Scattered,
}

/// A pool under construction: how many deltas of each particle it leaves out.
#[derive(Clone)]
struct Pool {
    out: Vec<bool>,
    hits: Vec<u16>,
    /// For each cell, how many particles say fail, pass, unresolved.
    outcomes: Vec<[u32; 3]>,
    /// The sum over cells and outcomes of x log2 x.
    sum: f32,
}

impl<'a> Cells<'a> {
    pub(super) fn new(belief: &'a Belief, rate: f32) -> Self {
        let count = belief.particles.len();
        let mut holders = vec![Vec::new(); belief.candidates.len()];
        for (index, particle) in (0u32..).zip(&belief.particles) {
            for &item in &particle.items {
                holders[item as usize].push(index);
            }
        }
        let logs = (0..=count).map(|x| if x == 0 { 0.0 } else { x as f32 * (x as f32).log2() }).collect();
        let mut cells = Self {
            belief,
            cell: vec![0; count],
            counts: vec![count as u32],
            holders,
            logs,
            before: 0.0,
            rate,
        };
        cells.before = cells.logs[count];
        cells
    }

    /// Counts a trial of this set as running.
    pub(super) fn add(&mut self, set: &DeltaSet) {
        let pool = self.pool_of(set);
        let mut names: HashMap<(u32, u8), u32> = HashMap::new();
        self.counts.clear();
        for (index, particle) in self.belief.particles.iter().enumerate() {
            let key = (self.cell[index], outcome(particle, pool.hits[index]));
            let next = names.len() as u32;
            let name = *names.entry(key).or_insert(next);
            if name == next {
                self.counts.push(0);
            }
            self.counts[name as usize] += 1;
            self.cell[index] = name;
        }
        self.before = self.counts.iter().map(|&count| self.logs[count as usize]).sum();
    }

    /// What a trial of this set would tell beyond the running ones, in bits.
    pub(super) fn gain(&self, set: &DeltaSet) -> f64 {
        self.gain_of(&self.pool_of(set))
    }

    /// The share of the particles that say that a set fails.
    pub(super) fn failing(&self, set: &DeltaSet) -> f64 {
        let pool = self.pool_of(set);
        let fails = pool.hits.iter().filter(|&&hits| hits == 0).count();
        fails as f64 / pool.hits.len().max(1) as f64
    }

    /// A pool drawn at random and then improved delta by delta; gives the set without it.
    pub(super) fn propose(&self, random: &mut Random, shape: Shape, polish: usize) -> DeltaSet {
        let count = self.belief.candidates.len();
        let mut pool = self.empty();
        let mut best = 0.0;
        let order = self.order(random, shape);
        for &item in &order {
            if self.holders[item].is_empty() {
                // Nothing is known about it: it goes with its neighbours, or by chance.
                pool.out[item] = shape != Shape::Scattered || random.below(2) == 0;
                continue;
            }
            self.toggle(&mut pool, item);
            let gain = self.gain_of(&pool);
            if gain >= best {
                best = gain;
            } else {
                self.toggle(&mut pool, item);
                if shape != Shape::Scattered {
                    break;
                }
            }
        }
        for _ in 0..polish {
            let particle = &self.belief.particles[random.below(self.belief.particles.len())];
            let item = particle.items[random.below(particle.items.len())] as usize;
            self.toggle(&mut pool, item);
            let gain = self.gain_of(&pool);
            if gain > best {
                best = gain;
            } else {
                self.toggle(&mut pool, item);
            }
        }
        for item in 0..count {
            if self.belief.is_cleared(item) && self.holders[item].is_empty() {
                pool.out[item] = true;
            }
        }
        let kept = self.belief.candidates.iter().zip(&pool.out).filter(|(_, out)| !**out);
        kept.map(|(delta, _)| *delta).collect()
    }

    /// In which order candidates are tried for a pool.
    fn order(&self, random: &mut Random, shape: Shape) -> Vec<usize> {
        let count = self.belief.candidates.len();
        let mut order: Vec<usize> = (0..count).collect();
        order.rotate_left(random.below(count));
        match shape {
            Shape::Contiguous => {}
            Shape::Scattered => random.shuffle(&mut order),
            Shape::Nested => {
                let mut nested = Vec::new();
                while nested.len() < count / 2 + 1 {
                    let particle = &self.belief.particles[random.below(self.belief.particles.len())];
                    let first = particle.items[random.below(particle.items.len())] as usize;
                    if nested.contains(&first) {
                        break;
                    }
                    nested.extend(order.iter().copied().filter(|&item| self.belief.is_alike(item, first)));
                }
                order = nested;
            }
        }
        order
    }

    /// The likeliest causes with their shares.
    pub(super) fn likeliest(&self, most: usize) -> Vec<(DeltaSet, f64)> {
        let mut keys: Vec<(u64, u32)> =
            (0u32..).zip(&self.belief.particles).map(|(index, particle)| (particle.key(), index)).collect();
        keys.sort_unstable();
        let mut groups: Vec<(usize, u32)> =
            keys.chunk_by(|a, b| a.0 == b.0).map(|group| (group.len(), group[0].1)).collect();
        groups.sort_unstable_by(|a, b| b.cmp(a));
        let total = keys.len() as f64;
        groups
            .into_iter()
            .take(most)
            .map(|(count, index)| {
                let items = &self.belief.particles[index as usize].items;
                let set = items.iter().map(|&item| self.belief.candidates[item as usize]).collect();
                (set, count as f64 / total)
            })
            .collect()
    }

    fn empty(&self) -> Pool {
        let mut outcomes = vec![[0; 3]; self.counts.len()];
        for (outcomes, &count) in outcomes.iter_mut().zip(&self.counts) {
            outcomes[0] = count;
        }
        let sum = self.before;
        let hits = vec![0; self.belief.particles.len()];
        Pool { out: vec![false; self.belief.candidates.len()], hits, outcomes, sum }
    }

    fn pool_of(&self, set: &DeltaSet) -> Pool {
        let mut pool = self.empty();
        for (item, &delta) in self.belief.candidates.iter().enumerate() {
            if !set.contains(delta) {
                self.toggle(&mut pool, item);
            }
        }
        pool
    }

    fn toggle(&self, pool: &mut Pool, item: usize) {
        let out = !pool.out[item];
        pool.out[item] = out;
        for &holder in &self.holders[item] {
            let index = holder as usize;
            let particle = &self.belief.particles[index];
            let before = outcome(particle, pool.hits[index]);
            if out {
                pool.hits[index] += 1;
            } else {
                pool.hits[index] -= 1;
            }
            let after = outcome(particle, pool.hits[index]);
            if before != after {
                let counts = &mut pool.outcomes[self.cell[index] as usize];
                let (from, to) = (counts[usize::from(before)], counts[usize::from(after)]);
                pool.sum += self.logs[from as usize - 1] - self.logs[from as usize]
                    + self.logs[to as usize + 1]
                    - self.logs[to as usize];
                counts[usize::from(before)] -= 1;
                counts[usize::from(after)] += 1;
            }
        }
    }

    fn gain_of(&self, pool: &Pool) -> f64 {
        let total = self.belief.particles.len() as f32;
        if self.rate < 1.0 {
            // A failing set passes at times, which blurs what its outcome tells.
            let blurred: f32 = pool
                .outcomes
                .iter()
                .zip(&self.counts)
                .map(|(outcomes, &count)| {
                    let fails = outcomes[0] as f32 / count as f32;
                    count as f32 * (entropy(self.rate * fails) - fails * entropy(self.rate))
                })
                .sum();
            return f64::from(blurred / total);
        }
        f64::from((self.before - pool.sum) / total)
    }
}

/// What a trial shows that leaves out so many deltas of this cause: 0 fail, 1 pass, 2 unresolved.
fn outcome(particle: &Particle, hits: u16) -> u8 {
    if hits == 0 {
        0
    } else if particle.partial && usize::from(hits) < particle.items.len() {
        2
    } else {
        1
    }
}

fn entropy(p: f32) -> f32 {
    if p <= 0.0 || p >= 1.0 { 0.0 } else { -p * p.log2() - (1.0 - p) * (1.0 - p).log2() }
}
