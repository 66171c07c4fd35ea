//! `bench debug`: the searches on instances with known causes in virtual time, decisions and large spaces in
//! real time, and with `--live` the fault cases of the sample beside the paper's figures.

mod live;
mod scale;

use std::io::Read as _;
use std::path::Path;

use faultscope_model::figures::{Better, Figure, FigureTable};
use faultscope_search::bench::{self, Anchor, Goal, Plan, Row, Strategy};
use faultscope_search::simulate::{self, Family, Instance};
use tokio::time::Instant;

use crate::bench::BenchArgs;
use crate::error::CommandError;
use crate::exit::Exit;
use crate::printer::Printer;

/// Instances of each cell in full.
const FULL: usize = 20;
/// The largest file of instances that is read.
const MOST_BYTES: u64 = 64 << 20;
/// The most deltas of an instance, so that a wrong file does not run for days.
const MOST_DELTAS: usize = 20_000;
/// How often durations are drawn to see how far one draw of them may be off by chance.
const DRAWS: u32 = 12;
/// What one trial took in the paper's environment, in minutes (section 6.1).
const PAPER_TRIAL: f64 = 2.0;

pub(super) async fn run(
    args: &BenchArgs,
    printer: &Printer,
    notes: &mut Vec<String>,
    tables: &mut Vec<FigureTable>,
) -> Result<Vec<Figure>, CommandError> {
    let instances = instances(args)?;
    let anchors = match &args.anchors {
        Some(file) => bench::read_anchors(&read(file)?),
        None => Vec::new(),
    };
    let from = match &args.instances {
        Some(file) => format!("of {}", file.display()),
        None => format!("drawn from seed {}", args.seed),
    };
    notes.push(format!(
        "{} instances {from}; L = log2 C(n,k), p slots, virtual time; differences below 10 % are ties",
        instances.len()
    ));
    if !args.full {
        notes.push("all instances of mono and paper cells, 2 to 6 of each other one: --full runs all".into());
    }
    let rows = measure(&instances, args.seed, printer);
    let mut figures: Vec<Figure> = bench::goals(&rows).iter().map(figure).collect();
    figures.extend(agreement(&instances, args.seed, &anchors));
    printer.talk("decisions at 1,000 deltas");
    figures.extend(scale::decisions(args.seed));
    printer.talk("10,000 deltas on the simulated platform");
    figures.push(scale::ten_thousand(args.seed).await?);
    printer.talk("one dimension, 1 to 6 slots");
    tables.push(by_strategy(&rows));
    tables.push(figure_3(args.seed, if args.full { FULL } else { 10 }));
    if args.live {
        let (more, table) = live::run(args, printer).await?;
        figures.extend(more);
        tables.extend(table);
    }
    Ok(figures)
}

/// How many instances of a cell are enough to see something within minutes. Cells with a goal of their own need
/// more: the mean of a few is off by more than the tenth that counts.
fn sample(instance: &Instance) -> usize {
    let has_goal = matches!(instance.family, Family::Mono | Family::Paper);
    match instance.n {
        _ if has_goal => FULL,
        ..=128 => 6,
        129..=512 => 3,
        _ => 2,
    }
}

/// The instances of a file, or drawn from the seed; a part of each cell unless all are wanted.
fn instances(args: &BenchArgs) -> Result<Vec<Instance>, CommandError> {
    let mut instances = match &args.instances {
        None => simulate::generate(args.seed, FULL),
        Some(file) => from_file(file)?,
    };
    if !args.full {
        let mut seen = std::collections::BTreeMap::<String, usize>::new();
        instances.retain(|instance| {
            let seen = seen.entry(instance.cell().to_owned()).or_default();
            *seen += 1;
            *seen <= sample(instance)
        });
    }
    Ok(instances)
}

