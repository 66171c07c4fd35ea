//! Perturbations of a test's run: what is done to one message, how that message is known again in the
//! next run, and the two files through which a test process is perturbed and tells what happened.
//!
//! The events are those of De Bleser et al. 2020 (section 3.2): Create, Send and Turn. The files are JSON
//! so that adapters for other languages can be written; `docs/guide/actors.md` describes them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub use crate::target::{TargetId, masked_operation};

/// The environment variable that names the file a test process writes its trace to.
pub const TRACE_FILE: &str = "FAULTSCOPE_TRACE";

/// The environment variable that names the file with the perturbations of a run.
pub const PERTURBATION_FILE: &str = "FAULTSCOPE_PERTURB";

/// The version of both files.
pub const FORMAT: u32 = 1;

/// The most events of a trace that are read.
const MOST_EVENTS: usize = 1_000_000;

/// Something done to one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// It is handled twice.
    Duplicate,
    /// Its receiver is restarted after it was handled.
    Restart,
    /// It is held back for a short time.
    Delay,
    /// It changes places with the next unrelated one.
    Reorder,
    /// Its first attempt is answered with an error; a retry is left.
    ErrorFirst,
    /// It is handled, but the answer is lost.
    LostAnswer,
    /// It is answered with an error, however often it is tried.
    Error,
    /// It is not answered in time.
    Timeout,
    /// Its answer is cut.
    Truncate,
}

impl Kind {
    /// All of them, the neutral ones first.
    pub const ALL: [Self; 9] = [
        Self::Duplicate,
        Self::Restart,
        Self::Delay,
        Self::Reorder,
        Self::ErrorFirst,
        Self::LostAnswer,
        Self::Error,
        Self::Timeout,
        Self::Truncate,
    ];

    /// Whether a correct system passes with any number of them at once; the others may rightly change
    /// what a test sees.
    pub fn is_neutral(self) -> bool {
        matches!(self, Self::Duplicate | Self::Restart | Self::Delay | Self::Reorder | Self::ErrorFirst)
    }

    /// Its word in files and reports.
    pub fn word(self) -> &'static str {
        match self {
            Self::Duplicate => "duplicate",
            Self::Restart => "restart",
            Self::Delay => "delay",
            Self::Reorder => "reorder",
            Self::ErrorFirst => "error_first",
            Self::LostAnswer => "lost_answer",
            Self::Error => "error",
            Self::Timeout => "timeout",
            Self::Truncate => "truncate",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// A text that names no kind of perturbation, or no perturbation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidPerturbation(String);

impl FromStr for Kind {
    type Err = InvalidPerturbation;

    fn from_str(text: &str) -> Result<Self, InvalidPerturbation> {
        let word = text.trim().replace('-', "_");
        Self::ALL.into_iter().find(|kind| kind.word() == word).ok_or_else(|| {
            let all: Vec<_> = Self::ALL.iter().map(|kind| kind.word()).collect();
            let shown: String = text.chars().take(60).collect();
            InvalidPerturbation(format!("`{shown}` is no kind of perturbation: {}", all.join(", ")))
        })
    }
}

/// A perturbation.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Perturbation {
    /// What is done.
    pub kind: Kind,
    /// To which message.
    pub target: TargetId,
}

impl FromStr for Perturbation {
    type Err = InvalidPerturbation;

    /// Reads `kind target`, as it is shown.
    fn from_str(text: &str) -> Result<Self, InvalidPerturbation> {
        match text.trim().split_once(' ') {
            Some((kind, target)) if !target.trim().is_empty() => {
                Ok(Self { kind: kind.parse()?, target: TargetId::from(target.trim()) })
            }
            _ => Err(InvalidPerturbation(
                "a perturbation is a kind and its target: restart order POST /pay > stock PUT /s".into(),
            )),
        }
    }
}

impl fmt::Display for Perturbation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.target)
    }
}

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
        #[serde(default, skip_serializing_if = "Option::is_none")]
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
        /// Which.
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

/// The file with the perturbations of a run.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Configuration {
    /// The version of the format.
    pub faultscope_perturb: u32,
    /// What to do; all of it.
    pub perturbations: Vec<Perturbation>,
}

impl Configuration {
    /// These perturbations.
    pub fn new(perturbations: Vec<Perturbation>) -> Self {
        Self { faultscope_perturb: FORMAT, perturbations }
    }

    /// Reads the file.
    pub fn read(text: &str) -> Result<Self, FormatError> {
        let read: Self =
            serde_json::from_str(text).map_err(|e| FormatError { line: e.line(), problem: e.to_string() })?;
        version(read.faultscope_perturb)?;
        Ok(read)
    }
}

/// A file that is not of the format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct FormatError {
    /// Which line, from 1.
    pub line: usize,
    /// What is wrong.
    pub problem: String,
}

fn version(found: u32) -> Result<(), FormatError> {
    if found == FORMAT {
        return Ok(());
    }
    Err(FormatError { line: 1, problem: format!("version {found} of the format, not {FORMAT}") })
}

/// Reads a trace: a head, then one event in a line. A last line that is cut off is left out, as a test
/// that was killed leaves one.
pub fn read_trace(text: &str) -> Result<(TraceHead, Vec<Event>), FormatError> {
    let error = |line: usize, problem: String| FormatError { line, problem };
    let mut lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let (number, first) = lines.next().ok_or_else(|| error(1, "the trace is empty".into()))?;
    let head: TraceHead = serde_json::from_str(first).map_err(|e| error(number + 1, e.to_string()))?;
    version(head.faultscope_trace)?;
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
    fn perturbations_read_as_they_are_shown() {
        for kind in Kind::ALL {
            let target = TargetId::root().call("order", "POST", "/pay", 1).call("stock", "PUT", "/s", 2);
            let perturbation = Perturbation { kind, target };
            assert_eq!(perturbation.to_string().parse(), Ok(perturbation));
        }
        assert_eq!("lost-answer".parse(), Ok(Kind::LostAnswer));
        assert!("restart".parse::<Perturbation>().is_err() && "burn a b".parse::<Perturbation>().is_err());
    }

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
            let _ = Configuration::read(&text);
        }

        #[test]
        fn configurations_survive_writing(names in proptest::collection::vec("[a-z/.#+]{1,40}", 0..20)) {
            let perturbation = |name: &String| Perturbation { kind: Kind::Restart, target: name.as_str().into() };
            let written = Configuration::new(names.iter().map(perturbation).collect());
            let text = serde_json::to_string(&written).unwrap();
            prop_assert_eq!(Configuration::read(&text).unwrap(), written);
        }
    }
}
