//! Graphs and models as files, and the errors of all files around causal models.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use faultscope_analysis::causal::{CausalError, CausalGraph, StructuralModel};
use flate2::read::MultiGzDecoder;

use crate::bounded_file::read_bounded;

/// The most bytes of a file, compressed or not: a hundred columns of 100,000 rows.
const MAX_BYTES: u64 = 128 << 20;

/// The first bytes of a file that gzip compressed.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// A file that could not be used.
#[derive(Debug, thiserror::Error)]
#[error("{}", path.display())]
pub struct FileError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    #[source]
    pub problem: Box<FileProblem>,
}

/// What is wrong with a file.
#[derive(Debug, thiserror::Error)]
pub enum FileProblem {
    /// It cannot be read.
    #[error("it cannot be read")]
    Unreadable(#[source] io::Error),
    /// It is larger than the limit when it is unpacked.
    #[error("it has more than {} MiB when it is unpacked", MAX_BYTES >> 20)]
    TooLarge,
    /// It is not CSV.
    #[error("it is not CSV")]
    NotCsv(#[source] csv::Error),
    /// It has no row with names.
    #[error("its first line has no names of columns")]
    NoNames,
    /// A line has more or fewer cells than there are names.
    #[error("line {line} has {cells} cells, and there are {columns} columns")]
    Ragged {
        /// The line.
        line: u64,
        /// The cells in it.
        cells: usize,
        /// The columns.
        columns: usize,
    },
    /// A cell is empty or says that there is no value.
    #[error("line {line}, column `{column}`: there is no value")]
    MissingValue {
        /// The line.
        line: u64,
        /// The column.
        column: String,
    },
    /// A cell is no number.
    #[error("line {line}, column `{column}`: `{text}` is not a finite number")]
    NotANumber {
        /// The line.
        line: u64,
        /// The column.
        column: String,
        /// The beginning of what is there.
        text: String,
    },
    /// A line of prior knowledge is not understood.
    #[error("line {line}: {problem}")]
    BadPrior {
        /// The line.
        line: u64,
        /// What is wrong with it.
        problem: String,
    },
    /// It is not the JSON that was expected.
    #[error("it is not the JSON of a {expected}")]
    NotJson {
        /// A graph or a model.
        expected: &'static str,
        /// The cause.
        #[source]
        source: serde_json::Error,
    },
    /// What is in it cannot be used.
    #[error(transparent)]
    Unusable(#[from] CausalError),
}

impl FileProblem {
    /// Names the file.
    pub(super) fn of(self, path: &Path) -> FileError {
        FileError { path: path.to_owned(), problem: Box::new(self) }
    }
}

/// Reads a graph that `discover` wrote.
pub fn read_graph(path: &Path) -> Result<CausalGraph, FileError> {
    let bytes = read_unpacked(path)?;
    let wrong = |source| FileProblem::NotJson { expected: "graph", source }.of(path);
    serde_json::from_slice(&bytes).map_err(wrong)
}

/// Reads a model that `fit` wrote, and checks that it fits together.
pub fn read_model(path: &Path) -> Result<StructuralModel, FileError> {
    let bytes = read_unpacked(path)?;
    let wrong = |source| FileProblem::NotJson { expected: "model", source }.of(path);
    let model: StructuralModel = serde_json::from_slice(&bytes).map_err(wrong)?;
    model.check().map_err(|error| FileProblem::Unusable(error).of(path))?;
    Ok(model)
}

/// The bytes of a regular file, unpacked if it is compressed. A small file that unpacks to a huge one stops at the limit.
pub(super) fn read_unpacked(path: &Path) -> Result<Vec<u8>, FileError> {
    let unreadable = |error| FileProblem::Unreadable(error).of(path);
    let bytes = read_bounded(path, MAX_BYTES).map_err(unreadable)?;
    if !bytes.starts_with(&GZIP) {
        return Ok(bytes);
    }
    let mut unpacked = Vec::new();
    MultiGzDecoder::new(bytes.as_slice())
        .take(MAX_BYTES + 1)
        .read_to_end(&mut unpacked)
        .map_err(unreadable)?;
    if unpacked.len() as u64 > MAX_BYTES {
        return Err(FileProblem::TooLarge.of(path));
    }
    Ok(unpacked)
}
