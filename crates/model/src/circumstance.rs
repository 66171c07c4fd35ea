//! A circumstance: all settings of a trial.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ids::ServiceName;
use crate::operation::OperationPattern;
use crate::rule::Rule;
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
