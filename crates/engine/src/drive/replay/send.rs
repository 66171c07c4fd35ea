//! Sends one recorded request on a connection of its own.

use bytes::{Bytes, BytesMut};
use faultscope_mesh::MeshSlot;
use faultscope_model::recording::{Answer, RecordedRequest};
use faultscope_model::span::Wire;
use faultscope_model::{CallError, InstanceId};
use futures_util::future::poll_fn;
use http::{HeaderMap, Request};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use tokio::io::DuplexStream;

/// The largest body of an answer that is read; of a larger one the beginning.
const MAX_BODY: usize = 16 << 20;

/// Sends a request as a caller of its own; what goes wrong is part of the answer.
pub(super) async fn send(mesh: &MeshSlot, caller: InstanceId, request: &RecordedRequest) -> Answer {
    let failed = |error| Answer { error: Some(error), ..Answer::default() };
    let Ok(stream) = mesh.connect_as(caller, &request.callee, request.port) else {
        return failed(CallError::NoInstance);
    };
    let sent = match request.wire {
        Wire::Http2 => send_http2(stream, request).await,
        _ => send_http1(stream, request).await,
    };
    sent.unwrap_or_else(failed)
}

async fn send_http1(stream: DuplexStream, request: &RecordedRequest) -> Result<Answer, CallError> {
    let head = head_of(request, &request.path)?;
    let message = head.map(|()| Full::new(Bytes::from(request.body.clone())));
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|e| explain(&e))?;
    // The connection lives as long as this request: both are polled here, and dropped together.
    let mut exchange = std::pin::pin!(async {
        let response = sender.send_request(message).await.map_err(|e| explain(&e))?;
        let status = response.status().as_u16();
        let mut answer =
            Answer { status: Some(status), headers: to_pairs(response.headers()), ..Answer::default() };
        let mut body = response.into_body();
        while let Some(frame) = body.frame().await {
            match frame {
                Ok(frame) => match frame.into_data() {
                    Ok(data) => add_data(&mut answer, &data),
                    Err(frame) => {
                        answer.headers.extend(frame.trailers_ref().map(to_pairs).unwrap_or_default());
                    }
                },
                Err(error) => {
                    answer.error = Some(explain(&error));
                    break;
                }
            }
        }
        Ok(answer)
    });
    tokio::select! {
        answer = &mut exchange => answer,
        ended = connection => match ended {
            Err(error) => Err(explain(&error)),
            Ok(()) => exchange.await,
        },
    }
}

async fn send_http2(stream: DuplexStream, request: &RecordedRequest) -> Result<Answer, CallError> {
    let authority = request.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("host"));
    let authority = authority.map_or_else(|| request.callee.to_string(), |(_, value)| value.clone());
    let head = head_of(request, &format!("http://{authority}{}", request.path))?;
    let (mut sender, connection) = h2::client::handshake(stream).await.map_err(|e| explain_h2(&e))?;
    let mut exchange = std::pin::pin!(async {
        poll_fn(|cx| sender.poll_ready(cx)).await.map_err(|e| explain_h2(&e))?;
        let is_empty = request.body.is_empty();
        let (answering, mut body) = sender.send_request(head, is_empty).map_err(|e| explain_h2(&e))?;
        if !is_empty {
            // A callee may answer before it has read everything, and then wants no more: the answer decides.
            let _ = body.send_data(Bytes::from(request.body.clone()), true);
        }
        let (head, mut incoming) = answering.await.map_err(|e| explain_h2(&e))?.into_parts();
        let status = head.status.as_u16();
        let mut answer =
            Answer { status: Some(status), headers: to_pairs(&head.headers), ..Answer::default() };
        while let Some(piece) = incoming.data().await {
            match piece {
                Ok(piece) => {
                    let _ = incoming.flow_control().release_capacity(piece.len());
                    add_data(&mut answer, &BytesMut::from(&piece[..]));
                }
                Err(error) => {
                    answer.error = Some(explain_h2(&error));
                    return Ok(answer);
                }
            }
        }
        if let Ok(Some(trailers)) = incoming.trailers().await {
            answer.headers.extend(to_pairs(&trailers));
        }
        answer.grpc_status = answer.header("grpc-status").and_then(|code| code.trim().parse().ok());
        Ok(answer)
    });
    tokio::select! {
        answer = &mut exchange => answer,
        ended = connection => match ended {
            Err(error) => Err(explain_h2(&error)),
            Ok(()) => exchange.await,
        },
    }
}

fn head_of(request: &RecordedRequest, uri: &str) -> Result<Request<()>, CallError> {
    let mut head = Request::builder().method(request.method.as_str()).uri(uri);
    let mut has_host = false;
    for (name, value) in &request.headers {
        let is_host = name.eq_ignore_ascii_case("host");
        has_host |= is_host;
        if !(is_host && request.wire == Wire::Http2) {
            head = head.header(name, value);
        }
    }
    if !has_host && request.wire != Wire::Http2 {
        head = head.header("host", request.callee.as_str());
    }
    head.body(()).map_err(|_| CallError::MalformedRequest)
}

fn add_data(answer: &mut Answer, data: &[u8]) {
    answer.bytes += data.len() as u64;
    let room = MAX_BODY.saturating_sub(answer.body.len()).min(data.len());
    answer.body.extend_from_slice(&data[..room]);
}

fn to_pairs(headers: &HeaderMap) -> Vec<(String, String)> {
    let pair = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
        (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned())
    };
    headers.iter().map(pair).collect()
}

fn explain(error: &hyper::Error) -> CallError {
    if error.is_parse() { CallError::MalformedAnswer } else { CallError::ClosedByCallee }
}

fn explain_h2(error: &h2::Error) -> CallError {
    if error.is_reset() { CallError::ResetByCallee } else { CallError::ClosedByCallee }
}
