//! One call from its arrival to its last byte: its span, its effects, its place among others.
//!
//! However a call ends, also by being dropped, it is recorded once and leaves nothing behind.

use std::sync::Arc;
use std::time::Duration;

use faultscope_model::span::{Extent, Parentage, Payload, Span, Wire};
use faultscope_model::wiring::RecordLevel;
use faultscope_model::{CallError, InstanceId, NotApplied, SpanId, TraceId};
use futures_util::future::BoxFuture;
use tokio::time::Instant;

use crate::balance::Target;
use crate::context::{Incoming, Outgoing};
use crate::recording::Recording;
use crate::rules::{self, Effects, Headers, Refusal};
use crate::scene::{LinkDelay, Route};
use crate::sequencer::{Handled, Ticket};
use crate::slot::Slot;
use crate::steering::{Answer, Verdict};
use crate::trial::{Lease, Trial};

/// A call in flight.
pub(crate) struct Call {
    pub(crate) slot: Arc<Slot>,
    pub(crate) route: Arc<Route>,
    pub(crate) target: Option<Arc<Target>>,
    pub(crate) effects: Effects,
    pub(crate) link: LinkDelay,
    /// Why the call is reset without reaching a callee, whatever the rules say.
    pub(crate) stopped: Option<CallError>,
    pub(crate) id: SpanId,
    pub(crate) trace: TraceId,
    pub(crate) parent: Option<SpanId>,
    pub(crate) wire: Wire,
    /// How much of it is recorded.
    pub(super) level: RecordLevel,
    /// The id under which its callee handles it, which stays the same when the call goes on in another trial.
    pub(super) handled: SpanId,
    pub(super) part: Part,
    pub(crate) recording: Arc<Recording>,
    /// The trial that the recording belongs to: the route's, or a later one that the call goes on in.
    pub(super) trial: Arc<Trial>,
    pub(super) incoming: Option<Incoming>,
    pub(super) ticket: Option<Ticket>,
    pub(super) turn: Option<BoxFuture<'static, ()>>,
    pub(super) verdict: Option<BoxFuture<'static, Verdict>>,
    /// There where the call may begin an outage of its callee: done when it begins none, or when that is over.
    pub(super) outage: Option<BoxFuture<'static, ()>>,
    /// Its answer has begun and has no length: it goes on for as long as callee and caller like.
    pub(crate) is_stream: bool,
    pub(super) is_reserved: bool,
    pub(super) is_handled: bool,
    pub(super) is_counted: bool,
    pub(super) is_finished: bool,
}

/// What a call is to those who look at the trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// A call of the application.
    Traffic,
    /// An exporter's report to a collector: carried, and otherwise as if it were not there.
    Export,
    /// Recorded for people, but nothing was called: it is neither counted nor steered.
    Note,
}

/// How long an answer is held back for the sake of a rule, once it has begun: one that goes on is a stream.
pub(crate) const HOLD_WITHIN: Duration = Duration::from_secs(2);

/// The most interim answers of a call, and the most bytes of their heads. Servers send one to ask for the body and a
/// few hints; without a bound a callee could keep a call, its caller and the memory of both busy for ever.
const MAX_INTERIM: usize = 64;
const MAX_INTERIM_BYTES: usize = 64 * 1024;

/// Counts the interim answers (1xx) of a call.
#[derive(Debug, Default)]
pub(crate) struct Interim {
    answers: usize,
    bytes: usize,
}

impl Interim {
    /// Counts one more; false if there are too many.
    pub(crate) fn count(&mut self, bytes: usize) -> bool {
        self.answers += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        self.answers <= MAX_INTERIM && self.bytes <= MAX_INTERIM_BYTES
    }
}

/// Bounds of recorded headers. A value must fit whole, tokens and cookies among them, or its request cannot be sent
/// again; the bounds of heads are not much larger.
const MAX_HEADERS: usize = 128;
const LONGEST_VALUE: usize = 16 * 1024;

