//! Perturbations of single messages.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::TargetId;

/// What is done to a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// It is handled twice.
    Duplicate,
    /// Its receiver is restarted after it was handled.
    Restart,
    /// It is held back for a short time.
    Delay,
    /// It is overtaken by the next unrelated one.
    Reorder,
    /// Its first attempt is answered with an error; a retry passes.
    ErrorFirst,
    /// It is handled, but the response is lost.
    LostAnswer,
    /// Every attempt is answered with an error.
    Error,
    /// It is not answered in time.
    Timeout,
    /// Its response is cut.
    Truncate,
    /// A service goes away for a while and comes back: before the test begins where the target is the service as a
    /// whole, during it where the target is one of its calls by number.
    Outage,
}

impl Kind {
    /// All of them, the neutral ones first.
    pub const ALL: [Self; 10] = [
        Self::Duplicate,
        Self::Restart,
        Self::Delay,
        Self::Reorder,
        Self::ErrorFirst,
        Self::Outage,
        Self::LostAnswer,
        Self::Error,
        Self::Timeout,
        Self::Truncate,
    ];

    /// Whether a correct system passes with any number of them at once; the others may legitimately change
    /// what a test sees.
    pub fn is_neutral(self) -> bool {
        matches!(
            self,
            Self::Duplicate | Self::Restart | Self::Delay | Self::Reorder | Self::ErrorFirst | Self::Outage
        )
    }

    /// The name in files and reports.
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
            Self::Outage => "outage",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// A text that is not a kind of perturbation, or not a perturbation.
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
            InvalidPerturbation(format!(
                "`{shown}` is not a kind of perturbation; use one of {}",
                all.join(", ")
            ))
        })
    }
}

/// A perturbation of one message.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Perturbation {
    /// What is done.
    pub kind: Kind,
    /// The stable name of the message.
    pub target: TargetId,
}

impl Perturbation {
    /// Whether a correct system passes with any number of them at once. A service that is away during a test may change
    /// what the test sees; one that was away before it may not.
    pub fn is_neutral(&self) -> bool {
        self.kind.is_neutral() && self.target.any_call_number().is_none()
    }
}

/// Writes perturbations with their targets as text, the form of the files that adapters read and write.
pub(crate) mod as_text {
    use serde::{Serialize, Serializer};

    use super::{Kind, Perturbation, TargetId};

    #[derive(Serialize)]
    struct Written<'a> {
        kind: Kind,
        #[serde(serialize_with = "crate::target_json::as_text::serialize")]
        target: &'a TargetId,
    }

    impl<'a> From<&'a Perturbation> for Written<'a> {
        fn from(perturbation: &'a Perturbation) -> Self {
            Self { kind: perturbation.kind, target: &perturbation.target }
        }
    }

    pub(crate) fn serialize<S: Serializer>(
        perturbation: &Perturbation,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        Written::from(perturbation).serialize(serializer)
    }

    pub(crate) mod list {
        use super::{Perturbation, Serializer, Written};

        pub(crate) fn serialize<S: Serializer>(
            perturbations: &[Perturbation],
            serializer: S,
        ) -> Result<S::Ok, S::Error> {
            serializer.collect_seq(perturbations.iter().map(Written::from))
        }
    }
}

impl FromStr for Perturbation {
    type Err = InvalidPerturbation;

    /// Parses `kind target`, as it is displayed.
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

#[cfg(test)]
mod tests {
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
}
