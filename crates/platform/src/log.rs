//! The output of an instance: its last lines in memory, more of it in a file, both bounded.
//!
//! A flood must not slow down the service, fill the disk or keep the tool busy: the pipe is always read,
//! and what comes too fast for the file is counted and dropped.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use faultscope_model::InstanceId;
use faultscope_model::log::{InstanceLog, LogLine};
use regex::Regex;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::now_us;

/// Lines kept in memory, and their bytes: what a trial stores of an instance is less.
const MAX_LINES: usize = 500;
const MAX_BYTES: usize = 64 << 10;
/// Bytes kept of one line.
const LONGEST_LINE: usize = 4096;
/// The most bytes written to the file in one [`PERIOD`]; the rest of a flood is dropped.
const MAX_PER_PERIOD: u64 = 1 << 20;
const PERIOD: Duration = Duration::from_millis(100);

/// The log of one instance.
#[derive(Debug)]
pub(crate) struct Log {
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    lines: VecDeque<LogLine>,
    /// Bytes of `lines`.
    bytes: usize,
    /// Lines that had to go.
    dropped: u64,
    partial: Vec<u8>,
    overlong: bool,
    awaited: Option<(Regex, oneshot::Sender<()>)>,
}

impl Log {
    /// An empty log.
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { kept: Mutex::default() })
    }

    /// The last lines, including an unfinished one.
    pub(crate) fn last_lines(&self) -> Vec<String> {
        let kept = self.lock();
        let partial = (!kept.partial.is_empty()).then(|| show(&kept.partial));
        kept.lines.iter().map(|line| line.text.clone()).chain(partial).collect()
    }

    /// Everything that is kept of it, as the log of this instance; an unfinished line has arrived just now.
    pub(crate) fn of_instance(&self, instance: &InstanceId) -> InstanceLog {
        let kept = self.lock();
        let partial = || LogLine { at_us: now_us(), text: show(&kept.partial) };
        let partial = (!kept.partial.is_empty()).then(partial);
        let lines = kept.lines.iter().cloned().chain(partial).collect();
        InstanceLog { instance: instance.clone(), lines, dropped: kept.dropped }
    }

    /// Resolves when a line matches.
    pub(crate) fn expect(&self, pattern: Regex) -> oneshot::Receiver<()> {
        let (seen, matched) = oneshot::channel();
        let mut kept = self.lock();
        if kept.lines.iter().any(|line| pattern.is_match(&line.text)) {
            let _ = seen.send(());
        } else {
            kept.awaited = Some((pattern, seen));
        }
        matched
    }

    /// Reads the output until all its writers have closed it.
    pub(crate) async fn follow(self: Arc<Self>, mut output: impl AsyncRead + Unpin, mut file: LogFile) {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(length) = output.read(&mut buffer).await {
            if length == 0 {
                break;
            }
            self.push(&buffer[..length]);
            file.write(&buffer[..length]);
        }
        file.finish();
    }

    /// Adds output.
    pub(crate) fn push(&self, mut bytes: &[u8]) {
        let mut kept = self.lock();
        if kept.awaited.is_none() {
            // Lines that would be evicted at once need no work: a flood consists mostly of these.
            bytes = tail(bytes, &mut kept);
        }
        while let Some(end) = bytes.iter().position(|b| *b == b'\n') {
            kept.extend(&bytes[..end]);
            kept.finish_line();
            bytes = &bytes[end + 1..];
        }
        kept.extend(bytes);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn extend(&mut self, bytes: &[u8]) {
        let room = LONGEST_LINE.saturating_sub(self.partial.len());
        self.overlong |= bytes.len() > room;
        self.partial.extend(&bytes[..bytes.len().min(room)]);
    }

    fn finish_line(&mut self) {
        let mut line = show(&self.partial);
        if self.overlong {
            line.push('…');
        }
        self.partial.clear();
        self.overlong = false;
        if self.awaited.as_ref().is_some_and(|(pattern, _)| pattern.is_match(&line))
            && let Some((_, seen)) = self.awaited.take()
        {
            let _ = seen.send(());
        }
        self.bytes += line.len();
        self.lines.push_back(LogLine { at_us: now_us(), text: line });
        while self.lines.len() > MAX_LINES || (self.bytes > MAX_BYTES && self.lines.len() > 1) {
            let Some(oldest) = self.lines.pop_front() else { break };
            self.bytes -= oldest.text.len();
            self.dropped += 1;
        }
    }
}

