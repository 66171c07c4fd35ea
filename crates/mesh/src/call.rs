//! One call from its arrival to its last byte: its span, its effects, its place among others.
//!
//! However a call ends, also by being dropped, it is recorded once and leaves nothing behind.

use std::sync::Arc;
use std::time::Duration;

use faultscope_model::span::{Payload, Span, Wire};
use faultscope_model::wiring::RecordLevel;
use faultscope_model::{CallError, InstanceId, NotApplied};
use futures_util::future::BoxFuture;
use tokio::time::Instant;

use crate::balance::Target;
use crate::context::{Incoming, Outgoing};
use crate::rules::{self, Effects, Headers, Refusal};
use crate::scene::{LinkDelay, Route};
use crate::sequencer::{Handled, Ticket};
use crate::slot::Slot;
use crate::steering::{Answer, Verdict};
use crate::trial::Lease;

/// A call in flight.
pub(crate) struct Call {
    pub(crate) slot: Arc<Slot>,
    pub(crate) route: Arc<Route>,
    pub(crate) target: Option<Arc<Target>>,
    pub(crate) effects: Effects,
    pub(crate) link: LinkDelay,
    /// Why the call is reset without reaching a callee, whatever the rules say.
    pub(crate) stopped: Option<CallError>,
    pub(crate) span: Span,
    pub(super) incoming: Option<Incoming>,
    pub(super) started: Instant,
    pub(super) ticket: Option<Ticket>,
    pub(super) turn: Option<BoxFuture<'static, ()>>,
    pub(super) verdict: Option<BoxFuture<'static, Verdict>>,
    pub(super) is_reserved: bool,
    pub(super) is_handled: bool,
    pub(super) is_counted: bool,
    pub(super) is_finished: bool,
}

/// How long an answer is held back for the sake of a rule, once it has begun: one that goes on is a stream.
pub(crate) const HOLD_WITHIN: Duration = Duration::from_secs(2);

/// Bounds of recorded headers.
const MOST_HEADERS: usize = 64;
const LONGEST_VALUE: usize = 1024;

impl Call {
    /// The context headers that go on with the request.
    pub(crate) fn outgoing(&self) -> Outgoing {
        Outgoing::new(self.incoming.as_ref(), self.span.trace, self.span.id, self.span.parent)
    }

    /// Whether something has to be waited for before the call goes on.
    pub(crate) fn must_wait(&self) -> bool {
        self.turn.is_some()
            || self.verdict.is_some()
            || !self.effects.delay.is_zero()
            || !self.link.there.is_zero()
    }

