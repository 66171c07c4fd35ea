//! The server's own status.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use serde_json::json;

use super::Served;
use super::answer::{Failure, JSON, TEXT, to_json, typed};
use crate::StoreErrorKind;
use crate::interop::query::DEFAULT_LOOKBACK_MS;
use crate::spans::WriterHealth;

/// `GET /`
pub(super) async fn welcome() -> Response {
    let text = "faultscope keeps spans here.\n\n\
        POST /api/v2/spans /api/v1/spans     Zipkin\n\
        POST /v1/traces /v1/metrics          OTLP over HTTP\n\
        GET  /api/v2/traces /api/v2/services ..   as Zipkin answers\n\
        GET  /api/traces /api/v3/traces ..        as Jaeger answers\n\
        GET  /health /info /metrics /prometheus /config.json\n";
    typed(TEXT, text)
}

/// `GET /health`
///
/// It does not wait behind queries: a server that is busy is still up.
pub(super) async fn health(State(served): State<Arc<Served>>) -> Response {
    let trouble = match served.store.health() {
        WriterHealth::Well => None,
        WriterHealth::Ended => Some("spans are no longer stored; start the server again"),
        WriterHealth::Failing { kind: StoreErrorKind::DiskFull } => {
            Some("no space is left to store spans; it goes on when there is")
        }
        WriterHealth::Failing { .. } => Some("the last spans could not be stored; see the log of the server"),
    };
    match trouble {
        None => to_json(&json!({"status": "UP", "zipkin": {"status": "UP"}})),
        Some(trouble) => {
            let answer = json!({"status": "DOWN", "zipkin": {"status": "DOWN", "error": trouble}});
            Failure::unavailable("").with(JSON, answer.to_string())
        }
    }
}

/// `GET /info`
pub(super) async fn info() -> Response {
    let version = env!("CARGO_PKG_VERSION");
    to_json(&json!({"zipkin": {"version": version}, "faultscope": {"version": version}}))
}

/// `GET /config.json`: requested by Zipkin's UI first.
pub(super) async fn config() -> Response {
    to_json(&json!({
        "environment": "",
        "queryLimit": 10,
        "defaultLookback": 900_000,
        "searchEnabled": true,
        "logsUrl": null,
        "supportUrl": null,
        "archivePostUrl": null,
        "archiveUrl": null,
        "suggestLens": false,
        "dependency": {"enabled": true, "lowErrorRate": 0.5, "highErrorRate": 0.75},
        "maxLookback": DEFAULT_LOOKBACK_MS,
    }))
}

/// `GET /metrics`: Zipkin's counters, with our own beside them.
pub(super) async fn metrics(State(served): State<Arc<Served>>) -> Response {
    let all = served.figures().into_iter();
    to_json(&all.map(|figure| (figure.json, figure.value.into())).collect::<serde_json::Map<_, _>>())
}

/// `GET /prometheus`
pub(super) async fn prometheus(State(served): State<Arc<Served>>) -> Response {
    let mut text = String::new();
    for Figure { name, kind, value, .. } in served.figures() {
        // Writing into a text cannot fail.
        let _ = writeln!(text, "# TYPE {name} {kind}\n{name} {value}");
    }
    typed("text/plain; version=0.0.4; charset=utf-8", text)
}

/// Any other path.
pub(super) async fn unknown(uri: Uri) -> Failure {
    let hint = if uri.path() == "/v1/logs" { ": logs are not supported" } else { "" };
    Failure::new(StatusCode::NOT_FOUND, format!("no such path: {}{hint}", uri.path()))
}

struct Figure {
    json: String,
    name: &'static str,
    kind: &'static str,
    value: u64,
}

impl Served {
    fn figures(&self) -> Vec<Figure> {
        let (counts, stored) = (&self.counts, self.store.counts());
        let load = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        let counter =
            |json: &str, name, value| Figure { json: json.to_owned(), name, kind: "counter", value };
        let forward = self.options.forward.as_ref().map(|forward| forward.counts()).unwrap_or_default();
        vec![
            counter(
                "counter.zipkin_collector.messages.http",
                "zipkin_collector_messages_total",
                load(&counts.messages),
            ),
            counter(
                "counter.zipkin_collector.bytes.http",
                "zipkin_collector_bytes_total",
                load(&counts.bytes),
            ),
            counter(
                "counter.zipkin_collector.spans.http",
                "zipkin_collector_spans_total",
                load(&counts.spans),
            ),
            counter(
                "counter.zipkin_collector.messages_dropped.http",
                "zipkin_collector_messages_dropped_total",
                load(&counts.malformed),
            ),
            counter(
                "counter.zipkin_collector.spans_dropped.http",
                "zipkin_collector_spans_dropped_total",
                load(&counts.rejected) + stored.refused + stored.lost,
            ),
            counter("counter.faultscope.busy", "faultscope_busy_answers_total", load(&counts.busy)),
            counter(
                "counter.faultscope.spans_rejected",
                "faultscope_spans_rejected_total",
                load(&counts.rejected),
            ),
            counter("counter.faultscope.spans_refused", "faultscope_spans_refused_total", stored.refused),
            counter("counter.faultscope.spans_lost", "faultscope_spans_lost_total", stored.lost),
            counter("counter.faultscope.spans_stored", "faultscope_spans_stored_total", stored.stored),
            counter("counter.faultscope.points_stored", "faultscope_points_stored_total", stored.points),
            counter("counter.faultscope.commits", "faultscope_commits_total", stored.commits),
            counter("counter.faultscope.forward_sent", "faultscope_forward_sent_total", forward.sent),
            counter(
                "counter.faultscope.forward_dropped",
                "faultscope_forward_dropped_total",
                forward.dropped,
            ),
            counter(
                "counter.faultscope.forward_retries",
                "faultscope_forward_retries_total",
                forward.retries,
            ),
            Figure {
                json: "gauge.faultscope.forward_waiting".to_owned(),
                name: "faultscope_forward_waiting",
                kind: "gauge",
                value: forward.waiting,
            },
            Figure {
                json: "gauge.faultscope.spans_waiting".to_owned(),
                name: "faultscope_spans_waiting",
                kind: "gauge",
                value: stored.waiting,
            },
        ]
    }
}
