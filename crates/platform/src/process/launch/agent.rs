//! The agent of a slot: one thread, one loop, one request after the other.
//!
//! It is process 1 of the slot's PID namespace, so that its end is the end of everything in the slot.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;

use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, Signal, WaitOptions};
use rustix::thread::UnshareFlags;

use super::network::{self, Networks};
use super::outer::own_program;
use super::{kernel_files, mounts, namespaces, tie, tree};
use crate::process::agent_protocol::{self, Envelope, Message, Request};
use crate::process::cgroup;

/// Serves the tool until it goes away. Everything that is started stays in the slot's control groups.
pub(super) fn run(isolated: bool, groups: &[&str]) -> ExitCode {
    match Agent::new(isolated, groups) {
        Ok(mut agent) => {
            let code = match agent.serve() {
                Ok(Leave::Asked) => ExitCode::SUCCESS,
                Ok(Leave::Orphaned) => ExitCode::from(tie::ORPHANED),
                Err(_) => ExitCode::FAILURE,
            };
            if !isolated {
                tree::end_descendants();
            }
            code
        }
        Err(error) => {
            let _ = send_message(&Message::Refused { reason: error.to_string() }, &[]);
            ExitCode::FAILURE
        }
    }
}

/// Why an agent ends.
enum Leave {
    /// The tool wants it to.
    Asked,
    /// The tool is gone.
    Orphaned,
}

struct Agent {
    isolated: Option<Isolated>,
    children: HashMap<Pid, Child>,
    pids: HashMap<u64, Pid>,
    label: String,
}

struct Isolated {
    networks: Networks,
    processes: OwnedFd,
}

struct Child {
    key: u64,
    /// Whether it must be asked to end, because killing it would leave its descendants running.
    ask: bool,
}

impl Agent {
    fn new(isolated: bool, groups: &[&str]) -> io::Result<Self> {
        for group in groups {
            cgroup::join_as_agent(group.as_ref()).map_err(|e| named(&format!("join {group}"), &e))?;
        }
        let isolated = if isolated {
            // The end of this process is the end of the namespace. Without one it must live to end its descendants,
            // and learns by its socket that the tool is gone.
            tie::tie_to_parent(Signal::KILL)?;
            mounts::make_private()?;
            let replaced = kernel_files::replace_devices().map_err(|e| named("make its own /dev", &e));
            // An ordinary user may use no dangerous device anyway.
            replaced.or_else(|e| if rustix::process::geteuid().is_root() { Err(e) } else { Ok(()) })?;
            Some(Isolated { networks: Networks::new()?, processes: namespaces::own("pid")? })
        } else {
            tree::adopt_orphans()?;
            None
        };
        let label = std::env::var("FAULTSCOPE_LABEL").unwrap_or_default();
        Ok(Self { isolated, children: HashMap::new(), pids: HashMap::new(), label })
    }

    fn serve(&mut self) -> io::Result<Leave> {
        let (ended, on_signal) = UnixStream::pair()?;
        ended.set_nonblocking(true)?;
        signal_hook::low_level::pipe::register(signal_hook::consts::SIGCHLD, on_signal)?;
        send_message(&Message::Ready, &[])?;
        let mut buffer = vec![0; agent_protocol::MAX_BYTES];
        loop {
            let stdin = io::stdin();
            let socket = stdin.as_fd();
            let mut polled = [PollFd::new(&socket, PollFlags::IN), PollFd::new(&ended, PollFlags::IN)];
            match rustix::event::poll(&mut polled, None) {
                Err(rustix::io::Errno::INTR) => continue,
                other => other?,
            };
            let (asked, reap) = (!polled[0].revents().is_empty(), !polled[1].revents().is_empty());
            if reap {
                while io::Read::read(&mut &ended, &mut [0; 64]).is_ok_and(|n| n > 0) {}
                self.reap()?;
            }
            if !asked {
                continue;
            }
            let Some((length, fds)) = agent_protocol::receive(socket, &mut buffer)? else {
                return Ok(Leave::Orphaned);
            };
            let Ok(Envelope { id, request }) = serde_json::from_slice(&buffer[..length]) else {
                return Err(io::Error::other("a request cannot be read"));
            };
            if matches!(request, Request::Leave) {
                return Ok(Leave::Asked);
            }
            match self.answer(request, fds) {
                Ok(fds) => {
                    let fds: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
                    send_message(&Message::Done { id }, &fds)?;
                }
                Err(error) => send_message(&Message::Failed { id, reason: error.to_string() }, &[])?,
            }
        }
    }