fn from_file(file: &Path) -> Result<Vec<Instance>, CommandError> {
    let wrong = |cause: String| {
        CommandError::usage(format!("{} holds no instances", file.display())).because(cause).hint(
            "one JSON object in a line: {\"id\": \"mono-15-1-0\", \"n\": 15, \"k\": 1, \"family\": \"mono\", \
             \"failing\": [9], \"seed\": 1}",
        )
    };
    let instances = simulate::read(&read(file)?).map_err(|e| wrong(e.to_string()))?;
    if instances.is_empty() {
        return Err(wrong("it is empty".into()));
    }
    if let Some(large) = instances.iter().find(|instance| instance.n > MOST_DELTAS) {
        return Err(wrong(format!("{} has {} deltas, the most is {MOST_DELTAS}", large.id, large.n)));
    }
    Ok(instances)
}

pub(super) fn read(file: &Path) -> Result<String, CommandError> {
    let cannot = || CommandError::usage(format!("cannot read {}", file.display()));
    let mut text = String::new();
    let open = std::fs::File::open(file).map_err(|e| cannot().because(e))?;
    open.take(MOST_BYTES + 1).read_to_string(&mut text).map_err(|e| cannot().because(e))?;
    if text.len() as u64 > MOST_BYTES {
        return Err(cannot().because(format!("it has more than {} MiB", MOST_BYTES >> 20)));
    }
    Ok(text)
}

/// All strategies on all instances, on two threads; one cell after the other is told.
fn measure(instances: &[Instance], seed: u64, printer: &Printer) -> Vec<Row> {
    let plan = Plan { seed, ..Plan::default() };
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get).min(16);
    let mut cells: Vec<Vec<Instance>> = Vec::new();
    for instance in instances {
        match cells.iter_mut().find(|cell| cell[0].cell() == instance.cell()) {
            Some(cell) => cell.push(instance.clone()),
            None => cells.push(vec![instance.clone()]),
        }
    }
    // The cells that take longest first, so that no thread is left alone with one at the end.
    cells.sort_by_key(|cell| std::cmp::Reverse(cell[0].n * cell[0].k));
    let began = Instant::now();
    let (next, done) = (std::sync::atomic::AtomicUsize::new(0), std::sync::atomic::AtomicUsize::new(0));
    let rows = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                use std::sync::atomic::Ordering::Relaxed;
                while let Some(cell) = cells.get(next.fetch_add(1, Relaxed)) {
                    let of_cell = bench::rows(cell, &plan, |_| ());
                    let done = done.fetch_add(1, Relaxed) + 1;
                    printer.talk(format!(
                        "cell {done} of {}, {} s: {}",
                        cells.len(),
                        began.elapsed().as_secs(),
                        cell[0].cell()
                    ));
                    rows.lock().unwrap_or_else(std::sync::PoisonError::into_inner).extend(of_cell);
                }
            });
        }
    });
    let mut rows = rows.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    rows.sort_by(|a: &Row, b| (a.family, a.n, a.k, &a.cell).cmp(&(b.family, b.n, b.k, &b.cell)));
    rows
}

/// A goal by its worst cell, beside what `ddmin-par` has there.
fn figure(goal: &Goal) -> Figure {
    let (cell, value, limit) = goal.worst.clone().unwrap_or_default();
    let name = match goal.missed.len() {
        0 => format!("{}; worst of {}: {cell}", goal.name, goal.cells),
        missed => {
            let ties = match goal.ties() {
                0 => String::new(),
                ties if ties == missed => " by less than 10 %".to_owned(),
                ties => format!(", {ties} of them by less than 10 %"),
            };
            format!("{}; {missed} of {} over{ties}, worst: {cell}", goal.name, goal.cells)
        }
    };
    let better = if goal.at_least { Better::Higher } else { Better::Lower };
    let mut figure = Figure::new(name, value, "", better).goal(limit);
    figure.met = Some(goal.is_met());
    match goal.peer {
        Some(peer) => figure.peer("ddmin-par", peer),
        None => figure,
    }
}

