//! Good bodies, damaged millions of times if wished: `FAULTSCOPE_TEST_DAMAGE=1000000` for each decoder. The same
//! readers and the same bodies are where `fuzz/` begins.

use std::io::Write;

use faultscope_model::trace::ReportedSpan;

use crate::interop::decoders::DECODERS;
use crate::interop::{Limits, jaeger, otlp, zipkin};

/// Numbers that look random and are the same each time (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) as usize % end.max(1)
    }
}

fn spans() -> Vec<ReportedSpan> {
    let mut spans = super::spans(
        r#"[{"traceId":"a","id":"1","kind":"CLIENT","timestamp":1700000000000000,"duration":200,
             "localEndpoint":{"serviceName":"front","ipv4":"10.0.0.1"},"remoteEndpoint":{"serviceName":"stock"}},
            {"traceId":"a","id":"1","kind":"SERVER","timestamp":1700000000000010,"duration":100,"shared":true,
             "localEndpoint":{"serviceName":"stock","ipv4":"10.0.0.2"},"remoteEndpoint":{"serviceName":"front"}},
            {"traceId":"a","id":"2","parentId":"1","kind":"PRODUCER","timestamp":1700000000000020,"duration":7,
             "localEndpoint":{"serviceName":"stock"},"remoteEndpoint":{"serviceName":"kafka"},"tags":{"error":""}},
            {"traceId":"a","id":"3","parentId":"2","kind":"CONSUMER",
             "localEndpoint":{"serviceName":"mail"},"remoteEndpoint":{"serviceName":"kafka"}}]"#,
    );
    for (number, span) in spans.iter_mut().enumerate() {
        span.name = format!("get /größe/{number}");
        span.tags.push(("http.status_code".into(), "500".into()));
        span.tags.push(("service.version".into(), "1.2".into()));
        span.tags.push(("otel.links".into(), format!("{:032x}-{:016x}", 7, 8)));
        span.annotations.push((1_700_000_000_000_030, "\"exception\":{\"type\":\"Timeout\"}".into()));
    }
    spans
}

/// Old bodies, which nothing here writes.
const V1_JSON: &str = r#"[{"traceId":"a","id":"1","parentId":"2","name":"get","timestamp":10,"duration":50,"debug":true,
    "annotations":[{"timestamp":10,"value":"cs","endpoint":{"serviceName":"web","ipv4":"1.2.3.4","port":80}},
                   {"timestamp":60,"value":"cr","endpoint":{"serviceName":"web"}},{"timestamp":15,"value":"sr"},
                   {"timestamp":55,"value":"ss","endpoint":{"serviceName":"app","ipv6":"2001:db8::1"}}],
    "binaryAnnotations":[{"key":"sa","value":true,"endpoint":{"serviceName":"app"}},{"key":"http.path","value":"/p"},
                         {"key":"n","value":5,"type":"I32"},{"key":"d","value":1.5,"type":"DOUBLE"},{"key":"b","value":"aGk=","type":"BYTES"}]}]"#;

const METRICS: &str = r#"{"resourceMetrics":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"order"}}]},
    "scopeMetrics":[{"metrics":[{"name":"cpu","unit":"1","gauge":{"dataPoints":[{"asDouble":0.5,"timeUnixNano":"1700000000000000000"}]}},
    {"name":"n","sum":{"aggregationTemporality":2,"isMonotonic":true,"dataPoints":[{"asInt":"3","timeUnixNano":"17"}]}},
    {"name":"h","histogram":{"dataPoints":[{"count":"2","sum":3.5,"bucketCounts":["1","1"],"explicitBounds":[1.0],"timeUnixNano":"17"}]}},
    {"name":"e","exponentialHistogram":{"dataPoints":[{"count":"2","sum":3.5,"scale":1,"zeroCount":"1","positive":{"offset":1,"bucketCounts":["1"]},"timeUnixNano":"17"}]}},
    {"name":"s","summary":{"dataPoints":[{"count":"2","sum":3.5,"quantileValues":[{"quantile":0.5,"value":1}],"timeUnixNano":"17"}]}}]}]}]}"#;

