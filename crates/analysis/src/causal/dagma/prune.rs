//! From weights of an optimiser to a graph without cycles.

use crate::causal::matrix::Matrix;
use crate::causal::prior::{Relation, find_cycle};

/// Sets weights (by cause and effect) below the threshold to zero, then the smallest of what is left until there is no
/// cycle. Required edges stay. Returns the threshold that was needed.
pub(crate) fn prune_to_acyclic(weights: &mut Matrix, threshold: f64, required: &Relation) -> f64 {
    let size = weights.rows();
    let mut edges: Vec<(usize, usize)> = (0..size)
        .flat_map(|from| (0..size).map(move |to| (from, to)))
        .filter(|(from, to)| from != to)
        .collect();
    (0..size).for_each(|at| weights[(at, at)] = 0.0);
    edges.retain(|&(from, to)| required.contains(from, to) || weights[(from, to)].abs() >= threshold);
    edges.sort_by(|&a, &b| {
        let by_need = required.contains(b.0, b.1).cmp(&required.contains(a.0, a.1));
        by_need.then(weights[b].abs().total_cmp(&weights[a].abs()))
    });
    let mut needed = threshold;
    while find_cycle(size, edges.iter().copied()).is_some() {
        let Some(weakest) = edges.pop() else { break };
        needed = weights[weakest].abs();
    }
    let mut kept = Relation::empty(size);
    edges.iter().for_each(|&(from, to)| kept.insert(from, to));
    for from in 0..size {
        for to in (0..size).filter(|&to| !kept.contains(from, to)) {
            weights[(from, to)] = 0.0;
        }
    }
    needed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_weakest_edges_go_until_no_cycle_is_left() {
        let mut weights = Matrix::zeros(3, 3);
        for (edge, weight) in [((0, 1), 0.9), ((1, 0), 0.4), ((1, 2), 0.5), ((2, 0), 0.2), ((2, 2), 3.0)] {
            weights[edge] = weight;
        }
        let mut required = Relation::empty(3);
        required.insert(0, 2);
        assert_eq!(prune_to_acyclic(&mut weights, 0.3, &required), 0.4);
        let left: Vec<f64> = weights.values().iter().copied().filter(|weight| *weight != 0.0).collect();
        assert_eq!(left, [0.9, 0.5]);
    }
}
