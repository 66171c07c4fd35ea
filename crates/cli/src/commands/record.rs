//! `faultscope record`

use std::io::IsTerminal;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use faultscope_engine::record::{LiveRecording, RecordCounts, RecordOptions, RecordedService};
use faultscope_model::record::OutcomeSampling;
use faultscope_model::units::{self, ByteSize, count};
use faultscope_model::wiring::RecordLevel;
use faultscope_model::{Application, CampaignId, ServiceName};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use tokio::task::JoinHandle;

use super::record_files::{self, RecordCommand};
use super::record_targets::{
    RecordTarget, ServiceArg, check_targets, default_name, read_listen, read_name, read_target,
};
use crate::args::{Global, RecordArg};
use crate::campaign::interrupted;
use crate::error::CommandError;
use crate::exit::Exit;
use crate::printer::Printer;
use crate::project::{self, Project};
use crate::render::table::Table;
use crate::shell;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct RecordArgs {
    #[command(subcommand)]
    command: Option<RecordCommand>,
    /// Where callers connect: a port of the loopback interface, or an address such as `0.0.0.0:8080`.
    #[arg(long, value_name = "PORT", value_parser = read_listen, requires = "to")]
    listen: Option<SocketAddr>,
    /// Where their calls go on to: `http://host:port`.
    #[arg(long, value_name = "URL", value_parser = read_target, requires = "listen")]
    to: Option<(String, u16)>,
    /// The name of the service in the recording; by default the first part of the host's name.
    #[arg(long = "as", value_name = "NAME", value_parser = read_name, requires = "to")]
    name: Option<ServiceName>,
    /// One more service to record: `order=8080:http://host:port`; repeat for several.
    #[arg(long = "service", value_name = "NAME=PORT:URL")]
    services: Vec<ServiceArg>,
    /// How much of each call is recorded. Only calls with whole bodies can be replayed.
    #[arg(long, value_enum, default_value_t = RecordArg::Bodies)]
    record: RecordArg,
    /// The most bytes of each body.
    #[arg(long, default_value = "1MiB", value_name = "SIZE")]
    most: ByteSize,
    /// Keep headers and bodies of failed traces, of slow ones, and of this share of the others: `10%`.
    #[arg(long, value_name = "SHARE", value_parser = OutcomeSampling::read_share)]
    share: Option<u32>,
    /// From which duration on a trace is slow; with `--share`.
    #[arg(long, value_name = "DURATION", requires = "share")]
    slow: Option<String>,
    /// The folder whose `.faultscope` gets the recording. Its application file, if there is one, says what is secret.
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    folder: PathBuf,
    /// Stop after this time.
    #[arg(long = "for", value_name = "DURATION")]
    duration: Option<String>,
    /// Seed of the ids of spans.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// The largest bound of a body: longer ones do not fit into the queue in front of the store.
const MAX_BODY: u64 = 16 << 20;

/// How often the counter is drawn.
const TICK: Duration = Duration::from_millis(250);

#[derive(Debug, Serialize)]
struct Recording<'a> {
    campaign: &'a CampaignId,
    services: Vec<Listening>,
}

#[derive(Debug, Serialize)]
struct Listening {
    service: ServiceName,
    address: SocketAddr,
    to: String,
}

pub(crate) async fn run(
    mut args: RecordArgs,
    global: &Global,
    printer: &Printer,
) -> Result<Exit, CommandError> {
    if let Some(command) = args.command.take() {
        return record_files::run(command, printer).await;
    }
    let within = args.duration.as_deref().map(units::parse_duration).transpose();
    let within = within.map_err(|e| CommandError::usage(e.to_string()))?;
    let level = level(&args)?;
    let slow = args.slow.as_deref().map(units::parse_duration).transpose();
    let slow = slow.map_err(|e| CommandError::usage(e.to_string()))?;
    let targets = targets(&args)?;
    check_targets(&targets)?;
    targets.iter().for_each(|target| warn_of_others(target, printer));
    let (mut services, mut listening) = (Vec::new(), Vec::new());
    for target in targets {
        let socket = bind(&target)?;
        let address =
            socket.local_addr().map_err(|e| CommandError::internal("a socket has no address").because(e))?;
        let to = format!("http://{}", show_authority(&target.host, target.port));
        listening.push(Listening { service: target.name.clone(), address, to });
        let RecordTarget { name, host, port, .. } = target;
        services.push(RecordedService { name, host, port, socket });
    }
    let application = own_application(&args.folder);
    let options = RecordOptions {
        state: project::state_folder(&args.folder),
        application: application.as_ref().map_or_else(|| names_of(&listening), |own| own.name.clone()),
        command_line: std::env::args().collect(),
        seed: args.seed,
        level,
        rules: application.as_ref().map(|own| own.record.rules.clone()).unwrap_or_default(),
        sample: match args.share {
            Some(share_ppm) => Some(OutcomeSampling { share_ppm, slow }),
            None => application.as_ref().and_then(|own| own.record.sample),
        },
        secrets: project::secrets_of(&args.folder, printer),
    };
    let stop = interrupted();
    let recording = Arc::new(LiveRecording::start(services, options).await?);
    show(recording.id(), listening, printer)?;
    let counter = Counter::start(&recording, global, printer);
    let until_interrupted = stop.cancelled();
    match within {
        None => until_interrupted.await,
        Some(within) => {
            // Whichever comes first is a good end.
            let _ = tokio::time::timeout(within, until_interrupted).await;
        }
    }
    counter.finish().await;
    let recording =
        Arc::try_unwrap(recording).map_err(|_| CommandError::internal("the recording is still in use"))?;
    let (run, counts) = recording.finish().await?;
    summarize(&counts, printer);
    let at = shell::at(&args.folder);
    let id = &run.id;
    printer.talk(format!("see it with `faultscope runs show {id}{at}`"));
    printer.talk(format!("send it again with `faultscope replay --run {id}{at}`"));
    Ok(Exit::Done)
}

