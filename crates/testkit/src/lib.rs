//! Harnesses, fixture applications and builders for tests.
//!
//! [`Faultscope`] runs the built tool in a folder of its own; [`Fixture`]s are small applications with known
//! answers that are written into that folder; [`left_over`] finds what a tool left behind. A failing test
//! panics, so that test binaries stay short: this crate must never become a dependency of the tool itself.

#![expect(clippy::missing_panics_doc, reason = "in a test harness a panic is how a test fails")]

mod fixture;
mod golang;
mod left;
mod masks;
mod output;
mod patience;
mod running;
mod tool;
mod view;

pub use fixture::{Fixture, cells, files, grpc, node, python, websocket};
pub use left::{left_over, no_process_left, nothing_left, wait_longer_until, wait_until};
pub use output::Output;
pub use running::Running;
pub use tool::{Faultscope, free_port};
pub use view::RunView;
