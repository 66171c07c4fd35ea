//! Which trial is worth most: pools of deltas to leave out, and how much their outcome would tell.
//!
//! The worth of a trial is the information it adds to the trials that already run (joint entropy over
//! the particles, research note, section 5), in bits, plus the probability that exactly this trial is
//! needed in the end, to show that the cause fails or that none of its deltas can be left out.

use std::cmp::Reverse;
use std::ops::Range;

use faultscope_model::DeltaSet;

use super::belief::Belief;
use super::model::Particle;
use super::ties::Ties;
use crate::random::Random;

/// The particles, sorted by what the running trials will show if they are right.
pub(super) struct Cells<'a> {
    belief: &'a Belief,
    /// Particles that are alike count as one: near the end most are.
    kinds: Vec<Kind<'a>>,
    /// For each kind, its cell.
    cell: Vec<u32>,
    /// How many particles each cell has.
    counts: Vec<u32>,
    /// The kinds that hold each candidate, one candidate after the other.
    holders: Vec<u32>,
    /// Where those of each candidate begin.
    held_from: Vec<u32>,
    /// x log2 x.
    logs: Vec<f32>,
    /// The sum over cells of x log2 x.
    before: f32,
    /// How often a failing set fails.
    rate: f32,
}

/// Particles that are alike.
struct Kind<'a> {
    key: u64,
    particle: &'a Particle,
    /// How many there are.
    count: u32,
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
    /// Runs that may belong together, whole except for one: see [`Ties`].
    Untied,
}