    /// Waits for the tool's verdict, the gate, the rules' delay and the link, in this order.
    pub(crate) async fn wait(&mut self) {
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
            rules::combine(&scene.wiring.rules, &effective, self.span.wire, &scene.trial.jitter);
        self.effects = effects;
        self.span.target = target;
        self.span.rules.extend(effective.iter().map(|index| scene.wiring.rules[*index].id));
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
        self.span.status = status.or(self.span.status);
        self.span.grpc_status = grpc_status.or(self.span.grpc_status);
        if self.span.failed() {
            self.route.scene.trial.steering.failing(self.span.id);
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
        if matches!(self.span.wire, Wire::Tcp | Wire::Tls) {
            return;
        }
        self.is_handled = true;
        target.instance.begin(self.span.trace, self.span.id);
        let steering = &self.route.scene.trial.steering;
        if steering.has_gates() {
            let begun = steering.begin(Handled {
                span: self.span.id,
                trace: self.span.trace,
                instance: &target.endpoint.instance,
                method: &self.span.method,
                path: &self.span.path,
            });
            if let Answer::Later(begun) = begun {
                self.turn = Some(begun);
            }
        }
    }

    /// The same request a second time, with a span of its own.
    pub(crate) fn twin(&self) -> Self {
        let trial = &self.route.scene.trial;
        let mut span = self.span.clone();
        span.id = faultscope_model::SpanId(trial.ids.draw_id());
        (span.status, span.grpc_status, span.error, span.first_byte_us) = (None, None, None, None);
        span.response_bytes = 0;
        if let Some(payload) = &mut span.payload {
            payload.response_headers.clear();
            payload.response_body.clear();
        }
        span.target = span.target.map(|target| target.again());
        let turn = match trial.steering.twin(self.span.id, span.id) {
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
            span,
            incoming: self.incoming,
            started,
            ticket: None,
            turn,
            verdict: None,
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
        let (target, instance, span) = (self.target.clone(), self.instance().cloned(), self.span.id);
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
        if self.span.first_byte_us.is_none() {
            self.span.first_byte_us = Some(self.started.elapsed().as_micros() as u64);
        }
    }

    /// Notes a piece of the request's body.
    pub(crate) fn sent(&mut self, piece: &[u8]) {
        self.span.request_bytes += piece.len() as u64;
        if let (RecordLevel::Bodies { most }, Some(payload)) = (self.record(), &mut self.span.payload) {
            keep(&mut payload.request_body, piece, most);
        }
    }

    /// Notes a piece of the answer's body.
    pub(crate) fn received(&mut self, piece: &[u8]) {
        self.span.response_bytes += piece.len() as u64;
        if let (RecordLevel::Bodies { most }, Some(payload)) = (self.record(), &mut self.span.payload) {
            keep(&mut payload.response_body, piece, most);
        }
    }

    /// Notes the headers of the answer.
    pub(crate) fn response_headers(&mut self, headers: Headers<'_>) {
        if let Some(payload) = &mut self.span.payload {
            payload.response_headers = recorded(headers);
        }
    }

    fn record(&self) -> RecordLevel {
        self.route.scene.wiring.record
    }

    /// From now on the connection belongs to another protocol; what is handled in it is not a request.
    pub(crate) fn upgraded(&mut self) {
        self.span.wire = Wire::WebSocket;
        self.answered();
    }

    /// Ends the call and records it; later calls of this do nothing.
    pub(crate) fn finish(&mut self, error: Option<CallError>) {
        if std::mem::replace(&mut self.is_finished, true) {
            return;
        }
        self.span.duration_us = self.started.elapsed().as_micros() as u64;
        self.span.error = error;
        // Recorded before the call is counted out: when the slot is quiet, all its spans are there.
        let husk = husk(&self.span);
        let span = std::mem::replace(&mut self.span, husk);
        self.route.scene.trial.steering.finished(&span);
        self.slot.hooks.recorder.record(span);
        self.answered();
    }

    fn answered(&mut self) {
        let steering = &self.route.scene.trial.steering;
        if let Some(ticket) = self.ticket.take() {
            steering.answered(ticket);
        }
        if let Some(target) = &self.target {
            if std::mem::take(&mut self.is_handled) {
                target.instance.end(self.span.id);
                if steering.has_gates() {
                    steering.ended(self.span.id);
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
        let is_connection = matches!(self.span.wire, Wire::Tcp | Wire::Tls | Wire::WebSocket);
        self.finish(if is_connection { None } else { Some(CallError::ConnectionDropped) });
    }
}

/// What is kept of the headers.
pub(crate) fn recorded(headers: Headers<'_>) -> Vec<(String, String)> {
    let text = |value: &[u8]| String::from_utf8_lossy(&value[..value.len().min(LONGEST_VALUE)]).into_owned();
    match headers {
        Headers::None => Vec::new(),
        Headers::Http1(headers) => {
            headers.iter().take(MOST_HEADERS).map(|h| (h.name.to_owned(), text(h.value))).collect()
        }
        Headers::Http2(headers) => headers
            .iter()
            .take(MOST_HEADERS)
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

/// What is left of a span that has been given away.
fn husk(span: &Span) -> Span {
    Span {
        trace: span.trace,
        id: span.id,
        parent: None,
        parentage: span.parentage,
        caller: span.caller.clone(),
        caller_node: span.caller_node,
        callee: span.callee.clone(),
        callee_instance: None,
        callee_node: span.callee_node,
        port: span.port,
        wire: span.wire,
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
        payload: None,
    }
}

fn keep(kept: &mut Vec<u8>, piece: &[u8], most: u32) {
    let room = (most as usize).saturating_sub(kept.len());
    kept.extend_from_slice(&piece[..piece.len().min(room)]);
}
