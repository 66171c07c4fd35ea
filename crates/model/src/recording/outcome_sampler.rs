//! Keeps headers and bodies by how traces end: of those that failed or were slow, and of a share of the others.
//!
//! The calls of a trace are held until its last one, the request from outside, has ended. Of traces that are not chosen
//! times, sizes and statuses stay, so that counts and dependencies are those of all traffic.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use crate::ids::TraceId;
use crate::record::OutcomeSampling;
use crate::span::Span;

/// The most calls that are held, and the most bytes of their bodies. Beyond, calls are stored at once, without payload.
const MAX_HELD: usize = 50_000;
const MAX_BYTES: usize = 64 << 20;

/// The most traces whose decision is remembered for calls that end after their request.
const MAX_DECIDED: usize = 20_000;

/// Holds the calls of traces that have not ended.
#[derive(Debug)]
pub struct OutcomeSampler {
    rule: OutcomeSampling,
    held: HashMap<TraceId, Vec<Span>>,
    n_held: usize,
    bytes: usize,
    decided: HashMap<TraceId, bool>,
    /// The decided traces in their order, the oldest first.
    order: VecDeque<TraceId>,
    /// Calls that lost their payload because too many were held.
    cut: u64,
}

impl OutcomeSampler {
    /// A sampler that holds nothing yet.
    pub fn new(rule: OutcomeSampling) -> Self {
        Self {
            rule,
            held: HashMap::new(),
            n_held: 0,
            bytes: 0,
            decided: HashMap::new(),
            order: VecDeque::new(),
            cut: 0,
        }
    }

    /// Takes a call that has ended; gives those that can be stored now. `ends_trace` says whether it came from outside.
    pub fn offer(&mut self, span: Span, ends_trace: bool) -> Vec<Span> {
        if let Some(is_kept) = self.decided.get(&span.trace) {
            // A failure after the answer is still a failure.
            let is_kept = *is_kept || span.failed();
            return vec![shape(span, is_kept)];
        }
        let trace = span.trace;
        if !ends_trace && (self.n_held >= MAX_HELD || self.bytes + payload_bytes(&span) > MAX_BYTES) {
            self.cut += 1;
            return vec![shape(span, false)];
        }
        self.n_held += 1;
        self.bytes += payload_bytes(&span);
        let duration = ends_trace.then(|| Duration::from_micros(span.duration_us));
        self.held.entry(trace).or_default().push(span);
        match duration {
            Some(duration) => self.decide(trace, Some(duration)),
            None => Vec::new(),
        }
    }

    /// Decides about all traces that have not ended, and gives their calls.
    pub fn finish(&mut self) -> Vec<Span> {
        let mut open: Vec<TraceId> = self.held.keys().copied().collect();
        open.sort_unstable();
        open.into_iter().flat_map(|trace| self.decide(trace, None)).collect()
    }

    /// Calls that lost their payload because too many were held.
    pub fn cut(&self) -> u64 {
        self.cut
    }

    fn decide(&mut self, trace: TraceId, duration: Option<Duration>) -> Vec<Span> {
        let spans = self.held.remove(&trace).unwrap_or_default();
        self.n_held -= spans.len();
        self.bytes -= spans.iter().map(payload_bytes).sum::<usize>();
        let is_slow = duration.zip(self.rule.slow).is_some_and(|(took, slow)| took >= slow);
        let is_kept = is_slow || self.rule.is_chosen(trace) || spans.iter().any(Span::failed);
        if self.decided.insert(trace, is_kept).is_none() {
            self.order.push_back(trace);
        }
        if self.order.len() > MAX_DECIDED
            && let Some(oldest) = self.order.pop_front()
        {
            self.decided.remove(&oldest);
        }
        spans.into_iter().map(|span| shape(span, is_kept)).collect()
    }
}

fn shape(mut span: Span, is_kept: bool) -> Span {
    if !is_kept {
        span.payload = None;
    }
    span
}