/// The same as protobuf, as far as it matters: resource, scope, one gauge, one sum, one histogram.
fn metrics_proto() -> Vec<u8> {
    let field = |number: u8, bytes: &[u8]| {
        assert!(bytes.len() < 0x80, "one byte tells the length");
        [&[number << 3 | 2, bytes.len() as u8], bytes].concat()
    };
    let time = [&[3 << 3 | 1][..], &17u64.to_le_bytes()].concat();
    let double = [&[4 << 3 | 1][..], &0.5f64.to_le_bytes()].concat();
    let point = field(1, &[time.clone(), double].concat());
    let gauge = [field(1, b"cpu"), field(3, b"1"), field(5, &point)].concat();
    let sum = [field(1, b"n"), field(7, &[point, vec![2 << 3, 2, 3 << 3, 1]].concat())].concat();
    let histogram = field(1, &[time, vec![4 << 3 | 1, 2, 0, 0, 0, 0, 0, 0, 0]].concat());
    let histogram = [field(1, b"h"), field(9, &histogram)].concat();
    let scope = [gauge, sum, histogram].map(|metric| field(2, &metric)).concat();
    let attribute = [field(1, b"service.name"), field(2, &field(1, b"order"))].concat();
    let resource = field(1, &field(1, &attribute));
    field(1, &[resource, field(2, &scope)].concat())
}

