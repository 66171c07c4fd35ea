//! Decisions that hold for a whole slot, wherever its proxies run: names, rule occurrences and gates.
//!
//! Proxies ask through [`Steering`]. In the tool's own process the answer is there at once; a sidecar asks
//! the tool and waits. Proxies must not keep counters of their own beside it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use faultscope_model::perturbation::TargetId;
use faultscope_model::rule::{Effect, Rule};
use faultscope_model::series::{Gate, GateReport};
use faultscope_model::wiring::OutageMode;
use faultscope_model::{InstanceId, NotApplied, ServiceName, Span, SpanId};
use futures_util::future::BoxFuture;
use tokio::time::Instant;

use crate::call_count::{ArmedOutage, CallCount};
use crate::call_identity::{ArrivingCall, CallIdentities, CallIdentity};
use crate::reports::RuleHits;
use crate::sequencer::{Arrival, Handled, Sequencer, Ticket};

/// An answer that is there, or comes from the tool.
pub(crate) enum Answer<T> {
    Now(T),
    Later(BoxFuture<'static, T>),
}

/// A held call: its place, and what it waits for.
pub(crate) struct Hold {
    pub(crate) ticket: Ticket,
    pub(crate) release: BoxFuture<'static, ()>,
}

/// What is known of a call once it was counted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// Its name, where calls are named.
    pub(crate) target: Option<TargetId>,
    /// The rules that take effect, by index.
    pub(crate) rules: Vec<usize>,
}

/// An instance that takes no new calls until this is dropped, whoever drops it and for whatever reason.
pub(crate) struct ClosedInstance {
    open: Option<Box<dyn FnOnce() + Send>>,
}

