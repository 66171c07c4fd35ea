//! What services used in the recording and in the replay, side by side.

use std::collections::{BTreeMap, BTreeSet};

use faultscope_model::InstanceId;
use faultscope_model::metrics::{Metric, Sample};
use faultscope_model::recording::Recording;

use super::{Original, ResourceRow, Usage};
use crate::error::EngineError;
use crate::session::Session;
use crate::trial::FinishedTrial;

/// Samples this long before and behind the recording count, since they are taken at their own times.
const MARGIN_US: u64 = 1_000_000;

pub(super) async fn side_by_side(
    session: &Session,
    recording: &Recording,
    original: &Original<'_>,
    finished: &[FinishedTrial],
) -> Result<Vec<ResourceRow>, EngineError> {
    let n_requests = recording.requests.len().max(1) as f64;
    let first = recording.requests.first().map_or(0, |request| request.start_us).saturating_sub(MARGIN_US);
    let last =
        recording.requests.iter().map(|request| request.end_us()).max().unwrap_or_default() + MARGIN_US;
    let mut samples = original.reader.samples_of(Some(original.run.trial))?;
    samples.retain(|sample| (first..=last).contains(&sample.at_us));
    let recorded = usage_by_service(&samples, n_requests);
    session.campaign().flush().await?;
    let reader = session.campaign().reader()?;
    let mut replayed: BTreeMap<String, Vec<Usage>> = BTreeMap::new();
    for trial in finished {
        for (service, usage) in usage_by_service(&reader.samples_of(Some(trial.run.trial))?, n_requests) {
            replayed.entry(service).or_default().push(usage);
        }
    }
    let services: BTreeSet<&String> = recorded.keys().chain(replayed.keys()).collect();
    let row = |service: &String| ResourceRow {
        service: service.clone(),
        recorded: recorded.get(service).copied(),
        replayed: replayed.get(service).map(|usages| average(usages)),
    };
    Ok(services.into_iter().map(row).collect())
}

fn usage_by_service(samples: &[Sample], n_requests: f64) -> BTreeMap<String, Usage> {
    let mut by_instance: BTreeMap<&InstanceId, Vec<&Sample>> = BTreeMap::new();
    for sample in samples {
        by_instance.entry(&sample.instance).or_default().push(sample);
    }
    let mut usage: BTreeMap<String, Usage> = BTreeMap::new();
    for (instance, samples) in by_instance {
        let cpu: Vec<f64> = samples.iter().filter_map(|sample| sample.get(Metric::CpuSeconds)).collect();
        // A total that shrinks belongs to a process that started again.
        let seconds: f64 = cpu.windows(2).map(|two| (two[1] - two[0]).max(0.0)).sum();
        let memory =
            samples.iter().filter_map(|sample| sample.get(Metric::MemoryWorkingSet)).fold(0.0, f64::max);
        let entry =
            usage.entry(instance.service.to_string()).or_insert(Usage { cpu_ms: 0.0, memory_bytes: 0.0 });
        entry.cpu_ms += seconds * 1000.0 / n_requests;
        entry.memory_bytes += memory;
    }
    usage
}

fn average(usages: &[Usage]) -> Usage {
    let n = usages.len().max(1) as f64;
    Usage {
        cpu_ms: usages.iter().map(|usage| usage.cpu_ms).sum::<f64>() / n,
        memory_bytes: usages.iter().map(|usage| usage.memory_bytes).sum::<f64>() / n,
    }
}
