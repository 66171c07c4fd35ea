//! Spans as they come in and are asked for: the store of slices, and its HTTP.

use faultscope_model::trace::ReportedSpan;
use faultscope_model::{SpanId, TraceId};

mod contract;
mod ingest;
mod kill;
mod memory;
mod query;
mod server;
mod store;

/// A day in 2023, in microseconds.
const TODAY: u64 = 1_700_000_000_000_000;
const HOUR: u64 = 3_600_000_000;

/// A plain span of the service `front`.
fn span(trace: u64, id: u64, start_us: u64) -> ReportedSpan {
    let mut span = ReportedSpan::new(TraceId(trace.into()), SpanId(id));
    span.start_us = Some(start_us);
    span.duration_us = Some(1000);
    span.name = "get".into();
    span.local.service = Some("front".into());
    span
}

/// Numbers that look random and are the same each time (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// From a microsecond to some seconds, each order of magnitude as often.
    fn duration(&mut self) -> u64 {
        let most = 1 << self.below(24);
        1 + self.below(most)
    }
}
