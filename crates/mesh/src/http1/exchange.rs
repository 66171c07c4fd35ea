//! One request and its answer, both under way at the same time.
//!
//! Both directions are driven by one poll function in the connection's own task: no task, no channel and
//! no copy of a body stands between the two sockets, so back-pressure reaches from one to the other.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, BytesMut};
use tokio::io::AsyncWrite;

use super::broken::Broken;
use super::framing::Framing;
use super::head::{self, LONGEST_HEAD, MAX_HEADERS, Signs};
use crate::call::{Call, Interim};
use crate::rules::Headers;
use crate::tunnel::{Pace, Side};

/// The state of one exchange; buffers belong to the connection.
pub(super) struct Exchange<'a> {
    pub(super) down: &'a mut Side,
    pub(super) up: &'a mut Side,
    pub(super) to_up: &'a mut BytesMut,
    pub(super) to_down: &'a mut BytesMut,
    pub(super) call: &'a mut Call,
    pub(super) request: Framing,
    pub(super) asked: Asked,
    pub(super) shape: Shape,
    pub(super) answer: Option<Answer>,
    /// The request's body as it went out, for a rule that sends it twice.
    pub(super) copy: Option<Vec<u8>>,
    /// The caller has closed its half.
    pub(super) caller_closed: bool,
    /// The callee takes no more of the request.
    pub(super) callee_deaf: bool,
    half_closed: bool,
    is_unparsed: bool,
    interim: Interim,
    broken: Option<Broken>,
}

/// What the request asks that decides how its answer reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) head_only: bool,
    pub(super) tunnel: bool,
}

/// What is done to the answer.
#[derive(Default)]
pub(super) struct Shape {
    /// The caller gets nothing.
    pub(super) discard: bool,
    /// The caller is not listened to: all of the request is here.
    pub(super) is_alone: bool,
    /// The end of the answer stays here until the exchange is over.
    pub(super) hold: bool,
    /// Payload bytes that still pass.
    pub(super) cut: Option<u64>,
    pub(super) pace: Option<Pace>,
}

/// The answer, once its head is here.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) framing: Framing,
    pub(super) closes: bool,
    pub(super) is_upgrade: bool,
    pub(super) was_cut: bool,
}

/// What an exchange is driven to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Goal {
    /// The head of the answer is here, and not yet passed on.
    Head,
    /// The answer is complete here, or has reached the caller when it is not held.
    Answer,
    /// The request has gone out to its end as well.
    Both,
}

/// Bytes that wait to be written in one direction.
const MAX_WAITING: usize = 64 * 1024;
/// Bytes of an answer that are held back at most; of a longer one, its end.
pub(super) const MAX_HELD: usize = 1024 * 1024;
/// A request body that is kept to be sent twice.
const MAX_COPIED: usize = 1024 * 1024;
/// What a caller may send ahead of its answer.
const MAX_AHEAD: usize = 16 * 1024;

impl<'a> Exchange<'a> {
    pub(super) fn new(
        down: &'a mut Side,
        up: &'a mut Side,
        (to_up, to_down): (&'a mut BytesMut, &'a mut BytesMut),
        call: &'a mut Call,
        request: Framing,
        asked: Asked,
    ) -> Self {
        let is_unparsed = !up.input.is_empty();
        Self {
            down,
            up,
            to_up,
            to_down,
            call,
            request,
            asked,
            shape: Shape::default(),
            answer: None,
            copy: None,
            caller_closed: false,
            callee_deaf: false,
            half_closed: false,
            is_unparsed,
            interim: Interim::default(),
            broken: None,
        }
    }

    /// Drives the exchange on until the goal is reached.
    pub(super) fn poll_to(&mut self, cx: &mut Context<'_>, goal: Goal) -> Poll<Result<(), Broken>> {
        loop {
            let request_moved = self.poll_request(cx)?;
            if self.reached(goal) {
                return Poll::Ready(Ok(()));
            }
            let answer_moved = self.poll_answer(cx, goal)?;
            if self.reached(goal) {
                return Poll::Ready(Ok(()));
            }
            if let Some(broken) = self.broken.filter(|_| self.to_down.is_empty() || self.shape.hold) {
                return Poll::Ready(Err(broken));
            }
            if !request_moved && !answer_moved {
                return Poll::Pending;
            }
        }
    }

    /// Drives the rest of a request whose answer has been given already.
    pub(super) fn poll_to_rest(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        loop {
            let is_sent = self.request.is_done() && self.to_up.is_empty();
            // Whatever the callee does now but listen, it wants no more of this request.
            self.callee_deaf |= !is_sent && self.up.stream.poll_fill(cx, &mut self.up.input).is_ready();
            if is_sent || self.callee_deaf || self.caller_closed {
                return Poll::Ready(Ok(()));
            }
            if !self.poll_request(cx)? {
                return Poll::Pending;
            }
        }
    }

