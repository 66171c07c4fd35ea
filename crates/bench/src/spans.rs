//! What the benchmarks of the store share: the measured server, the spans they send, and a lean client.

use std::fmt::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use faultscope_model::trace::{ReportedSpan, SpanKind};
use faultscope_model::{SpanId, TraceId};
use faultscope_store::serve::{ConnectionLimits, Connections, ServeOptions, Served, router};
use faultscope_store::spans::{SpanStore, SpanStoreOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::error::BenchError;
use crate::part::{Kept, print_line, until_stdin_ends};
use crate::random::Random;

/// Spans of a trace.
pub(crate) const PER_TRACE: u64 = 10;
/// Traces in a batch.
pub(crate) const TRACES: u64 = 10;
/// Services that report.
const SERVICES: u64 = 20;
/// The time over which spans are spread, in microseconds.
pub(crate) const DAY: u64 = 86_400_000_000;

/// Serves a store as `faultscope serve` does, until stdin is closed.
pub(crate) async fn serve(state: &Path) -> Result<(), BenchError> {
    let failed = |e: std::io::Error| BenchError::environment("cannot listen").because(e);
    let served = Served::new(SpanStore::open(state, SpanStoreOptions::default())?, ServeOptions::default());
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(failed)?;
    print_line(&listener.local_addr().map_err(failed)?.to_string());
    let connections = Connections::new(ConnectionLimits::default());
    faultscope_store::serve::serve(listener, router(&served), connections, until_stdin_ends()).await;
    let counts = served.store().counts();
    let kept = Kept { recorded: counts.stored, dropped: counts.refused + counts.lost };
    print_line(&serde_json::to_string(&kept).unwrap_or_default());
    Ok(())
}

/// A random number below a bound.
pub(crate) fn below(random: &mut Random, bound: u64) -> u64 {
    random.below(usize::try_from(bound).unwrap_or(usize::MAX)) as u64
}

/// Makes the spans of one trace: about 165 bytes of tags each, durations over five orders of magnitude.
pub(crate) fn trace(random: &mut Random, start_us: u64) -> Vec<ReportedSpan> {
    let id = TraceId(u128::from(random.next() | 1));
    let root = SpanId(random.next() | 1);
    let span = |number: u64, random: &mut Random| {
        let own = if number == 0 { root } else { SpanId(random.next() | 1) };
        let mut span = ReportedSpan::new(id, own);
        span.parent = (number > 0).then_some(root);
        span.kind = Some(if number.is_multiple_of(2) { SpanKind::Server } else { SpanKind::Client });
        let (service, operation) = (below(random, SERVICES), below(random, 12));
        span.name = format!("get /api/resource{operation}");
        span.start_us = Some(start_us + number * 700);
        span.duration_us = Some((10 << below(random, 14)) + below(random, 100));
        span.local.service = Some(format!("service-{service:02}"));
        span.local.ipv4 = Some(Ipv4Addr::new(10, 0, service as u8, 1).into());
        span.local.port = Some(8080);
        span.remote.service = Some(format!("service-{:02}", below(random, SERVICES)));
        let mut tag = |key: &str, value: String| span.tags.push((key.to_owned(), value));
        tag("http.method", if operation < 9 { "GET" } else { "POST" }.into());
        tag("http.path", format!("/api/resource{operation}/{}", below(random, 100_000)));
        tag("http.status_code", if below(random, 50) == 0 { "500" } else { "200" }.into());
        tag("request.id", format!("{:016x}", random.next()));
        tag("instance.name", format!("service-{service:02}-{}", below(random, 4)));
        if below(random, 100) == 0 {
            tag("error", "upstream timed out".into());
        }
        span
    };
    (0..PER_TRACE).map(|number| span(number, random)).collect()
}

/// A request with a batch of spans, whose trace ids can be changed in place.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) bytes: Vec<u8>,
    /// The offsets of the 16 digits of each trace id.
    ids: Vec<Vec<usize>>,
    /// The offsets of the digits that no other span has.
    own: Vec<usize>,
}

