//! Which trial of which campaign: roles, numbers and kinds.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::ids::InvalidId;

/// One execution within a campaign: what it is for, and its number among those, from 1.
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
    /// What it is for.
    pub role: TrialRole,
    /// Its number among the trials of this role, from 1.
    pub number: u32,
}

/// What a trial is for. Runs are named and numbered by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrialRole {
    /// Chosen by a search, or one of a plain list.
    Search,
    /// Repeats a known circumstance, to see whether the environment is still the same.
    Sentinel,
    /// A start-up check of the simplest circumstance.
    CheckSimplest,
    /// A start-up check of the failing circumstance.
    CheckFailing,
    /// Another value of a number in a cause.
    Boundary,
    /// A smaller input.
    Input,
    /// A failure of a flaky test that had to come again; format 2 kept those apart, and nothing makes them now.
    Again,
    /// A test without perturbations, whose calls are what can be perturbed.
    Baseline,
}

impl TrialRole {
    /// All of them; the place of each is its code in stored rows, so new ones go to the end.
    const ALL: [Self; 8] = [
        Self::Search,
        Self::Sentinel,
        Self::CheckSimplest,
        Self::CheckFailing,
        Self::Boundary,
        Self::Input,
        Self::Again,
        Self::Baseline,
    ];

    /// How runs of this role are named; those that a search chose have nothing but a number.
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
        }
    }

    /// Whether the first of its kind goes without its number: most campaigns have just one.
    fn is_often_alone(self) -> bool {
        matches!(self, Self::Sentinel | Self::CheckSimplest | Self::CheckFailing | Self::Baseline)
    }

    /// Whether a budget of trials counts it. Checks are what makes an answer possible at all, and sentinels guard
    /// it: neither is what people want to limit.
    pub fn is_budgeted(self) -> bool {
        matches!(self, Self::Search | Self::Boundary | Self::Input)
    }

    /// Whether a run from before an interruption can answer it. A sentinel says that the environment is the same
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

    /// What it is called after the dot in the name of its run: `12`, `check-failing`, `sentinel-2`.
    pub fn name(self) -> String {
        let Self { role, number } = self;
        match role {
            TrialRole::Search => number.to_string(),
            _ if number == 1 && role.is_often_alone() => role.name().to_owned(),
            _ => format!("{}-{number}", role.name()),
        }
    }

    /// Itself as one number, for rows of integers: the code of the role above 32 bits of its number.
    pub fn key(self) -> u64 {
        (self.role as u64) << 32 | u64::from(self.number)
    }

    /// The trial of a key; none where no role has its code.
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

/// What a campaign is: the command that ran it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CampaignKind {
    /// Tests under one circumstance.
    Test,
    /// An application that is kept up for people.
    Up,
    /// A failing circumstance, reduced.
    Debug,
    /// Tests, perturbed.
    Resilience,
    /// The failure of a bundle, shown again.
    Repro,
    /// One trial that shows what an application does.
    Probe,
    /// The sample.
    Demo,
    /// A yardstick.
    Bench,
}

impl CampaignKind {
    /// Its word in files and on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Self::Test => "test",
            Self::Up => "up",
            Self::Debug => "debug",
            Self::Resilience => "resilience",
            Self::Repro => "repro",
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
