//! What a slot's mesh remembers during one trial: who handles what, whose turn it is, how much was called.
//!
//! Everything here is shared by all workers and begins anew with each `configure`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use faultscope_model::wiring::Wiring;
use faultscope_model::{InstanceId, ServiceName, SpanId, TraceId};

use crate::dice::Dice;
use crate::recording::OpenCalls;
use crate::reports::MeshReports;
use crate::steering::Steering;

/// The memory of one trial.
#[derive(Debug)]
pub(crate) struct Trial {
    number: u64,
    pub(crate) ids: Dice,
    pub(crate) choices: Dice,
    pub(crate) jitter: Dice,
    pub(crate) loss: Dice,
    pub(crate) steering: Arc<dyn Steering>,
    pub(crate) open_calls: OpenCalls,
    /// Hosts that nobody declared, with who asked for them: each is noted once.
    undeclared: Mutex<BTreeSet<(InstanceId, String)>>,
    instances: Mutex<BTreeMap<InstanceId, Arc<Instance>>>,
    turns: Mutex<BTreeMap<ServiceName, Arc<AtomicUsize>>>,
    pairs: Mutex<BTreeMap<(ServiceName, ServiceName), Arc<Pair>>>,
    protocols: Mutex<Protocols>,
    traced: AtomicBool,
}

type Protocols = BTreeMap<(ServiceName, u16), Option<Vec<u8>>>;

/// One instance, as one that is called and one that calls.
#[derive(Debug, Default)]
pub(crate) struct Instance {
    busy: AtomicUsize,
    /// How often a rule restarted it.
    restarts: AtomicU64,
    /// The requests it handles now. The lock is held for a push or a removal only.
    handles: Mutex<Vec<(TraceId, SpanId)>>,
}

/// A connection's hold on an instance, which a restart by a rule ends.
#[derive(Debug, Clone, Default)]
pub(crate) struct Lease(pub(crate) Option<(Arc<Instance>, u64)>);

impl Lease {
    /// Whether the connection ended because a rule restarted its instance: the caller's own is not concerned.
    pub(crate) fn is_over(&self) -> bool {
        self.0.as_ref().is_some_and(|(instance, restarts)| instance.restarts() != *restarts)
    }
}

/// What an instance was doing when it made a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Doing {
    Nothing,
    One(TraceId, SpanId),
    Several,
}

/// Counts of the calls from one service to another.
#[derive(Debug, Default)]
pub(crate) struct Pair {
    pub(crate) calls: AtomicU64,
    pub(crate) without_context: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) exports: AtomicU64,
}

/// Undeclared hosts that one trial notes; a service that asks for more is not described better by them.
const MAX_UNDECLARED: usize = 1000;

// === impl Trial ===

impl Trial {
    pub(crate) fn new(wiring: &Wiring, steering: Arc<dyn Steering>) -> Self {
        static TRIALS: AtomicU64 = AtomicU64::new(1);
        Self {
            number: TRIALS.fetch_add(1, Ordering::Relaxed),
            ids: Dice::new(wiring.seed ^ wiring.campaign, 1),
            choices: Dice::new(wiring.seed, 2),
            jitter: Dice::new(wiring.seed, 3),
            loss: Dice::new(wiring.seed, 4),
            steering,
            open_calls: OpenCalls::default(),
            undeclared: Mutex::default(),
            instances: Mutex::default(),
            turns: Mutex::default(),
            pairs: Mutex::default(),
            protocols: Mutex::default(),
            traced: AtomicBool::new(false),
        }
    }

