//! The connection of one user: one request after the other, without a task of its own for HTTP/1.1.

use std::future::Future;
use std::io;
use std::pin::Pin;

use bytes::{Bytes, BytesMut};
use faultscope_model::workload::RequestFailure;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use super::{LoadProtocol, LoadTarget};

/// The largest body that is kept for checks; of a larger one the beginning. All of it is read.
const MAX_BODY: usize = 1 << 20;

pub(super) enum Connection {
    Http1(Http1),
    Http2(Http2),
}

pub(super) struct Http1 {
    sender: http1::SendRequest<Full<Bytes>>,
    /// None once it has ended.
    driver: Option<Pin<Box<Driver>>>,
}

/// Moves the bytes of an HTTP/1.1 connection.
type Driver = http1::Connection<TokioIo<TcpStream>, Full<Bytes>>;

pub(super) struct Http2 {
    sender: http2::SendRequest<Full<Bytes>>,
    driver: JoinHandle<()>,
}

/// An answer.
#[derive(Debug)]
pub(super) struct Received {
    pub(super) status: u16,
    /// Empty unless it was asked for.
    pub(super) body: Bytes,
}

impl LoadTarget {
    /// What stands in the first line of a request.
    pub(super) fn uri(&self, path: &str) -> String {
        match self.protocol {
            LoadProtocol::Http1 => format!("{}{path}", self.prefix),
            LoadProtocol::Http2 => format!("http://{}{}{path}", self.authority, self.prefix),
        }
    }
}

impl Connection {
    pub(super) async fn open(target: &LoadTarget) -> Result<Self, RequestFailure> {
        let stream = TcpStream::connect(target.address).await.map_err(|e| explain_connect(&e))?;
        stream.set_nodelay(true).map_err(|_| RequestFailure::Local)?;
        let stream = TokioIo::new(stream);
        match target.protocol {
            LoadProtocol::Http1 => {
                let (sender, driver) = http1::handshake(stream).await.map_err(|e| explain(&e))?;
                Ok(Self::Http1(Http1 { sender, driver: Some(Box::pin(driver)) }))
            }
            LoadProtocol::Http2 => {
                let executor = TokioExecutor::new();
                let (sender, driver) = http2::handshake(executor, stream).await.map_err(|e| explain(&e))?;
                let driver = tokio::spawn(async move {
                    // What ends it shows in the request that is under way.
                    let _ = driver.await;
                });
                Ok(Self::Http2(Http2 { sender, driver }))
            }
        }
    }

    /// Whether another request can be sent on it.
    pub(super) fn is_usable(&self) -> bool {
        match self {
            Self::Http1(one) => one.driver.is_some() && !one.sender.is_closed(),
            Self::Http2(two) => !two.sender.is_closed(),
        }
    }

    /// Sends a request and reads its answer to the end.
    pub(super) async fn send(
        &mut self,
        message: Request<Full<Bytes>>,
        needs_body: bool,
    ) -> Result<Received, RequestFailure> {
        match self {
            Self::Http1(Http1 { sender, driver }) => {
                let exchange = async {
                    sender.ready().await.map_err(|e| explain(&e))?;
                    read(sender.send_request(message), needs_body).await
                };
                let mut exchange = std::pin::pin!(exchange);
                let Some(driving) = driver else { return Err(RequestFailure::Closed) };
                // Both are polled here: no other task has to be woken for each request.
                tokio::select! {
                    received = &mut exchange => return received,
                    _ = driving.as_mut() => {}
                }
                *driver = None;
                exchange.await
            }
            Self::Http2(Http2 { sender, .. }) => {
                sender.ready().await.map_err(|e| explain(&e))?;
                read(sender.send_request(message), needs_body).await
            }
        }
    }
}

impl Drop for Http2 {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

async fn read(
    answering: impl Future<Output = hyper::Result<http::Response<Incoming>>>,
    needs_body: bool,
) -> Result<Received, RequestFailure> {
    let response = answering.await.map_err(|e| explain(&e))?;
    let status = response.status().as_u16();
    let mut incoming = response.into_body();
    let mut body = BytesMut::new();
    while let Some(frame) = incoming.frame().await {
        let frame = frame.map_err(|e| explain(&e))?;
        if let (true, Some(data)) = (needs_body, frame.data_ref()) {
            let room = MAX_BODY.saturating_sub(body.len()).min(data.len());
            body.extend_from_slice(&data[..room]);
        }
    }
    Ok(Received { status, body: body.freeze() })
}

fn explain_connect(error: &io::Error) -> RequestFailure {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => RequestFailure::Refused,
        io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted => RequestFailure::Closed,
        io::ErrorKind::TimedOut => RequestFailure::TimedOut,
        // No file descriptor or port is left, or there is no way to the host.
        _ => RequestFailure::Local,
    }
}

fn explain(error: &hyper::Error) -> RequestFailure {
    if error.is_parse() { RequestFailure::Malformed } else { RequestFailure::Closed }
}
