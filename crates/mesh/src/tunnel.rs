//! Carries bytes both ways without reading them: TCP, TLS that is passed through, upgraded connections.
//!
//! Their bytes are counted and never recorded: what a client says first is its password. Of Redis the names of
//! commands are noted, which say what a connection was used for.
//!
//! A half that is closed is closed on the other side too, and only that half; a reset becomes a reset.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use faultscope_model::redis_commands::CommandNames;
use faultscope_model::span::Wire;
use faultscope_model::{CallError, ServiceName};
use futures_util::future::BoxFuture;
use tokio::io::AsyncWrite;
use tokio::time::{Instant, Sleep};

use crate::admit::{Head, admit};
use crate::call::Call;
use crate::dial::{self, Dialling};
use crate::outage;
use crate::slot::{Origin, Slot};
use crate::stream::Stream;

/// One side of a proxied connection, with bytes that were read from it and not yet passed on.
#[derive(Debug)]
pub(crate) struct Side {
    pub(crate) stream: Stream,
    pub(crate) input: BytesMut,
}

/// Which side broke a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BrokenBy {
    Caller,
    Callee,
}

/// Bytes under way in one direction of a slow link.
const MAX_UNDER_WAY: usize = 256 * 1024;

/// Serves a connection whose requests are not read.
pub(crate) async fn serve(mut origin: Origin, stream: Stream, input: BytesMut, wire: Wire, started: Instant) {
    let slot = origin.slot.clone();
    let mut call = admit(&slot, origin.route(), &Head::of_connection(wire, started));
    if call.must_wait() {
        call.wait().await;
    }
    if let Some((_, error)) = call.refusal() {
        // It is a call as well, which an outage may begin with: being away is not the same as refusing.
        let mut exchange = Exchange::new(&call);
        poll_fn(|cx| exchange.poll_counted(cx)).await;
        call.finish(error);
        return stream.reset();
    }
    let up = match dial::dial(&mut call, &Dialling::default()).await {
        Ok(up) => up,
        Err(error) => {
            call.finish(Some(dial::why_not_dialled(&error)));
            return stream.reset();
        }
    };
    carry(Side { stream, input }, Side { stream: up, input: BytesMut::new() }, call).await;
}

/// Carries bytes until both halves are closed or one side breaks, and ends the call.
pub(crate) async fn carry(mut down: Side, mut up: Side, mut call: Call) {
    if let Some((rule, _)) = call.effects.truncate {
        call.applied(rule);
    }
    if let Some((rule, _)) = call.effects.throttle {
        call.applied(rule);
    }
    let mut there = Lane::new(call.link.there);
    let mut back = Lane::new(call.link.back);
    back.most = call.effects.truncate.map(|(_, after)| after);
    back.pace = call.effects.throttle.map(|(_, rate)| Pace::new(rate));
    let mut exchange = Exchange::new(&call);
    let mut commands = (call.wire == Wire::Tcp).then(CommandNames::default);
    let ended = poll_fn(|cx| {
        let may_pass = |cx: &mut Context<'_>| exchange.poll_counted(cx);
        let to_callee = there.poll(cx, &mut down, &mut up, may_pass, |piece| {
            call.sent(piece);
            if let Some(commands) = &mut commands {
                commands.read(piece, |name| call.note_command(name));
            }
        });
        if let Poll::Ready(Err(end)) = to_callee {
            return Poll::Ready(Err(if end == End::Reading { BrokenBy::Caller } else { BrokenBy::Callee }));
        }
        let may_pass = |_: &mut Context<'_>| Poll::Ready(());
        let to_caller = back.poll(cx, &mut up, &mut down, may_pass, |piece| {
            call.first_byte();
            call.received(piece);
            exchange.is_counted = false;
        });
        if let Poll::Ready(Err(end)) = to_caller {
            return Poll::Ready(Err(if end == End::Reading { BrokenBy::Callee } else { BrokenBy::Caller }));
        }
        if back.was_cut || (to_callee.is_ready() && to_caller.is_ready()) {
            Poll::Ready(Ok(()))
        } else {
            Poll::Pending
        }
    })
    .await;
    match ended {
        Ok(()) => call.finish(None),
        Err(by) => {
            down.stream.fate().reset();
            up.stream.fate().reset();
            // Clients end connections as they like; a reset is how one ends that has not read everything.
            call.finish(match by {
                BrokenBy::Caller => None,
                BrokenBy::Callee => Some(CallError::ResetByCallee),
            });
        }
    }
}

/// What a caller sends until it is answered: it counts as one call, which an outage may begin with.
struct Exchange {
    slot: Arc<Slot>,
    /// Nobody where the calls do not count.
    callee: Option<ServiceName>,
    is_counted: bool,
    waiting: Option<BoxFuture<'static, ()>>,
}

impl Exchange {
    fn new(call: &Call) -> Self {
        let callee = (!call.route.caller_is_test).then(|| call.route.callee.clone());
        Self { slot: Arc::clone(&call.slot), callee, is_counted: false, waiting: None }
    }

    /// Ready when the bytes may go on.
    fn poll_counted(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(callee) = self.callee.as_ref().filter(|_| !self.is_counted) {
            self.is_counted = true;
            self.waiting = outage::count_call(&self.slot, callee);
        }
        if let Some(waiting) = &mut self.waiting {
            std::task::ready!(waiting.as_mut().poll(cx));
            self.waiting = None;
        }
        Poll::Ready(())
    }
}

/// Where a direction broke.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Reading,
    Writing,
}

