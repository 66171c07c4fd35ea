//! What `discover` and `fit` report, as data.

use faultscope_analysis::causal::{Arrow, Discovery, NodeSummary, StructuralModel};
use serde::Serialize;

/// A graph that was found in a file.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DiscoveryReport {
    /// Rows that were skipped because a value was missing.
    pub skipped_rows: usize,
    /// What was found.
    #[serde(flatten)]
    pub discovery: Discovery,
}

/// A model that was fitted on a file.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FitReport {
    /// Rows that were used.
    pub rows: usize,
    /// Rows that were skipped because a value was missing.
    pub skipped_rows: usize,
    /// The seed of folds and draws.
    pub seed: u64,
    /// How the graph was found, unless it was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub discovery: Option<Discovery>,
    /// The mechanism of each node.
    pub nodes: Vec<NodeSummary>,
    /// The strength of each edge.
    pub arrows: Vec<Arrow>,
    /// Edges that were cut because they are weak.
    pub cut: Vec<Arrow>,
}

impl FitReport {
    /// Summarises a model.
    pub fn new(model: &StructuralModel, discovery: Option<Discovery>, skipped_rows: usize) -> Self {
        Self {
            rows: model.rows,
            skipped_rows,
            seed: model.seed,
            discovery,
            nodes: model.summarize(),
            arrows: model.arrows.clone(),
            cut: model.cut.clone(),
        }
    }
}
