//! Recognizes requests by which services report their own spans, metrics and logs.
//!
//! An exporter sends them on a schedule of its own, whatever the application does. Taken for calls they would be most
//! of what a trial shows, and the trial would wait for them.

use crate::admit::Head;

/// Paths to which exporters post, each with its format.
const EXPORT_PATHS: [&str; 7] = [
    // Zipkin, JSON and protobuf or version 1.
    "/api/v2/spans",
    "/api/v1/spans",
    // Jaeger, Thrift over HTTP.
    "/api/traces",
    // OTLP over HTTP.
    "/v1/traces",
    "/v1/metrics",
    "/v1/logs",
    "/v1development/profiles",
];

/// gRPC services of collectors.
const EXPORT_SERVICES: [&str; 3] =
    ["/opentelemetry.proto.collector.", "/jaeger.api_v2.CollectorService/", "/zipkin.proto3.SpanService/"];

/// Whether a request reports spans, metrics or logs to a collector.
pub(crate) fn is_export(head: &Head<'_>) -> bool {
    if head.method != "POST" {
        return false;
    }
    let path = head.path.split('?').next().unwrap_or_default();
    EXPORT_PATHS.contains(&path) || EXPORT_SERVICES.iter().any(|service| path.starts_with(service))
}

#[cfg(test)]
mod tests {
    use faultscope_model::span::Wire;
    use tokio::time::Instant;

    use super::*;

    #[test]
    fn exports_are_told_by_method_and_path() {
        let is_export = |method, path| {
            let connection = Head::of_connection(Wire::Http1, Instant::now());
            is_export(&Head { method, path, ..connection })
        };
        for path in [
            "/api/v2/spans",
            "/api/traces?format=jaeger.thrift",
            "/v1/metrics",
            "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
            "/jaeger.api_v2.CollectorService/PostSpans",
        ] {
            assert!(is_export("POST", path), "{path}");
        }
        // Somebody looks at traces, or has such an operation of its own.
        for (method, path) in [("GET", "/api/traces"), ("POST", "/api/v2/spans/1"), ("POST", "/orders")] {
            assert!(!is_export(method, path), "{method} {path}");
        }
    }
}