/// Who counts, names and sequences for a slot.
pub(crate) trait Steering: Send + Sync + fmt::Debug {
    /// Counts and names a call that these rules select, by index, their targets aside.
    fn count(&self, selected: &[usize], arrived: &ArrivingCall<'_>) -> Answer<Verdict>;
    /// Notes that a rule did something to a call.
    fn applied(&self, rule: usize);
    /// Notes why a rule could do nothing to its call.
    fn missed(&self, rule: usize, why: NotApplied);
    /// A call will not have its good answer, which its caller does not know yet.
    fn failing(&self, span: SpanId);
    /// A call has ended.
    fn finished(&self, span: &Span);
    /// A call is sent a second time; gives when that may go to its instance.
    fn twin(&self, of: SpanId, twin: SpanId) -> Answer<()>;
    /// Closes an instance for new calls and waits until it handles nothing but this one.
    fn close(
        &self,
        instance: &InstanceId,
        span: SpanId,
    ) -> BoxFuture<'static, Result<ClosedInstance, NotApplied>>;
    /// Counts a call to a service; gives the outage that begins with it.
    fn count_call(&self, callee: &ServiceName) -> Answer<Option<OutageMode>>;
    /// Counts calls from now on, and begins outages with some of them.
    fn begin_counting(&self, _armed: Vec<ArmedOutage>) {}
    /// Stops counting, and gives the calls to each service.
    fn stop_counting(&self) -> BTreeMap<ServiceName, u32> {
        BTreeMap::new()
    }
    /// Notes that a listener of a service should refuse connections and cannot.
    fn note_unrefused(&self, callee: &ServiceName);
    /// Takes the services with such listeners.
    fn take_unrefused(&self) -> BTreeSet<ServiceName> {
        BTreeSet::new()
    }
    /// From now on calls are neither named nor touched.
    fn calm(&self) {}
    /// Whether there are gates at all.
    fn has_gates(&self) -> bool;
    /// A request has arrived at its callee.
    fn begin(&self, handled: Handled<'_>) -> Answer<()>;
    /// A call has arrived; gives what holds it.
    fn arrive(&self, arrival: Arrival<'_>) -> Option<Hold>;
    /// The answer of a held call has reached its caller.
    fn answered(&self, ticket: Ticket);
    /// The handling of a request has ended.
    fn ended(&self, span: SpanId);
    /// A report was lost: nothing that gates show in this trial can be trusted.
    fn lost(&self);
    /// Takes what became of the gates.
    fn take_gates(&self) -> Vec<GateReport>;
    /// Takes how often rules were met.
    fn take_rules(&self) -> Vec<RuleHits>;
}

/// Steering within this process.
#[derive(Debug)]
pub(crate) struct LocalSteering {
    rules: Arc<Vec<Counted>>,
    first: Mutex<HashMap<(usize, InstanceId, String), u32>>,
    /// There where calls are named.
    identities: Option<Arc<CallIdentities>>,
    is_calm: AtomicBool,
    calls: Mutex<CallCount>,
    unrefused: Mutex<BTreeSet<ServiceName>>,
    sequencer: Arc<Sequencer>,
}

#[derive(Debug)]
struct Counted {
    rule: Rule,
    seen: AtomicU32,
    matched: AtomicU64,
    applied: AtomicU64,
    note: Mutex<Option<NotApplied>>,
}

/// Callers and operations that one trial's `error first` rules tell apart; more are not made to fail.
const MAX_FIRST: usize = 65_536;

// === impl ClosedInstance ===

impl ClosedInstance {
    pub(crate) fn new(open: impl FnOnce() + Send + 'static) -> Self {
        Self { open: Some(Box::new(open)) }
    }
}

impl Drop for ClosedInstance {
    fn drop(&mut self) {
        if let Some(open) = self.open.take() {
            open();
        }
    }
}

// === impl LocalSteering ===

impl LocalSteering {
    pub(crate) fn new(rules: &[Rule], gates: &[Gate], targets: bool) -> Self {
        let counted = |rule: &Rule| Counted {
            rule: rule.clone(),
            seen: AtomicU32::new(0),
            matched: AtomicU64::new(0),
            applied: AtomicU64::new(0),
            note: Mutex::default(),
        };
        Self {
            rules: Arc::new(rules.iter().map(counted).collect()),
            first: Mutex::default(),
            identities: targets.then(Arc::default),
            is_calm: AtomicBool::new(false),
            calls: Mutex::default(),
            unrefused: Mutex::default(),
            sequencer: Arc::new(Sequencer::new(gates.to_vec())),
        }
    }

    fn is_among_first(
        &self,
        index: usize,
        count: u32,
        caller: &InstanceId,
        method: &str,
        path: &str,
    ) -> bool {
        let operation = match &self.rules[index].rule.select.operation {
            Some(pattern) => pattern.to_string(),
            None => [method, path.split('?').next().unwrap_or_default()].join(" "),
        };
        let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (index, caller.clone(), operation);
        if first.len() >= MAX_FIRST && !first.contains_key(&key) {
            return false;
        }
        let seen = first.entry(key).or_default();
        *seen = seen.saturating_add(1);
        *seen <= count
    }

    /// Which of the rules take effect on a call; for a named one, all attempts at it count together.
    fn effective(
        &self,
        selected: &[usize],
        arrived: &ArrivingCall<'_>,
        identity: Option<&CallIdentity>,
    ) -> Vec<usize> {
        let takes_effect = |index: &usize| {
            let Some(counted) = self.rules.get(*index) else {
                return false;
            };
            let select = &counted.rule.select;
            if select.target.as_ref().is_some_and(|wanted| identity.is_none_or(|n| n.target != *wanted)) {
                return false;
            }
            let turn = counted.seen.fetch_add(1, Ordering::Relaxed).saturating_add(1);
            if !select.occurrence.covers(turn) {
                return false;
            }
            counted.matched.fetch_add(1, Ordering::Relaxed);
            match (&counted.rule.effect, identity.filter(|_| select.target.is_some())) {
                (Effect::ErrorFirst { count, .. }, Some(identity)) => identity.attempt <= *count,
                (Effect::ErrorFirst { count, .. }, None) => {
                    self.is_among_first(*index, *count, arrived.caller, arrived.method, arrived.path)
                }
                _ => true,
            }
        };
        selected.iter().copied().filter(takes_effect).collect()
    }
}

impl Steering for LocalSteering {
    fn count(&self, selected: &[usize], arrived: &ArrivingCall<'_>) -> Answer<Verdict> {
        if self.is_calm.load(Ordering::Acquire) {
            return Answer::Now(Verdict::default());
        }
        let identities = self.identities.as_ref().filter(|_| arrived.is_request);
        let identity = identities.and_then(|identities| identities.identify(arrived));
        let rules = self.effective(selected, arrived, identity.as_ref());
        let (Some(identities), Some(CallIdentity { target, .. })) = (identities, identity) else {
            return Answer::Now(Verdict { target: None, rules });
        };
        let effect = |rule: &usize| &self.rules[*rule].rule.effect;
        let refuses = |e: &Effect| {
            matches!(
                e,
                Effect::Abort { .. } | Effect::ErrorFirst { .. } | Effect::Drop | Effect::Timeout { .. }
            )
        };
        let is_refused = rules.iter().map(effect).any(refuses);
        if is_refused || rules.iter().map(effect).any(|e| *e == Effect::LostAnswer) {
            // Known before its caller can know: what looks like this call from now on is its retry.
            identities.failing(arrived.span);
        }
        let within = |rule: &usize| match effect(rule) {
            Effect::Reorder { within } => Some((*rule, *within)),
            _ => None,
        };
        let reorder = rules.iter().find_map(within).filter(|_| !is_refused);
        let (span, instance) = (arrived.span, arrived.instance.cloned());
        let verdict = Verdict { target: Some(target.clone()), rules };
        if reorder.is_none() && (is_refused || identities.try_enter(span, arrived.instance)) {
            return Answer::Now(verdict);
        }
        let (identities, counted, callee) =
            (Arc::clone(identities), Arc::clone(&self.rules), arrived.callee.clone());
        Answer::Later(Box::pin(async move {
            if let Some((rule, within)) = reorder {
                match identities.overtaken(&target, &callee, within).await {
                    true => counted[rule].apply(),
                    false => counted[rule].miss(NotApplied::NothingOvertook),
                }
            }
            identities.enter(span, instance).await;
            verdict
        }))
    }

    fn applied(&self, rule: usize) {
        if let Some(counted) = self.rules.get(rule) {
            counted.apply();
        }
    }

    fn missed(&self, rule: usize, why: NotApplied) {
        if let Some(counted) = self.rules.get(rule) {
            counted.miss(why);
        }
    }

    fn failing(&self, span: SpanId) {
        if let Some(identities) = &self.identities {
            identities.failing(span);
        }
    }

    fn finished(&self, span: &Span) {
        if let Some(identities) = &self.identities {
            identities.finished(span.id, span.failed());
        }
    }

    fn twin(&self, of: SpanId, twin: SpanId) -> Answer<()> {
        let Some(identities) = &self.identities else { return Answer::Now(()) };
        let instance = identities.identify_twin(of, twin);
        if identities.try_enter(twin, instance.as_ref()) {
            return Answer::Now(());
        }
        let identities = Arc::clone(identities);
        Answer::Later(Box::pin(async move { identities.enter(twin, instance).await }))
    }

    fn close(
        &self,
        instance: &InstanceId,
        span: SpanId,
    ) -> BoxFuture<'static, Result<ClosedInstance, NotApplied>> {
        match &self.identities {
            Some(identities) => Box::pin(Arc::clone(identities).close(instance.clone(), span)),
            // Where calls are not named, nobody knows which of them are at an instance.
            None => Box::pin(async { Ok(ClosedInstance::new(|| {})) }),
        }
    }

    fn count_call(&self, callee: &ServiceName) -> Answer<Option<OutageMode>> {
        let is_calm = self.is_calm.load(Ordering::Acquire);
        Answer::Now(if is_calm { None } else { lock(&self.calls).count(callee) })
    }

    fn begin_counting(&self, armed: Vec<ArmedOutage>) {
        lock(&self.calls).begin(armed);
    }

    fn stop_counting(&self) -> BTreeMap<ServiceName, u32> {
        let mut calls = lock(&self.calls);
        calls.stop();
        calls.calls().clone()
    }

    fn note_unrefused(&self, callee: &ServiceName) {
        lock(&self.unrefused).insert(callee.clone());
    }

    fn take_unrefused(&self) -> BTreeSet<ServiceName> {
        std::mem::take(&mut *lock(&self.unrefused))
    }

    fn calm(&self) {
        self.is_calm.store(true, Ordering::Release);
    }

    fn has_gates(&self) -> bool {
        !self.sequencer.is_idle()
    }

    fn begin(&self, handled: Handled<'_>) -> Answer<()> {
        self.sequencer.begin(handled, Instant::now());
        Answer::Now(())
    }

    fn arrive(&self, arrival: Arrival<'_>) -> Option<Hold> {
        let (ticket, mut released) = self.sequencer.arrive(arrival, Instant::now())?;
        let sequencer = Arc::clone(&self.sequencer);
        let release = Box::pin(async move {
            while let Some(deadline) = sequencer.deadline(ticket) {
                tokio::select! {
                    _ = &mut released => return,
                    () = tokio::time::sleep_until(deadline) => sequencer.expire(ticket, Instant::now()),
                }
            }
        });
        Some(Hold { ticket, release })
    }

    fn answered(&self, ticket: Ticket) {
        self.sequencer.answered(ticket, Instant::now());
    }

    fn ended(&self, span: SpanId) {
        self.sequencer.ended(span);
    }

    fn lost(&self) {
        self.sequencer.lost();
    }

    fn take_gates(&self) -> Vec<GateReport> {
        self.sequencer.take_reports()
    }

    fn take_rules(&self) -> Vec<RuleHits> {
        let hits = |counted: &Counted| RuleHits {
            rule: counted.rule.id,
            matched: counted.matched.swap(0, Ordering::Relaxed),
            applied: counted.applied.swap(0, Ordering::Relaxed),
            note: counted.note().take(),
        };
        self.rules.iter().map(hits).collect()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The data stays whole whatever panicked, as all changes are single steps.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

// === impl Counted ===

impl Counted {
    fn apply(&self) {
        self.applied.fetch_add(1, Ordering::Relaxed);
    }

    fn miss(&self, why: NotApplied) {
        *self.note() = Some(why);
    }

    fn note(&self) -> std::sync::MutexGuard<'_, Option<NotApplied>> {
        self.note.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
