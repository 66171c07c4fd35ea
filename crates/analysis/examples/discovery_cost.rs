//! CPU seconds of discovery on CSV files, and how its edges compare with those of other files.
//!
//! Usage: discovery_cost lingam|dagma ROWS DATA.csv.gz EDGES.csv

use std::collections::BTreeSet;
use std::error::Error;
use std::io::Read;

use faultscope_analysis::causal::{DiscoveryOptions, Method, Observations, discover};

fn cpu_seconds() -> f64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

#[expect(clippy::print_stdout, reason = "the figures are the purpose")]
fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [method, rows, data, edges] = words.as_slice() else {
        return Err("usage: discovery_cost lingam|dagma ROWS DATA.csv.gz EDGES.csv".into());
    };
    let mut text = String::new();
    flate2::read::GzDecoder::new(std::fs::File::open(data)?).read_to_string(&mut text)?;
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let names: Vec<String> = reader.headers()?.iter().map(str::to_owned).collect();
    let mut columns = vec![Vec::new(); names.len()];
    for record in reader.records() {
        for (column, cell) in columns.iter_mut().zip(record?.iter()) {
            column.push(cell.parse()?);
        }
    }
    let observations = Observations::new(names, columns)?.head(rows.parse()?);
    let method = match method.as_str() {
        "dagma" => Method::DagmaLinear,
        "mlp" => Method::DagmaMlp,
        "gnn" => Method::DagGnn,
        _ => Method::DirectLingam,
    };
    let wanted: BTreeSet<(String, String)> = csv::Reader::from_path(edges)?
        .deserialize::<(String, String, f64)>()
        .map(|edge| edge.map(|(from, to, _)| (from, to)))
        .collect::<Result<_, _>>()?;
    let began = cpu_seconds();
    let found = discover(&observations, &DiscoveryOptions { method, ..DiscoveryOptions::default() })?;
    let took = cpu_seconds() - began;
    let name = |at: usize| found.graph.nodes()[at].clone();
    let edges: BTreeSet<(String, String)> =
        found.graph.edges().iter().map(|edge| (name(edge.from), name(edge.to))).collect();
    let right = edges.intersection(&wanted).count() as f64;
    let f1 = 2.0 * right / (edges.len() + wanted.len()) as f64;
    println!("{data} {rows}: {took:.3} CPU s, {} edges, F1 {f1:.4}, {:?}", edges.len(), found.cautions);
    Ok(())
}
