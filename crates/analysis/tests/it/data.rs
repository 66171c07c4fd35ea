//! Data sets with known edges, and what the reference package found on them.

use std::io::Read;
use std::path::{Path, PathBuf};

use faultscope_analysis::causal::Observations;

/// The small sets lie in the repository; larger ones are outside data that is not everywhere.
pub(crate) fn small_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data")
}

/// Where the larger sets are, if they are here.
#[expect(clippy::print_stderr, reason = "what was left out must be said")]
pub(crate) fn large_folder() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/causal");
    if !folder.is_dir() {
        eprintln!("LEFT OUT: the larger sets are not here ({})", folder.display());
        return None;
    }
    Some(folder)
}

/// The columns of a compressed CSV file.
pub(crate) fn read_observations(folder: &Path, set: &str) -> Observations {
    let file = std::fs::File::open(folder.join(format!("{set}.csv.gz"))).unwrap();
    let mut text = String::new();
    flate2::read::GzDecoder::new(file).read_to_string(&mut text).unwrap();
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let names: Vec<String> = reader.headers().unwrap().iter().map(str::to_owned).collect();
    let mut columns = vec![Vec::new(); names.len()];
    for record in reader.records() {
        for (column, cell) in columns.iter_mut().zip(record.unwrap().iter()) {
            column.push(cell.parse().unwrap());
        }
    }
    Observations::new(names, columns).unwrap()
}

/// Edges as names of cause and effect with their weight, sorted.
pub(crate) fn read_edges(folder: &Path, name: &str) -> Vec<(String, String, f64)> {
    let mut reader = csv::Reader::from_path(folder.join(name)).unwrap();
    let mut edges: Vec<(String, String, f64)> = reader.deserialize().map(Result::unwrap).collect();
    edges.sort_by(|a, b| (&a.0, &a.1).cmp(&(&b.0, &b.1)));
    edges
}
