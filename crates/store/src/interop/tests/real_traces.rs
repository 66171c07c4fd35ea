//! Ten real traces from Zipkin's own tests, where they are at hand.

use std::fs;
use std::path::Path;

use faultscope_model::trace::{
    Linker, TraceTree, clock_corrections, critical_path, group_by_trace, trace_start_us,
};

use crate::interop::{Limits, jaeger, otlp, zipkin};

/// Name, spans, traces, spans after joining their pieces.
const TRACES: [(&str, usize); 10] = [
    ("ascend", 8),
    ("envoy", 1),
    ("messaging", 4),
    ("messaging2", 11),
    ("messaging-kafka", 28),
    ("simple-db-p6", 5),
    ("skew", 4),
    ("yelp", 16),
    ("smartthings-oauth-authorization", 175),
    ("smartthings-mobile-web-install", 1041),
];

#[test]
#[expect(clippy::print_stderr, reason = "what was left out must be said")]
fn real_traces_are_read_written_and_understood() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/zipkin");
    if !folder.is_dir() {
        eprintln!("LEFT OUT: the ten real traces are not here ({})", folder.display());
        return;
    }
    let limits = Limits::default();
    for (name, count) in TRACES {
        let body = fs::read(folder.join(format!("{name}.json"))).unwrap();
        let decoded = zipkin::v2_json(&body, &limits).unwrap();
        assert_eq!(decoded.rejected, [], "{name}");
        let spans = decoded.items;
        assert_eq!(spans.len(), count, "{name}");
        assert_eq!(zipkin::v2_json(&zipkin::to_json(&spans), &limits).unwrap().items, spans, "{name}");
        assert_eq!(zipkin::v2_proto(&zipkin::to_proto(&spans), &limits).unwrap().items, spans, "{name}");
        let otlp = otlp::traces_proto(&otlp::to_proto(&spans), &limits).unwrap();
        assert_eq!((otlp.items.len(), otlp.n_rejected), (count, 0), "{name}");
        assert!(serde_json::from_slice::<serde_json::Value>(&jaeger::v1_traces(&[&spans])).is_ok());

        let traces = group_by_trace(spans, true);
        assert_eq!(traces.len(), 1, "{name}");
        let start = trace_start_us(&traces[0]);
        let tree = TraceTree::new(traces.into_iter().next().unwrap());
        assert_eq!(tree.breadth_first().len(), tree.spans.len(), "{name}");
        let shifts = clock_corrections(&tree);
        // With corrected clocks no server starts before its client where both say when and where.
        for node in &tree.nodes {
            let Some((index, parent)) = node.span.zip(node.parent.and_then(|parent| tree.nodes[parent].span))
            else {
                continue;
            };
            let at =
                |index: usize| tree.spans[index].start_us.map(|us| us.saturating_add_signed(shifts[index]));
            if name == "skew"
                && let (Some(child), Some(parent)) = (at(index), at(parent))
            {
                assert!(child > parent, "{name}");
            }
        }
        let path = critical_path(&tree, &shifts);
        assert!(path.windows(2).all(|pair| pair[0].end_us <= pair[1].start_us), "{name}");
        assert!(start.is_some() && !path.is_empty(), "{name}");
        let mut linker = Linker::default();
        linker.add(&tree);
        let links = linker.links();
        assert!(links.iter().all(|link| link.error_count <= link.call_count), "{name}");
        let services = match name {
            "smartthings-mobile-web-install" => 10,
            "envoy" | "skew" => 0,
            _ => 1,
        };
        assert!(links.len() >= services, "{name}: {links:?}");
    }
}
