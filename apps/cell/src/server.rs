//! Incoming requests: HTTP/1.1 and HTTP/2 without TLS, bounded bodies, JSON in and out.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming as Body;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Duration, timeout};

use crate::cell::{Cell, Matched};
use crate::interpret::{self, Answer, Failure};
use crate::places::DocumentPlace;
use crate::route;
use crate::scope::{Incoming, Scope};

/// How long requests may still take after the end was asked for.
const DRAIN: Duration = Duration::from_secs(10);
/// Read and write buffer of one connection.
const BUFFER: usize = 16 << 10;
/// The pause after an accept that failed for want of descriptors.
const BREATH: Duration = Duration::from_millis(50);

/// Serves requests until `shutdown`, then lets running ones end.
pub async fn serve(cell: Arc<Cell>, listener: TcpListener, shutdown: impl Future<Output = ()>) {
    let graceful = GracefulShutdown::new();
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut shutdown => break,
        };
        match accepted {
            Ok((stream, _)) => serve_connection(&cell, stream, &graceful),
            Err(error) if is_of_connection(&error) => {}
            Err(_) => tokio::time::sleep(BREATH).await,
        }
    }
    drop(listener);
    // What does not end in time is cut off, as an orchestrator would.
    let _ = timeout(DRAIN, async {
        graceful.shutdown().await;
        cell.idle().await;
    })
    .await;
}

fn serve_connection(cell: &Arc<Cell>, stream: TcpStream, graceful: &GracefulShutdown) {
    // Without it small answers wait for acknowledgements; a failure only costs time.
    let _ = stream.set_nodelay(true);
    let cell = Arc::clone(cell);
    let service = service_fn(move |request| {
        let cell = Arc::clone(&cell);
        async move { Ok::<_, Infallible>(respond(cell, request).await) }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().max_buf_size(BUFFER);
    let connection = builder.serve_connection(TokioIo::new(stream), service).into_owned();
    let connection = graceful.watch(connection);
    tokio::spawn(async move {
        // A client that goes away is not this service's failure.
        let _ = connection.await;
    });
}

async fn respond(cell: Arc<Cell>, request: Request<Body>) -> Response<Full<Bytes>> {
    let report = request.headers().get("x-faultscope-report").is_some_and(|value| value == "1");
    let (answer, accesses) = answer(&cell, request, report).await;
    let mut response = Response::new(Full::new(Bytes::from(answer.body.to_string())));
    *response.status_mut() = answer.status;
    *response.headers_mut() = answer.headers;
    let headers = response.headers_mut();
    headers.entry(header::CONTENT_TYPE).or_insert(HeaderValue::from_static("application/json"));
    headers.insert("x-instance", cell.instance_header.clone());
    if let Some(accesses) = accesses.and_then(|accesses| HeaderValue::from_str(&accesses).ok()) {
        headers.insert("x-cell-access", accesses);
    }
    response
}

async fn answer(cell: &Arc<Cell>, request: Request<Body>, report: bool) -> (Answer, Option<String>) {
    let (head, body) = request.into_parts();
    let path = head.uri.path();
    let operation = format!("{} {path}", head.method);
    let refuse = |kind, status, message: String| {
        (Failure::new(kind, status, message).to_answer(&cell.name, &operation), None)
    };
    match (&head.method, path) {
        (&Method::GET, "/health") => return (plain(json!({ "status": "up" })), None),
        (&Method::GET, "/_cell") => return (plain(cell.describe()), None),
        _ => {}
    }
    let matched = if path.starts_with("/_store/") { None } else { cell.find_operation(&head.method, path) };
    if matched.is_none() && !path.starts_with("/_store/") {
        return refuse("unknown", 404, format!("there is no operation {operation}"));
    }
    let bytes = match Limited::new(body, cell.body_limit).collect().await {
        Ok(bytes) => bytes.to_bytes(),
        Err(error) if error.is::<LengthLimitError>() => {
            return refuse("body", 413, format!("the body has more than {} bytes", cell.body_limit));
        }
        Err(error) => return refuse("body", 400, error.to_string()),
    };
    let body = if bytes.is_empty() { Ok(Value::Null) } else { serde_json::from_slice(&bytes) };
    let body = match body {
        Ok(body) => body,
        Err(error) => return refuse("body", 400, format!("the body is not JSON: {error}")),
    };
    let Some(matched) = matched else {
        return (store(cell, body, &operation).await, None);
    };
    let Matched { operation, parameters, steps, seed } = matched;
    let incoming = Incoming {
        operation: operation.clone(),
        method: head.method,
        path: parameters,
        query: route::query(head.uri.query().unwrap_or_default()),
        headers: head.headers,
        body,
        report,
        ..Incoming::default()
    };
    let mut scope = Scope::new(Arc::clone(cell), incoming, seed);
    // A task of its own: the operation goes on when the caller gives up, as it does in most servers.
    let running = cell.begin();
    let task = tokio::spawn(async move {
        let _running = running;
        let outcome = interpret::run(steps, &mut scope).await;
        if let Err(failure) = &outcome
            && failure.status >= 500
        {
            interpret::log(&scope, &format!("failed with {}: {}", failure.status, failure.message));
        }
        (outcome, scope.incoming.accesses())
    });
    let (outcome, accesses) = match task.await {
        Ok(done) => done,
        Err(error) => (Err(Failure::new("failed", 500, error.to_string())), String::new()),
    };
    let answer = match outcome {
        Ok(answer) => answer.unwrap_or_else(|| plain(json!({}))),
        Err(failure) => failure.to_answer(&cell.name, &operation),
    };
    (answer, report.then_some(accesses))
}

/// Serves the store to another cell.
async fn store(cell: &Cell, body: Value, operation: &str) -> Answer {
    let refuse = |kind, status, message| Failure::new(kind, status, message).to_answer(&cell.name, operation);
    let command = match serde_json::from_value(body) {
        Ok(command) => command,
        Err(error) => return refuse("body", 400, error.to_string()),
    };
    match &cell.documents {
        DocumentPlace::Here(store) => match store.execute(command).await {
            Ok(value) => plain(value),
            Err(error) => refuse("store", 500, error.0),
        },
        DocumentPlace::There { service, .. } => refuse("store", 404, format!("the store is at `{service}`")),
    }
}

fn plain(body: Value) -> Answer {
    Answer { status: StatusCode::OK, headers: http::HeaderMap::new(), body }
}

fn is_of_connection(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset)
}
