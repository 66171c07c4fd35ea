//! A folder of spans that is open for writing.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use faultscope_model::metrics::Point;
use faultscope_model::trace::ReportedSpan;

use super::catalogue::SpanRetention;
use super::slice_writer::{self, Batch, SliceWriter, Stored};
use crate::budget::Hold;
use crate::campaigns::Store;
use crate::error::{StoreError, StoreErrorKind};
use crate::interop::otlp::MetricPoint;
use crate::lock::LOCK;
use crate::secrets::SecretOptions;
use crate::writer::{Ack, Queue, Refused, Writer, WriterHealth, write_batches};

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
    writer: Writer<Batch>,
    stored: Arc<Stored>,
    /// Held while spans are written; the operating system lets go of it when the process dies.
    _lock: File,
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
    /// Spans and points that were taken but could not be written; their senders were told.
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
        let queue = Queue::new(&folder, slice_writer::bounds(&options));
        let stored = Arc::new(Stored::default());
        let slices = SliceWriter::open(folder.clone(), options, Arc::clone(&stored))?;
        let writer = Writer::start("span-writer", queue, move |queue| write_batches(queue, slices));
        let writer = writer.map_err(StoreError::io("start the writer of", &folder))?;
        Ok(Self { state, writer, stored, _lock: lock })
    }

    /// The `.faultscope` folder.
    pub fn state(&self) -> &Path {
        &self.state
    }

    /// Takes spans to be written together; never blocks.
    pub fn put(&self, spans: Vec<ReportedSpan>) -> Result<Ack, Refused> {
        self.submit(Batch { spans, ..Batch::default() }, None)
    }

    /// As [`Self::put`]; their memory is held until they are written.
    pub(crate) fn put_held(&self, spans: Vec<ReportedSpan>, hold: Hold) -> Result<Ack, Refused> {
        self.submit(Batch { spans, ..Batch::default() }, Some(hold))
    }

    /// Takes points of metrics to be written together; never blocks.
    pub fn put_points(&self, points: Vec<Point>) -> Result<Ack, Refused> {
        self.submit(Batch { points, ..Batch::default() }, None)
    }

    /// As [`Self::put_points`], for metrics as they were sent; their memory is held until they are written.
    pub(crate) fn put_metrics(&self, metrics: Vec<MetricPoint>, hold: Hold) -> Result<Ack, Refused> {
        self.submit(Batch { metrics, ..Batch::default() }, Some(hold))
    }

    /// How the writer is.
    pub fn health(&self) -> WriterHealth {
        self.writer.health()
    }

    /// What happened so far.
    pub fn counts(&self) -> SpanCounts {
        SpanCounts {
            stored: self.stored.spans.load(Ordering::Relaxed),
            points: self.stored.points.load(Ordering::Relaxed),
            refused: self.writer.refused(),
            lost: self.writer.lost(),
            commits: self.writer.commits(),
            waiting: self.writer.waiting() as u64,
        }
    }

    fn submit(&self, batch: Batch, hold: Option<Hold>) -> Result<Ack, Refused> {
        let weight = batch.weigh();
        self.writer.submit(batch, weight, hold)
    }
}

/// Takes the lock and leaves a note who has it.
pub(super) fn lock(folder: &Path) -> Result<File, StoreError> {
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
