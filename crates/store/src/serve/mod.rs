//! The store over HTTP, compatible with Zipkin, Jaeger and an OpenTelemetry collector: tracers send to it
//! and trace viewers query it.
//!
//! ```text
//! POST /api/v2/spans  /api/v1/spans      Zipkin: JSON, protobuf, Thrift
//! POST /v1/traces  /v1/metrics           OTLP: protobuf, JSON
//! POST /opentelemetry.proto.collector..  OTLP over gRPC
//! GET  /api/v2/..                        Zipkin's queries
//! GET  /api/traces ..  /api/v3/..        Jaeger's queries, older and newer
//! GET  /health  /info  /metrics  /prometheus  /config.json
//! ```
//!
//! This module builds routers; whoever binds them decides about addresses and tokens. A batch is answered once it
//! is committed. All reading happens on blocking threads, a few at a time.

mod answer;
mod body;
mod collect;
mod connections;
mod forward;
mod grpc;
mod guard;
mod ingest;
mod jaeger;
mod status;
mod stream;
mod zipkin;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::middleware;
use axum::routing::{get, post};
use tokio::sync::Semaphore;

use crate::budget::Budget;
use crate::error::StoreError;
use crate::interop::Limits;
use crate::spans::{SpanReader, SpanStore};
use answer::Failure;
use body::Intake;

pub use body::BodyTime;
pub use collect::Collector;
pub use connections::{ConnectionLimits, Connections, serve};
pub use forward::{Forward, ForwardCounts, ForwardOptions};
pub use guard::Access;

/// How many queries run at the same time; each holds a trace in memory.
const READERS: usize = 4;

/// Options of the server.
#[derive(Debug, Clone)]
pub struct ServeOptions {
    /// Whether a 64-bit trace id differs from a 128-bit id with the same lower half.
    pub strict: bool,
    /// The limits of request bodies.
    pub limits: Limits,
    /// The most bytes of bodies, of what waits to be written and of answers together.
    pub memory_bytes: usize,
    /// How long a body may take to arrive.
    pub body_time: BodyTime,
    /// Tags whose values are offered for autocompletion.
    pub tag_values: Vec<String>,
    /// Who may send requests.
    pub access: Access,
    /// The destination of forwarded spans.
    pub forward: Option<Arc<Forward>>,
}

impl Default for ServeOptions {
    fn default() -> Self {
        Self {
            strict: true,
            limits: Limits::default(),
            memory_bytes: 192 << 20,
            body_time: BodyTime::default(),
            tag_values: Vec::new(),
            access: Access::default(),
            forward: None,
        }
    }
}

/// The state of the server.
#[derive(Debug)]
pub struct Served {
    store: SpanStore,
    reader: Arc<SpanReader>,
    options: ServeOptions,
    intake: Intake,
    readers: Arc<Semaphore>,
    counts: Counts,
}

/// What was received, as `/metrics` reports it.
#[derive(Debug, Default)]
struct Counts {
    messages: AtomicU64,
    bytes: AtomicU64,
    spans: AtomicU64,
    rejected: AtomicU64,
    /// Requests that could not be decoded at all.
    malformed: AtomicU64,
    /// Requests that were told to retry.
    busy: AtomicU64,
}

impl Served {
    /// Serves an open store.
    pub fn new(store: SpanStore, options: ServeOptions) -> Arc<Self> {
        let reader = Arc::new(SpanReader::open(store.state(), options.strict));
        let budget = Budget::new(options.memory_bytes);
        let intake = Intake::new(options.limits.clone(), options.body_time, budget);
        let readers = Arc::new(Semaphore::new(READERS));
        Arc::new(Self { store, reader, options, intake, readers, counts: Counts::default() })
    }

    /// The store.
    pub fn store(&self) -> &SpanStore {
        &self.store
    }

    /// Runs a query on a blocking thread.
    async fn query<T: Send + 'static>(
        &self,
        question: impl FnOnce(&SpanReader) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, Failure> {
        let _turn = self.readers.acquire().await.map_err(|_| Failure::unavailable("the store is closed"))?;
        let reader = Arc::clone(&self.reader);
        match tokio::task::spawn_blocking(move || question(&reader)).await {
            Ok(answer) => Ok(answer?),
            Err(_) => Err(Failure::internal("a query panicked")),
        }
    }
}

/// All routes.
pub fn router(served: &Arc<Served>) -> Router {
    let router = Router::new()
        .route("/api/v2/spans", post(ingest::zipkin_v2).get(zipkin::span_names))
        .route("/api/v1/spans", post(ingest::zipkin_v1))
        .route("/api/v2/traces", get(zipkin::traces))
        .route("/api/v2/trace/{id}", get(zipkin::trace))
        .route("/api/v2/traceMany", get(zipkin::trace_many))
        .route("/api/v2/services", get(zipkin::services))
        .route("/api/v2/remoteServices", get(zipkin::remote_services))
        .route("/api/v2/dependencies", get(zipkin::dependencies))
        .route("/api/v2/autocompleteKeys", get(zipkin::tag_keys))
        .route("/api/v2/autocompleteValues", get(zipkin::tag_values))
        .route("/api/services", get(jaeger::services))
        .route("/api/services/{service}/operations", get(jaeger::operations_of))
        .route("/api/operations", get(jaeger::operations))
        .route("/api/traces", get(jaeger::traces))
        .route("/api/traces/{id}", get(jaeger::trace))
        .route("/api/dependencies", get(jaeger::dependencies))
        .route("/api/v3/services", get(jaeger::v3_services))
        .route("/api/v3/operations", get(jaeger::v3_operations))
        .route("/api/v3/traces", get(jaeger::v3_traces))
        .route("/api/v3/traces/{id}", get(jaeger::v3_trace))
        .route("/", get(status::welcome))
        .route("/health", get(status::health))
        .route("/info", get(status::info))
        .route("/metrics", get(status::metrics))
        .route("/prometheus", get(status::prometheus))
        .route("/config.json", get(status::config))
        .route("/zipkin/config.json", get(status::config));
    finish(otlp_routes(router), served)
}

/// The routes of an OpenTelemetry collector, for its usual port.
pub fn otlp_router(served: &Arc<Served>) -> Router {
    finish(otlp_routes(Router::new()).route("/health", get(status::health)), served)
}

fn otlp_routes(router: Router<Arc<Served>>) -> Router<Arc<Served>> {
    router
        .route("/v1/traces", post(ingest::otlp_traces))
        .route("/v1/metrics", post(ingest::otlp_metrics))
        .route(grpc::TRACES, post(grpc::traces))
        .route(grpc::METRICS, post(grpc::metrics))
}

fn finish(router: Router<Arc<Served>>, served: &Arc<Served>) -> Router {
    router
        .fallback(status::unknown)
        .layer(middleware::from_fn_with_state(Arc::clone(served), guard::guard))
        .with_state(Arc::clone(served))
}

fn add(counter: &AtomicU64, n: usize) {
    counter.fetch_add(n as u64, Ordering::Relaxed);
}

/// Microseconds since 1970.
fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}
