//! Gradient boosted regression trees, small: a hundred trees of at most sixteen leaves on binned causes.

use serde::{Deserialize, Serialize};

use super::basis::Basis;
use crate::causal::observations::mean;

const TREES: usize = 100;
const RATE: f64 = 0.1;
const DEPTH: usize = 4;
/// Fewer rows in a leaf follow the noise.
const LEAST_LEAF: usize = 10;
/// Places where a cause may be split: more do not help below some thousand rows.
const BINS: usize = 32;

/// A sum of trees inside the range of the data, and a mechanism that goes on beyond it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Boosted {
    start: f64,
    trees: Vec<Tree>,
    /// The observed range of each cause.
    ranges: Vec<[f64; 2]>,
    /// What is asked where a cause is outside its range: trees are flat there.
    beyond: Basis,
    /// Offsets that show how uncertain a value is.
    replicas: Vec<f64>,
}

/// Nodes in an order in which each comes before the two below it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Tree(Vec<TreeNode>);

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "node", rename_all = "kebab-case")]
enum TreeNode {
    Split { cause: usize, at: f64, below: usize, above: usize },
    Leaf { value: f64 },
}

impl Boosted {
    /// Fits trees, and takes `beyond` for values outside the data.
    pub(crate) fn fit(causes: &[&[f64]], target: &[f64], beyond: Basis) -> Self {
        let rows = target.len();
        let edges: Vec<Vec<f64>> = causes.iter().map(|cause| bin_edges(cause)).collect();
        let bins: Vec<Vec<u8>> = causes
            .iter()
            .zip(&edges)
            .map(|(cause, edges)| {
                cause.iter().map(|value| edges.partition_point(|edge| edge < value) as u8).collect()
            })
            .collect();
        let start = mean(target);
        let mut rest: Vec<f64> = target.iter().map(|value| value - start).collect();
        let mut trees = Vec::with_capacity(TREES);
        for _ in 0..TREES {
            let mut tree = Tree(Vec::new());
            let mut members: Vec<usize> = (0..rows).collect();
            Grower { bins: &bins, edges: &edges, rest: &mut rest, tree: &mut tree }.grow(&mut members, DEPTH);
            trees.push(tree);
        }
        let range = |cause: &&[f64]| {
            let least = cause.iter().copied().fold(f64::INFINITY, f64::min);
            [least, cause.iter().copied().fold(f64::NEG_INFINITY, f64::max)]
        };
        let noise = (rest.iter().map(|value| value * value).sum::<f64>() / rows as f64).sqrt();
        let error = noise / (LEAST_LEAF as f64).sqrt();
        let mut random = crate::causal::random::Random::new(TREES as u64);
        let replicas = (0..super::basis::REPLICAS).map(|_| random.normal() * error).collect();
        Self { start, trees, ranges: causes.iter().map(range).collect(), beyond, replicas }
    }

    pub(crate) fn predict(&self, causes: &[f64], replica: Option<usize>) -> f64 {
        let is_inside = |(value, range): (&f64, &[f64; 2])| (range[0]..=range[1]).contains(value);
        if !causes.iter().zip(&self.ranges).all(is_inside) {
            return self.beyond.predict(causes, replica);
        }
        let offset = replica.and_then(|at| self.replicas.get(at % self.replicas.len().max(1)));
        let sum: f64 = self.trees.iter().map(|tree| tree.evaluate(causes)).sum();
        self.start + sum + offset.copied().unwrap_or_default()
    }

    /// What files from outside must fulfil so that every prediction ends.
    pub(crate) fn is_sound(&self, causes: usize) -> bool {
        let is_sound_node = |(at, node): (usize, &TreeNode), size: usize| match *node {
            TreeNode::Split { cause, below, above, .. } => {
                cause < causes && at < below.min(above) && below.max(above) < size
            }
            TreeNode::Leaf { value } => value.is_finite(),
        };
        let is_sound_tree = |tree: &Tree| {
            !tree.0.is_empty() && tree.0.iter().enumerate().all(|node| is_sound_node(node, tree.0.len()))
        };
        self.start.is_finite()
            && self.trees.iter().all(is_sound_tree)
            && self.ranges.len() == causes
            && self.replicas.iter().all(|offset| offset.is_finite())
            && self.beyond.is_sound(causes)
    }
}

impl Tree {
    fn evaluate(&self, causes: &[f64]) -> f64 {
        let mut at = 0;
        loop {
            match self.0[at] {
                TreeNode::Leaf { value } => return value,
                TreeNode::Split { cause, at: edge, below, above } => {
                    at = if causes[cause] <= edge { below } else { above };
                }
            }
        }
    }
}

