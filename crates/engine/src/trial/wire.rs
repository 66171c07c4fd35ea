//! Connects platform, mesh and store: dialling, recording, restarting, and the wiring of a plan.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use faultscope_mesh::{Dialer, Recorder, Restarter};
use faultscope_model::plan::Plan;
use faultscope_model::record::OutcomeSampling;
use faultscope_model::recording::OutcomeSampler;
use faultscope_model::span::adopt_orphans;
use faultscope_model::wiring::{Balance, Caller, Endpoint, ExternalHost, RESOLVER, RecordLevel, Wiring};
use faultscope_model::{
    Application, CallError, InstanceId, RestartError, ServiceName, SlotId, Span, TrialId,
};
use faultscope_platform::{Action, Platform};
use faultscope_store::SpanSink;
use futures_util::future::BoxFuture;

use crate::record::OUTSIDE;
use crate::reflection::CalledService;

/// Adds a resolver for undeclared names to a plan, so that calls to external hosts are recorded
/// although they never begin.
pub(crate) fn answer_for_names(plan: &mut Plan) {
    let Ok(service) = RESOLVER.parse::<ServiceName>() else { return };
    plan.externals.push(ExternalHost {
        host: RESOLVER.to_owned(),
        service: service.clone(),
        allow: false,
        ports: vec![53],
    });
    plan.instances.iter_mut().for_each(|instance| instance.calls.push(service.clone()));
}

/// Dials instances of a slot through its platform.
pub(crate) struct PlatformDialer {
    pub(crate) platform: Arc<dyn Platform>,
    pub(crate) slot: SlotId,
}

impl Dialer for PlatformDialer {
    fn dial(
        &self,
        instance: &InstanceId,
        port: u16,
    ) -> BoxFuture<'static, std::io::Result<std::net::TcpStream>> {
        let (platform, slot, instance) = (self.platform.clone(), self.slot, instance.clone());
        Box::pin(async move { platform.dial(slot, &instance, port).await?.into_std() })
    }
}

/// Restarts instances of a slot through its platform.
pub(crate) struct PlatformRestarter {
    pub(crate) platform: Arc<dyn Platform>,
    pub(crate) slot: SlotId,
    pub(crate) runtime: tokio::runtime::Handle,
}

impl Restarter for PlatformRestarter {
    fn restart(&self, instance: &InstanceId) -> BoxFuture<'static, Result<(), RestartError>> {
        let (platform, slot, instance) = (self.platform.clone(), self.slot, instance.clone());
        // The mesh has its own runtime; tasks that read the new process's output must outlive it.
        let task = self.runtime.spawn(async move {
            platform.act(slot, &instance, Action::Restart).await.map_err(|e| {
                let cause = std::error::Error::source(&e).map(|c| format!(": {c}")).unwrap_or_default();
                RestartError::Platform { message: format!("{e}{cause}") }
            })
        });
        Box::pin(async move { task.await.map_err(|e| RestartError::Platform { message: e.to_string() })? })
    }
}

/// Passes spans of a slot to the store, under the current trial.
pub(crate) struct SlotRecorder {
    sink: SpanSink,
    slot: SlotId,
    trial: AtomicU64,
    recorded: AtomicU64,
    /// Bytes of the calls that the trial keeps on disk.
    stored_bytes: AtomicU64,
    /// Calls that it does not keep, because it had its most.
    left_out: AtomicU64,
    broken: AtomicBool,
    /// Holds calls until their traces have ended, if payloads are kept by outcome.
    sampler: Mutex<Option<OutcomeSampler>>,
    carried: Mutex<HashMap<InstanceId, Carried>>,
    /// The calls of the trial, if they are kept in memory.
    kept: Mutex<Option<Vec<Span>>>,
    /// The services of gRPC that were called in the trial, by name.
    grpc: Mutex<BTreeMap<String, CalledService>>,
}

/// The most services of gRPC that are remembered in a trial.
const MAX_GRPC_SERVICES: usize = 200;

/// The most calls of a trial that are kept in memory.
const MAX_KEPT: usize = 100_000;

/// The most bytes of the calls before which calls are kept in memory.
const MAX_KEPT_BYTES: u64 = 256 << 20;

