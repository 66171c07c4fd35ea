//! Reads bodies into memory, each bounded and all together.

use std::borrow::Cow;
use std::sync::Arc;

use axum::body::Body;
use axum::http::header::CONTENT_ENCODING;
use axum::http::{HeaderMap, StatusCode};
use http_body_util::BodyExt;
use tokio::sync::OwnedSemaphorePermit;

use super::Served;
use super::answer::Failure;
use crate::interop::{DecodeError, Limits, inflate};

/// Larger bodies are decoded on a blocking thread, so that others are not kept waiting.
const LARGE: usize = 256 << 10;

/// A body and the room it takes.
#[derive(Debug)]
pub(super) struct Whole {
    bytes: Vec<u8>,
    encoding: Option<String>,
    room: Option<OwnedSemaphorePermit>,
}

impl Whole {
    /// Reads a body to its end.
    pub(super) async fn read(served: &Served, headers: &HeaderMap, body: Body) -> Result<Self, Failure> {
        let encoding = match headers.get(CONTENT_ENCODING).map(|value| value.to_str()) {
            None => None,
            Some(Ok(encoding)) => Some(encoding.to_owned()),
            Some(Err(_)) => return Err(Failure::bad("the content encoding is not text")),
        };
        let mut whole = Self { bytes: Vec::new(), encoding, room: None };
        let reading = whole.fill(served, body);
        tokio::time::timeout(served.options.body_time, reading)
            .await
            .map_err(|_| Failure::new(StatusCode::REQUEST_TIMEOUT, "the body took too long"))??;
        Ok(whole)
    }

    async fn fill(&mut self, served: &Served, mut body: Body) -> Result<(), Failure> {
        let limit = served.options.limits.body_bytes;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|_| Failure::bad("the body broke off"))?;
            let Some(data) = frame.data_ref() else { continue };
            if self.bytes.len() + data.len() > limit {
                return Err(DecodeError::TooLarge { what: "the body", limit }.into());
            }
            self.take_room(served, data.len())?;
            self.bytes.extend_from_slice(data);
        }
        Ok(())
    }

    fn take_room(&mut self, served: &Served, bytes: usize) -> Result<(), Failure> {
        let kib = u32::try_from(bytes / 1024 + 1).unwrap_or(u32::MAX);
        let more = Arc::clone(&served.room).try_acquire_many_owned(kib).map_err(|_| Failure::busy())?;
        match &mut self.room {
            Some(room) => room.merge(more),
            None => self.room = Some(more),
        }
        Ok(())
    }

    /// Undoes the encoding and reads what is in the body.
    pub(super) async fn decode<T: Send + 'static>(
        mut self,
        served: &Arc<Served>,
        read: impl FnOnce(&[u8], &Limits) -> Result<T, DecodeError> + Send + 'static,
    ) -> Result<T, Failure> {
        if self.encoding.is_some() {
            // Nobody knows yet how large it becomes; text shrinks about tenfold.
            let guess = self.bytes.len().saturating_mul(9).min(served.options.limits.body_bytes);
            self.take_room(served, guess)?;
        }
        if self.bytes.len() <= LARGE && self.encoding.is_none() {
            return Ok(read(&self.bytes, &served.options.limits)?);
        }
        let limits = served.options.limits.clone();
        let work = move || {
            let plain: Cow<'_, [u8]> = inflate(&self.bytes, self.encoding.as_deref(), &limits)?;
            read(&plain, &limits)
        };
        match tokio::task::spawn_blocking(work).await {
            Ok(decoded) => Ok(decoded?),
            Err(_) => Err(Failure::internal("the body could not be read")),
        }
    }

    /// Its length as it came.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }
}
