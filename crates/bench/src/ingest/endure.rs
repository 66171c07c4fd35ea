//! `bench ingest --soak` and `--kills`: what shows only after a long time or a crash.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use faultscope_model::TraceId;
use faultscope_store::spans::SpanReader;
use tokio::task::JoinSet;

use super::{CONNECTIONS, MIB, send};
use crate::bench::Host;
use crate::error::BenchError;
use crate::figure::Figure;
use crate::part::{Part, scratch_folder, start_part, stop};
use crate::random::Random;
use crate::spans::{Line, PER_TRACE, Request, below, disk};
use crate::usage;

/// How long the server settles before its memory is first measured.
const SETTLE: Duration = Duration::from_secs(10);

/// Sends spans at a fixed rate for long, and watches the memory of the server.
pub(super) async fn soak(
    mut seed: u64,
    time: Duration,
    rate: u64,
    host: &Host<'_>,
) -> Result<Vec<Figure>, BenchError> {
    let folder = scratch_folder()?;
    let state = folder.path().join("soak");
    let server = start_part(&Part::Serve { state: state.clone() }, host).await?;
    let pid = server.child.id().unwrap_or_default();
    let minute = Duration::from_secs(60);
    let mut rest = time;
    let (mut spans, mut refused) = (0, 0);
    let mut memory: Vec<f64> = Vec::new();
    // At the start, then at the end of each minute.
    for part in [SETTLE.min(time)].into_iter().chain(std::iter::repeat(minute)) {
        let part = part.min(rest);
        if part.is_zero() {
            break;
        }
        let sent = send(&server, seed, part, Some(rate)).await?;
        (spans, refused) = (spans + sent.spans, refused + sent.refused);
        (rest, seed) = (rest - part, seed + 1);
        let resident = usage::resident(pid) as f64 / MIB;
        host.talk(format!("{:>5} s  {spans:>10} spans  {resident:>7.1} MiB", (time - rest).as_secs()));
        memory.push(resident);
    }
    stop(server).await;
    let at = |index: usize| memory.get(index).or(memory.last()).copied().unwrap_or(f64::NAN);
    let (first, end) = (at(1), memory.last().copied().unwrap_or(f64::NAN));
    let reached = spans as f64 / time.as_secs_f64();
    Ok(vec![
        Figure::higher("spans kept at a fixed pace", reached, "1/s").goal(rate as f64 * 0.98),
        Figure::lower("batches that were refused for a while", refused as f64, ""),
        Figure::lower("memory at the start", at(0), "MiB"),
        Figure::lower("memory after a minute", first, "MiB"),
        Figure::lower("memory at the end", end, "MiB"),
        Figure::lower("memory that it grew by after a minute", end - first, "MiB").goal(16.0),
        Figure::lower("on disk", disk(&state) as f64 / (spans as f64).max(1.0), "B/span").goal(400.0),
    ])
}

/// Kills the server repeatedly while spans are sent; no acknowledged span may be missing.
pub(super) async fn kills(seed: u64, times: u32, host: &Host<'_>) -> Result<Vec<Figure>, BenchError> {
    let folder = scratch_folder()?;
    let state = folder.path().join("kills");
    let acknowledged: Arc<Mutex<Vec<u64>>> = Arc::default();
    let count = || acknowledged.lock().unwrap_or_else(PoisonError::into_inner).len();
    let mut random = Random::new(seed);
    for round in 0..times {
        let mut server = start_part(&Part::Serve { state: state.clone() }, host).await?;
        let before = count();
        let mut senders = JoinSet::new();
        for number in 0..CONNECTIONS {
            let seed = seed * 1_000_003 + u64::from(round) * 1000 + number;
            senders.spawn(until_it_breaks(server.address, seed, Arc::clone(&acknowledged)));
        }
        // Killed at any moment of its work, but not before it has begun.
        while count() == before && !senders.is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        tokio::time::sleep(Duration::from_millis(below(&mut random, 150))).await;
        let killed = server.child.kill().await;
        killed.map_err(|e| BenchError::environment("the server cannot be killed").because(e))?;
        while senders.join_next().await.is_some() {}
        if round % 10 == 9 {
            host.talk(format!("{} kills, {} traces acknowledged", round + 1, count()));
        }
    }
    let acknowledged = std::mem::take(&mut *acknowledged.lock().unwrap_or_else(PoisonError::into_inner));
    let total = acknowledged.len() as u64 * PER_TRACE;
    host.talk(format!("looking for {total} acknowledged spans"));
    // As a reader finds it, before any writer has repaired anything.
    let reader = SpanReader::open(&state, true);
    let mut lost = 0;
    for id in acknowledged {
        let found = reader.trace(TraceId(id.into()))?.len() as u64;
        lost += PER_TRACE.saturating_sub(found);
    }
    Ok(vec![
        Figure::higher("kills", times.into(), ""),
        Figure::higher("spans acknowledged", total as f64, ""),
        Figure::lower("acknowledged spans lost", lost as f64, "").goal(0.0),
        Figure::higher("spans found in all", reader.count()? as f64, ""),
    ])
}

async fn until_it_breaks(address: std::net::SocketAddr, seed: u64, acknowledged: Arc<Mutex<Vec<u64>>>) {
    let mut random = Random::new(seed);
    let mut request = Request::new(&mut random);
    let Ok(mut line) = Line::open(address).await else { return };
    loop {
        request.renew(&mut random);
        match line.exchange(&request.bytes).await {
            Ok((202, _)) => {
                acknowledged.lock().unwrap_or_else(PoisonError::into_inner).extend(request.traces());
            }
            Ok(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            Err(_) => return,
        }
    }
}
