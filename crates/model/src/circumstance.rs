//! A circumstance: all settings of a trial.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::ids::ServiceName;
use crate::operation::OperationPattern;
use crate::rule::Rule;
use crate::secrets::SecretNames;
use crate::series::CallName;

/// All settings of one trial. A setting that is absent is as the application file has it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Circumstance {
    /// The number of nodes the instances are spread over.
    pub nodes: u16,
    /// The number of instances of each service where it is not one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub instances: BTreeMap<ServiceName, u32>,
    /// Configuration items by service: `memory`, `cpu`, `pids`, `env.NAME`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub config: BTreeMap<ServiceName, BTreeMap<String, String>>,
    /// Orders that gates impose.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sequence: Vec<Order>,
    /// Versions by service, where a service has several.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub versions: BTreeMap<ServiceName, String>,
    /// Perturbations, as rules of the mesh.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub perturbations: Vec<Rule>,
}

impl Default for Circumstance {
    fn default() -> Self {
        Self {
            nodes: 1,
            instances: BTreeMap::new(),
            config: BTreeMap::new(),
            sequence: Vec::new(),
            versions: BTreeMap::new(),
            perturbations: Vec::new(),
        }
    }
}

impl Circumstance {
    /// The circumstance as it may be shown: without the values of secret settings.
    pub fn without_secrets(&self, names: &SecretNames) -> Self {
        let mut shown = self.clone();
        for (key, value) in shown.config.values_mut().flatten() {
            *value = names.redact_setting(key, value);
        }
        shown
    }

    /// Adds orders that were observed. An order that is there already was imposed, so it is certain and stays.
    pub fn impose(&mut self, observed: Vec<Order>) {
        for order in observed {
            if !self.sequence.iter().any(|own| own.from == order.from && own.handling == order.handling) {
                self.sequence.push(order);
            }
        }
    }

    /// The number of instances of a service.
    pub fn instances_of(&self, service: &ServiceName) -> u32 {
        self.instances.get(service).copied().unwrap_or(1)
    }
}

/// The order in which the calls of one series are released.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// The service whose handling makes the calls.
    pub from: ServiceName,
    /// The request it handles.
    #[serde(rename = "in")]
    pub handling: OperationPattern,
    /// The calls in the order of their release.
    pub order: Vec<CallName>,
}

/// A text that is not an order of calls.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an order of calls; write `order POST /pay: price GET /p, stock PUT /s`")]
pub struct InvalidOrder(String);

impl FromStr for Order {
    type Err = InvalidOrder;

    /// Reads what `Display` writes: the service, the request it handles, and its calls in their order.
    fn from_str(text: &str) -> Result<Self, InvalidOrder> {
        let invalid = || InvalidOrder(text.chars().take(160).collect());
        let (caller, calls) = text.split_once(": ").ok_or_else(invalid)?;
        let (from, handling) = caller.trim().split_once(char::is_whitespace).ok_or_else(invalid)?;
        let order = calls.split(", ").map(str::parse).collect::<Result<Vec<CallName>, _>>();
        Ok(Self {
            from: from.parse().map_err(|_| invalid())?,
            handling: handling.parse().map_err(|_| invalid())?,
            order: order.ok().filter(|order| order.len() > 1).ok_or_else(invalid)?,
        })
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let calls: Vec<String> = self.order.iter().map(ToString::to_string).collect();
        write!(f, "{} {}: {}", self.from, self.handling, calls.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_read_as_they_are_written() {
        let text = "order POST /pay/{id}: price GET /p, stock PUT /s, stock PUT /s#2";
        let order: Order = text.parse().unwrap();
        assert_eq!((order.order.len(), order.to_string().as_str()), (3, text));
        for wrong in
            ["", "order", "order POST /pay", "order POST /pay: price GET /p", "order: a GET /, b GET /"]
        {
            assert!(wrong.parse::<Order>().is_err(), "{wrong}");
        }
    }
}
