//! The identity of calls: the name of each in every run, which attempt at it this is, and which instance it is at.
//!
//! A call is named by the call in whose handling it was made, its callee and operation, and its number among
//! equal ones. A call that follows an equal one which failed is another attempt at that one, not a further
//! call, so that a retry does not shift the names of what comes after it.
//!
//! Restarts and reorderings rest on the same knowledge: an instance is restarted between requests, as an
//! actor is between messages, and requests that arrive meanwhile wait. A plain state machine under one lock
//! that is never held across an await.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use faultscope_model::perturbation::{TargetId, masked_operation};
use faultscope_model::{InstanceId, NotApplied, ServiceName, SpanId, TraceId};
use tokio::sync::Notify;

use crate::steering::ClosedInstance;

/// A call as it arrives at its proxy.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ArrivingCall<'a> {
    pub(crate) span: SpanId,
    pub(crate) trace: TraceId,
    pub(crate) parent: Option<SpanId>,
    pub(crate) caller: &'a InstanceId,
    pub(crate) callee: &'a ServiceName,
    pub(crate) instance: Option<&'a InstanceId>,
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
    /// Whether it is a request, and not a bare connection.
    pub(crate) is_request: bool,
}

/// A call's name, and the number of this attempt at it, from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CallIdentity {
    pub(crate) target: TargetId,
    pub(crate) attempt: u32,
}

/// The identities of all calls of one trial.
#[derive(Debug, Default)]
pub(crate) struct CallIdentities {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    calls: HashMap<SpanId, KnownCall>,
    equals: HashMap<EqualCalls, Vec<LatestAttempt>>,
    /// Calls that are at an instance or on the way to it.
    at: HashMap<InstanceId, HashSet<SpanId>>,
    /// Instances that are to be restarted, or are being so.
    closed: HashSet<InstanceId>,
    answered: HashMap<ServiceName, Vec<TargetId>>,
}

#[derive(Debug)]
struct KnownCall {
    target: TargetId,
    trace: TraceId,
    callee: ServiceName,
    instance: Option<InstanceId>,
    equal: Option<(EqualCalls, usize)>,
    is_over: bool,
}

/// Calls of one cause to one callee that are alike.
type EqualCalls = (TargetId, ServiceName, String);

/// The latest attempt at one of several equal calls.
#[derive(Debug)]
struct LatestAttempt {
    span: SpanId,
    attempts: u32,
    has_failed: bool,
}

/// Calls that get names in one trial; later ones have none.
const MAX_CALLS: usize = 200_000;

/// How long a restart waits until its instance handles nothing else.
const ALONE_WITHIN: Duration = Duration::from_secs(2);

/// How long a call waits for its instance to come back.
const BACK_WITHIN: Duration = Duration::from_secs(60);

impl CallIdentities {
    /// Names a call.
    pub(crate) fn identify(&self, arrived: &ArrivingCall<'_>) -> Option<CallIdentity> {
        let mut guard = self.lock();
        let state = &mut *guard;
        if state.calls.len() >= MAX_CALLS {
            return None;
        }
        let cause = state.cause(arrived);
        let operation = masked_operation(arrived.method, arrived.path);
        let equal: EqualCalls = (cause, arrived.callee.clone(), operation);
        let lasts = state.equals.entry(equal.clone()).or_default();
        let place = match lasts.iter().position(|last| last.has_failed) {
            Some(place) => {
                let last = &mut lasts[place];
                (last.span, last.has_failed) = (arrived.span, false);
                last.attempts += 1;
                place
            }
            None => {
                lasts.push(LatestAttempt { span: arrived.span, attempts: 1, has_failed: false });
                lasts.len() - 1
            }
        };
        let attempt = lasts[place].attempts;
        let ordinal = u32::try_from(place + 1).unwrap_or(u32::MAX);
        let target = equal.0.call(arrived.callee.as_str(), arrived.method, arrived.path, ordinal);
        state.calls.insert(
            arrived.span,
            KnownCall {
                target: target.clone(),
                trace: arrived.trace,
                callee: arrived.callee.clone(),
                instance: arrived.instance.cloned(),
                equal: Some((equal, place)),
                is_over: false,
            },
        );
        Some(CallIdentity { target, attempt })
    }

