//! The little trace by the OpenTelemetry SDK: client EXPORTER ENDPOINT; prints the ids it chose.

use std::time::{Duration, SystemTime};

use opentelemetry::trace::{Span as _, SpanKind, Status, TraceContextExt as _, Tracer as _, TracerProvider as _};
use opentelemetry::{Context, KeyValue};
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;

/// A sixty-fourth of a second, which every way of counting time can hold.
const TICK: Duration = Duration::from_micros(15_625);

fn provider(service: &'static str, name: &str, endpoint: &str) -> SdkTracerProvider {
    let exporter = if name == "otlp-grpc" {
        SpanExporter::builder().with_tonic().with_endpoint(endpoint).build()
    } else {
        SpanExporter::builder().with_http().with_endpoint(format!("{endpoint}/v1/traces")).build()
    };
    SdkTracerProvider::builder()
        .with_batch_exporter(exporter.expect("an exporter"))
        .with_resource(Resource::builder().with_service_name(service).build())
        .build()
}

fn main() {
    let arguments: Vec<_> = std::env::args().collect();
    let (name, endpoint) = (&arguments[1], &arguments[2]);
    // The gRPC exporter wants to be made within a runtime.
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let entered = (name == "otlp-grpc").then(|| runtime.enter());
    let (front, stock) = (provider("front", name, endpoint), provider("stock", name, endpoint));
    let seconds = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a time after 1970").as_secs();
    let start = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    let begin = |provider: &SdkTracerProvider, name, kind, ticks, attribute, within: &Context| {
        let tracer = provider.tracer("shop");
        let builder = tracer.span_builder(name).with_kind(kind).with_start_time(start + TICK * ticks);
        tracer.build_with_context(builder.with_attributes([attribute]), within)
    };
    let root = begin(&front, "GET /pay", SpanKind::Server, 0, KeyValue::new("http.path", "/pay"), &Context::new());
    let (trace, root_id) = (root.span_context().trace_id(), root.span_context().span_id());
    let root = Context::new().with_span(root);
    let call =
        begin(&front, "PUT /stock", SpanKind::Client, 1, KeyValue::new("peer.service", "stock"), &root);
    let call_id = call.span_context().span_id();
    let call = root.with_span(call);
    let mut served = begin(&stock, "PUT /stock", SpanKind::Server, 2, KeyValue::new("item", "pear"), &call);
    let served_id = served.span_context().span_id();
    served.add_event_with_timestamp("cache miss", start + TICK * 3, Vec::new());
    served.set_status(Status::error("out of stock"));
    served.end_with_timestamp(start + TICK * 6);
    call.span().end_with_timestamp(start + TICK * 7);
    root.span().end_with_timestamp(start + TICK * 8);
    drop(entered);
    front.shutdown().expect("all sent");
    stock.shutdown().expect("all sent");
    println!(
        "{}",
        serde_json::json!({
            "trace": trace.to_string(), "start": seconds * 1_000_000, "root": root_id.to_string(),
            "call": call_id.to_string(), "served": served_id.to_string(),
        })
    );
}
