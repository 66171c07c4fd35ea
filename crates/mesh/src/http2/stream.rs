//! One request and its answer on HTTP/2.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};

use super::pump::{Pump, PumpEnd, Rest, Shape};
use super::ups::Ups;
use crate::call::Call;
use crate::context;
use crate::dial;
use crate::rules::{Headers, Refusal};
use crate::tunnel::Pace;

/// How a stream ended, for its connection.
pub(super) enum End {
    Carried,
    /// The callee's connection is lost and there is no other: the caller's connection shares its fate.
    /// The handle comes along so that the stream is not reset before its connection is.
    Lost(SendResponse<Bytes>),
}

/// Bytes of an answer that are held back for a restart; of a longer one, its end.
const MOST_HELD: usize = 1024 * 1024;
/// A request body that is kept to be sent twice.
const MOST_COPIED: usize = 1024 * 1024;

type Shared = Mutex<Call>;

/// Carries one stream.
pub(super) async fn carry(
    mut call: Call,
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    ups: Arc<Ups>,
) -> End {
    if call.must_wait() {
        let gone = tokio::select! {
            () = call.wait() => false,
            _ = poll_fn(|cx| respond.poll_reset(cx)) => true,
        };
        if gone {
            call.finish(Some("caller gone"));
            return End::Carried;
        }
    }
    if let Some((refusal, error)) = call.refusal() {
        refuse(&mut call, refusal, &request, &mut respond);
        call.finish(error);
        return End::Carried;
    }
    let sender = match ups.sender(&mut call).await {
        Ok(sender) => sender,
        Err(error) => {
            call.finish(Some(dial::why_not_dialled(&error)));
            return lost(respond, &ups, Reason::REFUSED_STREAM);
        }
    };
    call.begin_handling().await;
    exchange(call, request, respond, sender, ups).await
}

/// What a caller sees of a callee that cannot be reached.
fn lost(mut respond: SendResponse<Bytes>, ups: &Ups, reason: Reason) -> End {
    if !ups.is_any_alive() {
        return End::Lost(respond);
    }
    respond.send_reset(reason);
    End::Carried
}

fn refuse(
    call: &mut Call,
    refusal: Refusal,
    request: &Request<RecvStream>,
    respond: &mut SendResponse<Bytes>,
) {
    let Refusal::Answer { status, grpc_status } = refusal else {
        return respond.send_reset(Reason::INTERNAL_ERROR);
    };
    let content_type =
        request.headers().get(CONTENT_TYPE).filter(|value| value.as_bytes().starts_with(b"application/grpc"));
    let mut answer = Response::new(());
    match (content_type, grpc_status) {
        (Some(content_type), Some(code)) => {
            answer.headers_mut().insert(CONTENT_TYPE, content_type.clone());
            answer.headers_mut().insert("grpc-status", HeaderValue::from(code));
            call.span.grpc_status = Some(code);
        }
        _ => {
            *answer.status_mut() =
                http::StatusCode::from_u16(status).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR)
        }
    }
    call.span.status = Some(answer.status().as_u16());
    call.first_byte();
    // A caller that has gone meanwhile needs no answer.
    let _ = respond.send_response(answer, true);
}

/// What is needed to send a request a second time.
#[derive(Default)]
struct Copy {
    body: Vec<Bytes>,
    size: usize,
    trailers: Option<HeaderMap>,
    is_whole: bool,
}

