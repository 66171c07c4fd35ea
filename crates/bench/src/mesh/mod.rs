//! `bench mesh`: requests per CPU second compared with Envoy, and added latency.

mod client;
mod envoy;

use std::net::SocketAddr;
use std::time::Duration;

use faultscope_model::wiring::RecordLevel;

use crate::args::{MeshArgs, Peer};
use crate::bench::{Host, Measured};
use crate::error::BenchError;
use crate::figure::{Direction, Figure};
use crate::part::{Kept, Part, Running, scratch_folder, start_part, stop};
use crate::usage;
use client::Shape;

/// Connections of the load client.
const CONNECTIONS: usize = 64;
/// How long a proxy may process its queue before its CPU time is read.
const SETTLE: Duration = Duration::from_millis(300);
/// Rounds in which proxies take turns, so that other load on the machine affects all alike.
const ROUNDS: usize = 3;
/// Requests per second when latency is measured.
const PACE: u32 = 1_000;

#[derive(Debug, Default, Clone, Copy)]
struct Tally {
    answers: u64,
    cpu: Duration,
}

impl Tally {
    fn per_cpu_second(self) -> f64 {
        self.answers as f64 / self.cpu.as_secs_f64().max(0.01)
    }
}

/// What is compared with Envoy, with its goals.
const COMPARED: [(&str, f64); 2] =
    [("against Envoy, timing recorded", 4.0), ("against Envoy, headers and 1 KiB bodies", 2.5)];

pub(crate) async fn run(args: &MeshArgs, host: &Host<'_>) -> Result<Measured, BenchError> {
    let folder = scratch_folder()?;
    // A missing peer is reported before anything is measured.
    let program = match args.without.contains(&Peer::Envoy) {
        true => None,
        false => Some(envoy::find(args.envoy.as_deref(), std::env::var_os("PATH").as_deref())?),
    };
    let time = Duration::from_secs(args.seconds);
    let upstream = start_part(&Part::Upstream, host).await?;
    let state = folder.path().join("store");
    let mesh_part = |record| Part::Mesh { upstream: upstream.address, record, state: state.clone() };
    let timing = start_part(&mesh_part(RecordLevel::Timing), host).await?;
    let bodies = start_part(&mesh_part(RecordLevel::Bodies { most: 1024 }), host).await?;
    let envoy = match &program {
        Some(program) => Some(envoy::start(program, upstream.address, folder.path()).await?),
        None => None,
    };
    let (small, large) = (Shape::small(), Shape::kibibyte());
    let warm_up = Duration::from_millis(500);
    for (proxy, shape) in [(&timing, &small), (&bodies, &large)] {
        load(proxy, shape, warm_up).await?;
    }
    let mut rounds: [Vec<f64>; 4] = Default::default();
    for round in 1..=ROUNDS {
        host.talk(format!("round {round} of {ROUNDS}"));
        let turns: [(usize, Option<&Running>, &Shape); 4] = [
            (0, Some(&timing), &small),
            (1, envoy.as_ref(), &small),
            (2, Some(&bodies), &large),
            (3, envoy.as_ref(), &large),
        ];
        for (index, proxy, shape) in turns {
            let Some(proxy) = proxy else { continue };
            let tally = load(proxy, shape, time / u32::try_from(ROUNDS).unwrap_or(1)).await?;
            rounds[index].push(tally.per_cpu_second());
        }
    }
    let [ours_small, envoy_small, ours_large, envoy_large] = rounds;
    let unit = "1/CPU s";
    let mut figures = vec![
        Figure::median("requests, timing recorded", &ours_small, unit, Direction::Higher),
        Figure::median("requests, headers and 1 KiB bodies recorded", &ours_large, unit, Direction::Higher),
    ];
    for ((name, goal), ours, theirs) in
        [(COMPARED[0], &ours_small, &envoy_small), (COMPARED[1], &ours_large, &envoy_large)]
    {
        figures.push(compare(name, goal, ours, theirs));
    }
    host.talk("latency at a fixed pace");
    let (mut added, mut direct_p50) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let direct = pace(upstream.address, &small, time).await?;
        let through = pace(timing.address, &small, time).await?;
        direct_p50.push(direct);
        added.push(through - direct);
    }
    let direct = Figure::median("direct", &direct_p50, "ms", Direction::Lower);
    figures.push(
        Figure::median("added latency p50 at 1,000 requests/s", &added, "ms", Direction::Lower)
            .goal(0.3)
            .peer("direct p50 ms", direct.measured.unwrap_or(f64::NAN)),
    );
    let resident = usage::resident(timing.child.id().unwrap_or_default());
    figures.push(Figure::lower("memory of the mesh process", resident as f64 / 1048576.0, "MiB"));
    let mut kept = Kept { recorded: 0, dropped: 0 };
    for running in [Some(timing), Some(bodies), Some(upstream), envoy].into_iter().flatten() {
        if let Some(one) = stop(running).await {
            kept = Kept { recorded: kept.recorded + one.recorded, dropped: kept.dropped + one.dropped };
        }
    }
    let share = kept.dropped as f64 / (kept.recorded + kept.dropped).max(1) as f64;
    figures.push(Figure::lower("calls that the store could not take", share * 100.0, "%").goal(0.0));
    Ok(Measured { figures, ..Measured::default() })
}

/// The ratio to the peer, round by round; not compared without a peer.
fn compare(name: &str, goal: f64, ours: &[f64], theirs: &[f64]) -> Figure {
    if theirs.is_empty() {
        return Figure::not_compared(name, "x", Direction::Higher, goal);
    }
    let ratios: Vec<f64> = ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect();
    let peer = Figure::median("peer", theirs, "", Direction::Higher).measured.unwrap_or(f64::NAN);
    Figure::median(name, &ratios, "x", Direction::Higher).goal(goal).peer("Envoy 1/CPU s", peer)
}

async fn load(proxy: &Running, shape: &Shape, time: Duration) -> Result<Tally, BenchError> {
    let pid = proxy.child.id().unwrap_or_default();
    let before = usage::cpu(pid);
    let answers = client::closed(proxy.address, shape, CONNECTIONS, time).await.map_err(broken)?;
    // What is still queued for the store counts too.
    tokio::time::sleep(SETTLE).await;
    Ok(Tally { answers, cpu: usage::cpu(pid) - before })
}

async fn pace(address: SocketAddr, shape: &Shape, time: Duration) -> Result<f64, BenchError> {
    let latencies = client::paced(address, shape, 16, PACE, time / 2).await.map_err(broken)?;
    Ok(latencies.value_at_quantile(0.5) as f64 / 1000.0)
}

fn broken(cause: String) -> BenchError {
    BenchError::environment("the load client broke off").because(cause)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::Verdict;

    #[test]
    fn without_envoy_nothing_is_compared_and_nothing_is_met() {
        let figure = compare("against Envoy", 1.0, &[5.0, 5.0, 5.0], &[]);
        assert_eq!((figure.verdict, figure.measured), (Verdict::NotCompared, None));
    }

    #[test]
    fn rounds_are_compared_one_by_one_so_that_their_spread_shows() {
        let figure = compare("against Envoy", 1.5, &[4.0, 6.0, 5.0], &[2.0, 2.0, 2.0]);
        assert_eq!((figure.measured, figure.verdict), (Some(2.5), Verdict::Met));
        let spread = figure.spread.unwrap();
        assert_eq!((spread.min, spread.max), (2.0, 3.0));
    }
}
