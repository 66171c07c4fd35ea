//! Responses: JSON, text, and errors.

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::error::{StoreError, StoreErrorKind};
use crate::interop::DecodeError;
use crate::interop::query::QueryError;
use crate::spans::Refused;

/// After how many seconds a client should retry.
const AGAIN: HeaderValue = HeaderValue::from_static("1");

/// Why a request failed.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) status: StatusCode,
    pub(super) message: String,
}

impl Failure {
    pub(super) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into() }
    }

    pub(super) fn bad(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    pub(super) fn busy() -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, "too many spans wait to be written; try again")
    }

    pub(super) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, message)
    }

    pub(super) fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, message)
    }

    /// Whether the same request may succeed later.
    pub(super) fn may_come_again(&self) -> bool {
        matches!(self.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE)
    }

    /// The response with a body of some type.
    pub(super) fn with(&self, content_type: &'static str, body: impl Into<Body>) -> Response {
        let mut response = typed(content_type, body);
        *response.status_mut() = self.status;
        if self.may_come_again() {
            response.headers_mut().insert(RETRY_AFTER, AGAIN);
        }
        response
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        self.with(TEXT, format!("{}\n", self.message))
    }
}

impl From<DecodeError> for Failure {
    fn from(error: DecodeError) -> Self {
        let status = StatusCode::from_u16(error.status()).unwrap_or(StatusCode::BAD_REQUEST);
        Self::new(status, error.to_string())
    }
}

impl From<QueryError> for Failure {
    fn from(error: QueryError) -> Self {
        Self::bad(error.to_string())
    }
}

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Busy => Self::busy(),
            Refused::Closed => Self::unavailable("the store is closed"),
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        if error.kind == StoreErrorKind::NoRoom {
            return Self::unavailable("other queries have the memory for it; try again");
        }
        tracing::warn!(%error, cause = %error.source, "the store failed");
        // Paths are not shown to other machines.
        match error.kind {
            StoreErrorKind::DiskFull => Self::unavailable("no space is left to store spans"),
            StoreErrorKind::Damaged => Self::internal("the store is damaged; see the log of the server"),
            _ => Self::unavailable("the store cannot be used now; see the log of the server"),
        }
    }
}

pub(super) const JSON: &str = "application/json";
pub(super) const TEXT: &str = "text/plain; charset=utf-8";

/// A body of some type.
pub(super) fn typed(content_type: &'static str, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// A response with JSON text.
pub(super) fn json(body: Vec<u8>) -> Response {
    typed(JSON, body)
}

/// A response with a value as JSON.
pub(super) fn to_json(value: &impl Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(body) => json(body),
        Err(_) => Failure::internal("an answer has no JSON form").into_response(),
    }
}
