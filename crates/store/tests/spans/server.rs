//! A server on a port of its own, and a client that says just what it is told.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use faultscope_store::serve::{ConnectionLimits, Connections, ServeOptions, Served, router, serve};
use faultscope_store::spans::{SpanStore, SpanStoreOptions};
use serde_json::Value;

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) folder: tempfile::TempDir,
    _runtime: tokio::runtime::Runtime,
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        assert_eq!(self.status, 200, "{}", self.text());
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let line = |line: &'_ str| line.to_lowercase().starts_with(&format!("{name}:"));
        self.head.lines().find(|l| line(l))?.split_once(':').map(|(_, value)| value.trim())
    }
}

/// The body behind chunked framing. A body that was cut short is a failure of its test.
#[track_caller]
fn join_chunks(mut framed: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    loop {
        let end = framed.windows(2).position(|w| w == b"\r\n").expect("a chunk's length");
        let length = std::str::from_utf8(&framed[..end]).unwrap();
        let length = usize::from_str_radix(length, 16).unwrap();
        if length == 0 {
            return body;
        }
        let chunk = &framed[end + 2..];
        body.extend(&chunk[..length]);
        framed = &chunk[length + 2..];
    }
}

impl Server {
    pub(crate) fn start() -> Self {
        Self::with(SpanStoreOptions::default(), ServeOptions::default())
    }

    pub(crate) fn with(store: SpanStoreOptions, options: ServeOptions) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = SpanStore::open(folder.path(), store).unwrap();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let routes = router(&Served::new(store, options));
        let connections = Connections::new(ConnectionLimits::default());
        runtime.spawn(serve(listener, routes, connections, std::future::pending()));
        Self { address, folder, _runtime: runtime }
    }

    /// Sends a request as it stands and reads until the server closes.
    pub(crate) fn raw(&self, request: &[u8]) -> Answer {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        // The server may answer and close before all is sent.
        let _ = stream.write_all(request);
        let mut all = Vec::new();
        let _ = stream.read_to_end(&mut all);
        let end = all.windows(4).position(|w| w == b"\r\n\r\n").expect("no answer");
        let head = String::from_utf8_lossy(&all[..end]).into_owned();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let mut answer = Answer { status, head, body: all[end + 4..].to_vec() };
        if answer.header("transfer-encoding") == Some("chunked") {
            answer.body = join_chunks(&answer.body);
        }
        answer
    }

    pub(crate) fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        let mut head = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n");
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        if method == "POST" {
            head += &format!("content-length: {}\r\n", body.len());
        }
        self.raw(&[head.as_bytes(), b"\r\n", body].concat())
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &[], b"")
    }

    pub(crate) fn post(&self, path: &str, content_type: &str, body: impl AsRef<[u8]>) -> Answer {
        self.send("POST", path, &[("content-type", content_type)], body.as_ref())
    }

    /// Stores spans of Zipkin v2 JSON.
    #[track_caller]
    pub(crate) fn put(&self, spans: &Value) {
        let answer = self.post("/api/v2/spans", "application/json", spans.to_string());
        assert_eq!((answer.status, answer.text().as_str()), (202, ""));
    }

    /// The trace ids that a search finds, in their order.
    #[track_caller]
    pub(crate) fn search(&self, parameters: &str) -> Vec<String> {
        let answer = self.get(&format!("/api/v2/traces?{parameters}")).json();
        let id = |trace: &Value| trace[0]["traceId"].as_str().unwrap().to_owned();
        answer.as_array().unwrap().iter().map(id).collect()
    }
}
