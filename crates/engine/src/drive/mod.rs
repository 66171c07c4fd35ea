//! The drives of a trial: tests, perturbed tests, recorded requests, people.

mod people;
mod perturbed;
mod replay;
mod tests;

pub use people::{People, Published, PublishedPort};
pub use perturbed::{PerturbedTests, TrialTrace, Unperturbed};
pub(crate) use perturbed::{Repetition, errors_of_test, failing_operations};
pub use replay::{HookError, Pace, Replay, ReplayedAnswer};
pub use tests::{CaseError, Cases, Tests, find_cases};
