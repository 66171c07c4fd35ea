//! Asks an instance for its health by gRPC's own protocol, `grpc.health.v1.Health/Check`.
//!
//! Its two messages have one field each, so they are written and read here without descriptors.

use std::error::Error;

use bytes::{Buf, Bytes, BytesMut};
use faultscope_model::grpc::GrpcCode;
use http::{HeaderMap, Request};
use tokio::net::TcpStream;

/// Longer service names do not fit into the one byte of length that is written.
pub(crate) const MAX_NAME: usize = 127;
/// The answer has at most a few bytes; more is not an answer to this question.
const MAX_ANSWER: usize = 1024;
/// `SERVING` of `HealthCheckResponse.ServingStatus`.
const SERVING: u64 = 1;

type Broken = Box<dyn Error + Send + Sync>;

/// The answer of a server that speaks gRPC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Health {
    Serving,
    /// It is up, but says that it does not serve.
    NotServing,
    /// The call failed with this code.
    Failed(GrpcCode),
}

/// Asks for the health of a service; an empty name means the whole server.
pub(crate) async fn ask_for_health(stream: TcpStream, service: &str) -> Result<Health, Broken> {
    let (sender, connection) = h2::client::handshake(stream).await?;
    // Polled beside the call and dropped with it: the connection is for this one question.
    tokio::select! {
        answer = check(sender, service) => answer,
        ended = connection => Err(ended.err().map_or_else(|| "the connection ended".into(), Into::into)),
    }
}

async fn check(mut sender: h2::client::SendRequest<Bytes>, service: &str) -> Result<Health, Broken> {
    futures_util::future::poll_fn(|cx| sender.poll_ready(cx)).await?;
    let request = Request::builder()
        .method("POST")
        .uri("http://localhost/grpc.health.v1.Health/Check")
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("user-agent", "faultscope")
        .body(())?;
    let (answering, mut body) = sender.send_request(request, false)?;
    body.send_data(encode_request(service), true)?;
    let (head, mut answer) = answering.await?.into_parts();
    if !head.status.is_success() {
        return Err(format!("HTTP status {}", head.status.as_u16()).into());
    }
    let mut bytes = BytesMut::new();
    while let Some(piece) = answer.data().await {
        let piece = piece?;
        answer.flow_control().release_capacity(piece.len())?;
        bytes.extend_from_slice(&piece);
        if bytes.len() > MAX_ANSWER {
            return Err("the answer is too long".into());
        }
    }
    let trailers = answer.trailers().await?;
    let code = trailers.as_ref().and_then(read_code).or_else(|| read_code(&head.headers));
    match code.ok_or("there is no grpc-status")? {
        GrpcCode(0) if read_status(bytes.freeze()) == Some(SERVING) => Ok(Health::Serving),
        GrpcCode(0) => Ok(Health::NotServing),
        code => Ok(Health::Failed(code)),
    }
}

fn read_code(headers: &HeaderMap) -> Option<GrpcCode> {
    headers.get("grpc-status")?.to_str().ok()?.parse().ok().map(GrpcCode)
}

/// `HealthCheckRequest { string service = 1; }` in a frame: no compression, length, message.
fn encode_request(service: &str) -> Bytes {
    let name = &service.as_bytes()[..service.len().min(MAX_NAME)];
    let mut message = Vec::new();
    if !name.is_empty() {
        message.extend([0x0a, name.len() as u8]);
        message.extend(name);
    }
    let mut frame = vec![0, 0, 0, 0, message.len() as u8];
    frame.extend(message);
    Bytes::from(frame)
}

/// The field `status` of a framed `HealthCheckResponse { ServingStatus status = 1; }`; 0, `UNKNOWN`, is not written.
fn read_status(mut frame: Bytes) -> Option<u64> {
    if frame.len() < 5 || frame[0] != 0 {
        return None;
    }
    frame.advance(5);
    match frame.as_ref() {
        [] => Some(0),
        [0x08, status, ..] => Some(u64::from(*status)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_framed() {
        assert_eq!(encode_request("").as_ref(), [0, 0, 0, 0, 0]);
        assert_eq!(encode_request("a.B").as_ref(), [0, 0, 0, 0, 5, 0x0a, 3, b'a', b'.', b'B']);
        assert_eq!(encode_request(&"x".repeat(1000)).len(), 5 + 2 + MAX_NAME);
        let status = |bytes: &'static [u8]| read_status(Bytes::from_static(bytes));
        assert_eq!(status(&[0, 0, 0, 0, 2, 0x08, 1]), Some(SERVING));
        assert_eq!(status(&[0, 0, 0, 0, 0]), Some(0));
        for bad in [&[][..], &[0, 0, 0, 0], &[1, 0, 0, 0, 2, 0x08, 1], &[0, 0, 0, 0, 1, 0x10]] {
            assert_eq!(status(bad), None);
        }
    }
}
