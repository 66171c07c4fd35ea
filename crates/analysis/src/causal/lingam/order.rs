//! The causal order: again and again the variable that is most likely a cause of all remaining ones.
//!
//! Each pair of variables is compared at most once in a round, since the comparison is antisymmetric. The penalty of a
//! candidate only grows while its pairs are compared, so a candidate whose penalty so far exceeds the complete penalty
//! of another need not be finished: the answer is that of comparing all pairs, with a fraction of them.

use rayon::prelude::*;

use super::entropy::{entropy, residual_difference};
use crate::causal::observations::standardize;
use crate::causal::prior::Constraints;
use crate::causal::wide::{add_multiple, dot, vectorize};

/// Comparisons that are made before the candidates are ranked again. Small enough that little is compared in vain,
/// large enough for a dozen threads; a number of threads here would make results depend on it.
const BATCH: usize = 24;

/// Values below which a batch is not worth sharing: about a hundred microseconds of work.
const SHARED_VALUES: usize = 20_000;

/// Finds the order of standardised columns, first causes first.
pub(crate) fn find_order(mut columns: Vec<Vec<f64>>, constraints: &Constraints) -> Vec<usize> {
    let size = columns.len();
    let mut active: Vec<usize> = (0..size).collect();
    let mut pending: Vec<(usize, usize)> = constraints.orders.clone();
    let mut penalties = vec![0.0; size];
    let mut order = Vec::with_capacity(size);
    while !active.is_empty() {
        let is_free = |at: &usize| !pending.iter().any(|(_, after)| after == at);
        let candidates: Vec<usize> = active.iter().copied().filter(is_free).collect();
        let next = match candidates.as_slice() {
            // Constraints without cycles always leave a candidate.
            [] => active[0],
            [only] => *only,
            _ => Round::new(&columns, &active, &candidates, &mut penalties).run(),
        };
        active.retain(|&at| at != next);
        pending.retain(|&(before, _)| before != next);
        remove_influence(&mut columns, &active, next);
        order.push(next);
    }
    order
}

/// One choice of the next variable.
struct Round<'a> {
    columns: &'a [Vec<f64>],
    active: Vec<usize>,
    is_candidate: Vec<bool>,
    entropies: Vec<f64>,
    /// The penalty of each variable so far.
    penalties: &'a mut [f64],
    /// Who has yet to be compared with each candidate, the most promising last.
    open: Vec<Vec<usize>>,
    is_compared: Vec<bool>,
}

impl<'a> Round<'a> {
    fn new(
        columns: &'a [Vec<f64>],
        active: &[usize],
        candidates: &[usize],
        penalties: &'a mut [f64],
    ) -> Self {
        let size = columns.len();
        // Who had a small penalty in the last round is likely to be the next, and to rule out others.
        let mut by_promise = active.to_vec();
        by_promise.sort_by(|&a, &b| penalties[b].total_cmp(&penalties[a]));
        let mut open = vec![Vec::new(); size];
        let mut is_candidate = vec![false; size];
        for &at in candidates {
            is_candidate[at] = true;
            open[at] = by_promise.iter().copied().filter(|&other| other != at).collect();
        }
        let mut entropies = vec![0.0; size];
        let known: Vec<f64> = match active.len() * columns[0].len() >= SHARED_VALUES {
            true => active.par_iter().map(|&at| entropy(&columns[at])).collect(),
            false => active.iter().map(|&at| entropy(&columns[at])).collect(),
        };
        active.iter().zip(known).for_each(|(&at, known)| entropies[at] = known);
        penalties.fill(0.0);
        by_promise.reverse();
        let is_compared = vec![false; size * size];
        Self { columns, active: by_promise, is_candidate, entropies, penalties, open, is_compared }
    }

    /// Compares until one candidate is complete and no other can have a smaller penalty.
    fn run(mut self) -> usize {
        loop {
            let best = self.least_candidate();
            let batch = self.next_batch(best);
            if batch.is_empty() {
                return best;
            }
            let differences = self.compare(best, &batch);
            for (&other, difference) in batch.iter().zip(differences) {
                // Positive: the evidence is that `best` comes before `other`.
                let evidence = self.entropies[other] - self.entropies[best] + difference;
                let size = self.columns.len();
                self.is_compared[best * size + other] = true;
                self.is_compared[other * size + best] = true;
                let loser = if evidence < 0.0 { best } else { other };
                self.penalties[loser] += evidence * evidence;
            }
        }
    }

    /// The candidate with the least penalty so far; of equal ones a complete one with the least number wins, as if all
    /// were complete, and otherwise the most promising goes on.
    fn least_candidate(&mut self) -> usize {
        let candidates = || self.active.iter().copied().filter(|&at| self.is_candidate[at]);
        let least = candidates().map(|at| self.penalties[at]).fold(f64::INFINITY, f64::min);
        let mut tied: Vec<usize> = candidates().filter(|&at| self.penalties[at] == least).collect();
        let size = self.columns.len();
        let incomplete = tied.iter().copied().find(|&at| {
            let is_compared = &self.is_compared;
            self.open[at].iter().any(|&other| !is_compared[at * size + other])
        });
        tied.sort_unstable();
        incomplete.or(tied.first().copied()).unwrap_or(self.active[0])
    }

    fn next_batch(&mut self, candidate: usize) -> Vec<usize> {
        let size = self.columns.len();
        let mut batch = Vec::new();
        while batch.len() < BATCH {
            match self.open[candidate].pop() {
                Some(other) if self.is_compared[candidate * size + other] => {}
                Some(other) => batch.push(other),
                None => break,
            }
        }
        batch
    }

    fn compare(&self, best: usize, batch: &[usize]) -> Vec<f64> {
        let compare = |&other: &usize| residual_difference(&self.columns[best], &self.columns[other]);
        match batch.len() * self.columns[best].len() >= SHARED_VALUES {
            true => batch.par_iter().map(compare).collect(),
            false => batch.iter().map(compare).collect(),
        }
    }
}

/// Replaces all other columns by their standardised residuals.
fn remove_influence(columns: &mut [Vec<f64>], active: &[usize], removed: usize) {
    let cause = std::mem::take(&mut columns[removed]);
    for &at in active {
        let column = &mut columns[at];
        vectorize(|| {
            let correlation = dot(column, &cause) / cause.len() as f64;
            add_multiple(column, -correlation, &cause);
        });
        standardize(column);
    }
    columns[removed] = cause;
}
