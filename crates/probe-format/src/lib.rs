//! The two files through which a test process is perturbed and reports what happened, and the names in them.
//!
//! The events are those of De Bleser et al. 2020 (section 3.2): Create, Send and Turn. The files are JSON
//! so that adapters for other languages can be written; `docs/guide/actors.md` describes them.
//!
//! Adapters are compiled into the test crates of users, so this crate depends on nothing of the tool and
//! only on what parses and writes JSON, and on SHA-256.

mod operation;
mod perturbation;
mod perturbation_file;
mod target;
mod target_json;
mod target_text;
mod trace_file;

pub use operation::{grpc_path, masked_operation};
pub use perturbation::{InvalidPerturbation, Kind, Perturbation};
pub use perturbation_file::Configuration;
pub use target::TargetId;
pub use trace_file::{Event, TraceHead, read_trace};

/// The environment variable that names the file a test process writes its trace to.
pub const TRACE_FILE: &str = "FAULTSCOPE_TRACE";

/// The environment variable that names the file with the perturbations of a run.
pub const PERTURBATION_FILE: &str = "FAULTSCOPE_PERTURB";

/// The version of both files.
pub const FORMAT: u32 = 1;

/// A file that does not have the expected format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct FormatError {
    /// From 1.
    pub line: usize,
    /// What is wrong, as a fragment.
    pub problem: String,
}

fn check_version(found: u32) -> Result<(), FormatError> {
    if found == FORMAT {
        return Ok(());
    }
    Err(FormatError {
        line: 1,
        problem: format!("the file has version {found} of the format, expected {FORMAT}"),
    })
}
