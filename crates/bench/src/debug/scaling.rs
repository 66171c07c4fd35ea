//! How the searches scale with slots if all deltas are of one dimension (the paper's RQ1, Figure 3).

use std::fmt::Write as _;
use std::sync::Arc;

use faultscope_model::{Application, Space};
use faultscope_search::{BayesOptions, Problem};

use super::Strategy;
use crate::random::Random;
use crate::simulate::{Durations, Family, Instance, Oracle, Slots, simulate};

/// The mean makespans of the searches for deltas of one dimension, in mean durations of a trial.
#[derive(Debug, Clone, PartialEq)]
pub struct Scaling {
    /// `instance`, `configuration` or `sequence`.
    pub dimension: &'static str,
    /// Number of deltas.
    pub deltas: usize,
    /// Number of slots.
    pub slots: usize,
    /// Sequential: without the optimisation of section 4.4.
    pub ddmin: f64,
    /// With it.
    pub ddmin_par: f64,
    /// The default.
    pub bayes: f64,
}

/// Measures 15 deltas of instances, 20 of configuration and 20 of sequence with 1 to 6 slots, each over `count`
/// causes of one delta; trials of a pair of calls include what the pair implies.
pub fn scaling(seed: u64, count: usize) -> Vec<Scaling> {
    [("instance", instances()), ("configuration", configuration()), ("sequence", sequence())]
        .into_iter()
        .flat_map(|(dimension, text)| measure(dimension, &text, &[1, 2, 3, 4, 5, 6], seed, count))
        .collect()
}

fn measure(dimension: &'static str, text: &str, slots: &[usize], seed: u64, count: usize) -> Vec<Scaling> {
    let Some(space) = space(text) else { return Vec::new() };
    let deltas = space.deltas.len();
    let mut random = Random::new(seed ^ deltas as u64);
    let causes: Vec<usize> = (0..count).map(|_| random.below(deltas)).collect();
    let mean = |strategy: Strategy, slots: usize| {
        let makespan = |(number, &cause): (usize, &usize)| {
            let seed = seed.wrapping_mul(1_000).wrapping_add(number as u64);
            let id = format!("{dimension}-{number}");
            let instance = Instance::new(id, Family::Mono, deltas, vec![vec![cause]], seed);
            let options = BayesOptions { seed, ..BayesOptions::default() };
            let mut search = strategy.search(Problem::from_space(&space), options);
            let slots = Slots::new(slots, Durations::Lognormal(seed));
            simulate(&mut *search, &Oracle::new(&instance), &slots, 10_000).makespan
        };
        causes.iter().enumerate().map(makespan).sum::<f64>() / count.max(1) as f64
    };
    let ddmin = mean(Strategy::Ddmin, 1);
    let of = |&slots: &usize| {
        let (ddmin_par, bayes) = (mean(Strategy::DdminPar, slots), mean(Strategy::Bayes, slots));
        Scaling { dimension, deltas, slots, ddmin, ddmin_par, bayes }
    };
    slots.iter().map(of).collect()
}

fn space(text: &str) -> Option<Arc<Space>> {
    Application::read_alone(text, "scaling.yaml").ok()?.space().ok().map(Arc::new)
}

const HEAD: &str = "name: scaling\ntests: [ { name: t, run: [t] } ]\nservices:\n";

fn instances() -> String {
    let mut text = HEAD.to_owned();
    for number in 1..=15 {
        let _ = writeln!(text, "  s{number}: {{ command: [s], ports: [8080] }}");
    }
    text.push_str("failing:\n  instances:\n");
    for number in 1..=15 {
        let _ = writeln!(text, "    s{number}: {}", 2 + number % 3);
    }
    text
}

fn configuration() -> String {
    let mut text = format!("{HEAD}  s: {{ command: [s], ports: [8080] }}\nfailing:\n  config:\n    s:\n");
    for number in 1..=20 {
        let _ = writeln!(text, "      env.V{number}: \"{number}\"");
    }
    text
}

/// Two series of five calls: ten pairs each.
fn sequence() -> String {
    let mut text =
        format!("{HEAD}  a: {{ command: [a], ports: [8080] }}\n  b: {{ command: [b], ports: [8080] }}\n");
    for (end, turned) in [("simplest", false), ("failing", true)] {
        let _ = writeln!(text, "{end}:\n  sequence:");
        for handling in ["x", "y"] {
            let mut calls: Vec<String> = (1..=5).map(|call| format!("b GET /{call}")).collect();
            if turned {
                calls.reverse();
            }
            let _ = writeln!(text, "    - {{ from: a, in: GET /{handling}, order: [{}] }}", calls.join(", "));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spaces_have_the_papers_sizes() {
        for (text, deltas) in [(instances(), 15), (configuration(), 20), (sequence(), 20)] {
            assert_eq!(space(&text).unwrap().deltas.len(), deltas, "{text}");
        }
    }

    #[test]
    fn more_slots_take_less_time() {
        let [one, six] = measure("instance", &instances(), &[1, 6], 1, 3).try_into().unwrap();
        assert!(six.ddmin_par < one.ddmin_par && six.bayes < one.bayes, "{one:?} {six:?}");
        assert_eq!(one.ddmin, six.ddmin);
    }
}