impl Call {
    /// The context headers that go on with the request.
    pub(crate) fn outgoing(&self) -> Outgoing {
        Outgoing::new(self.incoming.as_ref(), self.trace, self.id, self.parent)
    }

    /// Whether something has to be waited for before the call goes on.
    pub(crate) fn must_wait(&self) -> bool {
        self.turn.is_some()
            || self.verdict.is_some()
            || self.outage.is_some()
            || !self.effects.delay.is_zero()
            || !self.link.there.is_zero()
    }

    /// Waits for an outage that begins with this call, the tool's verdict, the gate, the rules' delay and the link, in
    /// this order.
    pub(crate) async fn wait(&mut self) {
        if let Some(outage) = self.outage.take() {
            outage.await;
        }
        if let Some(verdict) = self.verdict.take() {
            let verdict = verdict.await;
            self.take_verdict(verdict);
        }
        if let Some(turn) = self.turn.take() {
            turn.await;
        }
        let delay = self.effects.delay + self.link.there;
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
    }

    /// Whether the caller may be gone before the call is answered, so that it is watched.
    pub(crate) fn is_held(&self) -> bool {
        self.turn.is_some() || self.verdict.is_some() || self.effects.times_out
    }

    /// Takes over the call's name and what the effective rules do.
    pub(super) fn take_verdict(&mut self, verdict: Verdict) {
        let Verdict { target, rules: effective } = verdict;
        let scene = &self.route.scene;
        let (effects, applied) =
            rules::combine(&scene.wiring.rules, &effective, self.wire, &scene.trial.jitter);
        self.effects = effects;
        self.recording.edit(|span| {
            span.target = target;
            span.rules.extend(effective.iter().map(|index| scene.wiring.rules[*index].id));
        });
        for rule in applied {
            self.applied(rule);
        }
    }

    /// How the call ends without reaching its callee, if it does, and what the span says then.
    pub(crate) fn refusal(&self) -> Option<(Refusal, Option<CallError>)> {
        match (self.effects.refuse, &self.stopped) {
            (Some(Refusal::Reset), _) => Some((Refusal::Reset, Some(CallError::DroppedByRule))),
            (Some(answer), _) => Some((answer, None)),
            (None, Some(why)) => Some((Refusal::Reset, Some(why.clone()))),
            (None, None) => None,
        }
    }

    /// Notes the status of the answer, before the caller sees it.
    pub(crate) fn answer_is(&mut self, status: Option<u16>, grpc_status: Option<u16>) {
        let mut has_failed = false;
        self.recording.edit(|span| {
            span.status = status.or(span.status);
            span.grpc_status = grpc_status.or(span.grpc_status);
            has_failed = span.failed();
        });
        if has_failed {
            self.route.scene.trial.steering.failing(self.id);
        }
    }

    /// Notes why a rule could do nothing to this call.
    pub(crate) fn missed(&self, rule: usize, why: NotApplied) {
        self.route.scene.trial.steering.missed(rule, why);
    }

    /// Notes that a rule did something to this call.
    pub(crate) fn applied(&self, rule: usize) {
        self.route.scene.trial.steering.applied(rule);
    }

    /// The callee gets the request now, as soon as whoever sequences its calls knows.
    pub(crate) async fn begin_handling(&mut self) {
        self.enter_callee();
        if let Some(known) = self.turn.take() {
            known.await;
        }
    }

    fn enter_callee(&mut self) {
        let Some(target) = &self.target else { return };
        if matches!(self.wire, Wire::Tcp | Wire::Tls) {
            return;
        }
        self.is_handled = true;
        target.instance.begin(self.trace, self.id);
        let steering = &self.route.scene.trial.steering;
        if self.part == Part::Traffic && steering.has_gates() {
            let words = self.recording.read(|span| (span.method.clone(), span.path.clone()));
            let (method, path) = words.unwrap_or_default();
            let begun = steering.begin(Handled {
                span: self.id,
                trace: self.trace,
                instance: &target.endpoint.instance,
                method: &method,
                path: &path,
            });
            if let Answer::Later(begun) = begun {
                self.turn = Some(begun);
            }
        }
    }

