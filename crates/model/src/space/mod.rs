//! The space of a search: every delta between the simplest and the failing circumstance.
//!
//! A circumstance is a bit vector (Zhou et al. 2019, section 4.1): one bit for the nodes, one for each
//! service's instances, one for each configuration item, one for each pair of calls of a series, and
//! beyond the paper one for each version. [`Space::circumstance`] turns a set of deltas into what is
//! deployed; constraints and impossible orders are resolved before that, by [`Space::close`].

mod axis;
mod build;
mod rank;
mod set;

pub use axis::Axis;
pub use set::DeltaSet;

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::application::{Application, Constraint};
use crate::circumstance::{Circumstance, Order};
use crate::ids::ServiceName;
use crate::operation::OperationPattern;
use crate::secrets::SecretNames;
use crate::series::CallName;
use crate::treatment::Treatment;

/// The kind of setting that a delta changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dimension {
    /// The number of nodes.
    Node,
    /// The number of instances of a service.
    Instance,
    /// The order of two calls of a series.
    Sequence,
    /// One configuration item.
    Configuration,
    /// The version of a service.
    Version,
}

impl fmt::Display for Dimension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Node => "node",
            Self::Instance => "instance",
            Self::Sequence => "sequence",
            Self::Configuration => "configuration",
            Self::Version => "version",
        })
    }
}

/// One atomic change from simplest towards failing.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Delta {
    /// Unique in its space: `instance order`, `config order.memory`.
    pub name: String,
    /// The kind of setting it changes.
    pub dimension: Dimension,
    /// The simplest value, for people: secrets are redacted.
    pub from: String,
    /// The failing value, for people: secrets are redacted.
    pub to: String,
    /// Its position among all deltas by suspicion, from 1 (section 4.4): instances by count, orders by
    /// distance, configuration by strictness.
    pub rank: u32,
    /// The expected time to apply it.
    #[serde(with = "crate::units::duration")]
    pub cost: Duration,
    #[serde(skip)]
    change: Change,
    /// Whether one of its values is a secret. None between them is tried, since each would be shown.
    #[serde(skip)]
    is_secret: bool,
}

#[derive(Debug, Clone, PartialEq)]
enum Change {
    Nodes(u16),
    Instances(ServiceName, u32),
    /// None removes an item that the simplest circumstance has.
    Config(ServiceName, String, Option<String>),
    Version(ServiceName, Option<String>),
    /// Series and two indexes into its calls in request order.
    Pair(usize, usize, usize),
}

/// The concurrent calls of one handling, in the order in which the caller makes them.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Series {
    /// The service whose handling makes the calls.
    pub from: ServiceName,
    /// The request it handles.
    #[serde(rename = "in")]
    pub handling: OperationPattern,
    /// The calls in the simplest order.
    pub calls: Vec<CallName>,
    /// The failing order, as indexes into `calls`.
    pub failing: Vec<usize>,
    /// Whether the file gives the simplest order; otherwise it is taken from a recorded trial.
    pub order_known: bool,
}

impl Series {
    /// Whether the failing order has `j` before `i`.
    fn inverts(&self, i: usize, j: usize) -> bool {
        let place = |call: usize| self.failing.iter().position(|&c| c == call);
        place(j) < place(i)
    }
}

/// All deltas between two circumstances, with their constraints.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Space {
    /// The deltas; a [`DeltaSet`] holds indexes into them.
    pub deltas: Vec<Delta>,
    /// The series whose pairs are deltas.
    pub series: Vec<Series>,
    #[serde(skip)]
    simplest: Circumstance,
    #[serde(skip)]
    needs: Vec<(usize, usize)>,
    #[serde(skip)]
    excludes: Vec<DeltaSet>,
}

/// A constraint that names an unknown delta, or that the failing circumstance breaks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct ConstraintError {
    /// Its position in the file, from 0.
    pub index: usize,
    /// What is wrong, as a fragment.
    pub problem: String,
    /// What would be valid.
    pub hint: Option<String>,
}

/// Deltas that exclude one another, by name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{} exclude one another", .0.join(" and "))]
pub struct Excluded(pub Vec<String>);