/// A pool under construction: how many deltas of each kind it leaves out.
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
        let kinds = kinds(&belief.particles);
        let (holders, held_from) = holders(&kinds, belief.candidates.len());
        let logs = (0..=count).map(|x| if x == 0 { 0.0 } else { x as f32 * (x as f32).log2() }).collect();
        let mut cells = Self {
            belief,
            cell: vec![0; kinds.len()],
            kinds,
            counts: vec![count as u32],
            holders,
            held_from,
            logs,
            before: 0.0,
            rate,
        };
        cells.before = cells.logs[count];
        cells
    }

    /// Counts a trial of this set as running.
    pub(super) fn add(&mut self, set: &DeltaSet) {
        let shown = self.shown(set);
        let mut names = vec![u32::MAX; 3 * self.counts.len()];
        self.counts.clear();
        for ((cell, kind), shown) in self.cell.iter_mut().zip(&self.kinds).zip(shown) {
            let name = &mut names[3 * *cell as usize + usize::from(shown)];
            if *name == u32::MAX {
                *name = self.counts.len() as u32;
                self.counts.push(0);
            }
            self.counts[*name as usize] += kind.count;
            *cell = *name;
        }
        self.before = self.counts.iter().map(|&count| self.logs[count as usize]).sum();
    }

    /// What a trial of this set would tell beyond the running ones, in bits.
    pub(super) fn gain(&self, set: &DeltaSet) -> f64 {
        let mut outcomes = vec![[0; 3]; self.counts.len()];
        for ((&cell, kind), shown) in self.cell.iter().zip(&self.kinds).zip(self.shown(set)) {
            outcomes[cell as usize][usize::from(shown)] += kind.count;
        }
        let sum = outcomes.iter().flatten().map(|&count: &u32| self.logs[count as usize]).sum();
        self.expected_gain(&outcomes, sum)
    }

    /// The share of the particles that say that a set fails.
    pub(super) fn failing(&self, set: &DeltaSet) -> f64 {
        let fails = self.shown(set).into_iter().zip(&self.kinds).filter(|(shown, _)| *shown == 0);
        let fails: u32 = fails.map(|(_, kind)| kind.count).sum();
        f64::from(fails) / self.belief.particles.len().max(1) as f64
    }

    /// What a trial of this set shows if each kind is right.
    fn shown(&self, set: &DeltaSet) -> Vec<u8> {
        let out = |&&item: &&u32| !set.contains(self.belief.candidates[item as usize]);
        let hits = |kind: &Kind<'_>| kind.particle.items.iter().filter(out).count() as u16;
        self.kinds.iter().map(|kind| outcome(kind.particle, hits(kind))).collect()
    }

    /// The kinds that hold a candidate.
    fn holders(&self, item: usize) -> &[u32] {
        &self.holders[self.held_from[item] as usize..self.held_from[item + 1] as usize]
    }

    /// A pool drawn at random and then improved delta by delta; gives the set without it and what a trial of it
    /// would tell.
    pub(super) fn propose(&self, random: &mut Random, shape: Shape, polish: usize) -> (DeltaSet, f64) {
        let count = self.belief.candidates.len();
        let mut pool = self.empty();
        let mut best = 0.0;
        let order = self.order(random, shape);
        for &item in &order {
            if self.holders(item).is_empty() {
                // Nothing is known about it: it goes with its neighbours, or by chance.
                pool.out[item] = shape != Shape::Scattered || random.below(2) == 0;
                continue;
            }
            self.toggle(&mut pool, item);
            let gain = self.expected_gain(&pool.outcomes, pool.sum);
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
            let gain = self.expected_gain(&pool.outcomes, pool.sum);
            if gain > best {
                best = gain;
            } else {
                self.toggle(&mut pool, item);
            }
        }
        for item in 0..count {
            if self.belief.is_cleared(item) && self.holders(item).is_empty() {
                pool.out[item] = true;
            }
        }
        let kept = self.belief.candidates.iter().zip(&pool.out).filter(|(_, out)| !**out);
        (kept.map(|(delta, _)| *delta).collect(), best)
    }

    /// A pool of whole runs that may belong together; the last one is split where that is least likely to matter.
    pub(super) fn propose_untied(&self, random: &mut Random, ties: &Ties) -> (DeltaSet, f64) {
        let mut runs = self.runs(ties);
        if random.below(2) == 0 {
            random.shuffle(&mut runs);
        } else {
            let first = random.below(runs.len());
            runs.rotate_left(first);
        }
        let mut pool = self.empty();
        let mut best = 0.0;
        for run in runs {
            run.clone().for_each(|item| self.toggle(&mut pool, item));
            let gain = self.expected_gain(&pool.outcomes, pool.sum);
            if gain >= best {
                best = gain;
                continue;
            }
            run.clone().for_each(|item| self.toggle(&mut pool, item));
            best = self.split(&mut pool, run, random, ties, best);
            break;
        }
        let kept = self.belief.candidates.iter().zip(&pool.out).filter(|(_, out)| !**out);
        (kept.map(|(delta, _)| *delta).collect(), best)
    }

    /// Adds one end of a run to a pool, as much of it as tells most; gives what the pool then tells.
    fn split(
        &self,
        pool: &mut Pool,
        run: Range<usize>,
        random: &mut Random,
        ties: &Ties,
        before: f64,
    ) -> f64 {
        let mut items: Vec<usize> = run.collect();
        let backwards = random.below(2) == 0;
        if backwards {
            items.reverse();
        }
        // What the pool tells must outweigh that the trial may show nothing.
        let (mut most, mut told, mut length) = (before, before, 0);
        for (place, &item) in items.iter().enumerate().take(items.len() - 1) {
            self.toggle(pool, item);
            let first = if backwards { items[place + 1] } else { item };
            let gain = self.expected_gain(&pool.outcomes, pool.sum);
            let expected = gain * (1.0 - ties.chance(self.belief.candidates[first]));
            if expected > most {
                (most, told, length) = (expected, gain, place + 1);
            }
        }
        items[length..items.len() - 1].iter().for_each(|&item| self.toggle(pool, item));
        told
    }

    /// Runs of candidates between which some trial has cut and could be judged.
    fn runs(&self, ties: &Ties) -> Vec<Range<usize>> {
        let candidates = &self.belief.candidates;
        let mut runs = Vec::new();
        let mut from = 0;
        for to in 1..=candidates.len() {
            let goes_on = to < candidates.len()
                && candidates[to] == candidates[to - 1] + 1
                && ties.chance(candidates[to - 1]) > 0.0;
            if !goes_on {
                runs.push(from..to);
                from = to;
            }
        }
        runs
    }

    /// In which order candidates are tried for a pool.
    fn order(&self, random: &mut Random, shape: Shape) -> Vec<usize> {
        let count = self.belief.candidates.len();
        let mut order: Vec<usize> = (0..count).collect();
        order.rotate_left(random.below(count));
        match shape {
            Shape::Contiguous | Shape::Untied => {}
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
        self.groups().into_iter().take(most).map(|(share, particle)| (self.cause(particle), share)).collect()
    }

    /// The deltas of a particle.
    pub(super) fn cause(&self, particle: &Particle) -> DeltaSet {
        particle.items.iter().map(|&item| self.belief.candidates[item as usize]).collect()
    }

    /// One particle for each different cause, with the share of those like it, the likeliest first.
    pub(super) fn groups(&self) -> Vec<(f64, &'a Particle)> {
        let total = self.belief.particles.len() as f64;
        let alike = self.kinds.chunk_by(|a, b| a.key == b.key);
        let mut groups: Vec<(u32, usize, &Particle)> = alike
            .enumerate()
            .map(|(place, kinds)| (kinds.iter().map(|kind| kind.count).sum(), place, kinds[0].particle))
            .collect();
        groups.sort_unstable_by_key(|&(count, place, _)| (Reverse(count), place));
        groups.into_iter().map(|(count, _, particle)| (f64::from(count) / total, particle)).collect()
    }

    fn empty(&self) -> Pool {
        let mut outcomes = vec![[0; 3]; self.counts.len()];
        for (outcomes, &count) in outcomes.iter_mut().zip(&self.counts) {
            outcomes[0] = count;
        }
        let sum = self.before;
        let hits = vec![0; self.kinds.len()];
        Pool { out: vec![false; self.belief.candidates.len()], hits, outcomes, sum }
    }

    fn toggle(&self, pool: &mut Pool, item: usize) {
        let out = !pool.out[item];
        pool.out[item] = out;
        for &holder in self.holders(item) {
            let index = holder as usize;
            let Kind { particle, count, .. } = self.kinds[index];
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
                let log = |count: u32| self.logs[count as usize];
                pool.sum += log(from - count) - log(from) + log(to + count) - log(to);
                counts[usize::from(before)] -= count;
                counts[usize::from(after)] += count;
            }
        }
    }

    /// What is learnt when each cell falls apart like this, in bits; `sum` is over x log2 x of the parts.
    fn expected_gain(&self, outcomes: &[[u32; 3]], sum: f32) -> f64 {
        let total = self.belief.particles.len() as f32;
        if self.rate < 1.0 {
            // A failing set passes at times, which blurs what its outcome tells.
            let blurred: f32 = outcomes
                .iter()
                .zip(&self.counts)
                .map(|(outcomes, &count)| {
                    let fails = outcomes[0] as f32 / count as f32;
                    count as f32 * (entropy(self.rate * fails) - fails * entropy(self.rate))
                })
                .sum();
            return f64::from(blurred / total);
        }
        f64::from((self.before - sum) / total)
    }
}

