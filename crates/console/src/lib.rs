//! Server-rendered pages and self-contained report files: the one crate that knows HTML.

mod debug;
mod frame;
mod resilience;

pub use debug::debug_report;
pub use resilience::resilience_report;
