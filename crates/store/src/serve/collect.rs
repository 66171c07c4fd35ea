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
use std::time::Duration;

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
use super::body::{Intake, Whole};
use super::grpc;
use super::ingest::{self, Ingested};
use crate::campaigns::SampleWriter;
use crate::campaigns::SpanSink;
use crate::interop::otlp::MetricPoint;
use crate::interop::otlp::points_of;
use crate::interop::{Batch, DecodeError, Decoded, Limits, MetricFormat, Room, SpanFormat};
use faultscope_model::metrics::Point;

/// The most bytes of all bodies in memory; there are several slots.
const BODIES_BYTES: usize = 64 << 20;
/// How long a body may take to arrive.
const BODY_TIME: Duration = Duration::from_secs(30);
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
    now: Mutex<Now>,
    heard: AtomicU64,
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
        let heard = AtomicU64::new(0);
        let intake = Intake::new(Limits::default(), BODY_TIME, BODIES_BYTES);
        let writing = Arc::new(Semaphore::new(MAX_WRITING));
        Arc::new(Self { sink, samples, slot, intake, writing, now, heard })
    }

    /// Assigns spans from now on to this trial; instances are recognized by their addresses.
    pub fn begin(&self, trial: TrialId, callers: impl IntoIterator<Item = (IpAddr, InstanceId)>) {
        *self.lock() = Now { trial, callers: callers.into_iter().collect() };
        self.heard.store(0, Ordering::Relaxed);
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
            .with_state((Arc::clone(self), caller))
            .into_make_service_with_connect_info::<SocketAddr>();
        Ok(tokio::spawn(async move {
            if let Err(error) = axum::serve(socket, routes).await {
                tracing::warn!(%error, "the collector of a slot has stopped");
            }
        }))
    }

    /// Spans received since the trial began.
    pub fn heard(&self) -> u64 {
        self.heard.load(Ordering::Relaxed)
    }

    async fn take(
        &self,
        caller: Option<InstanceId>,
        from: SocketAddr,
        decoded: Decoded,
    ) -> Result<Ingested, Failure> {
        let taken = Ingested::from_batch(&decoded);
        if decoded.items.is_empty() {
            return Ok(taken);
        }
        let (trial, instance) = self.identify_sender(caller, from);
        let count = decoded.items.len() as u64;
        if !self.sink.report(trial, self.slot, instance, decoded.items).await {
            return Err(Failure::busy());
        }
        self.heard.fetch_add(count, Ordering::Relaxed);
        Ok(taken)
    }

    async fn take_metrics(
        &self,
        caller: Option<InstanceId>,
        from: SocketAddr,
        decoded: Batch<MetricPoint>,
    ) -> Result<Ingested, Failure> {
        let taken = Ingested::from_batch(&decoded);
        let Some(samples) = self.samples.clone().filter(|_| !decoded.items.is_empty()) else {
            return Ok(taken);
        };
        let Ok(turn) = Arc::clone(&self.writing).try_acquire_owned() else { return Err(Failure::busy()) };
        let ((trial, instance), slot) = (self.identify_sender(caller, from), self.slot);
        let writing = tokio::task::spawn_blocking(move || {
            let mut points: Vec<Point> = decoded.items.iter().flat_map(points_of).collect();
            if let Some(instance) = &instance {
                points.iter_mut().for_each(|point| sign(point, instance));
            }
            let written = samples.write(trial, slot, &[], &points);
            drop(turn);
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
        let whole = Whole::read(&collector.intake, &headers, body).await?;
        let decoded = whole.decode(&collector.intake, grpc::message_of(&headers)).await?;
        collector.take(caller, from, decoded).await
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
        let read = move |body: &[u8], limits: &Limits, _: Room<'_>| format.decode(body, limits);
        collector.take_metrics(caller, from, whole.decode(&collector.intake, read).await?).await
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
        let whole = Whole::read(&collector.intake, &headers, body).await?;
        let decoded = whole.decode(&collector.intake, grpc::metrics_of(&headers)).await?;
        collector.take_metrics(caller, from, decoded).await
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
    let decoded = whole.decode(&collector.intake, move |body, limits, _| format.decode(body, limits)).await?;
    collector.take(caller, from, decoded).await
}