/// The part of `bytes` with the last lines; if there is anything before it, earlier lines are evicted.
fn tail<'a>(bytes: &'a [u8], kept: &mut Kept) -> &'a [u8] {
    let mut ends = bytes.iter().enumerate().rev().filter(|(_, b)| **b == b'\n');
    let Some((cut, _)) = ends.nth(MAX_LINES) else {
        return bytes;
    };
    kept.dropped += bytes[..=cut].iter().filter(|b| **b == b'\n').count() as u64;
    kept.partial.clear();
    kept.overlong = false;
    &bytes[cut + 1..]
}

fn show(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim_end_matches('\r').to_owned()
}

/// The whole output, but no more than `limit` bytes of it: the first and the last half.
pub(crate) async fn capture(mut output: impl AsyncRead + Unpin, limit: usize) -> String {
    let half = limit / 2;
    let (mut first, mut last, mut dropped) = (Vec::new(), Vec::new(), 0_usize);
    let mut buffer = vec![0; 64 << 10];
    while let Ok(length @ 1..) = output.read(&mut buffer).await {
        let room = half - first.len();
        let (head, tail) = buffer[..length].split_at(length.min(room));
        first.extend_from_slice(head);
        last.extend_from_slice(tail);
        // Trimmed at twice the half, so that a flood costs one copy per byte.
        if last.len() > 2 * half + (64 << 10) {
            dropped += last.len() - half;
            last.drain(..last.len() - half);
        }
    }
    if last.len() > half {
        dropped += last.len() - half;
        last.drain(..last.len() - half);
    }
    if dropped > 0 {
        first.extend(format!("\n[faultscope: {dropped} bytes omitted]\n").into_bytes());
    }
    first.append(&mut last);
    String::from_utf8_lossy(&first).into_owned()
}

/// A log file of bounded size: a full one is renamed to `.old`, replacing the one before.
#[derive(Debug)]
pub(crate) struct LogFile {
    path: PathBuf,
    file: Option<File>,
    written: u64,
    half: u64,
    period: Instant,
    in_period: u64,
    skipped: u64,
}

impl LogFile {
    /// Writes to `path`, at most `limit` bytes including the rotated file.
    pub(crate) fn new(path: PathBuf, limit: u64) -> Self {
        let file = path.parent().and_then(|folder| {
            fs::create_dir_all(folder).ok()?;
            File::options().create(true).append(true).open(&path).ok()
        });
        let written = file.as_ref().and_then(|f| f.metadata().ok()).map_or(0, |m| m.len());
        Self { path, file, written, half: limit / 2, period: Instant::now(), in_period: 0, skipped: 0 }
    }

    fn write(&mut self, bytes: &[u8]) {
        if self.period.elapsed() > PERIOD {
            self.period = Instant::now();
            self.in_period = 0;
        }
        self.in_period += bytes.len() as u64;
        if self.in_period > MAX_PER_PERIOD {
            self.skipped += bytes.len() as u64;
            return;
        }
        self.say_skipped();
        self.put(bytes);
    }

    fn finish(&mut self) {
        self.say_skipped();
    }

    fn say_skipped(&mut self) {
        if self.skipped > 0 {
            let note = format!("\n[faultscope: {} bytes omitted]\n", self.skipped);
            self.skipped = 0;
            self.put(note.as_bytes());
        }
    }

    fn put(&mut self, bytes: &[u8]) {
        if self.written + bytes.len() as u64 > self.half {
            let old = self.path.with_extension("log.old");
            let _ = fs::rename(&self.path, old);
            self.file = File::options().create(true).truncate(true).write(true).open(&self.path).ok();
            self.written = 0;
        }
        let bytes = &bytes[..bytes.len().min(self.half as usize)];
        let Some(file) = &mut self.file else { return };
        // A full disk costs the rest of this log, never the trial: the last lines are in memory.
        if file.write_all(bytes).is_err() {
            self.file = None;
        }
        self.written += bytes.len() as u64;
    }
}