    /// The same request a second time, with a span of its own.
    pub(crate) fn twin(&self) -> Self {
        let trial = &self.route.scene.trial;
        let mut span = self.recording.read(Span::clone).unwrap_or_else(|| self.empty_span());
        span.id = SpanId(trial.ids.draw_id());
        (span.status, span.grpc_status, span.error, span.first_byte_us) = (None, None, None, None);
        span.response_bytes = 0;
        if let Some(payload) = &mut span.payload {
            payload.response_headers.clear();
            payload.response_body.clear();
        }
        span.target = span.target.map(|target| target.again());
        let turn = match trial.steering.twin(self.id, span.id) {
            Answer::Now(()) => None,
            Answer::Later(turn) => Some(turn),
        };
        let started = Instant::now();
        span.start_us = self.slot.clock.at(started);
        self.slot.flow.enter();
        if let Some(target) = &self.target {
            target.instance.reserve();
        }
        Self {
            slot: Arc::clone(&self.slot),
            route: Arc::clone(&self.route),
            target: self.target.clone(),
            effects: Effects::default(),
            link: LinkDelay::default(),
            stopped: None,
            id: span.id,
            trace: span.trace,
            parent: span.parent,
            wire: span.wire,
            level: self.level,
            handled: span.id,
            part: self.part,
            recording: trial.open_calls.begin(span, started),
            trial: Arc::clone(trial),
            incoming: self.incoming,
            ticket: None,
            turn,
            verdict: None,
            outage: None,
            is_stream: false,
            is_reserved: self.target.is_some(),
            is_handled: false,
            is_counted: true,
            is_finished: false,
        }
    }

    /// The instance that was chosen; none for hosts outside.
    pub(crate) fn instance(&self) -> Option<&InstanceId> {
        self.target.as_ref().map(|target| &target.endpoint.instance)
    }

    /// What tells later whether the instance was restarted since.
    pub(crate) fn lease(&self) -> Lease {
        Lease(self.target.as_ref().map(|target| (Arc::clone(&target.instance), target.instance.restarts())))
    }

    /// The delay of the answer on its link.
    pub(crate) fn way_back(&self) -> Duration {
        self.link.back
    }

    /// Has the callee's instance restarted, for a rule.
    pub(crate) fn restarting(&self, rule: usize) -> impl Future<Output = ()> + Send + use<> {
        let steering = Arc::clone(&self.route.scene.trial.steering);
        let restarter = Arc::clone(&self.slot.hooks.restarter);
        let (target, instance, span) = (self.target.clone(), self.instance().cloned(), self.id);
        async move {
            let Some(instance) = instance else {
                return steering.missed(rule, NotApplied::ReceiverOutside);
            };
            let closed = match steering.close(&instance, span).await {
                Ok(closed) => closed,
                Err(why) => return steering.missed(rule, why),
            };
            if let Some(target) = &target {
                target.instance.note_restart();
            }
            // A task of its own: a restart goes on although its caller leaves, and until it is over nobody
            // else may meet an instance that is down.
            let restart = tokio::spawn(async move {
                let _closed = closed;
                match restarter.restart(&instance).await {
                    Ok(()) => steering.applied(rule),
                    Err(error) => {
                        tracing::warn!(%error, "a rule could not restart its instance");
                        steering.missed(rule, error.into());
                    }
                }
            });
            if let Err(error) = restart.await
                && error.is_panic()
            {
                std::panic::resume_unwind(error.into_panic());
            }
        }
    }

    /// The first byte of the answer is here.
    pub(crate) fn first_byte(&mut self) {
        let started = self.recording.started();
        self.recording.edit(|span| {
            if span.first_byte_us.is_none() {
                span.first_byte_us = Some(started.elapsed().as_micros() as u64);
            }
        });
    }

