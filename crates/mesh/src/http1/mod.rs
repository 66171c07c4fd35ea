//! HTTP/1: one task for each caller's connection, which also drives its connections to callees.
//!
//! Connections to callees belong to the caller's connection and end with it. Nothing is sent twice unless
//! a rule says so, and nothing is answered here unless a rule says so.

mod again;
mod broken;
mod exchange;
mod framing;
mod head;
mod mocked;
mod request;

use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use faultscope_model::span::Wire;
use faultscope_model::{CallError, InstanceId, NotApplied};
use tokio::time::Instant;

use self::broken::Broken;
use self::exchange::{Exchange, Goal, Shape};
use self::request::{Reading, Request};
use crate::admit::{Head, admit};
use crate::call::{Call, HOLD_WITHIN};
use crate::dial::{self, Dialling};
use crate::rules::Refusal;
use crate::slot::Origin;
use crate::stream::Stream;
use crate::trial::Lease;
use crate::tunnel::{self, Pace, Side};

/// A caller's connection.
struct Connection {
    origin: Origin,
    dialling: Dialling,
    down: Side,
    ups: Vec<Up>,
    to_up: BytesMut,
    to_down: BytesMut,
}

/// A connection to a callee's instance; no instance is a host outside.
struct Up {
    instance: Option<InstanceId>,
    side: Side,
    lease: Lease,
}

/// How a connection goes on after a request.
enum Next {
    Again,
    Close,
    Reset,
    Tunnel(Box<Call>, usize),
}

/// What is there when the connection was idle.
enum Idle {
    Read,
    Closed,
    Broken,
}

/// How long a caller may take for a head that it has begun.
pub(crate) const HEAD_WAIT: Duration = Duration::from_secs(30);

/// Serves a connection to its end.
pub(crate) async fn serve(origin: Origin, stream: Stream, input: BytesMut, dialling: Dialling) {
    let mut connection = Connection {
        origin,
        dialling,
        down: Side { stream, input },
        ups: Vec::new(),
        to_up: BytesMut::new(),
        to_down: BytesMut::new(),
    };
    match connection.run().await {
        Next::Again | Next::Close => {}
        Next::Reset => {
            connection.down.stream.fate().reset();
        }
        Next::Tunnel(call, place) => {
            let up = connection.ups.swap_remove(place);
            tunnel::carry(connection.down, up.side, *call).await;
        }
    }
}

impl Connection {
    async fn run(&mut self) -> Next {
        let mut started = Instant::now();
        loop {
            if !self.down.input.is_empty() {
                match request::read(&mut self.origin, &mut self.down.input, &mut self.to_up, started) {
                    Reading::Whole(request) => {
                        match self.answer(*request).await {
                            Next::Again => started = Instant::now(),
                            next => return next,
                        }
                        continue;
                    }
                    Reading::Foreign => return self.foreign(started).await,
                    Reading::TooLarge => return self.refuse(started, CallError::HeadTooLarge),
                    Reading::Partial => {}
                }
            }
            let is_first = self.down.input.is_empty();
            let idle = if is_first {
                poll_fn(|cx| self.poll_idle(cx)).await
            } else {
                let deadline = started + HEAD_WAIT;
                match tokio::time::timeout_at(deadline, poll_fn(|cx| self.poll_idle(cx))).await {
                    Ok(idle) => idle,
                    Err(_) => return self.refuse(started, CallError::TimedOut),
                }
            };
            match idle {
                Idle::Read if is_first => started = Instant::now(),
                Idle::Read => {}
                Idle::Closed if is_first => return Next::Close,
                Idle::Broken if is_first => return Next::Reset,
                Idle::Closed | Idle::Broken => return self.refuse(started, CallError::CallerGone),
            }
        }
    }

    /// Waits for bytes of the caller. When the only callee closes its idle connection, so does this one.
    fn poll_idle(&mut self, cx: &mut Context<'_>) -> Poll<Idle> {
        match self.down.stream.poll_fill(cx, &mut self.down.input) {
            Poll::Ready(Ok(0)) => return Poll::Ready(Idle::Closed),
            Poll::Ready(Ok(_)) => return Poll::Ready(Idle::Read),
            Poll::Ready(Err(_)) => return Poll::Ready(Idle::Broken),
            Poll::Pending => {}
        }
        let mut place = 0;
        while let Some(up) = self.ups.get_mut(place) {
            // Bytes that nobody asked for end the connection like its close does.
            let Poll::Ready(ended) = up.side.stream.poll_fill(cx, &mut up.side.input) else {
                place += 1;
                continue;
            };
            let up = self.ups.swap_remove(place);
            if self.ups.is_empty() && self.down.input.is_empty() && !up.lease.is_over() {
                return Poll::Ready(if ended.is_ok() { Idle::Closed } else { Idle::Broken });
            }
        }
        Poll::Pending
    }

