//! The vocabulary of Faultscope: application file, circumstance, delta, plan, span, rule, outcome, run.
//!
//! Plain data and plain functions. This crate knows no I/O, no async and no clock, so that everything
//! in it can be tested by the thousand in milliseconds. All other crates speak its words.

pub mod circumstance;
pub mod ids;
pub mod operation;
pub mod plan;
pub mod protocol;
pub mod rule;
pub mod series;
pub mod span;
pub mod units;
pub mod wiring;

pub use ids::{CampaignId, InstanceId, NodeId, RunId, ServiceName, SlotId, SpanId, TraceId, TrialId};
pub use operation::OperationPattern;
pub use protocol::Protocol;
