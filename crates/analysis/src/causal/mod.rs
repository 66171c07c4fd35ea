//! Causal models of observations: which column influences which, and what happens if one is set.
//!
//! [`discover`] finds a graph, [`StructuralModel::fit`] learns how each node follows from its causes, and the model
//! answers queries: [`StructuralModel::intervene`], [`StructuralModel::find_limit`], [`StructuralModel::explain`].
//! The method is that of CAR-PT (Giamattei et al., AST 2024).

mod dagma;
mod discovery;
mod error;
mod graph;
mod lingam;
mod matrix;
mod observations;
mod prior;
mod screening;
mod solve;
mod wide;

pub use discovery::{Caution, Discovery, DiscoveryOptions, Method, discover};
pub use error::CausalError;
pub use graph::{CausalGraph, Edge};
pub use observations::{MAX_COLUMNS, Observations};
pub use prior::{OrderStep, Prior};
pub use screening::{DropReason, DroppedColumn};
