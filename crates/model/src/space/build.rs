//! Collects the deltas of a space, dimension by dimension.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{Change, ConstraintError, Delta, DeltaSet, Dimension, Series, Space};
use crate::application::{Application, Constraint};
use crate::circumstance::{Circumstance, Order};
use crate::ids::ServiceName;
use crate::secrets::SecretNames;
use crate::series::CallName;

impl Space {
    pub(super) fn add_nodes(&mut self, simplest: &Circumstance, failing: &Circumstance) {
        if simplest.nodes != failing.nodes {
            let (from, to) = (simplest.nodes.to_string(), failing.nodes.to_string());
            self.push("node".into(), Dimension::Node, from, to, Change::Nodes(failing.nodes), 50);
        }
    }

    pub(super) fn add_instances(&mut self, application: &Application) {
        for service in application.services.keys() {
            let from = application.simplest.instances_of(service);
            let to = application.failing.instances_of(service);
            if from != to {
                let change = Change::Instances(service.clone(), to);
                let cost = 50 * u64::from(from.abs_diff(to));
                let (name, was, is) = if from == 0 || to == 0 {
                    let show = |count: u32| match count {
                        0 => "absent".to_owned(),
                        1 => "present".to_owned(),
                        more => format!("{more} instances"),
                    };
                    (format!("service {service}"), show(from), show(to))
                } else {
                    (format!("instance {service}"), from.to_string(), to.to_string())
                };
                self.push(name, Dimension::Instance, was, is, change, cost);
            }
        }
    }

    /// `written` gives a service's own value for a key that a circumstance does not mention.
    pub(super) fn add_config(
        &mut self,
        simplest: &Circumstance,
        failing: &Circumstance,
        names: &SecretNames,
        written: impl Fn(&ServiceName, &str) -> Option<String>,
    ) {
        let services: BTreeSet<_> = simplest.config.keys().chain(failing.config.keys()).collect();
        for service in services {
            let get =
                |c: &Circumstance, key: &str| c.config.get(service).and_then(|items| items.get(key)).cloned();
            let keys: BTreeSet<&String> = [simplest, failing]
                .into_iter()
                .flat_map(|c| c.config.get(service).into_iter().flat_map(|items| items.keys()))
                .collect();
            for key in keys {
                let (from, to) = (get(simplest, key), get(failing, key));
                if from == to {
                    continue;
                }
                let values = [&from, &to].map(|value| value.clone().or_else(|| written(service, key)));
                let show =
                    |value: &Option<String>| value.as_deref().map(|value| names.redact_setting(key, value));
                let shown = values.each_ref().map(show);
                let is_secret = shown != values;
                let [was, is] = shown.map(|value| value.unwrap_or_else(|| "unset".into()));
                let change = Change::Config(service.clone(), key.clone(), to);
                self.push(format!("config {service}.{key}"), Dimension::Configuration, was, is, change, 60);
                if let Some(delta) = self.deltas.last_mut() {
                    delta.is_secret = is_secret;
                }
            }
        }
    }

    pub(super) fn add_versions(&mut self, simplest: &Circumstance, failing: &Circumstance) {
        let services: BTreeSet<_> = simplest.versions.keys().chain(failing.versions.keys()).collect();
        for service in services {
            let (from, to) = (simplest.versions.get(service), failing.versions.get(service));
            if from != to {
                let show = |value: Option<&String>| value.cloned().unwrap_or_else(|| "as written".into());
                let change = Change::Version(service.clone(), to.cloned());
                let name = format!("version {service}");
                self.push(name, Dimension::Version, show(from), show(to), change, 60);
            }
        }
    }

    pub(super) fn add_series(&mut self, simplest: &Circumstance, failing: &Circumstance) {
        for order in &failing.sequence {
            let same = |o: &&Order| o.from == order.from && o.handling == order.handling;
            let base = simplest.sequence.iter().find(same);
            let known = base.is_some_and(|b| b.order.len() == order.order.len());
            let calls = match base {
                Some(base) if known && order.order.iter().all(|c| base.order.contains(c)) => {
                    base.order.clone()
                }
                // Until a trial shows the request order, the reverse of the failing one takes its place, so
                // that every pair counts as changed.
                _ => order.order.iter().rev().cloned().collect(),
            };
            let place = |call: &CallName| calls.iter().position(|c| c == call);
            let series = Series {
                from: order.from.clone(),
                handling: order.handling.clone(),
                failing: order.order.iter().filter_map(place).collect(),
                calls,
                order_known: known,
            };
            let index = self.series.len();
            for i in 0..series.calls.len() {
                for j in i + 1..series.calls.len() {
                    let change = Change::Pair(index, i, j);
                    self.push(String::new(), Dimension::Sequence, String::new(), String::new(), change, 0);
                    if let Some(delta) = self.deltas.last_mut() {
                        name_pair(delta, &series, i, j);
                    }
                }
            }
            self.series.push(series);
        }
    }

    pub(super) fn add_constraint(
        &mut self,
        index: usize,
        constraint: &Constraint,
    ) -> Result<(), ConstraintError> {
        let find = |space: &Self, name: &str| {
            space.deltas.iter().position(|d| d.name == name).ok_or_else(|| {
                let names = space.deltas.iter().map(|d| d.name.as_str());
                let hint = crate::application::nearest_hint(name, names);
                ConstraintError { index, problem: format!("there is no delta `{name}`"), hint }
            })
        };
        match constraint {
            Constraint::Needs { delta, needs } => {
                let pair = (find(self, delta)?, find(self, needs)?);
                self.needs.push(pair);
            }
            Constraint::Excludes(names) => {
                let together = names.iter().map(|name| find(self, name)).collect::<Result<DeltaSet, _>>()?;
                self.excludes.push(together);
            }
        }
        Ok(())
    }

    fn push(
        &mut self,
        name: String,
        dimension: Dimension,
        from: String,
        to: String,
        change: Change,
        cost_ms: u64,
    ) {
        let cost = Duration::from_millis(cost_ms);
        self.deltas.push(Delta { name, dimension, from, to, rank: 0, cost, change, is_secret: false });
    }
}

/// Names a pair independently of its direction, which may become known only later.
pub(super) fn name_pair(delta: &mut Delta, series: &Series, i: usize, j: usize) {
    let (first, second) = (&series.calls[i], &series.calls[j]);
    let (low, high) = if first < second { (first, second) } else { (second, first) };
    delta.name = format!("sequence {} {}: {low} / {high}", series.from, series.handling);
    delta.from = format!("{first} first");
    delta.to = format!("{second} first");
}
