//! Trace context in its three forms: W3C `traceparent`, B3 in one header, B3 in several.
//!
//! Tolerant in what it reads: what is not valid counts as absent. Nothing here looks at `tracestate` or
//! baggage; these pass through as they are.

use faultscope_model::{SpanId, TraceId};

/// The context that a request brought along.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Incoming {
    pub(crate) trace: TraceId,
    pub(crate) span: SpanId,
    pub(crate) forms: Forms,
    sampled: Option<bool>,
    /// The trace id had 64 bits, which old B3 libraries insist on.
    short: bool,
}

/// The forms a context came in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Forms {
    pub(crate) traceparent: bool,
    pub(crate) single: bool,
    pub(crate) multi: bool,
}

/// Collects context headers while a head is read.
#[derive(Debug, Default)]
pub(crate) struct Collector {
    traceparent: Option<Ids>,
    single: Option<Ids>,
    trace: Option<(u128, bool)>,
    span: Option<u64>,
    sampled: Option<bool>,
}

#[derive(Debug, Clone, Copy)]
struct Ids {
    trace: u128,
    short: bool,
    span: u64,
    sampled: Option<bool>,
}

/// The context headers that go on with a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outgoing {
    trace: TraceId,
    span: SpanId,
    parent: Option<SpanId>,
    forms: Forms,
    sampled: Option<bool>,
    short: bool,
}

/// Whether a header carries context, so that it is replaced rather than handed on. Any case.
pub(crate) fn is_context_header(name: &str) -> bool {
    let known: &[&str] = match name.len() {
        2 => &["b3"],
        11 => &["traceparent", "x-b3-spanid"],
        12 => &["x-b3-traceid", "x-b3-sampled"],
        17 => &["x-b3-parentspanid"],
        _ => return false,
    };
    known.iter().any(|known| name.eq_ignore_ascii_case(known))
}

// === impl Collector ===

impl Collector {
    /// Looks at one header; the first valid one of each form counts.
    pub(crate) fn see(&mut self, name: &str, value: &[u8]) {
        match name.len() {
            2 if name.eq_ignore_ascii_case("b3") => {
                self.single = self.single.or_else(|| parse_single(value));
            }
            11 if name.eq_ignore_ascii_case("traceparent") => {
                self.traceparent = self.traceparent.or_else(|| parse_traceparent(value));
            }
            11 if name.eq_ignore_ascii_case("x-b3-spanid") => {
                self.span = self.span.or_else(|| parse_span(trim(value)));
            }
            12 if name.eq_ignore_ascii_case("x-b3-traceid") => {
                self.trace = self.trace.or_else(|| parse_trace(trim(value)));
            }
            12 if name.eq_ignore_ascii_case("x-b3-sampled") => {
                self.sampled = self.sampled.or_else(|| parse_sampled(trim(value)));
            }
            _ => {}
        }
    }

    /// The context, where a whole one came in; W3C wins over B3 when they disagree.
    pub(crate) fn finish(&self) -> Option<Incoming> {
        let multi = match (self.trace, self.span) {
            (Some((trace, short)), Some(span)) => Some(Ids { trace, short, span, sampled: self.sampled }),
            _ => None,
        };
        let ids = self.traceparent.or(self.single).or(multi)?;
        let short = multi.or(self.single).is_some_and(|b3| b3.short && b3.trace == ids.trace);
        Some(Incoming {
            trace: TraceId(ids.trace),
            span: SpanId(ids.span),
            forms: Forms {
                traceparent: self.traceparent.is_some(),
                single: self.single.is_some(),
                multi: multi.is_some(),
            },
            sampled: ids.sampled,
            short,
        })
    }
}

// === impl Outgoing ===

impl Outgoing {
    /// Continues a context in all forms it came in; a new one goes out in W3C and B3 form, so that either
    /// kind of service can hand it on.
    pub(crate) fn new(
        incoming: Option<&Incoming>,
        trace: TraceId,
        span: SpanId,
        parent: Option<SpanId>,
    ) -> Self {
        let fresh = Forms { traceparent: true, single: false, multi: true };
        Self {
            trace,
            span,
            parent,
            forms: incoming.map_or(fresh, |context| context.forms),
            sampled: incoming.map_or(Some(true), |context| context.sampled),
            short: incoming.is_some_and(|context| context.short),
        }
    }

