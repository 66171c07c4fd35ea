//! Answers on HTTP/2 in the place of a service that is not there.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use faultscope_model::CallError;
use faultscope_model::span::Wire;
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};

use crate::call::{Call, Part};
use crate::mocks::{MAX_REQUEST, MockAnswer, MockReply, MockRequest, Mocks};
use crate::rules::Headers;

/// How long a caller may be silent within a request before it is taken for one that waits for an answer, as callers do
/// that talk to their callee in turns.
const SILENCE: Duration = Duration::from_secs(2);

/// Reads a request as far as it comes and gives the reply of the mocks.
pub(super) async fn answer(
    mut call: Call,
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    mocks: &Arc<dyn Mocks>,
) {
    let (parts, mut incoming) = request.into_parts();
    let Ok(body) = read_body(&mut incoming, &mut call).await else {
        return call.finish(Some(CallError::CallerGone));
    };
    let content_type = parts.headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    let reply = mocks.reply(&MockRequest {
        trace: call.trace,
        callee: &call.route.callee,
        wire: Wire::Http2,
        is_grpc: content_type.is_some_and(|value| value.starts_with(b"application/grpc")),
        is_export: call.part == Part::Export,
        method: parts.method.as_str(),
        path: parts.uri.path_and_query().map_or("", |path| path.as_str()),
        body: &body,
    });
    let (answer, error) = match reply {
        MockReply::Answer(answer) => (answer, None),
        MockReply::Miss(answer) => (answer, Some(CallError::MockMissed)),
        MockReply::Reset => {
            respond.send_reset(Reason::INTERNAL_ERROR);
            return call.finish(Some(CallError::ResetByCallee));
        }
    };
    if !answer.after.is_zero() {
        tokio::time::sleep(answer.after).await;
    }
    let has_body = parts.method != http::Method::HEAD;
    let sent = send(&mut call, &answer, has_body, &mut respond);
    call.finish(if sent.is_ok() { error } else { Some(CallError::CallerGone) });
}

async fn read_body(incoming: &mut RecvStream, call: &mut Call) -> Result<BytesMut, h2::Error> {
    let mut body = BytesMut::new();
    loop {
        let Ok(piece) = tokio::time::timeout(SILENCE, incoming.data()).await else { return Ok(body) };
        let Some(piece) = piece else { return Ok(body) };
        let piece = piece?;
        call.sent(&piece);
        let room = MAX_REQUEST.saturating_sub(body.len()).min(piece.len());
        body.extend_from_slice(&piece[..room]);
        incoming.flow_control().release_capacity(piece.len())?;
    }
}

fn send(
    call: &mut Call,
    answer: &MockAnswer,
    has_body: bool,
    respond: &mut SendResponse<Bytes>,
) -> Result<(), h2::Error> {
    let mut head = Response::new(());
    *head.status_mut() = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    *head.headers_mut() = to_map(answer.own_headers());
    let trailers = to_map(answer.trailers.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    call.first_byte();
    call.answer_is(Some(answer.status), answer.grpc_status());
    call.response_headers(Headers::Http2(head.headers()));
    let body = if has_body { answer.body.clone() } else { Bytes::new() };
    let mut to_down = respond.send_response(head, body.is_empty() && trailers.is_empty())?;
    if !body.is_empty() {
        call.received(&body);
        // As large as a recorded body at most, so the stream may buffer it.
        to_down.send_data(body, trailers.is_empty())?;
    }
    if !trailers.is_empty() {
        call.response_trailers(Headers::Http2(&trailers));
        to_down.send_trailers(trailers)?;
    }
    Ok(())
}

/// Headers as HTTP/2 sends them; what is not valid there is left out.
fn to_map<'a>(headers: impl Iterator<Item = (&'a str, &'a str)>) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        let name = HeaderName::from_bytes(name.to_ascii_lowercase().as_bytes());
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(value.as_bytes())) {
            map.append(name, value);
        }
    }
    map
}
