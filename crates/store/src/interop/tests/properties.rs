//! Whatever comes in, nothing panics; what goes out comes back.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use faultscope_model::trace::{Endpoint, ReportedSpan, SpanKind, TraceQuery};
use faultscope_model::{SpanId, TraceId};
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;

use crate::interop::decoders::DECODERS;
use crate::interop::query::{
    Parameters, go_duration_us, jaeger_v1, jaeger_v3, matches, matches_one_span, rfc3339_us, zipkin_traces,
};
use crate::interop::{Limits, jaeger, otlp, zipkin};

fn small() -> Limits {
    Limits { body_bytes: 1 << 16, items: 50, tags: 4, annotations: 4, text_bytes: 8, ..Limits::default() }
}

/// Everything that reads bytes.
fn read_all(bytes: &[u8]) {
    for limits in [Limits::default(), small()] {
        for decoder in DECODERS {
            (decoder.read)(bytes, &limits);
        }
    }
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z.]{0,6}", "\\PC{0,4}"]
}

fn endpoint() -> impl Strategy<Value = Endpoint> {
    (of("[a-z]{1,3}"), of(any::<u32>()), of(any::<u64>()), of(1u16..)).prop_map(|(service, v4, v6, port)| {
        Endpoint {
            service,
            ipv4: v4.map(|ip| IpAddr::V4(Ipv4Addr::from(ip))),
            // Not one that stands for an IPv4 address.
            ipv6: v6.map(|ip| IpAddr::V6(Ipv6Addr::from(0x2001 << 112 | u128::from(ip)))),
            port,
        }
    })
}

