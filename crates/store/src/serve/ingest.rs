//! Receives spans and metrics; answers when they are committed.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use super::answer::{Failure, JSON, typed};
use super::body::Whole;
use super::{Served, add};
use crate::budget::Hold;
use crate::interop::otlp::MetricPoint;
use crate::interop::{Batch, DecodeError, Decoded, Limits, MetricFormat, SpanFormat};

const PROTOBUF: &str = "application/x-protobuf";

/// Larger batches are encoded on a blocking thread, so that other requests are not delayed.
const MANY: usize = 2_000;

/// The result of storing a batch.
#[derive(Debug)]
pub(super) struct Ingested {
    rejected: usize,
    /// What was wrong with rejected items.
    complaint: Option<String>,
}

impl Ingested {
    /// A batch whose valid items are accepted.
    pub(super) fn from_batch<T>(batch: &Batch<T>) -> Self {
        Self { rejected: batch.n_rejected, complaint: batch.complaint() }
    }

    /// A batch that is rejected as a whole, for good.
    pub(super) fn rejected(count: usize, why: &str) -> Self {
        Self { rejected: count, complaint: Some(why.to_owned()) }
    }

    /// What was wrong with rejected items.
    pub(super) fn complaint(self) -> Option<String> {
        self.complaint
    }
}

/// `POST /api/v2/spans`
pub(super) async fn zipkin_v2(State(served): State<Arc<Served>>, headers: HeaderMap, body: Body) -> Response {
    zipkin(&served, &headers, body, SpanFormat::zipkin_v2).await
}

/// `POST /api/v1/spans`
pub(super) async fn zipkin_v1(State(served): State<Arc<Served>>, headers: HeaderMap, body: Body) -> Response {
    zipkin(&served, &headers, body, SpanFormat::zipkin_v1).await
}

/// `POST /v1/traces`
pub(super) async fn otlp_traces(
    State(served): State<Arc<Served>>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let format = SpanFormat::otlp(content_type(&headers));
    let is_json = matches!(format, Ok(SpanFormat::OtlpJson));
    let taken = spans(&served, &headers, body, format).await;
    otlp(is_json, "rejectedSpans", taken)
}

/// `POST /v1/metrics`
pub(super) async fn otlp_metrics(
    State(served): State<Arc<Served>>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let format = MetricFormat::otlp(content_type(&headers));
    let is_json = matches!(format, Ok(MetricFormat::OtlpJson));
    let taken = metrics(&served, &headers, body, format).await;
    otlp(is_json, "rejectedDataPoints", taken)
}

async fn zipkin(
    served: &Arc<Served>,
    headers: &HeaderMap,
    body: Body,
    format: fn(Option<&str>) -> Result<SpanFormat, DecodeError>,
) -> Response {
    match spans(served, headers, body, format(content_type(headers))).await {
        Ok(Ingested { complaint: None, .. }) => StatusCode::ACCEPTED.into_response(),
        Ok(Ingested { complaint: Some(complaint), .. }) => {
            Failure::bad(format!("{complaint}; the others were stored")).into_response()
        }
        Err(failure) => failure.into_response(),
    }
}

async fn spans(
    served: &Arc<Served>,
    headers: &HeaderMap,
    body: Body,
    format: Result<SpanFormat, DecodeError>,
) -> Result<Ingested, Failure> {
    let take = async {
        let format = format?;
        let whole = Whole::read(&served.intake, headers, body).await?;
        add(&served.counts.bytes, whole.len());
        let decode = move |body: &[u8], limits: &Limits| format.decode(body, limits);
        let (decoded, hold) = whole.decode(&served.intake, decode).await?;
        put_spans(served, decoded, hold).await
    };
    count(served, take.await)
}

/// Stores the valid spans of a batch.
pub(super) async fn put_spans(served: &Served, decoded: Decoded, hold: Hold) -> Result<Ingested, Failure> {
    let taken = Ingested::from_batch(&decoded);
    add(&served.counts.spans, decoded.items.len());
    if decoded.items.is_empty() {
        return Ok(taken);
    }
    let Some(forward) = &served.options.forward else {
        served.store.put_held(decoded.items, hold)?.committed().await?;
        return Ok(taken);
    };
    let mut copy = served.intake.budget.hold_nothing();
    if !copy.grow(decoded.bytes) {
        return Err(Failure::busy());
    }
    served.store.put_held(decoded.items.clone(), copy)?.committed().await?;
    // After storing: what is not stored is sent again, and would be forwarded twice.
    if decoded.items.len() > MANY {
        let forward = Arc::clone(forward);
        let work = move || {
            forward.offer(decoded.items);
            drop(hold);
        };
        let _ = tokio::task::spawn_blocking(work).await;
    } else {
        forward.offer(decoded.items);
    }
    Ok(taken)
}

