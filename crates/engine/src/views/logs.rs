//! What instances printed, beside the calls of the same time.

use std::collections::BTreeSet;

use faultscope_model::log::InstanceLog;
use faultscope_model::{InstanceId, Run, Span, SpanId, TraceId};
use faultscope_store::Reader;
use serde::Serialize;

use super::error::ViewError;

/// How long before the start and after the end of a call a line counts as printed around it: lines arrive a moment
/// after what they tell of, and a service often logs when it has answered.
const AROUND_US: u64 = 100_000;

/// Failing calls whose logs are shown unasked, and lines of each.
const MAX_CALLS: usize = 3;
const MAX_LINES: usize = 10;

/// What the instances of a run printed.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct RunLogs {
    /// One for each instance that printed something.
    #[serde(rename = "logs")]
    pub instances: Vec<InstanceLog>,
    /// Whether the store had no room left for them.
    #[serde(rename = "logs_lost", skip_serializing_if = "std::ops::Not::not")]
    pub are_lost: bool,
}

/// A line of an instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TimedLine {
    /// Microseconds since 1970 at which it arrived.
    pub at_us: u64,
    /// Who printed it.
    pub instance: InstanceId,
    /// Its text; it may hold control characters.
    pub text: String,
}

/// What caller and callee printed while a failing call ran.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LogExcerpt {
    /// The call.
    pub span: SpanId,
    /// The last lines, oldest first.
    pub lines: Vec<TimedLine>,
}

impl RunLogs {
    /// Reads what the instances of a run printed.
    pub fn read(reader: &Reader, run: &Run) -> Result<Self, ViewError> {
        let instances = reader.logs_of(run.trial)?;
        let are_lost = instances.is_empty() && run.evidence.log_lines > 0;
        Ok(Self { instances, are_lost })
    }

    /// All lines by the time of their arrival.
    pub fn timeline(&self) -> Vec<TimedLine> {
        let mut lines: Vec<TimedLine> = self.instances.iter().flat_map(timed).collect();
        lines.sort_by_key(|line| line.at_us);
        lines
    }

    /// What caller and callee of a call printed while it ran, of many lines the last.
    pub fn around_call(&self, call: &Span, most: usize) -> Vec<TimedLine> {
        let from = call.start_us.saturating_sub(AROUND_US);
        let to = call.start_us.saturating_add(call.duration_us).saturating_add(AROUND_US);
        let is_side = |log: &&InstanceLog| {
            log.instance == call.caller || Some(&log.instance) == call.callee_instance.as_ref()
        };
        let lines = self.instances.iter().filter(is_side).flat_map(timed);
        let mut lines: Vec<TimedLine> =
            lines.filter(|line| (from..=to).contains(&line.at_us) && !line.text.trim().is_empty()).collect();
        lines.sort_by_key(|line| line.at_us);
        // The frames of a stack trace are indented below its message, which says more than they do.
        let mut n_excess = lines.len().saturating_sub(most);
        lines.retain(|line| {
            let is_left_out = n_excess > 0 && line.text.starts_with([' ', '\t']);
            n_excess -= usize::from(is_left_out);
            !is_left_out
        });
        lines.drain(..lines.len().saturating_sub(most));
        lines
    }

    /// What was printed around the first failing calls, each line once, beginning with those of the traces that failed
    /// tests ended with. Of a failure that callers pass on, only the call where it began is shown.
    pub fn around_failures(&self, spans: &[Span], failing: &BTreeSet<TraceId>) -> Vec<LogExcerpt> {
        let passed_on: BTreeSet<SpanId> =
            spans.iter().filter(|span| span.failed()).filter_map(|span| span.parent).collect();
        let began = spans.iter().filter(|span| span.failed() && !passed_on.contains(&span.id));
        let mut began: Vec<&Span> = began.collect();
        began.sort_by_key(|call| !failing.contains(&call.trace));
        let mut shown: BTreeSet<(u64, InstanceId, String)> = BTreeSet::new();
        let excerpts = began.into_iter().map(|call| {
            let mut lines = self.around_call(call, MAX_LINES);
            // Calls of one moment have the same lines around them.
            lines.retain(|line| shown.insert((line.at_us, line.instance.clone(), line.text.clone())));
            LogExcerpt { span: call.id, lines }
        });
        excerpts.filter(|excerpt| !excerpt.lines.is_empty()).take(MAX_CALLS).collect()
    }
}

fn timed(log: &InstanceLog) -> impl Iterator<Item = TimedLine> + '_ {
    log.lines.iter().map(|line| TimedLine {
        at_us: line.at_us,
        instance: log.instance.clone(),
        text: line.text.clone(),
    })
}

#[cfg(test)]
mod tests {
    use faultscope_model::log::LogLine;

    use super::*;
    use crate::sample::span;

    #[test]
    fn a_line_between_two_failures_is_shown_once() {
        let failing = |id: u64, start_us: u64| Span {
            trace: TraceId(id.into()),
            id: SpanId(id),
            status: Some(503),
            start_us,
            ..span()
        };
        let calls = [failing(1, 1_000_000), failing(2, 1_000_100), failing(3, 9_000_000)];
        let line = |at_us: u64, text: &str| LogLine { at_us, text: text.to_owned() };
        let lines = vec![line(1_000_200, "no stock"), line(9_000_000, "still none")];
        let log = InstanceLog { instance: calls[0].caller.clone(), lines, dropped: 0 };
        let logs = RunLogs { instances: vec![log], are_lost: false };
        let shown = |first: &BTreeSet<TraceId>| -> Vec<(u64, String)> {
            let excerpts = logs.around_failures(&calls, first);
            excerpts
                .iter()
                .map(|e| (e.span.0, e.lines.iter().map(|line| line.text.as_str()).collect()))
                .collect()
        };
        let (first, second) = ((1, "no stock".to_owned()), (3, "still none".to_owned()));
        assert_eq!(shown(&BTreeSet::new()), [first.clone(), second.clone()]);
        assert_eq!(
            shown(&BTreeSet::from([TraceId(3)])),
            [second, first],
            "what a test ended with comes first"
        );
    }
}
