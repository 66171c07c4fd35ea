//! `faultscope load`

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use faultscope_engine::load::{LoadOptions, LoadProtocol, LoadTarget, run_load};
use faultscope_engine::read_text_bounded;
use faultscope_model::units;
use faultscope_model::workload::{
    Arrivals, LoadReport, LoadRequest, LoadWindow, Scenario, Spacing, Think, Threshold,
};
use hyper::Uri;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::sync::mpsc;

use crate::args::Global;
use crate::campaign::interrupted;
use crate::error::CommandError;
use crate::exit::Exit;
use crate::printer::Printer;
use crate::render;

#[derive(Debug, Args)]
pub(crate) struct LoadArgs {
    /// Where requests go: `http://host:port`, with a path that all requests begin with.
    url: String,
    /// Send this request: `GET /items`; repeat for several, which users send one after the other.
    #[arg(long = "request", value_name = "METHOD PATH", conflicts_with = "scenario")]
    requests: Vec<String>,
    /// Send the requests of this file, with bodies, checks, saved values and an invocation matrix.
    #[arg(long, value_name = "FILE")]
    scenario: Option<PathBuf>,
    /// The number of users, each with at most one request under way; with --rate the most of them.
    #[arg(long, default_value_t = 10, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=20_000))]
    users: u32,
    /// Users that start per second; all at once without it. What happens before all have started does not count.
    #[arg(long, value_name = "NUMBER", conflicts_with = "rate")]
    spawn_rate: Option<f64>,
    /// The pause of a user before its next request: `100ms`, `50ms-150ms`, or `exp:100ms` for an exponential one.
    #[arg(long, value_name = "DURATION", value_parser = read_think, conflicts_with = "rate")]
    think: Option<Think>,
    /// Start this many requests per second, whatever becomes of those before. Latency counts from the intended start.
    #[arg(long, value_name = "NUMBER")]
    rate: Option<f64>,
    /// Let the requests of --rate come at random, as independent users do.
    #[arg(long, requires = "rate")]
    poisson: bool,
    /// How long requests are sent.
    #[arg(long, default_value = "30s", value_name = "DURATION")]
    duration: String,
    /// How long an answer may take; one that takes longer is a failure with this time.
    #[arg(long, default_value = "10s", value_name = "DURATION")]
    within: String,
    /// A limit to keep: `p95<200ms`, `errors<1%`, `rate>100`, `list:p99<1s`; repeat for several.
    #[arg(long = "threshold", value_name = "LIMIT")]
    thresholds: Vec<Threshold>,
    /// Stop when a threshold is broken in this many seconds in a row.
    #[arg(long, value_name = "SECONDS", requires = "thresholds", value_parser = clap::value_parser!(u32).range(1..))]
    stop_after: Option<u32>,
    /// Send HTTP/2 instead of HTTP/1.1.
    #[arg(long)]
    http2: bool,
    /// Allow a target on another machine.
    #[arg(long)]
    allow_remote: bool,
    /// Write the figures of each second to this file.
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Seed of every random choice.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Open files beside those of users.
const OTHER_FILES: u64 = 64;
/// The highest rate that can be asked for.
const MAX_RATE: f64 = 1_000_000.0;
/// The largest scenario.
const MAX_SCENARIO: u64 = 4 << 20;
/// Without a terminal a line is printed this often.
const TELL_EVERY: usize = 10;

pub(crate) async fn run(args: LoadArgs, global: &Global, printer: &Printer) -> Result<Exit, CommandError> {
    let options = options(&args).await?;
    check_open_files(options.arrivals.most_users())?;
    printer.talk(describe(&options));
    let stop = interrupted();
    let (sender, receiver) = mpsc::unbounded_channel();
    let showing = tokio::spawn(show_windows(receiver, Display::new(global, printer)));
    let report = run_load(options, sender, &stop).await;
    // It ends with its channel.
    let _ = showing.await;
    if let Some(file) = &args.csv {
        write_csv(file, &report)?;
    }
    if printer.json {
        printer.result(&report)?;
    } else {
        render::load::show(&report, printer);
    }
    Ok(exit_of(&report, stop.is_cancelled()))
}

fn exit_of(report: &LoadReport, was_interrupted: bool) -> Exit {
    if was_interrupted {
        return Exit::Interrupted;
    }
    if !report.self_check.invalid.is_empty() {
        return Exit::Environment;
    }
    let is_kept = report.thresholds.iter().all(|threshold| threshold.is_kept);
    // Without thresholds, a target that answers nothing is still a failure.
    let has_answer = report.counts.n_failed() < report.counts.requests;
    if is_kept && has_answer { Exit::Done } else { Exit::Found }
}

async fn options(args: &LoadArgs) -> Result<LoadOptions, CommandError> {
    let target = find_target(args).await?;
    let duration = read_duration(&args.duration)?;
    let arrivals = match args.rate {
        Some(rate) => Arrivals::Open {
            rate: check_rate("--rate", rate)?,
            spacing: if args.poisson { Spacing::Poisson } else { Spacing::Constant },
            most: args.users,
        },
        None => Arrivals::Closed {
            users: args.users,
            spawn_rate: args.spawn_rate.map(|rate| check_rate("--spawn-rate", rate)).transpose()?,
            think: args.think.unwrap_or(Think::None),
        },
    };
    if arrivals.ramp() >= duration {
        let ramp = units::show_duration(arrivals.ramp());
        return Err(CommandError::usage(format!(
            "starting all users takes {ramp}, and nothing would be left to count"
        ))
        .hint("a higher --spawn-rate, or a longer --duration"));
    }
    Ok(LoadOptions {
        target,
        scenario: read_scenario(args)?,
        arrivals,
        duration,
        within: read_duration(&args.within)?,
        thresholds: args.thresholds.clone(),
        stop_after: args.stop_after,
        seed: args.seed,
    })
}

fn read_duration(text: &str) -> Result<Duration, CommandError> {
    let duration = units::parse_duration(text).map_err(|e| CommandError::usage(e.to_string()))?;
    match duration.is_zero() {
        true => Err(CommandError::usage("a duration must be longer than nothing")),
        false => Ok(duration),
    }
}

fn check_rate(option: &str, rate: f64) -> Result<f64, CommandError> {
    match rate > 0.0 && rate <= MAX_RATE {
        true => Ok(rate),
        false => Err(CommandError::usage(format!("{option} must be above 0 and at most {MAX_RATE}"))),
    }
}

fn read_think(text: &str) -> Result<Think, String> {
    let duration = |text: &str| units::parse_duration(text).map_err(|e| e.to_string());
    if let Some(mean) = text.strip_prefix("exp:") {
        return Ok(Think::Exponential(duration(mean)?));
    }
    match text.split_once('-') {
        None => Ok(Think::Constant(duration(text)?)),
        Some((least, most)) => {
            let (least, most) = (duration(least)?, duration(most)?);
            if least > most {
                return Err("the shorter pause comes first".to_owned());
            }
            Ok(Think::Uniform(least, most))
        }
    }
}

fn read_scenario(args: &LoadArgs) -> Result<Scenario, CommandError> {
    if let Some(file) = &args.scenario {
        let name = file.display();
        let text = read_text_bounded(file, MAX_SCENARIO)
            .map_err(|e| CommandError::usage(format!("cannot read {name}")).because(e))?;
        return Scenario::read(&text, args.seed)
            .map_err(|e| CommandError::new(Exit::Spec, format!("{name}: {e}")));
    }
    let lines: Vec<&str> = match args.requests.as_slice() {
        [] => vec!["GET /"],
        given => given.iter().map(String::as_str).collect(),
    };
    let mut requests = Vec::new();
    for line in lines {
        let (method, path) = line.split_once(' ').unwrap_or(("GET", line));
        let (method, path) = (method.to_ascii_uppercase(), path.trim());
        let is_method = !method.is_empty() && method.bytes().all(|byte| byte.is_ascii_uppercase());
        if !is_method || !path.starts_with('/') || path.contains(char::is_whitespace) {
            return Err(
                CommandError::usage(format!("`{line}` is no request")).hint("write it as `GET /items`")
            );
        }
        // `$` has no meaning here, as it has in a scenario.
        requests.push(LoadRequest { path: path.replace("${", "$${"), ..LoadRequest::new(&method, path) });
    }
    let matrix = faultscope_model::workload::Matrix::in_turn(requests.len());
    Ok(Scenario { requests, matrix })
}

async fn find_target(args: &LoadArgs) -> Result<LoadTarget, CommandError> {
    let bad = |problem: &str| {
        CommandError::usage(format!("`{}` {problem}", args.url)).hint("write it as `http://localhost:8080`")
    };
    let uri: Uri = args.url.parse().map_err(|_| bad("is not a URL"))?;
    if uri.scheme_str() == Some("https") {
        return Err(bad("needs TLS, which `load` does not speak"));
    }
    let (Some("http"), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
        return Err(bad("does not begin with `http://` and a host"));
    };
    if authority.as_str().contains('@') || uri.query().is_some() {
        return Err(bad("has a user or a query"));
    }
    let (host, port) = (authority.host(), authority.port_u16().unwrap_or(80));
    let found: Vec<SocketAddr> = tokio::net::lookup_host((host.trim_matches(['[', ']']), port))
        .await
        .map_err(|e| bad("names a host that is not known").because(e))?
        .collect();
    // Servers that listen on one loopback address alone nearly always listen on that of IPv4.
    let address = found.iter().find(|address| address.is_ipv4()).or(found.first());
    let address = *address.ok_or_else(|| bad("names a host without an address"))?;
    let target = LoadTarget {
        address,
        authority: authority.to_string(),
        prefix: uri.path().trim_end_matches('/').to_owned(),
        protocol: if args.http2 { LoadProtocol::Http2 } else { LoadProtocol::Http1 },
    };
    if !target.is_local() && !args.allow_remote {
        return Err(CommandError::usage(format!("{address} is on another machine"))
            .hint("--allow-remote sends load there: only to systems that are yours"));
    }
    Ok(target)
}

fn check_open_files(users: u32) -> Result<(), CommandError> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
    if u64::from(users) + OTHER_FILES <= limit {
        return Ok(());
    }
    Err(CommandError::new(
        Exit::Platform,
        format!("{users} users need as many open files, and the limit is {limit}"),
    )
    .hint("fewer --users, or a higher `ulimit -n`"))
}

