//! CPU microseconds per span of each decoder and encoder: `decode_cost [batches]`.
//!
//! A batch holds 100 spans of about 300 bytes of Zipkin v2 JSON, as a reporter sends it.

use std::error::Error;
use std::hint::black_box;
use std::io::Write;

use faultscope_model::trace::{
    Linker, ReportedSpan, TraceTree, clock_corrections, critical_path, group_by_trace,
};
use faultscope_store::interop::{Limits, SpanFormat, inflate, otlp, zipkin};
use flate2::Compression;
use flate2::write::GzEncoder;
use rustix::time::{ClockId, clock_gettime};

/// Spans in a batch.
const SPANS: usize = 100;

#[expect(clippy::print_stdout, reason = "the figures are the purpose")]
fn main() -> Result<(), Box<dyn Error>> {
    let batches: usize = std::env::args().nth(1).map_or(Ok(500), |text| text.parse())?;
    let limits = Limits::default();
    let json = batch().into_bytes();
    let spans = zipkin::v2_json(&json, &limits)?.items;
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    gzip.write_all(&json)?;
    let gzip = gzip.finish()?;

    let mut rows: Vec<(&str, usize, f64)> = Vec::new();
    let mut time = |name, bytes, work: &mut dyn FnMut()| {
        let start = cpu_seconds();
        (0..batches).for_each(|_| work());
        let micros = (cpu_seconds() - start) * 1e6;
        rows.push((name, bytes, micros / (batches * SPANS) as f64));
    };
    time("gzip (of the JSON)", gzip.len(), &mut || drop(black_box(inflate(&gzip, Some("gzip"), &limits))));
    for (name, format, body) in [
        ("Zipkin v2 JSON", SpanFormat::ZipkinV2Json, json.clone()),
        ("Zipkin v2 JSON, one bad", SpanFormat::ZipkinV2Json, spoilt()),
        ("Zipkin v2 protobuf", SpanFormat::ZipkinV2Proto, zipkin::to_proto(&spans)),
        ("Zipkin v1 JSON", SpanFormat::ZipkinV1Json, v1_json().into_bytes()),
        ("Zipkin v1 Thrift", SpanFormat::ZipkinV1Thrift, v1_thrift()),
        ("OTLP JSON", SpanFormat::OtlpJson, otlp::to_json(&spans)),
        ("OTLP protobuf", SpanFormat::OtlpProto, otlp::to_proto(&spans)),
    ] {
        let decoded = format.decode(&body, &limits)?;
        assert!(decoded.items.len() + decoded.n_rejected == SPANS, "{name}");
        time(name, body.len(), &mut || drop(black_box(format.decode(&body, &limits))));
    }
    time("to Zipkin v2 JSON", json.len(), &mut || drop(black_box(zipkin::to_json(&spans))));
    time("to OTLP protobuf", 0, &mut || drop(black_box(otlp::to_proto(&spans))));
    time("tree, clocks, links, path", 0, &mut || understand(&spans));
    for (name, bytes, micros) in rows {
        println!("{name:<26} {:>5} B/span {micros:>7.2} CPU µs/span", bytes / SPANS);
    }
    Ok(())
}

fn understand(spans: &[ReportedSpan]) {
    let mut linker = Linker::default();
    for trace in group_by_trace(spans.to_vec(), true) {
        let tree = TraceTree::new(trace);
        linker.add(&tree);
        black_box(critical_path(&tree, &clock_corrections(&tree)));
    }
    black_box(linker.links());
}

fn span(n: usize) -> String {
    let parent = if n.is_multiple_of(10) {
        String::new()
    } else {
        format!(r#""parentId":"{:016x}","#, n / 10 * 10 + 1)
    };
    format!(
        r#"{{"traceId":"463ac35c9f6413ad{:016x}",{parent}"id":"{:016x}","kind":"CLIENT","name":"get /orders",
"timestamp":{},"duration":{},"localEndpoint":{{"serviceName":"frontend","ipv4":"10.0.0.{}","port":8080}},
"remoteEndpoint":{{"serviceName":"order"}},"tags":{{"http.method":"GET","http.path":"/orders/{n}","http.status_code":"200"}}}}"#,
        n / 10 + 1,
        n + 1,
        1_700_000_000_000_000 + n,
        100 + n,
        n % 250 + 1,
    )
    .replace('\n', "")
}

fn batch() -> String {
    format!("[{}]", (0..SPANS).map(span).collect::<Vec<_>>().join(","))
}

/// The batch with a first span of the wrong type, which sends all others the slower way.
fn spoilt() -> Vec<u8> {
    let rest: Vec<_> = (1..SPANS).map(span).collect();
    format!("[7,{}]", rest.join(",")).into_bytes()
}

fn v1_json() -> String {
    let span = |n: usize| {
        let endpoint = r#""endpoint":{"serviceName":"frontend","ipv4":"10.0.0.1","port":8080}"#;
        let at = 1_700_000_000_000_000 + n;
        format!(
            r#"{{"traceId":"{:016x}","id":"{:016x}","name":"get","timestamp":{at},"duration":100,"annotations":[{{"timestamp":{at},"value":"cs",{endpoint}}},{{"timestamp":{},"value":"cr",{endpoint}}}],"binaryAnnotations":[{{"key":"http.path","value":"/orders/{n}",{endpoint}}}]}}"#,
            n / 10 + 1,
            n + 1,
            at + 100,
        )
    };
    format!("[{}]", (0..SPANS).map(span).collect::<Vec<_>>().join(","))
}

fn v1_thrift() -> Vec<u8> {
    fn i64(out: &mut Vec<u8>, number: u8, value: i64) {
        out.extend([10, 0, number]);
        out.extend(value.to_be_bytes());
    }
    fn text(out: &mut Vec<u8>, number: u8, text: &str) {
        out.extend([11, 0, number, 0, 0, 0, text.len() as u8]);
        out.extend(text.as_bytes());
    }
    fn endpoint(out: &mut Vec<u8>, number: u8) {
        out.extend([12, 0, number, 8, 0, 1, 10, 0, 0, 1, 6, 0, 2, 31, 144]);
        text(out, 3, "frontend");
        out.push(0);
    }
    let mut out = vec![12, 0, 0, 0, SPANS as u8];
    for n in 0..SPANS as i64 {
        i64(&mut out, 1, n / 10 + 1);
        text(&mut out, 3, "get");
        i64(&mut out, 4, n + 1);
        out.extend([15, 0, 6, 12, 0, 0, 0, 2]);
        for (value, at) in [("cs", 1), ("cr", 101)] {
            i64(&mut out, 1, at + n);
            text(&mut out, 2, value);
            endpoint(&mut out, 3);
            out.push(0);
        }
        out.extend([15, 0, 8, 12, 0, 0, 0, 1]);
        text(&mut out, 1, "http.path");
        text(&mut out, 2, "/orders/1");
        out.extend([8, 0, 3, 0, 0, 0, 6]);
        endpoint(&mut out, 4);
        out.extend([0, 0]);
    }
    out
}

fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
