//! One call of gRPC on a connection of its own.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use faultscope_model::grpc::{GrpcCode, decode_message, frame_message};
use futures_util::future::poll_fn;
use http::{HeaderMap, Request, StatusCode};
use tokio::io::{AsyncRead, AsyncWrite};

/// The largest answer that is read.
const MAX_ANSWER: usize = 4 << 20;
/// The largest value of `grpc-timeout`, which has at most eight digits.
const MAX_TIMEOUT_MILLIS: u128 = 99_999_999;

/// A call and its messages.
#[derive(Debug)]
pub(super) struct GrpcRequest<'a> {
    /// Host and port.
    pub(super) authority: &'a str,
    /// `/package.Service/Method`.
    pub(super) path: &'a str,
    /// Names and values; the names are those of headers.
    pub(super) metadata: Vec<(String, String)>,
    /// How long the callee has; sent as `grpc-timeout`.
    pub(super) timeout: Duration,
    /// Encoded, without frames.
    pub(super) messages: Vec<Vec<u8>>,
}

/// The answer to a call.
#[derive(Debug)]
pub(super) struct GrpcAnswer {
    pub(super) code: GrpcCode,
    /// What the callee says about the code.
    pub(super) message: String,
    /// Headers and trailers by lower-case name.
    pub(super) metadata: BTreeMap<String, String>,
    /// The messages, with their frames.
    pub(super) body: Bytes,
}

/// Sends a call and waits for its whole answer. The error says why there is none.
pub(super) async fn send_call(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    request: GrpcRequest<'_>,
) -> Result<GrpcAnswer, String> {
    let (sender, connection) = h2::client::handshake(stream).await.map_err(|e| explain(&e))?;
    let mut exchange = std::pin::pin!(exchange(sender, request));
    // The connection lives as long as this call: both are polled here, and dropped together.
    tokio::select! {
        answer = &mut exchange => answer,
        ended = connection => match ended {
            Err(error) => Err(explain(&error)),
            Ok(()) => exchange.await,
        },
    }
}

async fn exchange(
    mut sender: h2::client::SendRequest<Bytes>,
    request: GrpcRequest<'_>,
) -> Result<GrpcAnswer, String> {
    let head = head_of(&request)?;
    poll_fn(|cx| sender.poll_ready(cx)).await.map_err(|e| explain(&e))?;
    let (answering, mut body) = sender.send_request(head, false).map_err(|e| explain(&e))?;
    let frames: Vec<u8> = request.messages.iter().flat_map(|message| frame_message(message)).collect();
    // A callee may answer before it has read everything, and then wants no more: the answer decides.
    let _ = body.send_data(Bytes::from(frames), true);
    let (head, mut answer) = answering.await.map_err(|e| explain(&e))?.into_parts();
    let mut bytes = BytesMut::new();
    while let Some(piece) = answer.data().await {
        let piece = piece.map_err(|e| explain(&e))?;
        let _ = answer.flow_control().release_capacity(piece.len());
        if bytes.len() + piece.len() > MAX_ANSWER {
            return Err("the answer is larger than 4 MiB".into());
        }
        bytes.extend_from_slice(&piece);
    }
    let trailers = answer.trailers().await.map_err(|e| explain(&e))?.unwrap_or_default();
    let metadata: BTreeMap<String, String> = head
        .headers
        .iter()
        .chain(&trailers)
        .map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned()))
        .collect();
    let code = code_in(&trailers).or_else(|| code_in(&head.headers));
    let code = code.or_else(|| code_of_status(head.status));
    let message = metadata.get("grpc-message").map(|text| decode_message(text)).unwrap_or_default();
    let code = code.ok_or("the answer ended without a gRPC status")?;
    Ok(GrpcAnswer { code, message, metadata, body: bytes.freeze() })
}

fn head_of(request: &GrpcRequest<'_>) -> Result<Request<()>, String> {
    let millis = request.timeout.as_millis().clamp(1, MAX_TIMEOUT_MILLIS);
    let mut head = Request::builder()
        .method("POST")
        .uri(format!("http://{}{}", request.authority, request.path))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("grpc-timeout", format!("{millis}m"))
        .header("user-agent", "faultscope");
    for (name, value) in &request.metadata {
        head = head.header(name, value);
    }
    head.body(()).map_err(|e| e.to_string())
}

fn code_in(headers: &HeaderMap) -> Option<GrpcCode> {
    headers.get("grpc-status")?.to_str().ok()?.trim().parse().ok().map(GrpcCode)
}

/// The code of an answer that is not gRPC, as gRPC maps HTTP to codes; none if the status is no error.
fn code_of_status(status: StatusCode) -> Option<GrpcCode> {
    match status.as_u16() {
        200..300 => None,
        400 => Some(GrpcCode(13)),
        401 => Some(GrpcCode(16)),
        403 => Some(GrpcCode(7)),
        404 => Some(GrpcCode(12)),
        429 | 502 | 503 | 504 => Some(GrpcCode(14)),
        _ => Some(GrpcCode(2)),
    }
}

fn explain(error: &h2::Error) -> String {
    match error.reason() {
        _ if error.is_io() => "the connection was closed before an answer".into(),
        Some(reason) if error.is_reset() => format!("the call was reset: {}", reason.description()),
        _ => error.to_string(),
    }
}
