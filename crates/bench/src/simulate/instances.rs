//! Instances of delta debugging with known causes: a seeded generator, and a parser.

use std::fmt;

use faultscope_model::DeltaSet;
use serde::{Deserialize, Serialize};

use crate::random::{Random, mix};

/// How the outcome of a set follows from the causes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// Fails if and only if the whole cause is present.
    Mono,
    /// As above, but a part of the cause makes a trial unresolved.
    Unres,
    /// One or two deltas mask the failure unless their antidote is present.
    Nonmono,
    /// Two to four disjoint causes.
    Multi,
    /// The shapes of the paper's F1 to F4.
    Paper,
    /// Held out: two to five neighbours.
    Neighbours,
    /// Held out: two to four deltas of one service.
    Service,
    /// Held out: all deltas of one service.
    #[serde(rename = "whole-service")]
    WholeService,
    /// Held out: two to four disjoint causes of different shapes.
    Several,
    /// Held out: services other than that of the cause only start with all of their deltas or none.
    #[serde(rename = "unresolved-neighbours")]
    UnresolvedNeighbours,
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Mono => "mono",
            Self::Unres => "unres",
            Self::Nonmono => "nonmono",
            Self::Multi => "multi",
            Self::Paper => "paper",
            Self::Neighbours => "neighbours",
            Self::Service => "service",
            Self::WholeService => "whole-service",
            Self::Several => "several",
            Self::UnresolvedNeighbours => "unresolved-neighbours",
        })
    }
}

/// An instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instance {
    /// Instances of one cell differ only in the number at the end.
    pub id: String,
    /// Number of deltas.
    pub n: usize,
    /// Size of a cause.
    pub k: usize,
    /// Its family.
    pub family: Family,
    /// The causes, one except in `multi` and `several`.
    pub causes: Vec<Vec<usize>>,
    /// Pairs of a masking delta and its antidote.
    pub blockers: Vec<(usize, usize)>,
    /// Deltas of which a trial must have all or none to be judged.
    pub groups: Vec<Vec<usize>>,
    /// The seed it was drawn from; durations may depend on it, too.
    pub seed: u64,
}

impl Instance {
    /// An instance without blockers and groups.
    pub fn new(id: String, family: Family, n: usize, causes: Vec<Vec<usize>>, seed: u64) -> Self {
        let k = causes.first().map_or(0, Vec::len);
        Self { id, n, k, family, causes, blockers: Vec::new(), groups: Vec::new(), seed }
    }

    /// The name without the number.
    pub fn cell(&self) -> &str {
        self.id.rsplit_once('-').map_or(&self.id, |(cell, _)| cell)
    }

    /// All deltas of all causes.
    pub fn critical(&self) -> DeltaSet {
        self.causes.iter().flatten().copied().collect()
    }
}

/// A line that is not an instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadError {
    /// From 1.
    pub line: usize,
    /// What is wrong.
    pub problem: String,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.problem)
    }
}

impl std::error::Error for ReadError {}

#[derive(Deserialize)]
struct Line {
    id: String,
    n: usize,
    k: usize,
    family: Family,
    failing: Vec<usize>,
    #[serde(default)]
    causes: Vec<Vec<usize>>,
    #[serde(default)]
    blockers: Vec<(usize, usize)>,
    #[serde(default)]
    groups: Vec<Vec<usize>>,
    #[serde(default)]
    seed: u64,
}

/// Parses instances, one JSON object per line.
///
/// ```
/// use faultscope_bench::simulate::read;
/// let line = r#"{"id": "mono-15-1-0", "n": 15, "k": 1, "family": "mono", "failing": [9], "seed": 1}"#;
/// assert_eq!(read(line).unwrap()[0].causes, [[9]]);
/// assert_eq!(read("{}").unwrap_err().line, 1);
/// ```
pub fn read(text: &str) -> Result<Vec<Instance>, ReadError> {
    let mut instances = Vec::new();
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let error = |problem: String| ReadError { line: index + 1, problem };
        let line: Line = serde_json::from_str(line).map_err(|e| error(e.to_string()))?;
        let causes = if line.causes.is_empty() { vec![line.failing] } else { line.causes };
        let beyond = causes.iter().chain(&line.groups).flatten().find(|&&delta| delta >= line.n);
        if let Some(beyond) = beyond {
            return Err(error(format!("delta {beyond} of {}", line.n)));
        }
        if causes.iter().any(Vec::is_empty) {
            return Err(error("a cause without deltas".into()));
        }
        instances.push(Instance {
            id: line.id,
            n: line.n,
            k: line.k,
            family: line.family,
            causes,
            blockers: line.blockers,
            groups: line.groups,
            seed: line.seed,
        });
    }
    Ok(instances)
}

/// Draws instances of all families: the cells of the research note, `count` of each.
pub fn generate(seed: u64, count: usize) -> Vec<Instance> {
    let mut instances = Vec::new();
    let mut random = Random::new(mix(seed));
    for family in [Family::Mono, Family::Unres, Family::Nonmono] {
        for n in [15, 20, 36, 43, 63, 128, 512, 1024] {
            for k in [1, 2, 4, 8].into_iter().filter(|&k| 4 * k <= n) {
                for i in 0..count {
                    instances.push(draw(&mut random, format!("{family}-{n}-{k}-{i}"), family, n, k));
                }
            }
        }
    }
    for n in [36, 43, 63, 128] {
        for (causes, k) in [(2, 1), (3, 1), (4, 1), (2, 2), (3, 2)] {
            for i in 0..count {
                let id = format!("multi-{n}-{causes}x{k}-{i}");
                let mut all: Vec<usize> = (0..n).collect();
                random.shuffle(&mut all);
                let causes = all.chunks(k).take(causes).map(<[usize]>::to_vec).collect();
                let seed = random.next();
                instances.push(Instance::new(id, Family::Multi, n, causes, seed));
            }
        }
    }
    for (name, n, k) in [("F1", 36, 1), ("F2", 63, 1), ("F3", 43, 2), ("F4", 43, 4)] {
        for i in 0..count {
            let cause = paper(&mut random, n, k);
            let seed = random.next();
            instances.push(Instance::new(format!("paper-{name}-{i}"), Family::Paper, n, vec![cause], seed));
        }
    }
    instances
}

fn draw(random: &mut Random, id: String, family: Family, n: usize, k: usize) -> Instance {
    let cause = random.choose(k, n);
    let mut blockers = Vec::new();
    if family == Family::Nonmono {
        let mut others: Vec<usize> = (0..n).filter(|delta| !cause.contains(delta)).collect();
        random.shuffle(&mut others);
        let pairs = 1 + random.below(2);
        blockers = others.chunks_exact(2).take(pairs).map(|pair| (pair[0], pair[1])).collect();
    }
    Instance { blockers, ..Instance::new(id, family, n, vec![cause], random.next()) }
}

/// One delta; two neighbours; or one among the first and three neighbours after them.
fn paper(random: &mut Random, n: usize, k: usize) -> Vec<usize> {
    if k < 4 {
        let first = random.below(n - k + 1);
        return (first..first + k).collect();
    }
    let single = random.below(n / 3);
    let first = n / 3 + random.below(n - n / 3 - 2);
    vec![single, first, first + 1, first + 2]
}
