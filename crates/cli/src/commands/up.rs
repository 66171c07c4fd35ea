//! `faultscope up`

use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;

use faultscope_engine::{Session, TrialRequest};
use faultscope_model::units;
use faultscope_model::wiring::ListenerSpec;
use faultscope_model::{InstanceId, ServiceName, SlotId, TrialId};
use faultscope_platform::PlatformEvent;
use serde::Serialize;

use crate::args::{Global, UpArgs};
use crate::error::CommandError;
use crate::exit::Exit;
use crate::printer::Printer;
use crate::progress::Progress;
use crate::project::Project;
use crate::render::table::Table;

#[derive(Debug, Serialize)]
struct Published {
    service: ServiceName,
    port: u16,
    address: String,
}

pub(crate) async fn run(args: UpArgs, global: &Global, printer: &Printer) -> Result<Exit, CommandError> {
    let project = Project::of(&args.target, printer)?;
    let within = args.duration.as_deref().map(units::parse_duration).transpose();
    let within = within.map_err(|e| CommandError::usage(e.to_string()))?;
    let (space, set) = project.under(&args.under)?;
    let circumstance = space.circumstance(&set).map_err(|e| CommandError::usage(e.to_string()))?;
    // Ports are taken before anything starts: a taken one is an error of the command line.
    let sockets = bind(&project, args.publish_from)?;
    let platform = project.platform(&args.target).await?;
    project.say_fixed_names(&*platform, printer);
    let options = project.session("up", &args.under)?;
    let session = Arc::new(Session::open(project.application.clone(), platform, options).await?);
    let progress = Progress::start(&session, global, printer);
    let stop = super::test::interrupted();
    let request = TrialRequest {
        trial: TrialId(1),
        deltas: set,
        circumstance,
        tests: Vec::new(),
        wanted: None,
        perturbing: None,
    };
    let up = session.bring_up(SlotId(0), &request, &stop).await;
    progress.finish().await;
    if let Err(error) = up {
        let _ = super::test::close(session, "failed").await;
        return if stop.is_cancelled() { Ok(Exit::Interrupted) } else { Err(error.into()) };
    }
    // Only a slot that is open has events.
    let mut happenings = session.platform().events(SlotId(0));
    let published = publish(&session, sockets)?;
    if printer.json {
        printer.result(&published)?;
    } else {
        let mut table = Table::new(&["service", "port", "address"]);
        for entry in &published {
            table.row([entry.service.to_string(), entry.port.to_string(), entry.address.clone()]);
        }
        printer.line(table);
        printer.talk(format!("recording to campaign {}; Ctrl-C ends it", session.id()));
    }
    let time_is_up = async {
        match within {
            Some(within) => tokio::time::sleep(within).await,
            None => std::future::pending().await,
        }
    };
    tokio::pin!(time_is_up);
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            () = &mut time_is_up => break,
            event = happenings.recv() => match event {
                Ok(PlatformEvent::Exited { instance, code, signal, out_of_memory }) => {
                    let memory = if out_of_memory { ", out of memory" } else { "" };
                    printer.warn(format!("{instance} ended (code {code:?}, signal {signal:?}{memory})"));
                }
                Ok(_) | Err(tokio::sync::broadcast::error::RecvError::Lagged(_)) => {}
                Err(tokio::sync::broadcast::error::RecvError::Closed) => break,
            },
        }
    }
    let calls = session.recorded(SlotId(0));
    let id = session.id().to_string();
    session.take_down(SlotId(0), &request).await?;
    super::test::close(session, "ended").await?;
    printer
        .talk(format!("{} recorded; see them with `faultscope runs show {id}`", units::count(calls, "call")));
    Ok(Exit::Done)
}

type Socket = (ServiceName, u16, TcpListener);

fn bind(project: &Project, from: Option<u16>) -> Result<Vec<Socket>, CommandError> {
    let mut sockets = Vec::new();
    let mut next = from;
    for (name, service) in &project.application.services {
        let mut wanted: Vec<(u16, u16)> = service.publish.iter().map(|(&own, &host)| (own, host)).collect();
        if let Some(next) = &mut next {
            // What is typed wins over the file: it is the way out when the file's ports are taken.
            for (_, host) in &mut wanted {
                *host = *next;
                *next = next.saturating_add(1);
            }
        }
        if wanted.is_empty()
            && let Some(port) = service.ports.first()
        {
            // The port that the service has itself is the one people try first.
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
                // Two services may have the same port: the second one gets a free one.
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
            sockets.push((name.clone(), own, socket));
        }
    }
    Ok(sockets)
}

fn taken(service: &ServiceName, port: u16, error: std::io::Error) -> CommandError {
    CommandError::new(Exit::Environment, format!("cannot offer {service} on port {port}"))
        .because(error)
        .hint("something else listens there; `--publish-from 20000` uses other ports")
}

fn publish(session: &Session, sockets: Vec<Socket>) -> Result<Vec<Published>, CommandError> {
    let mut published = Vec::new();
    let Some(mesh) = session.mesh(SlotId(0)) else {
        return Ok(published);
    };
    for (service, port, socket) in sockets {
        let address =
            socket.local_addr().map_err(|e| CommandError::internal("a socket has no address").because(e))?;
        let protocol = session.application().services[&service]
            .ports
            .iter()
            .find(|p| p.port == port)
            .map(|p| p.protocol)
            .unwrap_or_default();
        let caller = "user-1".parse::<InstanceId>().ok();
        mesh.listen(ListenerSpec { callee: service.clone(), port, protocol, caller }, socket);
        published.push(Published { service, port, address: address.to_string() });
    }
    Ok(published)
}
