//! The collector of a slot: takes the spans that its instances report themselves, beside what the mesh sees.
//!
//! It speaks what exporters speak (OTLP over HTTP and gRPC, Zipkin), knows who sends by the address or the
//! listener, and keeps the spans with the campaign, under the trial that runs.

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
use tokio::task::JoinHandle;

use super::answer::Failure;
use super::body::{Intake, Whole};
use super::grpc;
use super::ingest::{self, Taken};
use crate::campaign::SpanSink;
use crate::interop::{DecodeError, Decoded, Limits, SpanFormat};

/// Bytes of all bodies that may be in memory at once; there are several slots.
const BODIES_BYTES: usize = 64 << 20;
/// How long a body may take to arrive.
const BODY_TIME: Duration = Duration::from_secs(30);

/// Takes the spans that the instances of a slot report.
#[derive(Debug)]
pub struct Collector {
    sink: SpanSink,
    slot: SlotId,
    intake: Intake,
    now: Mutex<Now>,
    heard: AtomicU64,
}

/// What runs in the slot.
#[derive(Debug, Default)]
struct Now {
    trial: TrialId,
    callers: HashMap<IpAddr, InstanceId>,
}

/// A collector and whose listener it is asked by.
type Asked = (Arc<Collector>, Option<InstanceId>);

impl Collector {
    /// A collector that keeps spans with a campaign.
    pub fn new(sink: SpanSink, slot: SlotId) -> Arc<Self> {
        let (now, heard) = (Mutex::default(), AtomicU64::new(0));
        let intake = Intake::new(Limits::default(), BODY_TIME, BODIES_BYTES);
        Arc::new(Self { sink, slot, intake, now, heard })
    }

    /// Spans from now on belong to this trial; instances are told apart by their addresses.
    pub fn begin(&self, trial: TrialId, callers: impl IntoIterator<Item = (IpAddr, InstanceId)>) {
        *self.lock() = Now { trial, callers: callers.into_iter().collect() };
        self.heard.store(0, Ordering::Relaxed);
    }

    /// Serves a listener: of one instance, or of all.
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
            .with_state((Arc::clone(self), caller))
            .into_make_service_with_connect_info::<SocketAddr>();
        Ok(tokio::spawn(async move {
            if let Err(error) = axum::serve(socket, routes).await {
                tracing::warn!(%error, "the collector of a slot has ended");
            }
        }))
    }

    /// Spans that came since the trial began.
    pub fn heard(&self) -> u64 {
        self.heard.load(Ordering::Relaxed)
    }

    async fn take(
        &self,
        caller: Option<InstanceId>,
        from: SocketAddr,
        decoded: Decoded,
    ) -> Result<Taken, Failure> {
        let taken = Taken::of(&decoded);
        if decoded.items.is_empty() {
            return Ok(taken);
        }
        let (trial, instance) = {
            let now = self.lock();
            (now.trial, caller.or_else(|| now.callers.get(&from.ip().to_canonical()).cloned()))
        };
        let count = decoded.items.len() as u64;
        if !self.sink.report(trial, self.slot, instance, decoded.items).await {
            return Err(Failure::busy());
        }
        self.heard.fetch_add(count, Ordering::Relaxed);
        Ok(taken)
    }

    fn lock(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn otlp(
    State(asked): State<Asked>,
    ConnectInfo(from): ConnectInfo<SocketAddr>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let format = SpanFormat::otlp(ingest::content_type(&headers));
    let is_json = matches!(format, Ok(SpanFormat::OtlpJson));
    ingest::otlp(is_json, "rejectedSpans", spans(asked, from, &headers, body, format).await)
}

async fn zipkin_v2(
    State(asked): State<Asked>,
    ConnectInfo(from): ConnectInfo<SocketAddr>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let format = SpanFormat::zipkin_v2(ingest::content_type(&headers));
    zipkin(spans(asked, from, &headers, body, format).await)
}

async fn zipkin_v1(
    State(asked): State<Asked>,
    ConnectInfo(from): ConnectInfo<SocketAddr>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let format = SpanFormat::zipkin_v1(ingest::content_type(&headers));
    zipkin(spans(asked, from, &headers, body, format).await)
}

fn zipkin(taken: Result<Taken, Failure>) -> Response {
    match taken.map(|taken| taken.complaint()) {
        Ok(None) => StatusCode::ACCEPTED.into_response(),
        Ok(Some(complaint)) => Failure::bad(format!("{complaint}; the others were stored")).into_response(),
        Err(failure) => failure.into_response(),
    }
}

async fn over_grpc(
    State((collector, caller)): State<Asked>,
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

async fn spans(
    (collector, caller): Asked,
    from: SocketAddr,
    headers: &HeaderMap,
    body: Body,
    format: Result<SpanFormat, DecodeError>,
) -> Result<Taken, Failure> {
    let format = format?;
    let whole = Whole::read(&collector.intake, headers, body).await?;
    let decoded = whole.decode(&collector.intake, move |body, limits, _| format.decode(body, limits)).await?;
    collector.take(caller, from, decoded).await
}