fn level(args: &RecordArgs) -> Result<RecordLevel, CommandError> {
    if args.most.0 == 0 || args.most.0 > MAX_BODY {
        return Err(CommandError::usage("--most must be from 1 byte to 16MiB"));
    }
    Ok(match args.record {
        RecordArg::Timing => RecordLevel::Timing,
        RecordArg::Headers => RecordLevel::Headers,
        RecordArg::Bodies => RecordLevel::Bodies { most: u32::try_from(args.most.0).unwrap_or(u32::MAX) },
    })
}

fn targets(args: &RecordArgs) -> Result<Vec<RecordTarget>, CommandError> {
    let mut targets = Vec::new();
    if let (Some(listen), Some((host, port))) = (args.listen, &args.to) {
        let name = match &args.name {
            Some(name) => name.clone(),
            None => default_name(host).map_err(CommandError::usage)?,
        };
        targets.push(RecordTarget { name, listen, host: host.clone(), port: *port });
    }
    targets.extend(args.services.iter().map(|service| service.0.clone()));
    if targets.is_empty() {
        return Err(CommandError::usage("there is nothing to record")
            .hint("faultscope record --listen 8080 --to http://HOST:PORT --as order"));
    }
    Ok(targets)
}

/// Says aloud that others can use a listener.
fn warn_of_others(target: &RecordTarget, printer: &Printer) {
    if !target.listen.ip().is_loopback() {
        printer.warn(format!(
            "{} can be reached from other machines: whoever reaches it can call {} at {}, nobody is asked for a \
             password, and what they send is recorded",
            target.listen,
            target.name,
            show_authority(&target.host, target.port)
        ));
    }
}

fn show_authority(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

fn bind(target: &RecordTarget) -> Result<TcpListener, CommandError> {
    let bound = TcpListener::bind(target.listen).and_then(|socket| {
        socket.set_nonblocking(true)?;
        Ok(socket)
    });
    bound.map_err(|e| {
        CommandError::new(
            Exit::Environment,
            format!("cannot listen on {} for {}", target.listen, target.name),
        )
        .because(e)
        .hint("something else may listen there; another port can be given")
    })
}

/// The application of the folder, if there is one. What is wrong with its file does not keep anybody from recording.
fn own_application(folder: &Path) -> Option<Application> {
    let file = if folder.is_dir() { folder.join(project::FILE_NAME) } else { folder.to_owned() };
    let project = file.is_file().then(|| Project::read(&file).ok()).flatten()?;
    Some(project.application)
}

/// The name of an application that no file names.
fn names_of(listening: &[Listening]) -> String {
    listening.iter().map(|one| one.service.as_str()).collect::<Vec<_>>().join("+")
}

fn show(campaign: &CampaignId, services: Vec<Listening>, printer: &Printer) -> Result<(), CommandError> {
    if printer.json {
        return printer.result(&Recording { campaign, services });
    }
    let mut table = Table::new(&["service", "address", "goes on to"]);
    for one in services {
        table.row([one.service.to_string(), format!("http://{}", one.address), one.to]);
    }
    printer.line(table);
    printer.talk(format!("recording to campaign {campaign}; Ctrl-C ends it"));
    Ok(())
}

fn summarize(counts: &RecordCounts, printer: &Printer) {
    let mut text = format!("{} recorded", count(counts.calls, "call"));
    if counts.failed > 0 {
        text.push_str(&format!(", {} failed", counts.failed));
    }
    printer.talk(text);
    if counts.services.len() > 1 {
        for (service, own) in &counts.services {
            printer.talk(format!("  {service}: {}, {} failed", count(own.calls, "call"), own.failed));
        }
    }
    let cut: u64 = counts.services.values().map(|own| own.cut).sum();
    if cut > 0 {
        printer
            .warn(format!("{} with bodies over --most: only their beginning was kept", count(cut, "call")));
    }
    if counts.dropped + counts.left_out > 0 {
        printer.warn(format!(
            "{} not kept: {} came faster than they could be written, {} were beyond the most of a recording",
            count(counts.dropped + counts.left_out, "call"),
            counts.dropped,
            counts.left_out
        ));
    }
}

/// A line on the terminal that counts calls.
struct Counter {
    task: Option<JoinHandle<()>>,
    bar: ProgressBar,
}

impl Counter {
    fn start(recording: &Arc<LiveRecording>, global: &Global, printer: &Printer) -> Self {
        let is_shown = !global.quiet && !printer.json && std::io::stderr().is_terminal();
        let target = if is_shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(None, target);
        let style = ProgressStyle::with_template("{spinner} {elapsed}  {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
        let task = is_shown.then(|| {
            let (recording, bar) = (Arc::clone(recording), bar.clone());
            tokio::spawn(async move {
                let mut tick = tokio::time::interval(TICK);
                loop {
                    tick.tick().await;
                    let RecordCounts { calls, failed, .. } = recording.counts();
                    bar.set_message(format!("{}, {failed} failed", count(calls, "call")));
                    bar.tick();
                }
            })
        });
        Self { task, bar }
    }

    async fn finish(self) {
        if let Some(task) = self.task {
            task.abort();
            // Its end is waited for, since it holds the recording.
            let _ = task.await;
        }
        self.bar.finish_and_clear();
    }
}
