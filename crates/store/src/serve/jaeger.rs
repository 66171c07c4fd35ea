//! Jaeger's query APIs: the older one, which its clients still use, and version 3.

use std::io::Write;
use std::mem;
use std::sync::Arc;

use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use faultscope_model::TraceId;
use faultscope_model::trace::{DependencyLink, ReportedSpan};
use serde_json::json;

use super::answer::{Failure, JSON, json, to_json};
use super::stream::{Chunks, StreamError};
use super::zipkin::{parameters, required};
use super::{Served, ingest, now_us};
use crate::error::StoreError;
use crate::interop::query::{self, jaeger_v1, jaeger_v3, zipkin_dependencies};
use crate::interop::{jaeger, read_trace_id};
use crate::spans::{SpanReader, TraceMemory, Visit};

/// A trace, the tree that separates shared ids with a second copy, and the text.
const COPIES: usize = 4;

/// An error in the format of the older API.
#[derive(Debug)]
pub(super) struct Old(Failure);

/// An error in the format of `/api/v3`.
#[derive(Debug)]
pub(super) struct New(Failure);

impl<E: Into<Failure>> From<E> for Old {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl<E: Into<Failure>> From<E> for New {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl IntoResponse for Old {
    fn into_response(self) -> Response {
        self.0.with(JSON, jaeger::v1_error(self.0.status.as_u16(), &self.0.message))
    }
}

impl IntoResponse for New {
    fn into_response(self) -> Response {
        let Self(failure) = &self;
        let error = json!({"error": {
            "grpcCode": ingest::code(failure.status), "httpCode": failure.status.as_u16(),
            "message": failure.message, "httpStatus": failure.status.canonical_reason(),
        }});
        failure.with(JSON, error.to_string())
    }
}

/// `GET /api/services`
pub(super) async fn services(State(served): State<Arc<Served>>) -> Result<Response, Old> {
    Ok(json(jaeger::v1_answer(served.query(|reader| reader.services()).await?)))
}

/// `GET /api/services/{service}/operations`
pub(super) async fn operations_of(
    State(served): State<Arc<Served>>,
    Path(service): Path<String>,
) -> Result<Response, Old> {
    Ok(json(jaeger::v1_answer(served.query(move |reader| reader.span_names(&service)).await?)))
}

/// `GET /api/operations`
pub(super) async fn operations(
    State(served): State<Arc<Served>>,
    RawQuery(query): RawQuery,
) -> Result<Response, Old> {
    let service = required(&parameters(query), "service")?.to_owned();
    let names = served.query(move |reader| reader.span_names(&service)).await?;
    let named = |name: &String| json!({"name": name, "spanKind": ""});
    Ok(json(jaeger::v1_answer(names.iter().map(named).collect())))
}

/// `GET /api/traces`
pub(super) async fn traces(
    State(served): State<Arc<Served>>,
    RawQuery(query): RawQuery,
) -> Result<Response, Old> {
    let parameters = parameters(query);
    let ids: Vec<_> = parameters.all("traceID").map(read_trace_id).collect();
    if !ids.is_empty() {
        let ids: Result<Vec<_>, _> = ids.into_iter().collect();
        let ids = ids.map_err(|reason| Failure::bad(format!("traceID {reason}")))?;
        let work = move |reader: &SpanReader, memory: &mut TraceMemory, out: &mut Chunks| {
            v1_list(out, |visit| reader.visit_traces(&ids, memory, visit))
        };
        return Ok(served.stream(COPIES, work).await?);
    }
    let query = jaeger_v1(&parameters, now_us())?;
    let work = move |reader: &SpanReader, memory: &mut TraceMemory, out: &mut Chunks| {
        v1_list(out, |visit| reader.visit_search(&query, &query::matches_one_span, memory, visit))
    };
    Ok(served.stream(COPIES, work).await?)
}

/// `GET /api/traces/{id}`
pub(super) async fn trace(
    State(served): State<Arc<Served>>,
    Path(id): Path<String>,
) -> Result<Response, Old> {
    let id = parse_id(&id)?;
    let work = move |reader: &SpanReader, memory: &mut TraceMemory, out: &mut Chunks| {
        let spans = load(reader, id, memory)?;
        v1_list(out, |visit| {
            visit(spans);
            Ok(())
        })
    };
    Ok(served.stream(COPIES, work).await?)
}

/// `GET /api/dependencies`
pub(super) async fn dependencies(
    State(served): State<Arc<Served>>,
    RawQuery(query): RawQuery,
) -> Result<Response, Old> {
    let (end_us, lookback_us) = zipkin_dependencies(&parameters(query))?;
    let links = served.query(move |reader| reader.dependencies(end_us, lookback_us)).await?;
    let link = |link: &DependencyLink| json!({"parent": link.parent, "child": link.child, "callCount": link.call_count});
    Ok(json(jaeger::v1_answer(links.iter().map(link).collect())))
}

/// `GET /api/v3/services`
pub(super) async fn v3_services(State(served): State<Arc<Served>>) -> Result<Response, New> {
    Ok(to_json(&json!({"services": served.query(|reader| reader.services()).await?})))
}

/// `GET /api/v3/operations`
pub(super) async fn v3_operations(
    State(served): State<Arc<Served>>,
    RawQuery(query): RawQuery,
) -> Result<Response, New> {
    let service = required(&parameters(query), "service")?.to_owned();
    let names = served.query(move |reader| reader.span_names(&service)).await?;
    let named = |name: &String| json!({"name": name, "spanKind": ""});
    Ok(to_json(&json!({"operations": names.iter().map(named).collect::<Vec<_>>()})))
}

/// `GET /api/v3/traces`
pub(super) async fn v3_traces(
    State(served): State<Arc<Served>>,
    RawQuery(query): RawQuery,
) -> Result<Response, New> {
    let query = jaeger_v3(&parameters(query))?;
    let work = move |reader: &SpanReader, memory: &mut TraceMemory, out: &mut Chunks| {
        v3_list(out, |visit| reader.visit_search(&query, &query::matches_one_span, memory, visit))
    };
    Ok(served.stream(COPIES, work).await?)
}

/// `GET /api/v3/traces/{id}`
pub(super) async fn v3_trace(
    State(served): State<Arc<Served>>,
    Path(id): Path<String>,
) -> Result<Response, New> {
    let id = parse_id(&id)?;
    let work = move |reader: &SpanReader, memory: &mut TraceMemory, out: &mut Chunks| {
        let spans = load(reader, id, memory)?;
        v3_list(out, |visit| {
            visit(spans);
            Ok(())
        })
    };
    Ok(served.stream(COPIES, work).await?)
}

/// Writes the answer of the older API, trace by trace.
fn v1_list(
    out: &mut Chunks,
    visit_all: impl FnOnce(Visit<'_>) -> Result<(), StoreError>,
) -> Result<(), StreamError> {
    let mut total = 0;
    write_list(out, br#"{"data":["#, visit_all, |spans| {
        let trace = jaeger::v1_trace(spans);
        total += usize::from(trace.is_some());
        trace
    })?;
    Ok(write!(out, r#"],"total":{total},"limit":0,"offset":0,"errors":null}}"#)?)
}

/// Writes the answer of the newer API, trace by trace.
fn v3_list(
    out: &mut Chunks,
    visit_all: impl FnOnce(Visit<'_>) -> Result<(), StoreError>,
) -> Result<(), StreamError> {
    write_list(out, br#"{"result":{"resourceSpans":["#, visit_all, jaeger::v3_resources)?;
    Ok(out.write_all(b"]}}")?)
}

/// Writes what `encode` makes of each trace, separated by commas.
fn write_list(
    out: &mut Chunks,
    head: &[u8],
    visit_all: impl FnOnce(Visit<'_>) -> Result<(), StoreError>,
    mut encode: impl FnMut(Vec<ReportedSpan>) -> Option<Vec<u8>>,
) -> Result<(), StreamError> {
    out.write_all(head)?;
    let mut written = Ok(());
    let mut is_first = true;
    visit_all(&mut |spans| {
        if let Some(text) = encode(spans) {
            let comma: &[u8] = if mem::replace(&mut is_first, false) { b"" } else { b"," };
            written = out.write_all(comma).and_then(|()| out.write_all(&text));
        }
        written.is_ok()
    })?;
    Ok(written?)
}

fn parse_id(id: &str) -> Result<TraceId, Failure> {
    read_trace_id(id).map_err(|reason| Failure::bad(format!("the trace id {reason}")))
}

fn load(
    reader: &SpanReader,
    id: TraceId,
    memory: &mut TraceMemory,
) -> Result<Vec<ReportedSpan>, StreamError> {
    let spans = reader.load_trace(id, memory)?;
    if spans.is_empty() {
        return Err(Failure::new(StatusCode::NOT_FOUND, "trace not found").into());
    }
    Ok(spans)
}