/// Values up to an edge are below it; edges lie between values, at quantiles.
fn bin_edges(cause: &[f64]) -> Vec<f64> {
    let mut sorted = cause.to_vec();
    sorted.sort_by(f64::total_cmp);
    let mut edges: Vec<f64> = (1..BINS)
        .filter_map(|bin| {
            let at = bin * sorted.len() / BINS;
            let (below, above) = (sorted[at.saturating_sub(1)], sorted[at]);
            (below < above).then_some(below + (above - below) / 2.0)
        })
        .collect();
    // Few different values: an edge between any two.
    let mut different = sorted;
    different.dedup();
    if different.len() <= BINS {
        edges = different.windows(2).map(|pair| pair[0] + (pair[1] - pair[0]) / 2.0).collect();
    }
    edges
}

struct Grower<'a> {
    bins: &'a [Vec<u8>],
    edges: &'a [Vec<f64>],
    /// What the trees so far leave unexplained.
    rest: &'a mut [f64],
    tree: &'a mut Tree,
}

impl Grower<'_> {
    /// Adds the node of these rows and everything below it.
    fn grow(&mut self, members: &mut [usize], depth: usize) {
        let split = if depth == 0 { None } else { self.best_split(members) };
        let Some((cause, bin)) = split else {
            let sum: f64 = members.iter().map(|&row| self.rest[row]).sum();
            let value = RATE * sum / members.len() as f64;
            members.iter().for_each(|&row| self.rest[row] -= value);
            self.tree.0.push(TreeNode::Leaf { value });
            return;
        };
        let column = &self.bins[cause];
        members.sort_by_key(|&row| column[row] > bin);
        let middle = members.partition_point(|&row| column[row] <= bin);
        let at = self.tree.0.len();
        self.tree.0.push(TreeNode::Leaf { value: 0.0 });
        let (below_rows, above_rows) = members.split_at_mut(middle);
        self.grow(below_rows, depth - 1);
        let above = self.tree.0.len();
        self.grow(above_rows, depth - 1);
        let edge = self.edges[cause][usize::from(bin)];
        self.tree.0[at] = TreeNode::Split { cause, at: edge, below: at + 1, above };
    }

    /// The cause and bin whose split reduces the squared error most.
    fn best_split(&self, members: &[usize]) -> Option<(usize, u8)> {
        let total: f64 = members.iter().map(|&row| self.rest[row]).sum();
        let count = members.len();
        let alone = total * total / count as f64;
        let mut best: Option<(f64, usize, u8)> = None;
        for (cause, column) in self.bins.iter().enumerate() {
            let mut sums = [(0.0, 0usize); BINS + 1];
            for &row in members {
                let cell = &mut sums[usize::from(column[row])];
                cell.0 += self.rest[row];
                cell.1 += 1;
            }
            let (mut sum, mut below) = (0.0, 0);
            for (bin, (of_bin, rows)) in sums.iter().enumerate().take(self.edges[cause].len()) {
                sum += of_bin;
                below += rows;
                if below < LEAST_LEAF || count - below < LEAST_LEAF {
                    continue;
                }
                let rest = total - sum;
                let gain = sum * sum / below as f64 + rest * rest / (count - below) as f64 - alone;
                if gain > 1e-12 * alone.abs() && best.is_none_or(|(most, ..)| gain > most) {
                    best = Some((gain, cause, bin as u8));
                }
            }
        }
        best.map(|(_, cause, bin)| (cause, bin))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::causal::mechanism::basis::linear_terms;
    use crate::causal::random::Random;

    #[test]
    fn steps_are_learned_and_the_outside_is_left_to_another_mechanism() {
        let mut random = Random::new(9);
        let x: Vec<f64> = (0..500).map(|_| 10.0 * random.unit()).collect();
        let target: Vec<f64> =
            x.iter().map(|&x| if x < 4.0 { 1.0 } else { 7.0 } + 0.1 * random.normal()).collect();
        let beyond = Basis::fit(linear_terms(1), &[&x], &target);
        let boosted = Boosted::fit(&[&x], &target, beyond.clone());
        assert!((boosted.predict(&[2.0], None) - 1.0).abs() < 0.2);
        assert!((boosted.predict(&[8.0], None) - 7.0).abs() < 0.2);
        assert_eq!(boosted.predict(&[50.0], None), beyond.predict(&[50.0], None));
        assert!(boosted.is_sound(1) && !boosted.is_sound(0));
    }
}
