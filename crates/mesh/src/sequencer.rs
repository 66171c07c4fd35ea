//! Gates: holds the calls of a series until all have arrived, then releases them one by one.
//!
//! A plain state machine under one lock that is never held across an await; time comes in as an argument.
//! Zhou et al. 2019, section 3.3 (sequence control).

use std::sync::Mutex;

use faultscope_model::series::{CallName, Gate, GateOutcome, GateReport};
use faultscope_model::{InstanceId, ServiceName, SpanId, TraceId};
use tokio::sync::oneshot;
use tokio::time::Instant;

/// A request that a gate may belong to, as it arrives at its callee.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Handled<'a> {
    pub(crate) span: SpanId,
    pub(crate) trace: TraceId,
    pub(crate) instance: &'a InstanceId,
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
}

/// A call that a gate may hold.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrival<'a> {
    pub(crate) caller: &'a InstanceId,
    pub(crate) parent: Option<SpanId>,
    pub(crate) trace: TraceId,
    pub(crate) callee: &'a ServiceName,
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
}

/// A held call's place in its series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ticket {
    handling: u64,
    place: usize,
}

impl Ticket {
    /// The ticket of a call whose place only the tool knows.
    pub(crate) fn of_tool(number: u64) -> Self {
        Self { handling: number, place: 0 }
    }

    /// The number it was made with.
    pub(crate) fn number(self) -> u64 {
        self.handling
    }
}

/// All gates of a slot.
#[derive(Debug)]
pub(crate) struct Sequencer {
    gates: Vec<Gate>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    handlings: Vec<Handling>,
    reports: Vec<GateReport>,
}

#[derive(Debug)]
struct Handling {
    key: u64,
    gate: usize,
    span: SpanId,
    trace: TraceId,
    instance: InstanceId,
    places: Vec<Place>,
    seen: Vec<u32>,
    /// The place whose turn it is, once all have arrived.
    turn: Option<usize>,
    deadline: Instant,
    reported: bool,
}

#[derive(Debug)]
enum Place {
    Missing,
    Held(oneshot::Sender<()>),
    Released,
    Answered,
    Gone,
}

/// More handlings at once than any test makes; later ones pass freely.
const MAX_HANDLINGS: usize = 4096;

impl Sequencer {
    pub(crate) fn new(gates: Vec<Gate>) -> Self {
        Self { gates, state: Mutex::default() }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.gates.is_empty()
    }

    /// A request has arrived at an instance whose handling of it makes a series.
    pub(crate) fn begin(&self, handled: Handled<'_>, now: Instant) {
        for (index, gate) in self.gates.iter().enumerate() {
            if gate.from != handled.instance.service || !gate.handling.matches(handled.method, handled.path) {
                continue;
            }
            let mut state = self.lock();
            if state.handlings.len() >= MAX_HANDLINGS {
                return;
            }
            state.next += 1;
            let handling = Handling {
                key: state.next,
                gate: index,
                span: handled.span,
                trace: handled.trace,
                instance: handled.instance.clone(),
                places: gate.order.iter().map(|_| Place::Missing).collect(),
                seen: vec![0; gate.order.len()],
                turn: None,
                deadline: now + gate.wait,
                reported: false,
            };
            state.handlings.push(handling);
        }
    }

    /// A call has arrived: gives its place and what to wait for, when a gate holds it.
    pub(crate) fn arrive(
        &self,
        arrival: Arrival<'_>,
        now: Instant,
    ) -> Option<(Ticket, oneshot::Receiver<()>)> {
        let mut guard = self.lock();
        let state = &mut *guard;
        let index = self.handling_of(state, &arrival)?;
        let handling = &mut state.handlings[index];
        let gate = &self.gates[handling.gate];
        let mut found = None;
        for (place, call) in gate.order.iter().enumerate() {
            if call.callee != *arrival.callee || !call.operation.matches(arrival.method, arrival.path) {
                continue;
            }
            handling.seen[place] += 1;
            let open = found.is_none() && matches!(handling.places[place], Place::Missing);
            if open && handling.seen[place] == call.ordinal {
                found = Some(place);
            }
        }
        let place = found.filter(|_| !handling.reported)?;
        let (release, released) = oneshot::channel();
        handling.places[place] = Place::Held(release);
        handling.deadline = now + gate.wait;
        let ticket = Ticket { handling: handling.key, place };
        let report = handling.advance(gate, now);
        state.reports.extend(report);
        Some((ticket, released))
    }

    /// The answer of a held call has reached the caller, or the caller has gone.
    pub(crate) fn answered(&self, ticket: Ticket, now: Instant) {
        let mut guard = self.lock();
        let state = &mut *guard;
        let Some(handling) = state.handlings.iter_mut().find(|handling| handling.key == ticket.handling)
        else {
            return;
        };
        let place = &mut handling.places[ticket.place];
        *place = if matches!(place, Place::Held(_)) { Place::Gone } else { Place::Answered };
        let report = handling.advance(&self.gates[handling.gate], now);
        state.reports.extend(report);
    }

    /// The handling of a request has ended: whatever it did not call is missing.
    pub(crate) fn ended(&self, span: SpanId) {
        let mut guard = self.lock();
        let state = &mut *guard;
        state.handlings.retain_mut(|handling| {
            if handling.span != span {
                return true;
            }
            let gate = &self.gates[handling.gate];
            if !handling.reported {
                let missing = handling.missing(gate);
                let outcome = match handling.gone(gate) {
                    Some(call) if missing.is_empty() => GateOutcome::Unanswered { call },
                    _ => GateOutcome::Missing { missing },
                };
                state.reports.push(GateReport { gate: gate.id, outcome });
            }
            false
        });
    }

