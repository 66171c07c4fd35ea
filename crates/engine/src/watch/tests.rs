//! Healthy systems are silent for an hour, and faults are found with their traces. All in virtual time: seeds are in
//! the messages.

use faultscope_model::application::{DetectorLimits, Quantity, WatchRule, WatchedMetric};
use faultscope_model::metrics::{Metric, Sample, Values};
use faultscope_model::{InstanceId, TraceId};

use super::*;

const SECOND: u64 = 1_000_000;
const START: u64 = 1_700_000_000 * SECOND;
const SEEDS: std::ops::Range<u64> = 0..5;

/// SplitMix64, the same on every machine.
struct Random(u64);

impl Random {
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((word ^ (word >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        (-2.0 * (1.0 - self.unit()).ln()).sqrt() * (std::f64::consts::TAU * self.unit()).cos()
    }
}

/// An application with three services under a steady load; the fault begins after `healthy` seconds.
struct Load {
    seed: u64,
    seconds: u64,
    healthy: u64,
    fault: fn(&mut ObservedCall),
    /// Added memory in MiB and cores, by seconds since the fault began.
    usage: fn(u64) -> (f64, f64),
}

impl Load {
    fn healthy(seed: u64, seconds: u64) -> Self {
        Self { seed, seconds, healthy: seconds, fault: |_| {}, usage: |_| (0.0, 0.0) }
    }

    /// Four calls per second of each operation: log-normal, and one that sleeps at random.
    fn batch(&self) -> Batch {
        let mut random = Random(self.seed);
        let mut batch = Batch::default();
        let mut trace = 0;
        let mut cpu = 0.0;
        for second in 0..self.seconds {
            for quarter in 0..4 {
                let at_us = START + second * SECOND + quarter * SECOND / 4;
                let fast = 0.004 * (0.6 * random.normal()).exp();
                let heavy = 0.02 * random.normal().exp();
                let sleepy = 0.002 + if random.unit() < 0.2 { random.unit() } else { 0.0 };
                for (service, operation, duration) in [
                    ("web", "GET /todos", fast + heavy),
                    ("todos", "GET /todos/{}", heavy),
                    ("log", "POST /entries", sleepy),
                ] {
                    trace += 1;
                    let mut call = ObservedCall {
                        service: service.to_owned(),
                        operation: operation.to_owned(),
                        at_us,
                        duration_us: (1e6 * duration) as u64,
                        failed: random.unit() < 0.002,
                        trace: TraceId(trace),
                    };
                    if second >= self.healthy && service == "todos" {
                        (self.fault)(&mut call);
                    }
                    batch.calls.push(call);
                }
            }
            let since = second.saturating_sub(self.healthy);
            let (memory, cores) = if second >= self.healthy { (self.usage)(since) } else { (0.0, 0.0) };
            cpu += (0.05 * (0.5 * random.normal()).exp() + cores).min(4.0);
            // A heap that grows and is collected.
            let heap = 80.0 + (second % 40) as f64 * 0.2 + 0.3 * random.normal() + memory;
            let instance: InstanceId = "todos-1".parse().unwrap();
            let values = Values::default()
                .with(Metric::CpuSeconds, Some(cpu))
                .with(Metric::MemoryWorkingSet, Some(heap * 1_048_576.0))
                .with(Metric::StartTime, Some(7.0));
            batch.samples.push(Sample { instance, at_us: START + second * SECOND, values });
        }
        batch
    }
}

fn watch(load: &Load, settings: WatchSettings) -> (Vec<Anomaly>, WatchCounts) {
    let mut watcher = Watcher::new(settings);
    let anomalies = watcher.observe(load.batch());
    (anomalies, watcher.counts())
}

fn rule(limits: DetectorLimits, metric: Option<WatchedMetric>) -> WatchSettings {
    let (detector, margin) = (limits.choose().unwrap(), std::time::Duration::from_secs(1));
    let rule = WatchRule { service: None, operation: None, metric, detector, margin };
    WatchSettings { rules: vec![rule], ..WatchSettings::default() }
}

#[test]
fn an_hour_of_healthy_load_is_silent() {
    for seed in SEEDS {
        let (anomalies, counts) = watch(&Load::healthy(seed, 3600), WatchSettings::default());
        assert!(anomalies.is_empty(), "seed {seed}: {anomalies:#?}");
        assert_eq!((counts.calls, counts.samples), (43_200, 3600));
        assert!(counts.series >= 8 && counts.shed_values == 0, "{counts:?}");
    }
}

/// The anomalies of ten minutes with a fault in the last five.
fn faulty(seed: u64, fault: fn(&mut ObservedCall), usage: fn(u64) -> (f64, f64)) -> Vec<Anomaly> {
    watch(&Load { seed, seconds: 600, healthy: 300, fault, usage }, WatchSettings::default()).0
}

#[test]
fn faults_are_found_in_the_right_service_with_their_traces() {
    let none = |_: u64| (0.0, 0.0);
    type Change = fn(&mut ObservedCall);
    type Usage = fn(u64) -> (f64, f64);
    let cases: [(&str, Vec<Quantity>, Change, Usage); 6] = [
        ("delay", vec![Quantity::Latency], |call| call.duration_us += 300_000, none),
        (
            "timeout",
            vec![Quantity::Latency, Quantity::Errors],
            |call| (call.duration_us, call.failed) = (5_000_000, true),
            none,
        ),
        ("abort", vec![Quantity::Errors], |call| call.failed = true, none),
        (
            "abort of every third call",
            vec![Quantity::Errors],
            |call| call.failed |= call.trace.0 % 9 == 2,
            none,
        ),
        ("leak", vec![Quantity::Memory], |_| {}, |since| (since as f64, 0.0)),
        ("busy", vec![Quantity::Cpu], |_| {}, |_| (0.0, 1.0)),
    ];
    for (name, expected, fault, usage) in cases {
        for seed in SEEDS {
            let anomalies = faulty(seed, fault, usage);
            for quantity in &expected {
                let is_it = |anomaly: &&Anomaly| anomaly.series.metric == (*quantity).into();
                let found = anomalies.iter().find(is_it);
                let found = found
                    .unwrap_or_else(|| panic!("{name} with seed {seed}: no {quantity:?} in {anomalies:#?}"));
                assert_eq!(found.series.service, "todos", "{name} with seed {seed}");
                assert!(found.at_us >= START + 300 * SECOND, "{name} with seed {seed}");
                assert!(
                    !found.traces.is_empty() && found.traces.len() <= found.n_traces,
                    "{name}: {found:?}"
                );
            }
            assert!(
                anomalies.iter().all(|anomaly| anomaly.series.service == "todos"),
                "{name}: {anomalies:#?}"
            );
            assert_eq!(anomalies.len(), expected.len(), "{name} with seed {seed}: {anomalies:#?}");
        }
    }
}

#[test]
fn a_single_slow_call_names_its_trace() {
    let mut batch = Load::healthy(3, 400).batch();
    let slow = batch
        .calls
        .iter()
        .position(|call| call.service == "web" && call.at_us > START + 300 * SECOND)
        .unwrap();
    batch.calls[slow].duration_us = 60_000_000;
    let trace = batch.calls[slow].trace;
    let anomalies = Watcher::new(WatchSettings::default()).observe(batch);
    assert_eq!(anomalies.len(), 1, "{anomalies:?}");
    assert_eq!(anomalies[0].traces[0], format!("{:016x}", trace.0));
    let text = anomalies[0].to_string();
    assert!(text.starts_with("There was a sudden spike to 60.00 s, usually "), "{text}");
    assert!(text.contains("in latency by GET /todos of the web service."), "{text}");
    assert!(
        text.ends_with(
            "were marked as faulty by the Adaptive Anomaly Detector and may help in finding the root cause."
        ),
        "{text}"
    );
}

#[test]
fn a_healthy_recording_teaches_what_is_usual() {
    // Too short to learn anything in it: the fault is there from the first call on.
    let faulty =
        Load { seconds: 25, healthy: 0, fault: |call| call.duration_us += 500_000, ..Load::healthy(8, 0) };
    let mut untaught = Watcher::new(WatchSettings::default());
    assert!(untaught.observe(faulty.batch()).is_empty());
    assert!(untaught.counts().short_series > 0);
    let mut taught = Watcher::new(WatchSettings::default());
    taught.learn(Load::healthy(9, 120).batch());
    let anomalies = taught.observe(faulty.batch());
    assert!(
        anomalies.iter().any(|a| a.series.service == "todos" && a.series.metric == Quantity::Latency.into())
    );
    assert!(anomalies.iter().all(|a| a.series.service == "todos"), "{anomalies:#?}");
}

#[test]
fn the_detectors_of_the_paper_are_used_by_name() {
    let leak =
        Load { seed: 4, seconds: 400, healthy: 200, fault: |_| {}, usage: |since| (since as f64, 0.0) };
    let memory = Some(Quantity::Memory.into());
    let of_memory = |limits| {
        let mut found = watch(&leak, rule(limits, memory)).0;
        found.retain(|anomaly| anomaly.series.metric == Quantity::Memory.into());
        found
    };
    let named = |name: &str| DetectorLimits { detector: Some(name.to_owned()), ..DetectorLimits::default() };
    let threshold = of_memory(DetectorLimits { above: Some("120MiB".into()), ..named("threshold") });
    assert_eq!((threshold.len(), threshold[0].detector), (1, DetectorName::FixedThreshold));
    assert!(
        threshold[0]
            .to_string()
            .contains("above the threshold of 120.0 MiB, in memory usage by the todos service")
    );
    let shift =
        of_memory(DetectorLimits { lambda: Some("30MiB".into()), window: Some(40), ..named("mean-shift") });
    assert_eq!((shift.len(), shift[0].detector), (1, DetectorName::MeanShift));
    // Its traces are those of the last window: 4 calls per second for 40 seconds, without both ends.
    assert!((155..=160).contains(&shift[0].n_traces), "{}", shift[0].n_traces);
    let off = of_memory(named("off"));
    assert!(off.is_empty());
}

#[test]
fn ratios_are_watched_where_a_rule_names_them() {
    let ratio: WatchedMetric = "cpu/requests".parse().unwrap();
    let busy = Load { seed: 5, seconds: 600, healthy: 400, fault: |_| {}, usage: |_| (0.0, 2.0) };
    let settings = WatchSettings { metrics: [ratio].into(), ..WatchSettings::default() };
    let (anomalies, _) = watch(&busy, settings);
    assert_eq!(anomalies.len(), 1, "{anomalies:#?}");
    assert!(
        anomalies[0].to_string().contains("in CPU usage per request rate by the todos service (todos-1)")
    );
}

#[test]
fn anomalies_that_begin_together_are_one_incident() {
    let anomalies = faulty(1, |call| (call.duration_us, call.failed) = (5_000_000, true), |_| (0.0, 0.0));
    let incidents = group_into_incidents(anomalies);
    assert_eq!(incidents.len(), 1);
    assert_eq!(incidents[0].anomalies.len(), 2);
    let trigger = Trigger::new(incidents[0].clone());
    assert_eq!((trigger.service.as_str(), trigger.sentences.len()), ("todos", 2));
    let mut unique = trigger.traces.clone();
    unique.sort();
    unique.dedup();
    assert_eq!(unique.len(), trigger.traces.len());
}

#[test]
fn what_does_not_fit_is_shed_and_counted() {
    let mut batch = Batch { is_cut: true, ..Batch::default() };
    for number in 0..3000u64 {
        batch.calls.push(ObservedCall {
            service: "web".into(),
            operation: format!("GET /{number}"),
            at_us: START + number,
            duration_us: 5,
            failed: false,
            trace: TraceId(1),
        });
    }
    let mut watcher = Watcher::new(WatchSettings::default());
    assert!(watcher.observe(batch).is_empty());
    let counts = watcher.counts();
    assert!(counts.shed_values >= 1000 && counts.cut_reads == 1, "{counts:?}");
}

#[test]
fn restarts_gaps_and_clocks_that_jump_are_no_anomalies() {
    let mut batch = Load::healthy(6, 900).batch();
    for sample in batch.samples.iter_mut().skip(450) {
        // A restart: counters begin anew, and the clock was set back by an hour.
        sample.at_us -= 3600 * SECOND;
        sample.values.set(Metric::StartTime, Some(8.0));
    }
    batch.samples.drain(200..300);
    let mut watcher = Watcher::new(WatchSettings::default());
    // In the order of arrival, as they are read live.
    let later = batch.samples.split_off(350);
    let mut anomalies = watcher.observe(batch);
    anomalies.extend(watcher.observe(Batch { samples: later, ..Batch::default() }));
    assert!(anomalies.is_empty(), "{anomalies:#?}");
    assert!(Watcher::new(WatchSettings::default()).observe(Batch::default()).is_empty());
}

#[test]
fn web_hooks_stay_on_this_machine_unless_allowed() {
    for url in ["http://127.0.0.1:8080/a", "http://localhost/a", "http://[::1]:9/"] {
        assert!(parse_webhook(url, false).is_ok(), "{url}");
    }
    for url in ["http://example.com/", "http://10.0.0.1:80/", "http://127.0.0.1.example.com/"] {
        assert!(parse_webhook(url, false).is_err() && parse_webhook(url, true).is_ok(), "{url}");
    }
    for url in ["https://127.0.0.1/", "127.0.0.1:80", "http://", ""] {
        assert!(parse_webhook(url, true).is_err(), "{url}");
    }
}

#[tokio::test]
async fn a_command_gets_the_incident_and_its_failure_is_named() {
    let incident = group_into_incidents(faulty(2, |call| call.failed = true, |_| (0.0, 0.0))).remove(0);
    let trigger = Trigger::new(incident);
    let folder = tempfile::tempdir().unwrap();
    let run = |line: &str| Action::Command { line: line.to_owned(), folder: folder.path().to_owned() };
    let line = "printf '%s %s' \"$FAULTSCOPE_SERVICE\" \"$FAULTSCOPE_TRACES\" > out; printf '%s' \"$FAULTSCOPE_INCIDENT\" > json";
    run(line).run(&trigger).await.unwrap();
    let out = std::fs::read_to_string(folder.path().join("out")).unwrap();
    assert_eq!(out, format!("todos {}", trigger.traces.join(",")));
    let json: serde_json::Value =
        serde_json::from_slice(&std::fs::read(folder.path().join("json")).unwrap()).unwrap();
    assert_eq!(
        (&json["version"], &json["incident"]["anomalies"][0]["metric"]),
        (&1.into(), &"errors".into())
    );
    let error = run("echo no such clone >&2; exit 3").run(&trigger).await.unwrap_err();
    assert!(error.to_string().contains("no such clone"), "{error}");
}

#[tokio::test]
async fn a_web_hook_gets_the_incident_as_json() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = parse_webhook(&format!("http://{}/alarms", listener.local_addr().unwrap()), false).unwrap();
    let incident = group_into_incidents(faulty(2, |call| call.failed = true, |_| (0.0, 0.0))).remove(0);
    let trigger = Trigger::new(incident);
    let wanted = serde_json::to_string(&trigger).unwrap();
    let server = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = String::new();
        while !request.ends_with(&wanted) {
            let mut part = [0; 4096];
            let read = stream.read(&mut part).await.unwrap();
            assert!(read > 0, "the request ended early: {request}");
            request.push_str(std::str::from_utf8(&part[..read]).unwrap());
        }
        assert!(request.starts_with("POST /alarms HTTP/1.1\r\n"), "{request}");
        stream.write_all(b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n").await.unwrap();
    };
    let action = Action::Webhook(url);
    let ((), sent) = tokio::join!(server, action.run(&trigger));
    assert!(sent.unwrap_err().to_string().contains("answers with status 503"));
}
