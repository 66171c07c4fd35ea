//! Runs discovery on data sets and judges what it found and needed.

use faultscope_analysis::causal::{DiscoveryOptions, Method, Observations, discover};
use tokio::time::Instant;

use super::reference::{Anchor, DataSet, read_anchors, read_sets};
use super::simulate::{Edges, draw_system};
use crate::args::CausalArgs;
use crate::bench::{Host, Measured};
use crate::debug::command::read;
use crate::error::BenchError;
use crate::figure::{Direction, Figure};
use crate::report::Table;
use crate::usage::own_process;

/// Columns, rows and the most CPU seconds of DirectLiNGAM.
const GOALS: [(usize, usize, f64); 2] = [(43, 500, 0.25), (100, 2000, 10.0)];
/// DAGMA may be worse than the reference by this much, and need this share of its CPU time.
const F1_TOLERANCE: f64 = 0.02;
const CPU_SHARE: f64 = 1.0 / 3.0;
/// Columns and rows of drawn systems.
const DRAWN: [(usize, usize); 3] = [(13, 500), (43, 500), (100, 2000)];
/// CPU seconds within which the slow methods end for thirteen columns.
const SLOW: [(Method, &str, f64); 2] =
    [(Method::DagmaMlp, "DAGMA-MLP", 60.0), (Method::DagGnn, "DAG-GNN", 120.0)];

pub(crate) async fn run(args: &CausalArgs, seed: u64, host: &Host<'_>) -> Result<Measured, BenchError> {
    let mut measured = Measured::default();
    match &args.data {
        Some(folder) => {
            let sets = read_sets(folder)?;
            measured.notes.push(format!("{} sets of {}", sets.len(), folder.display()));
            compare_lingam(&sets, host, &mut measured)?;
            if let Some(file) = &args.anchors {
                compare_dagma(&sets, &read_anchors(&read(file)?), host, &mut measured)?;
            }
        }
        None => {
            measured.notes.push(format!("systems drawn from seed {seed}; --data compares with a reference"));
            measure_drawn(seed, host, &mut measured)?;
        }
    }
    measured.figures.push(measure_scaling(seed, host)?);
    if args.slow {
        measure_slow(seed, host, &mut measured)?;
    }
    Ok(measured)
}

/// What one discovery found and needed.
struct Found {
    edges: Edges,
    cpu_seconds: f64,
}

fn find(
    observations: &Observations,
    method: Method,
    seed: u64,
    host: &Host<'_>,
) -> Result<Found, BenchError> {
    if host.stop.is_cancelled() {
        return Err(BenchError::interrupted());
    }
    let options = DiscoveryOptions { method, priors: Vec::new(), seed };
    let began = own_process();
    let found = discover(observations, &options)
        .map_err(|error| BenchError::internal("discovery failed on a set of the bench").because(error))?;
    let cpu_seconds = (own_process() - began).as_secs_f64();
    let name = |at: usize| found.graph.nodes()[at].clone();
    let edges = found.graph.edges().iter().map(|edge| (name(edge.from), name(edge.to))).collect();
    Ok(Found { edges, cpu_seconds })
}

/// The harmonic mean of precision and recall.
fn f1(found: &Edges, wanted: &Edges) -> f64 {
    let right = found.intersection(wanted).count() as f64;
    2.0 * right / (found.len() + wanted.len()).max(1) as f64
}

fn compare_lingam(sets: &[DataSet], host: &Host<'_>, measured: &mut Measured) -> Result<(), BenchError> {
    let mut table =
        Table::new("DirectLiNGAM", ["set", "rows", "edges", "other than reference", "F1", "CPU s"]);
    let (mut same, mut compared) = (0, 0);
    let mut costs: Vec<(usize, usize, f64)> = Vec::new();
    for set in sets {
        host.talk(format!("DirectLiNGAM: {}", set.name));
        for (rows, reference) in &set.reference {
            let found = find(&set.observations.head(*rows), Method::DirectLingam, 0, host)?;
            let others = found.edges.symmetric_difference(reference).count();
            compared += 1;
            same += usize::from(others == 0);
            costs.push((set.observations.names().len(), *rows, found.cpu_seconds));
            table.rows.push(vec![
                set.name.clone(),
                rows.to_string(),
                found.edges.len().to_string(),
                others.to_string(),
                format!("{:.4}", f1(&found.edges, &set.edges)),
                format!("{:.3}", found.cpu_seconds),
            ]);
        }
    }
    measured.figures.push(Figure::all_of(
        "DirectLiNGAM: sets with the edges of the reference",
        same,
        compared,
    ));
    measured.figures.extend(judge_costs(&costs));
    measured.tables.push(table);
    Ok(())
}

/// The largest CPU time for each size with a goal.
fn judge_costs(costs: &[(usize, usize, f64)]) -> Vec<Figure> {
    let judge = |&(columns, rows, goal): &(usize, usize, f64)| {
        let of_size: Vec<f64> =
            costs.iter().filter(|cost| (cost.0, cost.1) == (columns, rows)).map(|cost| cost.2).collect();
        let most = of_size.iter().copied().reduce(f64::max)?;
        let name = format!("DirectLiNGAM: CPU at {columns} columns, {rows} rows");
        Some(Figure::lower(name, most, "s").goal(goal).spread(&of_size))
    };
    GOALS.iter().filter_map(judge).collect()
}