    fn answer(&mut self, request: Request, fds: Vec<OwnedFd>) -> io::Result<Vec<OwnedFd>> {
        match request {
            Request::Places { places } => {
                let networks = self.networks()?;
                for place in &places {
                    networks
                        .make(place)
                        .map_err(|e| named(&format!("make the network of {}", place.name), &e))?;
                }
            }
            Request::Aliases { addresses } => {
                let networks = self.networks()?;
                for address in addresses {
                    networks.alias(address)?;
                }
            }
            Request::Listen { listeners } => {
                let networks = self.networks()?;
                let open = |at| {
                    networks
                        .listen(at)
                        .and_then(OwnedFd::try_clone)
                        .map_err(|e| named(&format!("listen on {at:?}"), &e))
                };
                return listeners.iter().map(open).collect();
            }
            Request::Watch => {
                self.networks()?;
                let watch = network::watch_connections().map_err(|e| named("watch connections", &e))?;
                return Ok(vec![watch]);
            }
            Request::Sockets { place, count } => {
                return self.networks()?.sockets(&place, count.min(agent_protocol::MAX_FDS));
            }
            Request::Spawn { key, place, name } => self.spawn(key, place.as_deref(), &name, fds)?,
            Request::Join { key, into, name, groups } => self.join(key, into, &name, &groups, fds)?,
            Request::Signal { key, signal } => {
                let signal =
                    Signal::from_named_raw(signal).ok_or_else(|| io::Error::other("no such signal"))?;
                self.signal(key, signal)?;
            }
            Request::Kill { key } => {
                let ask = self.pids.get(&key).and_then(|pid| self.children.get(pid)).is_some_and(|c| c.ask);
                self.signal(key, if ask { tree::END } else { Signal::KILL })?;
            }
            Request::Layer { lower, upper, work, target, user } => {
                for path in [&upper, &work, &target] {
                    std::fs::create_dir_all(path)?;
                }
                mounts::overlay(std::slice::from_ref(&lower), &upper, &work, &target, user, ",volatile")
                    .or_else(|_| mounts::overlay(&[lower], &upper, &work, &target, user, ""))?;
            }
            Request::Memory { target } => mounts::memory(&target)?,
            Request::Home { home, layer, masked, before, user } => {
                mounts::lay_home(&home, &layer, &masked, before.as_deref(), user)?;
            }
            // Ends the loop before anything is answered.
            Request::Leave => {}
        }
        Ok(Vec::new())
    }

    fn spawn(&mut self, key: u64, place: Option<&str>, name: &str, fds: Vec<OwnedFd>) -> io::Result<()> {
        let label = self.label.clone();
        let start = || {
            let [socket, stdout, stderr] = three(fds)?;
            let mut command = own_program("instance");
            command.args([&label, name]).env(tie::AGENT, std::process::id().to_string());
            command.stdin(socket).stdout(stdout).stderr(stderr).spawn()
        };
        let child = match (&self.isolated, place) {
            (Some(isolated), Some(place)) => isolated.networks.within(place, || {
                namespaces::unshare(UnshareFlags::NEWPID)?;
                let child = start();
                namespaces::children_into(&isolated.processes)?;
                child
            })?,
            (Some(_), None) => return Err(io::Error::other("nothing runs outside a place")),
            (None, _) => start()?,
        };
        self.remember(key, &child, self.isolated.is_none());
        Ok(())
    }

    fn join(
        &mut self,
        key: u64,
        into: u64,
        name: &str,
        groups: &[PathBuf],
        fds: Vec<OwnedFd>,
    ) -> io::Result<()> {
        let [socket, stdout, stderr] = three(fds)?;
        let pid = *self.pids.get(&into).ok_or_else(|| io::Error::other("it does not run"))?;
        let mut command = own_program("join");
        command.args([&self.label, name]).arg(pid.as_raw_nonzero().to_string()).args(groups);
        command.env(tie::AGENT, std::process::id().to_string());
        let child = command.stdin(socket).stdout(stdout).stderr(stderr).spawn()?;
        self.remember(key, &child, true);
        Ok(())
    }

    fn remember(&mut self, key: u64, child: &std::process::Child, ask: bool) {
        let pid = Pid::from_child(child);
        self.children.insert(pid, Child { key, ask });
        self.pids.insert(key, pid);
    }

    fn signal(&self, key: u64, signal: Signal) -> io::Result<()> {
        // A tree that is gone needs no signal; the tool is informed of its end.
        let Some(&pid) = self.pids.get(&key) else {
            return Ok(());
        };
        match rustix::process::kill_process(pid, signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn reap(&mut self) -> io::Result<()> {
        while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
            if let Some(Child { key, .. }) = self.children.remove(&pid) {
                self.pids.remove(&key);
                let (code, signal) = (status.exit_status(), status.terminating_signal());
                send_message(&Message::Gone { key, code, signal }, &[])?;
            }
        }
        Ok(())
    }

    fn networks(&mut self) -> io::Result<&mut Networks> {
        self.isolated
            .as_mut()
            .map(|i| &mut i.networks)
            .ok_or_else(|| io::Error::other("there are no networks here"))
    }
}

fn send_message(message: &Message, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let bytes = serde_json::to_vec(message)?;
    Ok(agent_protocol::send(io::stdin().as_fd(), &bytes, fds)?)
}

fn three(fds: Vec<OwnedFd>) -> io::Result<[OwnedFd; 3]> {
    fds.try_into().map_err(|_| io::Error::other("a start brings three descriptors"))
}

fn named(what: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot {what}: {error}"))
}
