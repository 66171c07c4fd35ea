//! The first process of a slot: creates the namespaces, starts the real agent inside them, and waits.
//!
//! A PID namespace contains only children, so this process stays outside. It is what the tool waits
//! for: it ends after the agent, and the agent ends after everything in its namespace.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};

use rustix::process::{Pid, Signal, WaitOptions, getppid, set_parent_process_death_signal};
use rustix::thread::UnshareFlags;
use serde::{Deserialize, Serialize};

use super::{MODE_NETNS, namespaces};
use crate::process::agent_protocol::{self, Message};

/// The result of `launch probe`, as JSON on stdout.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Probed {
    /// Why namespaces cannot be created; none if they can.
    pub(crate) refused: Option<String>,
    /// Whether a user namespace was needed.
    pub(crate) user: bool,
}

/// Runs as the first process of a slot.
pub(super) fn run(mode: &str, parent: &str) -> ExitCode {
    match start(mode, parent) {
        Ok(code) => code,
        Err(error) => {
            send_message(&Message::Refused { reason: error.to_string() });
            ExitCode::FAILURE
        }
    }
}

/// Tries to create namespaces and prints the result on stdout.
pub(super) fn probe() -> ExitCode {
    let tried = take_namespaces().and_then(|user| {
        let status = own_program("probe-child").stdin(Stdio::null()).stdout(Stdio::null()).status()?;
        // Any exit code is fine: the child ran, so PID namespaces work.
        let _ = status;
        let mut networks = super::network::Networks::new()?;
        let place = agent_protocol::PlaceSpec {
            name: "probe".into(),
            address: std::net::Ipv4Addr::new(10, 200, 0, 1),
        };
        networks.make(&place)?;
        Ok(user)
    });
    let probed = match tried {
        Ok(user) => Probed { refused: None, user },
        Err(error) => Probed { refused: Some(error.to_string()), user: false },
    };
    let printed = serde_json::to_writer(io::stdout(), &probed);
    if printed.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn start(mode: &str, parent: &str) -> io::Result<ExitCode> {
    if mode == MODE_NETNS {
        take_namespaces()?;
    }
    // After the namespaces: changing credentials would clear it.
    die_with_parent()?;
    if getppid().map(|pid| pid.as_raw_nonzero().get().to_string()).as_deref() != Some(parent) {
        return Ok(ExitCode::FAILURE);
    }
    if mode != MODE_NETNS {
        send_message(&Message::Hello { pid: rustix::process::getpid().as_raw_nonzero().get() });
        return Ok(super::agent::run(false));
    }
    let label = std::env::var("FAULTSCOPE_LABEL").unwrap_or_default();
    let child = own_program("inner").args([&label, mode]).spawn()?;
    send_message(&Message::Hello { pid: child.id() as i32 });
    let pid = Pid::from_child(&child);
    loop {
        match rustix::process::waitpid(Some(pid), WaitOptions::empty()) {
            Err(rustix::io::Errno::INTR) => {}
            Ok(Some((_, status))) if status.exit_status() == Some(0) => return Ok(ExitCode::SUCCESS),
            _ => return Ok(ExitCode::FAILURE),
        }
    }
}

/// Makes the kernel kill this process when its parent ends.
pub(super) fn die_with_parent() -> rustix::io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))
}

/// The command for another part of the launcher.
pub(super) fn own_program(part: &str) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("faultscope").args(["launch", part]);
    command
}

fn take_namespaces() -> io::Result<bool> {
    let user = !namespaces::may_unshare();
    if user {
        namespaces::own_users().map_err(|e| named("take a user namespace", &e))?;
    }
    let wanted = UnshareFlags::NEWNS | UnshareFlags::NEWNET | UnshareFlags::NEWPID;
    namespaces::unshare(wanted).map_err(|e| named("take namespaces", &e.into()))?;
    Ok(user)
}

fn send_message(message: &Message) {
    if let Ok(bytes) = serde_json::to_vec(message) {
        let _ = agent_protocol::send(io::stdin().as_fd(), &bytes, &[]);
    }
}

fn named(what: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot {what}: {error}"))
}
