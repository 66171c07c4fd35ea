//! Compares the searches in virtual time with one another and with recorded figures.
#![allow(clippy::print_stdout)]

use faultscope_search::simulate::{self, Durations, Oracle, simulate};
use faultscope_search::{Ddmin, DdminPar, Problem, Search};
use std::collections::BTreeMap;

fn main() {
    let data = std::env::var("DATA").unwrap_or("../shared/data".into());
    let text = std::fs::read_to_string(format!("{data}/dd-instances.jsonl")).unwrap();
    let instances = simulate::read(&text).unwrap();
    let anchor = std::fs::read_to_string(format!("{data}/dd-anchor.csv")).unwrap();
    let mut cells: BTreeMap<(String, usize, usize, String), Vec<&simulate::Instance>> = BTreeMap::new();
    for i in &instances {
        cells.entry((i.family.to_string(), i.n, i.k, i.cell().into())).or_default().push(i);
    }
    let mut worst: Vec<(f64, String)> = vec![];
    for row in anchor.lines().skip(1) {
        let f: Vec<&str> = row.split(',').collect();
        if f[0] != "ddmin" && f[0] != "ddminPar-fig" {
            continue;
        }
        let (n, k, p): (usize, usize, usize) =
            (f[2].parse().unwrap(), f[3].parse().unwrap(), f[4].parse().unwrap());
        let (tests, started, makespan): (f64, f64, f64) =
            (f[7].parse().unwrap(), f[9].parse().unwrap(), f[11].parse().unwrap());
        let Some((_, cell)) = cells.iter().find(|(key, _)| key.0 == f[1] && key.1 == n && key.2 == k) else {
            println!("no cell {row}");
            continue;
        };
        let count: usize = f[6].parse().unwrap();
        let (mut t, mut s, mut m) = (0.0, 0.0, 0.0);
        let reps = if f[5] == "unit" { 1 } else { 5 };
        for i in cell.iter().take(count) {
            for rep in 0..reps {
                let d = if f[5] == "unit" { Durations::Unit } else { Durations::Lognormal(i.seed + rep) };
                let mut search: Box<dyn Search> = if f[0] == "ddmin" {
                    Box::new(Ddmin::new(Problem::new(n)))
                } else {
                    Box::new(DdminPar::new(Problem::new(n)))
                };
                let run = simulate(&mut *search, &Oracle::new(i), d, p, 100_000);
                assert!(run.misconduct.is_none(), "{:?}", run.misconduct);
                assert!(Oracle::new(i).is_one_minimal(run.answer()));
                t += f64::from(run.finished) / reps as f64;
                s += f64::from(run.started) / reps as f64;
                m += run.makespan / reps as f64;
            }
        }
        let c = count as f64;
        let (t, s, m) = (t / c, s / c, m / c);
        let off = (t / tests - 1.0).abs().max((m / makespan - 1.0).abs());
        worst.push((
            off,
            format!(
                "{off:.3} {} tests {t:.2}/{tests} started {s:.2}/{started} makespan {m:.3}/{makespan}",
                f[..6].join(",")
            ),
        ));
    }
    worst.sort_by(|a, b| b.0.total_cmp(&a.0));
    let exact = worst.iter().filter(|w| w.0 < 1e-3).count();
    println!(
        "{} rows, {exact} exact, {} within 10 %",
        worst.len(),
        worst.iter().filter(|w| w.0 <= 0.1).count()
    );
    for (_, line) in worst.iter().take(std::env::var("SHOW").map_or(40, |s| s.parse().unwrap())) {
        println!("{line}");
    }
}
