//! The way in which tests fail, and which failures are the same.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ServiceName;

/// The way in which a test fails, or a service does not come up: equal signatures mean the same failure.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Signature {
    /// The test; the service where the ending is that of a start.
    pub test: String,
    /// How it ended.
    pub ending: Ending,
    /// What it said, with ids, addresses, times and ports masked.
    pub message: String,
}

impl Signature {
    /// A service that does not come up. What it says does not count: how it ends is what two starts that fail
    /// for the same reason have in common.
    pub fn of_start(service: &ServiceName, ending: StartEnding) -> Self {
        Self { test: service.to_string(), ending: Ending::Start(ending), message: String::new() }
    }

    /// The service that does not come up; none when it is a test that fails.
    pub fn service(&self) -> Option<&str> {
        matches!(self.ending, Ending::Start(_)).then_some(self.test.as_str())
    }

    /// The test that fails; none when it is a service that does not come up.
    pub fn failing_test(&self) -> Option<&str> {
        self.service().is_none().then_some(self.test.as_str())
    }

    /// Whether the same test fails or the same service does not come up, in whatever way.
    pub fn is_about_same(&self, other: &Self) -> bool {
        self.test == other.test && self.service().is_some() == other.service().is_some()
    }
}

/// Stands for words that differ from run to run.
const ANY: &str = "<any>";

impl Signature {
    /// Whether a failure is this one.
    ///
    /// ```
    /// use faultscope_model::outcome::{Ending, Signature};
    /// let said = |message: &str| Signature { test: "t".into(), ending: Ending::Code(1), message: message.into() };
    /// let common = said("item plum is missing").common(&said("item kiwi is missing")).unwrap();
    /// assert_eq!(common.message, "item <any> is missing");
    /// assert!(common.is(&said("item fig is missing")) && !common.is(&said("no answer")));
    /// ```
    pub fn is(&self, found: &Self) -> bool {
        let word = |(wanted, found): (&str, &str)| wanted == found || wanted == ANY;
        let words = || self.message.split_whitespace().zip(found.message.split_whitespace());
        let same_words = count_words(&self.message) == count_words(&found.message) && words().all(word);
        let same_message = self.message == found.message || self.message == ANY;
        self.test == found.test
            && self.ending == found.ending
            && (same_message || self.is_open() && same_words)
    }

    /// What two failures of one circumstance have in common; none where another test fails or ends otherwise.
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

    /// The same, whatever numbers it names: they may follow from a value that is varied.
    pub fn whatever_numbers(&self) -> Self {
        let open = |word: &str| word.contains(|c: char| c.is_ascii_digit());
        if !self.message.split_whitespace().any(open) {
            return self.clone();
        }
        let words = self.message.split_whitespace().map(|word| if open(word) { ANY } else { word });
        Self { message: words.collect::<Vec<_>>().join(" "), ..self.clone() }
    }

    /// Whether some of its words differ from run to run.
    pub fn is_open(&self) -> bool {
        self.message.split_whitespace().any(|word| word == ANY)
    }
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
    /// With this exit code.
    Code(i32),
    /// By this signal.
    Signal(i32),
    /// It took too long.
    TimedOut,
    /// This step was not answered as expected, counted from 1.
    Step(u32),
    /// A discovered test case failed.
    Case,
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
            Self::Start(ending) => ending.fmt(f),
        }
    }
}

/// How the start of a service ended that did not come up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StartEnding {
    /// It ended with this exit code.
    Code(i32),
    /// It was killed by this signal.
    Signal(i32),
    /// It was killed because it used more memory than it may.
    OutOfMemory,
    /// It runs but was not ready in time.
    Late,
    /// It ended, and nobody knows how.
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
