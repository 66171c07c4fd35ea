//! A small HTTP/1.1 load client that does as little work as possible, so that the proxy is what is measured.

use std::net::SocketAddr;
use std::time::Duration;

use hdrhistogram::Histogram;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// The request to send.
#[derive(Debug, Clone)]
pub(super) struct Shape {
    pub(super) request: Vec<u8>,
}

impl Shape {
    /// A GET without a body.
    pub(super) fn small() -> Self {
        Self {
            request: b"GET /small HTTP/1.1\r\nhost: upstream\r\nuser-agent: bench\r\naccept: */*\r\n\r\n"
                .to_vec(),
        }
    }

    /// A POST with a body of 1 KiB, answered with as much.
    pub(super) fn kibibyte() -> Self {
        let head = "POST /kibibyte HTTP/1.1\r\nhost: upstream\r\nuser-agent: bench\r\ncontent-type: text/plain\r\ncontent-length: 1024\r\n\r\n";
        Self { request: [head.as_bytes(), &[b'x'; 1024]].concat() }
    }
}

/// Sends as fast as responses come, over this many connections; returns the number of responses.
pub(super) async fn closed(
    address: SocketAddr,
    shape: &Shape,
    connections: usize,
    time: Duration,
) -> Result<u64, String> {
    let until = Instant::now() + time;
    let mut tasks = JoinSet::new();
    for _ in 0..connections {
        let shape = shape.clone();
        tasks.spawn(async move {
            let mut line = Line::open(address).await?;
            let mut answers = 0u64;
            while Instant::now() < until {
                line.exchange(&shape).await?;
                answers += 1;
            }
            Ok::<_, String>(answers)
        });
    }
    let mut all = 0;
    while let Some(done) = tasks.join_next().await {
        all += done.map_err(|e| e.to_string())??;
    }
    Ok(all)
}

/// Sends at a fixed rate, whatever the responses do; latencies count from the intended start, in microseconds.
pub(super) async fn paced(
    address: SocketAddr,
    shape: &Shape,
    connections: u32,
    rate: u32,
    time: Duration,
) -> Result<Histogram<u64>, String> {
    let start = Instant::now() + Duration::from_millis(20);
    let mut tasks = JoinSet::new();
    for number in 0..connections {
        let shape = shape.clone();
        tasks.spawn(async move {
            let mut line = Line::open(address).await?;
            let mut latencies = Histogram::<u64>::new(3).map_err(|e| e.to_string())?;
            let gap = Duration::from_secs(1) * connections / rate;
            let mut due = start + Duration::from_secs(1) * number / rate;
            while due < start + time {
                tokio::time::sleep_until(due).await;
                // Late timers are the fault of the client, not of the proxy.
                let sent = Instant::now();
                line.exchange(&shape).await?;
                let took = u64::try_from(sent.elapsed().as_micros()).unwrap_or(u64::MAX);
                latencies.record(took.max(1)).map_err(|e| e.to_string())?;
                due += gap;
            }
            Ok::<_, String>(latencies)
        });
    }
    let mut all = Histogram::<u64>::new(3).map_err(|e| e.to_string())?;
    while let Some(done) = tasks.join_next().await {
        all.add(done.map_err(|e| e.to_string())??).map_err(|e| e.to_string())?;
    }
    Ok(all)
}

struct Line {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Line {
    async fn open(address: SocketAddr) -> Result<Self, String> {
        let stream = TcpStream::connect(address).await.map_err(|e| format!("connect to {address}: {e}"))?;
        stream.set_nodelay(true).map_err(|e| e.to_string())?;
        Ok(Self { stream, buffer: vec![0; 16 << 10] })
    }

    async fn exchange(&mut self, shape: &Shape) -> Result<(), String> {
        self.stream.write_all(&shape.request).await.map_err(|e| format!("send: {e}"))?;
        let mut filled = 0;
        let whole = loop {
            let room = self
                .buffer
                .get_mut(filled..)
                .filter(|room| !room.is_empty())
                .ok_or("the answer is too large")?;
            let read = self.stream.read(room).await.map_err(|e| format!("receive: {e}"))?;
            if read == 0 {
                return Err("the connection was closed".into());
            }
            filled += read;
            if let Some(whole) = length(&self.buffer[..filled])? {
                break whole;
            }
        };
        while filled < whole {
            let room = self
                .buffer
                .get_mut(filled..)
                .filter(|room| !room.is_empty())
                .ok_or("the answer is too large")?;
            let read = self.stream.read(room).await.map_err(|e| format!("receive: {e}"))?;
            if read == 0 {
                return Err("the answer broke off".into());
            }
            filled += read;
        }
        Ok(())
    }
}

/// The length of a whole response, once its head has arrived.
fn length(bytes: &[u8]) -> Result<Option<usize>, String> {
    let Some(head) = bytes.windows(4).position(|w| w == b"\r\n\r\n") else {
        return Ok(None);
    };
    let text = std::str::from_utf8(&bytes[..head]).map_err(|e| e.to_string())?;
    let mut lines = text.split("\r\n");
    let status = lines.next().unwrap_or_default();
    if !status.starts_with("HTTP/1.1 200") {
        return Err(format!("answered `{status}`"));
    }
    let body = lines.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    Ok(Some(head + 4 + body.ok_or("the answer has no content-length")?))
}
