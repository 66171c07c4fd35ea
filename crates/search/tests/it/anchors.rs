//! The paper's algorithms need what was recorded for them on the same instances.

use faultscope_bench::debug::{Plan, Strategy, rows};
use faultscope_bench::simulate::{Durations, read};

const INSTANCES: &str = include_str!("../data/instances.jsonl");

/// Trials and makespan with unit durations, recorded: cell, slots, ddmin, ddmin-par.
const RECORDED: [(&str, usize, f64, f64, f64); 9] = [
    ("mono-15-2", 1, 19.2, 19.3, 19.3),
    ("mono-36-1", 1, 8.25, 8.25, 8.25),
    ("mono-36-4", 1, 73.65, 77.8, 77.8),
    ("mono-36-4", 6, 73.65, 98.45, 17.6),
    ("mono-63-2", 12, 31.4, 65.6, 8.6),
    ("nonmono-43-4", 1, 92.5, 88.75, 88.75),
    ("nonmono-43-4", 6, 92.5, 115.4, 20.45),
    ("paper-F3", 6, 13.05, 20.8, 3.7),
    ("paper-F4", 12, 47.0, 81.15, 9.6),
];

#[test]
fn yardstick_agrees_with_what_was_recorded() {
    let instances = read(INSTANCES).unwrap();
    for (cell, slots, ddmin, trials, makespan) in RECORDED {
        let of_cell: Vec<_> = instances.iter().filter(|i| i.cell() == cell).cloned().collect();
        assert_eq!(of_cell.len(), 20, "{cell}");
        let check = |strategy, slots, trials: f64, makespan: f64| {
            let plan = Plan {
                strategies: vec![strategy],
                slots: vec![slots],
                durations: vec![Durations::Unit],
                ..Plan::default()
            };
            let row = &rows(&of_cell, &plan, |_| ())[0];
            let near = |ours: f64, theirs: f64| (ours / theirs - 1.0).abs() <= 0.1;
            assert!(near(row.trials, trials), "{strategy} {cell} p{slots}: {} of {trials}", row.trials);
            assert!(
                near(row.makespan, makespan),
                "{strategy} {cell} p{slots}: {} of {makespan}",
                row.makespan
            );
        };
        check(Strategy::Ddmin, 1, ddmin, ddmin);
        check(Strategy::DdminPar, slots, trials, makespan);
    }
}
