//! `bench debug`: the searches of `debug` on instances with known causes.
//!
//! Everything but the command itself is in virtual time, so that tests of searches can use it.

mod agreement;
mod anchor;
#[cfg(feature = "yardsticks")]
pub(crate) mod command;
mod goals;
mod hold_out;
#[cfg(feature = "yardsticks")]
mod live;
mod rows;
#[cfg(feature = "yardsticks")]
mod scale;
mod scaling;

pub use agreement::{Agreement, agreement};
pub use anchor::{Anchor, read_anchors};
pub use goals::{CELL_TOLERANCE, goals};
pub use hold_out::{HeldOut, HeldOutSummary, held_out_figures, measure_hold_out, summarize_hold_out};
pub use rows::{Plan, Row, Strategy, finds_all_causes, rows, run, run_for};
pub use scaling::{Scaling, scaling};
