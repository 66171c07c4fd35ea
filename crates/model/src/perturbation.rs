//! Perturbations of a test run. Adapters read and write them in files, so `faultscope-probe-format` defines the
//! types, and this module only re-exports them.

pub use faultscope_probe_format::{
    Configuration, Event, FORMAT, FormatError, InvalidPerturbation, Kind, PERTURBATION_FILE, Perturbation,
    TRACE_FILE, TargetId, TraceHead, masked_operation, read_trace,
};