    /// Distinguishes trials, so that late reports are not taken for those of the next one.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn instance(&self, id: &InstanceId) -> Arc<Instance> {
        Arc::clone(lock(&self.instances).entry(id.clone()).or_default())
    }

    /// The counter whose turns choose the instances of a service.
    pub(crate) fn turns(&self, service: &ServiceName) -> Arc<AtomicUsize> {
        Arc::clone(lock(&self.turns).entry(service.clone()).or_default())
    }

    pub(crate) fn pair(&self, caller: &ServiceName, callee: &ServiceName) -> Arc<Pair> {
        Arc::clone(lock(&self.pairs).entry((caller.clone(), callee.clone())).or_default())
    }

    /// The protocol that a port chose within TLS, once it was asked.
    pub(crate) fn protocol_within_tls(&self, callee: &ServiceName, port: u16) -> Option<Option<Vec<u8>>> {
        lock(&self.protocols).get(&(callee.clone(), port)).cloned()
    }

    pub(crate) fn set_protocol_within_tls(&self, callee: &ServiceName, port: u16, protocol: Option<Vec<u8>>) {
        lock(&self.protocols).insert((callee.clone(), port), protocol);
    }

    /// A service handed on a context: one that is not ours is of a span that it will report itself.
    pub(crate) fn handed_on(&self, caller: &Instance, span: SpanId) {
        if !self.traced.load(Ordering::Relaxed) && !caller.handles(span) {
            self.traced.store(true, Ordering::Relaxed);
        }
    }

    /// Callers and callees so far, without what tests call.
    pub(crate) fn called(&self) -> BTreeSet<(ServiceName, ServiceName)> {
        let pairs = lock(&self.pairs);
        let is_called = |pair: &Pair| pair.calls.load(Ordering::Relaxed) > 0;
        let called = pairs.iter().filter(|(_, pair)| is_called(pair)).map(|(names, _)| names.clone());
        called.filter(|(caller, _)| caller.as_str() != ServiceName::TEST).collect()
    }

    /// Whether a caller asks for an undeclared host for the first time in this trial.
    pub(crate) fn note_undeclared(&self, caller: &InstanceId, host: &str) -> bool {
        let mut undeclared = lock(&self.undeclared);
        undeclared.len() < MAX_UNDECLARED && undeclared.insert((caller.clone(), host.to_owned()))
    }

    /// Takes all counts and reports.
    pub(crate) fn take_reports(&self) -> MeshReports {
        let mut reports = MeshReports {
            gates: self.steering.take_gates(),
            rules: self.steering.take_rules(),
            traced: self.traced.load(Ordering::Relaxed),
            unrefused: self.steering.take_unrefused(),
            ..MeshReports::default()
        };
        for ((caller, callee), pair) in lock(&self.pairs).iter() {
            let calls = pair.calls.swap(0, Ordering::Relaxed);
            if calls > 0 {
                reports.calls.insert((caller.clone(), callee.clone()), calls);
            }
            let without_context = pair.without_context.swap(0, Ordering::Relaxed);
            if without_context > 0 {
                *reports.without_context.entry(caller.clone()).or_default() += without_context;
            }
            let exports = pair.exports.swap(0, Ordering::Relaxed);
            if exports > 0 {
                *reports.exports.entry(callee.clone()).or_default() += exports;
            }
            let refused = pair.refused.swap(0, Ordering::Relaxed);
            if refused > 0 {
                *reports.externals_refused.entry(callee.clone()).or_default() += refused;
            }
        }
        reports
    }
}

// === impl Instance ===

impl Instance {
    /// How many calls it has in flight.
    pub(crate) fn busy(&self) -> usize {
        self.busy.load(Ordering::Relaxed)
    }

    /// It was chosen for a call.
    pub(crate) fn reserve(&self) {
        self.busy.fetch_add(1, Ordering::Relaxed);
    }

    /// The call it was chosen for has ended.
    pub(crate) fn release(&self) {
        self.busy.fetch_sub(1, Ordering::Relaxed);
    }

    /// A rule restarts it: connections to it end for that reason.
    pub(crate) fn note_restart(&self) {
        self.restarts.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn restarts(&self) -> u64 {
        self.restarts.load(Ordering::Acquire)
    }

    /// It gets a request.
    pub(crate) fn begin(&self, trace: TraceId, span: SpanId) {
        lock(&self.handles).push((trace, span));
    }

    /// Its answer is complete, or the call broke.
    pub(crate) fn end(&self, span: SpanId) {
        let mut handles = lock(&self.handles);
        if let Some(place) = handles.iter().position(|(_, id)| *id == span) {
            handles.swap_remove(place);
        }
    }

    fn handles(&self, span: SpanId) -> bool {
        lock(&self.handles).iter().any(|(_, id)| *id == span)
    }

    pub(crate) fn doing(&self) -> Doing {
        match lock(&self.handles).as_slice() {
            [] => Doing::Nothing,
            [(trace, span)] => Doing::One(*trace, *span),
            _ => Doing::Several,
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The data stays whole whatever panicked, as all changes are single steps.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
