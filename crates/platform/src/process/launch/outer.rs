//! The first process of a slot: creates the namespaces, starts the real agent inside them, and waits.
//!
//! A PID namespace contains only children, so this process stays outside. It is what the tool waits
//! for: it ends after the agent, and the agent ends after everything in its namespace. It outlives a tool that is
//! killed for the moment that it takes to end the slot's processes and to remove their control groups.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use rustix::process::{
    Pid, Signal, WaitOptions, getppid, kill_process, set_parent_process_death_signal, waitpid,
};
use rustix::thread::UnshareFlags;
use serde::{Deserialize, Serialize};
use signal_hook::consts::SIGCHLD;
use signal_hook::iterator::Signals;

use super::{MODE_NETNS, namespaces, tie, tree};
use crate::process::agent_protocol::{self, Message};
use crate::process::cgroup;

/// The result of `launch probe`, as JSON on stdout.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Probed {
    /// Why namespaces cannot be created; none if they can.
    pub(crate) refused: Option<String>,
    /// Whether a user namespace was needed.
    pub(crate) user: bool,
}

/// Runs as the first process of a slot; `groups` are the control groups of the slot, one for each controller.
pub(super) fn run(mode: &str, parent: &str, groups: &[&str]) -> ExitCode {
    match start(mode, parent, groups) {
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

fn start(mode: &str, parent: &str, groups: &[&str]) -> io::Result<ExitCode> {
    // Before the signal can come: its default is to end this process, and nobody would clear the slot.
    let mut signals = Signals::new([tree::END.as_raw(), SIGCHLD])?;
    if mode == MODE_NETNS {
        take_namespaces()?;
    }
    // After the namespaces: changing credentials would clear it.
    set_parent_process_death_signal(Some(tree::END))?;
    // The tool may have ended before the kernel knew of the signal.
    let has_parent = getppid().is_some_and(|pid| pid.as_raw_nonzero().get().to_string() == parent);
    if !has_parent || tie::tool_is_gone() {
        return Ok(ExitCode::FAILURE);
    }
    let label = std::env::var("FAULTSCOPE_LABEL").unwrap_or_default();
    let child = own_program("inner").args([&label, mode]).args(groups).spawn()?;
    send_message(&Message::Hello { pid: child.id() as i32 });
    let agent = Pid::from_child(&child);
    let mut is_orphan = false;
    let mut code = None;
    for signal in signals.forever() {
        if signal == SIGCHLD {
            if let Some((_, status)) = waitpid(Some(agent), WaitOptions::NOHANG)? {
                code = status.exit_status();
                break;
            }
        } else {
            is_orphan = true;
            // A frozen process does not die.
            groups.iter().for_each(|group| cgroup::thaw(Path::new(group)));
            // A plain agent notices the end of the tool by its socket, and must live to end its descendants.
            if mode == MODE_NETNS {
                let _ = kill_process(agent, Signal::KILL);
            }
        }
    }
    if is_orphan || code == Some(i32::from(tie::ORPHANED)) {
        for group in groups {
            cgroup::clear_groups(Path::new(group));
        }
    }
    Ok(if code == Some(0) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
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
