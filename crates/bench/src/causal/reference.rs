//! What reference packages found and needed, read from files.

use std::path::{Path, PathBuf};

use faultscope_analysis::causal::Observations;
use faultscope_engine::causal::{TableOptions, read_table};

use super::simulate::Edges;
use crate::debug::command::read;
use crate::error::BenchError;

/// A data set of a folder, with its true edges.
pub(super) struct DataSet {
    pub(super) name: String,
    pub(super) observations: Observations,
    pub(super) edges: Edges,
    /// What the reference found, by number of rows.
    pub(super) reference: Vec<(usize, Edges)>,
}

/// A recorded run of DAGMA with linear effects on standardised columns.
pub(super) struct Anchor {
    pub(super) set: String,
    pub(super) rows: usize,
    pub(super) cpu_seconds: f64,
    pub(super) f1: f64,
}

/// All sets `NAME.csv.gz` of a folder that have a file `NAME.edges.csv`.
pub(super) fn read_sets(folder: &Path) -> Result<Vec<DataSet>, BenchError> {
    let cannot = || BenchError::usage(format!("cannot read {}", folder.display()));
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .map_err(|error| cannot().because(error))?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter_map(|name| name.strip_suffix(".edges.csv").map(str::to_owned))
        .collect();
    names.sort();
    if names.is_empty() {
        return Err(cannot().because("there is no file NAME.edges.csv beside NAME.csv.gz").hint(
            "a set is NAME.csv.gz with numbers, NAME.edges.csv with from,to,weight, and NAME.lingamN.csv with what the \
             reference found on the first N rows",
        ));
    }
    names.into_iter().map(|name| read_set(folder, name)).collect()
}

fn read_set(folder: &Path, name: String) -> Result<DataSet, BenchError> {
    let file = folder.join(format!("{name}.csv.gz"));
    let wrong = |error: faultscope_engine::causal::FileError| {
        BenchError::usage(format!("cannot use {}", error.path.display())).because(error.problem)
    };
    let observations = read_table(&file, &TableOptions::default()).map_err(wrong)?.observations;
    let edges = read_edges(&folder.join(format!("{name}.edges.csv")))?;
    let mut reference = Vec::new();
    for rows in [500, 2000] {
        let file: PathBuf = folder.join(format!("{name}.lingam{rows}.csv"));
        if file.is_file() {
            reference.push((rows, read_edges(&file)?));
        }
    }
    Ok(DataSet { name, observations, edges, reference })
}

/// Lines `from,to,weight` after a heading.
fn read_edges(file: &Path) -> Result<Edges, BenchError> {
    let text = read(file)?;
    let edge = |line: &str| {
        let mut cells = line.split(',');
        Some((cells.next()?.trim().to_owned(), cells.next()?.trim().to_owned()))
    };
    let lines = text.lines().skip(1).filter(|line| !line.trim().is_empty());
    let edges: Option<Edges> = lines.map(edge).collect();
    edges.ok_or_else(|| BenchError::usage(format!("{} has a line without two columns", file.display())))
}

/// Anchors `dagma-linear/SET/ROWS/std` of a recorded file; other lines are about other methods.
pub(super) fn read_anchors(text: &str) -> Vec<Anchor> {
    let mut lines = text.lines();
    let heading: Vec<&str> = lines.next().unwrap_or_default().split(',').collect();
    let place = |name: &str| heading.iter().position(|cell| *cell == name);
    let (Some(job), Some(cpu), Some(f1)) = (place("job"), place("cpu_s"), place("f1")) else {
        return Vec::new();
    };
    let anchor = |line: &str| {
        let cells: Vec<&str> = line.split(',').collect();
        let mut parts = cells.get(job)?.split('/');
        let [method, set, rows, scale] = [parts.next()?, parts.next()?, parts.next()?, parts.next()?];
        (method == "dagma-linear" && scale == "std").then_some(())?;
        Some(Anchor {
            set: set.to_owned(),
            rows: rows.parse().ok()?,
            cpu_seconds: cells.get(cpu)?.parse().ok()?,
            f1: cells.get(f1)?.parse().ok()?,
        })
    };
    lines.filter_map(anchor).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_anchors_of_dagma_on_standardised_columns_are_read() {
        let text = "job,dataset,rows,wall_s,cpu_s,f1\n\
            dagma-linear/lin13_s1/500/raw,lin13_s1,500,62.5,15.09,0.4048\n\
            dagma-linear/lin13_s1/500/std,lin13_s1,500,13.657,3.303,0.5417\n\
            gcm/lin43_s1/500/true-graph,lin43_s1,500,207.3,20.7,\n";
        let anchors = read_anchors(text);
        assert_eq!(anchors.len(), 1);
        let Anchor { set, rows, cpu_seconds, f1 } = &anchors[0];
        assert_eq!((set.as_str(), *rows, *cpu_seconds, *f1), ("lin13_s1", 500, 3.303, 0.5417));
    }
}