    /// Names the second sending of a call.
    pub(crate) fn identify_twin(&self, of: SpanId, twin: SpanId) -> Option<InstanceId> {
        let mut state = self.lock();
        let known = state.calls.get(&of)?;
        let copy = KnownCall {
            target: known.target.again(),
            trace: known.trace,
            callee: known.callee.clone(),
            instance: known.instance.clone(),
            equal: None,
            is_over: false,
        };
        let instance = copy.instance.clone();
        state.calls.insert(twin, copy);
        instance
    }

    /// A call will not have its good answer: what looks like it from now on is another attempt.
    pub(crate) fn failing(&self, span: SpanId) {
        self.lock().failing(span);
    }

    /// A call has ended.
    pub(crate) fn finished(&self, span: SpanId, failed: bool) {
        {
            let mut guard = self.lock();
            let state = &mut *guard;
            if failed {
                state.failing(span);
            }
            let Some(known) = state.calls.get_mut(&span) else { return };
            known.is_over = true;
            if let Some(instance) = &known.instance
                && let Some(here) = state.at.get_mut(instance)
            {
                here.remove(&span);
            }
            if !failed {
                let (callee, target) = (known.callee.clone(), known.target.clone());
                state.answered.entry(callee).or_default().push(target);
            }
        }
        self.changed.notify_waiters();
    }

    /// Lets a call go to its instance, if that is not to be restarted.
    pub(crate) fn try_enter(&self, span: SpanId, instance: Option<&InstanceId>) -> bool {
        let mut state = self.lock();
        let Some(instance) = instance else { return true };
        // The caller may have left while the call waited: nothing would take it from its instance again.
        if state.calls.get(&span).is_some_and(|known| known.is_over) {
            return true;
        }
        if state.closed.contains(instance) {
            return false;
        }
        state.at.entry(instance.clone()).or_default().insert(span);
        true
    }

    /// Waits until a call may go to its instance.
    pub(crate) async fn enter(&self, span: SpanId, instance: Option<InstanceId>) {
        self.until(BACK_WITHIN, || self.try_enter(span, instance.as_ref())).await;
    }

    /// Closes an instance for new calls and waits until it handles nothing but this one. It is open again
    /// when the guard is dropped, or this future before it gave one.
    pub(crate) async fn close(
        self: Arc<Self>,
        instance: InstanceId,
        span: SpanId,
    ) -> Result<ClosedInstance, NotApplied> {
        if !self.lock().closed.insert(instance.clone()) {
            return Err(NotApplied::ReceiverRestarting);
        }
        let identities = Arc::clone(&self);
        let closed = instance.clone();
        let guard = ClosedInstance::new(move || identities.open(&closed));
        // Whoever waits for this call's own answer cannot end before it.
        let is_cause = |state: &State, other: &SpanId| {
            let target = |span: &SpanId| state.calls.get(span).map(|known| &known.target);
            matches!((target(other), target(&span)), (Some(a), Some(b)) if a != b && a.is_related(b))
        };
        let mut waits_for_itself = false;
        let alone = self.until(ALONE_WITHIN, || {
            let state = self.lock();
            let others: Vec<_> =
                state.at.get(&instance).into_iter().flatten().filter(|s| **s != span).collect();
            waits_for_itself = others.iter().any(|other| is_cause(&state, other));
            others.is_empty() || waits_for_itself
        });
        match alone.await && !waits_for_itself {
            true => Ok(guard),
            false => Err(NotApplied::ReceiverBusy),
        }
    }

    fn open(&self, instance: &InstanceId) {
        self.lock().closed.remove(instance);
        self.changed.notify_waiters();
    }

