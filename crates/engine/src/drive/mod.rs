//! The drives of a trial: tests, perturbed tests, people.

mod people;
mod perturbed;
mod tests;

pub use people::{People, Published, PublishedPort};
pub use perturbed::{PerturbedTests, TrialTrace, Unperturbed};
pub(crate) use perturbed::{Repetition, errors_of_test, failing_operations};
pub use tests::{CaseError, Cases, Tests, find_cases};
