//! Calls on behalf of an instance or the test, through the listeners of the mesh.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use faultscope_model::InstanceId;
use http::header::{CONTENT_LENGTH, HOST};
use http::{HeaderMap, HeaderName, Method, Request, Response, Version};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

use super::lock;

/// The listener for each caller, host and port.
pub(super) type Ways = Mutex<BTreeMap<(InstanceId, String, u16), SocketAddr>>;

/// Headers that propagate the trace context.
const CONTEXT: [HeaderName; 2] =
    [HeaderName::from_static("traceparent"), HeaderName::from_static("tracestate")];

/// Calls services by name, with a new connection for each call.
#[derive(Debug, Clone)]
pub struct Client {
    caller: InstanceId,
    ways: Arc<Ways>,
    context: HeaderMap,
}

impl Client {
    pub(super) fn new(caller: InstanceId, ways: Arc<Ways>) -> Self {
        Self { caller, ways, context: HeaderMap::new() }
    }

    /// Adds the context of a request that is being handled.
    pub(super) fn within(mut self, headers: &HeaderMap) -> Self {
        for name in CONTEXT {
            self.context.extend(headers.get(&name).map(|value| (name, value.clone())));
        }
        self
    }

    /// Gets `http://service:port/path`.
    pub async fn get(&self, url: &str) -> io::Result<Response<Bytes>> {
        self.send(request(Method::GET, url, Bytes::new())?).await
    }

    /// Posts a body to `http://service:port/path`.
    pub async fn post(&self, url: &str, body: impl Into<Bytes>) -> io::Result<Response<Bytes>> {
        self.send(request(Method::POST, url, body.into())?).await
    }

    /// Sends a request, over HTTP/2 if that is its version. Any status is a response, not an error.
    pub async fn send(&self, mut request: Request<Bytes>) -> io::Result<Response<Bytes>> {
        for (name, value) in &self.context {
            request.headers_mut().entry(name).or_insert_with(|| value.clone());
        }
        let uri = request.uri().clone();
        let host = uri.host().ok_or_else(|| io::Error::other(format!("`{uri}` names no host")))?;
        let stream = TokioIo::new(self.connect(host, uri.port_u16().unwrap_or(80)).await?);
        if request.version() == Version::HTTP_2 {
            let (mut sender, connection) =
                hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await.map_err(broken)?;
            return drive(connection, async { sender.send_request(request.map(Full::new)).await }).await;
        }
        // HTTP/1 names the host in a header.
        if let (Some(authority), Ok(path)) =
            (uri.authority(), uri.path_and_query().map_or("/", |path| path.as_str()).parse())
        {
            *request.uri_mut() = path;
            if let Ok(value) = authority.as_str().parse() {
                request.headers_mut().entry(HOST).or_insert(value);
            }
        }
        let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await.map_err(broken)?;
        drive(connection, async { sender.send_request(request.map(Full::new)).await }).await
    }

    /// Connects to a port of a service, for other protocols than HTTP.
    pub async fn connect(&self, host: &str, port: u16) -> io::Result<TcpStream> {
        let address = lock(&self.ways).get(&(self.caller.clone(), host.to_owned(), port)).copied();
        let unknown = || {
            let reason = format!("{} has no route to {host}:{port}", self.caller);
            io::Error::new(io::ErrorKind::NotFound, reason)
        };
        TcpStream::connect(address.ok_or_else(unknown)?).await
    }
}

fn request(method: Method, url: &str, body: Bytes) -> io::Result<Request<Bytes>> {
    let request = Request::builder().method(method).uri(url);
    let request = if body.is_empty() { request } else { request.header(CONTENT_LENGTH, body.len()) };
    request.body(body).map_err(io::Error::other)
}

/// Waits for a response with its whole body, driving the connection in the same task.
async fn drive(
    connection: impl Future,
    answer: impl Future<Output = hyper::Result<Response<hyper::body::Incoming>>>,
) -> io::Result<Response<Bytes>> {
    let answer = async {
        let (head, body) = answer.await?.into_parts();
        Ok(Response::from_parts(head, body.collect().await?.to_bytes()))
    };
    let connection = async {
        connection.await;
        // The response reports how it ended.
        std::future::pending().await
    };
    tokio::select! {
        answer = answer => answer.map_err(broken),
        never = connection => never,
    }
}

fn broken(error: hyper::Error) -> io::Error {
    io::Error::other(error)
}
