//! One clock for all spans of a mesh: wall time at the start plus monotonic time since.
//!
//! Spans of one machine order correctly even when the wall clock is set while they are made.

use std::time::{SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

/// Gives the microseconds since 1970.
#[derive(Debug)]
pub(crate) struct Clock {
    wall_us: u64,
    started: Instant,
}

impl Clock {
    pub(crate) fn start() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { wall_us: wall.as_micros() as u64, started: Instant::now() }
    }

    /// Microseconds since 1970 at a monotonic instant.
    pub(crate) fn at(&self, instant: Instant) -> u64 {
        self.wall_us + instant.saturating_duration_since(self.started).as_micros() as u64
    }
}