fn thrift() -> Vec<u8> {
    let text = |field: u8, text: &[u8]| [&[11, 0, field, 0, 0, 0, text.len() as u8], text].concat();
    let long = |field: u8, value: i64| [&[10, 0, field][..], &value.to_be_bytes()].concat();
    let endpoint = [vec![8, 0, 1, 10, 0, 0, 1, 6, 0, 2, 0, 80], text(3, b"web"), vec![0]].concat();
    let host = |field: u8| [vec![12, 0, field], endpoint.clone()].concat();
    let annotation = |us, value: &[u8]| [long(1, us), text(2, value), host(3), vec![0]].concat();
    let annotations = [vec![15, 0, 6, 12, 0, 0, 0, 2], annotation(10, b"cs"), annotation(60, b"cr")].concat();
    let tag = |key: &[u8], value: &[u8], kind| {
        [text(1, key), text(2, value), vec![8, 0, 3, 0, 0, 0, kind], host(4), vec![0]].concat()
    };
    let tags = [vec![15, 0, 8, 12, 0, 0, 0, 2], tag(b"http.path", b"/p", 6), tag(b"sa", &[1], 0)].concat();
    let span = [long(1, 10), text(3, b"get"), long(4, 1), long(5, 2), annotations, tags];
    [vec![12, 0, 0, 0, 1], span.concat(), vec![2, 0, 9, 1], long(10, 10), long(11, 50), long(12, 3), vec![0]]
        .concat()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// A good body for each decoder, in their order.
fn good_bodies() -> Vec<(&'static str, Vec<u8>)> {
    let spans = spans();
    let packed = gzip(&otlp::to_proto(&spans));
    let framed = [&[1][..], &u32::try_from(packed.len()).unwrap().to_be_bytes(), &packed].concat();
    vec![
        ("zipkin_v1_json", V1_JSON.as_bytes().to_vec()),
        ("zipkin_v1_thrift", thrift()),
        ("zipkin_v2_json", zipkin::to_json(&spans)),
        ("zipkin_v2_proto", zipkin::to_proto(&spans)),
        ("zipkin_v2_lines", zipkin::to_lines(&spans)),
        ("zipkin_v2_traces", zipkin::traces_to_json(&[&spans[..2], &spans[2..]])),
        ("otlp_json", otlp::to_json(&spans)),
        ("otlp_proto", otlp::to_proto(&spans)),
        ("otlp_metrics_json", METRICS.as_bytes().to_vec()),
        ("otlp_metrics_proto", metrics_proto()),
        ("jaeger_v1", jaeger::v1_traces(&[&spans[..]])),
        ("jaeger_v3", jaeger::v3_traces(&spans)),
        ("inflate", packed),
        ("grpc", framed),
    ]
}

/// Changes a body in one of the ways that lead furthest.
fn damage(body: &mut Vec<u8>, others: &[(&str, Vec<u8>)], random: &mut Random) {
    const TELLING: [u8; 16] = [0, 1, 2, 7, 8, 10, 12, 15, 0x22, 0x2d, 0x5b, 0x7b, 0x7f, 0x80, 0xfe, 0xff];
    let at = random.below(body.len());
    let end = (at + 1 + random.below(16)).min(body.len());
    match random.below(9) {
        0 if at < body.len() => body[at] ^= 1 << random.below(8),
        1 if at < body.len() => body[at] = TELLING[random.below(16)],
        2 => body.truncate(at),
        3 => drop(body.drain(at..end)),
        4 => {
            let piece = body[at..end].to_vec();
            let to = random.below(body.len());
            body.splice(to..to, piece);
        }
        5 => body.insert(at, TELLING[random.below(16)]),
        // The length of something becomes huge.
        6 => drop(body.splice(at..end, [0xff; 9])),
        7 => {
            let other = &others[random.below(others.len())].1;
            let from = random.below(other.len());
            let piece = other[from..(from + random.below(64)).min(other.len())].to_vec();
            body.splice(at..end, piece);
        }
        // One piece many times: deep nesting, many fields.
        _ => {
            let piece = body[at..end].repeat(1 + random.below(40));
            body.splice(at..end, piece);
        }
    }
}

#[test]
fn every_decoder_has_a_good_body_that_it_reads() {
    let bodies = good_bodies();
    assert_eq!(
        bodies.iter().map(|(name, _)| *name).collect::<Vec<_>>(),
        DECODERS.map(|decoder| decoder.name)
    );
    let limits = Limits::default();
    let count = |decoded: Result<crate::interop::Decoded, _>| {
        let decoded = decoded.unwrap_or_else(|error: crate::interop::DecodeError| panic!("{error}"));
        assert_eq!(decoded.rejected, []);
        decoded.items.len()
    };
    let body = |name: &str| &bodies.iter().find(|(known, _)| *known == name).unwrap().1;
    assert_eq!(count(zipkin::v1_json(body("zipkin_v1_json"), &limits)), 2);
    assert_eq!(count(zipkin::v1_thrift(body("zipkin_v1_thrift"), &limits)), 1);
    assert_eq!(count(zipkin::v2_json(body("zipkin_v2_json"), &limits)), 4);
    assert_eq!(count(zipkin::v2_proto(body("zipkin_v2_proto"), &limits)), 4);
    assert_eq!(count(zipkin::v2_lines(body("zipkin_v2_lines"), &limits)), 4);
    assert_eq!(count(zipkin::v2_traces(body("zipkin_v2_traces"), &limits)), 4);
    assert_eq!(count(otlp::traces_json(body("otlp_json"), &limits)), 4);
    assert_eq!(count(otlp::traces_proto(body("otlp_proto"), &limits)), 4);
    assert_eq!(count(jaeger::read_v1(body("jaeger_v1"), &limits)), 4);
    assert_eq!(count(jaeger::read_v3(body("jaeger_v3"), &limits)), 4);
    assert_eq!(otlp::metrics_json(body("otlp_metrics_json"), &limits).unwrap().items.len(), 5);
    assert_eq!(otlp::metrics_proto(body("otlp_metrics_proto"), &limits).unwrap().items.len(), 3);
}

/// Bodies for `cargo fuzz` to begin with: `FAULTSCOPE_FUZZ_CORPUS=fuzz/corpus cargo test ... good_bodies_are_kept`.
#[test]
fn good_bodies_are_kept_for_fuzzing() {
    let Some(folder) = std::env::var_os("FAULTSCOPE_FUZZ_CORPUS") else { return };
    for (name, body) in good_bodies() {
        let folder = std::path::Path::new(&folder).join(name);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("good"), body).unwrap();
    }
}

#[test]
fn damaged_bodies_do_no_harm() {
    let rounds = std::env::var("FAULTSCOPE_TEST_DAMAGE").ok().and_then(|n| n.parse().ok()).unwrap_or(1_500);
    let bodies = good_bodies();
    let small = Limits {
        body_bytes: 1 << 14,
        item_bytes: 1 << 12,
        items: 3,
        tags: 4,
        annotations: 3,
        text_bytes: 16,
        decoded_bytes: 1 << 20,
    };
    for (number, (decoder, (_, good))) in DECODERS.iter().zip(&bodies).enumerate() {
        let mut body = good.clone();
        for round in 0..rounds {
            let seed = (number as u64) << 48 | round;
            let mut random = Random(seed);
            // Damage adds up for a while.
            if round % 8 == 0 || body.len() > 4 * good.len() + 512 {
                body.clone_from(good);
            }
            damage(&mut body, &bodies, &mut random);
            let limits = if round % 3 == 0 { small.clone() } else { Limits::default() };
            let read = std::panic::catch_unwind(|| (decoder.read)(&body, &limits));
            assert!(read.is_ok(), "{} broke at seed {seed}: {}", decoder.name, body.escape_ascii());
        }
    }
}
