//! `bench debug`: the searches on instances with known causes in virtual time, decisions and large spaces in
//! real time, and with `--live` the fault cases of the sample beside the paper's figures.

use std::io::Read as _;
use std::path::Path;

use tokio::time::Instant;

use super::{
    Anchor, HeldOut, Plan, Row, Strategy, agreement, goals, held_out_figures, live, measure_hold_out,
    read_anchors, rows, scale, scaling, summarize_hold_out,
};
use crate::args::DebugArgs;
use crate::bench::{Host, Measured};
use crate::error::BenchError;
use crate::figure::Figure;
use crate::report::Table;
use crate::simulate::{self, Family, Instance};

/// Instances per cell with `--full`.
const FULL: usize = 20;
/// The largest file of instances that is read.
const MAX_BYTES: u64 = 64 << 20;
/// The most deltas of an instance, so that a wrong file does not run for days.
const MAX_DELTAS: usize = 20_000;
/// How often durations are drawn to see how far one draw may be off by chance.
const DRAWS: u32 = 12;
/// Seeds per held-out family and size.
const HOLD_OUT_SEEDS: usize = 10;
/// The duration of one trial in the paper's environment, in minutes (section 6.1).
const PAPER_TRIAL: f64 = 2.0;

pub(crate) async fn run(args: &DebugArgs, seed: u64, host: &Host<'_>) -> Result<Measured, BenchError> {
    let instances = instances(args, seed)?;
    let anchors = match &args.anchors {
        Some(file) => read_anchors(&read(file)?),
        None => Vec::new(),
    };
    let mut measured = Measured::default();
    let from = match &args.instances {
        Some(file) => format!("of {}", file.display()),
        None => format!("drawn from seed {seed}"),
    };
    measured.notes.push(format!(
        "{} instances {from}; L = log2 C(n,k), p slots, virtual time; cancelling takes {} of a trial",
        instances.len(),
        args.cancel_share
    ));
    if !args.full {
        let note = "all instances of mono and paper cells, 2 to 6 of each other one: --full runs all";
        measured.notes.push(note.into());
    }
    let plan = Plan { seed, cancel_share: args.cancel_share, ..Plan::default() };
    let rows = measure(&instances, &plan, host);
    measured.figures.extend(goals(&rows));
    measured.figures.extend(compare_with_recorded(&instances, seed, &anchors));
    measured.tables.push(tabulate_strategies(&rows));
    if args.hold_out {
        let held_out = hold_out(&plan, host);
        measured.figures.extend(held_out_figures(&held_out));
        measured.tables.push(tabulate_hold_out(&held_out));
    }
    host.talk("decisions at 1,000 deltas");
    measured.figures.extend(scale::decisions(seed));
    host.talk("10,000 deltas on the simulated platform");
    measured.figures.push(scale::ten_thousand(seed, host).await?);
    host.talk("one dimension, 1 to 6 slots");
    measured.tables.push(figure_3(seed, if args.full { FULL } else { 10 }));
    if args.live {
        live::run(seed, host, &mut measured).await?;
    }
    Ok(measured)
}

/// How many instances of a cell give a result within minutes. Cells with a goal of their own need
/// more: the mean of a few is off by more than the 10 % that count.
fn sample(instance: &Instance) -> usize {
    let has_goal = matches!(instance.family, Family::Mono | Family::Paper);
    match instance.n {
        _ if has_goal => FULL,
        ..=128 => 6,
        129..=512 => 3,
        _ => 2,
    }
}

