//! Forwards received spans to another collector, by OTLP.
//!
//! Senders never wait for the other side: accepted batches go into a bounded queue, and
//! what does not fit is dropped and counted. Batches are retried as OTLP requires: on 429, 502, 503, 504
//! and without a response, with growing pauses or after the pause that the other side requests.

mod line;

use std::collections::VecDeque;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::http::{HeaderMap, Uri};
use faultscope_model::SecretRules;
use faultscope_model::trace::ReportedSpan;
use flate2::Compression;
use flate2::write::GzEncoder;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::interop::otlp;
use crate::secrets::Redactor;
use line::{Answer, Line};

/// Spans per request; larger batches are split.
const BATCH: usize = 1_000;

/// The first pause before a retry; it doubles each time.
const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// The longest pause, even if the other side requests a longer one.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The destination of forwarded spans, and the limits of the queue.
#[derive(Debug, Clone)]
pub struct ForwardOptions {
    /// `http://host:4318`, or `grpc://host:4317`.
    pub endpoint: Uri,
    /// Headers of each request, such as a token.
    pub headers: HeaderMap,
    /// The most spans that may wait.
    pub queued_spans: u64,
    /// The most bytes that may wait, encoded.
    pub queued_bytes: u64,
    /// How long one batch is retried.
    pub patience: Duration,
    /// What is redacted before it leaves this machine.
    pub secrets: SecretRules,
}

impl ForwardOptions {
    /// Forwards to an endpoint with default limits; the error completes the sentence "the endpoint ...".
    pub fn to(endpoint: &str) -> Result<Self, &'static str> {
        let endpoint: Uri = endpoint.parse().map_err(|_| "is not a URL")?;
        match endpoint.scheme_str() {
            Some("http" | "grpc") if endpoint.host().is_some() => {}
            Some("https") => return Err("uses TLS; only http:// and grpc:// are supported"),
            _ => return Err("does not begin with http:// or grpc://"),
        }
        Ok(Self {
            endpoint,
            headers: HeaderMap::new(),
            queued_spans: 100_000,
            queued_bytes: 64 << 20,
            patience: Duration::from_secs(300),
            secrets: SecretRules::default(),
        })
    }
}

/// Counts of forwarded spans.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ForwardCounts {
    /// Accepted by the other side.
    pub sent: u64,
    /// Dropped: no room, rejected, or retried for too long.
    pub dropped: u64,
    /// Requests that were repeated.
    pub retries: u64,
    /// Spans that still wait.
    pub waiting: u64,
}

/// The queue of spans to forward.
#[derive(Debug)]
pub struct Forward {
    options: ForwardOptions,
    redactor: Redactor,
    state: Mutex<State>,
    wake: Notify,
    sent: AtomicU64,
    dropped: AtomicU64,
    retries: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    batches: VecDeque<Batch>,
    /// All spans that are not settled, including those in flight.
    spans: u64,
    bytes: u64,
    closed: bool,
}

/// Spans, encoded and compressed.
#[derive(Debug)]
struct Batch {
    spans: u64,
    body: Vec<u8>,
}

impl Forward {
    /// An empty queue; [`Self::run`] empties it.
    pub fn new(options: ForwardOptions) -> Arc<Self> {
        Arc::new(Self {
            redactor: Redactor::new(&options.secrets),
            options,
            state: Mutex::default(),
            wake: Notify::new(),
            sent: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            retries: AtomicU64::new(0),
        })
    }

    /// Sends until the queue is closed and empty.
    pub async fn run(&self) {
        let mut line = Line::to(&self.options);
        while let Some(batch) = self.next().await {
            let taken = self.deliver(&mut line, &batch).await;
            let mut state = self.state();
            state.spans -= batch.spans;
            state.bytes -= batch.body.len() as u64;
            drop(state);
            self.sent.fetch_add(taken, Ordering::Relaxed);
            self.dropped.fetch_add(batch.spans - taken, Ordering::Relaxed);
        }
    }

    /// Takes nothing more; [`Self::run`] ends when all is sent.
    pub fn close(&self) {
        self.state().closed = true;
        self.wake.notify_one();
    }

    /// The counts so far.
    pub fn counts(&self) -> ForwardCounts {
        ForwardCounts {
            sent: self.sent.load(Ordering::Relaxed),
            dropped: self.dropped.load(Ordering::Relaxed),
            retries: self.retries.load(Ordering::Relaxed),
            waiting: self.state().spans,
        }
    }

    /// Queues spans; what does not fit is dropped.
    pub(super) fn offer(&self, mut spans: Vec<ReportedSpan>) {
        for chunk in spans.chunks_mut(BATCH) {
            let n = chunk.len() as u64;
            // Checked before encoding, which costs more.
            let room = |state: &State, bytes: u64| {
                !state.closed
                    && state.spans + n <= self.options.queued_spans
                    && state.bytes + bytes <= self.options.queued_bytes
            };
            if !room(&self.state(), 0) {
                self.dropped.fetch_add(n, Ordering::Relaxed);
                continue;
            }
            chunk.iter_mut().for_each(|span| self.redactor.reported(span));
            let body = compressed(&otlp::to_proto(chunk));
            let bytes = body.len() as u64;
            let mut state = self.state();
            if room(&state, bytes) {
                state.spans += n;
                state.bytes += bytes;
                state.batches.push_back(Batch { spans: n, body });
                drop(state);
                self.wake.notify_one();
            } else {
                self.dropped.fetch_add(n, Ordering::Relaxed);
            }
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn next(&self) -> Option<Batch> {
        loop {
            {
                let mut state = self.state();
                if let Some(batch) = state.batches.pop_front() {
                    return Some(batch);
                }
                if state.closed {
                    return None;
                }
            }
            // The notification stores a permit, so nothing is missed in between.
            self.wake.notified().await;
        }
    }

    /// Sends a batch, with retries if needed; returns the number of accepted spans.
    async fn deliver(&self, line: &mut Line, batch: &Batch) -> u64 {
        let start = Instant::now();
        let mut pause = FIRST_PAUSE;
        loop {
            let (after, why) = match line.send(&batch.body).await {
                Answer::Accepted { rejected, complaint } => {
                    if rejected > 0 {
                        tracing::warn!(rejected, complaint, "the other collector rejected some spans");
                    }
                    return batch.spans - rejected.min(batch.spans);
                }
                Answer::Refused(why) => {
                    tracing::warn!(why, spans = batch.spans, "the other collector rejected a batch");
                    return 0;
                }
                Answer::Later { after, why } => (after, why),
            };
            let wait = after.unwrap_or(pause).min(LONGEST_PAUSE);
            if start.elapsed() + wait > self.options.patience {
                tracing::warn!(why, spans = batch.spans, "spans could not be forwarded");
                return 0;
            }
            tracing::debug!(why, ?wait, "spans are forwarded later");
            self.retries.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(wait).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

fn compressed(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 4), Compression::fast());
    // Writing into memory cannot fail.
    let _ = encoder.write_all(bytes);
    encoder.finish().unwrap_or_default()
}
