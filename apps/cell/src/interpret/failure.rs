//! Responses and failures of operations.

use http::{HeaderMap, StatusCode};
use serde_json::{Value, json};

use crate::expression::EvaluationError;
use crate::pool::Refusal;
use crate::store::StoreError;

/// The response of an operation.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
}

/// Why an operation failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) kind: &'static str,
    pub(crate) status: u16,
    pub(crate) message: String,
}

impl Failure {
    /// A failure of a kind that `SPEC.md` lists.
    pub(crate) fn new(kind: &'static str, status: u16, message: String) -> Self {
        Self { kind, status, message }
    }

    /// A pool or lock that was not available.
    pub(super) fn refused(refusal: Refusal, what: &str) -> Self {
        match refusal {
            Refusal::Rejected => Self::new("rejected", 503, format!("{what}: the queue is full")),
            Refusal::TimedOut => Self::new("wait", 503, format!("{what}: waited too long")),
        }
    }

    /// As `try` shows it to its `catch` steps.
    pub(super) fn to_value(&self) -> Value {
        json!({ "kind": self.kind, "status": self.status, "message": self.message })
    }

    /// As a caller sees it.
    pub(crate) fn to_answer(&self, service: &str, operation: &str) -> Answer {
        Answer {
            status: StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
            headers: HeaderMap::new(),
            body: json!({
                "error": self.message, "kind": self.kind, "service": service, "operation": operation,
            }),
        }
    }
}

impl From<EvaluationError> for Failure {
    fn from(error: EvaluationError) -> Self {
        Self::new("expression", 500, error.0)
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::new("store", 500, error.0)
    }
}
