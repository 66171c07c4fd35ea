//! Compares the searches in virtual time with one another and with recorded figures:
//! `bench_debug [instances=FILE] [anchors=FILE] [seed=N] [families=mono,..] [slots=1,4] [durations=unit]
//! [strategies=bayes,..] [most=N] [cells=mono-15-1,..] [draws=N]`. Without a file, instances are generated from the seed.
#![allow(clippy::print_stdout, reason = "it is a program")]

use faultscope_search::bench::{Plan, Row, Strategy, agreement, goals, read_anchors, rows};
use faultscope_search::simulate::{Durations, generate, read};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let get = |key: &str| arguments.iter().find_map(|a| a.strip_prefix(key)?.strip_prefix('='));
    let list = |key: &str| get(key).map(|v| v.split(',').map(str::to_owned).collect::<Vec<_>>());
    let seed: u64 = get("seed").unwrap_or("0").parse()?;
    let mut instances = match get("instances") {
        Some(file) => read(&std::fs::read_to_string(file)?)?,
        None => generate(seed, 20),
    };
    if let Some(families) = list("families") {
        instances.retain(|instance| families.contains(&instance.family.to_string()));
    }
    if let Some(cells) = list("cells") {
        instances.retain(|instance| cells.iter().any(|cell| cell == instance.cell()));
    }
    if let Some(most) = get("most") {
        let most: usize = most.parse()?;
        instances.retain(|instance| instance.n <= most);
    }
    let mut plan = Plan { seed, ..Plan::default() };
    if let Some(slots) = list("slots") {
        plan.slots = slots.iter().map(|s| s.parse()).collect::<Result<_, _>>()?;
    }
    if let Some(durations) = list("durations") {
        plan.durations.retain(|d: &Durations| durations.iter().any(|word| word == d.word()));
    }
    if let Some(strategies) = list("strategies") {
        plan.strategies.retain(|s: &Strategy| strategies.iter().any(|name| name == s.name()));
    }
    let anchors = match get("anchors") {
        Some(file) => read_anchors(&std::fs::read_to_string(file)?),
        None => Vec::new(),
    };
    let anchor = |row: &Row| {
        let algorithm = match row.strategy {
            Strategy::Ddmin => "ddmin",
            _ => "ddminPar-fig",
        };
        anchors.iter().find(|a| {
            a.algorithm == algorithm
                && a.family == row.family.to_string()
                && (a.n, a.k, a.slots) == (row.n, row.k, row.slots)
                && a.durations == row.durations
        })
    };
    println!(
        "strategy  cell             p durations  trials  most started makespan  bound minimal exact | recorded"
    );
    let rows = rows(&instances, &plan, |row| {
        let recorded = anchor(row).map_or(String::new(), |a| format!("{:7.2} {:7.2}", a.trials, a.makespan));
        println!(
            "{:9} {:14} {:3} {:9} {:7.2} {:5} {:7.2} {:8.2} {:6.1} {:6.0}% {:4.0}% | {recorded}",
            row.strategy,
            row.cell,
            row.slots,
            row.durations,
            row.trials,
            row.most,
            row.started,
            row.makespan,
            row.bound(),
            100.0 * row.minimal,
            100.0 * row.exact,
        );
    });
    println!();
    for goal in goals(&rows) {
        let word = if goal.is_met() { "met   " } else { "missed" };
        let missed = goal.missed.len();
        let worst = goal
            .worst
            .map_or(String::new(), |(cell, value, limit)| format!("worst {cell}: {value:.3} of {limit:.3}"));
        println!("{word} {} ({missed} of {} cells miss) {worst}", goal.name, goal.cells);
        for (cell, value, limit) in goal.missed.iter().take(12) {
            println!("         {cell}: {value:.3}, limit {limit:.3}");
        }
    }
    let draws: u32 = get("draws").unwrap_or("12").parse()?;
    let mut off = agreement(&instances, &anchors, seed, draws);
    off.sort_by(|a, b| b.off().total_cmp(&a.off()));
    for durations in ["unit", "lognormal"] {
        let of: Vec<_> = off.iter().filter(|cell| cell.name.ends_with(durations)).collect();
        let (within, held) = (
            of.iter().filter(|cell| cell.off() <= 0.1).count(),
            of.iter().filter(|cell| cell.holds()).count(),
        );
        println!("recorded, {durations}: of {} cells {within} within 10 %, {held} within chance", of.len());
        for cell in of.iter().take(12) {
            println!(
                "         {} {}: {:.2?} recorded, {:.2?} here, {:.1} deviations",
                cell.strategy,
                cell.name,
                cell.recorded,
                cell.ours,
                cell.deviations()
            );
        }
    }
    Ok(())
}
