//! The built-in collector of a slot: a host that every instance can resolve, and the environment variables that point
//! exporters to it.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use faultscope_mesh::MeshSlot;
use faultscope_model::plan::Plan;
use faultscope_model::wiring::{
    COLLECTOR as HOST, COLLECTOR_PORTS as PORTS, Caller, ExternalHost, ListenerSpec,
};
use faultscope_model::{InstanceId, ServiceName, SlotId, TrialId};
use faultscope_platform::ReservedListener;
use faultscope_store::serve::Collector;
use faultscope_store::{SampleWriter, SpanSink};
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// How long exporters batch spans before they send them; their default would outlive a short trial.
const GATHER_MS: u64 = 50;
/// After this long without new spans, exporters have sent everything.
const QUIET: Duration = Duration::from_millis(3 * GATHER_MS);
/// How long a trial waits for more spans once some have come.
const MAX_MORE: Duration = Duration::from_millis(600);
/// How long it waits for exporters that are known to exist.
const MAX_WAIT: Duration = Duration::from_secs(3);

/// A service that sets any of these exports elsewhere and is left alone.
const OWN: [&str; 6] = [
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_ZIPKIN_ENDPOINT",
    "OTEL_TRACES_EXPORTER",
    "OTEL_SDK_DISABLED",
    "ZIPKIN_ENDPOINT",
];

/// The same for metrics only.
const OWN_METRICS: [&str; 2] = ["OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_METRICS_EXPORTER"];

/// Adds the host to a plan and sets the variables of its instances, and the interval of metrics if they are recorded.
pub(crate) fn announce(plan: &mut Plan, metrics: Option<Duration>) {
    let Ok(service) = HOST.parse::<ServiceName>() else { return };
    if plan.ports.contains_key(&service) || plan.externals.iter().any(|e| e.host == HOST) {
        return;
    }
    plan.externals.push(ExternalHost {
        host: HOST.to_owned(),
        service: service.clone(),
        allow: false,
        ports: PORTS.to_vec(),
    });
    for instance in &mut plan.instances {
        instance.calls.push(service.clone());
        if OWN.iter().any(|name| instance.env.contains_key(*name)) {
            continue;
        }
        let name = instance.id.service.to_string();
        let mut variables = vec![
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", format!("http://{HOST}:4318/v1/traces")),
            ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/protobuf".to_owned()),
            ("OTEL_EXPORTER_ZIPKIN_ENDPOINT", format!("http://{HOST}:9411/api/v2/spans")),
            ("ZIPKIN_ENDPOINT", format!("http://{HOST}:9411/api/v2/spans")),
            ("OTEL_BSP_SCHEDULE_DELAY", GATHER_MS.to_string()),
            ("OTEL_SERVICE_NAME", name),
        ];
        if let Some(every) = metrics
            && !OWN_METRICS.iter().any(|name| instance.env.contains_key(*name))
        {
            variables.extend([
                ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", format!("http://{HOST}:4318/v1/metrics")),
                ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "http/protobuf".to_owned()),
                // The default is once a minute, which most trials do not last.
                ("OTEL_METRIC_EXPORT_INTERVAL", every.as_millis().to_string()),
            ]);
        }
        for (name, value) in variables {
            instance.env.entry(name.to_owned()).or_insert(value);
        }
    }
}

/// Passes listeners to the mesh, and the collector's own to the collector.
pub(crate) fn share(
    collector: Option<&SlotCollector>,
    mesh: &MeshSlot,
    listeners: Vec<ReservedListener>,
) -> io::Result<()> {
    let mut calls = Vec::with_capacity(listeners.len());
    for ReservedListener { spec, socket } in listeners {
        match collector {
            Some(collector) if spec.callee.as_str() == HOST => collector.listen(&spec, socket)?,
            _ => calls.push((spec, socket)),
        }
    }
    mesh.listen_all(calls);
    Ok(())
}

/// The collector of a slot with its listeners.
pub(crate) struct SlotCollector {
    collector: Arc<Collector>,
    #[expect(clippy::type_complexity, reason = "named once")]
    listeners: Mutex<HashMap<(u16, Option<InstanceId>, Option<IpAddr>), JoinHandle<()>>>,
    /// Whether it was determined once if any service reports.
    asked: AtomicBool,
    /// Whether services that trace were waited for in vain: they report elsewhere, or not at all.
    waited_in_vain: AtomicBool,
}

impl SlotCollector {
    pub(crate) fn new(sink: SpanSink, samples: Option<Arc<SampleWriter>>, slot: SlotId) -> Self {
        Self {
            collector: Collector::new(sink, samples, slot),
            listeners: Mutex::default(),
            asked: AtomicBool::new(false),
            waited_in_vain: AtomicBool::new(false),
        }
    }

    /// Assigns spans and metrics from now on to this trial.
    pub(crate) fn begin(&self, trial: TrialId, callers: &[Caller]) {
        let known = callers.iter().filter_map(|caller| Some((caller.address?, caller.instance.clone())));
        self.collector.begin(trial, known);
    }

    /// Serves a listener, replacing an earlier one for the same port and caller.
    fn listen(&self, spec: &ListenerSpec, socket: TcpListener) -> io::Result<()> {
        let key = (spec.port, spec.caller.clone(), socket.local_addr().ok().map(|a| a.ip()));
        let task = self.collector.listen(spec.caller.clone(), socket)?;
        let mut listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(earlier) = listeners.insert(key, task) {
            earlier.abort();
        }
        Ok(())
    }

    /// Reported spans and points of the trial that were not kept, because it had its most.
    pub(crate) fn left_out(&self) -> u64 {
        self.collector.left_out()
    }

    /// Stops listening.
    pub(crate) fn close(&self) {
        let listeners = std::mem::take(&mut *self.listeners.lock().unwrap_or_else(PoisonError::into_inner));
        listeners.into_values().for_each(|task| task.abort());
    }

    /// Waits until exporters have sent what they had. Those send after the answer, so there may be nothing
    /// yet: it is waited for where the mesh saw that services trace, and once to find out whether they do. Services
    /// that were seen to report elsewhere are not waited for.
    pub(crate) async fn settle(&self, traced: bool, elsewhere: bool) {
        let first = !self.asked.swap(true, Ordering::Relaxed);
        let is_hopeless = elsewhere || self.waited_in_vain.load(Ordering::Relaxed);
        let patience = match (traced, self.collector.heard()) {
            (true, 0) if is_hopeless => return,
            (true, _) => MAX_WAIT,
            (false, 0) if first => QUIET,
            (false, 0) => return,
            (false, _) => MAX_MORE,
        };
        let end = Instant::now() + patience;
        let mut before = self.collector.heard();
        while Instant::now() < end {
            tokio::time::sleep(QUIET.min(patience)).await;
            let now = self.collector.heard();
            if now == before && now > 0 {
                break;
            }
            before = now;
        }
        self.waited_in_vain.store(before == 0, Ordering::Relaxed);
    }
}

impl Drop for SlotCollector {
    fn drop(&mut self) {
        self.close();
    }
}