fn payload_bytes(span: &Span) -> usize {
    span.payload.as_deref().map_or(0, |payload| payload.request_body.len() + payload.response_body.len())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::span::Payload;

    fn call(trace: u128, id: u64, status: u16, duration_us: u64) -> Span {
        let json = serde_json::json!({
            "trace": format!("{trace:x}"), "id": format!("{id:x}"), "caller": "web-1", "callee": "stock", "port": 80,
            "wire": "http1", "method": "GET", "path": "/", "start_us": id, "duration_us": duration_us,
            "request_bytes": 0, "response_bytes": 0, "status": status,
        });
        let mut span: Span = serde_json::from_value(json).unwrap();
        span.payload = Some(Box::new(Payload::default()));
        span
    }

    fn sampler(share_ppm: u32, slow_ms: Option<u64>) -> OutcomeSampler {
        OutcomeSampler::new(OutcomeSampling { share_ppm, slow: slow_ms.map(Duration::from_millis) })
    }

    fn kept(spans: &[Span]) -> Vec<(u64, bool)> {
        spans.iter().map(|span| (span.id.0, span.payload.is_some())).collect()
    }

    #[test]
    fn failed_and_slow_traces_are_kept_whole() {
        let mut sampler = sampler(0, Some(5));
        assert!(sampler.offer(call(1, 2, 200, 10), false).is_empty(), "nothing is known yet");
        assert_eq!(kept(&sampler.offer(call(1, 1, 200, 100), true)), [(2, false), (1, false)]);
        assert!(sampler.offer(call(2, 4, 503, 10), false).is_empty());
        assert_eq!(
            kept(&sampler.offer(call(2, 3, 200, 100), true)),
            [(4, true), (3, true)],
            "one call failed"
        );
        assert_eq!(kept(&sampler.offer(call(3, 5, 200, 5_000), true)), [(5, true)], "it was slow");
    }

    #[test]
    fn calls_after_the_answer_follow_their_trace() {
        let mut sampler = sampler(0, None);
        sampler.offer(call(1, 1, 200, 1), true);
        assert_eq!(kept(&sampler.offer(call(1, 2, 200, 1), false)), [(2, false)]);
        assert_eq!(kept(&sampler.offer(call(1, 3, 500, 1), false)), [(3, true)]);
        sampler.offer(call(9, 4, 200, 1), false);
        assert_eq!(kept(&sampler.finish()), [(4, false)]);
    }

    #[test]
    fn memory_is_bounded() {
        let mut sampler = sampler(1_000_000, None);
        for id in 0..MAX_HELD as u64 {
            assert!(sampler.offer(call(1, id + 1, 200, 1), false).is_empty());
        }
        assert_eq!(kept(&sampler.offer(call(1, u64::MAX, 200, 1), false)), [(u64::MAX, false)]);
        assert_eq!((sampler.cut(), sampler.finish().len()), (1, MAX_HELD));
    }

    proptest! {
        #[test]
        fn no_call_is_lost(ends: Vec<(u8, bool)>) {
            let mut sampler = sampler(500_000, Some(1));
            let mut stored = 0;
            for (index, (trace, ends_trace)) in ends.iter().enumerate() {
                let span = call(u128::from(*trace) + 1, index as u64 + 1, 200, 10);
                stored += sampler.offer(span, *ends_trace).len();
            }
            prop_assert_eq!(stored + sampler.finish().len(), ends.len());
            prop_assert_eq!((sampler.n_held, sampler.bytes), (0, 0));
        }
    }

    #[test]
    fn shares_are_kept() {
        let rule = OutcomeSampling { share_ppm: 100_000, slow: None };
        // Ids as tracers draw them: evenly over all bits.
        let ids =
            (1..=10_000_u128).map(|n| TraceId(n.wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835)));
        let chosen = ids.filter(|id| rule.is_chosen(*id)).count();
        assert!((900..1_100).contains(&chosen), "{chosen} of 10000");
    }
}
