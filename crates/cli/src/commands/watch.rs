//! `faultscope watch`

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use faultscope_engine::views::{Archive, Subject, plain};
use faultscope_engine::watch::{
    Action, Incident, Trigger, WatchCounts, WatchSettings, Watcher, group_into_incidents, parse_webhook,
    read_between, read_run,
};
use faultscope_model::application::{DetectorChoice, DetectorLimits, MARGIN, WatchRule, WatchedMetric};
use faultscope_model::units::{self, count};
use serde::Serialize;

use crate::error::CommandError;
use crate::exit::Exit;
use crate::folder::FolderArg;
use crate::now::{now_us, parse_micros};
use crate::printer::Printer;
use crate::project::{self, Project};
use crate::render;

/// Stored data is read in parts of this length, so that an hour is never in memory at once.
const PART_US: u64 = 300_000_000;
/// Spans arrive when they end, and later still where services report in batches.
const SETTLE_US: u64 = 2_000_000;
/// The shortest interval between two reads.
const LEAST_EVERY: Duration = Duration::from_millis(200);

#[derive(Debug, Args)]
pub(crate) struct WatchArgs {
    #[command(flatten)]
    folder: FolderArg,
    /// Watch this run or campaign, or the beginning of its id; `last` for the newest.
    #[arg(long, value_name = "RUN", conflicts_with_all = ["since", "follow"])]
    run: Option<String>,
    /// First learn from this run what is usual; it should be healthy.
    #[arg(long, value_name = "RUN")]
    baseline: Option<String>,
    /// How far to look back, without a run.
    #[arg(long, default_value = "1h", value_name = "DURATION")]
    since: String,
    /// Go on watching what `serve` or `up` stores, until Ctrl-C.
    #[arg(long)]
    follow: bool,
    /// How often the store is read.
    #[arg(long, default_value = "5s", value_name = "DURATION", requires = "follow")]
    every: String,
    /// Stop after this time.
    #[arg(long = "for", value_name = "DURATION", requires = "follow")]
    duration: Option<String>,
    /// Only this service; repeat for several.
    #[arg(long = "service", value_name = "SERVICE")]
    services: Vec<String>,
    /// Only this metric: latency, errors, requests, cpu, memory, network, or a ratio such as cpu/requests; repeat for
    /// several.
    #[arg(long = "metric", value_name = "METRIC")]
    metrics: Vec<WatchedMetric>,
    #[command(flatten)]
    limits: LimitArgs,
    /// Run this line with a shell for each incident. FAULTSCOPE_INCIDENT has the incident as JSON, FAULTSCOPE_SERVICE,
    /// FAULTSCOPE_TRACES and FAULTSCOPE_SENTENCE parts of it.
    #[arg(long, value_name = "COMMAND")]
    exec: Option<String>,
    /// Send each incident as JSON to this address, which must be on this machine.
    #[arg(long, value_name = "URL")]
    webhook: Option<String>,
    /// Also allow a web hook on another machine. Incidents name services, operations and traces.
    #[arg(long, requires = "webhook")]
    allow_remote_webhook: bool,
}

/// The detector for all series, instead of those in the application file.
#[derive(Debug, Args)]
struct LimitArgs {
    /// adaptive, threshold, sigma or mean-shift; by default adaptive, or as the application file says.
    #[arg(long, value_name = "NAME")]
    detector: Option<String>,
    /// Limit of `threshold`: 500ms, 64MiB, 0.8.
    #[arg(long, value_name = "VALUE")]
    above: Option<String>,
    /// Values in a row of `threshold`.
    #[arg(long, value_name = "COUNT")]
    consecutive: Option<u64>,
    /// Sensitivity of `sigma`.
    #[arg(long, value_name = "NUMBER")]
    sigma: Option<f64>,
    /// Values of a window of `sigma` or `mean-shift`.
    #[arg(long, value_name = "COUNT")]
    window: Option<usize>,
    /// Sensitivity of `mean-shift`: 20ms, 16MiB, 0.1.
    #[arg(long, value_name = "VALUE")]
    lambda: Option<String>,
    /// False alarms per value of `adaptive`.
    #[arg(long, value_name = "PROBABILITY")]
    risk: Option<f64>,
    /// Also report patterns that never occurred: finds more, with a false alarm in about a thousand values.
    #[arg(long)]
    patterns: bool,
    /// Traces are looked for this far around an anomaly.
    #[arg(long, value_name = "DURATION")]
    margin: Option<String>,
}

/// What was found; the same as the terminal shows.
#[derive(Debug, Serialize)]
struct WatchReport {
    incidents: Vec<IncidentLine>,
    counts: WatchCounts,
}

