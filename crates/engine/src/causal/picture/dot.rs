//! Causal graphs for Graphviz.

use faultscope_analysis::causal::{Arrow, CausalGraph};

use super::share_of;

/// Writes a graph for Graphviz, edges labelled with their strengths if arrows are given, otherwise with their weights.
pub fn draw_dot(graph: &CausalGraph, arrows: &[Arrow]) -> String {
    let mut text = "digraph causes {\n  rankdir=LR;\n  node [shape=box, style=rounded];\n".to_owned();
    for name in graph.nodes() {
        text += &format!("  {};\n", quote(name));
    }
    for edge in graph.edges() {
        let [from, to] = [edge.from, edge.to].map(|at| quote(&graph.nodes()[at]));
        let label = match share_of(graph, arrows, edge) {
            Some(share) => {
                format!(" [label=\"{:.0} %\", penwidth={:.1}]", 100.0 * share, 1.0 + 4.0 * share.min(1.0))
            }
            None if edge.weight.is_finite() => format!(" [label=\"{:.3}\"]", edge.weight),
            None => String::new(),
        };
        text += &format!("  {from} -> {to}{label};\n");
    }
    text + "}\n"
}

fn quote(name: &str) -> String {
    let plain: String = name.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    format!("\"{}\"", plain.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultscope_analysis::causal::Edge;

    #[test]
    fn names_are_quoted_and_edges_labelled() {
        let nodes = vec!["users".to_owned(), "a \"b\"\n".to_owned()];
        let graph = CausalGraph::new(nodes, vec![Edge { from: 0, to: 1, weight: 0.25 }]).unwrap();
        assert!(draw_dot(&graph, &[]).contains("\"users\" -> \"a \\\"b\\\" \" [label=\"0.250\"];"));
        let arrow = Arrow { from: "users".into(), to: "a \"b\"\n".into(), share: 0.5 };
        assert!(draw_dot(&graph, &[arrow]).contains("[label=\"50 %\", penwidth=3.0]"));
    }
}