fn describe(options: &LoadOptions) -> String {
    let LoadOptions { target, arrivals, duration, seed, .. } = options;
    let users = match arrivals {
        Arrivals::Closed { users, .. } => units::count(*users, "user"),
        Arrivals::Open { rate, most, .. } => {
            format!("{rate} requests/s by at most {}", units::count(*most, "user"))
        }
    };
    let duration = units::show_duration(*duration);
    format!("{users} for {duration} to http://{}{} (seed {seed})", target.authority, target.prefix)
}

/// Shows the load as it goes.
struct Display {
    bar: ProgressBar,
    is_terminal: bool,
    is_silent: bool,
}

impl Display {
    fn new(global: &Global, printer: &Printer) -> Self {
        let is_silent = global.quiet || printer.json;
        let is_terminal = !is_silent && std::io::stderr().is_terminal();
        let target = if is_terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(None, target);
        let style = ProgressStyle::with_template("{spinner} {elapsed}  {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
        Self { bar, is_terminal, is_silent }
    }
}

async fn show_windows(mut windows: mpsc::UnboundedReceiver<LoadWindow>, display: Display) {
    let mut seen = 0;
    while let Some(window) = windows.recv().await {
        seen += 1;
        let line = render::load::window_line(&window);
        if display.is_terminal {
            display.bar.set_message(line);
            display.bar.tick();
        } else if !display.is_silent && seen % TELL_EVERY == 0 {
            tracing::info!("{line}");
        }
    }
    display.bar.finish_and_clear();
}

fn write_csv(file: &Path, report: &LoadReport) -> Result<(), CommandError> {
    let mut text = String::from("end_s,users,requests,failed,p50_us,p95_us,p99_us\n");
    for window in &report.windows {
        let LoadWindow { end_s, users, requests, failed, p50_us, p95_us, p99_us } = window;
        text.push_str(&format!("{end_s},{users},{requests},{failed},{p50_us},{p95_us},{p99_us}\n"));
    }
    std::fs::write(file, text)
        .map_err(|e| CommandError::usage(format!("cannot write {}", file.display())).because(e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_constant_uniform_or_exponential() {
        let ms = Duration::from_millis;
        assert_eq!(read_think("100ms"), Ok(Think::Constant(ms(100))));
        assert_eq!(read_think("50ms-150ms"), Ok(Think::Uniform(ms(50), ms(150))));
        assert_eq!(read_think("exp:1s"), Ok(Think::Exponential(ms(1000))));
        assert!(read_think("150ms-50ms").is_err() && read_think("soon").is_err());
    }
}
