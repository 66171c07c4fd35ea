//! `bench query`: a million spans over a day, then traces by id and searches over HTTP.

use faultscope_store::spans::{Refused, SpanStore, SpanStoreOptions};
use hdrhistogram::Histogram;
use tokio::time::Instant;

use crate::bench::{Host, Measured};
use crate::error::BenchError;
use crate::figure::{Figure, Spread};
use crate::part::{Part, scratch_folder, start_part, stop};
use crate::random::Random;
use crate::spans::{DAY, Line, PER_TRACE, below, disk, now_us, trace};
use crate::usage;

/// Spans in the store.
const SPANS: u64 = 1_000_000;
/// Repetitions of each query.
const ASKED: usize = 400;

pub(crate) async fn run(seed: u64, host: &Host<'_>) -> Result<Measured, BenchError> {
    let folder = scratch_folder()?;
    let state = folder.path().join("query");
    host.talk(format!("writing {SPANS} spans"));
    let begin = Instant::now();
    let (ids, spent) = fill(&state, seed).await?;
    let notes = vec![format!("{SPANS} spans over 24 h; {} traces", ids.len())];
    let mut figures = vec![
        Figure::higher("spans written without HTTP", SPANS as f64 / begin.elapsed().as_secs_f64(), "1/s"),
        Figure::higher("spans written without HTTP", SPANS as f64 / spent.max(0.01), "1/CPU s"),
        Figure::lower("on disk", disk(&state) as f64 / SPANS as f64, "B/span").goal(400.0),
    ];
    let server = start_part(&Part::Serve { state }, host).await?;
    let broken = |e: String| BenchError::environment("a question broke off").because(e);
    let mut line = Line::open(server.address).await.map_err(broken)?;
    let mut random = Random::new(seed ^ 0x5eed);
    let mut by_id = || format!("/api/v2/trace/{:016x}", ids[random.below(ids.len())]);
    let figure = run_queries(&mut line, "trace by id", &mut by_id, 5.0).await.map_err(broken)?;
    figures.extend(figure);
    let end = now_us() / 1000;
    let mut pick = Random::new(seed ^ 0xf00d);
    for (name, filter) in [
        ("search, any", ""),
        ("search, service", "&serviceName=service-{s}"),
        ("search, service and >= 10 ms", "&serviceName=service-{s}&minDuration=10000"),
        ("search, service and >= 80 ms", "&serviceName=service-{s}&minDuration=80000"),
        ("search, service and name", "&serviceName=service-{s}&spanName=get%20/api/resource{o}"),
        ("search, service and error", "&serviceName=service-{s}&annotationQuery=error"),
        ("search, one request id", "&annotationQuery=request.id%3D{r}"),
        (
            "search, service, name, tag, duration",
            "&serviceName=service-{s}&spanName=get%20/api/resource{o}&minDuration=5000&annotationQuery=http.status_code%3D500",
        ),
        ("search, nothing fits", "&serviceName=service-{s}&minDuration=900000000"),
    ] {
        let mut path = || {
            let filter = filter.replace("{s}", &format!("{:02}", pick.below(20)));
            let filter = filter.replace("{o}", &pick.below(12).to_string());
            let filter = filter.replace("{r}", &format!("{:016x}", pick.next()));
            // Searches in the past as well as at the present.
            let end = end - below(&mut pick, 20) * 3_600_000;
            format!("/api/v2/traces?endTs={end}&lookback=86400000&limit=10{filter}")
        };
        figures.extend(run_queries(&mut line, name, &mut path, 50.0).await.map_err(broken)?);
    }
    stop(server).await;
    Ok(Measured { figures, notes, ..Measured::default() })
}

/// Runs one kind of query many times.
async fn run_queries(
    line: &mut Line,
    name: &str,
    path: &mut impl FnMut() -> String,
    goal: f64,
) -> Result<[Figure; 2], String> {
    let mut all = Vec::new();
    let mut latencies = Histogram::<u64>::new(3).map_err(|e| e.to_string())?;
    for turn in 0..ASKED + 10 {
        let request = format!("GET {} HTTP/1.1\r\nhost: localhost\r\n\r\n", path());
        let begin = Instant::now();
        let (status, _) = line.exchange(request.as_bytes()).await?;
        if status != 200 {
            return Err(format!("the server answered {status} to {request}"));
        }
        // The first ones find cold caches.
        if turn >= 10 {
            let took = u64::try_from(begin.elapsed().as_micros()).unwrap_or(u64::MAX);
            latencies.record(took.max(1)).map_err(|e| e.to_string())?;
            all.push(took as f64 / 1000.0);
        }
    }
    // In order of time, so that a temporary disturbance shows.
    let fifths: Vec<f64> = all.chunks(ASKED / 5).map(|part| Spread::from_values(part).median).collect();
    let at = |quantile: f64| latencies.value_at_quantile(quantile) as f64 / 1000.0;
    Ok([
        Figure::lower(format!("{name}, p50"), at(0.5), "ms").spread(&fifths),
        Figure::lower(format!("{name}, p99"), at(0.99), "ms").goal(goal),
    ])
}

/// Writes all spans; returns the trace ids and the CPU seconds without those of generating the spans.
async fn fill(state: &std::path::Path, seed: u64) -> Result<(Vec<u64>, f64), BenchError> {
    let store = SpanStore::open(state, SpanStoreOptions::default())?;
    let (mut random, start) = (Random::new(seed), now_us() - DAY);
    let traces = SPANS / PER_TRACE;
    let mut ids = Vec::new();
    let mut last = None;
    let (mut making, own) = (std::time::Duration::ZERO, std::process::id());
    let before = usage::cpu(own);
    let mut number = 0;
    while number < traces {
        let begin = Instant::now();
        let mut batch = Vec::new();
        // Traces of the same time are interleaved.
        for _ in 0..50 {
            batch.extend(trace(&mut random, start + DAY / traces * number));
            number += 1;
        }
        batch.sort_by_key(|span| span.id);
        ids.extend(batch.iter().filter(|span| span.parent.is_none()).map(|span| span.trace.0 as u64));
        making += begin.elapsed();
        last = loop {
            match store.put(batch.clone()) {
                Ok(ack) => break Some(ack),
                Err(Refused::Busy) => tokio::time::sleep(std::time::Duration::from_millis(2)).await,
                Err(error) => return Err(BenchError::internal("the store").because(error)),
            }
        };
    }
    if let Some(ack) = last {
        ack.committed().await?;
    }
    let spent = usage::cpu(own) - before;
    Ok((ids, spent.saturating_sub(making).as_secs_f64()))
}