/// The instances of a file, or drawn from the seed; a sample of each cell unless all are requested.
fn instances(args: &DebugArgs, seed: u64) -> Result<Vec<Instance>, BenchError> {
    let mut instances = match &args.instances {
        None => simulate::generate(seed, FULL),
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

fn from_file(file: &Path) -> Result<Vec<Instance>, BenchError> {
    let wrong = |cause: String| {
        BenchError::usage(format!("{} contains no instances", file.display())).because(cause).hint(
            "one JSON object in a line: {\"id\": \"mono-15-1-0\", \"n\": 15, \"k\": 1, \"family\": \"mono\", \
             \"failing\": [9], \"seed\": 1}",
        )
    };
    let instances = simulate::read(&read(file)?).map_err(|e| wrong(e.to_string()))?;
    if instances.is_empty() {
        return Err(wrong("it is empty".into()));
    }
    if let Some(large) = instances.iter().find(|instance| instance.n > MAX_DELTAS) {
        return Err(wrong(format!("{} has {} deltas, the most is {MAX_DELTAS}", large.id, large.n)));
    }
    Ok(instances)
}

pub(crate) fn read(file: &Path) -> Result<String, BenchError> {
    let cannot = || BenchError::usage(format!("cannot read {}", file.display()));
    let mut text = String::new();
    let open = std::fs::File::open(file).map_err(|e| cannot().because(e))?;
    open.take(MAX_BYTES + 1).read_to_string(&mut text).map_err(|e| cannot().because(e))?;
    if text.len() as u64 > MAX_BYTES {
        return Err(cannot().because(format!("it has more than {} MiB", MAX_BYTES >> 20)));
    }
    Ok(text)
}

/// Runs all strategies on all instances, cell by cell.
fn measure(instances: &[Instance], plan: &Plan, host: &Host<'_>) -> Vec<Row> {
    let mut cells: Vec<Vec<Instance>> = Vec::new();
    for instance in instances {
        match cells.iter_mut().find(|cell| cell[0].cell() == instance.cell()) {
            Some(cell) => cell.push(instance.clone()),
            None => cells.push(vec![instance.clone()]),
        }
    }
    // The longest cells first, so that no thread is left alone with one at the end.
    cells.sort_by_key(|cell| std::cmp::Reverse(cell[0].n * cell[0].k));
    let name = |cell: &Vec<Instance>| cell[0].cell().to_owned();
    let mut all = on_all_cores(&cells, name, |cell| rows(cell, plan, |_| ()), host);
    all.sort_by(|a: &Row, b| (a.family, a.n, a.k, &a.cell).cmp(&(b.family, b.n, b.k, &b.cell)));
    all
}

/// The default search and `ddmin-par` on held-out instances.
fn hold_out(plan: &Plan, host: &Host<'_>) -> Vec<HeldOut> {
    let instances = simulate::hold_out(plan.seed, HOLD_OUT_SEEDS);
    let mut cells: Vec<Vec<Instance>> = instances.chunks(HOLD_OUT_SEEDS).map(<[Instance]>::to_vec).collect();
    cells.sort_by_key(|cell| std::cmp::Reverse(cell[0].n));
    let name = |cell: &Vec<Instance>| format!("held out, {}", cell[0].cell());
    let measure = |cell: &Vec<Instance>| {
        cell.iter().flat_map(|instance| measure_hold_out(instance, plan)).collect::<Vec<_>>()
    };
    on_all_cores(&cells, name, measure, host)
}

/// Processes parts with a thread per core, and prints progress.
fn on_all_cores<Part: Sync, Answer: Send>(
    parts: &[Part],
    name: impl Fn(&Part) -> String + Sync,
    work: impl Fn(&Part) -> Vec<Answer> + Sync,
    host: &Host<'_>,
) -> Vec<Answer> {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get).min(16);
    let began = Instant::now();
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let answers = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(part) = parts.get(next.fetch_add(1, Relaxed)) {
                    if host.stop.is_cancelled() {
                        return;
                    }
                    let of_part = work(part);
                    let done = done.fetch_add(1, Relaxed) + 1;
                    let seconds = began.elapsed().as_secs();
                    host.talk(format!("{done} of {}, {seconds} s: {}", parts.len(), name(part)));
                    answers.lock().unwrap_or_else(std::sync::PoisonError::into_inner).extend(of_part);
                }
            });
        }
    });
    answers.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// How far `ddmin` and `ddmin-par` are from their recorded figures, in cells where that cannot be chance.
fn compare_with_recorded(instances: &[Instance], seed: u64, anchors: &[Anchor]) -> Vec<Figure> {
    let cells = agreement(instances, anchors, seed, DRAWS);
    let mut figures = Vec::new();
    for strategy in [Strategy::Ddmin, Strategy::DdminPar] {
        let mut of: Vec<_> = cells.iter().filter(|cell| cell.strategy == strategy).collect();
        of.sort_by(|a, b| {
            (a.holds(), b.off()).partial_cmp(&(b.holds(), a.off())).unwrap_or(std::cmp::Ordering::Equal)
        });
        let Some(worst) = of.first() else { continue };
        let within = of.iter().filter(|cell| cell.off() <= 0.1).count();
        let held = of.iter().filter(|cell| cell.holds()).count();
        let detail = format!(
            "{within} of {} cells within 10 %, {held} within 10 % or chance; worst: {} ({:.0} %, {:.1} deviations)",
            of.len(),
            worst.name,
            100.0 * worst.off(),
            worst.deviations()
        );
        let name = format!("{strategy} needs what was recorded for it, cells");
        figures.push(Figure::all_of(name, held, of.len()).detail(detail));
    }
    figures
}

/// What each strategy needed, over all cells of a family: trials with one slot, makespan with six.
fn tabulate_strategies(rows: &[Row]) -> Table {
    let mut table = Table::new(
        "Mean over the cells of a family (trials with one slot; makespan and started/finished with six, lognormal)",
        ["family", "strategy", "trials", "makespan", "started/finished", "1-minimal", "exact"],
    );
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

/// Results of held-out instances, by family and slots.
fn tabulate_hold_out(all: &[HeldOut]) -> Table {
    let mut table = Table::new(
        format!(
            "Held out: {HOLD_OUT_SEEDS} seeds of {} sizes; how many times faster and fewer trials than ddmin-par, \
             geometric mean",
            simulate::HOLD_OUT_SIZES.len()
        ),
        ["family", "slots", "searches", "faster", "fewer", "started/finished", "1-minimal", "all causes"],
    );
    for one in summarize_hold_out(all) {
        table.rows.push(vec![
            one.family.to_string(),
            one.slots.to_string(),
            one.searches.to_string(),
            format!("{:.2} x", one.faster),
            format!("{:.2} x", one.fewer),
            format!("{:.2}", one.started),
            format!("{:.0} %", 100.0 * one.minimal),
            format!("{:.0} %", 100.0 * one.all_found),
        ]);
    }
    table
}

/// Figure 3 of the paper, in its minutes.
fn figure_3(seed: u64, count: usize) -> Table {
    let mut table = Table::new(
        format!(
            "Figure 3 (RQ1), minutes at {PAPER_TRIAL} min a trial; the paper: 16-37 with one slot to 4-16 with six"
        ),
        ["dimension", "deltas", "slots", "not optimised (ddmin)", "optimised (ddmin-par)", "bayes"],
    );
    for cell in scaling(seed, count) {
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
