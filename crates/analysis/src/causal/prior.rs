//! What is known about causes before any data is seen.
//!
//! A *path* is an order: the cause comes before the effect, and whether there is an edge is left to the data. *No path*
//! is an order too, the other way round. Whoever means one edge only says *required* or *forbidden edge*.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::error::CausalError;

/// One piece of prior knowledge.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Prior {
    /// The first comes before the second; the edge between them may be pruned.
    Path {
        /// The cause.
        from: String,
        /// The effect.
        to: String,
    },
    /// The first never influences the second, so the second comes first, unless the opposite is excluded as well.
    NoPath {
        /// What is no cause.
        from: String,
        /// What it does not influence.
        to: String,
    },
    /// This edge exists, whatever the data shows.
    RequiredEdge {
        /// The cause.
        from: String,
        /// The effect.
        to: String,
    },
    /// This edge does not exist; nothing is said about the order or about longer paths.
    ForbiddenEdge {
        /// What is no direct cause.
        from: String,
        /// What it does not influence directly.
        to: String,
    },
    /// Nothing influences this column: it was set from outside.
    Exogenous {
        /// The column.
        column: String,
    },
}

impl fmt::Display for Prior {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path { from, to } => write!(f, "path {from} -> {to}"),
            Self::NoPath { from, to } => write!(f, "no path {from} -> {to}"),
            Self::RequiredEdge { from, to } => write!(f, "required edge {from} -> {to}"),
            Self::ForbiddenEdge { from, to } => write!(f, "forbidden edge {from} -> {to}"),
            Self::Exogenous { column } => write!(f, "exogenous {column}"),
        }
    }
}

impl Prior {
    fn columns(&self) -> [&str; 2] {
        match self {
            Self::Path { from, to }
            | Self::NoPath { from, to }
            | Self::RequiredEdge { from, to }
            | Self::ForbiddenEdge { from, to } => [from, to],
            Self::Exogenous { column } => [column, column],
        }
    }
}

/// One step of an order that prior knowledge demands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrderStep {
    /// The column that comes first.
    pub before: String,
    /// The column that comes later.
    pub after: String,
    /// What demands it.
    pub because: Prior,
}

impl fmt::Display for OrderStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} before {} ({})", self.before, self.after, self.because)
    }
}

/// A set of pairs of columns.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Relation {
    size: usize,
    cells: Vec<bool>,
}

impl Relation {
    pub(crate) fn empty(size: usize) -> Self {
        Self { size, cells: vec![false; size * size] }
    }

    pub(crate) fn contains(&self, from: usize, to: usize) -> bool {
        self.cells[from * self.size + to]
    }

    pub(crate) fn insert(&mut self, from: usize, to: usize) {
        self.cells[from * self.size + to] = true;
    }

    /// Adds every pair that follows from two others (Warshall).
    fn close(&mut self) {
        for middle in 0..self.size {
            for from in 0..self.size {
                if self.contains(from, middle) {
                    (0..self.size)
                        .filter(|&to| self.cells[middle * self.size + to])
                        .collect::<Vec<_>>()
                        .into_iter()
                        .for_each(|to| self.insert(from, to));
                }
            }
        }
    }
}

/// Prior knowledge about numbered columns, free of contradictions.
#[derive(Debug, Clone)]
pub(crate) struct Constraints {
    /// Which column comes before which, as stated.
    pub(crate) orders: Vec<(usize, usize)>,
    /// The same with everything that follows.
    pub(crate) before: Relation,
    /// Edges that must not exist.
    pub(crate) excluded: Relation,
    /// Edges that must exist.
    pub(crate) required: Relation,
}