    /// Notes a piece of the request's body.
    pub(crate) fn sent(&mut self, piece: &[u8]) {
        self.continue_in_next_trial();
        let record = self.level;
        self.recording.edit(|span| {
            span.request_bytes += piece.len() as u64;
            if let (RecordLevel::Bodies { most }, false, Some(payload)) =
                (record, span.wire.is_opaque(), &mut span.payload)
            {
                keep(&mut payload.request_body, piece, most);
            }
        });
    }

    /// Notes a command of a protocol whose commands are read, without its arguments.
    pub(crate) fn note_command(&mut self, name: &str) {
        let record = self.level;
        self.recording.edit(|span| {
            if let (RecordLevel::Bodies { most }, Some(payload)) = (record, &mut span.payload) {
                let names = &mut payload.request_body;
                // All or nothing: a part of a name is another name.
                if names.len() + 1 + name.len() <= most as usize {
                    names.extend_from_slice(if names.is_empty() { b"" } else { b" " });
                    names.extend_from_slice(name.as_bytes());
                }
            }
        });
    }

    /// Notes a piece of the answer's body.
    pub(crate) fn received(&mut self, piece: &[u8]) {
        self.continue_in_next_trial();
        let record = self.level;
        self.recording.edit(|span| {
            span.response_bytes += piece.len() as u64;
            if let (RecordLevel::Bodies { most }, false, Some(payload)) =
                (record, span.wire.is_opaque(), &mut span.payload)
            {
                keep(&mut payload.response_body, piece, most);
            }
        });
    }

    /// Notes the headers of the answer.
    pub(crate) fn response_headers(&mut self, headers: Headers<'_>) {
        self.recording.edit(|span| {
            if let Some(payload) = &mut span.payload {
                payload.response_headers = recorded(headers);
            }
        });
    }

    /// Notes the trailers of the answer, behind its headers: that is where gRPC says how a call ended.
    pub(crate) fn response_trailers(&mut self, trailers: Headers<'_>) {
        self.recording.edit(|span| {
            if let Some(payload) = &mut span.payload {
                let mut trailers = recorded(trailers);
                // The status first: readers know by it where the trailers of gRPC begin.
                trailers.sort_by_key(|(name, _)| !name.eq_ignore_ascii_case("grpc-status"));
                payload.response_headers.extend(trailers);
            }
        });
    }

    /// From now on the connection belongs to another protocol; what is handled in it is not a request.
    pub(crate) fn upgraded(&mut self) {
        self.wire = Wire::WebSocket;
        self.recording.edit(|span| span.wire = Wire::WebSocket);
        self.answered();
    }

    /// Ends the call and records it; later calls of this do nothing.
    pub(crate) fn finish(&mut self, error: Option<CallError>) {
        if std::mem::replace(&mut self.is_finished, true) {
            return;
        }
        if error.is_some() {
            self.continue_in_next_trial();
        }
        // Recorded before the call is counted out: when the slot is quiet, all its spans are there.
        if let Some(span) = self.trial.open_calls.finish(self.id, &self.recording, error) {
            self.trial.steering.finished(&span);
            self.slot.hooks.recorder.record(span);
        }
        self.answered();
    }

    /// A call that is used again after its trial has ended gets another span in the trial of now.
    fn continue_in_next_trial(&mut self) {
        if self.part != Part::Traffic || !self.recording.is_cut() {
            return;
        }
        let scene = self.slot.scene();
        if scene.trial.number() == self.trial.number() || scene.trial.open_calls.is_over() {
            return;
        }
        let Some(mut span) = self.recording.read(Span::clone) else { return };
        let trial = &scene.trial;
        let draw = || trial.ids.draw_id();
        let started = Instant::now();
        (span.id, span.trace) = (SpanId(draw()), TraceId(u128::from(draw()) << 64 | u128::from(draw())));
        // What it was made in belongs to the trial before.
        (span.parent, span.parentage) = (None, Parentage::Root);
        span.start_us = self.slot.clock.at(started);
        (span.first_byte_us, span.request_bytes, span.response_bytes) = (None, 0, 0);
        (span.rules, span.target) = (Vec::new(), None);
        span.extent = Extent { continued: true, open: false };
        if let Some(payload) = &mut span.payload {
            (payload.request_body, payload.response_body) = (Vec::new(), Vec::new());
        }
        (self.id, self.trace, self.parent) = (span.id, span.trace, span.parent);
        self.recording = trial.open_calls.begin(span, started);
        self.trial = Arc::clone(trial);
    }

