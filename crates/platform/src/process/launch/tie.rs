//! Ties a launched process to the tool: it must not go on when the tool is gone, whenever that ended.
//!
//! The parent-death signal alone has a gap. A parent that ends between the fork and the call that asks for the signal
//! sends none, so each process looks once more after that call. What it looks at is its socket to the tool: the kernel
//! closes the other end when the tool dies, however it dies, and a process id could belong to somebody else by then.

use std::io;
use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, getpid, getppid, set_parent_process_death_signal};

/// The exit code of an agent that ended because the tool was gone.
pub(super) const ORPHANED: u8 = 75;
/// Names the agent to the init that it starts.
pub(super) const AGENT: &str = "FAULTSCOPE_AGENT";

/// Whether the other end of this process's socket to the tool is closed.
pub(super) fn tool_is_gone() -> bool {
    let stdin = io::stdin();
    let socket = stdin.as_fd();
    let mut polled = [PollFd::new(&socket, PollFlags::empty())];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    // The tool only shuts its sending half down, so a hang-up means that it closed the socket.
    poll(&mut polled, Some(&at_once)).is_ok() && polled[0].revents().contains(PollFlags::HUP)
}

/// Makes the kernel send `signal` to this process when its parent ends; fails if the tool or the parent has ended.
pub(super) fn tie_to_parent(signal: Signal) -> io::Result<()> {
    set_parent_process_death_signal(Some(signal))?;
    // Absent where the parent is outside of this PID namespace and has no number in it.
    let expected = std::env::var(AGENT).ok().and_then(|pid| pid.parse().ok()).and_then(Pid::from_raw);
    let has_parent = getpid() == Pid::INIT || expected.is_none_or(|parent| getppid() == Some(parent));
    if has_parent && !tool_is_gone() {
        return Ok(());
    }
    Err(io::Error::other("the tool is gone"))
}
