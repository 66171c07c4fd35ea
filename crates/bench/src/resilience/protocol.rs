//! The protocol between a benchmark and a program with real actors: one line of JSON each way.

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

/// A request.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ask {
    /// Sets the systems, in the format of a file of systems.
    Systems(String),
    /// A search.
    Search(Framework, Task),
    /// One run of a sound system with the first few of its perturbations: framework, system, count.
    Time(Framework, usize, usize),
}

/// A response.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The number of systems.
    Systems(usize),
    /// What a search needed and found.
    Search(Run),
    /// The seconds that a run took, and whether it passed with all perturbations applied.
    Time(f64, bool),
    /// The request cannot be served.
    Problem(String),
}