impl Request {
    /// A batch of [`TRACES`] traces as Zipkin v2 JSON.
    pub(crate) fn new(random: &mut Random) -> Self {
        let traces: Vec<_> = (0..TRACES).map(|n| trace(random, now_us() - random_back(n))).collect();
        let body = faultscope_store::interop::zipkin::to_json(&traces.concat());
        let mut head = String::from("POST /api/v2/spans HTTP/1.1\r\nhost: localhost\r\n");
        let _ = write!(head, "content-type: application/json\r\ncontent-length: {}\r\n\r\n", body.len());
        let bytes = [head.as_bytes(), &body].concat();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let places = |key: &str| text.match_indices(key).map(|(at, _)| at + key.len()).collect::<Vec<_>>();
        let ids = places("\"traceId\":\"").chunks(PER_TRACE as usize).map(<[usize]>::to_vec).collect();
        let own = places("\"request.id\":\"");
        Self { bytes, ids, own }
    }

    /// The ids of its traces.
    pub(crate) fn traces(&self) -> Vec<u64> {
        let id = |places: &Vec<usize>| {
            let digits = self.bytes.get(*places.first()?..)?.get(..16)?;
            u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
        };
        self.ids.iter().filter_map(id).collect()
    }

    /// Gives all traces new ids, and all spans a unique tag.
    pub(crate) fn renew(&mut self, random: &mut Random) {
        let own = self.own.iter().map(std::slice::from_ref);
        for places in self.ids.iter().map(Vec::as_slice).chain(own) {
            let id = format!("{:016x}", random.next() | 1);
            for at in places {
                if let Some(digits) = self.bytes.get_mut(*at..*at + 16) {
                    digits.copy_from_slice(id.as_bytes());
                }
            }
        }
    }
}

/// Spread over the last minutes, as batches of real senders are.
fn random_back(n: u64) -> u64 {
    60_000_000 + n * 3_000_000
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Line {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Line {
    pub(crate) async fn open(address: SocketAddr) -> Result<Self, String> {
        let stream = TcpStream::connect(address).await.map_err(|e| format!("connect to {address}: {e}"))?;
        stream.set_nodelay(true).map_err(|e| e.to_string())?;
        Ok(Self { stream, buffer: vec![0; 64 << 10] })
    }

    /// Sends a request; returns the status and the length of the response body.
    pub(crate) async fn exchange(&mut self, request: &[u8]) -> Result<(u16, usize), String> {
        self.stream.write_all(request).await.map_err(|e| format!("send: {e}"))?;
        let mut filled = 0;
        loop {
            if filled == self.buffer.len() {
                self.buffer.resize(filled * 2, 0);
            }
            let room = self.buffer.get_mut(filled..).unwrap_or_default();
            let read = self.stream.read(room).await.map_err(|e| format!("receive: {e}"))?;
            if read == 0 {
                return Err("the connection was closed".into());
            }
            filled += read;
            if let Some((status, head, body)) = answer(self.buffer.get(..filled).unwrap_or_default())?
                && filled >= head + body
            {
                return Ok((status, body));
            }
        }
    }
}

/// Status, length of the head and of the body, once the head has arrived.
fn answer(bytes: &[u8]) -> Result<Option<(u16, usize, usize)>, String> {
    // Heads are short; searching further would cost more with each part of a large body.
    let start = bytes.get(..bytes.len().min(1024)).unwrap_or_default();
    let Some(head) = start.windows(4).position(|w| w == b"\r\n\r\n") else { return Ok(None) };
    let text = String::from_utf8_lossy(bytes.get(..head).unwrap_or_default()).into_owned();
    let status = text.split(' ').nth(1).and_then(|code| code.parse().ok()).ok_or("no status")?;
    let length = text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    Ok(Some((status, head + 4, length.ok_or("the answer has no content-length")?)))
}

/// Microseconds since 1970.
pub(crate) fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// The size of all files of a store's spans.
pub(crate) fn disk(state: &Path) -> u64 {
    let files = std::fs::read_dir(state.join("spans")).into_iter().flatten().flatten();
    files.filter_map(|file| file.metadata().ok()).map(|metadata| metadata.len()).sum()
}
