//! Checks the circumstances and constraints of an application file.

use std::collections::BTreeMap;

use indexmap::IndexMap;

use super::raw::{self, RawCircumstance};
use super::read::{Names, Reader, SpecError, nearest_hint};
use super::{Constraint, Service};
use crate::circumstance::{Circumstance, Order};
use crate::ids::ServiceName;

/// More instances of a service, or more nodes, are taken for a typing error.
const MAX_INSTANCES: u32 = 1000;

impl Reader<'_> {
    pub(super) fn circumstance(
        &self,
        which: &str,
        raw: RawCircumstance,
        services: &IndexMap<ServiceName, Service>,
        names: &Names,
    ) -> Result<Circumstance, SpecError> {
        let mut circumstance = Circumstance { nodes: raw.nodes.unwrap_or(1), ..Circumstance::default() };
        if circumstance.nodes == 0 || u32::from(circumstance.nodes) > MAX_INSTANCES {
            return Err(self.error(&[which, "nodes"], "there are 1 to 1000 nodes"));
        }
        for (name, count) in raw.instances {
            let path = [which, "instances", &name];
            let service = self.service(&path, &name, names)?;
            if count > MAX_INSTANCES {
                return Err(self.error(&path, "a service has 1 to 1000 instances, or 0 when it is not there"));
            }
            circumstance.instances.insert(service, count);
        }
        for (name, items) in raw.config {
            let service = self.service(&[which, "config", &name], &name, names)?;
            let mut config = BTreeMap::new();
            for (key, value) in items {
                check_config(&key, &value.0).map_err(|(problem, hint)| SpecError {
                    hint,
                    ..self.error(&[which, "config", &name, &key], problem)
                })?;
                config.insert(key, value.0);
            }
            circumstance.config.insert(service, config);
        }
        for (name, version) in raw.versions {
            let path = [which, "versions", &name];
            let service = self.service(&path, &name, names)?;
            let known = &services[&service].versions;
            if !known.contains_key(&version) {
                let hint = nearest_hint(&version, known.keys().map(String::as_str));
                return Err(SpecError {
                    hint,
                    ..self.error(&path, format!("`{name}` has no version `{version}`"))
                });
            }
            circumstance.versions.insert(service, version);
        }
        for (index, raw) in raw.sequence.into_iter().enumerate() {
            let at = index.to_string();
            let path = [which, "sequence", at.as_str()];
            let from = self.service(&[which, "sequence", &at, "from"], &raw.from, names)?;
            let handling = raw
                .handling
                .parse()
                .map_err(|e| self.error(&[which, "sequence", &at, "in"], format!("{e}")))?;
            let mut order = Vec::new();
            for call in &raw.order {
                let call: crate::series::CallName = call
                    .parse()
                    .map_err(|e| self.error(&[which, "sequence", &at, "order"], format!("{e}")))?;
                self.service(&[which, "sequence", &at, "order"], call.callee.as_str(), names)?;
                if order.contains(&call) {
                    let problem = format!("`{call}` is there twice; name the second one `{call}#2`");
                    return Err(self.error(&path, problem));
                }
                order.push(call);
            }
            if order.len() < 2 {
                return Err(self.error(&path, "an order has at least two calls"));
            }
            if circumstance.sequence.iter().any(|o: &Order| o.from == from && o.handling == handling) {
                return Err(self.error(&path, "this series has an order already"));
            }
            circumstance.sequence.push(Order { from, handling, order });
        }
        Ok(circumstance)
    }

    pub(super) fn constraints(&self, raw: Vec<raw::RawConstraint>) -> Result<Vec<Constraint>, SpecError> {
        let convert = |(index, raw): (usize, raw::RawConstraint)| match raw {
            raw::RawConstraint { when: Some(delta), then: Some(needs), not: None } => {
                Ok(Constraint::Needs { delta, needs })
            }
            raw::RawConstraint { when: None, then: None, not: Some(deltas) } if deltas.len() > 1 => {
                Ok(Constraint::Excludes(deltas))
            }
            _ => Err(self.error(
                &["constraints", &index.to_string()],
                "a constraint reads `{ if: A, then: B }` or `{ not: [A, B] }`",
            )),
        };
        raw.into_iter().enumerate().map(convert).collect()
    }
}

type Complaint = (String, Option<String>);

fn check_config(key: &str, value: &str) -> Result<(), Complaint> {
    let positive = |text: &str| text.parse::<f64>().is_ok_and(|n| n.is_finite() && n > 0.0);
    match key {
        "memory" if !raw::is_size(value) => {
            Err((format!("`{value}` is not a size"), Some("memory: 64MiB".into())))
        }
        // A bare `64` almost certainly lacks its unit.
        "memory" if raw::is_tiny(value) => {
            let hint = value.parse::<u64>().is_ok().then(|| format!("memory: {value}MiB"));
            Err((format!("no process runs in {value} bytes"), hint))
        }
        "cpu" if !positive(value) => {
            Err((format!("`{value}` is not a number of cores"), Some("cpu: 0.5".into())))
        }
        "pids" if value.parse::<u32>().is_ok_and(|n| n > 0) => Ok(()),
        "pids" => Err((format!("`{value}` is not a number of processes"), Some("pids: 100".into()))),
        "memory" | "cpu" => Ok(()),
        _ if key.strip_prefix("env.").is_some_and(|name| !name.is_empty() && !name.contains('=')) => Ok(()),
        _ => {
            let hint = nearest_hint(key, ["memory", "cpu", "pids", "env.NAME"].into_iter());
            Err(("unknown configuration item".into(), hint))
        }
    }
}
