//! The collector of a slot: receives spans and metrics that its instances report, beside what the mesh
//! records and the platform measures.
//!
//! It accepts OTLP over HTTP and gRPC, and Zipkin, knows the sender by its address or
//! listener, and stores everything with the campaign, under the current trial.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use faultscope_model::{InstanceId, SlotId, TrialId};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use super::answer::Failure;
use super::body::{BodyTime, Intake, Whole};
use super::connections::{self, ConnectionLimits, Connections};
use super::grpc;
use super::ingest::{self, Ingested};
use crate::budget::Hold;
use crate::campaigns::SampleWriter;
use crate::campaigns::SpanSink;
use crate::interop::otlp::MetricPoint;
use crate::interop::otlp::points_of;
use crate::interop::{Batch, DecodeError, Decoded, Limits, MetricFormat, SpanFormat};
use faultscope_model::metrics::Point;

/// The most bytes of what is decoded from one body; all slots share one budget.
const MAX_DECODED: usize = 32 << 20;
/// The most bytes of reported spans that a trial keeps; later ones are rejected and counted.
const MAX_TRIAL_BYTES: u64 = 512 << 20;
/// The most points of metrics that a trial keeps; later ones are rejected and counted.
const MAX_TRIAL_POINTS: u64 = 5_000_000;
/// How many metrics are turned into points together; a histogram has up to 68 of them.
const METRICS_TOGETHER: usize = 8;
/// Connections of all instances of a slot.
const MAX_CONNECTIONS: usize = 128;
/// Exports of metrics that may wait to be written.
const MAX_WRITING: usize = 8;
/// The label that names the instance.
const INSTANCE: &str = "service.instance.id";

/// Receives the spans and metrics that the instances of a slot report.
#[derive(Debug)]
pub struct Collector {
    sink: SpanSink,
    /// The destination of metrics; none if they are not recorded.
    samples: Option<Arc<SampleWriter>>,
    slot: SlotId,
    intake: Intake,
    writing: Arc<Semaphore>,
    connections: Arc<Connections>,
    now: Mutex<Now>,
    kept: Kept,
}

/// What the current trial has kept of reports, and what it has not.
#[derive(Debug, Default)]
struct Kept {
    spans: AtomicU64,
    bytes: AtomicU64,
    points: AtomicU64,
    left_out: AtomicU64,
}

/// What runs in the slot.
#[derive(Debug)]
struct Now {
    trial: TrialId,
    callers: HashMap<IpAddr, InstanceId>,
}

/// A collector, and the instance whose listener a request came to.
type CollectorState = (Arc<Collector>, Option<InstanceId>);

impl Collector {
    /// A collector that stores spans with a campaign, and metrics if they are recorded.
    pub fn new(sink: SpanSink, samples: Option<Arc<SampleWriter>>, slot: SlotId) -> Arc<Self> {
        // Nothing can send before the first trial begins.
        let now = Mutex::new(Now { trial: TrialId::chosen(0), callers: HashMap::new() });
        let limits = Limits { decoded_bytes: MAX_DECODED, ..Limits::default() };
        let intake = Intake::new(limits, BodyTime::default(), sink.budget().clone());
        let writing = Arc::new(Semaphore::new(MAX_WRITING));
        let connections = Connections::new(ConnectionLimits { open: MAX_CONNECTIONS, ..Default::default() });
        Arc::new(Self { sink, samples, slot, intake, writing, connections, now, kept: Kept::default() })
    }

    /// Assigns spans from now on to this trial; instances are recognized by their addresses.
    pub fn begin(&self, trial: TrialId, callers: impl IntoIterator<Item = (IpAddr, InstanceId)>) {
        *self.lock() = Now { trial, callers: callers.into_iter().collect() };
        let Kept { spans, bytes, points, left_out } = &self.kept;
        [spans, bytes, points, left_out].iter().for_each(|counter| counter.store(0, Ordering::Relaxed));
    }

