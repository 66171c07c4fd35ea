//! `faultscope up`

use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use faultscope_engine::clone::{
    CloneDesk, CloneError, CloneReport, CloneShelf, CloneSource, Cloner, ControlServer, EveryInterval, OnExit,
};
use faultscope_engine::testing::keep_up;
use faultscope_engine::views::plain;
use faultscope_engine::{EngineError, People, Published, PublishedPort, Session, TrialRequest};
use faultscope_model::event::Event;
use faultscope_model::outcome::StartEnding;
use faultscope_model::{CampaignKind, Circumstance, Run, ServiceName, SlotId, Treatment, units};
use faultscope_platform::{PlatformError, PlatformErrorKind};
use faultscope_store::secrets::SecretOptions;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::args::{CloneOn, Global, UpArgs};
use crate::campaign::{Opening, RunningCampaign, interrupted};
use crate::error::CommandError;
use crate::exit::Exit;
use crate::printer::Printer;
use crate::project::Project;
use crate::render;
use crate::render::table::Table;

/// Shorter intervals would keep services frozen for a good part of the time.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(500);

pub(crate) async fn run(args: UpArgs, global: &Global, printer: &Printer) -> Result<Exit, CommandError> {
    let project = Project::open(&args.target, printer)?;
    let within = args.duration.as_deref().map(units::parse_duration).transpose();
    let within = within.map_err(|e| CommandError::usage(e.to_string()))?;
    let (space, set) = project.under(&args.under)?;
    let circumstance = space.circumstance(&set).map_err(|e| CommandError::usage(e.to_string()))?;
    // Ports are bound before anything starts: a port in use is an error of the command line.
    let ports = bind(&project, args.publish_from)?;
    let opening = Opening::new(CampaignKind::Up, &args.target, args.under.seed).record(args.under.record);
    let mut campaign = RunningCampaign::open(&project, opening, global, printer).await?;
    let (stop, until, cancel) = (interrupted(), CancellationToken::new(), CancellationToken::new());
    let (opened, mut is_open) = oneshot::channel();
    let treatment = space.treatment(&set);
    let clones = Clones::open(&args, &project, &campaign.session, (treatment.clone(), circumstance.clone()))?;
    let people = People::new(ports, opened, until.clone())
        .map_err(|e| CommandError::internal("a socket has no address").because(e))?
        .with_clones(clones.cloner);
    let request = TrialRequest { treatment, circumstance, drive: Arc::new(people), wanted: None };
    // Before the trial starts: a service may end before everything is up.
    let mut events = campaign.session.events().subscribe();
    let mut trial = tokio::spawn({
        let (session, cancel) = (campaign.session.clone(), cancel.clone());
        async move { keep_up(&session, request, &cancel).await }
    });
    // Interrupted before everything is up, the trial is cancelled; afterwards it ends normally.
    let mut may_open = true;
    let published = loop {
        tokio::select! {
            published = &mut is_open, if may_open => match published {
                Ok(published) => break published,
                // It will never be up, and the trial is about to report why.
                Err(_) => may_open = false,
            },
            () = stop.cancelled(), if !cancel.is_cancelled() => cancel.cancel(),
            ended = &mut trial => {
                let platform = campaign.session.platform().name();
                campaign.close(&"not up").await?;
                return not_up(joined(ended)?, platform);
            }
        }
    };
    campaign.end_progress().await;
    show(&published, &campaign.session, printer)?;
    let mut clones = clones.desk.start();
    let time_is_up = async {
        match within {
            Some(within) => tokio::time::sleep(within).await,
            None => std::future::pending().await,
        }
    };
    tokio::pin!(time_is_up);
    let ended = loop {
        tokio::select! {
            ended = &mut trial => break ended,
            () = stop.cancelled(), if !until.is_cancelled() => until.cancel(),
            () = &mut time_is_up, if !until.is_cancelled() => until.cancel(),
            Some(taken) = clones.reports.recv() => say_taken(&taken, printer),
            Ok(event) = events.recv() => {
                if let Event::InstanceExited { instance, reason, .. } = &*event {
                    let lines = campaign.session.last_lines(SlotId(0), instance).await;
                    let shown = &lines[lines.len().saturating_sub(render::run::MESSAGE_LINES)..];
                    let shown: String = shown.iter().map(|line| format!("\n  | {}", plain(line))).collect();
                    printer.warn(format!("{instance} {reason}{shown}"));
                }
            }
        }
    };
    drop(clones);
    let (id, at) = (campaign.session.id().to_string(), crate::shell::at(&project.root));
    campaign.close(&"ended").await?;
    let calls = joined(ended)?.map_or(0, |run| run.evidence.spans);
    printer.talk(format!(
        "{} recorded; see them with `faultscope runs show {id}{at}`",
        units::count(calls, "call")
    ));
    Ok(Exit::Done)
}

/// Whoever orders clones while the application is up.
struct Clones {
    cloner: Cloner,
    desk: ClosedDesk,
}

/// A desk that opens when the application is up.
struct ClosedDesk {
    desk: CloneDesk,
    server: ControlServer,
    sources: Vec<Box<dyn CloneSource>>,
}

/// Tasks that order clones, until they are dropped.
struct OpenDesk {
    reports: mpsc::Receiver<Result<CloneReport, CloneError>>,
    _tasks: JoinSet<()>,
}