#[derive(Debug, Serialize)]
struct IncidentLine {
    #[serde(flatten)]
    incident: Incident,
    sentences: Vec<String>,
}

impl From<Incident> for IncidentLine {
    fn from(incident: Incident) -> Self {
        let sentences = incident.anomalies.iter().map(ToString::to_string).collect();
        Self { incident, sentences }
    }
}

pub(crate) async fn run(args: WatchArgs, printer: &Printer) -> Result<Exit, CommandError> {
    let actions = args.actions()?;
    let settings = args.settings(printer)?;
    let archive = Archive::open(&project::state_folder(&args.folder), Subject::Trace)?;
    let mut watcher = Watcher::new(settings);
    if let Some(baseline) = &args.baseline {
        let (run, batch) = read_run(&archive, baseline)?;
        printer.talk(format!("learning from run {}: {}", run.id, count(batch.calls.len() as u64, "call")));
        watcher.learn(batch);
    }
    if args.follow {
        return follow(&args, archive, watcher, &actions, printer).await;
    }
    let mut anomalies = Vec::new();
    match &args.run {
        Some(run) => anomalies.extend(watcher.observe(read_run(&archive, run)?.1)),
        None => {
            let until = now_us();
            let mut from = until.saturating_sub(parse_micros(&args.since)?);
            while from < until {
                let to = from.saturating_add(PART_US).min(until);
                anomalies.extend(watcher.observe(read_between(&archive, from, to)?));
                from = to;
            }
        }
    }
    let incidents = group_into_incidents(anomalies);
    let exit = if incidents.is_empty() { Exit::Done } else { Exit::Found };
    for incident in &incidents {
        start_actions(&actions, incident, printer).await;
    }
    let counts = watcher.counts();
    if printer.json {
        let incidents = incidents.into_iter().map(IncidentLine::from).collect();
        printer.result(&WatchReport { incidents, counts })?;
    } else {
        incidents.iter().for_each(|incident| print_incident(incident, printer));
        print_counts(&counts, exit == Exit::Done, printer);
    }
    Ok(exit)
}

/// Reads what was stored since the last time, again and again.
async fn follow(
    args: &WatchArgs,
    archive: Archive,
    mut watcher: Watcher,
    actions: &[Action],
    printer: &Printer,
) -> Result<Exit, CommandError> {
    let wrong = |e: units::InvalidUnit| CommandError::usage(e.to_string());
    let every = units::parse_duration(&args.every).map_err(wrong)?;
    let within = args.duration.as_deref().map(units::parse_duration).transpose().map_err(wrong)?;
    if every < LEAST_EVERY {
        return Err(CommandError::usage("the store is read every 200ms at most").hint("--every 5s"));
    }
    let stop = crate::campaign::interrupted();
    let deadline = within.map(|within| tokio::time::Instant::now() + within);
    let mut from = now_us().saturating_sub(parse_micros(&args.since)?);
    let mut found_any = false;
    let mut shed = 0;
    printer.talk("Ctrl-C ends it");
    // Views block on the disk, so the archive moves to a thread for each read and comes back.
    let mut archive = Some(archive);
    loop {
        let until = now_us().saturating_sub(SETTLE_US);
        // The first read is the past, in parts; later ones are short.
        let to = until.min(from.saturating_add(PART_US));
        if to > from
            && let Some(reading) = archive.take()
        {
            let read = tokio::task::spawn_blocking(move || {
                let batch = read_between(&reading, from, to);
                (reading, batch)
            });
            let (back, batch) =
                read.await.map_err(|e| CommandError::internal("a read broke off").because(e))?;
            archive = Some(back);
            from = to;
            let incidents = group_into_incidents(watcher.observe(batch?));
            found_any |= !incidents.is_empty();
            for incident in incidents {
                start_actions(actions, &incident, printer).await;
                match printer.json {
                    true => printer.line(to_json_line(IncidentLine::from(incident))?),
                    false => print_incident(&incident, printer),
                }
            }
            let counts = watcher.counts();
            if counts.shed_values + counts.cut_reads > shed {
                shed = counts.shed_values + counts.cut_reads;
                print_shed(&counts, printer);
            }
        }
        if until > to {
            continue;
        }
        let wait = async {
            match deadline {
                Some(deadline) => {
                    tokio::time::sleep_until(deadline.min(tokio::time::Instant::now() + every)).await
                }
                None => tokio::time::sleep(every).await,
            }
        };
        tokio::select! {
            () = wait => {}
            () = stop.cancelled() => break,
        }
        if deadline.is_some_and(|deadline| tokio::time::Instant::now() >= deadline) {
            break;
        }
    }
    if !printer.json {
        print_counts(&watcher.counts(), !found_any, printer);
    }
    Ok(if found_any { Exit::Found } else { Exit::Done })
}

