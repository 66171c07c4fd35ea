//! Starts the cells of a spec and sends them requests.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use bytes::Bytes;
use faultscope_cell::{Cell, serve};
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

/// Running cells; they end when it is stopped or the test's runtime does.
pub(crate) struct Application {
    addresses: BTreeMap<String, String>,
    crashed: Arc<AtomicI64>,
    stops: Vec<(oneshot::Sender<()>, JoinHandle<()>)>,
}

/// A service that holds its requests until it is opened.
pub(crate) struct Gate {
    pub(crate) url: String,
    n_arrived: watch::Receiver<usize>,
    open: watch::Sender<bool>,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
}

impl Application {
    /// Starts one instance of every service.
    pub(crate) async fn start(spec: &str) -> Self {
        Self::with_environment(spec, &[]).await
    }

    /// Starts one instance of every service with these variables.
    pub(crate) async fn with_environment(spec: &str, variables: &[(&str, &str)]) -> Self {
        let parsed = faultscope_cell::parse(spec).unwrap_or_else(|error| panic!("{error}"));
        let mut environment: BTreeMap<String, String> =
            variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let mut addresses = BTreeMap::new();
        let mut listeners = Vec::new();
        for name in parsed.services.keys() {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap().to_string();
            let variable = format!("{}_URL", name.to_uppercase().replace('-', "_"));
            environment.entry(variable).or_insert_with(|| format!("http://{address}"));
            addresses.insert(name.clone(), address);
            listeners.push((name.clone(), listener));
        }
        let crashed = Arc::new(AtomicI64::new(-1));
        let mut stops = Vec::new();
        for (name, listener) in listeners {
            environment.insert("FAULTSCOPE_INSTANCE".to_owned(), format!("{name}-1"));
            let code = Arc::clone(&crashed);
            let cell = Cell::new(parsed.clone(), &name, &environment).unwrap();
            let cell =
                Arc::new(cell.with_exit(Arc::new(move |exit| code.store(exit.into(), Ordering::SeqCst))));
            let (stop, stopped) = oneshot::channel::<()>();
            let task = tokio::spawn(async move {
                cell.start().await.unwrap();
                serve(cell, listener, async {
                    let _ = stopped.await;
                })
                .await;
            });
            stops.push((stop, task));
        }
        Self { addresses, crashed, stops }
    }

    /// The address of a service.
    pub(crate) fn address(&self, service: &str) -> &str {
        &self.addresses[service]
    }

    /// The exit code of a crashed cell.
    pub(crate) fn crashed(&self) -> Option<i64> {
        Some(self.crashed.load(Ordering::SeqCst)).filter(|code| *code >= 0)
    }

    /// Sends a request without body.
    pub(crate) async fn get(&self, service: &str, path: &str) -> Reply {
        self.send(service, Request::get(path).body(Bytes::new()).unwrap()).await
    }

    /// Sends a request with a JSON body.
    pub(crate) async fn post(&self, service: &str, path: &str, body: Value) -> Reply {
        self.send(service, Request::post(path).body(Bytes::from(body.to_string())).unwrap()).await
    }

    /// Sends any request.
    pub(crate) async fn send(&self, service: &str, request: Request<Bytes>) -> Reply {
        send(self.address(service), request).await
    }

    /// Asks all cells to end and waits until they have.
    pub(crate) async fn stop(self) {
        for (stop, task) in self.stops {
            let _ = stop.send(());
            task.await.unwrap();
        }
    }
}

impl Gate {
    /// A closed gate.
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (count, n_arrived) = watch::channel(0);
        let (open, opened) = watch::channel(false);
        tokio::spawn(async move {
            let count = Arc::new(count);
            while let Ok((stream, _)) = listener.accept().await {
                let (count, opened) = (Arc::clone(&count), opened.clone());
                let service = service_fn(move |_| {
                    count.send_modify(|n_arrived| *n_arrived += 1);
                    let mut opened = opened.clone();
                    async move {
                        let _ = opened.wait_for(|open| *open).await;
                        Ok::<_, std::convert::Infallible>(Response::new(Full::new(Bytes::from("{}"))))
                    }
                });
                let connection = hyper::server::conn::http1::Builder::new();
                tokio::spawn(connection.serve_connection(TokioIo::new(stream), service));
            }
        });
        Self { url, n_arrived, open }
    }

    /// Waits until so many requests have come.
    pub(crate) async fn arrived(&self, wanted: usize) {
        self.n_arrived.clone().wait_for(|n_arrived| *n_arrived >= wanted).await.unwrap();
    }

    /// Lets all requests pass, also later ones.
    pub(crate) fn open(&self) {
        self.open.send_replace(true);
    }
}

/// Sends a request to an address.
pub(crate) async fn send(address: &str, request: Request<Bytes>) -> Reply {
    let stream = TcpStream::connect(address).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let mut request = request.map(Full::new);
    request.headers_mut().insert("host", "cell".parse().unwrap());
    let response = sender.send_request(request).await.unwrap();
    let (head, body) = response.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    let body = serde_json::from_slice(&bytes).unwrap_or_else(|error| panic!("{error}: {bytes:?}"));
    Reply { status: head.status.as_u16(), headers: head.headers, body }
}
