//! Detection, prediction and causal models: data in, verdicts out.
//!
//! This crate may use `faultscope-model` and nothing else of the project. What it works on is there:
//!
//! - traces as trees with corrected clocks, critical paths and dependency links: [`faultscope_model::trace`]
//! - calls as the mesh saw them: [`faultscope_model::span`]
//! - samples of instances and time series that services report: [`faultscope_model::metrics`]
//! - runs with their circumstances and outcomes: [`faultscope_model::run`]
//!
//! [`detect`] finds anomalies in series of values.
//!
//! Whoever calls it reads these from the store; nothing here opens a file, a socket or a clock.

pub mod causal;
pub mod compare;
pub mod detect;
