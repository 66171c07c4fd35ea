//! Reads the work model of muBench (`workmodel.json`) as a spec.
//!
//! muBench burns CPU time by computing digits of pi in Python; here the same digits cost the time they take
//! there, so that a work model keeps its proportions. Groups of external services run at the same time, the
//! services of a group one after the other, each with its probability.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::spec::{MAXIMUM_SPEC_BYTES, Spec, SpecError};

/// All services listen on this port; muBench's own images do, too.
const PORT: u16 = 8080;
/// Milliseconds per digit, and per digit squared, that CPython takes for digits of pi (measured from 10 to 1000).
const COST: (f64, f64) = (0.004, 0.000_05);

#[derive(Debug, Deserialize)]
struct WorkService {
    #[serde(default)]
    internal_service: Map<String, Value>,
    #[serde(default)]
    external_services: Vec<Group>,
    path: Option<String>,
    workers: Option<u32>,
    threads: Option<u32>,
}

#[derive(Debug, Deserialize)]
struct Group {
    #[serde(default = "all")]
    seq_len: usize,
    #[serde(default)]
    services: Vec<String>,
    #[serde(default)]
    probabilities: Map<String, Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Loader {
    cpu_stress: CpuStress,
    memory_stress: MemoryStress,
    disk_stress: DiskStress,
    sleep_stress: SleepStress,
    #[serde(alias = "mean_bandwidth")]
    mean_response_size: Option<f64>,
}

#[derive(Debug, Deserialize)]
#[serde(default)]
struct CpuStress {
    run: bool,
    range_complexity: (u32, u32),
    thread_pool_size: usize,
    trials: u32,
}

#[derive(Debug, Deserialize)]
#[serde(default)]
struct MemoryStress {
    run: bool,
    memory_size: u64,
}

#[derive(Debug, Deserialize)]
#[serde(default)]
struct DiskStress {
    run: bool,
    tmp_file_name: String,
    disk_write_block_count: u64,
    disk_write_block_size: u64,
}

#[derive(Debug, Deserialize)]
#[serde(default)]
struct SleepStress {
    run: bool,
    sleep_time: f64,
}

#[derive(Debug, Deserialize)]
struct ComputePi {
    #[serde(default = "default_range")]
    range_complexity: (u32, u32),
    #[serde(alias = "mean_bandwidth")]
    mean_response_size: Option<f64>,
}

/// Whether a text looks like a work model rather than a spec.
pub(crate) fn is_workmodel(text: &str) -> bool {
    if !text.trim_start().starts_with('{') || !text.contains("\"internal_service\"") {
        return false;
    }
    let Ok(Value::Object(services)) = serde_json::from_str(text) else {
        return false;
    };
    services.values().all(|service| {
        service.get("internal_service").is_some() || service.get("external_services").is_some()
    })
}

/// Parses a muBench work model.
pub fn from_mubench(workmodel_json: &str) -> Result<Spec, SpecError> {
    if workmodel_json.len() > MAXIMUM_SPEC_BYTES {
        return Err(SpecError::TooLarge(workmodel_json.len()));
    }
    let model: Map<String, Value> =
        serde_json::from_str(workmodel_json).map_err(|error| SpecError::Syntax(error.to_string()))?;
    let mut services = Map::new();
    let mut paths = Map::new();
    let mut read = Vec::new();
    for (name, service) in model {
        let wrong = |message: String| SpecError::Meaning { place: format!("service `{name}`"), message };
        let service: WorkService =
            serde_json::from_value(service).map_err(|error| wrong(error.to_string()))?;
        paths.insert(name.clone(), json!(service.path.as_deref().unwrap_or("/api/v1")));
        read.push((name, service));
    }
    for (name, service) in read {
        let wrong = |message: String| SpecError::Meaning { place: format!("service `{name}`"), message };
        let converted = convert(&service, &paths, &paths[&name]).map_err(wrong)?;
        services.insert(name, converted);
    }
    Spec::from_value(json!({ "version": 1, "services": services }))
}

fn convert(service: &WorkService, paths: &Map<String, Value>, path: &Value) -> Result<Value, String> {
    let mut steps = Vec::new();
    let mut response_size = None;
    for (function, parameters) in &service.internal_service {
        response_size = internal(function, parameters, &mut steps)?.or(response_size);
    }
    let groups: Vec<Value> = service
        .external_services
        .iter()
        .filter(|group| !group.services.is_empty())
        .map(|group| external(group, paths))
        .collect();
    if !groups.is_empty() {
        steps.push(json!({ "concurrently": groups }));
    }
    let mean = response_size.unwrap_or(1.0) * 1000.0;
    let body = format!("{{text(min(1MB, max(1, exponential({mean:.0}))))}}");
    let mut pools = Map::new();
    if let (Some(workers), threads) = (service.workers, service.threads.unwrap_or(1)) {
        let n_requests = workers.max(1).saturating_mul(threads.max(1));
        pools.insert("requests".to_owned(), json!({ "threads": n_requests }));
        steps = vec![json!({ "in": { "pool": "requests", "steps": steps } })];
    }
    steps.push(json!({ "respond": { "body": body } }));
    let operation = format!("GET {}", path.as_str().unwrap_or("/"));
    Ok(json!({ "port": PORT, "pools": pools, "operations": { operation: { "steps": steps } } }))
}

/// Adds the steps of an internal function; returns the mean response size in kilobytes if it has one.
fn internal(function: &str, parameters: &Value, steps: &mut Vec<Value>) -> Result<Option<f64>, String> {
    let wrong = |error: serde_json::Error| format!("{function}: {error}");
    match function {
        "loader" => {
            let loader: Loader = serde_json::from_value(parameters.clone()).map_err(wrong)?;
            load(&loader, steps);
            Ok(Some(loader.mean_response_size.unwrap_or(11.0)))
        }
        "compute_pi" => {
            let pi: ComputePi = serde_json::from_value(parameters.clone()).map_err(wrong)?;
            steps.push(compute(pi.range_complexity, 1, 1));
            Ok(Some(pi.mean_response_size.unwrap_or(10.0)))
        }
        "colosseum" => Ok(None),
        other => Err(format!("function `{other}` is not one of loader, compute_pi, colosseum")),
    }
}

fn load(loader: &Loader, steps: &mut Vec<Value>) {
    let Loader { cpu_stress, memory_stress, disk_stress, sleep_stress, .. } = loader;
    if cpu_stress.run {
        steps.push(compute(cpu_stress.range_complexity, cpu_stress.trials, cpu_stress.thread_pool_size));
    }
    if memory_stress.run {
        steps.push(json!({ "memory": { "allocate": memory_stress.memory_size.saturating_mul(1000) } }));
    }
    if disk_stress.run {
        let size = disk_stress.disk_write_block_count.saturating_mul(disk_stress.disk_write_block_size);
        // A unique name per request, as in muBench.
        let path = format!("{{random(0, 1000000)}}-{}", disk_stress.tmp_file_name);
        steps.push(json!({ "disk": { "write": size, "path": path, "fsync": true } }));
    }
    if sleep_stress.run {
        steps.push(json!({ "sleep": sleep_stress.sleep_time * 1000.0 }));
    }
}

/// Digits of pi, `trials` times on each of `threads` threads.
fn compute((low, high): (u32, u32), trials: u32, threads: usize) -> Value {
    let job = json!([
        { "let": { "digits": format!("{{random({low}, {high})}}") } },
        { "cpu": format!("{{{trials} * digits * ({} + {} * digits)}}", COST.0, COST.1) },
    ]);
    json!({ "concurrently": vec![job; threads.clamp(1, 64)] })
}

fn external(group: &Group, paths: &Map<String, Value>) -> Value {
    let names = group.services.iter().map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", ");
    let mut steps = vec![json!({ "let": { "chosen": format!("{{sample([{names}], {})}}", group.seq_len) } })];
    for name in &group.services {
        let probability = group.probabilities.get(name).and_then(Value::as_f64).unwrap_or(1.0);
        let path = paths.get(name).cloned().unwrap_or_else(|| json!("/"));
        steps.push(json!({ "when": {
            "if": format!("'{name}' in chosen and random < {probability}"),
            "then": [{ "call": { "service": name, "path": path } }],
        } }));
    }
    json!(steps)
}