/// One direction.
struct Lane {
    delay: Duration,
    under_way: VecDeque<(Instant, Bytes)>,
    n_under_way: usize,
    timer: Option<Pin<Box<Sleep>>>,
    pace: Option<Pace>,
    /// Bytes that still pass.
    most: Option<u64>,
    was_cut: bool,
    is_read: bool,
    is_shut: bool,
}

impl Lane {
    fn new(delay: Duration) -> Self {
        Self {
            delay,
            under_way: VecDeque::new(),
            n_under_way: 0,
            timer: None,
            pace: None,
            most: None,
            was_cut: false,
            is_read: false,
            is_shut: false,
        }
    }

    /// Moves what can be moved; ready when this half is closed.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut Side,
        to: &mut Side,
        mut may_pass: impl FnMut(&mut Context<'_>) -> Poll<()>,
        mut seen: impl FnMut(&[u8]),
    ) -> Poll<Result<(), End>> {
        loop {
            if self.is_shut || self.was_cut {
                return Poll::Ready(Ok(()));
            }
            let mut moved = false;
            let is_held = !from.input.is_empty() && may_pass(cx).is_pending();
            if !is_held {
                self.depart(from, &mut seen);
            }
            if let Poll::Ready(written) = self.poll_arrive(cx, to) {
                written?;
                moved = true;
            }
            // What is held is not read on, so that it stays as large as it is.
            if !self.is_read && !is_held && self.n_under_way < MAX_UNDER_WAY {
                match from.stream.poll_fill(cx, &mut from.input) {
                    Poll::Ready(Ok(0)) => (self.is_read, moved) = (true, true),
                    Poll::Ready(Ok(_)) => moved = true,
                    Poll::Ready(Err(_)) => return Poll::Ready(Err(End::Reading)),
                    Poll::Pending => {}
                }
            }
            if self.is_read && self.under_way.is_empty() && from.input.is_empty() {
                if self.most == Some(0) {
                    self.was_cut = true;
                    continue;
                }
                // A peer that is gone already does not learn that no more will come.
                std::task::ready!(Pin::new(&mut to.stream).poll_shutdown(cx)).ok();
                self.is_shut = true;
                continue;
            }
            if !moved {
                return Poll::Pending;
            }
        }
    }

    fn depart(&mut self, from: &mut Side, seen: &mut impl FnMut(&[u8])) {
        if from.input.is_empty() || self.n_under_way >= MAX_UNDER_WAY {
            return;
        }
        let mut piece = from.input.split().freeze();
        if let Some(most) = &mut self.most {
            piece.truncate(usize::try_from(*most).unwrap_or(usize::MAX));
            *most -= piece.len() as u64;
            // What follows is not even read.
            self.is_read |= *most == 0;
        }
        if piece.is_empty() {
            return;
        }
        seen(&piece);
        self.n_under_way += piece.len();
        let due = if self.delay.is_zero() { None } else { Some(Instant::now() + self.delay) };
        self.under_way.push_back((due.unwrap_or_else(Instant::now), piece));
    }

    fn poll_arrive(&mut self, cx: &mut Context<'_>, to: &mut Side) -> Poll<Result<(), End>> {
        let Some((due, piece)) = self.under_way.front_mut() else {
            return Poll::Pending;
        };
        if !self.delay.is_zero() {
            std::task::ready!(poll_timer(&mut self.timer, cx, *due));
        }
        let allowed = match &mut self.pace {
            None => piece.len(),
            Some(pace) => std::task::ready!(pace.poll_allowed(cx)).min(piece.len()),
        };
        let written =
            std::task::ready!(to.stream.poll_push(cx, &piece[..allowed])).map_err(|_| End::Writing)?;
        if let Some(pace) = &mut self.pace {
            pace.spend(written);
        }
        piece.advance(written);
        self.n_under_way -= written;
        if piece.is_empty() {
            self.under_way.pop_front();
        }
        Poll::Ready(Ok(()))
    }
}

/// A speed limit.
pub(crate) struct Pace {
    rate: u64,
    spent: u64,
    since: Instant,
    timer: Option<Pin<Box<Sleep>>>,
}

/// How often a slowed stream moves; small enough to look even, large enough to be cheap.
const PACE_STEP: Duration = Duration::from_millis(20);

impl Pace {
    pub(crate) fn new(rate: u64) -> Self {
        Self { rate, spent: 0, since: Instant::now(), timer: None }
    }

    /// How many bytes may pass now; waits until it is at least one.
    pub(crate) fn poll_allowed(&mut self, cx: &mut Context<'_>) -> Poll<usize> {
        loop {
            if let Some(timer) = &mut self.timer {
                std::task::ready!(timer.as_mut().poll(cx));
                self.timer = None;
            }
            let earned = (self.since.elapsed().as_secs_f64() * self.rate as f64) as u64;
            if earned > self.spent {
                return Poll::Ready(usize::try_from(earned - self.spent).unwrap_or(usize::MAX));
            }
            let next = Duration::from_secs_f64((self.spent + 1) as f64 / self.rate as f64);
            let due = (self.since + next).max(Instant::now() + PACE_STEP);
            self.timer = Some(Box::pin(tokio::time::sleep_until(due)));
        }
    }

    pub(crate) fn spend(&mut self, bytes: usize) {
        self.spent += bytes as u64;
    }
}

/// Waits until an instant with a timer that is made when it is first needed.
fn poll_timer(timer: &mut Option<Pin<Box<Sleep>>>, cx: &mut Context<'_>, due: Instant) -> Poll<()> {
    if due <= Instant::now() {
        return Poll::Ready(());
    }
    let timer = timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(due)));
    if timer.deadline() != due {
        timer.as_mut().reset(due);
    }
    timer.as_mut().poll(cx)
}
