//! The default search on instances that were not used to choose its constants.
//!
//! The path to the first cause is compared, since `ddmin-par` stops there. Whether all of several causes are found
//! is checked in a separate run.

use super::goals::{CELL_TOLERANCE, geometric_mean};
use super::{Plan, Strategy, finds_all_causes, run_for};
use crate::figure::Figure;
use crate::simulate::{Durations, Family, HOLD_OUT_FAMILIES, HOLD_OUT_SIZES, Instance, Oracle};

/// What the default search needed on one instance, compared with `ddmin-par`.
#[derive(Debug, Clone, PartialEq)]
pub struct HeldOut {
    /// The family of the instance.
    pub family: Family,
    /// Number of deltas.
    pub n: usize,
    /// Number of slots.
    pub slots: usize,
    /// The makespan of `ddmin-par` divided by that of the default.
    pub faster: f64,
    /// The finished trials of `ddmin-par` divided by those of the default.
    pub fewer: f64,
    /// Started divided by finished trials of the default.
    pub started: f64,
    /// Whether the answer is 1-minimal.
    pub minimal: bool,
    /// Whether all causes were found and shown to be all; for one cause, whether exactly that was.
    pub all_found: bool,
}

/// Measures one instance on these numbers of slots, with lognormal durations.
pub fn measure_hold_out(instance: &Instance, plan: &Plan) -> Vec<HeldOut> {
    let durations = Durations::Lognormal(0);
    let oracle = Oracle::new(instance);
    let measure = |&slots: &usize| {
        let run = |strategy, all| run_for(strategy, instance, durations, slots, plan, all);
        let (ours, theirs) = (run(Strategy::Bayes, false), run(Strategy::DdminPar, false));
        HeldOut {
            family: instance.family,
            n: instance.n,
            slots,
            faster: theirs.makespan / ours.makespan,
            fewer: f64::from(theirs.finished) / f64::from(ours.finished.max(1)),
            started: f64::from(ours.started) / f64::from(ours.finished.max(1)),
            minimal: oracle.is_one_minimal(ours.answer()),
            all_found: finds_all_causes(instance, &run(Strategy::Bayes, true)),
        }
    };
    plan.slots.iter().map(measure).collect()
}

/// A summary of many searches of a family.
#[derive(Debug, Clone, PartialEq)]
pub struct HeldOutSummary {
    /// The family.
    pub family: Family,
    /// Number of slots.
    pub slots: usize,
    /// Number of searches.
    pub searches: usize,
    /// The speed-up over `ddmin-par`, geometric mean.
    pub faster: f64,
    /// The reduction of trials compared with `ddmin-par`, geometric mean.
    pub fewer: f64,
    /// Started divided by finished trials, mean.
    pub started: f64,
    /// The share of answers that are 1-minimal.
    pub minimal: f64,
    /// The share of searches that found all causes.
    pub all_found: f64,
}

/// Summarizes searches by family and slots.
pub fn summarize_hold_out(all: &[HeldOut]) -> Vec<HeldOutSummary> {
    let mut slots: Vec<usize> = all.iter().map(|one| one.slots).collect();
    slots.sort_unstable();
    slots.dedup();
    let cells = HOLD_OUT_FAMILIES.iter().flat_map(|family| slots.iter().map(move |slots| (*family, *slots)));
    cells.filter_map(|(family, slots)| summarize(family, slots, all)).collect()
}

fn summarize(family: Family, slots: usize, all: &[HeldOut]) -> Option<HeldOutSummary> {
    let cell: Vec<&HeldOut> = all.iter().filter(|one| (one.family, one.slots) == (family, slots)).collect();
    let searches = cell.len();
    let values = |value: &dyn Fn(&HeldOut) -> f64| cell.iter().map(|one| value(one)).collect::<Vec<_>>();
    let mean = |value: &dyn Fn(&HeldOut) -> f64| values(value).iter().sum::<f64>() / searches as f64;
    (searches > 0).then(|| HeldOutSummary {
        family,
        slots,
        searches,
        faster: geometric_mean(&values(&|one| one.faster)),
        fewer: geometric_mean(&values(&|one| one.fewer)),
        started: mean(&|one| one.started),
        minimal: mean(&|one| f64::from(u8::from(one.minimal))),
        all_found: mean(&|one| f64::from(u8::from(one.all_found))),
    })
}

/// The figures of all held-out searches, with the same goals as for the instances that constants were chosen by.
pub fn held_out_figures(all: &[HeldOut]) -> Vec<Figure> {
    let parallel: Vec<f64> = all.iter().filter(|one| one.slots > 1).map(|one| one.faster).collect();
    let mut figures = vec![
        Figure::higher("held out: >= 1.8 x faster than ddmin-par (p > 1)", geometric_mean(&parallel), "x")
            .spread(&parallel)
            .goal(1.8)
            .detail(format!("geometric mean over {} searches", parallel.len())),
    ];
    let mut cells: Vec<(String, f64)> = Vec::new();
    for family in HOLD_OUT_FAMILIES {
        for n in HOLD_OUT_SIZES {
            let in_cell = |one: &&HeldOut| (one.family, one.n) == (family, n);
            let slower: Vec<f64> = all.iter().filter(in_cell).map(|one| 1.0 / one.faster).collect();
            if !slower.is_empty() {
                cells.push((format!("{family}-{n}"), geometric_mean(&slower)));
            }
        }
    }
    if let Some((cell, slowest)) = cells.iter().max_by(|a, b| a.1.total_cmp(&b.1)) {
        figures.push(
            Figure::lower("held out: not slower than ddmin-par, by family and size", *slowest, "x")
                .goal(1.0)
                .tolerance(CELL_TOLERANCE)
                .detail(format!("worst of {}: {cell}", cells.len())),
        );
    }
    let count = |test: &dyn Fn(&HeldOut) -> bool| all.iter().filter(|one| test(one)).count();
    figures.push(Figure::all_of(
        "held out: answers that are 1-minimal",
        count(&|one| one.minimal),
        all.len(),
    ));
    figures.push(Figure::all_of("held out: all causes found", count(&|one| one.all_found), all.len()));
    figures
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::Verdict;
    use crate::simulate::hold_out;

    #[test]
    fn small_instances_of_every_family_are_solved() {
        let plan = Plan { slots: vec![4], ..Plan::default() };
        let small = hold_out(3, 1).into_iter().filter(|instance| instance.n <= 60);
        let all: Vec<HeldOut> = small.flat_map(|instance| measure_hold_out(&instance, &plan)).collect();
        assert_eq!(all.len(), 2 * HOLD_OUT_FAMILIES.len());
        let figures = held_out_figures(&all);
        let minimal = figures.iter().find(|figure| figure.name.contains("1-minimal")).unwrap();
        assert_eq!(minimal.verdict, Verdict::Met);
    }

    #[test]
    fn one_wrong_answer_is_a_missed_goal() {
        let right = HeldOut {
            family: Family::Several,
            n: 28,
            slots: 4,
            faster: 2.0,
            fewer: 2.0,
            started: 1.0,
            minimal: true,
            all_found: true,
        };
        let wrong = HeldOut { all_found: false, ..right.clone() };
        let figures = held_out_figures(&[right, wrong]);
        let found = figures.iter().find(|figure| figure.name.contains("all causes")).unwrap();
        assert!(matches!(found.verdict, Verdict::Missed { .. }), "{found:?}");
    }
}
