//! The current time, and durations as typed.

use std::time::{SystemTime, UNIX_EPOCH};

use faultscope_model::units;

use crate::error::CommandError;

/// Microseconds since 1970.
pub(crate) fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// Parses a duration into microseconds.
pub(crate) fn parse_micros(text: &str) -> Result<u64, CommandError> {
    let duration = units::parse_duration(text).map_err(|e| CommandError::usage(e.to_string()))?;
    Ok(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX))
}