impl Default for CpuStress {
    fn default() -> Self {
        Self { run: false, range_complexity: (100, 100), thread_pool_size: 1, trials: 1 }
    }
}

impl Default for MemoryStress {
    fn default() -> Self {
        Self { run: false, memory_size: 10_000 }
    }
}

impl Default for DiskStress {
    fn default() -> Self {
        Self {
            run: false,
            tmp_file_name: "mubtestfile.txt".to_owned(),
            disk_write_block_count: 1000,
            disk_write_block_size: 1024,
        }
    }
}

impl Default for SleepStress {
    fn default() -> Self {
        Self { run: true, sleep_time: 0.01 }
    }
}

fn all() -> usize {
    usize::MAX
}

fn default_range() -> (u32, u32) {
    (50, 100)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{from_mubench, is_workmodel};
    use crate::spec::Step;

    #[test]
    fn a_work_model_becomes_a_spec() {
        let model = json!({
            "s0": {
                "external_services": [
                    { "seq_len": 1, "services": ["s1", "sdb1"], "probabilities": { "s1": 0.5, "sdb1": 1 } },
                    { "seq_len": 100, "services": ["sdb1"] },
                ],
                "internal_service": { "loader": {
                    "cpu_stress": { "run": true, "range_complexity": [10, 20], "thread_pool_size": 2, "trials": 3 },
                    "memory_stress": { "run": true, "memory_size": 100, "memory_io": 5 },
                    "disk_stress": { "run": true },
                    "sleep_stress": { "run": false, "sleep_time": 0.01 },
                    "mean_bandwidth": 10, "function_id": "f1",
                } },
                "request_method": "rest", "workers": 4, "threads": 16, "path": "/api/v1",
            },
            "s1": { "external_services": [], "internal_service": { "colosseum": {} } },
            "sdb1": { "internal_service": { "compute_pi": { "range_complexity": [1, 2] } } },
        });
        let text = model.to_string();
        assert!(is_workmodel(&text));
        let spec = from_mubench(&text).unwrap();
        let s0 = &spec.services["s0"];
        let operation = &s0.operations["GET /api/v1"];
        let [Step::In(inner), Step::Respond(_)] = &operation.steps[..] else {
            panic!("{:?}", operation.steps);
        };
        assert!(matches!(
            &inner.steps[..],
            [Step::Concurrently(_), Step::Memory(_), Step::Disk(_), Step::Concurrently(groups)]
                if groups.branches.len() == 2
        ));
    }

    #[test]
    fn other_texts_are_not_work_models() {
        assert!(!is_workmodel("version: 1"));
        assert!(!is_workmodel(r#"{"version": 1, "services": {}}"#));
        let unknown = r#"{"a": {"internal_service": {"mine": {}}}}"#;
        let error = from_mubench(unknown).unwrap_err().to_string();
        assert_eq!(error, "service `a`: function `mine` is not one of loader, compute_pi, colosseum");
        let dangling = r#"{"a": {"internal_service": {}, "external_services": [{"services": ["b"]}]}}"#;
        assert!(from_mubench(dangling).unwrap_err().to_string().contains("no service `b`"));
    }
}
