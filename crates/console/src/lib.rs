//! Server-rendered pages and self-contained report files: the one crate that knows HTML.

mod debug;
mod frame;

pub use debug::debug_report;
