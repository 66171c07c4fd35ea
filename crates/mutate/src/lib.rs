//! Mutation operators for services: source text in, mutants out.
//!
//! The fifteen operators of Table 3.5 ("Replay debugging", section 3.3) and the three fault types of MEPFL (section
//! 4.1). An operator about code changes the source of a service; one about configuration changes the application file.
//! Nothing here reads or writes files: who calls it hands in texts and gets [`Patch`]es.

mod config;
mod edit;
mod faults;
mod imports;
mod language;
mod mesh;
mod mutant;
mod operator;
mod operators;
mod outline;
mod patch;
mod sample;
mod snippet;
mod source;
mod walk;

pub use edit::Edit;
pub use faults::{Fault, FaultGroup, Symptom, faults};
pub use language::Language;
pub use mesh::{MeshEquivalent, mesh_equivalent};
pub use mutant::{Mutant, MutantId, Scope};
pub use operator::{Category, Operator, Target, UnknownOperator};
pub use operators::{MAX_MUTANTS, enumerate};
pub use patch::{Hunk, Line, Patch, PatchError};
pub use sample::choose_by_seed;
pub use source::{MAX_SOURCE, Source, UnusableSource};
