//! Reads request bodies into memory, each bounded and all together.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::header::CONTENT_ENCODING;
use axum::http::{HeaderMap, StatusCode};
use http_body_util::BodyExt;
use tokio::sync::Semaphore;

use super::answer::Failure;
use super::grpc;
use crate::budget::{Budget, Hold};
use crate::interop::{Batch, DecodeError, Limits, grpc_message, inflate_within};

/// Larger bodies are decoded on a blocking thread, so that others are not kept waiting.
const LARGE: usize = 64 << 10;

/// How many large bodies are decoded at the same time. Decoding one item of 1 MiB may take 50 MiB for a moment, which
/// no budget knows in advance.
const DECODERS: usize = 2;

/// How long a large body waits for its turn.
const TURN_TIME: Duration = Duration::from_secs(5);

/// The memory of what is decoded from a body is held before it is known: this many times the body, and at least
/// [`SMALLEST_DECODED`]. Small spans of a resource with many attributes grow a hundred times.
const MAX_GROWTH: usize = 256;
const SMALLEST_DECODED: usize = 1 << 20;

/// Memory for a body is allocated in steps of this size at least.
const STEP: usize = 64 << 10;

/// Limits of all bodies: the size of each, the time it may take, and the memory of all together.
#[derive(Debug)]
pub(super) struct Intake {
    pub(super) limits: Limits,
    time: BodyTime,
    pub(super) budget: Budget,
    decoders: Arc<Semaphore>,
}

/// How long a body may take.
#[derive(Debug, Clone, Copy)]
pub struct BodyTime {
    /// In all.
    pub whole: Duration,
    /// Without any progress.
    pub pause: Duration,
}

impl Default for BodyTime {
    fn default() -> Self {
        Self { whole: Duration::from_secs(30), pause: Duration::from_secs(10) }
    }
}

impl Intake {
    pub(super) fn new(limits: Limits, time: BodyTime, budget: Budget) -> Self {
        Self { limits, time, budget, decoders: Arc::new(Semaphore::new(DECODERS)) }
    }
}

/// How a body is packed.
#[derive(Debug)]
enum Packing {
    /// As its content encoding says.
    Http(Option<String>),
    /// One message of gRPC, compressed as named.
    Grpc(String),
}

/// A body and the memory it holds.
#[derive(Debug)]
pub(super) struct Whole {
    bytes: Vec<u8>,
    packing: Packing,
    hold: Hold,
}

impl Whole {
    /// Reads a body to its end.
    pub(super) async fn read(intake: &Intake, headers: &HeaderMap, body: Body) -> Result<Self, Failure> {
        let encoding = match headers.get(CONTENT_ENCODING).map(|value| value.to_str()) {
            None => None,
            Some(Ok(encoding)) => Some(encoding.to_owned()),
            Some(Err(_)) => return Err(Failure::bad("the content encoding is not text")),
        };
        Self::fill(intake, Packing::Http(encoding), body).await
    }

    /// As [`Self::read`], for the one message of a gRPC call.
    pub(super) async fn read_grpc(intake: &Intake, headers: &HeaderMap, body: Body) -> Result<Self, Failure> {
        let encoding = headers.get(grpc::ENCODING).and_then(|value| value.to_str().ok());
        Self::fill(intake, Packing::Grpc(encoding.unwrap_or("identity").to_owned()), body).await
    }

    async fn fill(intake: &Intake, packing: Packing, body: Body) -> Result<Self, Failure> {
        let mut whole = Self { bytes: Vec::new(), packing, hold: intake.budget.hold_nothing() };
        let too_long = |_| Failure::new(StatusCode::REQUEST_TIMEOUT, "the body took too long");
        let reading = whole.append_all(intake, body);
        tokio::time::timeout(intake.time.whole, reading).await.map_err(too_long)??;
        Ok(whole)
    }

    async fn append_all(&mut self, intake: &Intake, mut body: Body) -> Result<(), Failure> {
        let limit = intake.limits.body_bytes;
        let stalled = |_| Failure::new(StatusCode::REQUEST_TIMEOUT, "the body stopped arriving");
        while let Some(frame) =
            tokio::time::timeout(intake.time.pause, body.frame()).await.map_err(stalled)?
        {
            let frame = frame.map_err(|_| Failure::bad("the body broke off"))?;
            let Some(data) = frame.data_ref() else { continue };
            if self.bytes.len() + data.len() > limit {
                return Err(DecodeError::TooLarge { what: "the body", limit }.into());
            }
            let free = self.bytes.capacity() - self.bytes.len();
            if free < data.len() {
                // Exactly what is held: a list that grows by itself doubles.
                let more = data.len().max(STEP).max(self.bytes.len() / 4);
                if !self.hold.grow(more) {
                    return Err(Failure::busy());
                }
                self.bytes.reserve_exact(more);
            }
            self.bytes.extend_from_slice(data);
        }
        Ok(())
    }

    /// Decompresses and decodes the body. What comes out holds its memory until it is written.
    pub(super) async fn decode<T: Send + 'static>(
        self,
        intake: &Intake,
        read: impl FnOnce(&[u8], &Limits) -> Result<Batch<T>, DecodeError> + Send + 'static,
    ) -> Result<(Batch<T>, Hold), Failure> {
        let limits = intake.limits.clone();
        if self.bytes.len() <= LARGE && !self.may_grow() {
            return Ok(self.decode_now(limits, read)?);
        }
        let turn = Arc::clone(&intake.decoders).acquire_owned();
        let Ok(Ok(turn)) = tokio::time::timeout(TURN_TIME, turn).await else { return Err(Failure::busy()) };
        let work = move || {
            let decoded = self.decode_now(limits, read);
            drop(turn);
            decoded
        };
        match tokio::task::spawn_blocking(work).await {
            Ok(decoded) => Ok(decoded?),
            Err(_) => Err(Failure::internal("the body could not be read")),
        }
    }

    fn decode_now<T>(
        self,
        mut limits: Limits,
        read: impl FnOnce(&[u8], &Limits) -> Result<Batch<T>, DecodeError>,
    ) -> Result<(Batch<T>, Hold), DecodeError> {
        let Self { bytes, packing, mut hold } = self;
        let mut grow = |bytes: usize| hold.grow(bytes);
        let plain = match &packing {
            Packing::Http(encoding) => inflate_within(&bytes, encoding.as_deref(), &limits, &mut grow)?,
            Packing::Grpc(encoding) => grpc_message(&bytes, encoding, &limits, &mut grow)?,
        };
        let expected = plain.len().saturating_mul(MAX_GROWTH).saturating_add(SMALLEST_DECODED);
        limits.decoded_bytes = limits.decoded_bytes.min(expected);
        if !hold.grow(limits.decoded_bytes) {
            return Err(DecodeError::NoRoom);
        }
        let batch = read(&plain, &limits)?;
        drop(plain);
        drop(bytes);
        hold.shrink_to(batch.bytes);
        Ok((batch, hold))
    }

    /// Whether it is compressed.
    fn may_grow(&self) -> bool {
        match &self.packing {
            Packing::Http(encoding) => encoding.is_some(),
            Packing::Grpc(encoding) => encoding != "identity",
        }
    }

    /// The length as received.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }
}