    /// Waits until a call to the same callee, which neither led to this one nor comes from it, was answered;
    /// tells whether one was.
    pub(crate) async fn overtaken(&self, target: &TargetId, callee: &ServiceName, within: Duration) -> bool {
        let seen = self.lock().answered.get(callee).map_or(0, Vec::len);
        self.until(within, || {
            let state = self.lock();
            let answered = state.answered.get(callee).map_or(&[][..], Vec::as_slice);
            answered[seen.min(answered.len())..].iter().any(|other| !other.is_related(target))
        })
        .await
    }

    /// Waits until something has come true; tells whether it did in time.
    async fn until(&self, within: Duration, mut is_true: impl FnMut() -> bool) -> bool {
        let wait = async {
            loop {
                let mut changed = std::pin::pin!(self.changed.notified());
                // Registered before the look, so that no change is missed.
                changed.as_mut().enable();
                if is_true() {
                    return;
                }
                changed.await;
            }
        };
        tokio::time::timeout(within, wait).await.is_ok()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The call in whose handling this one was made.
    fn cause(&self, arrived: &ArrivingCall<'_>) -> TargetId {
        if arrived.caller.service.as_str() == ServiceName::TEST {
            return TargetId::root();
        }
        if let Some(known) = arrived.parent.and_then(|parent| self.calls.get(&parent)) {
            return known.target.clone();
        }
        // A service with tracing of its own names a parent that the mesh has not seen; its trace tells.
        let mut of_trace = self.calls.values().filter(|known| {
            known.trace == arrived.trace && !known.is_over && known.instance.as_ref() == Some(arrived.caller)
        });
        match (of_trace.next(), of_trace.next()) {
            (Some(known), None) => known.target.clone(),
            _ => TargetId::of_its_own(arrived.caller.service.as_str()),
        }
    }

    fn failing(&mut self, span: SpanId) {
        let Some(known) = self.calls.get(&span) else { return };
        let last =
            known.equal.as_ref().and_then(|(equal, place)| self.equals.get_mut(equal)?.get_mut(*place));
        if let Some(last) = last.filter(|last| last.span == span) {
            last.has_failed = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct World {
        identities: Arc<CallIdentities>,
        next: u64,
    }

    impl World {
        fn new() -> Self {
            Self { identities: Arc::default(), next: 0 }
        }

        fn close(
            &self,
            instance: &InstanceId,
            span: u64,
        ) -> impl Future<Output = Result<ClosedInstance, NotApplied>> + use<> {
            Arc::clone(&self.identities).close(instance.clone(), SpanId(span))
        }

        fn call(&mut self, caller: &str, parent: Option<u64>, callee: &str) -> (u64, String) {
            self.next += 1;
            let (caller, callee): (InstanceId, ServiceName) =
                (caller.parse().unwrap(), callee.parse().unwrap());
            let instance = InstanceId::new(callee.clone(), 1);
            let identity = self.identities.identify(&ArrivingCall {
                span: SpanId(self.next),
                trace: TraceId(7),
                parent: parent.map(SpanId),
                caller: &caller,
                callee: &callee,
                instance: Some(&instance),
                method: "PUT",
                path: "/s/17",
                is_request: true,
            });
            assert!(self.identities.try_enter(SpanId(self.next), Some(&instance)));
            let CallIdentity { target, attempt } = identity.unwrap();
            (self.next, format!("{target} @{attempt}"))
        }
    }

    #[test]
    fn a_retry_is_another_attempt_at_the_same_call() {
        let mut world = World::new();
        let (order, name) = world.call("test-1", None, "order");
        assert_eq!(name, "order PUT /s/{} @1");
        let (first, name) = world.call("order-1", Some(order), "stock");
        assert_eq!(name, "order PUT /s/{} > stock PUT /s/{} @1");
        world.identities.failing(SpanId(first));
        let (retry, name) = world.call("order-1", Some(order), "stock");
        assert_eq!(name, "order PUT /s/{} > stock PUT /s/{} @2");
        // The end of the first attempt must not make a third of the second.
        world.identities.finished(SpanId(first), true);
        let (_, name) = world.call("order-1", Some(order), "stock");
        assert_eq!(name, "order PUT /s/{} > stock PUT /s/{} #2 @1");
        world.identities.finished(SpanId(retry), false);
        let (_, name) = world.call("order-1", Some(order), "stock");
        assert_eq!(name, "order PUT /s/{} > stock PUT /s/{} #3 @1");
    }

    #[test]
    fn a_parent_of_the_services_own_tracing_is_found_by_the_trace() {
        let mut world = World::new();
        world.call("test-1", None, "order");
        assert_eq!(world.call("order-1", Some(999), "stock").1, "order PUT /s/{} > stock PUT /s/{} @1");
        assert_eq!(
            world.call("stock-1", None, "log").1,
            "order PUT /s/{} > stock PUT /s/{} > log PUT /s/{} @1"
        );
        assert_eq!(world.call("other-1", None, "log").1, "(other) > log PUT /s/{} @1");
    }

    #[tokio::test(start_paused = true)]
    async fn an_instance_is_restarted_between_requests() {
        let mut world = World::new();
        let stock: InstanceId = "stock-1".parse().unwrap();
        let (own, _) = world.call("test-1", None, "stock");
        let (other, _) = world.call("test-1", None, "stock");
        let close = world.close(&stock, own);
        let ends = async {
            assert!(!world.identities.try_enter(SpanId(99), Some(&stock)), "new calls wait");
            world.identities.finished(SpanId(other), false);
        };
        let (closed, ()) = tokio::join!(close, ends);
        let closed = closed.unwrap();
        let (_, ()) = tokio::join!(world.identities.enter(SpanId(99), Some(stock.clone())), async {
            drop(closed);
        });
        // The one that entered is never done.
        assert!(world.close(&stock, own).await.is_err());
        assert!(world.identities.try_enter(SpanId(100), Some(&stock)), "and it is open again");
    }

    #[tokio::test(start_paused = true)]
    async fn a_restart_that_is_given_up_leaves_its_instance_open() {
        let mut world = World::new();
        let stock: InstanceId = "stock-1".parse().unwrap();
        let (own, _) = world.call("test-1", None, "stock");
        let (other, _) = world.call("test-1", None, "stock");
        let mut close = Box::pin(world.close(&stock, own));
        assert!(futures_util::poll!(close.as_mut()).is_pending(), "another request is being handled");
        assert!(!world.identities.try_enter(SpanId(99), Some(&stock)));
        drop(close);
        assert!(world.identities.try_enter(SpanId(99), Some(&stock)));
        world.identities.finished(SpanId(other), false);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_ended_while_it_waited_is_not_at_its_instance() {
        let mut world = World::new();
        let stock: InstanceId = "stock-1".parse().unwrap();
        let (own, _) = world.call("test-1", None, "stock");
        let (late, _) = world.call("test-1", None, "stock");
        // A sidecar reports the end of a call whose turn the tool still waits for.
        world.identities.finished(SpanId(late), true);
        assert!(world.identities.try_enter(SpanId(late), Some(&stock)));
        assert!(world.close(&stock, own).await.is_ok(), "nothing else is handled");
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_waits_for_an_unrelated_answer_only() {
        let mut world = World::new();
        let (order, _) = world.call("test-1", None, "order");
        let (first, name) = world.call("order-1", Some(order), "stock");
        let target = TargetId::from(name.trim_end_matches(" @1"));
        let (second, _) = world.call("order-1", Some(order), "stock");
        let stock: ServiceName = "stock".parse().unwrap();
        world.identities.finished(SpanId(first), false);
        let within = Duration::from_secs(1);
        assert!(!world.identities.overtaken(&target, &stock, within).await, "its own answer is no other");
        let (overtaken, ()) = tokio::join!(world.identities.overtaken(&target, &stock, within), async {
            world.identities.finished(SpanId(second), false);
        });
        assert!(overtaken);
    }
}