fn reported() -> impl Strategy<Value = ReportedSpan> {
    let kind = prop_oneof![
        Just(SpanKind::Client),
        Just(SpanKind::Server),
        Just(SpanKind::Producer),
        Just(SpanKind::Consumer)
    ];
    let ids = (prop_oneof![Just(1u128), Just(1 << 64 | 1), 1u128..], 1u64..6, of(1u64..6));
    let times = (of(1u64..1_000), of(1u64..1_000));
    let tags = proptest::collection::btree_map(text(), text(), 0..4);
    let annotations = vec((0u64..100, text()), 0..3);
    (
        ids,
        of(kind),
        text(),
        times,
        (endpoint(), endpoint()),
        (any::<bool>(), any::<bool>()),
        tags,
        annotations,
    )
        .prop_map(|((trace, id, parent), kind, name, times, endpoints, flags, tags, annotations)| {
            let mut span = ReportedSpan::new(TraceId(trace), SpanId(id));
            span.parent = parent.map(SpanId);
            span.kind = kind;
            span.name = name.to_lowercase();
            (span.start_us, span.duration_us) = times;
            (span.local, span.remote) = endpoints;
            (span.shared, span.debug) = flags;
            span.tags = tags.into_iter().collect();
            span.annotations = annotations;
            span.normalize();
            span
        })
        // Lower case of lower case may differ outside ASCII.
        .prop_filter("stable in lower case", |span| span.name == span.name.to_lowercase())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn bytes_do_no_harm(bytes in vec(any::<u8>(), 0..200)) {
        read_all(&bytes);
    }

    /// Bytes that begin as each format does get further in.
    #[test]
    fn beginnings_do_no_harm(start in 0usize..8, bytes in vec(any::<u8>(), 0..100)) {
        let beginnings: [&[u8]; 8] = [
            b"[{\"traceId\":\"1\",\"id\":\"2\",",
            b"[{\"traceId\":\"1\",\"id\":\"2\",\"binaryAnnotations\":[{\"key\":\"a\",",
            b"{\"resourceSpans\":[{\"scopeSpans\":[{\"spans\":[{",
            &[12, 0, 0, 0, 1, 15, 0, 6, 12, 0, 0, 0, 1],
            &[12, 0, 0, 0, 1, 13, 0, 99],
            &[10, 100, 10, 8, 0, 0, 0, 0, 0, 0, 0, 1],
            &[10, 80, 18, 60, 18, 40],
            &[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff],
        ];
        read_all(&[beginnings[start], &bytes].concat());
    }

    /// Good bodies with a few bytes changed get furthest.
    #[test]
    fn damaged_bodies_do_no_harm(spans in vec(reported(), 1..4), damage in vec((any::<u16>(), any::<u8>()), 0..6)) {
        for mut body in [
            zipkin::to_json(&spans),
            zipkin::to_proto(&spans),
            otlp::to_json(&spans),
            otlp::to_proto(&spans),
            jaeger::v3_traces(&spans),
        ] {
            for (at, byte) in &damage {
                let at = usize::from(*at) % body.len();
                body[at] = *byte;
            }
            read_all(&body);
        }
    }

    #[test]
    fn zipkin_reads_back(spans in vec(reported(), 0..6)) {
        let limits = Limits::default();
        prop_assert_eq!(&zipkin::v2_json(&zipkin::to_json(&spans), &limits).unwrap().items, &spans);
        prop_assert_eq!(&zipkin::v2_lines(&zipkin::to_lines(&spans), &limits).unwrap().items, &spans);
        prop_assert_eq!(&zipkin::v2_traces(&zipkin::traces_to_json(&[&spans[..]]), &limits).unwrap().items, &spans);
        prop_assert_eq!(&zipkin::v2_proto(&zipkin::to_proto(&spans), &limits).unwrap().items, &spans);
    }

    #[test]
    fn otlp_reads_back_alike(spans in vec(reported(), 0..6)) {
        let limits = Limits::default();
        let json = otlp::traces_json(&otlp::to_json(&spans), &limits).unwrap();
        let proto = otlp::traces_proto(&otlp::to_proto(&spans), &limits).unwrap();
        prop_assert_eq!(&json, &proto);
        prop_assert_eq!(json.items.len(), spans.len());
        let key = |span: &ReportedSpan| (span.trace, span.id, span.parent, span.kind, span.name.clone(), span.start_us);
        let mut read: Vec<_> = json.items.iter().map(key).collect();
        let mut wrote: Vec<_> = spans.iter().map(key).collect();
        read.sort();
        wrote.sort();
        prop_assert_eq!(read, wrote);
        prop_assert!(serde_json::from_slice::<serde_json::Value>(&jaeger::v1_traces(&[&spans[..]])).is_ok());
    }

    #[test]
    fn queries_do_no_harm(text in "\\PC{0,60}", spans in vec(reported(), 0..4), end in any::<u64>(), back in any::<u64>()) {
        let parameters = Parameters::parse(&text);
        let named = Parameters::parse(&format!("service={text}&query.startTimeMin={text}&annotationQuery={text}&tags={text}"));
        for parameters in [&parameters, &named] {
            let _ = zipkin_traces(parameters, end);
            let _ = jaeger_v1(parameters, end);
            let _ = jaeger_v3(parameters);
        }
        let _ = (go_duration_us(&text), rfc3339_us(&text));
        let query = TraceQuery { end_us: end, lookback_us: back, limit: 1, ..TraceQuery::default() };
        prop_assert!(!matches_one_span(&query, &spans) || !spans.is_empty());
        let _ = matches(&query, &spans);
    }

    #[test]
    fn extreme_times_do_no_harm(starts in vec((of(any::<u64>()), of(any::<u64>())), 1..6)) {
        let spans = starts.into_iter().zip(1u64..).map(|((start, duration), id)| {
            let mut span = ReportedSpan::new(TraceId(1), SpanId(id));
            span.parent = Some(SpanId(id - 1)).filter(|parent| parent.0 > 0);
            span.kind = Some(if id % 2 == 0 { SpanKind::Server } else { SpanKind::Client });
            span.local.ipv4 = Some(IpAddr::V4(Ipv4Addr::from(id as u32)));
            (span.start_us, span.duration_us) = (start, duration);
            span
        });
        let spans: Vec<_> = spans.collect();
        let _ = (otlp::to_proto(&spans), zipkin::to_proto(&spans), jaeger::v1_traces(&[&spans[..]]));
    }
}
