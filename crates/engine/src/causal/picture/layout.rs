//! Where the nodes of a graph are drawn: in layers from left to right (Sugiyama et al. 1981).
//!
//! A node is one layer right of its last cause. An edge over several layers passes through a place of its own in each
//! of them, so that it bends around nodes instead of crossing them.

use faultscope_analysis::causal::CausalGraph;

/// Sweeps over the layers, right and left in turn; more change nothing that is seen.
const SWEEPS: usize = 24;

/// Where everything is, in units of one row and one layer.
#[derive(Debug)]
pub(super) struct Layout {
    /// The layer and row of each node.
    pub(super) nodes: Vec<(usize, f64)>,
    /// The rows that each edge passes, one for each layer from that of its cause to that of its effect.
    pub(super) routes: Vec<Vec<f64>>,
    /// The number of layers.
    pub(super) layers: usize,
    /// The number of rows.
    pub(super) rows: f64,
}

/// A node, or the place where an edge passes a layer.
#[derive(Debug, Default)]
struct Stop {
    left: Vec<usize>,
    right: Vec<usize>,
    /// Places of edges may be closer together than nodes.
    is_node: bool,
    row: f64,
}

/// Finds places for all nodes and edges.
pub(super) fn lay_out(graph: &CausalGraph) -> Layout {
    let mut layer_of = vec![0usize; graph.nodes().len()];
    for &at in graph.order() {
        layer_of[at] = graph.parents(at).map(|parent| layer_of[parent] + 1).max().unwrap_or_default();
    }
    pull_roots(graph, &mut layer_of);
    let count = layer_of.iter().max().map_or(0, |most| most + 1);
    let mut stops: Vec<Stop> = layer_of.iter().map(|_| Stop { is_node: true, ..Stop::default() }).collect();
    let mut layers: Vec<Vec<usize>> = vec![Vec::new(); count];
    for &at in graph.order() {
        layers[layer_of[at]].push(at);
    }
    let mut chains: Vec<Vec<usize>> = Vec::new();
    for edge in graph.edges() {
        let mut chain = vec![edge.from];
        for layer in &mut layers[layer_of[edge.from] + 1..layer_of[edge.to]] {
            layer.push(stops.len());
            chain.push(stops.len());
            stops.push(Stop::default());
        }
        chain.push(edge.to);
        for pair in chain.windows(2) {
            stops[pair[0]].right.push(pair[1]);
            stops[pair[1]].left.push(pair[0]);
        }
        chains.push(chain);
    }
    order_layers(&mut layers, &mut stops);
    place_rows(&layers, &mut stops);
    let top = stops.iter().map(|stop| stop.row).fold(f64::INFINITY, f64::min);
    let bottom = stops.iter().map(|stop| stop.row).fold(f64::NEG_INFINITY, f64::max);
    let row = |at: usize| stops[at].row - top;
    Layout {
        nodes: layer_of.iter().enumerate().map(|(at, &layer)| (layer, row(at))).collect(),
        routes: chains.iter().map(|chain| chain.iter().map(|&at| row(at)).collect()).collect(),
        layers: count,
        rows: if graph.nodes().is_empty() { 0.0 } else { bottom - top + 1.0 },
    }
}

/// Moves nodes without causes next to their first effect: their edges need not cross the whole picture.
fn pull_roots(graph: &CausalGraph, layer_of: &mut [usize]) {
    for at in 0..layer_of.len() {
        if graph.parents(at).next().is_none() {
            let effects = graph.edges().iter().filter(|edge| edge.from == at).map(|edge| layer_of[edge.to]);
            layer_of[at] = effects.min().map_or(0, |first| first - 1);
        }
    }
}

/// Orders each layer by the mean place of neighbours, and keeps the order with the fewest crossings.
fn order_layers(layers: &mut [Vec<usize>], stops: &mut [Stop]) {
    let mut best: (usize, Vec<Vec<usize>>) = (usize::MAX, layers.to_vec());
    for sweep in 0..SWEEPS {
        number_rows(layers, stops);
        let crossings = count_crossings(layers, stops);
        if crossings < best.0 {
            best = (crossings, layers.to_vec());
        }
        let turns: Vec<usize> = if sweep % 2 == 0 {
            (1..layers.len()).collect()
        } else {
            (0..layers.len().saturating_sub(1)).rev().collect()
        };
        for layer in turns {
            let middle = |at: &usize| {
                let stop = &stops[*at];
                let neighbours = if sweep % 2 == 0 { &stop.left } else { &stop.right };
                match neighbours.len() {
                    0 => stop.row,
                    count => neighbours.iter().map(|&other| stops[other].row).sum::<f64>() / count as f64,
                }
            };
            let mut keyed: Vec<(f64, usize)> = layers[layer].iter().map(|at| (middle(at), *at)).collect();
            keyed.sort_by(|a, b| a.0.total_cmp(&b.0));
            layers[layer] = keyed.into_iter().map(|(_, at)| at).collect();
            for (row, &at) in layers[layer].iter().enumerate() {
                stops[at].row = row as f64;
            }
        }
    }
    layers.clone_from_slice(&best.1);
}

