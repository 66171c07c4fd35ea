//! Figures: the one shape in which every bench reports.

use serde::{Deserialize, Serialize};

/// What a bench measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BenchReport {
    /// Its name.
    pub bench: String,
    /// Where and how it ran.
    pub environment: Environment,
    /// What came out.
    pub figures: Vec<Figure>,
    /// The same or more as tables, where single figures would not be read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tables: Vec<FigureTable>,
}

/// A table of a bench.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FigureTable {
    /// What it shows.
    pub title: String,
    /// The names of its columns.
    pub head: Vec<String>,
    /// Its rows.
    pub rows: Vec<Vec<String>>,
}

/// Where and how a bench ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Environment {
    /// Version of the tool.
    pub version: String,
    /// Optimised or not.
    pub profile: String,
    /// Operating system and kernel.
    pub system: String,
    /// Cores.
    pub cores: usize,
    /// The seed of everything random.
    pub seed: u64,
    /// What else matters to read the figures.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// One figure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// What it is.
    pub name: String,
    /// How much.
    pub value: f64,
    /// Of what.
    pub unit: String,
    /// Which way is better.
    pub better: Better,
    /// What is to be reached.
    pub goal: Option<f64>,
    /// What it is compared with in the same run.
    pub peer: Option<String>,
    /// How much that one has.
    pub peer_value: Option<f64>,
    /// Whether the goal is met.
    pub met: Option<bool>,
}

/// Which way is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// More is better.
    Higher,
    /// Less is better.
    Lower,
}

impl Figure {
    /// A figure without a goal.
    pub fn new(name: impl Into<String>, value: f64, unit: &str, better: Better) -> Self {
        let (name, unit) = (name.into(), unit.to_owned());
        Self { name, value, unit, better, goal: None, peer: None, peer_value: None, met: None }
    }

    /// The same with a goal.
    pub fn goal(mut self, goal: f64) -> Self {
        self.goal = Some(goal);
        self.met = Some(match self.better {
            Better::Higher => self.value >= goal,
            Better::Lower => self.value <= goal,
        });
        self
    }

    /// The same beside a peer's figure.
    pub fn peer(mut self, name: &str, value: f64) -> Self {
        self.peer = Some(name.to_owned());
        self.peer_value = Some(value);
        self
    }
}
