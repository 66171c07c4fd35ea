//! Server-rendered pages and self-contained report files: the one crate that knows HTML.

mod debug;
mod frame;
mod replay;
mod resilience;

pub use debug::debug_report;
pub use replay::replay_report;
pub use resilience::resilience_report;
