//! Decodes the response of a collector.

use prost::Message;

#[derive(Clone, PartialEq, Message)]
struct Answer {
    #[prost(message, optional, tag = "1")]
    partial_success: Option<PartialSuccess>,
}

#[derive(Clone, PartialEq, Message)]
struct PartialSuccess {
    #[prost(int64, tag = "1")]
    rejected: i64,
    #[prost(string, tag = "2")]
    error_message: String,
}

/// How many spans a collector rejected, and why; zero if its response does not say.
pub fn partial_success(body: &[u8]) -> (u64, String) {
    let answer = Answer::decode(body).unwrap_or_default();
    let PartialSuccess { rejected, error_message } = answer.partial_success.unwrap_or_default();
    (u64::try_from(rejected).unwrap_or_default(), error_message)
}
