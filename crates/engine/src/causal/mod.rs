//! Files around causal models: tables, prior knowledge, graphs and models in; pictures out.
//!
//! The models themselves are in `faultscope_analysis::causal`, which opens no file.

mod files;
mod picture;
mod priors;
mod report;
mod table;

pub use files::{FileError, FileProblem, read_graph, read_model};
pub use picture::{draw_dot, draw_svg};
pub use priors::read_priors;
pub use report::{DiscoveryReport, FitReport};
pub use table::{Missing, Table, TableOptions, read_table};