/// Stores the valid points of a batch.
pub(super) async fn put_metrics(
    served: &Served,
    decoded: Batch<MetricPoint>,
    hold: Hold,
) -> Result<Ingested, Failure> {
    let taken = Ingested::from_batch(&decoded);
    if !decoded.items.is_empty() {
        served.store.put_metrics(decoded.items, hold)?.committed().await?;
    }
    Ok(taken)
}

async fn metrics(
    served: &Arc<Served>,
    headers: &HeaderMap,
    body: Body,
    format: Result<MetricFormat, DecodeError>,
) -> Result<Ingested, Failure> {
    let take = async {
        let format = format?;
        let whole = Whole::read(&served.intake, headers, body).await?;
        add(&served.counts.bytes, whole.len());
        let decode = move |body: &[u8], limits: &Limits| format.decode(body, limits);
        let (decoded, hold) = whole.decode(&served.intake, decode).await?;
        put_metrics(served, decoded, hold).await
    };
    count(served, take.await)
}

/// Updates the counters by the result of a request.
pub(super) fn count(served: &Served, taken: Result<Ingested, Failure>) -> Result<Ingested, Failure> {
    add(&served.counts.messages, 1);
    match &taken {
        Ok(taken) => add(&served.counts.rejected, taken.rejected),
        Err(failure) if failure.may_come_again() => add(&served.counts.busy, 1),
        Err(_) => add(&served.counts.malformed, 1),
    }
    taken
}

pub(super) fn content_type(headers: &HeaderMap) -> Option<&str> {
    headers.get(CONTENT_TYPE).map(|value| value.to_str().unwrap_or("not text"))
}

/// Answers in the format of the request, as OTLP requires.
pub(super) fn otlp(is_json: bool, rejected: &str, taken: Result<Ingested, Failure>) -> Response {
    match (taken, is_json) {
        (Ok(Ingested { complaint: None, .. }), true) => typed(JSON, "{}"),
        (Ok(Ingested { rejected: n, complaint: Some(complaint) }), true) => {
            // 64-bit numbers are strings in protobuf's JSON.
            let answer = json!({"partialSuccess": {rejected: n.to_string(), "errorMessage": complaint}});
            typed(JSON, answer.to_string())
        }
        (Ok(taken), false) => typed(PROTOBUF, partial_success(&taken)),
        (Err(failure), true) => {
            let answer = json!({"code": code(failure.status), "message": failure.message});
            failure.with(JSON, answer.to_string())
        }
        (Err(failure), false) => {
            let status = [number(1, code(failure.status)), text(2, &failure.message)].concat();
            failure.with(PROTOBUF, status)
        }
    }
}

/// The response as protobuf; empty if everything was accepted.
pub(super) fn partial_success(taken: &Ingested) -> Vec<u8> {
    match &taken.complaint {
        None => Vec::new(),
        Some(complaint) => bytes(1, &[number(1, taken.rejected as u64), text(2, complaint)].concat()),
    }
}

/// The code of `google.rpc.Status` for an HTTP status.
pub(super) fn code(status: StatusCode) -> u64 {
    match status.as_u16() {
        401 => 16,
        403 => 7,
        404 => 5,
        408 => 4,
        413 | 429 => 8,
        415 => 12,
        400..=499 => 3,
        503 => 14,
        _ => 13,
    }
}

fn number(field: u8, value: u64) -> Vec<u8> {
    let mut out = vec![field << 3];
    put(&mut out, value);
    out
}

fn text(field: u8, text: &str) -> Vec<u8> {
    bytes(field, text.as_bytes())
}

fn bytes(field: u8, bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![field << 3 | 2];
    put(&mut out, bytes.len() as u64);
    out.extend(bytes);
    out
}

fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
