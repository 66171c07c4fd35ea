//! Perturbations of a test's run. They travel to adapters and back in files, so their types belong to the
//! format of these files and are only named here.

pub use faultscope_probe_format::{
    Configuration, Event, FORMAT, FormatError, InvalidPerturbation, Kind, PERTURBATION_FILE, Perturbation,
    TRACE_FILE, TargetId, TraceHead, masked_operation, read_trace,
};
