//! Waits until an instance is ready, whatever back end runs it.

use std::io;
use std::time::Duration;

use async_trait::async_trait;
use faultscope_model::grpc::GrpcCode;
use faultscope_model::outcome::StartEnding;
use faultscope_model::plan::{InstancePlan, Probe, Readiness};
use faultscope_model::units::show_duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::grpc_health::{Health, ask_for_health};

const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);
/// The limit of one attempt; a service that accepts but does not answer is tried again.
pub(crate) const ONE_ATTEMPT: Duration = Duration::from_secs(2);

/// The code of a method that a server does not have.
const UNIMPLEMENTED: GrpcCode = GrpcCode(12);

/// The access to an instance that probes need.
#[async_trait]
pub(crate) trait Reach: Sync {
    /// Connects to one of its ports.
    async fn connect(&self, port: u16) -> io::Result<TcpStream>;
    /// Runs a command beside it; returns whether it exited with 0.
    async fn run(&self, command: &[String]) -> io::Result<bool>;
    /// Returns when a line of its output matches the pattern.
    async fn printed(&self, pattern: &str) -> io::Result<()>;
}

/// The result of waiting for an instance.
#[derive(Debug)]
pub(crate) enum Waited {
    Ready,
    /// It was not ready in time: the probe, and the result of its last attempt.
    Late(String),
}

/// Returns when the probe succeeds or its time is over. The caller watches for the end of the instance.
pub(crate) async fn wait_until_ready(
    readiness: &Readiness,
    left: Duration,
    instance: &dyn Reach,
) -> io::Result<Waited> {
    let mut last = None;
    let waited = tokio::time::timeout(left, probe_until_ready(&readiness.probe, instance, &mut last)).await;
    if let Ok(ready) = waited {
        return ready.map(|()| Waited::Ready);
    }
    let mut late =
        format!("not ready within {}: {}", show_duration(readiness.within), describe(&readiness.probe));
    if let Some(last) = last {
        late.push_str(&format!(" {last}"));
    }
    Ok(Waited::Late(late))
}

/// How an instance ended before it was ready, as a type and as text.
pub(crate) fn over_too_soon(
    plan: &InstancePlan,
    out_of_memory: bool,
    code: Option<i32>,
    signal: Option<i32>,
) -> (StartEnding, String) {
    let ending = match (out_of_memory, code, signal) {
        (true, ..) => StartEnding::OutOfMemory,
        (_, Some(code), _) => StartEnding::Code(code),
        (_, _, Some(signal)) => StartEnding::Signal(signal),
        _ => StartEnding::Ended,
    };
    let limit = plan.limits.memory.filter(|_| out_of_memory);
    let limit = limit.map(|limit| format!(" (limit {limit})")).unwrap_or_default();
    (ending, format!("{ending}{limit}"))
}

/// Describes a probe for people.
fn describe(probe: &Probe) -> String {
    match probe {
        Probe::Http { path, port } => format!("GET {path} on port {port}"),
        Probe::Tcp { port } => format!("port {port}"),
        Probe::Grpc { service, port } if service.is_empty() => format!("gRPC health on port {port}"),
        Probe::Grpc { service, port } => format!("gRPC health of {service} on port {port}"),
        Probe::Command { command } => format!("`{}`", command.join(" ")),
        Probe::Log { pattern } => format!("no line matches {pattern}"),
        Probe::Started => "the start".into(),
    }
}

async fn probe_until_ready(probe: &Probe, instance: &dyn Reach, last: &mut Option<String>) -> io::Result<()> {
    match probe {
        Probe::Started => return Ok(()),
        Probe::Log { pattern } => return instance.printed(pattern).await,
        Probe::Http { .. } | Probe::Tcp { .. } | Probe::Grpc { .. } | Probe::Command { .. } => {}
    }
    let mut pause = FIRST_PAUSE;
    loop {
        match tokio::time::timeout(ONE_ATTEMPT, try_probe(probe, instance)).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(why)) => *last = Some(why),
            Err(_) => *last = Some("no answer within 2s".into()),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 3 / 2).min(LONGEST_PAUSE);
    }
}

/// Runs the probe once; the error says why it failed.
pub(crate) async fn try_probe(probe: &Probe, instance: &dyn Reach) -> Result<(), String> {
    let connect =
        async |port: u16| instance.connect(port).await.map_err(|_| "refuses connections".to_owned());
    match probe {
        Probe::Http { path, port } => match status(connect(*port).await?, path).await {
            Ok(status) if (100..400).contains(&status) => Ok(()),
            Ok(status) => Err(format!("answers {status}")),
            Err(_) => Err("the answer is not HTTP".into()),
        },
        Probe::Tcp { port } => connect(*port).await.map(|_| ()),
        Probe::Grpc { service, port } => match ask_for_health(connect(*port).await?, service).await {
            Ok(Health::Serving) => Ok(()),
            // A server without the health service cannot say more than that it answers.
            Ok(Health::Failed(UNIMPLEMENTED)) if service.is_empty() => Ok(()),
            Ok(Health::NotServing) => Err("is not serving".into()),
            Ok(Health::Failed(code)) => Err(format!("answers {code}")),
            Err(error) => Err(format!("the answer is not gRPC: {error}")),
        },
        Probe::Command { command } => match instance.run(command).await {
            Ok(true) => Ok(()),
            Ok(false) => Err("fails".into()),
            Err(error) => Err(format!("cannot be run: {error}")),
        },
        Probe::Log { .. } | Probe::Started => Ok(()),
    }
}

/// The status of a GET; reads nothing after it.
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
