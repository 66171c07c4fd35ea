//! Choosing by seed.

use faultscope_model::digest::Digest;

use crate::mutant::Mutant;

/// Chooses at most `count` mutants, in their old order. The choice depends on the seed and on the ids only, so a
/// mutant that comes or goes elsewhere changes little of it.
pub fn choose_by_seed(mutants: Vec<Mutant>, count: usize, seed: u64) -> Vec<Mutant> {
    if mutants.len() <= count {
        return mutants;
    }
    let rank = |mutant: &Mutant| Digest::hash_json(&(seed, mutant.id.as_str()));
    let mut ranks: Vec<Digest> = mutants.iter().map(rank).collect();
    ranks.sort_unstable();
    let Some(limit) = count.checked_sub(1).and_then(|last| ranks.get(last).copied()) else {
        return Vec::new();
    };
    mutants.into_iter().filter(|mutant| rank(mutant) <= limit).collect()
}
