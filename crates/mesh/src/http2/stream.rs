//! One request and its answer on HTTP/2.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use faultscope_model::{CallError, NotApplied};
use h2::client::{ResponseFuture, SendRequest};
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};

use super::again::{self, Copy, MAX_COPIED};
use super::mocked;
use super::pump::{Pump, PumpEnd, Rest, Shape};
use super::ups::Ups;
use crate::call::{Call, HOLD_WITHIN, Interim};
use crate::context;
use crate::dial;
use crate::rules::{Effects, Headers, Refusal};
use crate::tunnel::Pace;
use tokio::time::Instant;

/// How a stream ended, for its connection.
pub(super) enum End {
    Carried,
    /// The callee's connection is lost and there is no other: the caller's connection shares its fate.
    /// The handle comes along so that the stream is not reset before its connection is.
    Lost(SendResponse<Bytes>),
}

/// Bytes of an answer that are held back for a restart; of a longer one, its end.
const MAX_HELD: usize = 1024 * 1024;

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
            call.finish(Some(CallError::CallerGone));
            return End::Carried;
        }
    }
    if let Some((refusal, error)) = call.refusal() {
        refuse(&mut call, refusal, &request, &mut respond);
        call.finish(error);
        return End::Carried;
    }
    if let Some(mocks) = call.route.mocks.clone() {
        mocked::answer(call, request, respond, &mocks).await;
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
            call.recording.edit(|span| span.grpc_status = Some(code));
        }
        _ => {
            *answer.status_mut() =
                http::StatusCode::from_u16(status).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR)
        }
    }
    call.recording.edit(|span| span.status = Some(answer.status().as_u16()));
    call.first_byte();
    // A caller that has gone meanwhile needs no answer.
    let _ = respond.send_response(answer, true);
}

/// How a request is sent a second time.
struct Again<'a> {
    parts: &'a http::request::Parts,
    copy: &'a Mutex<Copy>,
    ups: &'a Ups,
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
        call.finish(Some(CallError::ResetByCallee));
        return lost(respond, &ups, Reason::REFUSED_STREAM);
    };
    let is_copied = call.effects.duplicate.is_some();
    let call = Mutex::new(call);
    let copy = Mutex::new(Copy { is_sent: is_empty, ..Copy::default() });
    let outcome = {
        let sending = send(&mut body, &mut to_up, &call, (&copy, is_copied), is_empty);
        let way = Again { parts: &parts, copy: &copy, ups: &ups };
        let receiving = receive(answering, &mut respond, &call, &way);
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
            call.finish(None);
            End::Carried
        }
        Err(Broken::Lost) => {
            call.finish(Some(CallError::AnswerLostByRule));
            respond.send_reset(Reason::INTERNAL_ERROR);
            End::Carried
        }
        Err(Broken::EndlessInterim) => {
            call.finish(Some(CallError::EndlessInterimAnswers));
            to_up.send_reset(Reason::ENHANCE_YOUR_CALM);
            respond.send_reset(Reason::INTERNAL_ERROR);
            End::Carried
        }
        Err(Broken::Caller(reason)) => {
            // Whoever listens to a stream ends it by going.
            let is_left = call.is_stream
                && reason.is_none_or(|reason| matches!(reason, Reason::CANCEL | Reason::NO_ERROR));
            call.finish(Some(CallError::CallerGone).filter(|_| !is_left));
            to_up.send_reset(reason.unwrap_or(Reason::CANCEL));
            End::Carried
        }
        Err(Broken::Callee(error)) => {
            let was_reset = error.is_reset() || error.is_io();
            call.finish(Some(match was_reset {
                true => CallError::ResetByCallee,
                false => CallError::ClosedByCallee,
            }));
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
    /// The callee sends interim answers and no other.
    EndlessInterim,
}

async fn send(
    body: &mut RecvStream,
    to_up: &mut SendStream<Bytes>,
    call: &Shared,
    (copy, is_copied): (&Mutex<Copy>, bool),
    is_empty: bool,
) -> Result<(), PumpEnd> {
    if is_empty {
        return Ok(());
    }
    let mut pump = Pump::new(body, to_up, Shape::default());
    let rest = pump
        .body(|piece| {
            lock(call).sent(piece);
            let mut copy = lock(copy);
            if is_copied && copy.size <= MAX_COPIED {
                copy.size += piece.len();
                copy.body.push(piece.clone());
            }
        })
        .await?;
    lock(copy).trailers.clone_from(&rest.trailers);
    pump.finish(rest.trailers).await?;
    lock(copy).is_sent = true;
    Ok(())
}

