//! Benchmarks, simulators and peers: what `faultscope bench` measures.
//!
//! No capability uses this crate. Simulators and experiments in virtual time need only the searches and are always
//! available, for tests of searches and for the sample actors; everything that runs the product is behind the feature
//! `yardsticks`.

#[cfg(feature = "yardsticks")]
mod args;
#[cfg(feature = "yardsticks")]
mod bench;
#[cfg(feature = "yardsticks")]
mod campaign;
#[cfg(feature = "yardsticks")]
mod causal;
pub mod debug;
#[cfg(feature = "yardsticks")]
mod detect;
#[cfg(feature = "yardsticks")]
mod error;
pub mod figure;
#[cfg(feature = "yardsticks")]
mod ingest;
#[cfg(feature = "yardsticks")]
mod load;
#[cfg(feature = "yardsticks")]
mod mesh;
#[cfg(feature = "yardsticks")]
mod part;
#[cfg(feature = "yardsticks")]
mod platform;
#[cfg(feature = "yardsticks")]
mod query;
use faultscope_model::random;
#[cfg(feature = "yardsticks")]
mod report;
pub mod resilience;
pub mod simulate;
#[cfg(feature = "yardsticks")]
mod spans;
#[cfg(feature = "yardsticks")]
mod usage;

#[cfg(feature = "yardsticks")]
pub use args::{BenchArgs, BenchPartArgs};
#[cfg(feature = "yardsticks")]
pub use bench::{Host, run};
#[cfg(feature = "yardsticks")]
pub use error::{BenchError, BenchErrorKind};
#[cfg(feature = "yardsticks")]
pub use load::{MAX_OTHERS, MachineLoad};
#[cfg(feature = "yardsticks")]
pub use part::run_part;
#[cfg(feature = "yardsticks")]
pub use report::{Conclusion, Environment, Report, Table};
