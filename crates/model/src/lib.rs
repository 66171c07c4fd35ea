//! The vocabulary of Faultscope: application file, circumstance, delta, plan, span, rule, outcome, run.
//!
//! Plain data and plain functions. This crate knows no I/O, no async and no clock, so that thousands of its
//! tests run in milliseconds. All other crates use its types.

pub mod application;
pub mod call_error;
pub mod capture;
pub mod circumstance;
pub mod compare;
pub mod digest;
pub mod event;
pub mod exit_reason;
pub mod grpc;
pub mod ids;
pub mod import;
pub mod input;
pub mod log;
pub mod metrics;
pub mod mount;
pub mod not_applied;
pub mod operation;
pub mod outcome;
pub mod perturbation;
pub mod plan;
pub mod protocol;
pub mod random;
pub mod record;
pub mod recording;
pub mod redis_commands;
pub mod rule;
pub mod run;
pub mod scale;
pub mod secrets;
pub mod series;
pub mod space;
pub mod span;
mod spoiled;
pub mod terminal;
pub mod trace;
mod treatment;
mod trial_id;
pub mod units;
pub mod wiring;
pub mod workload;
mod yaml;

pub use application::Application;
pub use call_error::CallError;
pub use circumstance::Circumstance;
pub use exit_reason::ExitReason;
pub use ids::{CampaignId, InstanceId, NodeId, RunId, ServiceName, SlotId, SpanId, TraceId};
pub use not_applied::{NotApplied, RestartError};
pub use operation::OperationPattern;
pub use outcome::Outcome;
pub use protocol::Protocol;
pub use record::{Record, SecretRules, Tracing};
pub use run::Run;
pub use space::{DeltaSet, Space};
pub use span::Span;
pub use spoiled::Spoiled;
pub use treatment::{GivenInput, Treatment};
pub use trial_id::{CampaignKind, TrialId, TrialRole};