    /// Serves a listener of one instance, or of all.
    pub fn listen(
        self: &Arc<Self>,
        caller: Option<InstanceId>,
        socket: TcpListener,
    ) -> io::Result<JoinHandle<()>> {
        let socket = tokio::net::TcpListener::from_std(socket)?;
        let routes = Router::new()
            .route("/v1/traces", post(otlp))
            .route("/api/v2/spans", post(zipkin_v2))
            .route("/api/v1/spans", post(zipkin_v1))
            .route(grpc::TRACES, post(over_grpc))
            .route("/v1/metrics", post(otlp_metrics))
            .route(grpc::METRICS, post(metrics_over_grpc))
            .with_state((Arc::clone(self), caller));
        let connections = Arc::clone(&self.connections);
        Ok(tokio::spawn(connections::serve(socket, routes, connections, std::future::pending())))
    }

    /// Spans received since the trial began.
    pub fn heard(&self) -> u64 {
        self.kept.spans.load(Ordering::Relaxed)
    }

    /// Spans and points that came since the trial began but were not kept, because the trial had its most.
    pub fn left_out(&self) -> u64 {
        self.kept.left_out.load(Ordering::Relaxed)
    }

    async fn keep_spans(
        &self,
        caller: Option<InstanceId>,
        from: SocketAddr,
        (decoded, hold): (Decoded, Hold),
    ) -> Result<Ingested, Failure> {
        let taken = Ingested::from_batch(&decoded);
        if decoded.items.is_empty() {
            return Ok(taken);
        }
        let count = decoded.items.len() as u64;
        let bytes = decoded.bytes as u64;
        // Counted first: several senders at once must not pass the limit together.
        if self.kept.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes > MAX_TRIAL_BYTES {
            self.kept.bytes.fetch_sub(bytes, Ordering::Relaxed);
            return Ok(self.leave_out(count, "this trial has as many spans as a trial may keep"));
        }
        let (trial, instance) = self.identify_sender(caller, from);
        if !self.sink.report(trial, self.slot, instance, decoded.items, Some(hold)).await {
            self.kept.bytes.fetch_sub(bytes, Ordering::Relaxed);
            return Err(Failure::busy());
        }
        self.kept.spans.fetch_add(count, Ordering::Relaxed);
        Ok(taken)
    }

    fn leave_out(&self, count: u64, why: &str) -> Ingested {
        self.kept.left_out.fetch_add(count, Ordering::Relaxed);
        Ingested::rejected(usize::try_from(count).unwrap_or(usize::MAX), why)
    }

    async fn keep_metrics(
        &self,
        caller: Option<InstanceId>,
        from: SocketAddr,
        (decoded, hold): (Batch<MetricPoint>, Hold),
    ) -> Result<Ingested, Failure> {
        let taken = Ingested::from_batch(&decoded);
        let Some(samples) = self.samples.clone().filter(|_| !decoded.items.is_empty()) else {
            return Ok(taken);
        };
        let count = decoded.items.len() as u64;
        if self.kept.points.fetch_add(count, Ordering::Relaxed) + count > MAX_TRIAL_POINTS {
            self.kept.points.fetch_sub(count, Ordering::Relaxed);
            return Ok(self.leave_out(count, "this trial has as many points as a trial may keep"));
        }
        let Ok(turn) = Arc::clone(&self.writing).try_acquire_owned() else { return Err(Failure::busy()) };
        let ((trial, instance), slot) = (self.identify_sender(caller, from), self.slot);
        let writing = tokio::task::spawn_blocking(move || {
            // A histogram becomes 68 points that repeat all its labels, so few are made at a time. What was
            // written before an error is written again when the sender tries again, and replaces itself.
            let write = |metrics: &[MetricPoint]| {
                let mut points: Vec<Point> = metrics.iter().flat_map(points_of).collect();
                if let Some(instance) = &instance {
                    points.iter_mut().for_each(|point| sign(point, instance));
                }
                samples.write(trial, slot, &[], &points)
            };
            let written = decoded.items.chunks(METRICS_TOGETHER).try_for_each(write);
            drop((turn, hold));
            written
        });
        match writing.await {
            Ok(written) => written.map(|()| taken).map_err(Failure::from),
            Err(_) => Err(Failure::internal("the metrics could not be written")),
        }
    }

