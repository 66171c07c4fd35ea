//! `bench resilience`: the strategies of `resilience` on systems with known defects.
//!
//! Everything but the command itself is without I/O: programs with real actors run the same experiment.

#[cfg(feature = "yardsticks")]
pub(crate) mod command;
mod experiment;
#[cfg(feature = "yardsticks")]
mod live;
mod protocol;
#[cfg(feature = "yardsticks")]
mod replay;
#[cfg(feature = "yardsticks")]
mod runner;
pub mod simulate;
#[cfg(feature = "yardsticks")]
mod tables;
mod task;

pub use experiment::{Paper, Strategy, TABLE_1, Variant};
pub use protocol::{Answer, Ask, Framework};
pub use task::{Row, Run, RunMutant, Task, cell, cells};
