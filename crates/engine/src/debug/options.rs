//! What can be chosen about a debug campaign.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How the next trials are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Strategy {
    /// Bayesian group testing: the fewest trials.
    #[default]
    Bayes,
    /// The paper's sequential reference.
    Ddmin,
    /// The paper's parallel algorithm.
    DdminPar,
}

impl Strategy {
    /// Its name, as it is typed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bayes => "bayes",
            Self::Ddmin => "ddmin",
            Self::DdminPar => "ddmin-par",
        }
    }
}

/// What is known of how often the failure shows where its cause is there.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Flaky {
    /// The start-up checks find out.
    #[default]
    Auto,
    /// Every trial is taken at its word.
    Off,
    /// In this share of the trials, above 0 and at most 1.
    Rate(f64),
}

/// What can be chosen about a debug campaign. What is written of it decides whether a campaign can be
/// resumed; what is left out may change meanwhile.
#[derive(Debug, Clone, Serialize)]
pub struct DebugOptions {
    /// How the next trials are chosen.
    pub strategy: Strategy,
    /// Go on after the first cause until none is left.
    pub all: bool,
    /// The test that fails; the only one that does when none is named.
    pub test: Option<String>,
    /// Run only the failing test, not the others beside it.
    #[serde(rename = "only")]
    pub only_failing_test: bool,
    /// How often the failure shows.
    pub flaky: Flaky,
    /// With which probability chance would have shown before an answer counts as confirmed.
    pub confidence: f64,
    /// How often the failing circumstance is tried before a test that always failed counts as stable.
    pub repeat: u32,
    /// Find where the failure starts for every number in the cause.
    #[serde(skip)]
    pub boundary: bool,
    /// Make the input of the failing test as small as it can be.
    #[serde(skip)]
    pub input: bool,
    /// After how long it stops with what it has.
    #[serde(skip)]
    pub most_time: Option<Duration>,
    /// After how many finished trials, start-up checks not counted, it stops with what it has.
    #[serde(skip)]
    pub most_trials: Option<usize>,
}

impl Default for DebugOptions {
    fn default() -> Self {
        Self {
            strategy: Strategy::default(),
            all: false,
            test: None,
            only_failing_test: false,
            flaky: Flaky::default(),
            confidence: 0.99,
            repeat: 3,
            boundary: false,
            input: false,
            most_time: None,
            most_trials: None,
        }
    }
}