fn to_json_line(line: IncidentLine) -> Result<String, CommandError> {
    serde_json::to_string(&line).map_err(|e| CommandError::internal("an incident is no JSON").because(e))
}

/// Runs all actions; one that fails is named, and the others still run.
async fn start_actions(actions: &[Action], incident: &Incident, printer: &Printer) {
    if actions.is_empty() {
        return;
    }
    let trigger = Trigger::new(incident.clone());
    for action in actions {
        if let Err(error) = action.run(&trigger).await {
            let cause =
                std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
            printer.warn(plain(&format!("an alarm was not passed on: {error}{cause}")));
        }
    }
}

fn print_incident(incident: &Incident, printer: &Printer) {
    let heading = format!(
        "{}, {}",
        count(incident.anomalies.len() as u64, "anomaly"),
        render::time::ago(incident.from_us)
    );
    printer.line(printer.strong(&heading));
    for anomaly in &incident.anomalies {
        printer.line(format!("  {anomaly}"));
    }
}

fn print_counts(counts: &WatchCounts, is_healthy: bool, printer: &Printer) {
    if is_healthy {
        printer.line("no anomaly was found");
    }
    printer.talk(format!(
        "{} of {} series, from {} and {}",
        count(counts.values, "value"),
        counts.series,
        count(counts.calls, "call"),
        count(counts.samples, "sample")
    ));
    if counts.short_series > 0 {
        printer.talk(format!(
            "{} of the series have too few values to know what is usual; --baseline RUN learns it from a healthy run",
            counts.short_series
        ));
    }
    if counts.shed_values + counts.cut_reads > 0 {
        print_shed(counts, printer);
    }
}

fn print_shed(counts: &WatchCounts, printer: &Printer) {
    printer.warn(format!(
        "not watched so far: {} of series beyond the limit, and the oldest traces of {}",
        count(counts.shed_values, "value"),
        count(counts.cut_reads, "read")
    ));
}

impl WatchArgs {
    fn settings(&self, printer: &Printer) -> Result<WatchSettings, CommandError> {
        let mut rules = self.rules_of_file(printer)?;
        rules.extend(self.limits.rule()?);
        let services = self.services.iter().cloned().collect();
        Ok(WatchSettings { rules, services, metrics: self.metrics.iter().copied().collect() })
    }

    /// The rules of the application file; none where there is no file, since `serve` needs none.
    fn rules_of_file(&self, printer: &Printer) -> Result<Vec<WatchRule>, CommandError> {
        let place: PathBuf = self.folder.to_path_buf();
        let file = if place.is_dir() { place.join(project::FILE_NAME) } else { place };
        if !file.is_file() {
            printer.talk("there is no application file here, so all services are watched alike");
            return Ok(Vec::new());
        }
        Ok(Project::read(&file)?.application.watch)
    }

    fn actions(&self) -> Result<Vec<Action>, CommandError> {
        let mut actions = Vec::new();
        if let Some(line) = &self.exec {
            let folder = std::env::current_dir()
                .map_err(|e| CommandError::usage("the working directory is gone").because(e))?;
            actions.push(Action::Command { line: line.clone(), folder });
        }
        if let Some(url) = &self.webhook {
            let url = parse_webhook(url, self.allow_remote_webhook).map_err(|problem| {
                CommandError::usage(problem)
                    .hint("--webhook http://127.0.0.1:8080/alarms, or --allow-remote-webhook")
            })?;
            actions.push(Action::Webhook(url));
        }
        Ok(actions)
    }
}

impl LimitArgs {
    /// A rule for all series; none if no option is given.
    fn rule(&self) -> Result<Option<WatchRule>, CommandError> {
        let limits = DetectorLimits {
            detector: self.detector.clone(),
            above: self.above.clone(),
            consecutive: self.consecutive,
            sigma: self.sigma,
            window: self.window,
            lambda: self.lambda.clone(),
            risk: self.risk,
            patterns: self.patterns,
        };
        if limits == DetectorLimits::default() && self.margin.is_none() {
            return Ok(None);
        }
        let detector: DetectorChoice = limits.choose().map_err(CommandError::usage)?;
        let margin = self.margin.as_deref().map(units::parse_duration).transpose();
        let margin = margin.map_err(|e| CommandError::usage(e.to_string()))?.unwrap_or(MARGIN);
        Ok(Some(WatchRule { service: None, operation: None, metric: None, detector, margin }))
    }
}
