//! Any span that the types allow comes back as it was.

use faultscope_model::grpc::Descriptors;
use faultscope_model::span::{Extent, Parentage, Payload, Span, Wire};
use faultscope_model::{CallError, InstanceId, NodeId, SlotId, SpanId, TraceId, TrialId};
use proptest::prelude::*;

use crate::{meta, store};

fn any_span() -> impl Strategy<Value = Span> {
    let name = || "[a-z][a-z0-9_.-]{0,62}".prop_map(|text: String| text.parse().unwrap());
    let instance =
        move || (name(), any::<u32>()).prop_map(|(service, ordinal)| InstanceId::new(service, ordinal));
    let wire = prop::sample::select(vec![Wire::Http1, Wire::Http2, Wire::WebSocket, Wire::Tcp, Wire::Tls]);
    let parentage = prop::sample::select(vec![
        Parentage::Root,
        Parentage::Propagated,
        Parentage::Inferred,
        Parentage::Unknown,
    ]);
    let headers = || prop::collection::vec((any::<String>(), any::<String>()), 0..3);
    let body = || prop::collection::vec(any::<u8>(), 0..20);
    let payload = prop::option::of((headers(), headers(), body(), body()).prop_map(|parts| {
        let (request_headers, response_headers, request_body, response_body) = parts;
        Box::new(Payload { request_headers, response_headers, request_body, response_body, decoded: None })
    }));
    let ids = (any::<u128>(), any::<u64>(), prop::option::of(any::<u64>()), parentage);
    let ends = (instance(), any::<u16>(), name(), prop::option::of(instance()), any::<u16>(), any::<u16>());
    // What the mesh says today, and what an older version may have written.
    let error = prop_oneof![
        prop::sample::select(CallError::ALL.to_vec()),
        any::<String>().prop_map(|text| CallError::Described { text }),
    ];
    let words = (wire, any::<String>(), any::<String>(), prop::option::of(error));
    let times = (any::<u64>(), any::<u64>(), prop::option::of(any::<u64>()), any::<u64>(), any::<u64>());
    let ending = (
        prop::option::of(any::<u16>()),
        prop::option::of(any::<u16>()),
        prop::collection::vec(any::<u32>(), 0..4),
        (any::<bool>(), any::<bool>()),
    );
    (ids, ends, words, times, ending, payload).prop_map(|(ids, ends, words, times, ending, payload)| Span {
        trace: TraceId(ids.0),
        id: SpanId(ids.1),
        parent: ids.2.map(SpanId),
        parentage: ids.3,
        caller: ends.0,
        caller_node: NodeId(ends.1),
        callee: ends.2,
        callee_instance: ends.3,
        callee_node: NodeId(ends.4),
        port: ends.5,
        wire: words.0,
        method: words.1,
        path: words.2,
        start_us: times.0,
        duration_us: times.1,
        first_byte_us: times.2,
        request_bytes: times.3,
        response_bytes: times.4,
        status: ending.0,
        grpc_status: ending.1,
        error: words.3,
        rules: ending.2,
        target: None,
        extent: Extent { continued: ending.3.0, open: ending.3.1 },
        payload,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_span_comes_back_as_it_was(mut spans in prop::collection::vec(any_span(), 1..10), trial: u32) {
        let (_folder, store) = store();
        let campaign = store.campaign(meta("aa11-1", 1)).unwrap();
        for span in &spans {
            campaign.sink().record(TrialId::chosen(trial), SlotId(u16::MAX), span.clone());
        }
        campaign.flush_blocking().unwrap();
        spans.sort_by_key(|span| (span.start_us, span.id));
        // Bytes of connections that nobody reads are not kept.
        for span in spans.iter_mut().filter(|span| span.wire.is_opaque()) {
            if let Some(payload) = span.payload.as_deref_mut() {
                (payload.request_body, payload.response_body) = (Vec::new(), Vec::new());
            }
        }
        // The reader decodes what looks like gRPC.
        spans.iter_mut().for_each(|span| span.decode_bodies(&Descriptors::default()));
        let reader = campaign.reader().unwrap();
        prop_assert_eq!(&reader.spans_of(TrialId::chosen(trial)).unwrap(), &spans);
        let first = &spans[0];
        prop_assert!(reader.spans_of_trace(first.trace).unwrap().contains(first));
    }
}