    /// The current trial, and the sender if known.
    fn identify_sender(&self, caller: Option<InstanceId>, from: SocketAddr) -> (TrialId, Option<InstanceId>) {
        let now = self.lock();
        (now.trial, caller.or_else(|| now.callers.get(&from.ip().to_canonical()).cloned()))
    }

    fn lock(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn otlp(
    State(asked): State<CollectorState>,
    ConnectInfo(from): ConnectInfo<SocketAddr>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let format = SpanFormat::otlp(ingest::content_type(&headers));
    let is_json = matches!(format, Ok(SpanFormat::OtlpJson));
    ingest::otlp(is_json, "rejectedSpans", spans(asked, from, &headers, body, format).await)
}

async fn zipkin_v2(
    State(asked): State<CollectorState>,
    ConnectInfo(from): ConnectInfo<SocketAddr>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let format = SpanFormat::zipkin_v2(ingest::content_type(&headers));
    zipkin(spans(asked, from, &headers, body, format).await)
}

async fn zipkin_v1(
    State(asked): State<CollectorState>,
    ConnectInfo(from): ConnectInfo<SocketAddr>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let format = SpanFormat::zipkin_v1(ingest::content_type(&headers));
    zipkin(spans(asked, from, &headers, body, format).await)
}

fn zipkin(taken: Result<Ingested, Failure>) -> Response {
    match taken.map(|taken| taken.complaint()) {
        Ok(None) => StatusCode::ACCEPTED.into_response(),
        Ok(Some(complaint)) => Failure::bad(format!("{complaint}; the others were stored")).into_response(),
        Err(failure) => failure.into_response(),
    }
}

async fn over_grpc(
    State((collector, caller)): State<CollectorState>,
    ConnectInfo(from): ConnectInfo<SocketAddr>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let take = async {
        let whole = Whole::read_grpc(&collector.intake, &headers, body).await?;
        let decoded = whole.decode(&collector.intake, grpc::decode_spans).await?;
        collector.keep_spans(caller, from, decoded).await
    };
    grpc::answer(take.await)
}

/// `POST /v1/metrics`
async fn otlp_metrics(
    State((collector, caller)): State<CollectorState>,
    ConnectInfo(from): ConnectInfo<SocketAddr>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let format = MetricFormat::otlp(ingest::content_type(&headers));
    let is_json = matches!(format, Ok(MetricFormat::OtlpJson));
    let take = async {
        let format = format?;
        let whole = Whole::read(&collector.intake, &headers, body).await?;
        let read = move |body: &[u8], limits: &Limits| format.decode(body, limits);
        collector.keep_metrics(caller, from, whole.decode(&collector.intake, read).await?).await
    };
    ingest::otlp(is_json, "rejectedDataPoints", take.await)
}

async fn metrics_over_grpc(
    State((collector, caller)): State<CollectorState>,
    ConnectInfo(from): ConnectInfo<SocketAddr>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let take = async {
        let whole = Whole::read_grpc(&collector.intake, &headers, body).await?;
        let decoded = whole.decode(&collector.intake, grpc::decode_metrics).await?;
        collector.keep_metrics(caller, from, decoded).await
    };
    grpc::answer(take.await)
}

/// Labels a point with its instance: in a slot that is known, whatever services call themselves.
fn sign(point: &mut Point, instance: &InstanceId) {
    point.series.service = instance.service.to_string();
    point.series.about.retain(|(key, _)| key != INSTANCE);
    point.series.about.push((INSTANCE.to_owned(), instance.to_string()));
    point.series.about.sort();
}

async fn spans(
    (collector, caller): CollectorState,
    from: SocketAddr,
    headers: &HeaderMap,
    body: Body,
    format: Result<SpanFormat, DecodeError>,
) -> Result<Ingested, Failure> {
    let format = format?;
    let whole = Whole::read(&collector.intake, headers, body).await?;
    let read = move |body: &[u8], limits: &Limits| format.decode(body, limits);
    collector.keep_spans(caller, from, whole.decode(&collector.intake, read).await?).await
}
