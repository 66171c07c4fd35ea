//! The trace that an adapter writes: a head, then one event in a line.

use serde::{Deserialize, Serialize};

use crate::{FormatError, Perturbation, TargetId, check_version};

/// The most events of a trace that are read: a test with more is a load and not a test.
const MOST_EVENTS: usize = 1_000_000;

/// What happened in a run, in its order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// An actor came to be.
    Create {
        /// Who made it; none for the test.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parent: Option<String>,
        /// Its location, the same in every run.
        child: String,
        /// Whether its state survives a restart.
        persistent: bool,
    },
    /// A message was sent.
    Send {
        /// By whom; empty for the test.
        #[serde(default)]
        from: String,
        /// To whom.
        to: String,
        /// Its type or operation.
        message: String,
        /// Its number.
        send: u64,
        /// The turn in which it was sent; none for the test.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        turn: Option<u64>,
        /// Whether it may arrive more than once.
        at_least_once: bool,
        /// How it is known again; where an adapter leaves it out, it follows from the numbers.
        #[serde(
            default,
            skip_serializing_if = "Option::is_none",
            serialize_with = "crate::target::as_text::option::serialize"
        )]
        target: Option<TargetId>,
    },
    /// A message was handled.
    Turn {
        /// Who handled it.
        to: String,
        /// The message's number.
        send: u64,
        /// The number of the turn.
        turn: u64,
    },
    /// A perturbation was carried out.
    Applied {
        /// What was done, and to which message.
        #[serde(serialize_with = "crate::perturbation::as_text::serialize")]
        perturbation: Perturbation,
    },
    /// An assertion about an actor failed.
    Blame {
        /// The actor.
        actor: String,
        /// What was said.
        #[serde(default)]
        message: String,
    },
}

/// The first line of a trace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceHead {
    /// The version of the format.
    pub faultscope_trace: u32,
    /// Who wrote it.
    pub adapter: String,
}

/// Reads a trace: a head, then one event in a line. A last line that is cut off is left out, as a test
/// that was killed leaves one.
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
        if events.len() > MOST_EVENTS {
            return Err(error(index + 1, format!("more than {MOST_EVENTS} events")));
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
        assert_eq!(old.problem, "version 9 of the format, not 1");
    }

    proptest! {
        #[test]
        fn reading_never_panics(text in "(?s).{0,300}") {
            let _ = read_trace(&text);
        }
    }
}