async fn exchange(
    mut call: Call,
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    mut sender: SendRequest<Bytes>,
    ups: Arc<Ups>,
) -> End {
    let (parts, mut body) = request.into_parts();
    let is_empty = body.is_end_stream();
    let Ok((answering, mut to_up)) = sender.send_request(head_for(&parts, &call), is_empty) else {
        call.finish(Some("reset by callee"));
        return lost(respond, &ups, Reason::REFUSED_STREAM);
    };
    let duplicate = call.effects.duplicate;
    let call = Mutex::new(call);
    let mut copy = Copy { is_whole: is_empty, ..Copy::default() };
    let outcome = {
        let sending = send(&mut body, &mut to_up, &call, duplicate.is_some().then_some(&mut copy), is_empty);
        let receiving = receive(answering, &mut respond, &call);
        let mut receiving = std::pin::pin!(receiving);
        tokio::select! {
            biased;
            sent = sending => match sent {
                // The request is out, or its callee wants no more of it: the answer decides.
                Ok(()) | Err(PumpEnd::To(_)) => receiving.await,
                Err(PumpEnd::From(error)) => Err(Broken::Caller(error.reason())),
            },
            received = &mut receiving => received,
        }
    };
    let mut call = call.into_inner().unwrap_or_else(PoisonError::into_inner);
    match outcome {
        Ok(()) => {
            let twin = duplicate.filter(|_| copy.is_whole).map(|rule| (rule, call.twin()));
            call.finish(None);
            if let Some((rule, twin)) = twin {
                send_again(rule, twin, &parts, copy, &ups).await;
            }
            End::Carried
        }
        Err(Broken::Lost) => {
            call.finish(Some("answer lost by a rule"));
            respond.send_reset(Reason::INTERNAL_ERROR);
            End::Carried
        }
        Err(Broken::Caller(reason)) => {
            call.finish(Some("caller gone"));
            to_up.send_reset(reason.unwrap_or(Reason::CANCEL));
            End::Carried
        }
        Err(Broken::Callee(error)) => {
            let was_reset = error.is_reset() || error.is_io();
            call.finish(Some(if was_reset { "reset by callee" } else { "closed by callee" }));
            match error.reason().filter(|_| error.is_reset()) {
                Some(reason) => {
                    respond.send_reset(reason);
                    End::Carried
                }
                None => lost(respond, &ups, Reason::INTERNAL_ERROR),
            }
        }
    }
}

/// Why an exchange did not come to its end.
enum Broken {
    Caller(Option<Reason>),
    Callee(h2::Error),
    /// A rule lost the answer.
    Lost,
}

async fn send(
    body: &mut RecvStream,
    to_up: &mut SendStream<Bytes>,
    call: &Shared,
    mut copy: Option<&mut Copy>,
    is_empty: bool,
) -> Result<(), PumpEnd> {
    if is_empty {
        return Ok(());
    }
    let mut pump = Pump::new(body, to_up, Shape::default());
    let rest = pump
        .body(|piece| {
            lock(call).sent(piece);
            if let Some(copy) = copy.as_mut().filter(|copy| copy.size <= MOST_COPIED) {
                copy.size += piece.len();
                copy.body.push(piece.clone());
            }
        })
        .await?;
    if let Some(copy) = copy {
        copy.is_whole = copy.size <= MOST_COPIED;
        copy.trailers.clone_from(&rest.trailers);
    }
    pump.finish(rest.trailers).await
}

async fn receive(
    answering: ResponseFuture,
    respond: &mut SendResponse<Bytes>,
    call: &Shared,
) -> Result<(), Broken> {
    let answer = tokio::select! {
        answer = answering => answer.map_err(Broken::Callee)?,
        reason = poll_fn(|cx| respond.poll_reset(cx)) => return Err(Broken::Caller(reason.ok())),
    };
    let (mut parts, mut body) = answer.into_parts();
    let (effects, way_back) = {
        let mut call = lock(call);
        call.first_byte();
        call.span.status = Some(parts.status.as_u16());
        call.span.grpc_status = grpc_status(&parts.headers);
        call.response_headers(Headers::Http2(&parts.headers));
        (call.effects.clone(), call.way_back())
    };
    if !way_back.is_zero() {
        tokio::time::sleep(way_back).await;
    }
    if let Some(rule) = effects.lost_answer {
        drain(&mut body, call).await.map_err(Broken::Callee)?;
        lock(call).applied(rule);
        return Err(Broken::Lost);
    }
    if effects.truncate.is_some() {
        parts.headers.remove(CONTENT_LENGTH);
    }
    let is_empty = body.is_end_stream();
    let head = Response::from_parts(parts, ());
    if is_empty {
        if let Some(rule) = effects.restart {
            restart(call, rule).await;
        }
        let sent = respond.send_response(head, true);
        return sent.map(drop).map_err(|error| Broken::Caller(error.reason()));
    }
    let mut to_down = respond.send_response(head, false).map_err(|error| Broken::Caller(error.reason()))?;
    let shape = Shape {
        cut: effects.truncate.map(|(_, after)| after),
        pace: effects.throttle.map(|(_, rate)| Pace::new(rate)),
        hold: if effects.restart.is_some() { MOST_HELD } else { 0 },
    };
    let mut pump = Pump::new(&mut body, &mut to_down, shape);
    let carried = pump.body(|piece| lock(call).received(piece)).await;
    let Rest { trailers, was_cut } = carried.map_err(broken)?;
    {
        let mut call = lock(call);
        let code = trailers.as_ref().and_then(grpc_status);
        call.span.grpc_status = code.or(call.span.grpc_status);
        let truncated = effects.truncate.filter(|_| was_cut).map(|(rule, _)| rule);
        for rule in truncated.into_iter().chain(effects.throttle.map(|(rule, _)| rule)) {
            call.applied(rule);
        }
    }
    if let Some(rule) = effects.restart {
        restart(call, rule).await;
    }
    pump.finish(trailers).await.map_err(broken)
}