    fn reached(&self, goal: Goal) -> bool {
        let answered = || {
            self.answer.as_ref().is_some_and(|answer| answer.framing.is_done())
                && (self.to_down.is_empty() || self.shape.hold)
        };
        match goal {
            Goal::Head => self.answer.is_some(),
            Goal::Answer => answered(),
            Goal::Both => {
                let sent = self.request.is_done() && self.to_up.is_empty();
                answered() && (sent || self.callee_deaf || self.caller_closed)
            }
        }
    }

    fn poll_request(&mut self, cx: &mut Context<'_>) -> Result<bool, Broken> {
        let mut moved = false;
        if !self.request.is_done()
            && !self.callee_deaf
            && !self.down.input.is_empty()
            && self.to_up.len() < MAX_WAITING
        {
            self.take_request()?;
            moved = true;
        }
        if !self.to_up.is_empty() {
            match self.up.stream.poll_push(cx, self.to_up) {
                Poll::Ready(Ok(written)) if written > 0 => {
                    self.to_up.advance(written);
                    moved = true;
                }
                // It may have answered before it stopped listening, so its answer is still read.
                Poll::Ready(_) => {
                    self.callee_deaf = true;
                    self.to_up.clear();
                    moved = true;
                }
                Poll::Pending => {}
            }
        }
        if self.shape.is_alone {
            return Ok(moved);
        }
        if self.caller_closed
            && !self.half_closed
            && self.to_up.is_empty()
            && Pin::new(&mut self.up.stream).poll_shutdown(cx).is_ready()
        {
            self.half_closed = true;
        }
        let wants_more = if self.request.is_done() {
            self.down.input.len() < MAX_AHEAD
        } else {
            self.down.input.is_empty() && self.to_up.len() < MAX_WAITING && !self.callee_deaf
        };
        if wants_more && !self.caller_closed {
            match self.down.stream.poll_fill(cx, &mut self.down.input) {
                Poll::Ready(Ok(0)) => (self.caller_closed, moved) = (true, true),
                Poll::Ready(Ok(_)) => moved = true,
                Poll::Ready(Err(_)) => return Err(Broken::CallerGone),
                Poll::Pending => {}
            }
        }
        Ok(moved)
    }

    fn take_request(&mut self) -> Result<(), Broken> {
        while !self.down.input.is_empty() && !self.request.is_done() {
            let piece = self.request.take(&self.down.input).map_err(|_| Broken::BadRequest)?;
            self.call.sent(&self.down.input[piece.payload]);
            let raw = &self.down.input[..piece.raw];
            self.to_up.extend_from_slice(raw);
            if let Some(copy) = &mut self.copy {
                copy.extend_from_slice(raw);
            }
            self.down.input.advance(piece.raw);
        }
        if self.copy.as_ref().is_some_and(|copy| copy.len() > MAX_COPIED) {
            self.copy = None;
        }
        Ok(())
    }

    fn poll_answer(&mut self, cx: &mut Context<'_>, goal: Goal) -> Result<bool, Broken> {
        let mut moved = false;
        if self.answer.is_none() {
            // Interim answers wait for the caller like any others.
            while self.is_unparsed && self.answer.is_none() && self.to_down.len() < self.room() {
                self.is_unparsed = self.take_head()?;
                moved = true;
            }
            if self.answer.is_some() && goal == Goal::Head {
                return Ok(true);
            }
        }
        if self.wants_answer() && !self.up.input.is_empty() {
            self.take_answer()?;
            moved = true;
        }
        moved |= self.poll_deliver(cx)?;
        let wants_more = match &self.answer {
            None => !self.is_unparsed && self.to_down.len() < self.room(),
            Some(_) => self.up.input.is_empty() && self.wants_answer(),
        };
        if wants_more && self.broken.is_none() {
            match self.up.stream.poll_fill(cx, &mut self.up.input) {
                Poll::Ready(Ok(0)) => {
                    match &mut self.answer {
                        Some(answer) if answer.framing == Framing::UntilClose => {
                            answer.framing = Framing::Done
                        }
                        _ => self.broken = Some(Broken::CalleeClosed),
                    }
                    moved = true;
                }
                Poll::Ready(Ok(_)) => {
                    self.call.first_byte();
                    self.is_unparsed = self.answer.is_none();
                    moved = true;
                }
                Poll::Ready(Err(_)) => (self.broken, moved) = (Some(Broken::CalleeReset), true),
                Poll::Pending => {}
            }
        }
        Ok(moved)
    }

    fn wants_answer(&self) -> bool {
        let is_open = self.answer.as_ref().is_some_and(|answer| !answer.framing.is_done());
        is_open && self.to_down.len() < self.room()
    }

    /// How many bytes may wait for the caller.
    fn room(&self) -> usize {
        if self.shape.hold { MAX_HELD + MAX_WAITING } else { MAX_WAITING }
    }