impl Application {
    /// All deltas between the simplest and the failing circumstance.
    pub fn space(&self) -> Result<Space, ConstraintError> {
        let mut space = Space {
            deltas: Vec::new(),
            series: Vec::new(),
            simplest: self.simplest.clone(),
            needs: Vec::new(),
            excludes: Vec::new(),
        };
        space.add_nodes(&self.simplest, &self.failing);
        space.add_instances(self);
        space.add_series(&self.simplest, &self.failing);
        let names = SecretNames::new(&self.record.secrets);
        space.add_config(&self.simplest, &self.failing, &names, |service, key| {
            self.services.get(service)?.env.get(key.strip_prefix("env.")?).cloned()
        });
        space.add_versions(&self.simplest, &self.failing);
        rank::rank(&mut space.deltas);
        for (index, constraint) in self.constraints.iter().enumerate() {
            space.add_constraint(index, constraint)?;
        }
        if let Err(excluded) = space.close(&space.full()) {
            let index = self
                .constraints
                .iter()
                .position(|c| matches!(c, Constraint::Excludes(_)))
                .unwrap_or_default();
            let problem = format!("the failing circumstance itself breaks it: {excluded}");
            return Err(ConstraintError { index, problem, hint: None });
        }
        Ok(space)
    }
}

impl Space {
    /// The deltas of the failing circumstance: all except pairs of calls whose order is the same in both.
    pub fn full(&self) -> DeltaSet {
        let differs = |delta: &Delta| match delta.change {
            Change::Pair(series, i, j) => self.series[series].inverts(i, j),
            _ => true,
        };
        (0..self.deltas.len()).filter(|&delta| differs(&self.deltas[delta])).collect()
    }

    /// Adds everything that a set needs. Pairs of calls are completed so that they are the inversions of one order.
    pub fn close(&self, set: &DeltaSet) -> Result<DeltaSet, Excluded> {
        let mut closed = set.clone();
        loop {
            let before = closed.len();
            for &(delta, needed) in &self.needs {
                if closed.contains(delta) {
                    closed.insert(needed);
                }
            }
            for series in 0..self.series.len() {
                self.close_pairs(series, &mut closed);
            }
            if closed.len() == before {
                break;
            }
        }
        match self.excludes.iter().find(|together| together.is_subset(&closed)) {
            Some(together) => Err(Excluded(together.iter().map(|d| self.deltas[d].name.clone()).collect())),
            None => Ok(closed),
        }
    }

    /// A set of deltas by their names, which hold outside of this space.
    pub fn treatment(&self, set: &DeltaSet) -> Treatment {
        Treatment::of_deltas(self.names(set))
    }

    /// The names of a set of deltas.
    pub fn names(&self, set: &DeltaSet) -> BTreeSet<String> {
        set.iter().filter_map(|delta| self.deltas.get(delta)).map(|delta| delta.name.clone()).collect()
    }

    /// The set of a treatment; none where that is no set of deltas of this space.
    pub fn set_of(&self, treatment: &Treatment) -> Option<DeltaSet> {
        match treatment {
            Treatment::Nothing => Some(DeltaSet::new()),
            Treatment::Deltas { deltas } => {
                let named = |(_, delta): &(usize, &Delta)| deltas.contains(&delta.name);
                let set: DeltaSet =
                    self.deltas.iter().enumerate().filter(named).map(|(place, _)| place).collect();
                (set.len() == deltas.len()).then_some(set)
            }
            Treatment::Numbered { numbers } => {
                numbers.iter().all(|number| number < self.deltas.len()).then(|| numbers.clone())
            }
            Treatment::Value { .. } | Treatment::Input { .. } | Treatment::Perturbations { .. } => None,
        }
    }

    /// The circumstance of a set of deltas, after closing it.
    pub fn circumstance(&self, set: &DeltaSet) -> Result<Circumstance, Excluded> {
        let closed = self.close(set)?;
        let mut circumstance = self.simplest.clone();
        circumstance.sequence.clear();
        for delta in closed.iter().map(|d| &self.deltas[d]) {
            match &delta.change {
                Change::Nodes(nodes) => circumstance.nodes = *nodes,
                Change::Instances(service, count) => {
                    circumstance.instances.insert(service.clone(), *count);
                }
                Change::Config(service, key, value) => {
                    let items = circumstance.config.entry(service.clone()).or_default();
                    match value {
                        Some(value) => items.insert(key.clone(), value.clone()),
                        None => items.remove(key),
                    };
                }
                Change::Version(service, Some(version)) => {
                    circumstance.versions.insert(service.clone(), version.clone());
                }
                Change::Version(service, None) => {
                    circumstance.versions.remove(service);
                }
                Change::Pair(..) => {}
            }
        }
        circumstance.config.retain(|_, items| !items.is_empty());
        for index in 0..self.series.len() {
            circumstance.sequence.extend(self.order_of(index, &closed));
        }
        Ok(circumstance)
    }

