//! The result of a debug campaign, with everything that every display of it would compute.

use faultscope_search::Proof;
use serde::Serialize;

use super::command_line::{CommandLine, FolderOption};
use crate::debug::{Calibration, DebugReport, FoundCause, NamedDelta, Rest, Verdict};

/// A debug report, prepared for display.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DebugView<'r> {
    /// The report itself.
    pub report: &'r DebugReport,
    /// How often the failure shows, if it is flaky.
    pub flaky: Option<Calibration>,
    /// The causes.
    pub causes: Vec<CauseView<'r>>,
    /// The best answer so far, if the search was stopped before it had one.
    pub smallest: Option<SmallestSet<'r>>,
    /// The command that shows why further causes are not excluded.
    pub show_rest: Option<CommandLine>,
}

/// A cause, prepared for display.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CauseView<'r> {
    /// The cause itself.
    pub cause: &'r FoundCause,
    /// Deltas of the failing trial that the cause implies.
    pub implied: usize,
    /// How probable it is in the eyes of the search, from 0 to 1, where the failure shows only at times and passes
    /// that were chance could hide one of several deltas.
    pub belief: Option<f64>,
    /// The command that shows the failing run.
    pub show_run: Option<CommandLine>,
}

/// The smallest failing set of a search that was stopped.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct SmallestSet<'r> {
    /// Its deltas.
    pub deltas: &'r [NamedDelta],
    /// What is proven about it.
    pub proof: Proof,
    /// The number of sets with one delta less that are yet to be tried.
    pub unproven: usize,
}

impl<'r> DebugView<'r> {
    /// Prepares a report whose campaign is stored in a folder.
    pub fn new(report: &'r DebugReport, folder: &FolderOption) -> Self {
        let flaky = report.calibration.filter(|known| known.rate < 1.0);
        let cause_view = |cause: &'r FoundCause| CauseView {
            cause,
            implied: cause.witness.len().saturating_sub(cause.deltas.len()),
            belief: flaky.filter(|_| cause.deltas.len() > 1).map(|_| report.belief),
            show_run: cause.run.as_ref().map(|run| CommandLine::show_run(run, folder)),
        };
        let is_stopped = matches!(report.verdict, Verdict::Stopped | Verdict::OutOfBudget);
        let smallest = SmallestSet { deltas: &report.best, proof: report.proof, unproven: report.unproven };
        let is_unfinished = is_stopped && report.causes.is_empty() && !report.best.is_empty();
        let rest = report.rest.as_ref().and_then(Rest::run);
        Self {
            report,
            flaky,
            causes: report.causes.iter().map(cause_view).collect(),
            smallest: is_unfinished.then_some(smallest),
            show_rest: rest.map(|run| CommandLine::show_run(run, folder)),
        }
    }
}
