//! `bench ingest`: spans over HTTP, what they cost, and whether memory stays where it is.

use std::net::SocketAddr;
use std::time::Duration;

use faultscope_model::figures::{Better, Figure};
use faultscope_model::units;
use hdrhistogram::Histogram;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::endure;
use super::mesh::{Running, Scratch, start_part, stop};
use super::part::Part;
use super::spans::{Line, PER_TRACE, Random, Request, TRACES, disk};
use super::usage;
use crate::bench::BenchArgs;
use crate::error::CommandError;
use crate::exit::Exit;
use crate::printer::Printer;

/// Connections of the senders.
pub(super) const CONNECTIONS: u64 = 16;
/// Spans of a batch.
const BATCH: u64 = PER_TRACE * TRACES;
/// Spans for each second when memory is watched.
const PACE: u64 = 10_000;
pub(super) const MIB: f64 = 1048576.0;

/// What one sender saw.
pub(super) struct Sent {
    pub(super) spans: u64,
    pub(super) refused: u64,
    latencies: Histogram<u64>,
}

pub(super) async fn run(
    args: &BenchArgs,
    printer: &Printer,
    notes: &mut Vec<String>,
) -> Result<Vec<Figure>, CommandError> {
    if let Some(times) = args.kills {
        return endure::kills(args, times, printer).await;
    }
    if let Some(time) = &args.soak {
        let time = units::parse_duration(time).map_err(|e| CommandError::usage(e.to_string()))?;
        return endure::soak(args, time, printer).await;
    }
    let folder = Scratch::new()?;
    let state = folder.0.join("ingest");
    let server = start_part(&Part::Serve { state: state.clone() }).await?;
    let time = Duration::from_secs(args.seconds);
    send(&server, args.seed, Duration::from_millis(500), None).await?;
    printer.talk("as fast as answers come");
    let pid = server.child.id().unwrap_or_default();
    let (before, cpu) = (Instant::now(), usage::cpu(pid));
    let sent = send(&server, args.seed + 1, time, None).await?;
    let (wall, cpu) = (before.elapsed().as_secs_f64(), (usage::cpu(pid) - cpu).as_secs_f64());
    let mut figures = vec![
        Figure::new(
            "spans, Zipkin v2 JSON in batches of 100",
            sent.spans as f64 / cpu.max(0.01),
            "1/CPU s",
            Better::Higher,
        )
        .goal(50_000.0),
        Figure::new("spans kept", sent.spans as f64 / wall, "1/s", Better::Higher).goal(30_000.0),
        Figure::new("acknowledged, p50", quantile(&sent, 0.5), "ms", Better::Lower),
        Figure::new("acknowledged, p99", quantile(&sent, 0.99), "ms", Better::Lower),
    ];
    notes.push(format!("{} connections; {} batches were told to come again", CONNECTIONS, sent.refused));
    printer.talk(format!("{PACE} spans/s, watching memory"));
    // A third of the time to settle, then what it grows by in the rest.
    send(&server, args.seed + 2, time / 3, Some(PACE)).await?;
    let settled = usage::resident(pid);
    let paced = send(&server, args.seed + 3, time, Some(PACE)).await?;
    let after = usage::resident(pid);
    let reached = paced.spans as f64 / time.as_secs_f64();
    figures.extend([
        Figure::new("spans kept at a fixed pace", reached, "1/s", Better::Higher).goal(PACE as f64 * 0.98),
        Figure::new("memory of the server", after as f64 / MIB, "MiB", Better::Lower),
        super::lower("memory that it grew by meanwhile", (after as f64 - settled as f64) / MIB, "MiB", 16.0),
    ]);
    let kept = stop(server).await;
    let kept = kept.ok_or_else(|| CommandError::internal("the server did not say what it kept"))?;
    figures.push(super::lower("on disk", disk(&state) as f64 / kept.recorded.max(1) as f64, "B/span", 400.0));
    Ok(figures)
}

/// Sends batches over all connections, as fast as answers come or at a pace.
pub(super) async fn send(
    server: &Running,
    seed: u64,
    time: Duration,
    pace: Option<u64>,
) -> Result<Sent, CommandError> {
    let broken = |e: String| CommandError::new(Exit::Environment, "a sender broke off").because(e);
    let mut senders = JoinSet::new();
    for number in 0..CONNECTIONS {
        let gap = pace.map(|pace| Duration::from_secs(1) * (BATCH * CONNECTIONS) as u32 / pace as u32);
        senders.spawn(one(server.address, seed * 1000 + number, time, gap));
    }
    let mut all = Sent { spans: 0, refused: 0, latencies: histogram().map_err(broken)? };
    while let Some(sent) = senders.join_next().await {
        let sent = sent.map_err(|e| broken(e.to_string()))?.map_err(broken)?;
        all.spans += sent.spans;
        all.refused += sent.refused;
        all.latencies.add(sent.latencies).map_err(|e| broken(e.to_string()))?;
    }
    Ok(all)
}

async fn one(address: SocketAddr, seed: u64, time: Duration, gap: Option<Duration>) -> Result<Sent, String> {
    let mut random = Random(seed);
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