async fn restart(call: &Shared, rule: usize) {
    // The guard must not live across the wait.
    let restart = lock(call).restarting(rule);
    restart.await;
}

fn broken(end: PumpEnd) -> Broken {
    match end {
        PumpEnd::From(error) => Broken::Callee(error),
        PumpEnd::To(reason) => Broken::Caller(reason),
    }
}

async fn drain(body: &mut RecvStream, call: &Shared) -> Result<(), h2::Error> {
    while let Some(piece) = body.data().await {
        let piece = piece?;
        lock(call).received(&piece);
        let _ = body.flow_control().release_capacity(piece.len());
    }
    if let Some(code) = body.trailers().await?.as_ref().and_then(grpc_status) {
        lock(call).span.grpc_status = Some(code);
    }
    Ok(())
}

/// Sends a request a second time and drops the answer.
async fn send_again(rule: usize, mut twin: Call, parts: &http::request::Parts, copy: Copy, ups: &Ups) {
    let error = match ups.sender(&mut twin).await {
        Err(error) => Some(dial::why_not_dialled(&error)),
        Ok(mut sender) => {
            twin.begin_handling().await;
            twin.applied(rule);
            let sent = sender.send_request(head_for(parts, &twin), copy.size == 0 && copy.trailers.is_none());
            let twin = Mutex::new(&mut twin);
            match sent {
                Ok((answering, to_up)) => match again(answering, to_up, copy, &twin).await {
                    Ok(()) => None,
                    Err(_) => Some("reset by callee"),
                },
                Err(_) => Some("reset by callee"),
            }
        }
    };
    twin.finish(error);
}

async fn again(
    answering: ResponseFuture,
    mut to_up: SendStream<Bytes>,
    copy: Copy,
    twin: &Mutex<&mut Call>,
) -> Result<(), h2::Error> {
    let n_pieces = copy.body.len();
    for (number, piece) in copy.body.into_iter().enumerate() {
        // At most what a rule may copy, so the stream may buffer it.
        to_up.send_data(piece, number + 1 == n_pieces && copy.trailers.is_none())?;
    }
    if let Some(trailers) = copy.trailers {
        to_up.send_trailers(trailers)?;
    }
    let mut answer = answering.await?;
    {
        let mut twin = lock(twin);
        twin.first_byte();
        twin.span.status = Some(answer.status().as_u16());
        twin.span.grpc_status = grpc_status(answer.headers());
    }
    while let Some(piece) = answer.body_mut().data().await {
        let piece = piece?;
        lock(twin).received(&piece);
        let _ = answer.body_mut().flow_control().release_capacity(piece.len());
    }
    if let Some(code) = answer.body_mut().trailers().await?.as_ref().and_then(grpc_status) {
        lock(twin).span.grpc_status = Some(code);
    }
    Ok(())
}

/// The head of a request for its callee: as it came, but for trace context.
fn head_for(parts: &http::request::Parts, call: &Call) -> Request<()> {
    let mut request = Request::new(());
    *request.method_mut() = parts.method.clone();
    *request.uri_mut() = parts.uri.clone();
    *request.version_mut() = http::Version::HTTP_2;
    if let Some(protocol) = parts.extensions.get::<h2::ext::Protocol>() {
        request.extensions_mut().insert(protocol.clone());
    }
    let headers = request.headers_mut();
    for (name, value) in &parts.headers {
        if !context::is_context_header(name.as_str()) {
            headers.append(name.clone(), value.clone());
        }
    }
    call.outgoing().write(|name, value| {
        if let Ok(value) = HeaderValue::from_bytes(value) {
            headers.insert(HeaderName::from_static(name), value);
        }
    });
    request
}

fn grpc_status(headers: &HeaderMap) -> Option<u16> {
    headers.get("grpc-status").and_then(|value| value.to_str().ok()).and_then(|text| text.trim().parse().ok())
}

fn lock<T>(call: &Mutex<T>) -> MutexGuard<'_, T> {
    call.lock().unwrap_or_else(PoisonError::into_inner)
}
