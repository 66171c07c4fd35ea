//! Causal models of observations: which column influences which, and what happens if one is set.
//!
//! [`discover`] finds a graph, [`StructuralModel::fit`] learns how each node follows from its causes, and the model
//! answers queries: [`StructuralModel::intervene`], [`StructuralModel::find_limit`], [`StructuralModel::explain`].
//! The method is that of CAR-PT (Giamattei et al., AST 2024).

mod dag_gnn;
mod dagma;
mod discovery;
mod error;
mod explain;
mod graph;
mod lingam;
mod matrix;
mod mechanism;
mod model;
mod observations;
mod prior;
mod query;
use faultscope_model::random;
mod screening;
mod solve;
mod strength;
mod wide;

pub use discovery::{Caution, Discovery, DiscoveryOptions, Method, discover};
pub use error::CausalError;
pub use explain::{CausalPath, Change, Explanation, OwnShare, split_name};
pub use graph::{CausalGraph, Edge};
pub use mechanism::{Shape, ShapeScore};
pub use model::{FitOptions, NodeSummary, StructuralModel};
pub use observations::{MAX_COLUMNS, Observations};
pub use prior::{OrderStep, Prior};
pub use query::{CurvePoint, Intervention, Limit, MAX_LEVELS, Prediction, Setting, Sweep, SweepAnswer};
pub use screening::{DropReason, DroppedColumn};
pub use strength::Arrow;
