//! Sidecars: proxies that run elsewhere and ask the tool whatever must be decided for the whole slot.
//!
//! Frames are lines of JSON over a Unix or TCP stream. A sidecar keeps no counters and no gates: it reports
//! and waits. When a report is lost, the trial is invalid, and the tool says so.

mod remote;
mod server;
mod sidecar;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;

use faultscope_model::perturbation::TargetId;
use faultscope_model::span::Span;
use faultscope_model::wiring::{Endpoint, ListenerSpec, OutageMode, Wiring};
use faultscope_model::{InstanceId, NotApplied, RestartError, ServiceName, SpanId, TraceId};
use futures_util::StreamExt;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio_util::codec::{FramedRead, LinesCodec};

pub use sidecar::{ControlAddress, SidecarOptions, sidecar};

/// Where a sidecar listens, and for what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SidecarListener {
    /// What the listener stands for.
    pub spec: ListenerSpec,
    /// Where the sidecar binds it.
    pub bind: SocketAddr,
}

/// The version of the frames; both ends must have the same.
const VERSION: u32 = 5;
/// The longest frame: a span with bounded headers and bodies stays far below.
const LONGEST_FRAME: usize = 4 * 1024 * 1024;
/// Frames that wait to be written.
const MAX_WAITING: usize = 8192;

/// What the tool tells a sidecar.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ToSidecar {
    /// A new trial begins.
    Wire { trial: u64, wiring: Box<Wiring>, listeners: Vec<SidecarListener> },
    /// The endpoints have changed within the trial.
    Endpoints { endpoints: BTreeMap<ServiceName, Vec<Endpoint>>, outages: BTreeMap<ServiceName, OutageMode> },
    /// The rules that take effect on a counted call.
    Effective { ask: u64, rules: Vec<usize>, target: Option<TargetId> },
    /// A held call may go, or a begun handling is known.
    Go { ask: u64 },
    /// An instance has been restarted, or not.
    Restarted { ask: u64, error: Option<RestartError> },
    /// An instance has been closed for others, or not.
    Closed { ask: u64, why_not: Option<NotApplied> },
    /// A call to a service has been counted: the outage that begins with it.
    Counted { ask: u64, outage: Option<OutageMode> },
    /// All connections are to be dropped.
    Reset,
}

/// What a sidecar tells the tool.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ToTool {
    /// The first frame.
    Hello { version: u32, instance: InstanceId, token: String },
    /// The listeners of the last wiring are there; addresses in their order.
    Listening { bound: Vec<SocketAddr> },
    /// A listener could not be bound.
    Failed { reason: String },
    /// A call has ended.
    Span { trial: u64, span: Box<Span> },
    /// Calls in flight in this sidecar.
    InFlight { calls: usize },
    /// Rules select a call: which of them take effect?
    Count { ask: u64, trial: u64, selected: Vec<usize>, call: Box<CountedCall> },
    /// A rule did something to a call.
    Applied { trial: u64, rule: usize },
    /// A rule could do nothing to its call.
    Missed { trial: u64, rule: usize, why: NotApplied },
    /// A call will not have its good answer.
    Failing { trial: u64, span: SpanId },
    /// A call is sent a second time.
    Twin { ask: u64, trial: u64, of: SpanId, twin: SpanId },
    /// An instance is to handle nothing but this call.
    Close { ask: u64, trial: u64, instance: InstanceId, span: SpanId },
    /// Whoever asked for that wants it no longer: the instance takes calls again.
    Open { ask: u64 },
    /// A request arrives at its callee.
    Begin {
        ask: u64,
        trial: u64,
        span: SpanId,
        trace: TraceId,
        instance: InstanceId,
        method: String,
        path: String,
    },
    /// A call waits for its turn.
    Arrive { ask: u64, trial: u64, call: Box<ArrivedCall> },
    /// The answer of an arrived call has reached its caller.
    Answered { ask: u64 },
    /// The handling of a request has ended.
    Ended { trial: u64, span: SpanId },
    /// An instance is to be restarted.
    Restart { ask: u64, instance: InstanceId },
    /// A service is called, by whatever protocol.
    CountCall { ask: u64, trial: u64, callee: ServiceName },
    /// A listener should refuse connections to a service and cannot.
    Unrefused { trial: u64, callee: ServiceName },
    /// Something could not be reported.
    Lost,
}

/// A call that is counted and named.
#[derive(Debug, Serialize, Deserialize)]
struct CountedCall {
    span: SpanId,
    trace: TraceId,
    parent: Option<SpanId>,
    caller: InstanceId,
    callee: ServiceName,
    instance: Option<InstanceId>,
    method: String,
    path: String,
    is_request: bool,
}

/// A call that a gate may hold.
#[derive(Debug, Serialize, Deserialize)]
struct ArrivedCall {
    caller: InstanceId,
    parent: Option<SpanId>,
    trace: TraceId,
    callee: ServiceName,
    method: String,
    path: String,
}

/// Frames read from a stream.
struct Frames<R>(FramedRead<R, LinesCodec>);

impl<R: AsyncRead + Unpin> Frames<R> {
    fn new(stream: R) -> Self {
        Self(FramedRead::new(stream, LinesCodec::new_with_max_length(LONGEST_FRAME)))
    }

    /// The next frame; none at the end.
    async fn next<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        let Some(line) = self.0.next().await else { return Ok(None) };
        let line = line.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        let frame =
            serde_json::from_str(&line).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        Ok(Some(frame))
    }
}

/// Writes frames until their senders are gone.
async fn write_frames<T: Serialize>(
    mut stream: impl AsyncWrite + Unpin,
    mut frames: mpsc::Receiver<T>,
) -> io::Result<()> {
    while let Some(frame) = frames.recv().await {
        let mut line = serde_json::to_vec(&frame)?;
        line.push(b'\n');
        // Frames that wait already go out together.
        while line.len() < LONGEST_FRAME
            && let Ok(frame) = frames.try_recv()
        {
            serde_json::to_writer(&mut line, &frame)?;
            line.push(b'\n');
        }
        stream.write_all(&line).await?;
    }
    stream.shutdown().await
}
