//! Evidence for a service that does not come up: how it ended, what it said last, and where it does come up.

use faultscope_model::{ExitReason, InstanceId, Run, RunId};
use serde::{Deserialize, Serialize};

use super::difference::{missing_in, nearest_passing};

/// Lines of a log that are kept in a report; the run has more.
const LINES: usize = 20;

/// What is known of a service that does not come up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartReport {
    /// The instance that was waited for.
    pub instance: InstanceId,
    /// Why it was not ready.
    pub reason: ExitReason,
    /// What it said last.
    pub last_lines: Vec<String>,
    /// The run.
    pub failing: RunId,
    /// The nearest run in which everything came up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passing: Option<RunId>,
    /// The deltas that this one lacks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub without: Vec<String>,
}

/// The evidence of a run in which a service did not come up; none if all came up.
pub(super) fn find_evidence(failing: &Run, runs: &[&Run]) -> Option<StartReport> {
    let exit = failing.evidence.exits.iter().find(|exit| exit.start.is_some())?;
    let lines = failing.evidence.logs.get(&exit.instance).map(Vec::as_slice).unwrap_or_default();
    let passing = nearest_passing(failing, runs).first().copied();
    Some(StartReport {
        instance: exit.instance.clone(),
        reason: exit.reason.clone(),
        last_lines: lines[lines.len().saturating_sub(LINES)..].to_vec(),
        failing: failing.id.clone(),
        passing: passing.map(|run| run.id.clone()),
        without: passing.map(|passing| missing_in(passing, failing)).unwrap_or_default(),
    })
}
