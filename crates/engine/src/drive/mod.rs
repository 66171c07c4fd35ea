//! The drives of a trial: tests, perturbed tests, people.

mod people;
mod perturbed;
mod tests;

pub use people::{People, Published, PublishedPort};
pub use perturbed::{PerturbedTests, TrialTrace};
pub(crate) use perturbed::{calls_of, errors_of_test};
pub use tests::{CaseError, Cases, Tests, find_cases};
