//! Linear systems with known edges, drawn as the sets of the reference were.

use std::collections::BTreeSet;

use faultscope_analysis::causal::Observations;

use crate::random::Random;

/// Edges by names of cause and effect.
pub(super) type Edges = BTreeSet<(String, String)>;

/// A random graph with twice as many edges as columns, a third each of uniform, Laplace and exponential noise, and
/// random units for each column, as real metrics have.
pub(super) fn draw_system(columns: usize, rows: usize, seed: u64) -> Option<(Observations, Edges)> {
    let mut random = Random::new(seed);
    let mut order: Vec<usize> = (0..columns).collect();
    random.shuffle(&mut order);
    let name = |at: usize| format!("x{at}");
    let mut edges = Edges::new();
    let mut causes: Vec<Vec<(usize, f64)>> = vec![Vec::new(); columns];
    while edges.len() < (2 * columns).min(columns * (columns - 1) / 2) {
        let [first, second] = [random.below(columns), random.below(columns)];
        let (from, to) = (order[first.min(second)], order[first.max(second)]);
        if first != second && edges.insert((name(from), name(to))) {
            let sign = if random.unit() < 0.5 { -1.0 } else { 1.0 };
            causes[to].push((from, sign * (0.2 + 0.8 * random.unit())));
        }
    }
    let mut values: Vec<Vec<f64>> = vec![Vec::new(); columns];
    for &at in &order {
        let noise = |random: &mut Random| match at % 3 {
            0 => 2.0 * random.unit() - 1.0,
            1 => (1.0 - random.unit()).ln() * if random.unit() < 0.5 { -1.0 } else { 1.0 },
            _ => -(1.0 - random.unit()).ln(),
        };
        let drawn = (0..rows).map(|row| {
            let from_causes: f64 = causes[at].iter().map(|&(from, weight)| weight * values[from][row]).sum();
            from_causes + noise(&mut random)
        });
        values[at] = drawn.collect();
    }
    for column in &mut values {
        let unit = 10f64.powf(3.0 * random.unit() - 1.0);
        column.iter_mut().for_each(|value| *value *= unit);
    }
    let observations = Observations::new((0..columns).map(name).collect(), values).ok()?;
    Some((observations, edges))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn systems_are_the_same_for_the_same_seed() {
        let (first, edges) = draw_system(7, 30, 5).unwrap();
        assert_eq!(draw_system(7, 30, 5).unwrap(), (first, edges.clone()));
        assert_eq!(edges.len(), 14);
        assert_ne!(draw_system(7, 30, 6).unwrap().1, edges);
    }
}
