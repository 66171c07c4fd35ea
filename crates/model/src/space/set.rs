//! Sets of deltas.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A subset of a space's deltas, as a bit vector.
///
/// ```
/// use faultscope_model::space::DeltaSet;
/// let set: DeltaSet = [1, 5, 64].into_iter().collect();
/// assert!(set.contains(64) && !set.contains(2));
/// assert_eq!(set.iter().collect::<Vec<_>>(), [1, 5, 64]);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct DeltaSet {
    // Without zero words at the end, so that equal sets are equal values.
    words: Vec<u64>,
}

impl DeltaSet {
    /// The empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether the delta is in the set.
    pub fn contains(&self, delta: usize) -> bool {
        self.words.get(delta / 64).is_some_and(|word| word >> (delta % 64) & 1 == 1)
    }

    /// Adds a delta and returns whether it was new.
    pub fn insert(&mut self, delta: usize) -> bool {
        let word = delta / 64;
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        let before = self.words[word];
        self.words[word] |= 1 << (delta % 64);
        before != self.words[word]
    }

    /// Removes a delta and returns whether it was present.
    pub fn remove(&mut self, delta: usize) -> bool {
        let was = self.contains(delta);
        if was {
            self.words[delta / 64] &= !(1 << (delta % 64));
            self.trim();
        }
        was
    }

    /// The number of deltas in the set.
    pub fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// The deltas in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.words.iter().enumerate().flat_map(|(index, &word)| {
            std::iter::successors((word != 0).then_some(word), |w| Some(w & (w - 1)).filter(|&w| w != 0))
                .map(move |w| index * 64 + w.trailing_zeros() as usize)
        })
    }

    /// Whether every delta of this set is in the other.
    pub fn is_subset(&self, other: &Self) -> bool {
        self.words.iter().enumerate().all(|(i, word)| word & !other.words.get(i).copied().unwrap_or(0) == 0)
    }

    /// Deltas in either set.
    pub fn union(&self, other: &Self) -> Self {
        self.zip(other, |a, b| a | b)
    }

    /// Deltas in both sets.
    pub fn intersection(&self, other: &Self) -> Self {
        self.zip(other, |a, b| a & b)
    }

    /// Deltas of this set that are not in the other.
    pub fn difference(&self, other: &Self) -> Self {
        self.zip(other, |a, b| a & !b)
    }

    fn zip(&self, other: &Self, combine: impl Fn(u64, u64) -> u64) -> Self {
        let count = self.words.len().max(other.words.len());
        let word = |set: &Self, i: usize| set.words.get(i).copied().unwrap_or(0);
        let mut result = Self { words: (0..count).map(|i| combine(word(self, i), word(other, i))).collect() };
        result.trim();
        result
    }

    fn trim(&mut self) {
        while self.words.last() == Some(&0) {
            self.words.pop();
        }
    }
}

impl FromIterator<usize> for DeltaSet {
    fn from_iter<I: IntoIterator<Item = usize>>(deltas: I) -> Self {
        let mut set = Self::new();
        for delta in deltas {
            set.insert(delta);
        }
        set
    }
}

impl fmt::Display for DeltaSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

impl Serialize for DeltaSet {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

impl<'de> Deserialize<'de> for DeltaSet {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // A larger number can only be meant to exhaust memory: the vector has a bit for every smaller one.
        const MOST: u32 = 1 << 20;
        let deltas = Vec::<u32>::deserialize(deserializer)?;
        if deltas.iter().any(|&d| d >= MOST) {
            return Err(serde::de::Error::custom("a delta's number is too large"));
        }
        Ok(deltas.into_iter().map(|d| d as usize).collect())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn behaves_like_a_set(a in proptest::collection::btree_set(0usize..200, 0..40),
                              b in proptest::collection::btree_set(0usize..200, 0..40)) {
            let (x, y): (DeltaSet, DeltaSet) = (a.iter().copied().collect(), b.iter().copied().collect());
            let collect = |set: &DeltaSet| set.iter().collect::<BTreeSet<_>>();
            prop_assert_eq!(collect(&x.union(&y)), a.union(&b).copied().collect::<BTreeSet<_>>());
            prop_assert_eq!(collect(&x.intersection(&y)), a.intersection(&b).copied().collect::<BTreeSet<_>>());
            prop_assert_eq!(collect(&x.difference(&y)), a.difference(&b).copied().collect::<BTreeSet<_>>());
            prop_assert_eq!(x.is_subset(&y), a.is_subset(&b));
            prop_assert_eq!(x.len(), a.len());
            let text = serde_json::to_string(&x).unwrap();
            prop_assert_eq!(serde_json::from_str::<DeltaSet>(&text).unwrap(), x);
        }

        #[test]
        fn removing_undoes_inserting(a in proptest::collection::btree_set(0usize..200, 0..40), extra in 0usize..300) {
            let before: DeltaSet = a.iter().copied().collect();
            let mut set = before.clone();
            if set.insert(extra) {
                set.remove(extra);
            }
            prop_assert_eq!(set, before);
        }
    }
}
