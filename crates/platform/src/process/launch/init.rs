//! The init of a process tree: prepares its environment, starts the program, and ends with it.
//!
//! As process 1 of its own PID namespace its end is the end of the whole tree. Without such a
//! namespace it adopts orphans and ends them itself. Its stdin is a socket to the tool.

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};

use rustix::process::{
    Pid, PidfdFlags, Resource, Rlimit, Signal, WaitOptions, WaitStatus, getrlimit, kill_process, setrlimit,
};
use rustix::thread::{ThreadNameSpaceType, UnshareFlags};
use signal_hook::consts;
use signal_hook::iterator::Signals;

use super::outer::own_program;
use super::tie::{self, tie_to_parent};
use super::{mounts, namespaces, places, rights, tree};
use crate::process::agent_protocol::{InitRights, InitSpec, Report};

/// Signals that are forwarded to the program.
const HANDED_ON: [i32; 6] =
    [consts::SIGTERM, consts::SIGINT, consts::SIGHUP, consts::SIGQUIT, consts::SIGUSR1, consts::SIGUSR2];
/// `SIGPWR`, which signal-hook has no name for.
const END: i32 = tree::END.as_raw();

/// Runs as the init of a process tree.
pub(super) fn run() -> ExitCode {
    let result = read_spec().and_then(|spec| {
        let alone = spec.view.is_some();
        let signals = prepare(&spec, alone)?;
        let child = start(&spec)?;
        Ok((alone, signals, child))
    });
    match result {
        Ok((alone, signals, child)) => {
            report(&Report::Started);
            let ended = watch(signals, &child, alone);
            if !alone {
                tree::end_descendants();
            }
            if let Some(status) = ended {
                report(&Report::Exited { code: status.exit_status(), signal: status.terminating_signal() });
            }
            ExitCode::SUCCESS
        }
        Err(Trouble { bad_plan, reason }) => {
            report(&Report::Failed { bad_plan, reason });
            ExitCode::FAILURE
        }
    }
}

/// Enters the groups and namespaces of a running tree and runs another init in them, which cannot be process 1.
pub(super) fn join(target: &str, groups: &[&str]) -> ExitCode {
    let start = || -> io::Result<(Signals, Child)> {
        let signals = Signals::new(HANDED_ON.into_iter().chain([END, consts::SIGCHLD]))?;
        tie_to_parent(Signal::KILL)?;
        // Inside, groups are read-only.
        for group in groups {
            fs::write(group, "0")?;
        }
        let pid =
            target.parse().ok().and_then(Pid::from_raw).ok_or_else(|| io::Error::other("no such process"))?;
        let target = rustix::process::pidfd_open(pid, PidfdFlags::empty())?;
        let all = ThreadNameSpaceType::NETWORK
            | ThreadNameSpaceType::MOUNT
            | ThreadNameSpaceType::HOST_NAME_AND_NIS_DOMAIN_NAME
            | ThreadNameSpaceType::INTER_PROCESS_COMMUNICATION
            | ThreadNameSpaceType::PROCESS_ID;
        rustix::thread::move_into_thread_name_spaces(target.as_fd(), all)?;
        // The child knows its parent by another number, in the namespace that it is born in.
        Ok((signals, own_program("instance").args(["joined", "joined"]).env_remove(tie::AGENT).spawn()?))
    };
    match start() {
        Ok((signals, child)) => {
            watch(signals, &child, true);
            ExitCode::SUCCESS
        }
        Err(error) => {
            report(&Report::Failed { bad_plan: false, reason: format!("cannot enter its place: {error}") });
            ExitCode::FAILURE
        }
    }
}

struct Trouble {
    bad_plan: bool,
    reason: String,
}

fn trouble(what: &str, error: impl std::fmt::Display) -> Trouble {
    Trouble { bad_plan: false, reason: format!("cannot {what}: {error}") }
}

fn read_spec() -> Result<InitSpec, Trouble> {
    let text = io::read_to_string(io::stdin()).map_err(|e| trouble("read the spec", e))?;
    serde_json::from_str(&text).map_err(|e| trouble("read the spec", e))
}

