//! What a bench asks a program with real actors, and how that answers: one line of JSON each.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Run, Task};

/// An actor framework.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Framework {
    /// ractor.
    Ractor,
    /// kameo.
    Kameo,
}

impl fmt::Display for Framework {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ractor => "ractor",
            Self::Kameo => "kameo",
        })
    }
}

/// What is asked.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ask {
    /// These are the systems from now on, in the format of a file of systems.
    Systems(String),
    /// A search.
    Search(Framework, Task),
    /// One run of a sound system with the first so many of its perturbations.
    Time(Framework, usize, usize),
}

/// What is answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// So many systems are known.
    Systems(usize),
    /// What a search needed and found.
    Search(Run),
    /// How many seconds a run took, and whether it passed with everything carried out.
    Time(f64, bool),
    /// What was asked cannot be done.
    Problem(String),
}