fn compare_dagma(
    sets: &[DataSet],
    anchors: &[Anchor],
    host: &Host<'_>,
    measured: &mut Measured,
) -> Result<(), BenchError> {
    let mut table =
        Table::new("DAGMA-linear, standardised", ["set", "rows", "F1", "reference", "CPU s", "reference s"]);
    let (mut below, mut shares) = (Vec::new(), Vec::new());
    for anchor in anchors {
        let Some(set) = sets.iter().find(|set| set.name == anchor.set) else { continue };
        host.talk(format!("DAGMA-linear: {}, {} rows", set.name, anchor.rows));
        let found = find(&set.observations.head(anchor.rows), Method::DagmaLinear, 0, host)?;
        let score = f1(&found.edges, &set.edges);
        below.push(anchor.f1 - score);
        shares.push(found.cpu_seconds / anchor.cpu_seconds);
        table.rows.push(vec![
            set.name.clone(),
            anchor.rows.to_string(),
            format!("{score:.4}"),
            format!("{:.4}", anchor.f1),
            format!("{:.2}", found.cpu_seconds),
            format!("{:.2}", anchor.cpu_seconds),
        ]);
    }
    let worst = |values: &[f64]| values.iter().copied().fold(f64::NAN, f64::max);
    let name = "DAGMA-linear: F1 below the reference, worst set";
    measured.figures.push(Figure::lower(name, worst(&below), "").goal(F1_TOLERANCE).spread(&below));
    let name = "DAGMA-linear: CPU as a share of the reference's, worst set";
    measured.figures.push(Figure::lower(name, worst(&shares), "").goal(CPU_SHARE).spread(&shares));
    measured.tables.push(table);
    Ok(())
}

fn measure_drawn(seed: u64, host: &Host<'_>, measured: &mut Measured) -> Result<(), BenchError> {
    let mut table = Table::new("drawn systems", ["method", "columns", "rows", "edges", "F1", "CPU s"]);
    let mut costs = Vec::new();
    for (columns, rows) in DRAWN {
        let (observations, edges) = draw(columns, rows, seed)?;
        for (method, name) in [(Method::DirectLingam, "DirectLiNGAM"), (Method::DagmaLinear, "DAGMA-linear")]
        {
            host.talk(format!("{name}: {columns} columns"));
            let found = find(&observations, method, seed, host)?;
            if method == Method::DirectLingam {
                costs.push((columns, rows, found.cpu_seconds));
            }
            table.rows.push(vec![
                name.to_owned(),
                columns.to_string(),
                rows.to_string(),
                found.edges.len().to_string(),
                format!("{:.4}", f1(&found.edges, &edges)),
                format!("{:.3}", found.cpu_seconds),
            ]);
        }
    }
    measured.figures.extend(judge_costs(&costs));
    measured.tables.push(table);
    Ok(())
}

/// How much sooner discovery ends on all cores than on one.
fn measure_scaling(seed: u64, host: &Host<'_>) -> Result<Figure, BenchError> {
    host.talk("DirectLiNGAM on one core and on all");
    let (observations, _) = draw(100, 2000, seed)?;
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut times = Vec::new();
    for threads in [1, cores] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        let pool =
            pool.map_err(|error| BenchError::environment("threads cannot be started").because(error))?;
        let began = Instant::now();
        pool.install(|| find(&observations, Method::DirectLingam, seed, host))?;
        times.push(began.elapsed().as_secs_f64());
    }
    let name = format!("DirectLiNGAM: speed-up on {cores} cores, 100 columns, 2000 rows");
    Ok(Figure::new(name, times[0] / times[1], "x", Direction::Higher))
}

fn measure_slow(seed: u64, host: &Host<'_>, measured: &mut Measured) -> Result<(), BenchError> {
    let (observations, edges) = draw(13, 500, seed)?;
    for (method, name, within) in SLOW {
        host.talk(format!("{name}: 13 columns"));
        let found = find(&observations, method, seed, host)?;
        let figure = Figure::lower(format!("{name}: CPU at 13 columns, 500 rows"), found.cpu_seconds, "s");
        measured.figures.push(figure.goal(within).detail(format!("F1 {:.2}", f1(&found.edges, &edges))));
    }
    Ok(())
}

fn draw(columns: usize, rows: usize, seed: u64) -> Result<(Observations, Edges), BenchError> {
    draw_system(columns, rows, seed).ok_or_else(|| BenchError::internal("a drawn system is not finite"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_score_is_the_harmonic_mean_of_precision_and_recall() {
        let edges = |pairs: &[(&str, &str)]| -> Edges {
            pairs.iter().map(|(from, to)| (from.to_string(), to.to_string())).collect()
        };
        let wanted = edges(&[("a", "b"), ("b", "c")]);
        assert_eq!(f1(&wanted, &wanted), 1.0);
        assert_eq!(f1(&edges(&[("a", "b"), ("c", "b")]), &wanted), 0.5);
        assert_eq!(f1(&edges(&[]), &wanted), 0.0);
    }

    #[test]
    fn the_slowest_set_of_a_size_is_judged() {
        let figures = judge_costs(&[(43, 500, 0.1), (43, 500, 0.3), (43, 2000, 9.0)]);
        assert_eq!(figures.len(), 1);
        assert_eq!((figures[0].measured, figures[0].goal), (Some(0.3), Some(0.25)));
    }
}
