//! Checks that the reference searches need what was recorded for them.
//!
//! With unit durations both are the same computation. With lognormal ones the recorded durations are one
//! draw that no longer exists: a mean over twenty instances varies from draw to draw, often by more
//! than 10 %. So ours is drawn several times, which shows how far one draw may be off by chance.

use std::collections::BTreeMap;

use super::{Anchor, Plan, Strategy, run};
use crate::simulate::{Durations, Family, Instance};

/// Up to this difference both count as the same computation.
const SAME: f64 = 0.1;

/// A figure is further off than this by chance once in a thousand times (Student, twelve draws); there are
/// several hundred.
const CHANCE: f64 = 4.4;

/// A cell of a reference search beside its recorded figures: trials and makespan.
#[derive(Debug, Clone, PartialEq)]
pub struct Agreement {
    /// The reference search.
    pub strategy: Strategy,
    /// Cell, slots and durations.
    pub name: String,
    /// The recorded figures.
    pub recorded: [f64; 2],
    /// The mean over all draws.
    pub ours: [f64; 2],
    /// The standard deviation between draws; zero if nothing is drawn.
    pub spread: [f64; 2],
    /// Number of draws.
    pub draws: u32,
}

impl Agreement {
    /// The relative difference, the larger of both figures.
    pub fn off(&self) -> f64 {
        let off = |of: usize| (self.ours[of] / self.recorded[of] - 1.0).abs();
        off(0).max(off(1))
    }

    /// The difference in standard deviations between one draw and our mean.
    pub fn deviations(&self) -> f64 {
        let by = |of: usize| {
            let error = self.spread[of] * (1.0 + 1.0 / f64::from(self.draws)).sqrt();
            let off = (self.ours[of] - self.recorded[of]).abs();
            // Recorded figures are rounded.
            if off < 0.01 { 0.0 } else { off / error }
        };
        by(0).max(by(1))
    }

    /// Whether the two differ by less than 10 %, or by no more than chance.
    pub fn holds(&self) -> bool {
        self.off() <= SAME || self.deviations() <= CHANCE
    }
}

/// Compares both reference searches with their recorded figures, in cells whose instances are present.
pub fn agreement(instances: &[Instance], anchors: &[Anchor], seed: u64, draws: u32) -> Vec<Agreement> {
    let mut cells: BTreeMap<(Family, usize, usize), Vec<&Instance>> = BTreeMap::new();
    for instance in instances {
        cells.entry((instance.family, instance.n, instance.k)).or_default().push(instance);
    }
    let mut all = Vec::new();
    for ((family, n, k), members) in &cells {
        for anchor in anchors {
            let strategy = match anchor.algorithm.as_str() {
                "ddmin" => Strategy::Ddmin,
                "ddminPar-fig" => Strategy::DdminPar,
                _ => continue,
            };
            let same = anchor.family == family.to_string() && (anchor.n, anchor.k) == (*n, *k);
            if !same || members.len() < anchor.instances {
                continue;
            }
            all.push(compare(strategy, anchor, &members[..anchor.instances], seed, draws));
        }
    }
    all
}

fn compare(strategy: Strategy, anchor: &Anchor, members: &[&Instance], seed: u64, draws: u32) -> Agreement {
    let (durations, draws) = match anchor.durations.as_str() {
        "unit" => (Durations::Unit, 1),
        _ => (Durations::Lognormal(0), draws.max(2)),
    };
    let count = members.len().max(1) as f64;
    let mut means: Vec<[f64; 2]> = Vec::new();
    for draw in 0..u64::from(draws) {
        let plan = Plan { seed: seed.wrapping_add(draw.wrapping_mul(0x9e37_79b9)), ..Plan::default() };
        let mut mean = [0.0; 2];
        for instance in members {
            let run = run(strategy, instance, durations, anchor.slots, &plan);
            mean[0] += f64::from(run.finished) / count;
            mean[1] += run.makespan / count;
        }
        means.push(mean);
    }
    let number = means.len() as f64;
    let ours = [0, 1].map(|of| means.iter().map(|mean| mean[of]).sum::<f64>() / number);
    let spread = [0, 1].map(|of| {
        let squares: f64 = means.iter().map(|mean| (mean[of] - ours[of]).powi(2)).sum();
        (squares / (number - 1.0).max(1.0)).sqrt()
    });
    let cell = members.first().map_or("", |instance| instance.cell());
    let name = format!("{cell} p{} {}", anchor.slots, anchor.durations);
    Agreement { strategy, name, recorded: [anchor.trials, anchor.makespan], ours, spread, draws }
}
