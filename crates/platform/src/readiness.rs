//! Finding out whether an instance is ready, whatever back end runs it.

use std::io;
use std::time::Duration;

use async_trait::async_trait;
use faultscope_model::plan::Probe;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);
/// How long one attempt may take; a service that accepts and stays silent is asked again.
const ONE_ATTEMPT: Duration = Duration::from_secs(2);

/// What a probe can do to an instance.
#[async_trait]
pub(crate) trait Reach: Sync {
    /// Connects to one of its ports.
    async fn connect(&self, port: u16) -> io::Result<TcpStream>;
    /// Runs a command where it runs; whether it ended with 0.
    async fn run(&self, command: &[String]) -> io::Result<bool>;
    /// Returns when a line it printed matches the pattern.
    async fn printed(&self, pattern: &str) -> io::Result<()>;
}

/// Returns when the probe shows that the instance is ready. The caller bounds the time and watches for its end.
pub(crate) async fn wait_until_ready(probe: &Probe, instance: &dyn Reach) -> io::Result<()> {
    match probe {
        Probe::Started => return Ok(()),
        Probe::Log { pattern } => return instance.printed(pattern).await,
        Probe::Http { .. } | Probe::Tcp { .. } | Probe::Command { .. } => {}
    }
    let mut pause = FIRST_PAUSE;
    loop {
        if tokio::time::timeout(ONE_ATTEMPT, is_ready(probe, instance)).await.is_ok_and(|ready| ready) {
            return Ok(());
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 3 / 2).min(LONGEST_PAUSE);
    }
}

async fn is_ready(probe: &Probe, instance: &dyn Reach) -> bool {
    match probe {
        Probe::Http { path, port } => match instance.connect(*port).await {
            Ok(stream) => status(stream, path).await.is_ok_and(|status| (100..400).contains(&status)),
            Err(_) => false,
        },
        Probe::Tcp { port } => instance.connect(*port).await.is_ok(),
        Probe::Command { command } => instance.run(command).await.unwrap_or(false),
        Probe::Log { .. } | Probe::Started => true,
    }
}

/// The status of a GET; reads no further than that.
async fn status(mut stream: TcpStream, path: &str) -> io::Result<u16> {
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nUser-Agent: faultscope\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await?;
    let mut head = Vec::with_capacity(64);
    while head.len() < 16 {
        if stream.read_buf(&mut head).await? == 0 {
            break;
        }
    }
    let text = String::from_utf8_lossy(&head);
    let status = text.strip_prefix("HTTP/1.").and_then(|rest| rest.get(2..5)).and_then(|s| s.parse().ok());
    status.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "not an HTTP answer"))
}
