//! The drives of a trial: tests, perturbed tests, people.

mod people;
mod perturbed;
mod tests;

pub use people::{People, Published, PublishedPort};
pub(crate) use perturbed::errors_of_test;
pub use perturbed::{PerturbedTests, TrialTrace, Unperturbed};
pub use tests::{CaseError, Cases, Tests, find_cases};