/// Brings particles that are alike together.
fn kinds(particles: &[Particle]) -> Vec<Kind<'_>> {
    let mut kinds: Vec<Kind<'_>> =
        particles.iter().map(|particle| Kind { key: particle.key(), particle, count: 1 }).collect();
    kinds.sort_by_key(|kind| (kind.key, kind.particle.partial));
    kinds.dedup_by(|next, kind| {
        let alike = next.key == kind.key && next.particle.partial == kind.particle.partial;
        kind.count += u32::from(alike);
        alike
    });
    kinds
}

/// The kinds that hold each candidate, and where those of each begin.
fn holders(kinds: &[Kind<'_>], candidates: usize) -> (Vec<u32>, Vec<u32>) {
    let mut from = vec![0u32; candidates + 1];
    let items =
        || (0u32..).zip(kinds).flat_map(|(index, kind)| kind.particle.items.iter().map(move |&i| (index, i)));
    items().for_each(|(_, item)| from[item as usize + 1] += 1);
    for item in 1..from.len() {
        from[item] += from[item - 1];
    }
    let mut next = from.clone();
    let mut holders = vec![0; from.last().copied().unwrap_or_default() as usize];
    for (index, item) in items() {
        let place = &mut next[item as usize];
        holders[*place as usize] = index;
        *place += 1;
    }
    (holders, from)
}

/// What a trial shows that leaves out this many deltas of this cause: 0 fail, 1 pass, 2 unresolved.
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
