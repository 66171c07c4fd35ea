//! Which perturbations of a test's run change its outcome: De Bleser et al. 2020, and beyond.
//!
//! [`Targets`] are read from the trace of an unperturbed run. [`RtR`] and [`RtDd`] are the paper's three
//! strategies. [`Screen`] is the default for neutral perturbations, which a correct system tolerates all at
//! once: it finds every defect, each minimal. [`Grow`] is for perturbations that may rightly change an
//! answer: sets of growing size, without those that can tell nothing new.

mod dd;
mod grow;
mod random_walk;
mod screen;
mod targets;
mod weigh;

pub use dd::RtDd;
pub use grow::{Grow, GrowOptions, SeenCall, SizeCount};
pub use random_walk::RtR;
pub use screen::{Screen, ScreenOptions};
pub use targets::{Candidate, Scope, Targets};

use faultscope_model::{DeltaSet, Outcome};

/// What a trial showed beyond its outcome.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Clues {
    /// Whose assertions failed, in the order in which they were made; empty when only the verdict is
    /// known.
    pub blamed: Vec<String>,
    /// What was asked for and not carried out, which makes a trial unresolved.
    pub missed: DeltaSet,
    /// What the test itself showed in a trial that is unresolved only because of what was missed.
    pub shown: Option<Outcome>,
    /// The calls that were seen, with their answers.
    pub calls: Vec<SeenCall>,
}

/// The actor that a message names as `error@[path]`, the paper's convention.
///
/// ```
/// use faultscope_search::resilience::blamed_in;
/// assert_eq!(blamed_in("assertion failed: error@[/user/a5] 3 != 2"), Some("/user/a5"));
/// assert_eq!(blamed_in("something else"), None);
/// ```
pub fn blamed_in(message: &str) -> Option<&str> {
    let rest = message.split_once("error@[")?.1;
    rest.split_once(']').map(|(path, _)| path)
}
