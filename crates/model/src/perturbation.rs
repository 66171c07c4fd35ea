//! Perturbations of a test's run: what is done to one message, how that message is known again in the
//! next run, and the two files through which a test process is perturbed and tells what happened.
//!
//! The events are those of De Bleser et al. 2020 (section 3.2): Create, Send and Turn. The files are JSON
//! so that adapters for other languages can be written; `docs/guide/actors.md` describes them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The environment variable that names the file a test process writes its trace to.
pub const TRACE_FILE: &str = "FAULTSCOPE_TRACE";

/// The environment variable that names the file with the perturbations of a run.
pub const PERTURBATION_FILE: &str = "FAULTSCOPE_PERTURB";

/// The version of both files.
pub const FORMAT: u32 = 1;

/// The most events of a trace that are read.
const MOST_EVENTS: usize = 1_000_000;

/// The most characters of a target's name.
const MOST_NAME: usize = 240;

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

/// Names a message so that it is found again in another run of the same test: by what caused it, its
/// receiver, its type or operation, and its number among equal ones. What it carries is not part of it.
///
/// ```
/// use faultscope_model::perturbation::TargetId;
/// let order = TargetId::root().then("order", "Pay", 1);
/// assert_eq!(order.then("stock", "Reserve", 2).to_string(), "order.Pay/stock.Reserve#2");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TargetId(String);

impl TargetId {
    /// The test itself: what it does has no cause.
    pub fn root() -> Self {
        Self::default()
    }

    /// The message that this one caused: the n-th (from 1) of its type to its receiver.
    pub fn then(&self, to: &str, message: &str, ordinal: u32) -> Self {
        let mut name = self.0.clone();
        if !name.is_empty() {
            name.push('/');
        }
        name.push_str(&format!("{to}.{message}"));
        if ordinal > 1 {
            name.push_str(&format!("#{ordinal}"));
        }
        if name.len() > MOST_NAME {
            // Long ways are cut at the front; a hash keeps them apart.
            let cut = (name.len() - MOST_NAME / 2..name.len()).find(|&i| name.is_char_boundary(i));
            let cut = cut.unwrap_or(name.len());
            name = format!("~{:016x}{}", fnv(&name.as_bytes()[..cut]), &name[cut..]);
        }
        Self(name)
    }

    /// The second handling of this message when it is duplicated: what that causes is no target.
    pub fn again(&self) -> Self {
        Self(format!("{}+", self.0))
    }

    /// As it is written in files.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TargetId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl From<&str> for TargetId {
    fn from(name: &str) -> Self {
        Self(name.to_owned())
    }
}

fn fnv(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// A perturbation.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Perturbation {
    /// What is done.
    pub kind: Kind,
    /// To which message.
    pub target: TargetId,
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
    fn names_stay_short_and_different() {
        let chain = |last: &str| {
            let way = (0..60).fold(TargetId::root(), |at, i| at.then(&format!("actor{i}"), "Update", 1));
            way.then(last, "Update", 1)
        };
        assert!(chain("a").as_str().len() <= MOST_NAME + 40);
        assert!(chain("a").as_str().ends_with("actor59.Update/a.Update"));
        assert_ne!(chain("a"), chain("b"));
        let other = TargetId::root().then("x", "Start", 1);
        let other = (0..60).fold(other, |at, i| at.then(&format!("actor{i}"), "Update", 1));
        assert_ne!(other.then("a", "Update", 1), chain("a"), "what was cut still counts");
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
