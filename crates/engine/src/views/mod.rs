//! The read side: what `runs`, `traces`, `metrics`, `services`, `deps` and `report` show, computed once.
//!
//! A view is a function from an [`Archive`] and options to a plain struct. The terminal, `--json` and pages render
//! the same structs; whatever two of them would have to decide belongs here. Nothing here prints, knows the width
//! of a terminal, or asks for the time: callers pass the moment they mean by "now".
//!
//! Views block on the disk, as the store's readers do. Commands call them as they are; async callers (a server of
//! pages) run them on a blocking thread. Derived facts that `--json` never had are left out of it, so that its
//! documents stay as they are.

mod archive;
mod call_tree;
mod command_line;
mod debug_report;
mod edges;
mod error;
mod failing_step;
mod find;
mod labels;
mod logs;
mod metrics;
mod recordings;
mod report;
mod reproduce;
mod resilience_report;
mod runs;
mod services;
mod span_metrics;
#[cfg(test)]
mod tests;
mod traces;
mod waterfall;

pub use crate::html::readable_text;
pub use archive::Archive;
pub use call_tree::{CallTree, TreeRow, call_trees};
pub use command_line::{CommandLine, FolderOption, quote};
pub use debug_report::{CauseView, DebugView, SmallestSet};
pub use edges::{CallerEdges, ServiceMap, group_by_caller, list_edges};
pub use error::{Subject, ViewError};
pub use find::{FoundRun, find_campaign, find_campaign_of_run, find_last_run_of, find_run, find_trace};
pub use labels::{plain, span_label};
pub use logs::{LogExcerpt, RunLogs, TimedLine};
pub use metrics::{
    Drawn, MetricLine, MetricScope, MetricSource, Range, SeriesView, list_metrics, show_metric,
};
pub use recordings::{
    FoundCalls, FoundRecording, find_calls_of_run, find_calls_of_traces, find_run_to_replay,
    find_traces_to_replay,
};
pub use report::{CampaignReport, find_debug_campaign, find_report};
pub use reproduce::{CauseTarget, DefectTarget, reproduce_cause, reproduce_defect};
pub use resilience_report::{
    ResilienceView, TestView, describe_finding, describe_outage, describe_sets, describe_skipped,
    describe_trials, describe_verdict, trace_length_us,
};
pub use runs::{
    CampaignRuns, RunTests, RunTrace, RunView, Used, hide_settings, list_runs, show_run, show_run_trace,
};
pub use services::{InstanceUse, ServiceLine, ServiceUse, list_services};
pub use span_metrics::{MetricsJoin, MetricsWanted, Missing, SpanMetrics, UseSource};
pub use traces::{TraceLine, TraceList, TraceView, list_traces, search_traces, show_trace};
pub use waterfall::{Slowest, SpanFacts, Waterfall, WaterfallRow, draw_waterfall};
