//! `bench ingest`: spans over HTTP, their cost, and whether memory is stable.

mod endure;

use std::net::SocketAddr;
use std::time::Duration;

use faultscope_model::units;
use hdrhistogram::Histogram;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::args::IngestArgs;
use crate::bench::{Host, Measured};
use crate::error::BenchError;
use crate::figure::{Direction, Figure};
use crate::part::{Part, Running, scratch_folder, start_part, stop};
use crate::random::Random;
use crate::spans::{Line, PER_TRACE, Request, TRACES, disk};
use crate::usage;

/// Connections of the senders.
pub(super) const CONNECTIONS: u64 = 16;
/// Repetitions of the throughput measurement.
const ROUNDS: u64 = 3;
/// Spans per batch.
const BATCH: u64 = PER_TRACE * TRACES;
/// Spans per second while memory is watched.
const PACE: u64 = 10_000;
pub(super) const MIB: f64 = 1048576.0;

/// The measurements of one sender.
pub(super) struct Sent {
    pub(super) spans: u64,
    pub(super) refused: u64,
    latencies: Histogram<u64>,
}

pub(crate) async fn run(args: &IngestArgs, seed: u64, host: &Host<'_>) -> Result<Measured, BenchError> {
    let figures = match (args.kills, &args.soak) {
        (Some(times), _) => endure::kills(seed, times, host).await?,
        (None, Some(time)) => {
            let time = units::parse_duration(time).map_err(|e| BenchError::usage(e.to_string()))?;
            endure::soak(seed, time, args.rate, host).await?
        }
        (None, None) => return measure(Duration::from_secs(args.seconds), seed, host).await,
    };
    Ok(Measured { figures, ..Measured::default() })
}

async fn measure(time: Duration, seed: u64, host: &Host<'_>) -> Result<Measured, BenchError> {
    let folder = scratch_folder()?;
    let state = folder.path().join("ingest");
    let server = start_part(&Part::Serve { state: state.clone() }, host).await?;
    send(&server, seed, Duration::from_millis(500), None).await?;
    host.talk("as fast as answers come");
    let pid = server.child.id().unwrap_or_default();
    let (mut per_cpu_second, mut per_second) = (Vec::new(), Vec::new());
    let mut all = Sent { spans: 0, refused: 0, latencies: histogram().map_err(broken)? };
    for round in 0..ROUNDS {
        let (before, cpu) = (Instant::now(), usage::cpu(pid));
        let sent = send(&server, seed + 1 + round, time / ROUNDS as u32, None).await?;
        let (wall, cpu) = (before.elapsed().as_secs_f64(), (usage::cpu(pid) - cpu).as_secs_f64());
        per_cpu_second.push(sent.spans as f64 / cpu.max(0.01));
        per_second.push(sent.spans as f64 / wall);
        all.add(sent).map_err(broken)?;
    }
    let mut figures = vec![
        Figure::median(
            "spans, Zipkin v2 JSON in batches of 100",
            &per_cpu_second,
            "1/CPU s",
            Direction::Higher,
        )
        .goal(110_000.0),
        Figure::median("spans kept", &per_second, "1/s", Direction::Higher).goal(30_000.0),
        Figure::lower("acknowledged, p50", quantile(&all, 0.5), "ms"),
        Figure::lower("acknowledged, p99", quantile(&all, 0.99), "ms"),
    ];
    let notes = vec![format!("{CONNECTIONS} connections; {} batches were refused for a while", all.refused)];
    host.talk(format!("{PACE} spans/s, watching memory"));
    // A third of the time to settle, then the growth in the rest.
    send(&server, seed + 10, time / 3, Some(PACE)).await?;
    let settled = usage::resident(pid);
    let paced = send(&server, seed + 11, time, Some(PACE)).await?;
    let after = usage::resident(pid);
    let reached = paced.spans as f64 / time.as_secs_f64();
    let grown = (after as f64 - settled as f64) / MIB;
    figures.extend([
        Figure::higher("spans kept at a fixed pace", reached, "1/s").goal(PACE as f64 * 0.98),
        Figure::lower("memory of the server", after as f64 / MIB, "MiB"),
        Figure::lower("memory that it grew by meanwhile", grown, "MiB").goal(16.0),
    ]);
    let kept = stop(server).await;
    let kept = kept.ok_or_else(|| BenchError::internal("the server did not say what it kept"))?;
    let on_disk = disk(&state) as f64 / kept.recorded.max(1) as f64;
    figures.push(Figure::lower("on disk", on_disk, "B/span").goal(400.0));
    Ok(Measured { figures, notes, ..Measured::default() })
}

impl Sent {
    fn add(&mut self, other: Self) -> Result<(), String> {
        self.spans += other.spans;
        self.refused += other.refused;
        self.latencies.add(other.latencies).map_err(|e| e.to_string())
    }
}

fn broken(cause: String) -> BenchError {
    BenchError::environment("a sender broke off").because(cause)
}

/// Sends batches over all connections, as fast as responses come or at a fixed rate.
pub(super) async fn send(
    server: &Running,
    seed: u64,
    time: Duration,
    pace: Option<u64>,
) -> Result<Sent, BenchError> {
    let mut senders = JoinSet::new();
    for number in 0..CONNECTIONS {
        let gap = pace.map(|pace| Duration::from_secs(1) * (BATCH * CONNECTIONS) as u32 / pace as u32);
        senders.spawn(one(server.address, seed * 1000 + number, time, gap));
    }
    let mut all = Sent { spans: 0, refused: 0, latencies: histogram().map_err(broken)? };
    while let Some(sent) = senders.join_next().await {
        all.add(sent.map_err(|e| broken(e.to_string()))?.map_err(broken)?).map_err(broken)?;
    }
    Ok(all)
}

async fn one(address: SocketAddr, seed: u64, time: Duration, gap: Option<Duration>) -> Result<Sent, String> {
    let mut random = Random::new(seed);
    let mut requests: Vec<Request> = (0..8).map(|_| Request::new(&mut random)).collect();
    let mut line = Line::open(address).await?;
    let mut sent = Sent { spans: 0, refused: 0, latencies: histogram()? };
    let start = Instant::now();
    let mut due = start + gap.unwrap_or_default() * (seed % CONNECTIONS) as u32 / CONNECTIONS as u32;
    for turn in 0.. {
        if start.elapsed() >= time {
            break;
        }
        if let Some(gap) = gap {
            tokio::time::sleep_until(due).await;
            due += gap;
        }
        let index = turn % requests.len();
        let Some(request) = requests.get_mut(index) else { break };
        request.renew(&mut random);
        let begin = Instant::now();
        match line.exchange(&request.bytes).await? {
            (202, _) => sent.spans += BATCH,
            (429 | 503, _) => {
                sent.refused += 1;
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            (status, _) => return Err(format!("the server answered {status}")),
        }
        let took = u64::try_from(begin.elapsed().as_micros()).unwrap_or(u64::MAX);
        sent.latencies.record(took.max(1)).map_err(|e| e.to_string())?;
    }
    Ok(sent)
}

fn histogram() -> Result<Histogram<u64>, String> {
    Histogram::new(3).map_err(|e| e.to_string())
}

fn quantile(sent: &Sent, quantile: f64) -> f64 {
    sent.latencies.value_at_quantile(quantile) as f64 / 1000.0
}
