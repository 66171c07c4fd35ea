//! What services printed while the failing call ran, without what they print when the test passes.

use std::collections::{BTreeMap, BTreeSet};

use faultscope_model::log::InstanceLog;
use faultscope_model::outcome::normalise;
use faultscope_model::{InstanceId, Run, ServiceName, Span, SpanId};
use serde::{Deserialize, Serialize};

use super::story::one_line;
use crate::error::EngineError;
use crate::session::Session;

/// Lines that are kept, and characters of each: an error and the end of its trace. The run has all of them.
const MAX_LINES: usize = 15;
const MAX_LINE: usize = 300;
/// How long before and after a call a line counts as printed in it: lines arrive a moment after what they are about.
const AROUND_US: u64 = 100_000;
/// Equal runs that are compared; three show most of what chance changes.
const MAX_EQUAL: usize = 3;

/// Deeper than any real chain of calls: damaged data must not end in a circle.
const MAX_DEPTH: usize = 64;

/// A line that an instance printed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrintedLine {
    /// Who printed it.
    pub instance: InstanceId,
    /// Its text in one line, without secrets.
    pub text: String,
}

/// What was printed around a call.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Printed {
    /// The last lines, oldest first.
    pub lines: Vec<PrintedLine>,
    /// How many lines before them are left out.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more: usize,
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

impl Printed {
    /// Whether nothing was printed that says something.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// For people: each line behind the name of its instance.
    pub fn shown(&self) -> Vec<String> {
        let more = (self.more > 0).then(|| format!("({} before)", self.more));
        let lines = self.lines.iter().map(|line| format!("{} | {}", line.instance, line.text));
        more.into_iter().chain(lines).collect()
    }
}

/// The runs whose logs are compared.
pub(super) struct Compared<'a> {
    pub(super) failing: &'a Run,
    /// Further failing runs of the same circumstance.
    pub(super) failing_again: &'a [&'a Run],
    pub(super) passing: &'a [&'a Run],
}

impl Compared<'_> {
    /// What the services of these calls, and of all calls that they belong to, printed meanwhile.
    pub(super) async fn find_lines(
        &self,
        session: &Session,
        spans: &[Span],
        calls: &[SpanId],
    ) -> Result<Printed, EngineError> {
        let windows = windows(spans, calls);
        if windows.is_empty() {
            return Ok(Printed::default());
        }
        let own = session.logs_of(self.failing.trial).await?;
        let mut usual = BTreeSet::new();
        for run in self.passing.iter().take(MAX_EQUAL) {
            usual.extend(keys(&session.logs_of(run.trial).await?));
        }
        let mut again = Vec::new();
        for run in self.failing_again.iter().take(MAX_EQUAL) {
            again.push(keys(&session.logs_of(run.trial).await?));
        }
        Ok(choose(&own, &windows, &usual, &again))
    }
}

/// When each instance was at work for one of the calls: from, to.
type Windows = BTreeMap<InstanceId, Vec<(u64, u64)>>;
/// A line as it can be compared between runs: who printed what, without ids and times.
type Key = (ServiceName, String);

fn windows(spans: &[Span], calls: &[SpanId]) -> Windows {
    let by_id: BTreeMap<SpanId, &Span> = spans.iter().map(|span| (span.id, span)).collect();
    let root_of = |id: SpanId| {
        let mut span = *by_id.get(&id)?;
        for _ in 0..MAX_DEPTH {
            match span.parent.and_then(|parent| by_id.get(&parent)) {
                Some(parent) => span = parent,
                None => break,
            }
        }
        Some(span)
    };
    let roots: BTreeMap<SpanId, &Span> =
        calls.iter().filter_map(|call| root_of(*call)).map(|root| (root.id, root)).collect();
    let mut windows = Windows::new();
    for span in spans {
        let Some(root) = root_of(span.id).filter(|root| roots.contains_key(&root.id)) else { continue };
        let from = root.start_us.saturating_sub(AROUND_US);
        let to = root.start_us.saturating_add(root.duration_us).saturating_add(AROUND_US);
        for instance in [Some(&span.caller), span.callee_instance.as_ref()].into_iter().flatten() {
            let own = windows.entry(instance.clone()).or_default();
            if !own.contains(&(from, to)) {
                own.push((from, to));
            }
        }
    }
    windows
}

