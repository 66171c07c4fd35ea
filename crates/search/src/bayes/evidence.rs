//! What trials have shown, told in terms of the deltas that may still belong to the cause.
//!
//! A trial of `T` is evidence about the deltas it left out: a failure says that none of them is
//! critical, a pass that at least one is (group testing, research note, headline 3).

use std::hash::{Hash, Hasher};

use faultscope_model::DeltaSet;

use crate::ledger::Verdict;

/// One bit for each piece of evidence.
pub(super) type Mask = [u64; 4];

/// Pools that a delta must be in. Most words of it are zero, so that a sum tells it well enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Needed(pub(super) Mask);

impl Hash for Needed {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let sum = self.0.iter().fold(0u64, |sum, word| sum.rotate_left(17).wrapping_add(*word));
        state.write_u64(sum);
    }
}

/// The most pieces of evidence that count at a time.
pub(super) const MOST: usize = 256;

/// Evidence about a list of candidates, as bit masks.
#[derive(Debug, Default)]
pub(super) struct Evidence {
    /// For each word of the masks and each candidate, the trials that left it out: one word is mostly all,
    /// and then lies close together.
    pub(super) left_out: Vec<Vec<u64>>,
    /// How many candidates there are.
    candidates: usize,
    /// The trials that passed.
    pub(super) passed: Mask,
    /// The trials that failed.
    pub(super) failed: Mask,
    /// The trials that were unresolved.
    pub(super) unresolved: Mask,
    /// For each trial, the candidates it left out.
    pub(super) pools: Vec<Vec<u32>>,
    /// How many trials were unresolved.
    pub(super) n_unresolved: u32,
}

/// The trials that left out deltas of a cause.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hits {
    /// Those that left out one at least.
    pub(super) any: Mask,
    /// Those that left out all of them.
    pub(super) all: Mask,
}

impl Evidence {
    /// The trials that left out some of these candidates.
    pub(super) fn hits(&self, items: impl Iterator<Item = u32> + Clone) -> Hits {
        let mut hits = Hits { any: Mask::default(), all: [u64::MAX; 4] };
        for (word, left_out) in self.left_out.iter().enumerate() {
            for item in items.clone() {
                let left_out = left_out[item as usize];
                hits.any[word] |= left_out;
                hits.all[word] &= left_out;
            }
        }
        hits
    }

    /// The same with one candidate more.
    pub(super) fn hits_with(&self, mut hits: Hits, item: u32) -> Hits {
        for (word, left_out) in self.left_out.iter().enumerate() {
            hits.any[word] |= left_out[item as usize];
            hits.all[word] &= left_out[item as usize];
        }
        hits
    }

    /// Encodes trials for these candidates. Without repetitions, what follows from other passes is
    /// dropped.
    pub(super) fn encode(candidates: &[usize], trials: &[(DeltaSet, Verdict)], repeated: bool) -> Self {
        let mut kept: Vec<(Vec<u32>, Verdict)> = Vec::new();
        for (set, verdict) in trials {
            let pool: Vec<u32> = (0u32..)
                .zip(candidates)
                .filter(|&(_, &delta)| !set.contains(delta))
                .map(|(place, _)| place)
                .collect();
            // A set with every candidate says nothing, unless its passing can be chance.
            if pool.is_empty() {
                continue;
            }
            kept.push((pool, *verdict));
        }
        if !repeated {
            kept = undominated(kept, candidates.len());
        }
        if kept.len() > MOST {
            // Large pools say least.
            kept.sort_by_key(|(pool, _)| pool.len());
            kept.truncate(MOST);
        }
        let left_out = vec![vec![0; candidates.len()]; kept.len().div_ceil(64)];
        let mut evidence = Self { left_out, candidates: candidates.len(), ..Self::default() };
        for (place, (pool, verdict)) in kept.into_iter().enumerate() {
            let (word, bit) = (place / 64, 1u64 << (place % 64));
            match verdict {
                Verdict::Pass => evidence.passed[word] |= bit,
                Verdict::Fail => evidence.failed[word] |= bit,
                Verdict::Unresolved => evidence.unresolved[word] |= bit,
            }
            for &candidate in &pool {
                evidence.left_out[word][candidate as usize] |= bit;
            }
            evidence.pools.push(pool);
        }
        evidence.n_unresolved = evidence.unresolved.iter().map(|word| word.count_ones()).sum();
        evidence
    }

    /// Whether a candidate is in all these pools.
    pub(super) fn has_all(&self, item: u32, needed: &Mask) -> bool {
        self.left_out.iter().zip(needed).all(|(left_out, needed)| needed & !left_out[item as usize] == 0)
    }

    /// The candidates in all these pools.
    pub(super) fn in_all(&self, needed: &Mask) -> Vec<u32> {
        let pools = (0..self.pools.len()).filter(|&pool| needed[pool / 64] >> (pool % 64) & 1 == 1);
        match pools.min_by_key(|&pool| self.pools[pool].len()) {
            Some(least) => {
                self.pools[least].iter().copied().filter(|&item| self.has_all(item, needed)).collect()
            }
            None => (0..self.candidates as u32).collect(),
        }
    }

    /// Candidates that a failing trial left out.
    pub(super) fn is_cleared(&self, candidate: usize) -> bool {
        self.left_out.iter().zip(&self.failed).any(|(left_out, failed)| left_out[candidate] & failed != 0)
    }
}

/// Drops passes whose pool holds the whole pool of another pass, and equal evidence.
fn undominated(kept: Vec<(Vec<u32>, Verdict)>, count: usize) -> Vec<(Vec<u32>, Verdict)> {
    let words = count.div_ceil(64);
    let bits: Vec<Vec<u64>> = kept
        .iter()
        .map(|(pool, _)| {
            let mut bits = vec![0u64; words];
            for &place in pool {
                bits[place as usize / 64] |= 1 << (place % 64);
            }
            bits
        })
        .collect();
    let within = |a: usize, b: usize| {
        kept[a].0.len() <= kept[b].0.len() && bits[a].iter().zip(&bits[b]).all(|(a, b)| a & !b == 0)
    };
    let stays = |b: usize| {
        let implied = |a: usize| {
            a != b && kept[a].1 == kept[b].1 && within(a, b) && (kept[a].0.len() < kept[b].0.len() || a < b)
        };
        // What a failing trial says grows with its pool.
        let implied_failure = |a: usize| {
            a != b && kept[a].1 == kept[b].1 && within(b, a) && (kept[a].0.len() > kept[b].0.len() || a < b)
        };
        match kept[b].1 {
            Verdict::Pass => !(0..kept.len()).any(implied),
            Verdict::Fail => !(0..kept.len()).any(implied_failure),
            Verdict::Unresolved => {
                !(0..b).any(|a| kept[a].1 == Verdict::Unresolved && kept[a].0 == kept[b].0)
            }
        }
    };
    let keep: Vec<bool> = (0..kept.len()).map(stays).collect();
    kept.into_iter().zip(keep).filter(|(_, keep)| *keep).map(|(item, _)| item).collect()
}
