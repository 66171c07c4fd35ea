//! Jaeger's query APIs: the older one, which its clients still use, and version 3.

use std::sync::Arc;

use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use faultscope_model::trace::{DependencyLink, ReportedSpan};
use serde_json::json;

use super::answer::{Failure, JSON, json, to_json};
use super::zipkin::{parameters, required};
use super::{Served, ingest, now_us};
use crate::interop::query::{self, jaeger_v1, jaeger_v3, zipkin_dependencies};
use crate::interop::{jaeger, read_trace_id};

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
        let traces = served.query(move |reader| reader.traces(&ids)).await?;
        return Ok(json(jaeger::v1_traces(&traces)));
    }
    let query = jaeger_v1(&parameters, now_us())?;
    let traces = served.query(move |reader| reader.search(&query, query::matches_one_span)).await?;
    Ok(json(jaeger::v1_traces(&traces)))
}

/// `GET /api/traces/{id}`
pub(super) async fn trace(
    State(served): State<Arc<Served>>,
    Path(id): Path<String>,
) -> Result<Response, Old> {
    Ok(json(jaeger::v1_traces(&[one(&served, &id).await?])))
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
    let traces = served.query(move |reader| reader.search(&query, query::matches_one_span)).await?;
    Ok(json(jaeger::v3_traces(&traces.concat())))
}

/// `GET /api/v3/traces/{id}`
pub(super) async fn v3_trace(
    State(served): State<Arc<Served>>,
    Path(id): Path<String>,
) -> Result<Response, New> {
    Ok(json(jaeger::v3_traces(&one(&served, &id).await?)))
}

async fn one(served: &Served, id: &str) -> Result<Vec<ReportedSpan>, Failure> {
    let id = read_trace_id(id).map_err(|reason| Failure::bad(format!("the trace id {reason}")))?;
    let spans = served.query(move |reader| reader.trace(id)).await?;
    if spans.is_empty() {
        return Err(Failure::new(StatusCode::NOT_FOUND, "trace not found"));
    }
    Ok(spans)
}
