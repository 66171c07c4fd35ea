//! A terminal for a program in a slot: a pair of descriptors, of which the program has one and the user's terminal is
//! connected to the other.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};

use rustix::fs::{Mode, OFlags};
use rustix::pty::OpenptFlags;

/// Bytes that are passed on at once.
const CHUNK: usize = 8 << 10;

/// A terminal that is open for a program.
#[derive(Debug)]
pub(crate) struct Terminal {
    program_side: OwnedFd,
    /// What `stty` needs to set the user's terminal as it was.
    before: Option<String>,
}

impl Terminal {
    /// Opens a terminal of the size of the user's own, and passes on every key from now on.
    pub(crate) fn open() -> io::Result<Self> {
        let ours = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        rustix::pty::grantpt(&ours)?;
        rustix::pty::unlockpt(&ours)?;
        let name = rustix::pty::ptsname(&ours, Vec::new())?;
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let program_side = rustix::fs::open(name.as_c_str(), flags, Mode::empty())?;
        if let Some(size) = stty(&["size"]) {
            let mut words = size.split_whitespace();
            if let (Some(rows), Some(columns)) = (words.next(), words.next()) {
                let path = name.to_string_lossy();
                stty(&["-F", &path, "rows", rows, "cols", columns]);
            }
        }
        let before = stty(&["-g"]);
        stty(&["raw", "-echo"]);
        let terminal = Self { program_side, before };
        let (to, from) = (File::from(ours.try_clone()?), File::from(ours));
        // Both threads end with the process at the latest: reading keys cannot be interrupted.
        std::thread::spawn(move || pass_on(io::stdin(), to));
        std::thread::spawn(move || pass_on(from, io::stdout()));
        Ok(terminal)
    }

    /// The side that a program uses.
    pub(crate) fn program_side(&self) -> io::Result<OwnedFd> {
        self.program_side.try_clone()
    }

    /// Gives the user's terminal back.
    pub(crate) fn close(self) {}
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            stty(&[before]);
        }
    }
}

fn pass_on(mut from: impl Read, mut to: impl Write) {
    let mut buffer = [0; CHUNK];
    while let Ok(length) = from.read(&mut buffer) {
        if length == 0 || to.write_all(&buffer[..length]).and_then(|()| to.flush()).is_err() {
            return;
        }
    }
}

/// Runs `stty` on the user's terminal; none if that fails.
fn stty(words: &[&str]) -> Option<String> {
    let output =
        Command::new("stty").args(words).stdin(Stdio::inherit()).stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
