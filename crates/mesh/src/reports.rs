//! What a slot's mesh tells its owner beside spans.

use std::collections::{BTreeMap, BTreeSet};

use faultscope_model::series::GateReport;
use faultscope_model::{NotApplied, ServiceName};
use serde::{Deserialize, Serialize};

/// What happened since the reports were last taken.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MeshReports {
    /// What became of each gate, for each handling.
    pub gates: Vec<GateReport>,
    /// How often each rule was met.
    pub rules: Vec<RuleHits>,
    /// Calls by calling service and callee.
    pub calls: BTreeMap<(ServiceName, ServiceName), u64>,
    /// Calls that services made while handling a request, without handing on its context.
    pub without_context: BTreeMap<ServiceName, u64>,
    /// Calls to external hosts that were refused.
    pub externals_refused: BTreeMap<ServiceName, u64>,
    /// Reports of exporters that were carried and are no calls, by the collector they went to.
    pub exports: BTreeMap<ServiceName, u64>,
    /// Services whose listeners should have refused connections and could not: connections were accepted and reset.
    pub unrefused: BTreeSet<ServiceName>,
    /// Whether services handed on contexts of their own: they trace themselves, and will report spans.
    pub traced: bool,
    /// Whether the mesh could not accept or open a connection because this process has as many as it may have; the
    /// trial is invalid then.
    pub exhausted: bool,
    /// Reports of sidecars that were lost; the trial is invalid when there are any.
    pub lost: u64,
}

/// How often one rule was met.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleHits {
    /// The rule's number in the wiring.
    pub rule: u32,
    /// Calls that its selector chose.
    pub matched: u64,
    /// Calls that it did something to.
    pub applied: u64,
    /// Why it could do nothing to a call that it chose, as far as that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<NotApplied>,
}
