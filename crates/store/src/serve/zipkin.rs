//! Zipkin's query API, version 2.

use std::io::{self, Write};
use std::mem;
use std::sync::Arc;

use axum::extract::{Path, RawQuery, State};
use axum::http::header::CACHE_CONTROL;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use faultscope_model::trace::ReportedSpan;

use super::answer::{Failure, to_json};
use super::stream::{Chunks, StreamError};
use super::{Served, now_us};
use crate::interop::query::{
    self, Parameters, QueryError, zipkin_dependencies, zipkin_trace_ids, zipkin_traces,
};
use crate::interop::{read_trace_id, zipkin};

type Answer = Result<Response, Failure>;

/// Spans are written one by one.
const ONE_COPY: usize = 1;

/// With more names than this, clients may cache lists for a while.
const FEW: usize = 3;

/// `GET /api/v2/traces`
pub(super) async fn traces(State(served): State<Arc<Served>>, RawQuery(query): RawQuery) -> Answer {
    let query = zipkin_traces(&parameters(query), now_us())?;
    served
        .stream(ONE_COPY, move |reader, memory, out| {
            let mut list = TraceList::begin(out)?;
            reader.visit_search(&query, &query::matches, memory, &mut |spans| list.add(&spans))?;
            list.end()
        })
        .await
}

/// `GET /api/v2/trace/{id}`
pub(super) async fn trace(State(served): State<Arc<Served>>, Path(id): Path<String>) -> Answer {
    let known = read_trace_id(&id).map_err(|reason| Failure::bad(format!("the trace id {reason}")))?;
    served
        .stream(ONE_COPY, move |reader, memory, out| {
            let spans = reader.load_trace(known, memory)?;
            if spans.is_empty() {
                return Err(Failure::new(StatusCode::NOT_FOUND, format!("{id} not found")).into());
            }
            Ok(zipkin::write_json(&spans, out)?)
        })
        .await
}

/// `GET /api/v2/traceMany`
pub(super) async fn trace_many(State(served): State<Arc<Served>>, RawQuery(query): RawQuery) -> Answer {
    let ids = zipkin_trace_ids(&parameters(query))?;
    served
        .stream(ONE_COPY, move |reader, memory, out| {
            let mut list = TraceList::begin(out)?;
            reader.visit_traces(&ids, memory, &mut |spans| list.add(&spans))?;
            list.end()
        })
        .await
}

/// A list of traces while it is written.
struct TraceList<'o> {
    out: &'o mut Chunks,
    is_empty: bool,
    written: io::Result<()>,
}

impl<'o> TraceList<'o> {
    fn begin(out: &'o mut Chunks) -> io::Result<Self> {
        out.write_all(b"[")?;
        Ok(Self { out, is_empty: true, written: Ok(()) })
    }

    /// Adds a trace; returns whether more can be written.
    fn add(&mut self, spans: &[ReportedSpan]) -> bool {
        let comma: &[u8] = if mem::replace(&mut self.is_empty, false) { b"" } else { b"," };
        self.written = self.out.write_all(comma).and_then(|()| zipkin::write_json(spans, self.out));
        self.written.is_ok()
    }

    fn end(self) -> Result<(), StreamError> {
        self.written?;
        Ok(self.out.write_all(b"]")?)
    }
}

/// `GET /api/v2/services`
pub(super) async fn services(State(served): State<Arc<Served>>) -> Answer {
    let services = served.query(|reader| reader.services()).await?;
    let many = services.len() > FEW;
    Ok(names(&services, many))
}

/// `GET /api/v2/spans`
pub(super) async fn span_names(State(served): State<Arc<Served>>, RawQuery(query): RawQuery) -> Answer {
    let service = service_name(&parameters(query))?;
    let (found, many) =
        served.query(move |reader| Ok((reader.span_names(&service)?, has_many(reader)?))).await?;
    Ok(names(&found, many))
}

/// `GET /api/v2/remoteServices`
pub(super) async fn remote_services(State(served): State<Arc<Served>>, RawQuery(query): RawQuery) -> Answer {
    let service = service_name(&parameters(query))?;
    let (found, many) =
        served.query(move |reader| Ok((reader.remote_services(&service)?, has_many(reader)?))).await?;
    Ok(names(&found, many))
}

/// `GET /api/v2/dependencies`
pub(super) async fn dependencies(State(served): State<Arc<Served>>, RawQuery(query): RawQuery) -> Answer {
    let (end_us, lookback_us) = zipkin_dependencies(&parameters(query))?;
    let links = served.query(move |reader| reader.dependencies(end_us, lookback_us)).await?;
    Ok(to_json(&links))
}

/// `GET /api/v2/autocompleteKeys`
pub(super) async fn tag_keys(State(served): State<Arc<Served>>) -> Answer {
    // They depend on the command line only.
    Ok(names(&served.options.tag_values, true))
}

/// `GET /api/v2/autocompleteValues`
pub(super) async fn tag_values(State(served): State<Arc<Served>>, RawQuery(query): RawQuery) -> Answer {
    let key = required(&parameters(query), "key")?.to_owned();
    let found = served.query(move |reader| reader.tag_values(&key)).await?;
    let many = found.len() > FEW;
    Ok(names(&found, many))
}

/// The service parameter. It is required, though Zipkin's UI sends it empty at first.
fn service_name(parameters: &Parameters) -> Result<String, QueryError> {
    match parameters.all("serviceName").next() {
        Some("") => Ok(String::new()),
        _ => Ok(required(parameters, "serviceName")?.to_lowercase()),
    }
}

pub(super) fn parameters(query: Option<String>) -> Parameters {
    Parameters::parse(&query.unwrap_or_default())
}

pub(super) fn required<'p>(parameters: &'p Parameters, name: &str) -> Result<&'p str, QueryError> {
    let missing = || QueryError { name: name.to_owned(), reason: "is missing".to_owned() };
    parameters.get(name).ok_or_else(missing)
}

fn has_many(reader: &crate::spans::SpanReader) -> Result<bool, crate::StoreError> {
    Ok(reader.services()?.len() > FEW)
}

/// A list that is requested repeatedly while someone types; in a small system every new name matters, so it is not
/// cached.
fn names(names: &[String], many: bool) -> Response {
    let mut response = to_json(&names);
    if many {
        let value = HeaderValue::from_static("max-age=300, must-revalidate");
        response.headers_mut().insert(CACHE_CONTROL, value);
    }
    response
}
