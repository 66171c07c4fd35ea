//! What services used in the recording and in the replay, side by side.

use std::collections::{BTreeMap, BTreeSet};

use faultscope_model::metrics::{Metric, Sample};
use faultscope_model::recording::Recording;
use faultscope_model::{InstanceId, Span};

use super::{Original, ResourceRow, Usage, UsagePoint};
use crate::error::EngineError;
use crate::session::Session;
use crate::trial::FinishedTrial;

/// Samples this long before and behind the recording count, since they are taken at their own times.
const MARGIN_US: u64 = 1_000_000;

/// Points of a curve: more than a picture has room for.
const MAX_POINTS: u64 = 200;

/// The usual distance of samples; shorter steps would be empty.
const MIN_STEP_US: u64 = 100_000;

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
    // What was used meanwhile served all requests of that time, those of other traces included.
    let calls = original.reader.spans_of(original.run.trial)?;
    let is_request = |call: &&Span| call.parent.is_none() && call.is_traffic();
    let meanwhile = calls.iter().filter(is_request).filter(|call| (first..=last).contains(&call.start_us));
    let recorded = usage_by_service(&samples, meanwhile.count().max(1) as f64);
    let mut curves = curves_by_service(&samples);
    session.campaign().flush().await?;
    let reader = session.campaign().reader()?;
    let mut replayed: BTreeMap<String, Vec<Usage>> = BTreeMap::new();
    let mut replayed_curves = BTreeMap::new();
    for trial in finished {
        let samples = reader.samples_of(Some(trial.run.trial))?;
        for (service, usage) in usage_by_service(&samples, n_requests) {
            replayed.entry(service).or_default().push(usage);
        }
        if replayed_curves.is_empty() {
            replayed_curves = curves_by_service(&samples);
        }
    }
    let services: BTreeSet<&String> = recorded.keys().chain(replayed.keys()).collect();
    let row = |service: &String| ResourceRow {
        service: service.clone(),
        recorded: recorded.get(service).copied(),
        replayed: replayed.get(service).map(|usages| average(usages)),
        recorded_curve: curves.remove(service).unwrap_or_default(),
        replayed_curve: replayed_curves.remove(service).unwrap_or_default(),
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

/// CPU and memory by time; instances of a service are added up.
fn curves_by_service(samples: &[Sample]) -> BTreeMap<String, Vec<UsagePoint>> {
    let first = samples.iter().map(|sample| sample.at_us).min().unwrap_or_default();
    let last = samples.iter().map(|sample| sample.at_us).max().unwrap_or_default();
    let step = ((last - first) / MAX_POINTS).max(MIN_STEP_US);
    let mut by_instance: BTreeMap<&InstanceId, Vec<&Sample>> = BTreeMap::new();
    for sample in samples {
        by_instance.entry(&sample.instance).or_default().push(sample);
    }
    let mut curves: BTreeMap<String, BTreeMap<u64, UsagePoint>> = BTreeMap::new();
    for (instance, mut samples) in by_instance {
        samples.sort_by_key(|sample| sample.at_us);
        // Several samples may fall into one step: CPU time adds up, of memory the last one counts.
        let mut own: BTreeMap<u64, (f64, f64)> = BTreeMap::new();
        let mut cpu_before = None;
        for sample in samples {
            let entry = own.entry((sample.at_us - first) / step).or_default();
            if let Some(cpu) = sample.get(Metric::CpuSeconds) {
                entry.0 += (cpu - cpu_before.unwrap_or(cpu)).max(0.0);
                cpu_before = Some(cpu);
            }
            entry.1 = sample.get(Metric::MemoryWorkingSet).unwrap_or(entry.1);
        }
        let curve = curves.entry(instance.service.to_string()).or_default();
        for (number, (cpu_seconds, memory)) in own {
            let point = curve.entry(number).or_insert(UsagePoint {
                after_ms: number * step / 1000,
                cores: 0.0,
                memory_bytes: 0.0,
            });
            point.cores += cpu_seconds * 1e6 / step as f64;
            point.memory_bytes += memory;
        }
    }
    curves.into_iter().map(|(service, points)| (service, points.into_values().collect())).collect()
}

fn average(usages: &[Usage]) -> Usage {
    let n = usages.len().max(1) as f64;
    Usage {
        cpu_ms: usages.iter().map(|usage| usage.cpu_ms).sum::<f64>() / n,
        memory_bytes: usages.iter().map(|usage| usage.memory_bytes).sum::<f64>() / n,
    }
}

#[cfg(test)]
mod tests {
    use faultscope_model::metrics::Values;

    use super::*;

    fn sample(instance: &str, at_us: u64, cpu: f64, memory: f64) -> Sample {
        let mut values = Values::default();
        values.set(Metric::CpuSeconds, Some(cpu));
        values.set(Metric::MemoryWorkingSet, Some(memory));
        Sample { at_us, instance: instance.parse().unwrap(), values }
    }

    #[test]
    fn instances_are_added_up_and_restarts_use_nothing() {
        let samples = [
            sample("a-1", 1_000_000, 0.00, 10.0),
            sample("a-2", 1_000_000, 1.00, 5.0),
            sample("a-1", 1_100_000, 0.05, 12.0),
            // Another process with a total of its own.
            sample("a-2", 1_100_000, 0.00, 6.0),
        ];
        let curve = &curves_by_service(&samples)["a"];
        let points: Vec<_> = curve.iter().map(|p| (p.after_ms, p.memory_bytes)).collect();
        assert_eq!(points, [(0, 15.0), (100, 18.0)]);
        assert!((curve[1].cores - 0.5).abs() < 1e-9, "{curve:?}");
    }
}
