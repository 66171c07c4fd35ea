//! Reads request bodies into memory, each bounded and all together.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::header::CONTENT_ENCODING;
use axum::http::{HeaderMap, StatusCode};
use http_body_util::BodyExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::answer::Failure;
use super::grpc;
use crate::interop::{DecodeError, Limits, Room, inflate_within};

/// Larger bodies are decoded on a blocking thread, so that others are not kept waiting.
const LARGE: usize = 256 << 10;

/// Limits of all bodies: the size of each, the time it may take, and the memory of all together.
#[derive(Debug)]
pub(super) struct Intake {
    pub(super) limits: Limits,
    time: Duration,
    /// Free memory in KiB.
    room: Arc<Semaphore>,
}

impl Intake {
    pub(super) fn new(limits: Limits, time: Duration, bytes: usize) -> Self {
        let room = Arc::new(Semaphore::new((bytes / 1024).clamp(1, Semaphore::MAX_PERMITS)));
        Self { limits, time, room }
    }
}

/// A body and the memory it holds.
#[derive(Debug)]
pub(super) struct Whole {
    bytes: Vec<u8>,
    encoding: Option<String>,
    /// Whether it is compressed, so that it may grow.
    is_packed: bool,
    room: Option<OwnedSemaphorePermit>,
}

impl Whole {
    /// Reads a body to its end.
    pub(super) async fn read(intake: &Intake, headers: &HeaderMap, body: Body) -> Result<Self, Failure> {
        let encoding = match headers.get(CONTENT_ENCODING).map(|value| value.to_str()) {
            None => None,
            Some(Ok(encoding)) => Some(encoding.to_owned()),
            Some(Err(_)) => return Err(Failure::bad("the content encoding is not text")),
        };
        let is_packed = encoding.is_some() || headers.contains_key(grpc::ENCODING);
        let mut whole = Self { bytes: Vec::new(), encoding, is_packed, room: None };
        let reading = whole.fill(intake, body);
        tokio::time::timeout(intake.time, reading)
            .await
            .map_err(|_| Failure::new(StatusCode::REQUEST_TIMEOUT, "the body took too long"))??;
        Ok(whole)
    }

    async fn fill(&mut self, intake: &Intake, mut body: Body) -> Result<(), Failure> {
        let limit = intake.limits.body_bytes;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|_| Failure::bad("the body broke off"))?;
            let Some(data) = frame.data_ref() else { continue };
            if self.bytes.len() + data.len() > limit {
                return Err(DecodeError::TooLarge { what: "the body", limit }.into());
            }
            if !hold(&mut self.room, &intake.room, data.len()) {
                return Err(Failure::busy());
            }
            self.bytes.extend_from_slice(data);
        }
        Ok(())
    }

    /// Decompresses and decodes the body.
    pub(super) async fn decode<T: Send + 'static>(
        self,
        intake: &Intake,
        read: impl FnOnce(&[u8], &Limits, Room<'_>) -> Result<T, DecodeError> + Send + 'static,
    ) -> Result<T, Failure> {
        let is_small = self.bytes.len() <= LARGE && !self.is_packed;
        let (limits, room) = (intake.limits.clone(), Arc::clone(&intake.room));
        let work = move || {
            let Self { bytes, encoding, room: mut held, .. } = self;
            // The final size is unknown, so memory is reserved as it grows and released with the rest.
            let mut more = |bytes: usize| hold(&mut held, &room, bytes);
            let plain = inflate_within(&bytes, encoding.as_deref(), &limits, &mut more)?;
            read(&plain, &limits, &mut more)
        };
        if is_small {
            return Ok(work()?);
        }
        match tokio::task::spawn_blocking(work).await {
            Ok(decoded) => Ok(decoded?),
            Err(_) => Err(Failure::internal("the body could not be read")),
        }
    }

    /// The length as received.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }
}

/// Reserves memory for more bytes; returns false if there is none.
fn hold(held: &mut Option<OwnedSemaphorePermit>, room: &Arc<Semaphore>, bytes: usize) -> bool {
    let kib = u32::try_from(bytes / 1024 + 1).unwrap_or(u32::MAX);
    let Ok(more) = Arc::clone(room).try_acquire_many_owned(kib) else { return false };
    match held {
        Some(held) => held.merge(more),
        None => *held = Some(more),
    }
    true
}
