//! OTLP over gRPC: one message in, one message out, which is simple enough to do by hand.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use http_body_util::{BodyExt, Full};

use super::answer::Failure;
use super::body::Whole;
use super::ingest::{self, Ingested};
use super::{Served, add};
use crate::interop::otlp::MetricPoint;
use crate::interop::{Batch, DecodeError, Decoded, Limits, MetricFormat, SpanFormat};

/// The method that receives traces.
pub(super) const TRACES: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
/// The method that receives metrics.
pub(super) const METRICS: &str = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export";

pub(super) const GRPC: &str = "application/grpc";
const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
pub(super) const ENCODING: &str = "grpc-encoding";

/// Receives traces.
pub(super) async fn traces(State(served): State<Arc<Served>>, headers: HeaderMap, body: Body) -> Response {
    let take = async {
        let whole = read(&served, &headers, body).await?;
        let (decoded, hold) = whole.decode(&served.intake, decode_spans).await?;
        ingest::put_spans(&served, decoded, hold).await
    };
    answer(ingest::count(&served, take.await))
}

/// Receives metrics.
pub(super) async fn metrics(State(served): State<Arc<Served>>, headers: HeaderMap, body: Body) -> Response {
    let take = async {
        let whole = read(&served, &headers, body).await?;
        let (decoded, hold) = whole.decode(&served.intake, decode_metrics).await?;
        ingest::put_metrics(&served, decoded, hold).await
    };
    answer(ingest::count(&served, take.await))
}

/// Decodes the spans of a message.
pub(super) fn decode_spans(message: &[u8], limits: &Limits) -> Result<Decoded, DecodeError> {
    SpanFormat::OtlpProto.decode(message, limits)
}

/// Decodes the metrics of a message.
pub(super) fn decode_metrics(message: &[u8], limits: &Limits) -> Result<Batch<MetricPoint>, DecodeError> {
    MetricFormat::OtlpProto.decode(message, limits)
}

async fn read(served: &Served, headers: &HeaderMap, body: Body) -> Result<Whole, Failure> {
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if !content_type.starts_with(GRPC) {
        return Err(Failure::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "only gRPC is spoken here"));
    }
    let whole = Whole::read_grpc(&served.intake, headers, body).await?;
    add(&served.counts.bytes, whole.len());
    Ok(whole)
}

pub(super) fn answer(taken: Result<Ingested, Failure>) -> Response {
    match taken {
        Ok(taken) => {
            let message = ingest::partial_success(&taken);
            let length = u32::try_from(message.len()).unwrap_or_default();
            let bytes = [&[0], length.to_be_bytes().as_slice(), &message].concat();
            let trailers = HeaderMap::from_iter([(STATUS, HeaderValue::from_static("0"))]);
            let body = Full::from(bytes).with_trailers(async move { Some(Ok(trailers)) });
            let mut response = Response::new(Body::new(body));
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(GRPC));
            response
        }
        Err(failure) => {
            // OTLP asks for "unavailable" when a server is behind; exporters retry on no other code.
            let code = if failure.may_come_again() { 14 } else { ingest::code(failure.status) };
            let mut response = StatusCode::OK.into_response();
            let headers = response.headers_mut();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(GRPC));
            headers.insert(STATUS, HeaderValue::from(code));
            if let Ok(message) = HeaderValue::from_str(&escaped(&failure.message)) {
                headers.insert(MESSAGE, message);
            }
            response
        }
    }
}

/// Escapes text for a gRPC header: anything but printable ASCII becomes `%41`.
fn escaped(text: &str) -> String {
    let escape = |byte: u8| match byte {
        b' '..=b'~' if byte != b'%' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(escape).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_fit_into_headers() {
        assert_eq!(escaped("50% größer\n"), "50%25 gr%C3%B6%C3%9Fer%0A");
    }
}