impl Clones {
    fn open(
        args: &UpArgs,
        project: &Project,
        session: &Session,
        given: (Treatment, Circumstance),
    ) -> Result<Self, CommandError> {
        let state = project.root.join(".faultscope");
        let secrets = SecretOptions { plain: project.application.record.plain, ..SecretOptions::default() };
        let shelf = CloneShelf::open(&state, secrets);
        shelf.sweep();
        let mut sources: Vec<Box<dyn CloneSource>> = Vec::new();
        if let Some(text) = &args.clone_every {
            let every = units::parse_duration(text).map_err(|e| CommandError::usage(e.to_string()))?;
            if every < SHORTEST_INTERVAL {
                return Err(CommandError::usage(format!("`{text}` is too short to clone an application")));
            }
            sources.push(Box::new(EveryInterval::new(every)));
        }
        if args.clone_on == Some(CloneOn::Exit) {
            sources.push(Box::new(OnExit::new(session.events().subscribe())));
        }
        let (desk, cloner) = CloneDesk::open(shelf, given, args.keep as usize);
        let server = ControlServer::open(&state, session.id())?;
        Ok(Self { cloner, desk: ClosedDesk { desk, server, sources } })
    }
}

impl ClosedDesk {
    fn start(self) -> OpenDesk {
        let (sender, reports) = mpsc::channel(16);
        let mut tasks = JoinSet::new();
        for source in self.sources {
            tasks.spawn(self.desk.clone().serve(source, sender.clone()));
        }
        tasks.spawn(self.server.serve(self.desk, sender));
        OpenDesk { reports, _tasks: tasks }
    }
}

fn say_taken(taken: &Result<CloneReport, CloneError>, printer: &Printer) {
    match taken {
        Ok(CloneReport { manifest, .. }) => printer.talk(format!(
            "clone {} taken ({}): {} of data, longest pause {}",
            manifest.id,
            manifest.trigger,
            units::ByteSize(manifest.bytes()),
            units::show_duration(manifest.longest_pause())
        )),
        Err(error) => {
            let error = std::iter::successors(Some(error as &dyn std::error::Error), |e| e.source());
            let text = error.map(ToString::to_string).collect::<Vec<_>>().join(": ");
            printer.warn(format!("no clone: {text}"));
        }
    }
}

type Kept = Result<Option<Run>, EngineError>;

fn joined(ended: Result<Kept, tokio::task::JoinError>) -> Result<Option<Run>, CommandError> {
    Ok(ended.map_err(|e| CommandError::internal("the trial's task panicked").because(e))??)
}

fn show(published: &[Published], session: &Session, printer: &Printer) -> Result<(), CommandError> {
    if printer.json {
        return printer.result(&published);
    }
    let mut table = Table::new(&["service", "port", "address"]);
    for entry in published {
        table.row([entry.service.to_string(), entry.port.to_string(), entry.address.to_string()]);
    }
    printer.line(table);
    printer.talk(format!("recording to campaign {}; Ctrl-C ends it", session.id()));
    Ok(())
}

/// The error if not all services became ready.
fn not_up(run: Option<Run>, platform: &'static str) -> Result<Exit, CommandError> {
    let Some(run) = run else { return Ok(Exit::Interrupted) };
    let mut evidence = run.evidence;
    let Some(exit) = evidence.exits.into_iter().next() else {
        return Err(CommandError::internal("the application ended before it was up"));
    };
    let kind = PlatformErrorKind::NotReady {
        instance: exit.instance.clone(),
        ending: exit.start.unwrap_or(StartEnding::Ended),
        reason: exit.reason.to_string(),
        last_lines: evidence.logs.remove(&exit.instance).unwrap_or_default(),
    };
    let action = format!("start {}", exit.instance);
    Err(EngineError::from(PlatformError::new(kind, platform, action)).into())
}

fn bind(project: &Project, from: Option<u16>) -> Result<Vec<PublishedPort>, CommandError> {
    let mut sockets = Vec::new();
    let mut next = from;
    let services = &project.application.services;
    let mut order: Vec<_> = services.iter().collect();
    if from.is_none() {
        // What the file publishes comes first, so that no service takes such a port as its own one.
        order.sort_by_key(|(_, service)| service.publish.is_empty());
    }
    for (name, service) in order {
        let mut wanted: Vec<(u16, u16)> = service.publish.iter().map(|(&own, &host)| (own, host)).collect();
        if let Some(next) = &mut next {
            // The command line wins over the file: it is the way out if the file's ports are in use.
            for (_, host) in &mut wanted {
                *host = *next;
                *next = next.saturating_add(1);
            }
        }
        if wanted.is_empty()
            && let Some(port) = service.ports.first()
        {
            // The service's own port is the one people try first.
            wanted.push((port.port, next.unwrap_or(port.port)));
            next = next.map(|n| n.saturating_add(1));
        }
        for (own, host) in wanted {
            let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, host)).and_then(|socket| {
                socket.set_nonblocking(true)?;
                Ok(socket)
            });
            let socket = match socket {
                Ok(socket) => socket,
                // Of two services with the same port the second one gets a free port.
                Err(e)
                    if service.publish.is_empty()
                        && from.is_none()
                        && e.kind() == std::io::ErrorKind::AddrInUse =>
                {
                    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|socket| {
                        socket.set_nonblocking(true)?;
                        Ok(socket)
                    });
                    free.map_err(|e| taken(name, host, e))?
                }
                Err(e) => return Err(taken(name, host, e)),
            };
            sockets.push(PublishedPort { service: name.clone(), port: own, socket });
        }
    }
    sockets.sort_by_key(|published| services.get_index_of(&published.service));
    Ok(sockets)
}

fn taken(service: &ServiceName, port: u16, error: std::io::Error) -> CommandError {
    CommandError::new(Exit::Environment, format!("cannot offer {service} on port {port}"))
        .because(error)
        .hint("something else listens there; `--publish-from 20000` uses other ports")
}
