//! The trace that an adapter writes: a head, then one event per line.

use serde::{Deserialize, Serialize};

use crate::{FormatError, Perturbation, TargetId, check_version};

/// The most events of a trace: more make it a load rather than a test.
const MAX_EVENTS: usize = 1_000_000;

/// What happened in a run, in order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// An actor was created.
    Create {
        /// Its creator; none for the test.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parent: Option<String>,
        /// Its location, the same in every run.
        child: String,
        /// Whether its state survives a restart.
        persistent: bool,
    },
    /// A message was sent.
    Send {
        /// The sender; empty for the test.
        #[serde(default)]
        from: String,
        /// The receiver.
        to: String,
        /// Its type or operation.
        message: String,
        /// Unique in the trace.
        send: u64,
        /// The turn in which it was sent; none for the test.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        turn: Option<u64>,
        /// Whether it may be delivered more than once.
        at_least_once: bool,
        /// Its stable name; if an adapter leaves it out, it is derived from the numbers.
        #[serde(
            default,
            skip_serializing_if = "Option::is_none",
            serialize_with = "crate::target_json::as_text::option::serialize"
        )]
        target: Option<TargetId>,
    },
    /// A message was handled.
    Turn {
        /// The actor that handled it.
        to: String,
        /// The number of the message.
        send: u64,
        /// Unique in the trace.
        turn: u64,
    },
    /// A perturbation was applied.
    Applied {
        /// The perturbation.
        #[serde(serialize_with = "crate::perturbation::as_text::serialize")]
        perturbation: Perturbation,
    },
    /// An assertion about an actor failed.
    Blame {
        /// The actor.
        actor: String,
        /// The failure message.
        #[serde(default)]
        message: String,
    },
}

/// The first line of a trace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceHead {
    /// The version of the format.
    pub faultscope_trace: u32,
    /// The name of the adapter.
    pub adapter: String,
}

/// Parses a trace: a head, then one event per line. An incomplete last line is ignored, since a killed
/// test leaves one.
pub fn read_trace(text: &str) -> Result<(TraceHead, Vec<Event>), FormatError> {
    let error = |line: usize, problem: String| FormatError { line, problem };
    let mut lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let (number, first) = lines.next().ok_or_else(|| error(1, "the trace is empty".into()))?;
    let head: TraceHead = serde_json::from_str(first).map_err(|e| error(number + 1, e.to_string()))?;
    check_version(head.faultscope_trace)?;
    let whole = text.ends_with('\n');
    let count = text.lines().count();
    let mut events = Vec::new();
    for (index, line) in lines {
        match serde_json::from_str(line) {
            Ok(event) => events.push(event),
            Err(_) if !whole && index + 1 == count => break,
            Err(e) => return Err(error(index + 1, e.to_string())),
        }
        if events.len() > MAX_EVENTS {
            return Err(error(index + 1, format!("more than {MAX_EVENTS} events")));
        }
    }
    Ok((head, events))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn traces_and_their_complaints() {
        let head = r#"{"faultscope_trace":1,"adapter":"ractor"}"#;
        let create = r#"{"event":"create","child":"a","persistent":true}"#;
        let (read, events) = read_trace(&format!("{head}\n{create}\n")).unwrap();
        assert_eq!((read.adapter.as_str(), events.len()), ("ractor", 1));
        let cut = read_trace(&format!("{head}\n{create}\n{{\"event\":\"cr")).unwrap();
        assert_eq!(cut.1.len(), 1, "a killed test leaves half a line");
        assert_eq!(read_trace(&format!("{head}\nnonsense\n{create}\n")).unwrap_err().line, 2);
        assert_eq!(read_trace("").unwrap_err().to_string(), "line 1: the trace is empty");
        let old = read_trace(r#"{"faultscope_trace":9,"adapter":"x"}"#).unwrap_err();
        assert_eq!(old.problem, "the file has version 9 of the format, expected 1");
    }

    proptest! {
        #[test]
        fn reading_never_panics(text in "(?s).{0,300}") {
            let _ = read_trace(&text);
        }
    }
}