    /// Writes to the caller; a held answer only as far as it is longer than what is held.
    fn poll_deliver(&mut self, cx: &mut Context<'_>) -> Result<bool, Broken> {
        let held = if self.shape.hold { MAX_HELD } else { 0 };
        let mut ready = self.to_down.len().saturating_sub(held);
        if ready == 0 {
            return Ok(false);
        }
        if let Some(pace) = &mut self.shape.pace {
            match pace.poll_allowed(cx) {
                Poll::Ready(allowed) => ready = ready.min(allowed),
                Poll::Pending => return Ok(false),
            }
        }
        match self.down.stream.poll_push(cx, &self.to_down[..ready]) {
            Poll::Ready(Ok(written)) if written > 0 => {
                if let Some(pace) = &mut self.shape.pace {
                    pace.spend(written);
                }
                self.to_down.advance(written);
                Ok(true)
            }
            Poll::Ready(_) => Err(Broken::CallerGone),
            Poll::Pending => Ok(false),
        }
    }

    /// Reads the head of the answer, if it is whole; tells whether it was an interim one, with more to read.
    fn take_head(&mut self) -> Result<bool, Broken> {
        let mut storage = [const { std::mem::MaybeUninit::uninit() }; MAX_HEADERS];
        let mut response = httparse::Response::new(&mut []);
        let mut config = httparse::ParserConfig::default();
        config
            .allow_obsolete_multiline_headers_in_responses(true)
            .allow_spaces_after_header_name_in_responses(true);
        let parsed = config.parse_response_with_uninit_headers(&mut response, &self.up.input, &mut storage);
        let length = match parsed {
            Ok(httparse::Status::Complete(length)) => length,
            Ok(httparse::Status::Partial) if self.up.input.len() < LONGEST_HEAD => return Ok(false),
            _ => return Err(Broken::BadAnswer),
        };
        let status = response.code.unwrap_or_default();
        let signs = Signs::read(response.headers);
        if !self.shape.discard {
            head::pass_answer(self.to_down, &self.up.input[..length], response.headers, &signs);
        }
        let is_interim = (100..200).contains(&status) && status != 101;
        if is_interim {
            if !self.interim.count(length) {
                return Err(Broken::EndlessInterim);
            }
        } else {
            self.call.answer_is(Some(status), None);
            self.call.response_headers(Headers::Http1(response.headers));
            let is_upgrade = status == 101 || (self.asked.tunnel && (200..300).contains(&status));
            let framing = match status {
                _ if is_upgrade || self.asked.head_only => Framing::Done,
                204 | 304 => Framing::Done,
                _ => signs.answer_framing().map_err(|_| Broken::BadAnswer)?,
            };
            self.call.is_stream = matches!(framing, Framing::Chunked(_) | Framing::UntilClose);
            let closes = signs.closes(response.version.unwrap_or(1)) || framing == Framing::UntilClose;
            self.answer = Some(Answer { framing, closes, is_upgrade, was_cut: false });
        }
        self.up.input.advance(length);
        Ok(is_interim && !self.up.input.is_empty())
    }

    fn take_answer(&mut self) -> Result<(), Broken> {
        let Some(answer) = &mut self.answer else {
            return Ok(());
        };
        while !self.up.input.is_empty() && !answer.framing.is_done() {
            let was_chunked = matches!(answer.framing, Framing::Chunked(_));
            let piece = answer.framing.take(&self.up.input).map_err(|_| Broken::BadAnswer)?;
            let payload = &self.up.input[piece.payload.clone()];
            match &mut self.shape.cut {
                _ if self.shape.discard => self.call.received(payload),
                None => {
                    self.call.received(payload);
                    self.to_down.extend_from_slice(&self.up.input[..piece.raw]);
                }
                Some(left) => {
                    let count = usize::try_from(*left).unwrap_or(usize::MAX).min(payload.len());
                    *left -= count as u64;
                    let is_last = count < payload.len();
                    self.call.received(&payload[..count]);
                    put_piece(self.to_down, &payload[..count], was_chunked);
                    if is_last || (was_chunked && answer.framing.is_done()) {
                        // The rest of the answer is not read, so neither connection can be used again.
                        answer.was_cut = is_last;
                        answer.framing = Framing::Done;
                        if was_chunked {
                            self.to_down.extend_from_slice(b"0\r\n\r\n");
                        }
                    }
                }
            }
            self.up.input.advance(piece.raw);
        }
        Ok(())
    }
}

fn put_piece(out: &mut BytesMut, payload: &[u8], is_chunked: bool) {
    if payload.is_empty() {
        return;
    }
    if is_chunked {
        out.extend_from_slice(format!("{:x}\r\n", payload.len()).as_bytes());
    }
    out.extend_from_slice(payload);
    if is_chunked {
        out.extend_from_slice(b"\r\n");
    }
}
