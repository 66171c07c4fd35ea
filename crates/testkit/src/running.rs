//! A running tool: its output as it comes, its end, and signals to it.

use std::io::{BufRead, BufReader, Read};
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use regex::Regex;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, pidfd_send_signal};

use crate::output::Output;
use crate::patience::{LOOK, Patience};

/// How long the tool may be idle before it prints an expected line, and before it ends.
const LINE_WITHIN: Duration = Duration::from_secs(60);
const END_WITHIN: Duration = Duration::from_secs(60);
/// How long its outputs may stay open after its end: longer means that some process of it is still alive.
const OUTPUT_WITHIN: Duration = Duration::from_secs(20);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum From {
    Stdout,
    Stderr,
}

enum Piece {
    Line(From, String),
    End,
}

/// A running tool. If it is dropped before its end, its whole process group is killed.
#[derive(Debug)]
pub struct Running {
    child: Child,
    process: OwnedFd,
    pieces: Receiver<Piece>,
    open: usize,
    stdout: String,
    stderr: String,
    name: String,
    masks: Vec<(String, String)>,
    over: bool,
}

impl Running {
    #[track_caller]
    pub(crate) fn start(mut command: Command, name: String, masks: Vec<(String, String)>) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap_or_else(|e| panic!("cannot start {command:?}: {e}"));
        let (sender, pieces) = channel();
        forward(child.stdout.take().expect("a pipe"), From::Stdout, sender.clone());
        forward(child.stderr.take().expect("a pipe"), From::Stderr, sender);
        let process = pidfd_open(pid_of(&child), PidfdFlags::empty()).expect("a handle of the process");
        Self {
            child,
            process,
            pieces,
            open: 2,
            stdout: String::new(),
            stderr: String::new(),
            name,
            masks,
            over: false,
        }
    }

    /// The process id of the tool.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until a line of either output matches, and returns that line.
    #[track_caller]
    pub fn wait_for_line(&mut self, pattern: &str) -> String {
        let pattern = Regex::new(pattern).expect("a pattern");
        let mut patience = Patience::new(self.id(), LINE_WITHIN);
        loop {
            let why = match self.pieces.recv_timeout(LOOK) {
                Ok(piece) => {
                    let found = match &piece {
                        Piece::Line(_, line) => pattern.is_match(line).then(|| line.clone()),
                        Piece::End => None,
                    };
                    self.take(piece);
                    if let Some(line) = found {
                        return line;
                    }
                    patience.renew();
                    continue;
                }
                Err(RecvTimeoutError::Timeout) => match patience.look() {
                    Ok(()) => continue,
                    Err(why) => why,
                },
                Err(RecvTimeoutError::Disconnected) => "it has closed its outputs".to_owned(),
            };
            panic!("`{}` did not print `{pattern}` ({why}):\n{}\n{}", self.name, self.stdout, self.stderr);
        }
    }

    /// Sends a signal to the tool alone, as `kill` does.
    pub fn signal(&self, signal: Signal) {
        pidfd_send_signal(&self.process, signal).expect("a signal is sent");
    }

    /// Interrupts the tool, as Ctrl-C does.
    pub fn interrupt(&self) {
        self.signal(Signal::INT);
    }

    /// Kills the tool alone, without a chance to clean up.
    pub fn kill(&self) {
        self.signal(Signal::KILL);
    }

    /// Waits for the end.
    #[track_caller]
    pub fn wait(self) -> Output {
        self.finish(END_WITHIN)
    }

    #[track_caller]
    pub(crate) fn finish(mut self, within: Duration) -> Output {
        // The outputs are read meanwhile: a full pipe would block the tool.
        let mut patience = Patience::new(self.id(), within);
        let look = Timespec { tv_sec: LOOK.as_secs().cast_signed(), tv_nsec: 0 };
        loop {
            let mut polled = [PollFd::new(&self.process, PollFlags::IN)];
            if rustix::event::poll(&mut polled, Some(&look)).expect("poll") > 0 {
                break;
            }
            if let Err(why) = patience.look() {
                self.end();
                self.drain();
                panic!("`{}` did not end ({why}):\n{}\n{}", self.name, self.stdout, self.stderr);
            }
        }
        let held = self.drain();
        self.over = true;
        let status = self.child.wait().expect("the tool's end");
        assert!(!held, "`{}` ended, but something of it still holds its outputs", self.name);
        Output::new(
            self.name.clone(),
            status.code(),
            status.signal(),
            std::mem::take(&mut self.stdout),
            std::mem::take(&mut self.stderr),
            std::mem::take(&mut self.masks),
        )
    }

    /// Reads both outputs to their end; returns whether something held them open for too long.
    fn drain(&mut self) -> bool {
        while self.open > 0 {
            match self.pieces.recv_timeout(OUTPUT_WITHIN) {
                Ok(piece) => self.take(piece),
                Err(RecvTimeoutError::Timeout) => return true,
                Err(RecvTimeoutError::Disconnected) => return false,
            }
        }
        false
    }

    fn take(&mut self, piece: Piece) {
        match piece {
            Piece::Line(From::Stdout, line) => self.stdout.push_str(&line),
            Piece::Line(From::Stderr, line) => self.stderr.push_str(&line),
            Piece::End => self.open -= 1,
        }
    }

    fn end(&mut self) {
        if !self.over {
            self.over = true;
            // The child has not been waited for, so its id cannot have been reused.
            let _ = kill_process_group(pid_of(&self.child), Signal::KILL);
            let _ = self.child.wait();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

fn pid_of(child: &Child) -> Pid {
    Pid::from_child(child)
}

fn forward(pipe: impl Read + Send + 'static, from: From, sender: Sender<Piece>) {
    thread::spawn(move || {
        let mut reader = BufReader::new(pipe);
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
            let text = String::from_utf8_lossy(&line).into_owned();
            if sender.send(Piece::Line(from, text)).is_err() {
                return;
            }
            line.clear();
        }
        let _ = sender.send(Piece::End);
    });
}
