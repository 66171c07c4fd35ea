//! Pictures of causal graphs.

mod dot;
mod layout;
mod svg;

pub use dot::draw_dot;
pub use svg::draw_svg;

use faultscope_analysis::causal::{Arrow, CausalGraph, Edge};

/// The strength of an edge, if arrows were measured.
fn share_of(graph: &CausalGraph, arrows: &[Arrow], edge: &Edge) -> Option<f64> {
    let [from, to] = [edge.from, edge.to].map(|at| &graph.nodes()[at]);
    arrows.iter().find(|arrow| (&arrow.from, &arrow.to) == (from, to)).map(|arrow| arrow.share)
}
