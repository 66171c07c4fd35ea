//! Whatever was reported, every span has its place and nothing panics.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;

use crate::ids::{SpanId, TraceId};
use crate::trace::{
    Endpoint, Linker, ReportedSpan, SpanKind, TraceTree, clock_corrections, critical_path, group_by_trace,
    merge_pieces,
};

fn endpoint() -> impl Strategy<Value = Endpoint> {
    (of("[a-z]{1,3}"), of(any::<u32>()), of(any::<u128>()), of(1u16..)).prop_map(|(service, v4, v6, port)| {
        let ipv4 = v4.map(|ip| IpAddr::V4(Ipv4Addr::from(ip)));
        let ipv6 = v6.map(|ip| IpAddr::V6(Ipv6Addr::from(ip)));
        Endpoint { service, ipv4, ipv6, port }
    })
}

/// Few ids, so that spans share them, are their own grandparents and miss their parents.
fn reported() -> impl Strategy<Value = ReportedSpan> {
    let kind = prop_oneof![
        Just(SpanKind::Client),
        Just(SpanKind::Server),
        Just(SpanKind::Producer),
        Just(SpanKind::Consumer)
    ];
    let ids = (prop_oneof![Just(1u128), Just(1 << 64 | 1), 1u128..], 1u64..6, of(1u64..6));
    let times = (of(1u64..1_000), of(1u64..1_000));
    let tags = proptest::collection::btree_map("[a-z.]{0,6}", "\\PC{0,4}", 0..4);
    let annotations = vec((0u64..100, "[a-z]{0,4}"), 0..3);
    (ids, of(kind), times, (endpoint(), endpoint()), any::<bool>(), tags, annotations).prop_map(
        |((trace, id, parent), kind, times, endpoints, shared, tags, annotations)| {
            let mut span = ReportedSpan::new(TraceId(trace), SpanId(id));
            (span.parent, span.kind, span.shared) = (parent.map(SpanId), kind, shared);
            (span.start_us, span.duration_us) = times;
            (span.local, span.remote) = endpoints;
            span.tags = tags.into_iter().collect();
            span.annotations = annotations;
            span.normalize();
            span
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_span_has_its_place(spans in vec(reported(), 0..12)) {
        for trace in group_by_trace(spans, false) {
            let tree = TraceTree::new(trace.clone());
            prop_assert_eq!(tree.breadth_first().len(), tree.spans.len());
            prop_assert_eq!(tree.depth_first().len(), tree.spans.len());
            // No id is lost by joining.
            let ids = |spans: &[ReportedSpan]| spans.iter().map(|span| span.id).collect::<BTreeSet<_>>();
            prop_assert_eq!(ids(&merge_pieces(trace.clone())), ids(&trace));
            prop_assert!(tree.spans.len() <= trace.len());
            let shifts = clock_corrections(&tree);
            let path = critical_path(&tree, &shifts);
            prop_assert!(path.windows(2).all(|pair| pair[0].end_us <= pair[1].start_us));
            let mut linker = Linker::default();
            linker.add(&tree);
            prop_assert!(linker.links().iter().all(|link| link.error_count <= link.call_count));
        }
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
        let tree = TraceTree::new(spans.collect());
        let _ = critical_path(&tree, &clock_corrections(&tree));
    }
}
