//! What trials have shown, told in terms of the deltas that may still belong to the cause.
//!
//! A trial of `T` is evidence about the deltas it left out: a failure says that none of them is
//! critical, a pass that at least one is (group testing, research note, headline 3).

use faultscope_model::DeltaSet;

use crate::ledger::Verdict;

/// One bit for each piece of evidence.
pub(super) type Mask = [u64; 4];

/// The most pieces of evidence that count at a time.
pub(super) const MOST: usize = 256;

/// Evidence about a list of candidates, as bit masks.
#[derive(Debug, Default)]
pub(super) struct Evidence {
    /// For each candidate, the trials that left it out.
    pub(super) left_out: Vec<Mask>,
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
    /// How many words of the masks are in use.
    pub(super) words: usize,
}

impl Evidence {
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
        let mut evidence = Self { left_out: vec![Mask::default(); candidates.len()], ..Self::default() };
        for (place, (pool, verdict)) in kept.into_iter().enumerate() {
            let (word, bit) = (place / 64, 1u64 << (place % 64));
            match verdict {
                Verdict::Pass => evidence.passed[word] |= bit,
                Verdict::Fail => evidence.failed[word] |= bit,
                Verdict::Unresolved => evidence.unresolved[word] |= bit,
            }
            for &candidate in &pool {
                evidence.left_out[candidate as usize][word] |= bit;
            }
            evidence.pools.push(pool);
        }
        evidence.words = evidence.pools.len().div_ceil(64);
        evidence.n_unresolved = evidence.unresolved.iter().map(|word| word.count_ones()).sum();
        evidence
    }

    /// Whether a candidate is in all these pools.
    pub(super) fn has_all(&self, item: u32, needed: &Mask) -> bool {
        let mask = &self.left_out[item as usize];
        (0..self.words).all(|word| needed[word] & !mask[word] == 0)
    }

    /// The candidates in all these pools.
    pub(super) fn in_all(&self, needed: &Mask) -> Vec<u32> {
        let pools = (0..self.pools.len()).filter(|&pool| needed[pool / 64] >> (pool % 64) & 1 == 1);
        match pools.min_by_key(|&pool| self.pools[pool].len()) {
            Some(least) => {
                self.pools[least].iter().copied().filter(|&item| self.has_all(item, needed)).collect()
            }
            None => (0..self.left_out.len() as u32).collect(),
        }
    }

    /// Candidates that a failing trial left out.
    pub(super) fn is_cleared(&self, candidate: usize) -> bool {
        meets(&self.left_out[candidate], &self.failed)
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

pub(super) fn meets(a: &Mask, b: &Mask) -> bool {
    a.iter().zip(b).any(|(a, b)| a & b != 0)
}
