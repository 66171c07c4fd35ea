//! Failure signatures, and which failures count as the same.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ServiceName;
use crate::application::{Part, parts};

/// Which failure it was: two failures are the same if their signatures match.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Signature {
    /// The name of the test; the name of the service if its start failed.
    pub test: String,
    /// Where and how it ended.
    pub ending: Ending,
    /// The message, with ids, addresses, times and ports masked.
    pub message: String,
}

impl Signature {
    /// A service that does not become ready. Its message is left out: starts that fail for the same reason end in
    /// the same way, but log different things.
    pub fn for_start(service: &ServiceName, ending: StartEnding) -> Self {
        Self { test: service.to_string(), ending: Ending::Start(ending), message: String::new() }
    }

    /// The service that does not become ready; none if a test fails.
    pub fn service(&self) -> Option<&str> {
        matches!(self.ending, Ending::Start(_)).then_some(self.test.as_str())
    }

    /// The test that fails; none if a service does not become ready.
    pub fn failing_test(&self) -> Option<&str> {
        self.service().is_none().then_some(self.test.as_str())
    }

    /// Whether the same test fails or the same service does not become ready, in whatever way.
    pub fn is_about_same(&self, other: &Self) -> bool {
        self.test == other.test && self.service().is_some() == other.service().is_some()
    }
}

/// Replaces words that differ from run to run.
const ANY: &str = "<any>";

impl Signature {
    /// Whether a failure is this one; `<any>` in this signature matches any word.
    ///
    /// ```
    /// use faultscope_model::outcome::{Ending, Signature};
    /// let said = |message: &str| Signature { test: "t".into(), ending: Ending::Code(1), message: message.into() };
    /// let common = said("item plum is missing").common(&said("item kiwi is missing")).unwrap();
    /// assert_eq!(common.message, "item <any> is missing");
    /// assert!(common.matches_failure(&said("item fig is missing")) && !common.matches_failure(&said("no answer")));
    /// ```
    pub fn matches_failure(&self, found: &Self) -> bool {
        // Earlier versions filled saved values into the messages of steps; their bundles are still read.
        let is_step = matches!(self.ending, Ending::Step(_));
        let is_template = is_step && found.message.contains("${");
        let word = |(wanted, found): (&str, &str)| {
            wanted == found || wanted == ANY || is_template && is_filled_from(wanted, found)
        };
        let words = || self.message.split_whitespace().zip(found.message.split_whitespace());
        let same_words = count_words(&self.message) == count_words(&found.message) && words().all(word);
        let same_message = self.message == found.message || self.message == ANY;
        self.test == found.test
            && self.ending == found.ending
            && (same_message || (self.is_open() || is_template) && same_words)
    }

    /// What two failures have in common; none if they differ in the test or in how it ended.
    pub fn common(&self, other: &Self) -> Option<Self> {
        if self.test != other.test || self.ending != other.ending {
            return None;
        }
        if count_words(&self.message) != count_words(&other.message) {
            return Some(Self { message: ANY.to_owned(), ..self.clone() });
        }
        let words = self.message.split_whitespace().zip(other.message.split_whitespace());
        let common: Vec<&str> = words.map(|(a, b)| if a == b { a } else { ANY }).collect();
        Some(Self { message: common.join(" "), ..self.clone() })
    }

    /// The signature without its numbers, which may depend on a value that is varied.
    pub fn without_numbers(&self) -> Self {
        let open = |word: &str| word.contains(|c: char| c.is_ascii_digit());
        if !self.message.split_whitespace().any(open) {
            return self.clone();
        }
        let words = self.message.split_whitespace().map(|word| if open(word) { ANY } else { word });
        Self { message: words.collect::<Vec<_>>().join(" "), ..self.clone() }
    }

    /// Whether some of its words match anything.
    pub fn is_open(&self) -> bool {
        self.message.split_whitespace().any(|word| word == ANY)
    }
}

/// Whether a word is a template in which each `${name}` was replaced by something.
fn is_filled_from(word: &str, template: &str) -> bool {
    let parts = parts(template);
    let last = parts.len().saturating_sub(1);
    let mut rest = word;
    let mut is_anything_before = false;
    for (index, part) in parts.into_iter().enumerate() {
        match part {
            Part::Blank(_) => is_anything_before = true,
            Part::Text(text) => {
                let found = match (is_anything_before, index == last) {
                    (true, true) => rest.ends_with(text).then_some(rest.len() - text.len()),
                    (true, false) => rest.find(text),
                    (false, _) => rest.starts_with(text).then_some(0),
                };
                let Some(at) = found else { return false };
                rest = &rest[at + text.len()..];
                is_anything_before &= text.is_empty();
            }
        }
    }
    rest.is_empty() || is_anything_before
}

fn count_words(text: &str) -> usize {
    text.split_whitespace().count()
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(service) = self.service() {
            return write!(f, "service {service} does not come up: {}", self.ending);
        }
        write!(f, "{}: {}", self.test, self.ending)?;
        if self.message.is_empty() { Ok(()) } else { write!(f, ": {}", self.message) }
    }
}

/// How a failing test, or the start of a service, ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// The command exited with this code.
    Code(i32),
    /// The command was killed by this signal.
    Signal(i32),
    /// It took longer than `within`.
    TimedOut,
    /// The response to this step, counted from 1, was not as expected.
    Step(u32),
    /// A case of a discovered test failed.
    Case,
    /// A service ended by itself, although the test passed.
    Ended,
    /// A service did not come up.
    Start(StartEnding),
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit code {code}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
            Self::TimedOut => f.write_str("timed out"),
            Self::Step(number) => write!(f, "step {number}"),
            Self::Case => f.write_str("failed"),
            Self::Ended => f.write_str("a service ended"),
            Self::Start(ending) => ending.fmt(f),
        }
    }
}

/// How the start of a service failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StartEnding {
    /// It exited with this code.
    Code(i32),
    /// It was killed by this signal.
    Signal(i32),
    /// It was killed because it exceeded its memory limit.
    OutOfMemory,
    /// It was running but not ready in time.
    Late,
    /// It ended in an unknown way.
    Ended,
}

impl fmt::Display for StartEnding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exited with {code}"),
            Self::Signal(signal) => write!(f, "killed by signal {signal}"),
            Self::OutOfMemory => f.write_str("killed: out of memory"),
            Self::Late => f.write_str("not ready in time"),
            Self::Ended => f.write_str("ended"),
        }
    }
}