/// The most bytes of calls that a trial keeps on disk. A service that calls in a circle must not fill it; at 500 bytes
/// for a call without its body, these are two million calls.
const MAX_STORED_BYTES: u64 = 1 << 30;

/// Bytes that the mesh carried for an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Carried {
    pub(crate) received: u64,
    pub(crate) sent: u64,
}

impl SlotRecorder {
    pub(crate) fn new(sink: SpanSink, slot: SlotId) -> Self {
        Self {
            sink,
            slot,
            trial: AtomicU64::new(0),
            recorded: AtomicU64::new(0),
            stored_bytes: AtomicU64::new(0),
            left_out: AtomicU64::new(0),
            broken: AtomicBool::new(false),
            sampler: Mutex::default(),
            carried: Mutex::default(),
            kept: Mutex::default(),
            grpc: Mutex::default(),
        }
    }

    /// Assigns spans from now on to this trial.
    pub(crate) fn begin(&self, trial: TrialId) {
        self.trial.store(trial.key(), Ordering::Relaxed);
        self.recorded.store(0, Ordering::Relaxed);
        self.stored_bytes.store(0, Ordering::Relaxed);
        self.left_out.store(0, Ordering::Relaxed);
        self.broken.store(false, Ordering::Relaxed);
        self.all_carried().clear();
        self.all_grpc().clear();
    }

    /// Keeps headers and bodies by how traces end from now on, or of all calls.
    pub(crate) fn sample(&self, rule: Option<OutcomeSampling>) {
        *self.sampler() = rule.map(OutcomeSampler::new);
    }

    /// Stores what is held of traces that have not ended.
    pub(crate) fn end_sampling(&self) {
        let held = self.sampler().as_mut().map(OutcomeSampler::finish);
        held.into_iter().flatten().for_each(|span| self.store(span));
    }

    fn sampler(&self) -> MutexGuard<'_, Option<OutcomeSampler>> {
        self.sampler.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets whether the calls of this trial are kept in memory.
    pub(crate) fn keep(&self, wanted: bool) {
        *self.kept.lock().unwrap_or_else(PoisonError::into_inner) = wanted.then(Vec::new);
    }

    /// Removes and returns the kept calls, by start.
    pub(crate) fn take_kept(&self) -> Vec<Span> {
        let mut spans = self.kept.lock().unwrap_or_else(PoisonError::into_inner).take().unwrap_or_default();
        spans.retain(Span::is_traffic);
        spans.sort_by_key(|span| (span.start_us, span.id));
        adopt_orphans(&mut spans);
        spans
    }

    /// Bytes of calls that have ended since the trial began, to and from an instance.
    pub(crate) fn carried(&self, instance: &InstanceId) -> Carried {
        self.all_carried().get(instance).copied().unwrap_or_default()
    }

    fn all_carried(&self) -> MutexGuard<'_, HashMap<InstanceId, Carried>> {
        self.carried.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The services of gRPC that were called since the trial began.
    pub(crate) fn called_grpc_services(&self) -> Vec<CalledService> {
        self.all_grpc().values().cloned().collect()
    }

    fn all_grpc(&self) -> MutexGuard<'_, BTreeMap<String, CalledService>> {
        self.grpc.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note_grpc(&self, span: &Span) {
        let Some(instance) = span.callee_instance.as_ref().filter(|_| span.grpc_status.is_some()) else {
            return;
        };
        let Some((name, _)) = span.path.trim_start_matches('/').split_once('/') else { return };
        let mut all = self.all_grpc();
        if all.len() < MAX_GRPC_SERVICES && !all.contains_key(name) {
            let called = CalledService { name: name.to_owned(), instance: instance.clone(), port: span.port };
            all.insert(name.to_owned(), called);
        }
    }

    fn carry(&self, span: &Span) {
        let mut all = self.all_carried();
        let mut add = |instance: &InstanceId, received: u64, sent: u64| {
            // Looked up first, so that a name is cloned only once.
            let Some(carried) = all.get_mut(instance) else {
                all.insert(instance.clone(), Carried { received, sent });
                return;
            };
            carried.received += received;
            carried.sent += sent;
        };
        add(&span.caller, span.response_bytes, span.request_bytes);
        if let Some(callee) = &span.callee_instance {
            add(callee, span.request_bytes, span.response_bytes);
        }
    }