    /// Sets the order in which the caller really makes the calls of a series, as a recorded trial showed it. Calls
    /// that did not occur stay at the end.
    pub fn with_request_order(mut self, series: usize, seen: &[CallName]) -> Self {
        let Some(target) = self.series.get_mut(series) else {
            return self;
        };
        if target.order_known {
            return self;
        }
        let failing: Vec<CallName> = target.failing.iter().map(|&i| target.calls[i].clone()).collect();
        let place = |call: &CallName| seen.iter().position(|s| s == call).unwrap_or(usize::MAX);
        target.calls.sort_by_key(place);
        target.failing =
            failing.iter().filter_map(|call| target.calls.iter().position(|c| c == call)).collect();
        target.order_known = true;
        let series_now = target.clone();
        for delta in &mut self.deltas {
            if let Change::Pair(s, i, j) = delta.change
                && s == series
            {
                build::name_pair(delta, &series_now, i, j);
            }
        }
        rank::rank(&mut self.deltas);
        self
    }

    /// The orders that trials without a delta of them have, where they were seen in a trial: the application file alone
    /// does not give them.
    pub fn learnt_orders(&self, before: &Self) -> Vec<Order> {
        let is_learnt = |(now, then): &(&Series, &Series)| now.order_known && !then.order_known;
        let order = |(now, _): (&Series, &Series)| Order {
            from: now.from.clone(),
            handling: now.handling.clone(),
            order: now.calls.clone(),
        };
        self.series.iter().zip(&before.series).filter(is_learnt).map(order).collect()
    }

    /// Sets the time that applying each delta takes, where that is known.
    pub fn with_costs(mut self, known: impl Fn(&Delta) -> Option<Duration>) -> Self {
        for delta in &mut self.deltas {
            if let Some(cost) = known(delta) {
                delta.cost = cost;
            }
        }
        self
    }

    /// The index of the delta that inverts calls `i` and `j` of a series.
    fn pair(&self, series: usize, i: usize, j: usize) -> Option<usize> {
        let wanted = Change::Pair(series, i.min(j), i.max(j));
        self.deltas.iter().position(|d| d.change == wanted)
    }

    /// Inversions of a permutation are transitive, and so are non-inversions: a before b before c. Adding
    /// what the first rule demands can break the second, so both run until nothing changes; the full
    /// reversal satisfies both, so this ends. The failing order satisfies both, too: nothing beyond it is
    /// added to a part of it.
    fn close_pairs(&self, series: usize, set: &mut DeltaSet) {
        let count = self.series[series].calls.len();
        loop {
            let mut grown = false;
            for i in 0..count {
                for j in i + 1..count {
                    for k in j + 1..count {
                        let (Some(ij), Some(jk), Some(ik)) =
                            (self.pair(series, i, j), self.pair(series, j, k), self.pair(series, i, k))
                        else {
                            continue;
                        };
                        if set.contains(ij) && set.contains(jk) {
                            grown |= set.insert(ik);
                        }
                        if set.contains(ik) && !set.contains(ij) && !set.contains(jk) {
                            // One of the two must be inverted as well. Prefer the one of the failing order, so that no
                            // subset leads beyond it; take the first where both or neither belong to it.
                            let order = &self.series[series];
                            let first = order.inverts(i, j) || !order.inverts(j, k);
                            grown |= set.insert(if first { ij } else { jk });
                        }
                    }
                }
            }
            if !grown {
                return;
            }
        }
    }

    /// The order that a closed set of inversions means; none if the base order is unknown and
    /// nothing is inverted.
    fn order_of(&self, index: usize, closed: &DeltaSet) -> Option<Order> {
        let series = &self.series[index];
        let inverted = |i: usize, j: usize| self.pair(index, i, j).is_some_and(|d| closed.contains(d));
        let any = (0..series.calls.len()).any(|i| (i + 1..series.calls.len()).any(|j| inverted(i, j)));
        if !any && !series.order_known {
            return None;
        }
        let mut order: Vec<usize> = (0..series.calls.len()).collect();
        order.sort_by_key(|&i| {
            (0..series.calls.len())
                .filter(|&j| (j < i && !inverted(j, i)) || (j > i && inverted(i, j)))
                .count()
        });
        Some(Order {
            from: series.from.clone(),
            handling: series.handling.clone(),
            order: order.into_iter().map(|i| series.calls[i].clone()).collect(),
        })
    }
}

#[cfg(test)]
mod tests;