fn prepare(spec: &InitSpec, alone: bool) -> Result<Signals, Trouble> {
    // Before the parent's end can be signalled: what is asked of it then must not get lost.
    let pausing = [consts::SIGTSTP, consts::SIGCONT];
    let signals = Signals::new(HANDED_ON.into_iter().chain(pausing).chain([END, consts::SIGCHLD]))
        .map_err(|e| trouble("listen to signals", e))?;
    if !alone {
        tree::adopt_orphans().map_err(|e| trouble("adopt orphans", e))?;
    }
    // Without a namespace of its own a plain kill would leave the tree behind.
    let at_end = if alone { Signal::KILL } else { tree::END };
    tie_to_parent(at_end).map_err(|e| trouble("tie itself to the agent", e))?;
    for group in &spec.cgroups {
        fs::write(group, "0")
            .map_err(|e| trouble(&format!("join the control group {}", group.display()), e))?;
    }
    if let Some(view) = &spec.view {
        let own = UnshareFlags::NEWNS | UnshareFlags::NEWUTS | UnshareFlags::NEWIPC;
        namespaces::unshare(own).map_err(|e| trouble("take a mount namespace", e))?;
        mounts::furnish(view).map_err(|e| Trouble {
            // What the file asks for and this machine cannot have; the rest is the machine's fault.
            bad_plan: e.kind() == places::BAD_PLAN,
            reason: e.to_string(),
        })?;
        rustix::system::sethostname(spec.name.as_bytes()).map_err(|e| trouble("set the host name", e))?;
    }
    if spec.memory.is_some() {
        let limits = Rlimit { current: spec.memory, maximum: spec.memory };
        setrlimit(Resource::As, limits).map_err(|e| trouble("set resource limits", e))?;
    }
    if let Some(soft) = spec.open_files {
        let maximum = getrlimit(Resource::Nofile).maximum;
        let limits = Rlimit { current: Some(maximum.map_or(soft, |hard| soft.min(hard))), maximum };
        setrlimit(Resource::Nofile, limits).map_err(|e| trouble("set resource limits", e))?;
    }
    // Last of all: what comes before needs rights that services do not have.
    match spec.rights {
        InitRights::Limited { user } => rights::limit(user),
        InitRights::Own => rights::keep_own(),
        InitRights::Agent => Ok(()),
    }
    .map_err(|e| trouble("give up rights", e))?;
    Ok(signals)
}

fn start(spec: &InitSpec) -> Result<Child, Trouble> {
    let refuse = |reason: String| Trouble { bad_plan: true, reason };
    let Some((program, arguments)) = spec.command.split_first() else {
        return Err(refuse("the command is empty".into()));
    };
    if let Err(error) = std::env::set_current_dir(&spec.directory) {
        return Err(refuse(format!("cannot go to its folder {}: {error}", spec.directory.display())));
    }
    let mut command = Command::new(program);
    command.args(arguments).env_clear().envs(&spec.env).env("PWD", &spec.directory).stdin(Stdio::null());
    command.spawn().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            let hint = describe_hidden(program).filter(|_| spec.view.is_some()).unwrap_or_default();
            refuse(format!("no such program: `{program}`{hint}"))
        }
        io::ErrorKind::PermissionDenied => refuse(format!("not allowed to run {program}: {error}")),
        io::ErrorKind::ArgumentListTooLong => refuse(format!("too many arguments for {program}")),
        _ if error.raw_os_error() == Some(rustix::io::Errno::NOEXEC.raw_os_error()) => {
            refuse(format!("{program} is not a program of this machine"))
        }
        _ => trouble(&format!("start {program}"), error),
    })
}

/// Says why a program that this machine has may be missing in a slot.
fn describe_hidden(program: &str) -> Option<String> {
    let folder = mounts::TEMPORARY.iter().find(|folder| Path::new(program).starts_with(folder))?;
    Some(format!(
        "; trials do not see `{folder}` of this machine: put it into the application's folder, or name it under `shared`"
    ))
}

/// Forwards signals and reaps children, until the program ends or the tree must end.
fn watch(mut signals: Signals, child: &Child, alone: bool) -> Option<WaitStatus> {
    let program = Pid::from_child(child);
    for signal in signals.forever() {
        match signal {
            consts::SIGCHLD => {
                while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
                    if pid == program {
                        return Some(status);
                    }
                }
            }
            END if !alone => return None,
            consts::SIGTSTP => signal_all(Signal::STOP, alone),
            consts::SIGCONT => signal_all(Signal::CONT, alone),
            other => {
                if let Some(signal) = Signal::from_named_raw(other) {
                    let _ = kill_process(program, signal);
                }
            }
        }
    }
    None
}

fn signal_all(signal: Signal, alone: bool) {
    if alone {
        // Pid -1 means every process in this namespace except the caller.
        let _ = rustix::process::kill_process_group(Pid::INIT, signal);
    } else {
        tree::signal_descendants(signal);
    }
}

fn report(report: &Report) {
    let Ok(mut line) = serde_json::to_vec(report) else {
        return;
    };
    line.push(b'\n');
    // The tool may be gone, and then nobody reads this.
    let _ = rustix::net::send(io::stdin().as_fd(), &line, rustix::net::SendFlags::NOSIGNAL);
}
