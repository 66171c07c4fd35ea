//! A folder of spans that is open for writing.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use faultscope_model::metrics::Point;
use faultscope_model::trace::ReportedSpan;
use tokio::sync::oneshot;

use super::catalogue::SpanRetention;
use super::queue::{Batch, Offer, Queue};
use super::writer::Writer;
use crate::campaigns::Store;
use crate::error::{StoreError, StoreErrorKind};
use crate::lock::LOCK;
use crate::secrets::SecretOptions;

/// How spans are kept.
#[derive(Debug, Clone)]
pub struct SpanStoreOptions {
    /// Spans that may wait for the writer.
    pub queued_spans: usize,
    /// Bytes that they may take.
    pub queued_bytes: usize,
    /// A slice with so many spans is closed.
    pub slice_spans: u64,
    /// A slice of so many bytes is closed.
    pub slice_bytes: u64,
    /// A slice that is open for so long is closed.
    pub slice_age: Duration,
    /// What is removed.
    pub retention: SpanRetention,
    /// Tags whose values are kept for choice.
    pub tag_values: Vec<String>,
    /// What is secret.
    pub secrets: SecretOptions,
}

impl Default for SpanStoreOptions {
    fn default() -> Self {
        Self {
            queued_spans: 50_000,
            queued_bytes: 64 << 20,
            slice_spans: 1 << 18,
            slice_bytes: 256 << 20,
            slice_age: Duration::from_secs(6 * 60 * 60),
            retention: SpanRetention::default(),
            tag_values: Vec::new(),
            secrets: SecretOptions::default(),
        }
    }
}

/// Spans open for writing. Dropping it writes what is queued and ends its writer.
#[derive(Debug)]
pub struct SpanStore {
    state: PathBuf,
    folder: PathBuf,
    queue: Arc<Queue>,
    writer: Option<JoinHandle<()>>,
    /// Held while spans are written; the operating system lets go of it when the process dies.
    _lock: File,
}

/// Why a batch was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The disk is behind: the sender should try again later.
    #[error("too many spans wait to be written")]
    Busy,
    /// The writer has ended.
    #[error("the store is closed")]
    Closed,
}

/// Resolves once what was put is committed, or says why it could not be.
#[derive(Debug)]
pub struct Ack {
    answer: oneshot::Receiver<Result<(), StoreError>>,
    folder: PathBuf,
}

/// What happened to spans so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SpanCounts {
    /// Spans that were committed.
    pub stored: u64,
    /// Points of metrics that were committed.
    pub points: u64,
    /// Spans and points that were refused because too many waited.
    pub refused: u64,
    /// Spans that were taken but could not be written; their senders were told.
    pub lost: u64,
    /// Commits.
    pub commits: u64,
    /// Spans and points that wait.
    pub waiting: u64,
}

impl SpanStore {
    /// Opens the spans of a `.faultscope` folder for writing, and makes both where they are missing. There is
    /// one writer at a time.
    pub fn open(state: impl AsRef<Path>, options: SpanStoreOptions) -> Result<Self, StoreError> {
        let state = state.as_ref().to_owned();
        Store::open(&state)?;
        let folder = state.join(super::FOLDER);
        match crate::files::make_private_folder(&folder) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                return Err(StoreError::io("create", &folder)(error));
            }
            _ => {}
        }
        let lock = lock(&folder)?;
        let queue = Arc::new(Queue::new(options.queued_spans, options.queued_bytes));
        let writer = Writer::open(folder.clone(), options)?;
        let thread = std::thread::Builder::new()
            .name("span-writer".to_owned())
            .spawn({
                let queue = Arc::clone(&queue);
                move || {
                    // Whatever ends the thread, waiting for it must end too.
                    let _closing = AbandonOnDrop(&queue);
                    writer.run(&queue);
                }
            })
            .map_err(StoreError::io("start the writer of", &folder))?;
        Ok(Self { state, folder, queue, writer: Some(thread), _lock: lock })
    }

    /// The `.faultscope` folder.
    pub fn state(&self) -> &Path {
        &self.state
    }

    /// Takes spans to be written together; never blocks.
    pub fn put(&self, spans: Vec<ReportedSpan>) -> Result<Ack, Refused> {
        self.offer(spans, Vec::new())
    }

    /// Takes points of metrics to be written together; never blocks.
    pub fn put_points(&self, points: Vec<Point>) -> Result<Ack, Refused> {
        self.offer(Vec::new(), points)
    }

    /// What happened so far.
    pub fn counts(&self) -> SpanCounts {
        let counters = &self.queue.counters;
        SpanCounts {
            stored: counters.stored.load(Ordering::Relaxed),
            points: counters.points.load(Ordering::Relaxed),
            refused: counters.refused.load(Ordering::Relaxed),
            lost: counters.lost.load(Ordering::Relaxed),
            commits: counters.commits.load(Ordering::Relaxed),
            waiting: self.queue.waiting() as u64,
        }
    }

    fn offer(&self, spans: Vec<ReportedSpan>, points: Vec<Point>) -> Result<Ack, Refused> {
        let (answer, receiver) = oneshot::channel();
        match self.queue.offer(Batch { spans, points, answer }) {
            Offer::Taken => Ok(Ack { answer: receiver, folder: self.folder.clone() }),
            Offer::Full => Err(Refused::Busy),
            Offer::Closed => Err(Refused::Closed),
        }
    }
}

impl Drop for SpanStore {
    fn drop(&mut self) {
        self.queue.close();
        if let Some(writer) = self.writer.take() {
            // A panic of the writer was already reported where it happened.
            let _ = writer.join();
        }
    }
}

impl Ack {
    /// Waits until the spans are committed.
    pub async fn committed(self) -> Result<(), StoreError> {
        self.answer.await.unwrap_or_else(|_| Err(ended(&self.folder)))
    }

    /// The same for callers outside of an async runtime; it panics inside of one.
    pub fn committed_blocking(self) -> Result<(), StoreError> {
        self.answer.blocking_recv().unwrap_or_else(|_| Err(ended(&self.folder)))
    }
}

fn ended(folder: &Path) -> StoreError {
    StoreError::new(StoreErrorKind::Closed, "write", folder, "its writer has ended")
}

/// Takes the lock and leaves a note who has it.
fn lock(folder: &Path) -> Result<File, StoreError> {
    let path = folder.join(LOCK);
    let mut options = File::options();
    let opened = options.read(true).write(true).create(true).truncate(false).open(&path);
    let mut file = opened.map_err(StoreError::io("open", &path))?;
    if let Err(error) = file.try_lock() {
        return Err(match error {
            std::fs::TryLockError::WouldBlock => {
                let mut owner = String::new();
                let _ = (&mut file).take(20).read_to_string(&mut owner);
                let reason = format!("process {} writes it already; reading works meanwhile", owner.trim());
                StoreError::new(StoreErrorKind::InUse, "write to", folder, reason)
            }
            std::fs::TryLockError::Error(error) => StoreError::io("lock", &path)(error),
        });
    }
    let note =
        file.set_len(0).and_then(|()| file.rewind()).and_then(|()| writeln!(file, "{}", std::process::id()));
    note.map_err(StoreError::io("write", &path))?;
    Ok(file)
}

struct AbandonOnDrop<'q>(&'q Queue);

impl Drop for AbandonOnDrop<'_> {
    fn drop(&mut self) {
        self.0.abandon();
    }
}