/// How far the yardsticks are from what was recorded for them, in cells where that cannot be chance.
fn agreement(instances: &[Instance], seed: u64, anchors: &[Anchor]) -> Vec<Figure> {
    let cells = bench::agreement(instances, anchors, seed, DRAWS);
    let mut figures = Vec::new();
    for strategy in [Strategy::Ddmin, Strategy::DdminPar] {
        let mut of: Vec<_> = cells.iter().filter(|cell| cell.strategy == strategy).collect();
        of.sort_by(|a, b| {
            (a.holds(), b.off()).partial_cmp(&(b.holds(), a.off())).unwrap_or(std::cmp::Ordering::Equal)
        });
        let Some(worst) = of.first() else { continue };
        let within = of.iter().filter(|cell| cell.off() <= 0.1).count();
        let held = of.iter().filter(|cell| cell.holds()).count();
        let name = format!(
            "{strategy} and its recorded figures: {within} of {} cells within 10 %, {held} within 10 % or chance; worst: {} ({:.0} %, {:.1} deviations)",
            of.len(),
            worst.name,
            100.0 * worst.off(),
            worst.deviations()
        );
        let share = 100.0 * held as f64 / of.len() as f64;
        figures.push(Figure::new(name, share, "%", Better::Higher).goal(100.0));
    }
    figures
}

/// What each strategy needed, over all cells of a family: trials with one slot, makespan with six.
fn by_strategy(rows: &[Row]) -> FigureTable {
    let mut table = FigureTable {
        title: "Mean over the cells of a family (trials with one slot; makespan and started/finished with six, lognormal)"
            .into(),
        head: ["family", "strategy", "trials", "makespan", "started/finished", "1-minimal", "exact"]
            .map(str::to_owned)
            .to_vec(),
        rows: Vec::new(),
    };
    let mut families: Vec<_> = rows.iter().map(|row| row.family).collect();
    families.dedup();
    for family in families {
        for strategy in Strategy::ALL {
            let of = |slots: usize, durations: &str| -> Vec<&Row> {
                let wanted = |r: &&Row| (r.family, r.strategy, r.slots) == (family, strategy, slots);
                rows.iter().filter(wanted).filter(|r| r.durations == durations).collect()
            };
            // The sequential search is the same on any number of slots.
            let (one, six) =
                (of(1, "unit"), of(if strategy == Strategy::Ddmin { 1 } else { 6 }, "lognormal"));
            let mean = |rows: &[&Row], value: &dyn Fn(&Row) -> f64| {
                rows.iter().map(|row| value(row)).sum::<f64>() / rows.len().max(1) as f64
            };
            table.rows.push(vec![
                family.to_string(),
                strategy.to_string(),
                format!("{:.1}", mean(&one, &|r| r.trials)),
                format!("{:.1}", mean(&six, &|r| r.makespan)),
                format!("{:.2}", mean(&six, &|r| r.started / r.trials)),
                format!("{:.0} %", 100.0 * mean(&six, &|r| r.minimal)),
                format!("{:.0} %", 100.0 * mean(&six, &|r| r.exact)),
            ]);
        }
    }
    table
}

/// The paper's Figure 3 in the paper's minutes.
fn figure_3(seed: u64, count: usize) -> FigureTable {
    let mut table = FigureTable {
        title: format!(
            "Figure 3 (RQ1), minutes at {PAPER_TRIAL} min a trial; the paper: 16-37 with one slot to 4-16 with six"
        ),
        head: ["dimension", "deltas", "slots", "not optimised (ddmin)", "optimised (ddmin-par)", "bayes"]
            .map(str::to_owned)
            .to_vec(),
        rows: Vec::new(),
    };
    for cell in bench::scaling(seed, count) {
        let minutes = |units: f64| format!("{:.1}", units * PAPER_TRIAL);
        table.rows.push(vec![
            cell.dimension.into(),
            cell.deltas.to_string(),
            cell.slots.to_string(),
            minutes(cell.ddmin),
            minutes(cell.ddmin_par),
            minutes(cell.bayes),
        ]);
    }
    table
}

/// What went wrong with the sample's files.
fn broken(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> CommandError {
    CommandError::new(Exit::Environment, "the sample cannot be written").because(error)
}
