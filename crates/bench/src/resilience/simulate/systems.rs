//! The message graphs of the paper's generated systems: parsed, written and drawn.

use std::collections::BTreeMap;

use faultscope_model::perturbation::Kind;
use serde::{Deserialize, Serialize};

use crate::random::{Random, mix};

/// The message graph of a system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct System {
    /// For each actor its successors, all with higher numbers.
    pub successors: Vec<Vec<usize>>,
    /// The kind of perturbation of its tests.
    pub kind: Kind,
}

/// A file without valid systems.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SystemError(pub String);

impl std::fmt::Display for SystemError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for SystemError {}

/// Actors per system.
const ACTORS: usize = 50;

/// The most updates of a system from a file.
const MAX_UPDATES: usize = 100_000;

#[derive(Serialize, Deserialize)]
struct Raw {
    kind: String,
    adj: BTreeMap<usize, Vec<usize>>,
}

impl System {
    /// Parses systems: a list of `{"kind": "dup" | "restart", "adj": {"0": [1, 2], ...}}`.
    pub fn read(text: &str) -> Result<Vec<Self>, SystemError> {
        let raw: Vec<Raw> = serde_json::from_str(text).map_err(|e| SystemError(e.to_string()))?;
        raw.into_iter().enumerate().map(|(number, raw)| Self::check(number, raw)).collect()
    }

    /// Writes systems in the format of [`Self::read`].
    pub fn write(systems: &[Self]) -> String {
        let raw = |system: &Self| Raw {
            kind: system.kind.to_string(),
            adj: system.successors.iter().cloned().enumerate().filter(|(_, to)| !to.is_empty()).collect(),
        };
        // Numbers and words can always be serialized.
        serde_json::to_string(&systems.iter().map(raw).collect::<Vec<_>>()).unwrap_or_default()
    }

    fn check(number: usize, raw: Raw) -> Result<Self, SystemError> {
        let error = |problem: String| SystemError(format!("system {number}: {problem}"));
        let kind = match raw.kind.as_str() {
            "dup" | "duplicate" => Kind::Duplicate,
            "restart" | "res" => Kind::Restart,
            other => return Err(error(format!("unknown kind `{other}`"))),
        };
        let mut successors = vec![Vec::new(); ACTORS];
        for (from, to) in raw.adj {
            let backward = to.iter().find(|&&to| to <= from || to >= ACTORS);
            if let Some(to) = backward {
                return Err(error(format!("{from} to {to} is not to a higher number below {ACTORS}")));
            }
            successors[from] = to;
        }
        let system = Self { successors, kind };
        let updates = system.ways().iter().skip(1).fold(0usize, |sum, &ways| sum.saturating_add(ways));
        if updates > MAX_UPDATES {
            return Err(error(format!("{updates} updates are more than {MAX_UPDATES}")));
        }
        Ok(system)
    }

    /// Draws a system with about this many updates: 80 to 140 pairs, a lower sender for every orphan (the
    /// paper's have 99 to 141 pairs in all), again until the size is within 10 %.
    pub fn generate(seed: u64, updates: usize, kind: Kind) -> Self {
        let mut random = Random::new(mix(seed));
        let mut best: Option<Self> = None;
        let off = |system: &Self| system.updates().abs_diff(updates);
        for _ in 0..20_000 {
            let mut successors = vec![Vec::new(); ACTORS];
            let wanted = 80 + random.below(61);
            let mut pairs = 0;
            while pairs < wanted {
                let (a, b) = (random.below(ACTORS), random.below(ACTORS));
                let (low, high) = (a.min(b), a.max(b));
                if low != high && !successors[low].contains(&high) {
                    successors[low].push(high);
                    pairs += 1;
                }
            }
            for actor in 1..ACTORS {
                if !successors.iter().any(|to| to.contains(&actor)) {
                    successors[random.below(actor)].push(actor);
                }
            }
            let system = Self { successors, kind };
            if best.as_ref().is_none_or(|best| off(&system) < off(best)) {
                best = Some(system);
            }
            if best.as_ref().is_some_and(|best| off(best) * 10 <= updates) {
                break;
            }
        }
        best.unwrap_or(Self { successors: vec![Vec::new(); ACTORS], kind })
    }

    /// Ten systems of the paper's sizes and kinds.
    pub fn ten(seed: u64) -> Vec<Self> {
        use Kind::{Duplicate as D, Restart as R};
        let sizes = [129, 204, 308, 189, 513, 313, 353, 427, 885, 1004];
        let kinds = [D, D, D, R, D, R, R, R, D, D];
        (0u64..)
            .zip(sizes.into_iter().zip(kinds))
            .map(|(i, (u, k))| Self::generate(seed ^ mix(i), u, k))
            .collect()
    }

    /// For each actor, the number of paths from actor 0: its final counter.
    pub fn ways(&self) -> Vec<usize> {
        let mut ways = vec![0usize; self.successors.len()];
        ways[0] = 1;
        for from in 0..self.successors.len() {
            for &to in &self.successors[from] {
                ways[to] = ways[to].saturating_add(ways[from]);
            }
        }
        ways
    }

    /// The number of updates that actors send each other.
    pub fn updates(&self) -> usize {
        self.ways().iter().skip(1).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_as_wanted_and_nonsense_is_refused() {
        let sizes = [129, 204, 308, 189, 513, 313, 353, 427, 885, 1004];
        for (system, wanted) in System::ten(1).iter().zip(sizes) {
            assert!(system.updates().abs_diff(wanted) * 10 <= wanted, "{} of {wanted}", system.updates());
            assert!(system.ways().iter().all(|&ways| ways > 0));
        }
        let ten = System::ten(1);
        assert_eq!(System::read(&System::write(&ten)), Ok(ten));
        assert!(System::read(r#"[{"kind":"dup","adj":{"3":[2]}}]"#).is_err());
        assert!(System::read(r#"[{"kind":"melt","adj":{}}]"#).is_err());
        assert!(System::read("{").is_err());
    }
}