fn key(instance: &InstanceId, text: &str) -> Key {
    (instance.service.clone(), normalise(text))
}

fn keys(logs: &[InstanceLog]) -> BTreeSet<Key> {
    logs.iter().flat_map(|log| log.lines.iter().map(|line| key(&log.instance, &line.text))).collect()
}

/// Leaves out what passing runs print too. Of the rest, what equal failing runs print as well is no chance; where
/// that is nothing, every line may have numbers of its own, and all are shown.
fn choose(own: &[InstanceLog], windows: &Windows, usual: &BTreeSet<Key>, again: &[BTreeSet<Key>]) -> Printed {
    let mut lines = Vec::new();
    for log in own {
        let Some(windows) = windows.get(&log.instance) else { continue };
        let is_near = |at: u64| windows.iter().any(|(from, to)| (*from..=*to).contains(&at));
        for line in log.lines.iter().filter(|line| is_near(line.at_us) && !line.text.trim().is_empty()) {
            let key = key(&log.instance, &line.text);
            if !usual.contains(&key) {
                lines.push((line.at_us, key, &log.instance, &line.text));
            }
        }
    }
    lines.sort_by_key(|(at_us, ..)| *at_us);
    let is_steady = |key: &Key| again.iter().all(|run| run.contains(key));
    if lines.iter().any(|(_, key, ..)| is_steady(key)) {
        lines.retain(|(_, key, ..)| is_steady(key));
    }
    let more = lines.len().saturating_sub(MAX_LINES);
    let shown = lines.into_iter().skip(more).map(|(_, _, instance, text)| PrintedLine {
        instance: instance.clone(),
        text: one_line(text.trim_end(), MAX_LINE),
    });
    Printed { lines: shown.collect(), more }
}

#[cfg(test)]
mod tests {
    use faultscope_model::log::LogLine;

    use super::*;

    fn log(instance: &str, lines: &[(u64, &str)]) -> InstanceLog {
        let lines =
            lines.iter().map(|(at_us, text)| LogLine { at_us: *at_us, text: (*text).into() }).collect();
        InstanceLog { instance: instance.parse().unwrap(), lines, dropped: 0 }
    }

    fn chosen(own: &[InstanceLog], usual: &[InstanceLog], again: &[&[InstanceLog]]) -> Vec<String> {
        let windows = Windows::from([("order-1".parse().unwrap(), vec![(10, 20)])]);
        let again: Vec<_> = again.iter().map(|logs| keys(logs)).collect();
        choose(own, &windows, &keys(usual), &again).shown()
    }

    #[test]
    fn lines_that_say_why_are_left() {
        let own = [
            log(
                "order-1",
                &[(5, "starting"), (11, "GET /buy 17ms"), (12, "no stock left\u{1b}[2J"), (30, "late")],
            ),
            log("other-1", &[(12, "not a part of the call")]),
        ];
        let usual = [log("order-2", &[(900, "GET /buy 3ms")])];
        assert_eq!(chosen(&own, &usual, &[]), ["order-1 | no stock left\\u{1b}[2J"]);
    }

    #[test]
    fn what_comes_by_chance_is_left_out() {
        let own = [log("order-1", &[(11, "pause of 3 objects"), (12, "no stock left")])];
        let again = [log("order-1", &[(800, "no stock left")])];
        assert_eq!(chosen(&own, &[], &[&again]), ["order-1 | no stock left"]);
        // All lines differ from run to run: better too much than nothing.
        let other = [log("order-1", &[(800, "something else")])];
        assert_eq!(chosen(&own, &[], &[&other]).len(), 2);
    }

    #[test]
    fn of_many_lines_the_last_are_shown() {
        let texts: Vec<String> = (0..40).map(|number| format!("frame {number}")).collect();
        let lines: Vec<(u64, &str)> = texts.iter().map(|text| (12, text.as_str())).collect();
        let shown = chosen(&[log("order-1", &lines)], &[], &[]);
        assert_eq!((shown.len(), shown[0].as_str()), (1 + MAX_LINES, "(25 before)"));
        assert_eq!(shown.last().unwrap(), "order-1 | frame 39");
    }
}
