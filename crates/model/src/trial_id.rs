//! Which trial of which campaign: roles, numbers and kinds.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::ids::InvalidId;

/// One trial within a campaign: its role, and its number within that role, from 1.
///
/// ```
/// use faultscope_model::{TrialId, TrialRole};
/// let check = TrialId::new(TrialRole::CheckFailing, 3);
/// assert_eq!(check.to_string(), "check-failing-3");
/// assert_eq!("check-failing-3".parse(), Ok(check));
/// assert_eq!(TrialId::new(TrialRole::Search, 12).name(), "12");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TrialId {
    /// What the trial is for.
    pub role: TrialRole,
    /// Counted within the role, from 1.
    pub number: u32,
}

/// What a trial is for. Runs are named and numbered by role.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrialRole {
    /// Chosen by a search, or one of a plain list.
    Search,
    /// Repeats a known circumstance to notice changes of the environment.
    Sentinel,
    /// A start-up check of the simplest circumstance.
    CheckSimplest,
    /// A start-up check of the failing circumstance.
    CheckFailing,
    /// Tries another value for a numeric delta of a cause.
    Boundary,
    /// Tries a smaller input.
    Input,
    /// Repeats a failure of a flaky test; only format 2 has such trials.
    Again,
    /// Runs a test without perturbations to learn which calls can be perturbed.
    Baseline,
    /// Repeats what an answer rests on, before it is called proven.
    Confirm,
}

impl TrialRole {
    /// All roles; the position of each is its code in stored rows, so new ones go to the end.
    const ALL: [Self; 9] = [
        Self::Search,
        Self::Sentinel,
        Self::CheckSimplest,
        Self::CheckFailing,
        Self::Boundary,
        Self::Input,
        Self::Again,
        Self::Baseline,
        Self::Confirm,
    ];

    /// The prefix of run names; runs that a search chose have only a number.
    fn name(self) -> &'static str {
        match self {
            Self::Search => "",
            Self::Sentinel => "sentinel",
            Self::CheckSimplest => "check-simplest",
            Self::CheckFailing => "check-failing",
            Self::Boundary => "boundary",
            Self::Input => "input",
            Self::Again => "again",
            Self::Baseline => "baseline",
            Self::Confirm => "confirm",
        }
    }

    /// Whether the first trial of this role is named without its number: most campaigns have just one.
    fn is_often_alone(self) -> bool {
        matches!(self, Self::Sentinel | Self::CheckSimplest | Self::CheckFailing | Self::Baseline)
    }

    /// Whether a budget of trials counts it. Checks make an answer possible at all, and sentinels guard
    /// it: users do not want to limit either.
    pub fn is_budgeted(self) -> bool {
        matches!(self, Self::Search | Self::Boundary | Self::Input | Self::Confirm)
    }

    /// Whether a run from before an interruption can answer it. A sentinel shows that the environment is unchanged
    /// *now*; a baseline is needed for the names of its calls, which are not stored.
    pub fn is_resumable(self) -> bool {
        !matches!(self, Self::Sentinel | Self::Baseline)
    }
}

impl TrialId {
    /// A trial that a search chose, or one of a plain list.
    pub fn chosen(number: u32) -> Self {
        Self::new(TrialRole::Search, number)
    }

    /// A trial of a role.
    pub fn new(role: TrialRole, number: u32) -> Self {
        Self { role, number }
    }

    /// Whether a search chose it, or it is one of a plain list.
    pub fn is_chosen(self) -> bool {
        self.role == TrialRole::Search
    }

    /// The part of a run's name after the dot: `12`, `check-failing`, `sentinel-2`.
    pub fn name(self) -> String {
        let Self { role, number } = self;
        match role {
            TrialRole::Search => number.to_string(),
            _ if number == 1 && role.is_often_alone() => role.name().to_owned(),
            _ => format!("{}-{number}", role.name()),
        }
    }

    /// One number for integer columns: the code of the role above the 32 bits of the number.
    pub fn key(self) -> u64 {
        (self.role as u64) << 32 | u64::from(self.number)
    }

    /// The trial of a key; none if no role has its code.
    pub fn from_key(key: u64) -> Option<Self> {
        let role = TrialRole::ALL.get(usize::try_from(key >> 32).ok()?)?;
        Some(Self::new(*role, key as u32))
    }
}

impl FromStr for TrialId {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let refuse = || InvalidId {
            what: "trial",
            text: text.chars().take(80).collect(),
            reason: "it reads like `12` or `check-failing-3`",
        };
        if let Ok(number) = text.parse() {
            return Ok(Self::new(TrialRole::Search, number));
        }
        for role in TrialRole::ALL.into_iter().filter(|role| *role != TrialRole::Search) {
            let Some(rest) = text.strip_prefix(role.name()) else { continue };
            match rest.strip_prefix('-').map(str::parse) {
                None if rest.is_empty() && role.is_often_alone() => return Ok(Self::new(role, 1)),
                Some(Ok(number)) => return Ok(Self::new(role, number)),
                _ => {}
            }
        }
        Err(refuse())
    }
}

impl fmt::Display for TrialId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_chosen() { write!(f, "trial-{}", self.number) } else { f.write_str(&self.name()) }
    }
}

impl Serialize for TrialId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.name())
    }
}

impl<'de> Deserialize<'de> for TrialId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// The command that a campaign belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CampaignKind {
    /// Runs tests under one circumstance.
    Test,
    /// Keeps an application up for people.
    Up,
    /// Reduces a failing circumstance.
    Debug,
    /// Perturbs tests.
    Resilience,
    /// Reproduces the failure of a bundle.
    Repro,
    /// Records a system that the tool did not start.
    Record,
    /// Sends recorded requests again.
    Replay,
    /// Deploys once to observe an application.
    Probe,
    /// Runs the sample application.
    Demo,
    /// Measures the tool itself.
    Bench,
}

impl CampaignKind {
    /// The name in files and on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Self::Test => "test",
            Self::Up => "up",
            Self::Debug => "debug",
            Self::Resilience => "resilience",
            Self::Repro => "repro",
            Self::Record => "record",
            Self::Replay => "replay",
            Self::Probe => "probe",
            Self::Demo => "demo",
            Self::Bench => "bench",
        }
    }
}

impl fmt::Display for CampaignKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trials_read_back_by_name_and_by_key() {
        let names = [
            (TrialRole::Search, 12, "12"),
            (TrialRole::Sentinel, 2, "sentinel-2"),
            (TrialRole::CheckSimplest, 1, "check-simplest"),
            (TrialRole::CheckFailing, 3, "check-failing-3"),
            (TrialRole::Boundary, 1, "boundary-1"),
            (TrialRole::Input, 1, "input-1"),
            (TrialRole::Again, 4, "again-4"),
            (TrialRole::Baseline, 1, "baseline"),
        ];
        for (role, number, name) in names {
            let trial = TrialId::new(role, number);
            assert_eq!((trial.name().as_str(), name.parse()), (name, Ok(trial)));
            assert_eq!(TrialId::from_key(trial.key()), Some(trial));
            assert_eq!(trial.is_chosen(), role == TrialRole::Search);
        }
        // Keys that are in stored rows.
        assert_eq!(TrialId::new(TrialRole::CheckFailing, 3).key(), 3 << 32 | 3);
        assert_eq!(TrialId::from_key(99 << 32), None);
        for bad in ["", "boundary", "check-failing-", "check-failing-x", "nobody-1"] {
            assert!(bad.parse::<TrialId>().is_err(), "{bad}");
        }
    }
}
