//! The connection to another collector: one request at a time, over HTTP/1.1 or gRPC.

use std::time::Duration;

use axum::body::Bytes;
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE, HOST, RETRY_AFTER, TE};
use axum::http::{HeaderMap, Request, Response, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::ForwardOptions;
use crate::interop::otlp::partial_success;
use crate::serve::grpc;

/// The time limit for a connection and a response.
const PATIENCE: Duration = Duration::from_secs(10);

/// The most bytes of a response that are read.
const ANSWER_BYTES: usize = 64 << 10;

/// The response to a request.
#[derive(Debug)]
pub(super) enum Answer {
    /// Accepted, except for some spans.
    Accepted { rejected: u64, complaint: String },
    /// Rejected for good.
    Refused(String),
    /// Rejected for now.
    Later { after: Option<Duration>, why: String },
}

/// The connection to the other collector, opened on demand.
#[derive(Debug)]
pub(super) struct Line {
    host: String,
    port: u16,
    target: Uri,
    authority: String,
    headers: HeaderMap,
    is_grpc: bool,
    open: Option<Open>,
    /// Aborted when this is dropped.
    connections: JoinSet<()>,
}

#[derive(Debug)]
enum Open {
    Http(http1::SendRequest<Full<Bytes>>),
    Grpc(http2::SendRequest<Full<Bytes>>),
}

impl Line {
    pub(super) fn to(options: &ForwardOptions) -> Self {
        let endpoint = &options.endpoint;
        let is_grpc = endpoint.scheme_str() == Some("grpc");
        let host = endpoint.host().unwrap_or("localhost").trim_matches(['[', ']']).to_owned();
        let port = endpoint.port_u16().unwrap_or(if is_grpc { 4317 } else { 80 });
        let authority = endpoint.authority().map(ToString::to_string).unwrap_or_default();
        let path = match endpoint.path().trim_end_matches('/') {
            _ if is_grpc => grpc::TRACES.to_owned(),
            path if path.ends_with("/v1/traces") => path.to_owned(),
            path => format!("{path}/v1/traces"),
        };
        // HTTP/2 needs the whole URI, HTTP/1.1 only the path.
        let target = if is_grpc { format!("http://{authority}{path}") } else { path };
        Self {
            host,
            port,
            target: target.parse().unwrap_or_default(),
            authority,
            headers: options.headers.clone(),
            is_grpc,
            open: None,
            connections: JoinSet::new(),
        }
    }

    /// Sends compressed spans and reads the response.
    pub(super) async fn send(&mut self, body: &[u8]) -> Answer {
        match tokio::time::timeout(PATIENCE, self.exchange(body)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(why)) => self.broken(why),
            Err(_) => self.broken("no answer in time".to_owned()),
        }
    }

    fn broken(&mut self, why: String) -> Answer {
        self.open = None;
        self.connections.abort_all();
        Answer::Later { after: None, why }
    }

    async fn exchange(&mut self, body: &[u8]) -> Result<Answer, String> {
        let request = self.request(body)?;
        let mut kept = self.open.take();
        // The other side may have closed an idle connection.
        let is_open = match &mut kept {
            Some(Open::Http(sender)) => sender.ready().await.is_ok(),
            Some(Open::Grpc(sender)) => sender.ready().await.is_ok(),
            None => false,
        };
        let mut open = match kept {
            Some(open) if is_open => open,
            _ => self.connect().await?,
        };
        let response = match &mut open {
            Open::Http(sender) => sender.send_request(request).await,
            Open::Grpc(sender) => sender.send_request(request).await,
        };
        let answer = read(response.map_err(|e| e.to_string())?, self.is_grpc).await?;
        self.open = Some(open);
        Ok(answer)
    }

    fn request(&self, body: &[u8]) -> Result<Request<Full<Bytes>>, String> {
        let request = Request::post(self.target.clone());
        let (request, body) = if self.is_grpc {
            let length = u32::try_from(body.len()).map_err(|_| "a batch is too large")?;
            let message = [&[1], length.to_be_bytes().as_slice(), body].concat();
            let request = request.header(CONTENT_TYPE, grpc::GRPC).header(TE, "trailers");
            (request.header(grpc::ENCODING, "gzip"), message)
        } else {
            let request = request.header(HOST, &self.authority).header(CONTENT_ENCODING, "gzip");
            (request.header(CONTENT_TYPE, "application/x-protobuf"), body.to_vec())
        };
        let mut request = request.body(Full::from(body)).map_err(|e| e.to_string())?;
        request.headers_mut().extend(self.headers.clone());
        Ok(request)
    }

    async fn connect(&mut self) -> Result<Open, String> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await.map_err(|e| e.to_string())?;
        let _ = stream.set_nodelay(true);
        let io = TokioIo::new(stream);
        // Errors of a connection show at its next request.
        if self.is_grpc {
            let (sender, connection) =
                http2::handshake(TokioExecutor::new(), io).await.map_err(|e| e.to_string())?;
            self.connections.spawn(async move { drop(connection.await) });
            Ok(Open::Grpc(sender))
        } else {
            let (sender, connection) = http1::handshake(io).await.map_err(|e| e.to_string())?;
            self.connections.spawn(async move { drop(connection.await) });
            Ok(Open::Http(sender))
        }
    }
}

async fn read(response: Response<Incoming>, is_grpc: bool) -> Result<Answer, String> {
    let (head, body) = response.into_parts();
    let body = Limited::new(body, ANSWER_BYTES).collect().await.map_err(|e| e.to_string())?;
    let trailers = body.trailers().cloned().unwrap_or_default();
    let body = body.to_bytes();
    let status = head.status.as_u16();
    if !is_grpc || status != 200 {
        return Ok(match status {
            200..=299 => taken(&body),
            429 | 502 | 503 | 504 => {
                let text = head.headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok());
                // A date is ignored.
                let after = text.and_then(|text| text.trim().parse().ok()).map(Duration::from_secs);
                Answer::Later { after, why: format!("status {status}") }
            }
            _ => Answer::Refused(format!("status {status}: {}", plain(&body))),
        });
    }
    let text = |name: &str| {
        let value = trailers.get(name).or_else(|| head.headers.get(name));
        value.and_then(|value| value.to_str().ok())
    };
    let message = text("grpc-message").unwrap_or_default();
    Ok(match text("grpc-status").unwrap_or("missing") {
        // Five bytes precede the message: compression flag and length.
        "0" => taken(body.get(5..).unwrap_or_default()),
        // The codes that OTLP declares as retryable.
        code @ ("1" | "4" | "8" | "10" | "11" | "14" | "15") => {
            Answer::Later { after: None, why: format!("gRPC status {code}: {message}") }
        }
        code => Answer::Refused(format!("gRPC status {code}: {message}")),
    })
}

fn taken(body: &[u8]) -> Answer {
    let (rejected, complaint) = partial_success(body);
    Answer::Accepted { rejected, complaint }
}

/// The beginning of a message from outside, without control characters.
fn plain(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes).into_owned();
    text.chars().filter(|c| !c.is_control()).take(200).collect()
}
