//! What can be chosen about a debug campaign.

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

/// What can be chosen about a debug campaign.
#[derive(Debug, Clone, Default)]
pub struct DebugOptions {
    /// How the next trials are chosen.
    pub strategy: Strategy,
    /// Go on after the first cause until none is left.
    pub all: bool,
    /// The test that fails; the only one that does when none is named.
    pub test: Option<String>,
    /// Run only the failing test, not the others beside it.
    pub only_failing_test: bool,
}