    /// Hands each header to `put`; names are in lower case.
    pub(crate) fn write(&self, mut put: impl FnMut(&'static str, &[u8])) {
        let mut trace = [0u8; 32];
        hex(self.trace.0, &mut trace);
        let mut span = [0u8; 16];
        hex(u128::from(self.span.0), &mut span);
        let b3_trace = if self.short { &trace[16..] } else { &trace[..] };
        if self.forms.traceparent {
            let mut value = *b"00-00000000000000000000000000000000-0000000000000000-00";
            value[3..35].copy_from_slice(&trace);
            value[36..52].copy_from_slice(&span);
            if self.sampled != Some(false) {
                value[54] = b'1';
            }
            put("traceparent", &value);
        }
        let sampled: &[u8] = if self.sampled == Some(false) { b"0" } else { b"1" };
        if self.forms.multi {
            put("x-b3-traceid", b3_trace);
            put("x-b3-spanid", &span);
            if let Some(parent) = self.parent {
                let mut value = [0u8; 16];
                hex(u128::from(parent.0), &mut value);
                put("x-b3-parentspanid", &value);
            }
            if self.sampled.is_some() {
                put("x-b3-sampled", sampled);
            }
        }
        if self.forms.single {
            let mut value = Vec::with_capacity(52);
            value.extend_from_slice(b3_trace);
            value.push(b'-');
            value.extend_from_slice(&span);
            if self.sampled.is_some() {
                value.push(b'-');
                value.extend_from_slice(sampled);
            }
            put("b3", &value);
        }
    }
}

fn parse_traceparent(value: &[u8]) -> Option<Ids> {
    let value = trim(value);
    if value.len() < 55 || value[2] != b'-' || value[35] != b'-' || value[52] != b'-' {
        return None;
    }
    let version = parse_hex(&value[..2], 2)?;
    // Later versions may append fields; version 0 has exactly these four.
    if version == 0xff || (version == 0 && value.len() != 55) || (value.len() > 55 && value[55] != b'-') {
        return None;
    }
    let trace = parse_hex(&value[3..35], 32).filter(|id| *id != 0)?;
    let span = parse_hex(&value[36..52], 16).filter(|id| *id != 0)?;
    let flags = parse_hex(&value[53..55], 2)?;
    Some(Ids { trace, short: false, span: span as u64, sampled: Some(flags & 1 == 1) })
}

fn parse_single(value: &[u8]) -> Option<Ids> {
    let value = trim(value);
    if value.len() > 128 {
        return None;
    }
    let mut parts = value.split(|byte| *byte == b'-');
    let (trace, short) = parse_trace(parts.next()?)?;
    let span = parse_span(parts.next()?)?;
    let sampled = match parts.next() {
        None => None,
        Some(part) => Some(parse_sampled(part)?),
    };
    if let Some(parent) = parts.next() {
        parse_span(parent)?;
    }
    if parts.next().is_some() {
        return None;
    }
    Some(Ids { trace, short, span, sampled })
}

fn parse_trace(value: &[u8]) -> Option<(u128, bool)> {
    let short = value.len() <= 16;
    parse_hex(value, 32).filter(|id| *id != 0).map(|id| (id, short))
}

fn parse_span(value: &[u8]) -> Option<u64> {
    parse_hex(value, 16).filter(|id| *id != 0).map(|id| id as u64)
}

fn parse_sampled(value: &[u8]) -> Option<bool> {
    match value {
        b"1" | b"d" | b"true" | b"True" | b"TRUE" => Some(true),
        b"0" | b"false" | b"False" | b"FALSE" => Some(false),
        _ => None,
    }
}

fn parse_hex(value: &[u8], most: usize) -> Option<u128> {
    if value.is_empty() || value.len() > most {
        return None;
    }
    value.iter().try_fold(0u128, |sum, byte| {
        let digit = char::from(*byte).to_digit(16)?;
        Some(sum << 4 | u128::from(digit))
    })
}

fn trim(value: &[u8]) -> &[u8] {
    value.trim_ascii()
}

fn hex(mut value: u128, out: &mut [u8]) {
    for place in out.iter_mut().rev() {
        *place = b"0123456789abcdef"[(value & 15) as usize];
        value >>= 4;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(headers: &[(&str, &str)]) -> Option<Incoming> {
        let mut collector = Collector::default();
        for (name, value) in headers {
            collector.see(name, value.as_bytes());
        }
        collector.finish()
    }

    fn written(outgoing: &Outgoing) -> Vec<(String, String)> {
        let mut headers = Vec::new();
        outgoing
            .write(|name, value| headers.push((name.to_owned(), String::from_utf8(value.to_vec()).unwrap())));
        headers
    }

    #[test]
    fn each_form_is_read() {
        let trace = "0af7651916cd43dd8448eb211c80319c";
        let w3c = read(&[("Traceparent", &format!("00-{trace}-b7ad6b7169203331-01"))]).unwrap();
        assert_eq!((w3c.trace.to_string().as_str(), w3c.span.0), (trace, 0xb7ad_6b71_6920_3331));
        let single = read(&[("b3", &format!("{trace}-b7ad6b7169203331-d-05e3ac9a4f6e3b90"))]).unwrap();
        assert_eq!((single.trace, single.sampled), (w3c.trace, Some(true)));
        let multi = read(&[
            ("X-B3-TraceId", "463ac35c9f6413ad"),
            ("x-b3-spanid", "a2fb4a1d1a96d312"),
            ("X-B3-Sampled", "false"),
        ])
        .unwrap();
        assert_eq!((multi.trace.0, multi.short, multi.sampled), (0x463a_c35c_9f64_13ad, true, Some(false)));
    }

    #[test]
    fn invalid_is_absent() {
        let zero = format!("00-{}-b7ad6b7169203331-01", "0".repeat(32));
        let long = format!("00-{}-b7ad6b7169203331-01-x", "a".repeat(32));
        let cases: &[(&str, &str)] = &[
            ("traceparent", ""),
            ("traceparent", &zero),
            ("traceparent", &long),
            ("b3", "0"),
            ("b3", "abc-"),
            ("b3", "abc-1-x"),
            ("b3", "abc-1-1-1-1"),
            ("x-b3-traceid", "abc"),
        ];
        for case in cases {
            assert_eq!(read(&[*case]), None, "{case:?}");
        }
    }

    #[test]
    fn short_ids_stay_short_in_b3_only() {
        let incoming = read(&[("x-b3-traceid", "463ac35c9f6413ad"), ("x-b3-spanid", "1")]).unwrap();
        let headers = written(&Outgoing::new(Some(&incoming), incoming.trace, SpanId(2), Some(SpanId(1))));
        assert_eq!(headers[0], ("x-b3-traceid".to_owned(), "463ac35c9f6413ad".to_owned()));
        assert_eq!(headers.len(), 3, "no sampling decision came in, so none goes out");
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(
            trace in 1u128.., span in 1u64.., sampled in any::<Option<bool>>(),
            traceparent: bool, single: bool, multi: bool,
        ) {
            prop_assume!(traceparent || single || multi);
            let forms = Forms { traceparent, single, multi };
            let outgoing =
                Outgoing { trace: TraceId(trace), span: SpanId(span), parent: None, forms, sampled, short: false };
            let headers = written(&outgoing);
            prop_assert!(headers.iter().all(|(name, _)| is_context_header(name)));
            let pairs: Vec<_> = headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            let back = read(&pairs).unwrap();
            prop_assert_eq!((back.trace.0, back.span.0, back.forms), (trace, span, forms));
        }

        #[test]
        fn any_bytes_are_survived(name in 0usize..5, value in proptest::collection::vec(any::<u8>(), 0..200)) {
            let names = ["traceparent", "b3", "x-b3-traceid", "x-b3-spanid", "x-b3-sampled"];
            let mut collector = Collector::default();
            collector.see(names[name], &value);
            let _ = collector.finish();
        }
    }
}