    /// Hands on what is no HTTP as bytes, so that the callee gives its own answer to it.
    async fn foreign(&mut self, started: Instant) -> Next {
        let slot = self.origin.slot.clone();
        let mut call = admit(&slot, self.origin.route(), &Head::of_connection(Wire::Tcp, started));
        if call.must_wait() {
            call.wait().await;
        }
        if let Some((_, error)) = call.refusal() {
            call.finish(error);
            return Next::Reset;
        }
        match self.up_for(&mut call).await {
            Some(place) => Next::Tunnel(Box::new(call), place),
            None => Next::Reset,
        }
    }

    /// Ends the connection for a request that did not become one.
    fn refuse(&mut self, started: Instant, error: CallError) -> Next {
        let slot = self.origin.slot.clone();
        admit(&slot, self.origin.route(), &Head::of_connection(Wire::Http1, started)).finish(Some(error));
        Next::Reset
    }

    /// Carries one request.
    async fn answer(&mut self, mut request: Request) -> Next {
        if request.call.must_wait() && !self.wait(&mut request.call).await {
            request.call.finish(Some(CallError::CallerGone));
            return Next::Reset;
        }
        if let Some((refusal, error)) = request.call.refusal() {
            self.to_up.clear();
            return match refusal {
                Refusal::Reset => {
                    request.call.finish(error);
                    Next::Reset
                }
                Refusal::Answer { status, .. } => self.answer_here(request, status).await,
            };
        }
        if let Some(mocks) = request.call.route.mocks.clone() {
            self.to_up.clear();
            return self.answer_mocked(request, &mocks).await;
        }
        let Some(place) = self.up_for(&mut request.call).await else {
            return Next::Reset;
        };
        request.call.begin_handling().await;
        self.exchange(request, place).await
    }

    /// Waits for a call's turn; tells whether the caller is still there then.
    async fn wait(&mut self, call: &mut Call) -> bool {
        let is_held = call.is_held();
        let waiting = call.wait();
        if !is_held {
            waiting.await;
            return true;
        }
        let down = &mut self.down;
        let gone = poll_fn(|cx| {
            // Once a whole head waits behind this one, the caller is surely there.
            while down.input.len() < head::LONGEST_HEAD {
                match down.stream.poll_fill(cx, &mut down.input) {
                    Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(()),
                    Poll::Ready(Ok(_)) => {}
                    Poll::Pending => return Poll::Pending,
                }
            }
            Poll::Pending
        });
        tokio::select! {
            () = waiting => true,
            () = gone => false,
        }
    }

    /// Answers in the callee's place.
    async fn answer_here(&mut self, mut request: Request, status: u16) -> Next {
        let close = request.close || request.expects_continue;
        request.call.first_byte();
        request.call.recording.edit(|span| span.status = Some(status));
        head::write_answer(&mut self.to_down, status, close);
        while !self.to_down.is_empty() {
            let written = poll_fn(|cx| self.down.stream.poll_push(cx, &self.to_down)).await;
            match written {
                Ok(written) if written > 0 => self.to_down.advance(written),
                _ => {
                    request.call.finish(Some(CallError::CallerGone));
                    return Next::Reset;
                }
            }
        }
        request.call.finish(None);
        if close {
            return Next::Close;
        }
        // The rest of the request has no reader, but the next request stands behind it.
        while !request.framing.is_done() {
            if self.down.input.is_empty() {
                match poll_fn(|cx| self.down.stream.poll_fill(cx, &mut self.down.input)).await {
                    Ok(count) if count > 0 => {}
                    _ => return Next::Close,
                }
            }
            match request.framing.take(&self.down.input) {
                Ok(piece) => self.down.input.advance(piece.raw),
                Err(_) => return Next::Reset,
            }
        }
        Next::Again
    }

    /// The connection to the instance of a call: one that is kept, or a new one.
    async fn up_for(&mut self, call: &mut Call) -> Option<usize> {
        let wanted = call.instance();
        if let Some(place) = self.ups.iter().position(|up| up.instance.as_ref() == wanted) {
            let up = &mut self.ups[place].side;
            // Not a byte of the request has gone out, so one that was closed meanwhile can be replaced.
            let ended = poll_fn(|cx| Poll::Ready(up.stream.poll_fill(cx, &mut up.input).is_ready())).await;
            if !ended {
                return Some(place);
            }
            self.ups.swap_remove(place);
        }
        match dial::dial(call, &self.dialling).await {
            Ok(stream) => {
                self.ups.push(Up {
                    instance: call.instance().cloned(),
                    side: Side { stream, input: BytesMut::new() },
                    lease: call.lease(),
                });
                Some(self.ups.len() - 1)
            }
            Err(error) => {
                call.finish(Some(dial::why_not_dialled(&error)));
                None
            }
        }
    }