impl Constraints {
    /// Resolves prior knowledge about these columns. What names one of the `dropped` columns is skipped.
    pub(crate) fn resolve(
        priors: &[Prior],
        names: &[String],
        dropped: &[String],
    ) -> Result<Self, CausalError> {
        let size = names.len();
        let place = |name: &str| names.iter().position(|known| known == name);
        let mut facts: Vec<(usize, usize, &Prior)> = Vec::new();
        for prior in priors {
            let columns = prior.columns();
            for column in columns {
                if place(column).is_none() && !dropped.iter().any(|name| name == column) {
                    return Err(CausalError::UnknownColumn(column.to_owned()));
                }
            }
            if let [Some(from), Some(to)] = columns.map(place) {
                if from == to && !matches!(prior, Prior::Exogenous { .. }) {
                    return Err(CausalError::Contradiction(prior.clone(), prior.clone()));
                }
                facts.push((from, to, prior));
            }
        }
        let mut no_path = Relation::empty(size);
        let mut excluded = Relation::empty(size);
        let mut required = Relation::empty(size);
        for &(from, to, prior) in &facts {
            match prior {
                Prior::NoPath { .. } => no_path.insert(from, to),
                Prior::Exogenous { .. } => {
                    (0..size).filter(|&other| other != to).for_each(|other| no_path.insert(other, to));
                }
                Prior::ForbiddenEdge { .. } => excluded.insert(from, to),
                Prior::RequiredEdge { .. } => required.insert(from, to),
                Prior::Path { .. } => {}
            }
        }
        let mut steps: Vec<(usize, usize, &Prior)> = Vec::new();
        for &(from, to, prior) in &facts {
            // Two columns without a path either way are in no order.
            let mut order = |from: usize, to: usize| {
                if !no_path.contains(to, from) {
                    steps.push((to, from, prior));
                }
            };
            match prior {
                Prior::NoPath { .. } => order(from, to),
                Prior::Exogenous { .. } => {
                    (0..size).filter(|&other| other != to).for_each(|other| order(other, to))
                }
                Prior::Path { .. } | Prior::RequiredEdge { .. } => steps.push((from, to, prior)),
                Prior::ForbiddenEdge { .. } => {}
            }
        }
        for from in 0..size {
            for to in 0..size {
                if no_path.contains(from, to) {
                    excluded.insert(from, to);
                }
            }
        }
        refuse_contradictions(&facts, &excluded)?;
        if let Some(cycle) = find_cycle(size, steps.iter().map(|&(before, after, _)| (before, after))) {
            let step = |at: usize| {
                let (before, after, because) = steps[at];
                OrderStep {
                    before: names[before].clone(),
                    after: names[after].clone(),
                    because: because.clone(),
                }
            };
            return Err(CausalError::CyclicPrior(cycle.into_iter().map(step).collect()));
        }
        let orders: Vec<(usize, usize)> = steps.iter().map(|&(before, after, _)| (before, after)).collect();
        let mut before = Relation::empty(size);
        orders.iter().for_each(|&(first, second)| before.insert(first, second));
        before.close();
        Ok(Self { orders, before, excluded, required })
    }

    /// Whether an edge is allowed by order and exclusion.
    pub(crate) fn allows(&self, from: usize, to: usize) -> bool {
        from != to && !self.excluded.contains(from, to) && !self.before.contains(to, from)
    }
}

/// A required edge that another fact excludes.
fn refuse_contradictions(facts: &[(usize, usize, &Prior)], excluded: &Relation) -> Result<(), CausalError> {
    let excludes = |&(first, second, prior): &(usize, usize, &Prior), from: usize, to: usize| match prior {
        Prior::NoPath { .. } | Prior::ForbiddenEdge { .. } => (first, second) == (from, to),
        Prior::Exogenous { .. } => second == to,
        Prior::Path { .. } | Prior::RequiredEdge { .. } => false,
    };
    for &(from, to, prior) in facts {
        let is_required = matches!(prior, Prior::RequiredEdge { .. });
        if is_required && excluded.contains(from, to) {
            let other =
                facts.iter().find(|fact| excludes(fact, from, to)).map_or(prior, |&(_, _, other)| other);
            return Err(CausalError::Contradiction(prior.clone(), other.clone()));
        }
    }
    Ok(())
}

/// The places of steps that form a shortest cycle; none if there is no cycle.
pub(crate) fn find_cycle(size: usize, steps: impl Iterator<Item = (usize, usize)>) -> Option<Vec<usize>> {
    let mut leaving: Vec<Vec<(usize, usize)>> = vec![Vec::new(); size];
    for (at, (before, after)) in steps.enumerate() {
        leaving[before].push((after, at));
    }
    let mut shortest: Option<Vec<usize>> = None;
    // A search in breadth from every column that is part of a cycle; those that are not are peeled off first.
    for start in columns_on_cycles(&leaving) {
        let mut came: Vec<Option<(usize, usize)>> = vec![None; size];
        let mut queue = std::collections::VecDeque::from([start]);
        'search: while let Some(here) = queue.pop_front() {
            for &(next, at) in &leaving[here] {
                if next == start {
                    let mut cycle = vec![at];
                    let mut back = here;
                    while let Some((previous, step)) = came[back] {
                        cycle.push(step);
                        back = previous;
                    }
                    cycle.reverse();
                    if shortest.as_ref().is_none_or(|known| cycle.len() < known.len()) {
                        shortest = Some(cycle);
                    }
                    break 'search;
                }
                if came[next].is_none() {
                    came[next] = Some((here, at));
                    queue.push_back(next);
                }
            }
        }
    }
    shortest
}

