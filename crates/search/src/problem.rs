//! What a search knows about its deltas before it starts.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use faultscope_model::{DeltaSet, Space};

type Close = dyn Fn(&DeltaSet) -> Option<DeltaSet> + Send + Sync;

/// The deltas to search, all of which together fail and none of which pass.
///
/// ```
/// use faultscope_search::Problem;
/// let problem = Problem::new(3);
/// assert_eq!(problem.full().len(), 3);
/// ```
#[derive(Clone)]
pub struct Problem {
    /// How many deltas there are.
    pub size: usize,
    /// The place of each by suspicion, from 1 (section 4.4).
    pub ranks: Vec<u32>,
    /// What applying each is expected to take.
    pub costs: Vec<Duration>,
    /// The delta between one node and several, which is tried first (section 4.4).
    pub node: Option<usize>,
    /// Whether the ranks say anything; otherwise every delta is as likely as any other.
    pub ranked: bool,
    /// Deltas that are likely to make sense only together: no trial that may as well keep them together
    /// takes them apart.
    pub kin: Vec<DeltaSet>,
    /// What the search starts from.
    whole: DeltaSet,
    close: Arc<Close>,
}

impl Problem {
    /// So many independent deltas, ranked in their order, all of the same cost.
    pub fn new(size: usize) -> Self {
        Self {
            size,
            ranks: (1..).take(size).collect(),
            costs: vec![Duration::ZERO; size],
            node: None,
            ranked: false,
            kin: Vec::new(),
            whole: (0..size).collect(),
            close: Arc::new(|set| Some(set.clone())),
        }
    }

    /// The deltas of a space with its ranks, costs and constraints.
    pub fn from_space(space: &Arc<Space>) -> Self {
        use faultscope_model::space::Dimension;
        let closing = Arc::clone(space);
        Self {
            size: space.deltas.len(),
            ranks: space.deltas.iter().map(|delta| delta.rank).collect(),
            costs: space.deltas.iter().map(|delta| delta.cost).collect(),
            node: space.deltas.iter().position(|delta| delta.dimension == Dimension::Node),
            ranked: true,
            kin: kin(space),
            whole: space.full(),
            close: Arc::new(move |set| closing.close(set).ok()),
        }
    }

    /// The same with this closure: the set that is really deployed, none when nothing can be.
    pub fn with_closure(
        mut self,
        close: impl Fn(&DeltaSet) -> Option<DeltaSet> + Send + Sync + 'static,
    ) -> Self {
        self.close = Arc::new(close);
        self
    }

    /// The same with these ranks.
    pub fn with_ranks(mut self, ranks: Vec<u32>) -> Self {
        self.ranks = ranks;
        self.ranked = true;
        self
    }

    /// The set that is really deployed when this one is asked for; none when it is invalid.
    pub fn close(&self, set: &DeltaSet) -> Option<DeltaSet> {
        (self.close)(set)
    }

    /// A part of `whole`, changed so that it holds all or none of the deltas that belong together.
    pub(crate) fn keep_kin(&self, mut set: DeltaSet, whole: &DeltaSet) -> DeltaSet {
        for kin in &self.kin {
            let present = kin.intersection(whole);
            let kept = present.intersection(&set);
            if !kept.is_empty() && kept.len() < present.len() {
                let first = present.iter().next().is_some_and(|first| set.contains(first));
                set = if first { set.union(&present) } else { set.difference(&present) };
            }
        }
        set
    }

    /// The sets that show whether all of a set is needed: what is deployed when one delta is left out, or, where
    /// others bring it back, when it is left out together with those.
    pub fn neighbours(&self, set: &DeltaSet) -> Vec<DeltaSet> {
        let mut neighbours = Vec::new();
        let mut tied = Vec::new();
        for delta in set.iter() {
            match self.one_less(set, delta) {
                Some(less) => neighbours.push(less),
                None => tied.push(delta),
            }
        }
        if !tied.is_empty() {
            let alone = |delta| self.close(&std::iter::once(delta).collect());
            let closed: Vec<(usize, Option<DeltaSet>)> =
                set.iter().map(|delta| (delta, alone(delta))).collect();
            for delta in tied {
                let brings = |(_, closed): &&(usize, Option<DeltaSet>)| {
                    closed.as_ref().is_none_or(|closed| !closed.contains(delta))
                };
                let rest: DeltaSet = closed.iter().filter(brings).map(|(other, _)| *other).collect();
                let Some(less) = self.close(&rest).filter(|less| less.is_subset(set) && less != set) else {
                    continue;
                };
                // Where one of those can be left out alone, that says more.
                if !less.contains(delta) && !neighbours.iter().any(|other| less.is_subset(other)) {
                    neighbours.push(less);
                }
            }
        }
        neighbours
    }

    /// What is deployed when a delta is left out; none when that is impossible or changes nothing.
    pub fn one_less(&self, set: &DeltaSet, delta: usize) -> Option<DeltaSet> {
        let mut less = set.clone();
        less.remove(delta);
        self.close(&less).filter(|closed| closed != set)
    }

    /// The deltas that all together fail. Others come in only where closing a set brings them along.
    pub fn full(&self) -> DeltaSet {
        self.whole.clone()
    }

    /// The sum of the ranks of a set.
    pub(crate) fn rank_of(&self, set: &DeltaSet) -> u64 {
        set.iter().map(|delta| u64::from(self.ranks.get(delta).copied().unwrap_or(0))).sum()
    }

    /// The sum of the costs of a set.
    pub(crate) fn cost_of(&self, set: &DeltaSet) -> Duration {
        set.iter().filter_map(|delta| self.costs.get(delta)).sum()
    }
}

/// The same variable with the same new value in several services: who changes one changes all.
fn kin(space: &Space) -> Vec<DeltaSet> {
    use faultscope_model::space::Dimension;
    let mut groups: BTreeMap<(&str, &str), DeltaSet> = BTreeMap::new();
    for (place, delta) in space.deltas.iter().enumerate() {
        if delta.dimension == Dimension::Configuration
            && let Some((_, key)) = delta.name.split_once(".env.")
        {
            groups.entry((key, delta.to.as_str())).or_default().insert(place);
        }
    }
    groups.into_values().filter(|group| group.len() > 1).collect()
}

impl fmt::Debug for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Problem").field("size", &self.size).field("node", &self.node).finish_non_exhaustive()
    }
}