    /// A span without anything that was seen, for a call whose own has been given away.
    fn empty_span(&self) -> Span {
        Span {
            trace: self.trace,
            id: self.id,
            parent: self.parent,
            parentage: Parentage::Unknown,
            caller: self.route.caller.clone(),
            caller_node: self.route.caller_node,
            callee: self.route.callee.clone(),
            callee_instance: self.instance().cloned(),
            callee_node: self.target.as_ref().map(|target| target.endpoint.node).unwrap_or_default(),
            port: self.route.port,
            wire: self.wire,
            method: String::new(),
            path: String::new(),
            start_us: 0,
            duration_us: 0,
            first_byte_us: None,
            request_bytes: 0,
            response_bytes: 0,
            status: None,
            grpc_status: None,
            error: None,
            rules: Vec::new(),
            target: None,
            extent: Extent::default(),
            payload: None,
        }
    }

    fn answered(&mut self) {
        let steering = &self.route.scene.trial.steering;
        if let Some(ticket) = self.ticket.take() {
            steering.answered(ticket);
        }
        if let Some(target) = &self.target {
            if std::mem::take(&mut self.is_handled) {
                target.instance.end(self.handled);
                if self.part == Part::Traffic && steering.has_gates() {
                    steering.ended(self.handled);
                }
            }
            if std::mem::take(&mut self.is_reserved) {
                target.instance.release();
            }
        }
        if std::mem::take(&mut self.is_counted) {
            self.slot.flow.leave();
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        // A connection that is dropped as a whole, as between trials, ends its calls here. Whatever is no
        // request just ends with it.
        let is_connection = matches!(self.wire, Wire::Tcp | Wire::Tls | Wire::WebSocket);
        if self.is_finished {
            return;
        }
        let is_away =
            !self.route.caller_is_test && self.slot.scene().outages.contains_key(&self.route.callee);
        self.finish(match (is_away, is_connection) {
            (true, _) => Some(CallError::ServiceAway),
            (false, true) => None,
            (false, false) => Some(CallError::ConnectionDropped),
        });
    }
}

/// What is kept of the headers.
pub(crate) fn recorded(headers: Headers<'_>) -> Vec<(String, String)> {
    let text = |value: &[u8]| String::from_utf8_lossy(&value[..value.len().min(LONGEST_VALUE)]).into_owned();
    match headers {
        Headers::None => Vec::new(),
        Headers::Http1(headers) => {
            headers.iter().take(MAX_HEADERS).map(|h| (h.name.to_owned(), text(h.value))).collect()
        }
        Headers::Http2(headers) => headers
            .iter()
            .take(MAX_HEADERS)
            .map(|(name, value)| (name.as_str().to_owned(), text(value.as_bytes())))
            .collect(),
    }
}

/// An empty payload with the request's headers, where these are recorded.
pub(crate) fn payload(record: RecordLevel, headers: Headers<'_>) -> Option<Box<Payload>> {
    match record {
        RecordLevel::Timing => None,
        _ => Some(Box::new(Payload { request_headers: recorded(headers), ..Payload::default() })),
    }
}

fn keep(kept: &mut Vec<u8>, piece: &[u8], most: u32) {
    let room = (most as usize).saturating_sub(kept.len());
    kept.extend_from_slice(&piece[..piece.len().min(room)]);
}
