//! `bench ingest --soak` and `--kills`: what only time and violence show.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use faultscope_model::TraceId;
use faultscope_model::figures::{Better, Figure};
use faultscope_store::slices::SpanReader;
use tokio::task::JoinSet;

use super::ingest::{CONNECTIONS, MIB, send};
use super::mesh::{Scratch, start_part, stop};
use super::part::Part;
use super::spans::{Line, PER_TRACE, Random, Request, disk};
use super::usage;
use crate::bench::BenchArgs;
use crate::error::CommandError;
use crate::exit::Exit;
use crate::printer::Printer;

/// How long the server settles before its memory is first looked at.
const SETTLE: Duration = Duration::from_secs(10);

/// Sends spans at a pace for long, and watches the memory of the server.
pub(super) async fn soak(
    args: &BenchArgs,
    time: Duration,
    printer: &Printer,
) -> Result<Vec<Figure>, CommandError> {
    let folder = Scratch::new()?;
    let state = folder.0.join("soak");
    let server = start_part(&Part::Serve { state: state.clone() }).await?;
    let pid = server.child.id().unwrap_or_default();
    let minute = Duration::from_secs(60);
    let mut rest = time;
    let mut seed = args.seed;
    let (mut spans, mut refused) = (0, 0);
    let mut memory: Vec<f64> = Vec::new();
    // Its start, then the end of each minute.
    for part in [SETTLE.min(time)].into_iter().chain(std::iter::repeat(minute)) {
        let part = part.min(rest);
        if part.is_zero() {
            break;
        }
        let sent = send(&server, seed, part, Some(args.rate)).await?;
        (spans, refused) = (spans + sent.spans, refused + sent.refused);
        (rest, seed) = (rest - part, seed + 1);
        let resident = usage::resident(pid) as f64 / MIB;
        printer.talk(format!("{:>5} s  {spans:>10} spans  {resident:>7.1} MiB", (time - rest).as_secs()));
        memory.push(resident);
    }
    stop(server).await;
    let at = |index: usize| memory.get(index).or(memory.last()).copied().unwrap_or(f64::NAN);
    let (first, end) = (at(1), memory.last().copied().unwrap_or(f64::NAN));
    let reached = spans as f64 / time.as_secs_f64();
    Ok(vec![
        Figure::new("spans kept at a fixed pace", reached, "1/s", Better::Higher)
            .goal(args.rate as f64 * 0.98),
        Figure::new("batches told to come again", refused as f64, "", Better::Lower),
        Figure::new("memory at the start", at(0), "MiB", Better::Lower),
        Figure::new("memory after a minute", first, "MiB", Better::Lower),
        Figure::new("memory at the end", end, "MiB", Better::Lower),
        super::lower("memory that it grew by after a minute", end - first, "MiB", 16.0),
        super::lower("on disk", disk(&state) as f64 / (spans as f64).max(1.0), "B/span", 400.0),
    ])
}

/// Kills the server again and again while spans come in; nothing that it acknowledged may be missing.
pub(super) async fn kills(
    args: &BenchArgs,
    times: u32,
    printer: &Printer,
) -> Result<Vec<Figure>, CommandError> {
    let folder = Scratch::new()?;
    let state = folder.0.join("kills");
    let acknowledged: Arc<Mutex<Vec<u64>>> = Arc::default();
    let count = || acknowledged.lock().unwrap_or_else(PoisonError::into_inner).len();
    let mut random = Random(args.seed);
    for round in 0..times {
        let mut server = start_part(&Part::Serve { state: state.clone() }).await?;
        let before = count();
        let mut senders = JoinSet::new();
        for number in 0..CONNECTIONS {
            let seed = args.seed * 1_000_003 + u64::from(round) * 1000 + number;
            senders.spawn(until_it_breaks(server.address, seed, Arc::clone(&acknowledged)));
        }
        // It is killed at any moment of its work, but not before it has begun.
        while count() == before && !senders.is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        tokio::time::sleep(Duration::from_millis(random.below(150))).await;
        let killed = server.child.kill().await;
        killed.map_err(|e| CommandError::new(Exit::Environment, "the server cannot be killed").because(e))?;
        while senders.join_next().await.is_some() {}
        if round % 10 == 9 {
            printer.talk(format!("{} kills, {} traces acknowledged", round + 1, count()));
        }
    }
    let acknowledged = std::mem::take(&mut *acknowledged.lock().unwrap_or_else(PoisonError::into_inner));
    let total = acknowledged.len() as u64 * PER_TRACE;
    printer.talk(format!("looking for {total} acknowledged spans"));
    // As a reader finds it before anyone has mended anything.
    let reader = SpanReader::open(&state, true);
    let mut lost = 0;
    for id in acknowledged {
        let found = reader.trace(TraceId(id.into()))?.len() as u64;
        lost += PER_TRACE.saturating_sub(found);
    }
    Ok(vec![
        Figure::new("kills", times.into(), "", Better::Higher),
        Figure::new("spans acknowledged", total as f64, "", Better::Higher),
        super::lower("acknowledged spans lost", lost as f64, "", 0.0),
        Figure::new("spans found in all", reader.count()? as f64, "", Better::Higher),
    ])
}

async fn until_it_breaks(address: std::net::SocketAddr, seed: u64, acknowledged: Arc<Mutex<Vec<u64>>>) {
    let mut random = Random(seed);
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
