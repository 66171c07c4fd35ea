//! Takes in a call when its head has arrived: finds its parent, chooses its instance, asks the rules, the
//! link and the gates. Everything that depends on the order of arrival is decided here, without waiting.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use faultscope_model::span::{Parentage, Span, Wire};
use faultscope_model::{CallError, SpanId, TraceId};
use tokio::time::Instant;

use crate::call::{self, Call, Part};
use crate::call_identity::ArrivingCall;
use crate::context::Incoming;
use crate::outage;
use crate::recording::OpenCalls;
use crate::rules::{self, Effects, Facts, Headers};
use crate::scene::{LinkDelay, Route};
use crate::sequencer::Arrival;
use crate::slot::Slot;
use crate::steering::Answer;
use crate::telemetry;
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
    // A test that posts spans tests a collector, so that is what the trial is about.
    let is_export = !route.caller_is_test && telemetry::is_export(head);
    admit_as(slot, route, head, if is_export { Part::Export } else { Part::Traffic })
}

/// Takes in something that is recorded although nothing is called.
pub(crate) fn admit_note(slot: &Arc<Slot>, route: &Arc<Route>, head: &Head<'_>) -> Call {
    admit_as(slot, route, head, Part::Note)
}

fn admit_as(slot: &Arc<Slot>, route: &Arc<Route>, head: &Head<'_>, part: Part) -> Call {
    let scene = &route.scene;
    let trial = &scene.trial;
    let is_request = !matches!(head.wire, Wire::Tcp | Wire::Tls);
    let is_traffic = part == Part::Traffic;
    let lineage = if part == Part::Export { Lineage::fresh(route) } else { lineage(route, head, is_request) };
    let target = match &route.external {
        _ if route.mocks.is_some() => None,
        Some(_) => None,
        // Nobody is called, so nobody's turn is over.
        None if part == Part::Note => None,
        None => route.choice.choose(&route.caller, head.headers, &trial.choices).cloned(),
    };
    let stopped = match (&route.external, &target) {
        _ if route.mocks.is_some() => stop_unread(route, is_traffic && !is_request),
        (Some(external), _) if !external.allow => {
            route.pair.refused.fetch_add(1, Ordering::Relaxed);
            Some(CallError::ExternalRefused)
        }
        (None, None) => Some(CallError::NoInstance),
        _ => None,
    };
    let counter = match part {
        Part::Traffic => Some(&route.pair.calls),
        Part::Export => Some(&route.pair.exports),
        Part::Note => None,
    };
    if let Some(counter) = counter {
        counter.fetch_add(1, Ordering::Relaxed);
    }
    let is_counted = is_request && is_traffic;
    if is_counted {
        slot.flow.enter();
    }
    if let Some(target) = &target {
        target.instance.reserve();
    }
    let level = route.record_level(head.method, head.path);
    let found = head
        .context
        .filter(|_| scene.wiring.callers_by_context)
        .and_then(|context| trial.open_calls.find_handler((context.trace, context.span), &route.callee));
    let span = Span {
        trace: lineage.trace,
        id: SpanId(trial.ids.draw_id()),
        parent: lineage.parent,
        parentage: lineage.parentage,
        caller: found.unwrap_or_else(|| route.caller.clone()),
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
        extent: Default::default(),
        payload: call::payload(level, head.headers),
    };
    let mut call = Call {
        slot: Arc::clone(slot),
        route: Arc::clone(route),
        is_stream: false,
        is_reserved: target.is_some(),
        target,
        effects: Effects::default(),
        link: LinkDelay::default(),
        stopped,
        id: span.id,
        trace: span.trace,
        parent: span.parent,
        wire: span.wire,
        level,
        handled: span.id,
        part,
        recording: match part {
            Part::Export => OpenCalls::ignore(span, head.started),
            Part::Traffic | Part::Note => trial.open_calls.begin(span, head.started),
        },
        trial: Arc::clone(trial),
        incoming: head.context,
        ticket: None,
        turn: None,
        verdict: None,
        outage: None,
        is_handled: false,
        is_counted,
        is_finished: false,
    };
    if is_traffic && !scene.is_plain {
        steer(&mut call, head, is_request);
    }
    call
}

/// Stops a connection to a service that is not there if its requests cannot be read: nobody can answer them.
fn stop_unread(route: &Route, is_unread: bool) -> Option<CallError> {
    let mocks = route.mocks.as_ref().filter(|_| is_unread)?;
    mocks.refuse_connection(&route.callee);
    Some(CallError::MockMissed)
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
                span: call.id,
                trace: call.trace,
                parent: call.parent,
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
    if is_request && !route.caller_is_test {
        call.outage = outage::count_call(&call.slot, &route.callee);
    }
    if let Some(target) = &call.target
        && let Some(link) = scene.link(route.caller_node, target.endpoint.node)
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
            parent: call.parent,
            trace: call.trace,
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

impl Lineage {
    /// Nobody's child.
    fn fresh(route: &Route) -> Self {
        let ids = &route.scene.trial.ids;
        let trace = TraceId(u128::from(ids.draw_id()) << 64 | u128::from(ids.draw_id()));
        Self { trace, parent: None, parentage: Parentage::Root }
    }
}

fn lineage(route: &Route, head: &Head<'_>, is_request: bool) -> Lineage {
    if route.caller_is_test {
        // A test that brings its own trace keeps it, but no span of ours is above it.
        let fresh = Lineage::fresh(route);
        return Lineage { trace: head.context.map_or(fresh.trace, |context| context.trace), ..fresh };
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
        Doing::Nothing => Lineage::fresh(route),
        Doing::One(trace, span) => Lineage { trace, parent: Some(span), parentage: Parentage::Inferred },
        Doing::Several => Lineage { parentage: Parentage::Unknown, ..Lineage::fresh(route) },
    }
}
