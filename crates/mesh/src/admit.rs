//! Takes in a call when its head has arrived: finds its parent, chooses its instance, asks the rules, the
//! link and the gates. Everything that depends on the order of arrival is decided here, without waiting.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use faultscope_model::span::{Parentage, Span, Wire};
use faultscope_model::{CallError, SpanId, TraceId};
use tokio::time::Instant;

use crate::call::{self, Call};
use crate::call_identity::ArrivingCall;
use crate::context::Incoming;
use crate::rules::{self, Effects, Facts, Headers};
use crate::scene::{LinkDelay, Route};
use crate::sequencer::Arrival;
use crate::slot::Slot;
use crate::steering::Answer;
use crate::trial::Doing;

/// The head of a request, or the beginning of a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Head<'a> {
    pub(crate) wire: Wire,
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
    pub(crate) headers: Headers<'a>,
    pub(crate) context: Option<Incoming>,
    pub(crate) started: Instant,
}

impl<'a> Head<'a> {
    /// A connection whose requests are not read.
    pub(crate) fn of_connection(wire: Wire, started: Instant) -> Self {
        Head { wire, method: "", path: "", headers: Headers::None, context: None, started }
    }
}

/// Takes in a call.
pub(crate) fn admit(slot: &Arc<Slot>, route: &Arc<Route>, head: &Head<'_>) -> Call {
    let scene = &route.scene;
    let trial = &scene.trial;
    let is_request = !matches!(head.wire, Wire::Tcp | Wire::Tls);
    let lineage = lineage(route, head, is_request);
    let target = match &route.external {
        Some(_) => None,
        None => route.choice.choose(&route.caller, head.headers, &trial.choices).cloned(),
    };
    let stopped = match (&route.external, &target) {
        (Some(external), _) if !external.allow => {
            route.pair.refused.fetch_add(1, Ordering::Relaxed);
            Some(CallError::ExternalRefused)
        }
        (None, None) => Some(CallError::NoInstance),
        _ => None,
    };
    route.pair.calls.fetch_add(1, Ordering::Relaxed);
    if is_request {
        slot.flow.enter();
    }
    if let Some(target) = &target {
        target.instance.reserve();
    }
    let span = Span {
        trace: lineage.trace,
        id: SpanId(trial.ids.draw_id()),
        parent: lineage.parent,
        parentage: lineage.parentage,
        caller: route.caller.clone(),
        caller_node: route.caller_node,
        callee: route.callee.clone(),
        callee_instance: target.as_ref().map(|target| target.endpoint.instance.clone()),
        callee_node: target.as_ref().map(|target| target.endpoint.node).unwrap_or_default(),
        port: route.port,
        wire: head.wire,
        method: head.method.to_owned(),
        path: head.path.to_owned(),
        start_us: slot.clock.at(head.started),
        duration_us: 0,
        first_byte_us: None,
        request_bytes: 0,
        response_bytes: 0,
        status: None,
        grpc_status: None,
        error: None,
        rules: Vec::new(),
        target: None,
        payload: call::payload(scene.wiring.record, head.headers),
    };
    let mut call = Call {
        slot: Arc::clone(slot),
        route: Arc::clone(route),
        is_reserved: target.is_some(),
        target,
        effects: Effects::default(),
        link: LinkDelay::default(),
        stopped,
        span,
        incoming: head.context,
        started: head.started,
        ticket: None,
        turn: None,
        verdict: None,
        is_handled: false,
        is_counted: is_request,
        is_finished: false,
    };
    if !scene.is_plain {
        steer(&mut call, head, is_request);
    }
    call
}

/// Asks rules, link and gates about a call.
fn steer(call: &mut Call, head: &Head<'_>, is_request: bool) {
    let route = Arc::clone(&call.route);
    let scene = &route.scene;
    let trial = &scene.trial;
    if scene.wiring.targets || !scene.wiring.rules.is_empty() {
        let facts = Facts {
            caller: &route.caller,
            callee: &route.callee,
            instance: call.instance(),
            wire: head.wire,
            method: head.method,
            path: head.path,
            headers: head.headers,
        };
        let selected = rules::selected(&scene.wiring.rules, &facts);
        if scene.wiring.targets || !selected.is_empty() {
            let arrived = ArrivingCall {
                span: call.span.id,
                trace: call.span.trace,
                parent: call.span.parent,
                caller: &route.caller,
                callee: &route.callee,
                instance: call.instance(),
                method: head.method,
                path: head.path,
                is_request,
            };
            match trial.steering.count(&selected, &arrived) {
                Answer::Now(verdict) => call.take_verdict(verdict),
                Answer::Later(verdict) => call.verdict = Some(verdict),
            }
        }
    }
    if call.target.is_some()
        && let Some(link) = scene.link(route.caller_node, call.span.callee_node)
    {
        call.link = LinkDelay {
            there: link.latency + trial.jitter.up_to(link.jitter),
            back: link.latency + trial.jitter.up_to(link.jitter),
        };
        if trial.loss.happens(link.loss) {
            call.stopped = Some(CallError::LostOnLink);
        }
    }
    if is_request && trial.steering.has_gates() {
        let hold = trial.steering.arrive(Arrival {
            caller: &route.caller,
            parent: call.span.parent,
            trace: call.span.trace,
            callee: &route.callee,
            method: head.method,
            path: head.path,
        });
        if let Some(hold) = hold {
            call.ticket = Some(hold.ticket);
            call.turn = Some(hold.release);
        }
    }
}

struct Lineage {
    trace: TraceId,
    parent: Option<SpanId>,
    parentage: Parentage,
}

fn lineage(route: &Route, head: &Head<'_>, is_request: bool) -> Lineage {
    let ids = &route.scene.trial.ids;
    let fresh = || TraceId(u128::from(ids.draw_id()) << 64 | u128::from(ids.draw_id()));
    if route.caller_is_test {
        // A test that brings its own trace keeps it, but no span of ours is above it.
        let trace = head.context.map_or_else(fresh, |context| context.trace);
        return Lineage { trace, parent: None, parentage: Parentage::Root };
    }
    if let Some(context) = head.context {
        route.scene.trial.handed_on(&route.caller_state, context.span);
        return Lineage {
            trace: context.trace,
            parent: Some(context.span),
            parentage: Parentage::Propagated,
        };
    }
    // A connection can outlive many handlings, so it is nobody's child unless just one is there.
    let doing = route.caller_state.doing();
    if is_request && doing != Doing::Nothing {
        route.pair.without_context.fetch_add(1, Ordering::Relaxed);
    }
    match doing {
        Doing::Nothing => Lineage { trace: fresh(), parent: None, parentage: Parentage::Root },
        Doing::One(trace, span) => Lineage { trace, parent: Some(span), parentage: Parentage::Inferred },
        Doing::Several => Lineage { trace: fresh(), parent: None, parentage: Parentage::Unknown },
    }
}
