//! Every decoder of outside bytes by name, for fuzzing and the tests with damaged bodies.

use super::{Batch, Decoded, Limits, MetricFormat, SpanFormat, grpc_message, inflate, jaeger, zipkin};

/// A decoder and its name.
#[derive(Debug, Clone, Copy)]
pub struct Decoder {
    /// Also the name of its fuzz target.
    pub name: &'static str,
    /// Decodes bytes, and panics if it breaks a promise.
    pub read: fn(&[u8], &Limits),
}

/// All decoders.
pub const DECODERS: [Decoder; 14] = [
    Decoder { name: "zipkin_v1_json", read: |bytes, limits| spans(SpanFormat::ZipkinV1Json, bytes, limits) },
    Decoder {
        name: "zipkin_v1_thrift",
        read: |bytes, limits| spans(SpanFormat::ZipkinV1Thrift, bytes, limits),
    },
    Decoder { name: "zipkin_v2_json", read: |bytes, limits| spans(SpanFormat::ZipkinV2Json, bytes, limits) },
    Decoder {
        name: "zipkin_v2_proto",
        read: |bytes, limits| spans(SpanFormat::ZipkinV2Proto, bytes, limits),
    },
    Decoder {
        name: "zipkin_v2_lines",
        read: |bytes, limits| checked(zipkin::v2_lines(bytes, limits).ok(), limits),
    },
    Decoder {
        name: "zipkin_v2_traces",
        read: |bytes, limits| checked(zipkin::v2_traces(bytes, limits).ok(), limits),
    },
    Decoder { name: "otlp_json", read: |bytes, limits| spans(SpanFormat::OtlpJson, bytes, limits) },
    Decoder { name: "otlp_proto", read: |bytes, limits| spans(SpanFormat::OtlpProto, bytes, limits) },
    Decoder {
        name: "otlp_metrics_json",
        read: |bytes, limits| points(MetricFormat::OtlpJson, bytes, limits),
    },
    Decoder {
        name: "otlp_metrics_proto",
        read: |bytes, limits| points(MetricFormat::OtlpProto, bytes, limits),
    },
    Decoder { name: "jaeger_v1", read: |bytes, limits| checked(jaeger::read_v1(bytes, limits).ok(), limits) },
    Decoder { name: "jaeger_v3", read: |bytes, limits| checked(jaeger::read_v3(bytes, limits).ok(), limits) },
    Decoder { name: "inflate", read: inflated },
    Decoder { name: "grpc", read: framed },
];

fn spans(format: SpanFormat, bytes: &[u8], limits: &Limits) {
    checked(format.decode(bytes, limits).ok(), limits);
}

/// Checks that the limits hold and that the store could keep everything.
fn checked(decoded: Option<Decoded>, limits: &Limits) {
    let Some(decoded) = decoded else { return };
    counted(&decoded, limits);
    for span in &decoded.items {
        assert!(span.trace.0 != 0 && span.id.0 != 0, "an id is zero");
        assert!(span.parent != Some(span.id), "a span is its own parent");
        // Scope, links, status and the like are added to a span's own tags.
        assert!(span.tags.len() <= limits.tags && span.annotations.len() <= limits.annotations);
        let texts = span.tags.iter().flat_map(|(key, value)| [key, value]);
        let texts = texts.chain(span.annotations.iter().map(|(_, text)| text)).chain([&span.name]);
        assert!(
            texts.chain(&span.local.service).all(|text| text.len() <= limits.text_bytes * 4),
            "a text is long"
        );
    }
    // Whatever was decoded can be encoded in every format.
    let _ = (zipkin::to_json(&decoded.items), zipkin::to_proto(&decoded.items));
    let _ = (super::otlp::to_proto(&decoded.items), jaeger::v1_traces(&[&decoded.items[..]]));
}

fn points(format: MetricFormat, bytes: &[u8], limits: &Limits) {
    if let Ok(decoded) = format.decode(bytes, limits) {
        counted(&decoded, limits);
    }
}

fn counted<T>(batch: &Batch<T>, limits: &Limits) {
    // A span of Zipkin v1 has several sides.
    assert!(batch.items.len() <= limits.items.saturating_mul(64), "there are too many");
    assert!(batch.rejected.len() <= batch.n_rejected);
    assert_eq!(batch.complaint().is_none(), batch.n_rejected == 0);
}

fn inflated(bytes: &[u8], limits: &Limits) {
    for encoding in ["gzip", "deflate", "identity"] {
        if let Ok(plain) = inflate(bytes, Some(encoding), limits) {
            assert!(plain.len() <= limits.body_bytes);
        }
    }
}

fn framed(bytes: &[u8], limits: &Limits) {
    for encoding in ["gzip", "identity", "zstd"] {
        if let Ok(message) = grpc_message(bytes, encoding, limits, &mut |_| true) {
            assert!(message.len() <= limits.body_bytes);
        }
    }
}