    /// When the wait of a held call is over, unless something moves before; none when it is released.
    pub(crate) fn deadline(&self, ticket: Ticket) -> Option<Instant> {
        let state = self.lock();
        let handling = state.handlings.iter().find(|handling| handling.key == ticket.handling)?;
        matches!(handling.places[ticket.place], Place::Held(_)).then_some(handling.deadline)
    }

    /// Gives up a series whose wait is over, says why, and lets its calls go.
    pub(crate) fn expire(&self, ticket: Ticket, now: Instant) {
        let mut guard = self.lock();
        let state = &mut *guard;
        let Some(handling) = state.handlings.iter_mut().find(|handling| handling.key == ticket.handling)
        else {
            return;
        };
        if handling.reported || now < handling.deadline {
            return;
        }
        let gate = &self.gates[handling.gate];
        let outcome = handling.why_stuck(gate);
        state.reports.push(GateReport { gate: gate.id, outcome });
        handling.let_go();
    }

    /// A report of a proxy was lost: says so for each gate and lets all calls go.
    pub(crate) fn lost(&self) {
        let mut guard = self.lock();
        let state = &mut *guard;
        state.reports.extend(
            self.gates.iter().map(|gate| GateReport { gate: gate.id, outcome: GateOutcome::ReportLost }),
        );
        for handling in &mut state.handlings {
            handling.let_go();
        }
    }

    /// Takes what has been found out so far.
    pub(crate) fn take_reports(&self) -> Vec<GateReport> {
        std::mem::take(&mut self.lock().reports)
    }

    fn handling_of(&self, state: &State, arrival: &Arrival<'_>) -> Option<usize> {
        let of_caller = |handling: &&Handling| handling.instance == *arrival.caller;
        // Several gates may watch one handling; the first that names the call holds it.
        let names = |handling: &Handling| {
            let order = &self.gates[handling.gate].order;
            order
                .iter()
                .any(|c| c.callee == *arrival.callee && c.operation.matches(arrival.method, arrival.path))
        };
        let position = |wanted: &dyn Fn(&Handling) -> bool| {
            state.handlings.iter().position(|h| of_caller(&h) && wanted(h) && names(h))
        };
        if let Some(parent) = arrival.parent
            && let Some(index) = position(&|handling| handling.span == parent)
        {
            return Some(index);
        }
        // A service with tracing of its own names a parent that the mesh has not seen; its trace tells.
        let of_trace = |handling: &Handling| handling.trace == arrival.trace;
        let mut spans = state.handlings.iter().filter(of_caller).filter(|h| of_trace(h)).map(|h| h.span);
        let first = spans.next()?;
        if spans.any(|span| span != first) { None } else { position(&of_trace) }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Handling {
    /// Releases whatever may go now; reports when the last one goes.
    fn advance(&mut self, gate: &Gate, now: Instant) -> Option<GateReport> {
        if self.reported || self.places.iter().any(|place| matches!(place, Place::Missing)) {
            return None;
        }
        let mut turn = self.turn.unwrap_or(0);
        while let Some(place) = self.places.get_mut(turn) {
            match place {
                Place::Answered | Place::Gone => turn += 1,
                Place::Held(_) => {
                    if let Place::Held(release) = std::mem::replace(place, Place::Released)
                        && release.send(()).is_err()
                    {
                        *place = Place::Gone;
                        continue;
                    }
                    self.deadline = now + gate.wait;
                    break;
                }
                Place::Released | Place::Missing => break,
            }
        }
        self.turn = Some(turn);
        if turn + 1 < self.places.len() {
            return None;
        }
        self.reported = true;
        let outcome = match self.gone(gate) {
            Some(call) => GateOutcome::Unanswered { call },
            None => GateOutcome::Completed,
        };
        Some(GateReport { gate: gate.id, outcome })
    }

    fn missing(&self, gate: &Gate) -> Vec<CallName> {
        self.named(gate, |place| matches!(place, Place::Missing))
    }

    fn gone(&self, gate: &Gate) -> Option<CallName> {
        self.named(gate, |place| matches!(place, Place::Gone)).into_iter().next()
    }

    fn named(&self, gate: &Gate, wanted: impl Fn(&Place) -> bool) -> Vec<CallName> {
        gate.order
            .iter()
            .zip(&self.places)
            .filter(|(_, place)| wanted(place))
            .map(|(call, _)| call.clone())
            .collect()
    }

    fn why_stuck(&self, gate: &Gate) -> GateOutcome {
        if let Some(call) = self.turn.and_then(|turn| gate.order.get(turn)) {
            return GateOutcome::Unanswered { call: call.clone() };
        }
        let missing = self.missing(gate);
        let arrived = self.named(gate, |place| !matches!(place, Place::Missing));
        // A caller with two calls held at once is not synchronous. When all it still owes go to callees
        // that hold some already, its client may have no connection left for them.
        let shares = |call: &CallName| arrived.iter().any(|held| held.callee == call.callee);
        if arrived.len() >= 2 && missing.iter().all(shares) {
            return GateOutcome::PoolExhausted { missing };
        }
        GateOutcome::Synchronous { arrived, missing }
    }

    fn let_go(&mut self) {
        self.reported = true;
        for place in &mut self.places {
            if let Place::Held(release) = std::mem::replace(place, Place::Released) {
                let _ = release.send(());
            }
        }
    }
}

#[cfg(test)]
#[path = "sequencer_tests.rs"]
mod tests;