/// Columns that remain when those without predecessors are taken away again and again.
fn columns_on_cycles(leaving: &[Vec<(usize, usize)>]) -> Vec<usize> {
    let mut entering = vec![0usize; leaving.len()];
    leaving.iter().flatten().for_each(|&(next, _)| entering[next] += 1);
    let mut free: Vec<usize> = (0..leaving.len()).filter(|&at| entering[at] == 0).collect();
    let mut remaining = vec![true; leaving.len()];
    while let Some(at) = free.pop() {
        remaining[at] = false;
        for &(next, _) in &leaving[at] {
            entering[next] -= 1;
            if entering[next] == 0 {
                free.push(next);
            }
        }
    }
    (0..leaving.len()).filter(|&at| remaining[at]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Vec<String> {
        ["a", "b", "c", "d"].map(str::to_owned).to_vec()
    }

    fn path(from: &str, to: &str) -> Prior {
        Prior::Path { from: from.into(), to: to.into() }
    }

    fn no_path(from: &str, to: &str) -> Prior {
        Prior::NoPath { from: from.into(), to: to.into() }
    }

    fn required(from: &str, to: &str) -> Prior {
        Prior::RequiredEdge { from: from.into(), to: to.into() }
    }

    fn exogenous(column: &str) -> Prior {
        Prior::Exogenous { column: column.into() }
    }

    fn resolve(priors: &[Prior]) -> Result<Constraints, CausalError> {
        Constraints::resolve(priors, &names(), &[])
    }

    #[test]
    fn no_path_is_the_opposite_order_and_excludes_the_edge() {
        let constraints = resolve(&[no_path("a", "b")]).unwrap();
        assert_eq!(constraints.orders, [(1, 0)]);
        assert!(!constraints.allows(0, 1) && constraints.allows(1, 0));
    }

    #[test]
    fn no_path_either_way_is_no_order() {
        let constraints = resolve(&[no_path("a", "b"), no_path("b", "a")]).unwrap();
        assert!(constraints.orders.is_empty());
        assert!(!constraints.allows(0, 1) && !constraints.allows(1, 0));
    }

    #[test]
    fn a_forbidden_edge_says_nothing_about_the_order() {
        let constraints = resolve(&[Prior::ForbiddenEdge { from: "a".into(), to: "b".into() }]).unwrap();
        assert!(constraints.orders.is_empty() && !constraints.allows(0, 1) && constraints.allows(1, 0));
    }

    #[test]
    fn exogenous_columns_come_before_all_others_and_in_no_order_among_themselves() {
        let constraints = resolve(&[exogenous("a"), exogenous("b")]).unwrap();
        assert_eq!(constraints.orders, [(0, 2), (0, 3), (1, 2), (1, 3)]);
        assert!(!constraints.allows(0, 1) && !constraints.allows(2, 0) && constraints.allows(0, 2));
    }

    #[test]
    fn the_shortest_cycle_is_named_with_its_reasons() {
        let error =
            resolve(&[path("a", "b"), path("b", "c"), path("c", "d"), required("d", "a"), path("c", "a")]);
        assert_eq!(
            error.unwrap_err().to_string(),
            "prior knowledge is cyclic: a before b (path a -> b), b before c (path b -> c), c before a (path c -> a)"
        );
        let error = resolve(&[path("c", "a"), exogenous("a")]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "prior knowledge is cyclic: a before c (exogenous a), c before a (path c -> a)"
        );
    }

    #[test]
    fn required_edges_that_are_excluded_contradict() {
        for other in
            [no_path("a", "b"), Prior::ForbiddenEdge { from: "a".into(), to: "b".into() }, exogenous("b")]
        {
            let error = resolve(&[required("a", "b"), other.clone()]).unwrap_err();
            assert_eq!(error, CausalError::Contradiction(required("a", "b"), other));
        }
    }

    #[test]
    fn unknown_columns_are_refused_and_dropped_ones_skipped() {
        assert_eq!(resolve(&[path("a", "x")]).unwrap_err(), CausalError::UnknownColumn("x".into()));
        let skipped = Constraints::resolve(&[path("a", "x")], &names(), &["x".to_owned()]).unwrap();
        assert!(skipped.orders.is_empty());
    }
}
