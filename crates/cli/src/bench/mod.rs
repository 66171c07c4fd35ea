//! `faultscope bench`: figures beside goals and peers, all from one run.

mod args;
mod client;
mod debug;
mod endure;
mod ingest;
mod mesh;
mod part;
mod platform;
mod query;
mod resilience;
mod spans;
mod usage;

pub(crate) use args::{BenchArgs, BenchPartArgs};

use args::BenchName;
use faultscope_model::figures::{BenchReport, Better, Environment, Figure, FigureTable};

use crate::error::CommandError;
use crate::exit::Exit;
use crate::printer::Printer;
use crate::render::table::Table;

pub(crate) async fn run(args: BenchArgs, printer: &Printer) -> Result<Exit, CommandError> {
    if args.name != BenchName::Ingest && (args.soak.is_some() || args.kills.is_some()) {
        return Err(CommandError::usage("--soak and --kills go with `bench ingest`"));
    }
    let mut notes = Vec::new();
    let mut tables = Vec::new();
    let (bench, figures) = match args.name {
        BenchName::Mesh => ("mesh", mesh::run(&args, printer, &mut notes).await?),
        BenchName::Ingest => ("ingest", ingest::run(&args, printer, &mut notes).await?),
        BenchName::Query => ("query", query::run(&args, printer, &mut notes).await?),
        BenchName::Platform => ("platform", platform::run(&args, printer, &mut notes).await?),
        BenchName::Debug => ("debug", debug::run(&args, printer, &mut notes, &mut tables).await?),
        BenchName::Resilience => {
            ("resilience", resilience::run(&args, printer, &mut notes, &mut tables).await?)
        }
    };
    let environment = environment(args.seed, notes);
    let report = BenchReport { bench: bench.to_owned(), environment, figures, tables };
    if printer.json {
        printer.result(&report)?;
    } else {
        show(&report, printer);
    }
    Ok(Exit::Done)
}

pub(crate) async fn part(args: BenchPartArgs) -> Result<Exit, CommandError> {
    part::run(&args.part).await
}

fn environment(seed: u64, notes: Vec<String>) -> Environment {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    Environment {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        profile: if cfg!(debug_assertions) { "debug" } else { "release" }.to_owned(),
        system: format!("{} {}", std::env::consts::OS, kernel.trim()),
        cores: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        seed,
        notes,
    }
}

fn show(report: &BenchReport, printer: &Printer) {
    let environment = &report.environment;
    printer.line(format!(
        "bench {} on {} with {} cores, {} build, seed {}",
        report.bench, environment.system, environment.cores, environment.profile, environment.seed
    ));
    let number = |value: f64| match value.abs() {
        v if v >= 1000.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    };
    let mut table = Table::new(&["figure", "value", "unit", "goal", "met", "peer"]);
    for figure in &report.figures {
        let sign = match figure.better {
            Better::Higher => ">=",
            Better::Lower => "<=",
        };
        let met = match figure.met {
            Some(true) => "yes",
            Some(false) => "NO",
            None => "",
        };
        let peer = match (&figure.peer, figure.peer_value) {
            (Some(peer), Some(value)) => format!("{peer}: {}", number(value)),
            _ => String::new(),
        };
        table.row([
            figure.name.clone(),
            number(figure.value),
            figure.unit.clone(),
            figure.goal.map(|goal| format!("{sign} {}", number(goal))).unwrap_or_default(),
            met.to_owned(),
            peer,
        ]);
    }
    printer.line(table);
    for FigureTable { title, head, rows } in &report.tables {
        printer.line(format!("\n{}", printer.strong(title)));
        let mut table = Table::new(&head.iter().map(String::as_str).collect::<Vec<_>>());
        rows.iter().for_each(|row| table.row(row.iter().cloned()));
        printer.line(table);
    }
    for note in &environment.notes {
        printer.line(format!("note: {note}"));
    }
}

/// The middle one of several measurements.
fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn lower(name: &str, value: f64, unit: &str, goal: f64) -> Figure {
    Figure::new(name, value, unit, Better::Lower).goal(goal)
}