fn number_rows(layers: &[Vec<usize>], stops: &mut [Stop]) {
    for layer in layers {
        layer.iter().enumerate().for_each(|(row, &at)| stops[at].row = row as f64);
    }
}

fn count_crossings(layers: &[Vec<usize>], stops: &[Stop]) -> usize {
    let mut crossings = 0;
    for layer in layers {
        let mut lines: Vec<(f64, f64)> = Vec::new();
        for &at in layer {
            lines.extend(stops[at].right.iter().map(|&other| (stops[at].row, stops[other].row)));
        }
        for (place, first) in lines.iter().enumerate() {
            let crosses = |second: &&(f64, f64)| (first.0 - second.0) * (first.1 - second.1) < 0.0;
            crossings += lines[place + 1..].iter().filter(crosses).count();
        }
    }
    crossings
}

/// Moves each stop towards the mean of its neighbours as far as its layer allows.
fn place_rows(layers: &[Vec<usize>], stops: &mut [Stop]) {
    number_rows(layers, stops);
    for sweep in 0..2 * SWEEPS {
        let mut turns: Vec<usize> = (0..layers.len()).collect();
        if sweep % 2 == 1 {
            turns.reverse();
        }
        for layer in turns {
            let wanted: Vec<f64> = layers[layer]
                .iter()
                .map(|&at| {
                    let stop = &stops[at];
                    let around = || stop.left.iter().chain(&stop.right);
                    let count = around().count();
                    if count == 0 {
                        stop.row
                    } else {
                        around().map(|&other| stops[other].row).sum::<f64>() / count as f64
                    }
                })
                .collect();
            let gaps: Vec<f64> = layers[layer]
                .windows(2)
                .map(|pair| if stops[pair[0]].is_node || stops[pair[1]].is_node { 1.0 } else { 0.45 })
                .collect();
            for (&at, row) in layers[layer].iter().zip(space_out(&wanted, &gaps)) {
                stops[at].row = row;
            }
        }
    }
}

/// The places nearest to those wanted (by squares) with at least these gaps: blocks that collide move together.
fn space_out(wanted: &[f64], gaps: &[f64]) -> Vec<f64> {
    // Without the gaps it is a regression on ascending numbers.
    let mut offsets = vec![0.0; wanted.len()];
    for at in 1..wanted.len() {
        offsets[at] = offsets[at - 1] + gaps[at - 1];
    }
    let mut blocks: Vec<(f64, usize)> = Vec::new();
    for (value, offset) in wanted.iter().zip(&offsets) {
        let mut block = (value - offset, 1);
        while let Some(&(above, size)) = blocks.last()
            && above > block.0
        {
            block =
                ((above * size as f64 + block.0 * block.1 as f64) / (size + block.1) as f64, size + block.1);
            blocks.pop();
        }
        blocks.push(block);
    }
    let placed = blocks.iter().flat_map(|&(value, size)| std::iter::repeat_n(value, size));
    placed.zip(&offsets).map(|(value, offset)| value + offset).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultscope_analysis::causal::Edge;

    #[test]
    fn places_keep_their_gaps_and_their_order() {
        let placed = space_out(&[3.0, 1.0, 1.0, 9.0], &[1.0, 1.0, 1.0]);
        assert!(placed.windows(2).all(|pair| pair[1] - pair[0] >= 1.0 - 1e-9), "{placed:?}");
        assert_eq!(placed[3], 9.0);
    }

    #[test]
    fn effects_are_right_of_their_causes_and_long_edges_pass_every_layer() {
        let edge = |from, to| Edge { from, to, weight: 1.0 };
        let nodes = ["a", "b", "c", "d"].map(str::to_owned).to_vec();
        let graph = CausalGraph::new(nodes, vec![edge(0, 1), edge(1, 2), edge(0, 2), edge(3, 2)]).unwrap();
        let layout = lay_out(&graph);
        let layers: Vec<usize> = layout.nodes.iter().map(|(layer, _)| *layer).collect();
        // A node without causes is drawn next to its effect.
        assert_eq!(layers, [0, 1, 2, 1]);
        let lengths: Vec<usize> = layout.routes.iter().map(Vec::len).collect();
        assert_eq!(lengths, [2, 3, 2, 2]);
    }
}
