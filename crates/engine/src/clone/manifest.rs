//! What is stored about a clone, beside its data.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use faultscope_model::digest::Digest;
use faultscope_model::plan::Plan;
use faultscope_model::{CampaignId, Circumstance, InstanceId, Treatment, units};
use faultscope_platform::Snapshot;
use serde::{Deserialize, Serialize};

/// The version of this format.
pub(super) const FORMAT: u64 = 1;

/// Digits of an id: enough for thousands of clones, few enough to type.
const ID_DIGITS: usize = 8;

/// The id of a clone: eight hexadecimal digits, also the name of its folder.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CloneId(String);

/// What made somebody take a clone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum CloneTrigger {
    /// `faultscope clone`.
    Hand,
    /// A schedule.
    Schedule {
        /// The time between two clones.
        #[serde(with = "units::duration")]
        every: Duration,
    },
    /// An instance ended by itself, and left its data.
    Exit {
        /// The instance.
        instance: InstanceId,
    },
    /// A detector found something unusual.
    Anomaly {
        /// What it found.
        sentence: String,
    },
    /// Somebody edited a copy of another clone.
    Edit {
        /// The clone it was a copy of.
        of: CloneId,
    },
}

/// What became of an instance's state in memory. A clone has files; processes start anew from them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum MemoryState {
    /// It is not in the clone.
    NotKept,
    /// The service wrote it to its data before.
    Hook {
        /// The command of the application file.
        command: Vec<String>,
        /// How long that took.
        #[serde(with = "units::duration")]
        took: Duration,
    },
    /// It should have, and what is in the clone may be old.
    HookFailed {
        /// The command of the application file.
        command: Vec<String>,
        /// Why.
        reason: String,
    },
}

/// What is known about an instance beside its data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceState {
    /// The instance.
    pub id: InstanceId,
    /// What became of its state in memory.
    pub memory: MemoryState,
}

/// Everything about a clone but its data. It holds the environment of services, so that it is sealed at rest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// The version of this format.
    pub format: u64,
    /// Its id.
    pub id: CloneId,
    /// The name that a user gave it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The name of the application.
    pub application: String,
    /// The version of faultscope that took it.
    pub tool: String,
    /// The version of the operating system's kernel.
    pub kernel: String,
    /// The campaign of the application that was cloned.
    pub campaign: CampaignId,
    /// When it was taken, in microseconds since 1970.
    pub taken_us: u64,
    /// What made somebody take it.
    pub trigger: CloneTrigger,
    /// What the application was given.
    pub treatment: Treatment,
    /// The settings it ran under: instances, limits, versions.
    pub circumstance: Circumstance,
    /// The exact commands, environments and limits.
    pub plan: Plan,
    /// What `${faultscope}` stood for in them.
    pub program: String,
    /// Stands for the application's files; other files give another one.
    pub source: String,
    /// Variables whose values were left out when it was exported.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
    /// What became of state in memory.
    pub instances: Vec<InstanceState>,
    /// The data of all instances.
    pub snapshot: Snapshot,
}

impl Manifest {
    /// What became of the state in memory of an instance.
    pub fn memory(&self, id: &InstanceId) -> &MemoryState {
        let found = self.instances.iter().find(|instance| instance.id == *id);
        found.map_or(&MemoryState::NotKept, |instance| &instance.memory)
    }

    /// Bytes of data.
    pub fn bytes(&self) -> u64 {
        let own = self.snapshot.instances.iter().map(|instance| instance.data.bytes);
        own.chain(self.snapshot.shared.iter().map(|shared| shared.data.bytes)).sum()
    }

    /// The longest time that an instance stood still.
    pub fn longest_pause(&self) -> Duration {
        self.snapshot.instances.iter().map(|instance| instance.pause).max().unwrap_or_default()
    }
}

impl CloneId {
    /// An id that differs for each time and process.
    pub(super) fn make(taken_us: u64, attempt: u32) -> Self {
        let digest = Digest::hash_json(&(taken_us, std::process::id(), attempt)).to_string();
        let digits = digest.chars().filter(char::is_ascii_hexdigit).map(|digit| digit.to_ascii_lowercase());
        Self(digits.take(ID_DIGITS).collect())
    }

    /// Its digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for CloneId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for CloneId {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if text.len() == ID_DIGITS && text.bytes().all(is_digit) {
            return Ok(Self(text.to_owned()));
        }
        Err("the id of a clone has eight hexadecimal digits")
    }
}

impl TryFrom<String> for CloneId {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<CloneId> for String {
    fn from(id: CloneId) -> Self {
        id.0
    }
}

impl fmt::Display for CloneTrigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hand => f.write_str("by hand"),
            Self::Schedule { every } => write!(f, "every {}", units::show_duration(*every)),
            Self::Exit { instance } => write!(f, "{instance} ended"),
            Self::Anomaly { sentence } => f.write_str(sentence),
            Self::Edit { of } => write!(f, "edited copy of {of}"),
        }
    }
}

impl fmt::Display for MemoryState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotKept => f.write_str("not kept"),
            Self::Hook { command, took } => {
                write!(f, "written by `{}` in {}", command.join(" "), units::show_duration(*took))
            }
            Self::HookFailed { command, reason } => write!(f, "`{}` failed: {reason}", command.join(" ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_folder_names_and_nothing_else() {
        let id = CloneId::make(1, 0);
        assert_eq!(id.to_string().parse::<CloneId>().unwrap(), id);
        assert_ne!(CloneId::make(1, 1), id);
        for bad in ["", "..", "0123456", "0123456g", "0123456A", "../../ab", "012345678"] {
            assert!(bad.parse::<CloneId>().is_err(), "{bad}");
            assert!(serde_json::from_value::<CloneId>(bad.into()).is_err(), "{bad}");
        }
    }
}
