//! Ranks deltas by suspicion, as section 4.4 of the paper does.

use super::{Change, Delta, Dimension};
use crate::units::ByteSize;

/// Ranks all deltas from 1: instances by count, orders by the distance of the two calls, configuration by how
/// strict the value is; the dimensions in this order.
pub(super) fn rank(deltas: &mut [Delta]) {
    let mut order: Vec<usize> = (0..deltas.len()).collect();
    let keys: Vec<(u8, f64)> = deltas.iter().map(|delta| key(delta, deltas)).collect();
    order.sort_by(|&a, &b| keys[a].0.cmp(&keys[b].0).then(keys[b].1.total_cmp(&keys[a].1)).then(a.cmp(&b)));
    for (rank, index) in order.into_iter().enumerate() {
        deltas[index].rank = u32::try_from(rank + 1).unwrap_or(u32::MAX);
    }
}

fn key(delta: &Delta, all: &[Delta]) -> (u8, f64) {
    let dimension = match delta.dimension {
        Dimension::Node => 0,
        Dimension::Instance => 1,
        Dimension::Sequence => 2,
        Dimension::Configuration => 3,
        Dimension::Version => 4,
    };
    let weight = match &delta.change {
        Change::Nodes(_) | Change::Version(..) => 0.0,
        Change::Instances(_, count) => f64::from(*count),
        Change::Pair(_, i, j) => i.abs_diff(*j) as f64,
        Change::Config(_, item, value) => strictness(item, value.as_deref(), all),
    };
    (dimension, weight)
}

/// How close a limit is to the strictest of its kind in the space, 0 to 1; items that are no limits come last.
/// The relative position makes unlike kinds comparable.
fn strictness(item: &str, value: Option<&str>, all: &[Delta]) -> f64 {
    let Some(own) = value.and_then(|v| amount(item, v)) else {
        return -1.0;
    };
    let same_kind = all.iter().filter_map(|delta| match &delta.change {
        Change::Config(_, other, Some(value)) if other == item => amount(item, value),
        _ => None,
    });
    let most = same_kind.fold(own, f64::max);
    if most > 0.0 { 1.0 - own / most } else { 0.0 }
}

fn amount(item: &str, value: &str) -> Option<f64> {
    match item {
        "memory" => value.parse::<ByteSize>().ok().map(|size| size.0 as f64),
        "cpu" | "pids" => value.parse().ok(),
        _ => None,
    }
}
