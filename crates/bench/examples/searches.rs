//! Experiments with the searches of `debug` in virtual time, cell by cell:
//! `searches [instances=FILE] [seed=N] [families=mono,..] [cells=mono-15-1,..] [most=N] [slots=1,4]
//! [durations=unit] [strategies=bayes,..] [cancel=SHARE] [tuning=JSON] [hold-out=SEEDS]`.
//!
//! `tuning={"choice":{"least":0.2}}` changes constants of the default search; `hold-out=10` looks at the families that
//! are held out instead. Without a file, instances are drawn from the seed.
#![allow(clippy::print_stdout, reason = "it is a program")]

use faultscope_bench::debug::{
    Plan, Row, Strategy, goals, held_out_figures, measure_hold_out, rows, summarize_hold_out,
};
use faultscope_bench::figure::Figure;
use faultscope_bench::simulate::{Durations, generate, hold_out, read};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let get = |key: &str| arguments.iter().find_map(|a| a.strip_prefix(key)?.strip_prefix('='));
    let list = |key: &str| get(key).map(|v| v.split(',').map(str::to_owned).collect::<Vec<_>>());
    let seed: u64 = get("seed").unwrap_or("0").parse()?;
    let mut plan = Plan { seed, cancel_share: get("cancel").unwrap_or("0").parse()?, ..Plan::default() };
    if let Some(tuning) = get("tuning") {
        plan.tuning = serde_json::from_str(tuning)?;
    }
    if let Some(slots) = list("slots") {
        plan.slots = slots.iter().map(|s| s.parse()).collect::<Result<_, _>>()?;
    }
    if let Some(durations) = list("durations") {
        plan.durations.retain(|d: &Durations| durations.iter().any(|word| word == d.word()));
    }
    if let Some(strategies) = list("strategies") {
        plan.strategies.retain(|s: &Strategy| strategies.iter().any(|name| name == s.name()));
    }
    let mut instances = match (get("instances"), get("hold-out")) {
        (Some(file), _) => read(&std::fs::read_to_string(file)?)?,
        (None, Some(seeds)) => hold_out(seed, seeds.parse()?),
        (None, None) => generate(seed, 20),
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
    if get("hold-out").is_some() {
        let all: Vec<_> = instances.iter().flat_map(|instance| measure_hold_out(instance, &plan)).collect();
        for one in summarize_hold_out(&all) {
            println!(
                "{:22} p{:<3} {:4} searches {:6.2}x faster {:6.2}x fewer started {:5.2} minimal {:4.0}% all {:4.0}%",
                one.family,
                one.slots,
                one.searches,
                one.faster,
                one.fewer,
                one.started,
                100.0 * one.minimal,
                100.0 * one.all_found
            );
        }
        held_out_figures(&all).iter().for_each(show_figure);
        return Ok(());
    }
    println!("strategy  cell             p durations  trials  most started makespan  bound minimal exact");
    let rows = rows(&instances, &plan, show_row);
    println!();
    goals(&rows).iter().for_each(show_figure);
    Ok(())
}

fn show_row(row: &Row) {
    println!(
        "{:9} {:14} {:3} {:9} {:7.2} {:5} {:7.2} {:8.2} {:6.1} {:6.0}% {:4.0}%",
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
}

fn show_figure(figure: &Figure) {
    let number = |value: Option<f64>| value.map_or(String::new(), |value| format!("{value:.3}"));
    println!(
        "{:16} {}: {} of {} ({})",
        figure.verdict,
        figure.name,
        number(figure.measured),
        number(figure.goal),
        figure.detail.as_deref().unwrap_or_default()
    );
}