async fn receive(
    mut answering: ResponseFuture,
    respond: &mut SendResponse<Bytes>,
    call: &Shared,
    way: &Again<'_>,
) -> Result<(), Broken> {
    pass_interim(&mut answering, respond).await?;
    let answer = tokio::select! {
        answer = answering => answer.map_err(Broken::Callee)?,
        reason = poll_fn(|cx| respond.poll_reset(cx)) => return Err(Broken::Caller(reason.ok())),
    };
    let (mut parts, mut body) = answer.into_parts();
    let (effects, way_back) = {
        let mut call = lock(call);
        call.first_byte();
        call.answer_is(Some(parts.status.as_u16()), grpc_status(&parts.headers));
        call.response_headers(Headers::Http2(&parts.headers));
        call.is_stream = !body.is_end_stream() && !parts.headers.contains_key(CONTENT_LENGTH);
        (call.effects.clone(), call.way_back())
    };
    let mut effects = effects;
    if !lock(way.copy).is_sent {
        // Caller and callee talk to one another: an answer that is held back would stop both.
        for rule in effects.restart.take().into_iter().chain(effects.duplicate.take()) {
            lock(call).missed(rule, NotApplied::RequestStillSent);
        }
    }
    if !way_back.is_zero() {
        tokio::time::sleep(way_back).await;
    }
    if let Some(rule) = effects.lost_answer {
        // A stream that goes on is lost as it is.
        if let Ok(drained) = tokio::time::timeout(HOLD_WITHIN, drain(&mut body, call)).await {
            drained.map_err(Broken::Callee)?;
        }
        interfere(call, &effects, way).await;
        lock(call).applied(rule);
        return Err(Broken::Lost);
    }
    if effects.truncate.is_some() {
        parts.headers.remove(CONTENT_LENGTH);
    }
    let is_empty = body.is_end_stream();
    let head = Response::from_parts(parts, ());
    if is_empty {
        interfere(call, &effects, way).await;
        let sent = respond.send_response(head, true);
        return sent.map(drop).map_err(|error| Broken::Caller(error.reason()));
    }
    let mut to_down = respond.send_response(head, false).map_err(|error| Broken::Caller(error.reason()))?;
    let is_held = effects.restart.or(effects.duplicate).is_some();
    let shape = Shape {
        cut: effects.truncate.map(|(_, after)| after),
        pace: effects.throttle.map(|(_, rate)| Pace::new(rate)),
        hold: if is_held { MAX_HELD } else { 0 },
        hold_until: is_held.then(|| Instant::now() + HOLD_WITHIN),
    };
    let mut pump = Pump::new(&mut body, &mut to_down, shape);
    let carried = pump.body(|piece| lock(call).received(piece)).await;
    let Rest { trailers, was_cut } = carried.map_err(broken)?;
    if pump.was_released {
        for rule in effects.restart.take().into_iter().chain(effects.duplicate.take()) {
            lock(call).missed(rule, NotApplied::AnswerGoesOn);
        }
    }
    {
        let mut call = lock(call);
        call.answer_is(None, trailers.as_ref().and_then(grpc_status));
        if let Some(trailers) = &trailers {
            call.response_trailers(Headers::Http2(trailers));
        }
        let truncated = effects.truncate.filter(|_| was_cut).map(|(rule, _)| rule);
        for rule in truncated.into_iter().chain(effects.throttle.map(|(rule, _)| rule)) {
            call.applied(rule);
        }
    }
    interfere(call, &effects, way).await;
    pump.finish(trailers).await.map_err(broken)
}

/// Passes interim answers on until the answer itself is here.
async fn pass_interim(
    answering: &mut ResponseFuture,
    respond: &mut SendResponse<Bytes>,
) -> Result<(), Broken> {
    let mut interim = Interim::default();
    loop {
        let next = tokio::select! {
            next = poll_fn(|cx| answering.poll_informational(cx)) => next,
            reason = poll_fn(|cx| respond.poll_reset(cx)) => return Err(Broken::Caller(reason.ok())),
        };
        // An error shows again where the answer is waited for.
        let Some(Ok(head)) = next else { return Ok(()) };
        let texts = head.headers().iter().map(|(name, value)| name.as_str().len() + value.len());
        if !interim.count(texts.sum()) {
            return Err(Broken::EndlessInterim);
        }
        respond.send_informational(head).map_err(|error| Broken::Caller(error.reason()))?;
    }
}

/// What is done between the callee's answer and its caller.
async fn interfere(call: &Shared, effects: &Effects, way: &Again<'_>) {
    if let Some(rule) = effects.restart {
        // The guard must not live across the wait.
        let restart = lock(call).restarting(rule);
        restart.await;
    }
    let Some(rule) = effects.duplicate else { return };
    let copy = std::mem::take(&mut *lock(way.copy));
    if copy.size > MAX_COPIED {
        return lock(call).missed(rule, NotApplied::RequestTooLong);
    }
    let twin = lock(call).twin();
    again::send(rule, twin, way.parts, copy, way.ups).await;
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
    if let Some(trailers) = body.trailers().await? {
        let mut call = lock(call);
        call.recording.edit(|span| span.grpc_status = grpc_status(&trailers).or(span.grpc_status));
        call.response_trailers(Headers::Http2(&trailers));
    }
    Ok(())
}

/// The head of a request for its callee: as it came, but for trace context.
pub(super) fn head_for(parts: &http::request::Parts, call: &Call) -> Request<()> {
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

pub(super) fn grpc_status(headers: &HeaderMap) -> Option<u16> {
    headers.get("grpc-status").and_then(|value| value.to_str().ok()).and_then(|text| text.trim().parse().ok())
}

pub(super) fn lock<T>(call: &Mutex<T>) -> MutexGuard<'_, T> {
    call.lock().unwrap_or_else(PoisonError::into_inner)
}