    async fn exchange(&mut self, request: Request, place: usize) -> Next {
        let Request { mut call, framing, asked, close, copy, .. } = request;
        let mut effects = call.effects.clone();
        let way_back = call.way_back();
        let buffers = (&mut self.to_up, &mut self.to_down);
        let up = &mut self.ups[place].side;
        let mut exchange = Exchange::new(&mut self.down, up, buffers, &mut call, framing, asked);
        exchange.copy = effects.duplicate.and(copy.as_ref()).map(|_| Vec::new());
        exchange.shape = Shape {
            discard: false,
            is_alone: false,
            hold: effects.restart.is_some() || effects.lost_answer.is_some() || effects.duplicate.is_some(),
            cut: effects.truncate.map(|(_, after)| after),
            pace: effects.throttle.map(|(_, rate)| Pace::new(rate)),
        };
        let mut driven = if exchange.shape.hold || !way_back.is_zero() {
            poll_fn(|cx| exchange.poll_to(cx, Goal::Head)).await
        } else {
            Ok(())
        };
        if driven.is_ok() && !way_back.is_zero() {
            tokio::time::sleep(way_back).await;
        }
        if effects.lost_answer.is_some() && driven.is_ok() {
            exchange.to_down.clear();
            exchange.shape.discard = true;
        }
        if exchange.answer.as_ref().is_some_and(|answer| answer.is_upgrade) {
            for rule in effects.restart.take().into_iter().chain(effects.duplicate.take()) {
                exchange.call.missed(rule, NotApplied::ProtocolChanged);
            }
        }
        if driven.is_ok() && exchange.shape.hold {
            let whole = poll_fn(|cx| exchange.poll_to(cx, Goal::Answer));
            match tokio::time::timeout(HOLD_WITHIN, whole).await {
                Ok(whole) => driven = whole,
                Err(_) if effects.lost_answer.is_some() => {}
                Err(_) => {
                    for rule in effects.restart.take().into_iter().chain(effects.duplicate.take()) {
                        exchange.call.missed(rule, NotApplied::AnswerGoesOn);
                    }
                    exchange.shape.hold = false;
                }
            }
        }
        if driven.is_ok() && !exchange.shape.hold {
            driven = poll_fn(|cx| exchange.poll_to(cx, Goal::Answer)).await;
        }
        if let (Some(rule), Ok(())) = (effects.restart, driven) {
            exchange.call.restarting(rule).await;
        }
        if let (Some(rule), Ok(())) = (effects.duplicate, driven) {
            // Before the caller has its answer: what it does next must find both.
            match (exchange.copy.take(), copy) {
                (Some(body), Some(head)) if exchange.request.is_done() => {
                    again::send(&self.dialling, rule, &head, &body, exchange.call.twin(), asked).await;
                }
                _ => exchange.call.missed(rule, NotApplied::RequestNotWhole),
            }
        }
        if exchange.shape.hold && driven.is_ok() && !exchange.shape.discard {
            exchange.shape.hold = false;
            driven = poll_fn(|cx| exchange.poll_to(cx, Goal::Answer)).await;
        }
        let Some(answer) = exchange.answer.take().filter(|_| driven.is_ok()) else {
            let broken = match driven.err().unwrap_or(Broken::CalleeClosed) {
                // The callee saw that its caller had gone, and closed for that reason alone.
                Broken::CalleeClosed if exchange.caller_closed => Broken::CallerGone,
                broken => broken,
            };
            if broken == Broken::CallerGone {
                exchange.up.stream.fate().reset();
            }
            // Whoever listens to a stream ends it by going.
            let is_left = broken == Broken::CallerGone && call.is_stream;
            call.finish(Some(broken.why()).filter(|_| !is_left));
            return if broken == Broken::CalleeClosed { Next::Close } else { Next::Reset };
        };
        if let (true, Some((rule, _))) = (answer.was_cut, effects.truncate) {
            exchange.call.applied(rule);
        }
        if let Some(rule) = effects.lost_answer {
            exchange.call.applied(rule);
            exchange.call.finish(Some(CallError::AnswerLostByRule));
            return Next::Reset;
        }
        if answer.is_upgrade {
            call.upgraded();
            return Next::Tunnel(Box::new(call), place);
        }
        if let Some((rule, _)) = effects.throttle {
            exchange.call.applied(rule);
        }
        exchange.call.finish(None);
        if !answer.was_cut && poll_fn(|cx| exchange.poll_to_rest(cx)).await.is_err() {
            return Next::Reset;
        }
        let kept = !(exchange.callee_deaf || answer.closes || answer.was_cut);
        let ends = close || exchange.caller_closed || !kept;
        if ends { Next::Close } else { Next::Again }
    }
}
