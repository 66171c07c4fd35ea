//! Outgoing calls: HTTP/1.1 with a few kept-alive connections per callee and bounded bodies.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::{Duration, timeout};

/// The most idle connections per callee.
const MAXIMUM_IDLE: usize = 8;

type Sender = SendRequest<Full<Bytes>>;

/// The callees of a cell and the connections to them.
#[derive(Debug)]
pub(crate) struct Client {
    callees: BTreeMap<String, Callee>,
    body_limit: usize,
}

/// Where a service is.
#[derive(Debug)]
pub(crate) struct Callee {
    /// `host:port` to connect to.
    address: String,
    /// As in the `host` header.
    authority: String,
    /// Put before every path.
    prefix: String,
    idle: Mutex<Vec<Sender>>,
}

/// A call to make.
#[derive(Debug, Clone)]
pub(crate) struct Outgoing {
    pub(crate) method: Method,
    /// Path and query.
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// Why a call has no response.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
    #[error("cannot connect: {0}")]
    Connect(std::io::Error),
    #[error("{0}")]
    Http(#[from] hyper::Error),
    #[error("`{0}` is not a path")]
    Path(String),
    #[error("the answer cannot be read: {0}")]
    Body(String),
    #[error("there is no service `{0}`")]
    Unknown(String),
}

impl Callee {
    /// Reads `http://host:port/prefix`.
    pub(crate) fn parse(url: &str) -> Result<Self, String> {
        let uri: Uri = url.parse().map_err(|error| format!("`{url}`: {error}"))?;
        if uri.scheme_str() != Some("http") {
            return Err(format!("`{url}` does not start with http://"));
        }
        let authority = uri.authority().ok_or_else(|| format!("`{url}` has no host"))?;
        Ok(Self {
            address: format!("{}:{}", authority.host(), authority.port_u16().unwrap_or(80)),
            authority: authority.to_string(),
            prefix: uri.path().trim_end_matches('/').to_owned(),
            idle: Mutex::default(),
        })
    }

    /// A connection that was used before and is still open.
    async fn idle(&self) -> Option<Sender> {
        loop {
            let mut sender = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()?;
            if sender.ready().await.is_ok() {
                return Some(sender);
            }
        }
    }

    async fn connect(&self) -> Result<Sender, CallError> {
        let stream = TcpStream::connect(&self.address).await.map_err(CallError::Connect)?;
        stream.set_nodelay(true).map_err(CallError::Connect)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        tokio::spawn(async move {
            // The sender reports what matters to a call; an idle connection may break unnoticed.
            let _ = connection.await;
        });
        Ok(sender)
    }

    fn keep(&self, sender: Sender) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < MAXIMUM_IDLE && !sender.is_closed() {
            idle.push(sender);
        }
    }
}

impl Client {
    /// A client for these callees.
    pub(crate) fn new(callees: BTreeMap<String, Callee>, body_limit: usize) -> Self {
        Self { callees, body_limit }
    }

    /// Makes one attempt and reads the whole response.
    pub(crate) async fn send(
        &self,
        service: &str,
        outgoing: Outgoing,
        patience: Duration,
    ) -> Result<(StatusCode, Bytes), CallError> {
        let callee = self.callees.get(service).ok_or_else(|| CallError::Unknown(service.to_owned()))?;
        timeout(patience, self.exchange(callee, outgoing))
            .await
            .unwrap_or_else(|_| Err(CallError::TimedOut(patience)))
    }

    async fn exchange(&self, callee: &Callee, outgoing: Outgoing) -> Result<(StatusCode, Bytes), CallError> {
        let path = format!("{}{}", callee.prefix, outgoing.path);
        let uri: Uri = path.parse().map_err(|_| CallError::Path(path.clone()))?;
        let mut request = Request::new(Full::new(outgoing.body));
        *request.method_mut() = outgoing.method;
        *request.uri_mut() = uri;
        *request.headers_mut() = outgoing.headers;
        let host = callee.authority.parse().map_err(|_| CallError::Path(callee.authority.clone()))?;
        request.headers_mut().insert(header::HOST, host);
        let (response, sender) = loop {
            let (mut sender, fresh) = match callee.idle().await {
                Some(sender) => (sender, false),
                None => (callee.connect().await?, true),
            };
            match sender.try_send_request(request).await {
                Ok(response) => break (response, sender),
                // Only a request that was never sent may be repeated: the callee must not see it twice.
                Err(mut error) => match error.take_message() {
                    Some(unsent) if !fresh => request = unsent,
                    _ => return Err(error.into_error().into()),
                },
            }
        };
        let status = response.status();
        let body = Limited::new(response.into_body(), self.body_limit).collect().await;
        let body = body.map_err(|error| CallError::Body(error.to_string()))?.to_bytes();
        callee.keep(sender);
        Ok((status, body))
    }
}

#[cfg(test)]
mod tests {
    use super::Callee;

    #[test]
    fn urls_become_addresses() {
        let callee = Callee::parse("http://order:8080/api/").unwrap();
        assert_eq!((callee.address.as_str(), callee.prefix.as_str()), ("order:8080", "/api"));
        assert_eq!(Callee::parse("http://order").unwrap().address, "order:80");
        assert!(Callee::parse("https://order").is_err());
        assert!(Callee::parse("order:8080").is_err());
    }
}
