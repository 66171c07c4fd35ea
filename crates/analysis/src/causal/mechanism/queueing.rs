//! Queueing-shaped mechanisms: linear effects plus the few bends that the data shows.
//!
//! Trees are flat beyond the data and squares turn round; queues and saturation go on as real systems do.

use super::basis::{Basis, Term, linear_terms, tabulate};
use crate::causal::observations::standardize;
use crate::causal::wide::{add_multiple, dot, vectorize};

/// Bends that are added at most: a delay, a saturation and one more.
const MAX_BENDS: usize = 3;
/// Causes whose bends are tried: those that are correlated most with the target.
const MAX_CAUSES: usize = 8;
/// A cause with fewer different values shows no bend.
const LEAST_VALUES: usize = 4;
/// Capacities of delays, in multiples of the largest value: from a queue that is nearly full to one that barely bends.
const DELAYS: [f64; 5] = [1.03, 1.1, 1.3, 1.7, 3.0];
/// Capacities of saturations, in multiples of the largest value.
const SATURATIONS: [f64; 4] = [0.1, 0.3, 1.0, 3.0];
/// Quantiles of a cause at which hinges are tried.
const KNOTS: [f64; 5] = [0.1, 0.3, 0.5, 0.7, 0.9];
/// A column that has less than this of its own beside the chosen ones adds nothing.
const OWN_SHARE: f64 = 1e-8;

/// Adds bends to linear effects, best first, as long as they pay (by BIC).
pub(crate) fn fit(causes: &[&[f64]], target: &[f64]) -> Basis {
    let rows = target.len();
    let mut terms = linear_terms(causes.len());
    let mut pool: Vec<(Term, Vec<f64>)> = bends(causes, target)
        .into_iter()
        .map(|term| {
            let mut values = tabulate(&term, causes, rows);
            standardize(&mut values);
            (term, values)
        })
        .collect();
    let mut rest = target.to_vec();
    standardize(&mut rest);
    let mut basis: Vec<Vec<f64>> = Vec::new();
    for term in &terms {
        let mut values = tabulate(term, causes, rows);
        standardize(&mut values);
        accept(values, &mut basis, &mut pool, &mut rest);
    }
    let penalty = (rows as f64).ln();
    for _ in 0..MAX_BENDS {
        let error = vectorize(|| dot(&rest, &rest));
        let gain = |(_, values): &(Term, Vec<f64>)| {
            let (own, shared) = vectorize(|| (dot(values, values), dot(values, &rest)));
            if own < OWN_SHARE * rows as f64 { 0.0 } else { shared * shared / own }
        };
        let gains: Vec<f64> = pool.iter().map(gain).collect();
        let Some((best, gain)) = gains.iter().copied().enumerate().max_by(|a, b| a.1.total_cmp(&b.1)) else {
            break;
        };
        // The location of a bend is chosen, too, so it costs two parameters.
        if rows as f64 * ((error - gain).max(f64::MIN_POSITIVE) / error).ln() + 2.0 * penalty >= 0.0 {
            break;
        }
        let (term, values) = pool.swap_remove(best);
        terms.push(term);
        accept(values, &mut basis, &mut pool, &mut rest);
    }
    Basis::fit(terms, causes, target)
}

/// Takes the part that a column explains out of all others (Gram and Schmidt).
fn accept(mut values: Vec<f64>, basis: &mut Vec<Vec<f64>>, pool: &mut [(Term, Vec<f64>)], rest: &mut [f64]) {
    vectorize(|| {
        for known in basis.iter() {
            let shared = dot(&values, known);
            add_multiple(&mut values, -shared, known);
        }
        let own = dot(&values, &values);
        if own < OWN_SHARE * values.len() as f64 {
            return;
        }
        let length = own.sqrt();
        values.iter_mut().for_each(|value| *value /= length);
        for (_, other) in pool.iter_mut() {
            let shared = dot(other, &values);
            add_multiple(other, -shared, &values);
        }
        let shared = dot(rest, &values);
        add_multiple(rest, -shared, &values);
        basis.push(values);
    });
}

/// The bends that are tried.
fn bends(causes: &[&[f64]], target: &[f64]) -> Vec<Term> {
    let mut centred = target.to_vec();
    standardize(&mut centred);
    let correlation = |cause: &[f64]| {
        let mut values = cause.to_vec();
        standardize(&mut values);
        vectorize(|| dot(&values, &centred)).abs()
    };
    let mut ranked: Vec<(usize, f64)> = causes.iter().map(|cause| correlation(cause)).enumerate().collect();
    ranked.sort_by(|a, b| b.1.total_cmp(&a.1));
    let mut terms = Vec::new();
    for &(cause, _) in ranked.iter().take(MAX_CAUSES) {
        let mut sorted = causes[cause].to_vec();
        sorted.sort_by(f64::total_cmp);
        let (least, most) = (sorted[0], sorted[sorted.len() - 1]);
        let quantile = |share: f64| sorted[((sorted.len() - 1) as f64 * share).round() as usize];
        let mut different = sorted.clone();
        different.dedup();
        if different.len() < LEAST_VALUES {
            continue;
        }
        terms.push(Term::Product { first: cause, second: cause });
        let mut knots: Vec<f64> = KNOTS.iter().map(|&share| quantile(share)).collect();
        knots.dedup();
        knots.retain(|knot| *knot > least && *knot < most);
        terms.extend(knots.into_iter().map(|knot| Term::Hinge { cause, knot }));
        if least >= 0.0 && most > 0.0 {
            terms.extend(DELAYS.iter().map(|factor| Term::Delay { cause, capacity: factor * most }));
            terms
                .extend(SATURATIONS.iter().map(|factor| Term::Saturation { cause, capacity: factor * most }));
        }
    }
    terms
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::causal::random::Random;

    #[test]
    fn a_queue_is_followed_beyond_the_data() {
        let mut random = Random::new(3);
        let load: Vec<f64> = (0..300).map(|_| 60.0 * random.unit()).collect();
        let truth = |load: f64| 5.0 + 2.0 * load / (1.0 - load / 78.0);
        let times: Vec<f64> = load.iter().map(|&load| truth(load) * (1.0 + 0.02 * random.normal())).collect();
        let basis = fit(&[&load], &times);
        let (found, wanted) = (basis.predict(&[66.0], None), truth(66.0));
        assert!((found / wanted - 1.0).abs() < 0.15, "{found} {wanted} {:?}", basis.terms);
    }

    #[test]
    fn straight_lines_get_no_bends() {
        let mut random = Random::new(4);
        let load: Vec<f64> = (0..300).map(|_| 60.0 * random.unit()).collect();
        let times: Vec<f64> = load.iter().map(|&load| 3.0 * load + random.normal()).collect();
        assert_eq!(fit(&[&load], &times).terms, linear_terms(1));
    }
}