    /// Whether a callee refused a call or broke it off since the trial began.
    pub(crate) fn broken(&self) -> bool {
        self.broken.load(Ordering::Relaxed)
    }

    /// Calls since the trial began that are not on disk, because the trial had its most.
    pub(crate) fn left_out(&self) -> u64 {
        self.left_out.load(Ordering::Relaxed)
    }

    /// Number of spans since the trial began.
    pub(crate) fn recorded(&self) -> u64 {
        self.recorded.load(Ordering::Relaxed)
    }
}

impl Recorder for SlotRecorder {
    fn record(&self, span: Span) {
        if span.is_traffic() {
            self.recorded.fetch_add(1, Ordering::Relaxed);
        }
        // A connection that was dropped as a whole may have lost its caller.
        let broke = |error: &CallError| error.is_by_callee() || *error == CallError::ConnectionDropped;
        if span.error.as_ref().is_some_and(broke) {
            self.broken.store(true, Ordering::Relaxed);
        }
        self.carry(&span);
        self.note_grpc(&span);
        if let Some(kept) = &mut *self.kept.lock().unwrap_or_else(PoisonError::into_inner)
            && kept.len() < MAX_KEPT
            && self.stored_bytes.load(Ordering::Relaxed) < MAX_KEPT_BYTES
        {
            kept.push(span.clone());
        }
        let mut sampler = self.sampler();
        let Some(held) = &mut *sampler else {
            drop(sampler);
            return self.store(span);
        };
        // What the test or people call ends its trace; so does a call in nobody's name.
        let ends_trace = span.parent.is_none() || is_from_outside(&span);
        let ready = held.offer(span, ends_trace);
        drop(sampler);
        ready.into_iter().for_each(|span| self.store(span));
    }
}

/// Whether a call was made by the test or by people.
fn is_from_outside(span: &Span) -> bool {
    [ServiceName::TEST, OUTSIDE].contains(&span.caller.service.as_str())
}

impl SlotRecorder {
    fn store(&self, span: Span) {
        let bytes = span_bytes(&span);
        if self.stored_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes > MAX_STORED_BYTES {
            self.stored_bytes.fetch_sub(bytes, Ordering::Relaxed);
            self.left_out.fetch_add(1, Ordering::Relaxed);
            return;
        }
        // Every key comes from a trial.
        let trial = TrialId::from_key(self.trial.load(Ordering::Relaxed)).unwrap_or(TrialId::chosen(0));
        self.sink.record(trial, self.slot, span);
    }
}

/// About how many bytes a call takes on disk.
fn span_bytes(span: &Span) -> u64 {
    const FIXED: usize = 200;
    let payload = span.payload.as_deref().map_or(0, |payload| {
        let headers = payload.request_headers.iter().chain(&payload.response_headers);
        let headers: usize = headers.map(|(name, value)| name.len() + value.len()).sum();
        headers + payload.request_body.len() + payload.response_body.len()
    });
    (FIXED + span.path.len() + payload) as u64
}

/// The wiring of a plan.
pub(crate) fn wiring(
    application: &Application,
    plan: &Plan,
    slot: SlotId,
    seed: u64,
    callers: Vec<Caller>,
    endpoints: Vec<Endpoint>,
    record: RecordLevel,
) -> Wiring {
    let mut by_service: BTreeMap<ServiceName, Vec<Endpoint>> =
        application.services.keys().map(|name| (name.clone(), Vec::new())).collect();
    for endpoint in endpoints {
        by_service.entry(endpoint.instance.service.clone()).or_default().push(endpoint);
    }
    let balance = application.services.iter().filter(|(_, s)| s.balance != Balance::RoundRobin);
    Wiring {
        slot,
        seed,
        campaign: 0,
        callers,
        endpoints: by_service,
        balance: balance.map(|(name, s)| (name.clone(), s.balance.clone())).collect(),
        links: application.links.clone(),
        rules: plan.circumstance.perturbations.clone(),
        targets: false,
        gates: application.gates(&plan.circumstance),
        record,
        externals: plan.externals.clone(),
        callers_by_context: false,
        record_rules: Vec::new(),
    }
}
