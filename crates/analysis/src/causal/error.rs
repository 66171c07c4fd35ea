//! Why a causal model could not be made or asked.

use super::prior::{OrderStep, Prior};

/// Why a causal model could not be made or asked.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum CausalError {
    /// There is nothing to learn from.
    #[error("there are no rows")]
    NoRows,
    /// More columns than can be searched.
    #[error("{columns} columns are more than {most}")]
    TooManyColumns {
        /// The number of columns.
        columns: usize,
        /// The most.
        most: usize,
    },
    /// A column is longer or shorter than the others.
    #[error("column `{column}` has {rows} rows, and others have {others}")]
    UnequalColumns {
        /// The name.
        column: String,
        /// Its rows.
        rows: usize,
        /// The rows of the first column.
        others: usize,
    },
    /// A name is used twice.
    #[error("two columns are named `{0}`")]
    DuplicateName(String),
    /// A value is infinite or not a number.
    #[error("row {row} of column `{column}` is not a finite number")]
    NotFinite {
        /// The row, from 1.
        row: usize,
        /// The name of the column.
        column: String,
    },
    /// Effects cannot be told apart from noise.
    #[error("{rows} rows are too few for {columns} columns that vary: at least {needed} are needed")]
    TooFewRows {
        /// The number of rows.
        rows: usize,
        /// The columns that vary.
        columns: usize,
        /// The least number of rows.
        needed: usize,
    },
    /// Fewer than two columns vary.
    #[error("fewer than two columns vary, so there is nothing to explain")]
    NothingVaries,
    /// No column has this name.
    #[error("there is no column `{0}`")]
    UnknownColumn(String),
    /// Two pieces of prior knowledge exclude each other.
    #[error("`{0}` and `{1}` contradict each other")]
    Contradiction(Prior, Prior),
    /// The order that prior knowledge demands has a cycle.
    #[error("prior knowledge is cyclic: {}", join(.0))]
    CyclicPrior(Vec<OrderStep>),
    /// A given graph has a cycle.
    #[error("the graph is cyclic: {}", .0.join(" -> "))]
    CyclicGraph(Vec<String>),
    /// The optimiser left the region of acyclic graphs and did not find back.
    #[error("the search for a graph diverged; columns of very different scale are a common reason")]
    Diverged,
    /// A file of a model or graph does not fit together.
    #[error("the file is inconsistent: {0}")]
    Inconsistent(String),
    /// A query that asks for nothing.
    #[error("{0}")]
    BadQuery(String),
}

fn join(steps: &[OrderStep]) -> String {
    steps.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
