//! A campaign being written: spans by cheap handles, runs, logs, events and the report.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use faultscope_model::grpc::Descriptors;
use faultscope_model::log::InstanceLog;
use faultscope_model::span::Span;
use faultscope_model::trace::ReportedSpan;
use faultscope_model::{CampaignId, InstanceId, RunId, SlotId, TrialId};
use serde::Serialize;

use super::campaign_writer::{self, CampaignWriter, Entry, MAX_LOG, weigh_call, weigh_reports};
use super::descriptors_file::{read_descriptors, write_descriptors};
use super::event_log::EventLog;
use super::folder::REPORT;
use super::log_text::split_log;
use super::meta::{CampaignFile, CampaignMeta};
use super::metrics_database::SampleWriter;
use super::reader::Reader;
use super::schema::{DATABASE, open_writer};
use super::upgrade::upgrade_files;
use crate::budget::{Budget, Hold};
use crate::error::{StoreError, StoreErrorKind};
use crate::lock::LOCK;
use crate::sealed::{AtRest, ReadKey, seal_text};
use crate::secrets::{Redactor, Sealer, SecretOptions};
use crate::writer::{Queue, Writer, write_batches};
use crate::{FORMAT, files};

/// The most bytes of reported spans and metrics in memory, from the body to the commit.
const REPORTED_BYTES: usize = 96 << 20;

/// How much a campaign may hold in memory before it drops spans, and what is secret.
#[derive(Debug, Clone)]
pub struct CampaignOptions {
    /// The most spans that wait for the writer.
    pub queued_spans: usize,
    /// The most bytes of their paths, headers and bodies.
    pub queued_bytes: usize,
    /// What is redacted, and where the key for it is.
    pub secrets: SecretOptions,
}

impl Default for CampaignOptions {
    fn default() -> Self {
        Self { queued_spans: 32_768, queued_bytes: 64 << 20, secrets: SecretOptions::default() }
    }
}

/// A campaign being written. Dropping it writes what is queued and ends its writer.
#[derive(Debug)]
pub struct Campaign {
    file: CampaignFile,
    folder: PathBuf,
    writer: Writer<Entry>,
    events: EventLog,
    samples: Arc<SampleWriter>,
    redactor: Redactor,
    /// The memory of what instances of all slots report.
    budget: Budget,
    at_rest: AtRest,
    key: ReadKey,
    /// Held while the campaign is written; the operating system releases it when the process dies.
    _lock: File,
}

/// A run with the columns by which it is listed.
#[derive(Debug, Clone, Copy)]
pub struct RunRecord<'r> {
    /// The trial.
    pub trial: TrialId,
    /// The run.
    pub id: &'r RunId,
    /// `pass`, `fail` or `unresolved`.
    pub outcome: &'r str,
    /// The start in microseconds since 1970.
    pub started_us: u64,
    /// Until the slot was clear.
    pub duration_us: u64,
    /// The run as JSON.
    pub json: &'r str,
}

impl Campaign {
    /// Creates the files of a new campaign in its empty folder and starts its writer.
    pub(crate) fn create(
        folder: PathBuf,
        mut meta: CampaignMeta,
        options: CampaignOptions,
    ) -> Result<Self, StoreError> {
        let redactor = Redactor::new(&options.secrets.rules);
        meta.command_line.iter_mut().for_each(|word| redactor.redact(word));
        let mut campaign = Self::start(folder, CampaignFile::new(meta), options)?;
        // Written last: a folder without this file is not a campaign yet.
        campaign.file.seal_command_line(&campaign.folder, &campaign.at_rest)?;
        campaign.file.write(&campaign.folder)?;
        Ok(campaign)
    }

    /// Starts a writer for an existing campaign that has none.
    pub(crate) fn reopen(folder: PathBuf, options: CampaignOptions) -> Result<Self, StoreError> {
        let file = CampaignFile::read(&folder, &ReadKey::new(options.secrets.key.clone()))?;
        Self::start(folder, file, options)
    }

    fn start(folder: PathBuf, mut file: CampaignFile, options: CampaignOptions) -> Result<Self, StoreError> {
        let redactor = Redactor::new(&options.secrets.rules);
        let at_rest = AtRest::new(&options.secrets)?;
        let key = ReadKey::new(options.secrets.key.clone());
        redactor.describe_messages(read_descriptors(&folder, &key));
        let sealer = Sealer::new(&options.secrets)?;
        let lock_path = folder.join(LOCK);
        let lock = File::create(&lock_path).map_err(StoreError::io("create", &lock_path))?;
        lock.try_lock().map_err(|error| StoreError::io("lock", &lock_path)(error.into()))?;
        let database = folder.join(DATABASE);
        let connection = open_writer(&database, &key)?;
        if file.is_older() {
            // The lock is held, so nobody else changes these files.
            upgrade_files(&folder, &key)?;
            file = CampaignFile::read(&folder, &key)?;
        }
        let events = EventLog::append_to(&folder)?.redacted_by(redactor.clone()).sealed_by(at_rest.clone());
        let samples = Arc::new(SampleWriter::new(&folder, at_rest.clone(), key.clone()));
        let queue = Queue::new(&folder, campaign_writer::bounds(options.queued_spans, options.queued_bytes));
        let writer = Writer::start("store-writer", queue, {
            let (redactor, at_rest) = (redactor.clone(), at_rest.clone());
            move |queue| {
                let writer = CampaignWriter::new(&connection, &database, redactor, sealer, at_rest);
                write_batches(queue, writer);
            }
        });
        let writer = writer.map_err(StoreError::io("start the writer of", &folder))?;
        let budget = Budget::new(REPORTED_BYTES);
        Ok(Self { file, folder, writer, events, samples, redactor, budget, at_rest, key, _lock: lock })
    }

    /// The id of the campaign.
    pub fn id(&self) -> &CampaignId {
        &self.file.meta.id
    }

    /// The folder of the campaign.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// How values are stored.
    pub(super) fn at_rest(&self) -> &AtRest {
        &self.at_rest
    }

    /// A handle for recording spans.
    pub fn sink(&self) -> SpanSink {
        SpanSink { queue: self.writer.queue(), budget: self.budget.clone() }
    }

    /// The event log.
    pub fn events(&self) -> &EventLog {
        &self.events
    }

    /// The writer for samples of its instances.
    pub fn samples(&self) -> &Arc<SampleWriter> {
        &self.samples
    }

    /// Redacts texts; it also knows secret values that occurred in committed calls.
    pub fn redactor(&self) -> &Redactor {
        &self.redactor
    }

    /// Adds what is known of gRPC messages: secret fields are found by their names, and bodies are decoded when they
    /// are read. What is known already takes precedence.
    pub fn describe_messages(&self, descriptors: Descriptors) -> Result<(), StoreError> {
        if descriptors.is_empty() {
            return Ok(());
        }
        let all = self.redactor.describe_messages(descriptors);
        write_descriptors(&self.folder, &all, &self.at_rest)
    }

    /// What is known of gRPC messages.
    pub fn descriptors(&self) -> Descriptors {
        self.redactor.descriptors()
    }

    /// Stores a run and waits until it is committed, and with it everything recorded before.
    pub async fn put_run(&self, run: RunRecord<'_>) -> Result<(), StoreError> {
        let RunRecord { trial, id, outcome, started_us, duration_us, json } = run;
        let (id, outcome, json) = (id.clone(), outcome.to_owned(), json.to_owned());
        self.writer.push(Entry::Run { trial, id, outcome, started_us, duration_us, json })?;
        self.flush().await
    }

    /// Removes what was recorded of a trial whose attempt was spoiled: calls, reports, logs, and samples from
    /// before this moment. What the next attempt records comes after it.
    pub async fn forget(&self, trial: TrialId, before_us: u64) -> Result<(), StoreError> {
        self.writer.push(Entry::Forget(trial))?;
        self.flush().await?;
        let samples = self.samples.clone();
        let forgotten = tokio::task::spawn_blocking(move || samples.forget(trial, before_us)).await;
        forgotten.unwrap_or_else(|_| {
            let reason = "the runtime ended while it was written";
            Err(StoreError::new(StoreErrorKind::Closed, "write", &self.folder, reason))
        })
    }

    /// Stores what an instance printed, of long logs the end; it is committed with the next batch.
    pub fn put_log(&self, trial: TrialId, mut log: InstanceLog) -> Result<(), StoreError> {
        log.keep_last(MAX_LOG);
        let (head, text) = split_log(&log);
        self.writer.push(Entry::Log { trial, instance: log.instance.to_string(), head, text })
    }

    /// Waits until everything recorded before is committed; returns an error if some of it could not be.
    pub async fn flush(&self) -> Result<(), StoreError> {
        let ack = self.writer.flush()?;
        // On a blocking thread, so that a paused clock does not advance while the disk works.
        let waited = tokio::task::spawn_blocking(move || ack.committed_blocking()).await;
        waited.unwrap_or_else(|_| {
            let reason = "the runtime ended while it was written";
            Err(StoreError::new(StoreErrorKind::Closed, "write", &self.folder, reason))
        })
    }

    /// As [`Self::flush`], for callers outside of an async runtime; panics inside of one.
    pub fn flush_blocking(&self) -> Result<(), StoreError> {
        self.writer.flush()?.committed_blocking()
    }

    /// Writes the report, replacing an earlier one.
    pub fn put_report<T: Serialize>(&self, report: &T) -> Result<(), StoreError> {
        #[derive(Serialize)]
        struct ReportFile<'r, T> {
            format: u32,
            report: &'r T,
        }
        let path = self.folder.join(REPORT);
        let invalid = |error: serde_json::Error| {
            StoreError::new(StoreErrorKind::Invalid, "write", &path, error.to_string())
        };
        let mut report = serde_json::to_value(report).map_err(invalid)?;
        self.redactor.redact_json(&mut report);
        let text = match &self.at_rest {
            AtRest::Plain => serde_json::to_string_pretty(&ReportFile { format: FORMAT, report: &report }),
            AtRest::Sealed(key) => {
                let plain = serde_json::to_vec(&report).map_err(invalid)?;
                let sealed = seal_text(key, REPORT, &plain).map_err(StoreError::io("seal", &path))?;
                serde_json::to_string(&serde_json::json!({ "format": FORMAT, "sealed": sealed }))
            }
        };
        files::write_text(&path, &(text.map_err(invalid)? + "\n"))
    }

    /// A reader of everything that is committed.
    pub fn reader(&self) -> Result<Reader, StoreError> {
        Reader::open(&self.folder, &self.key)
    }

    /// The number of dropped spans.
    pub fn dropped(&self) -> u64 {
        self.writer.refused() + self.writer.lost()
    }
}

/// Records spans of a campaign; cheap to clone and to call, from any thread.
#[derive(Debug, Clone)]
pub struct SpanSink {
    queue: Arc<Queue<Entry>>,
    budget: Budget,
}

impl SpanSink {
    /// Records a span. It never blocks: when the writer is behind, the span is dropped and counted.
    pub fn record(&self, trial: TrialId, slot: SlotId, span: Span) {
        let weight = weigh_call(&span);
        self.queue.record(Entry::Span(trial, slot, span), weight);
    }

    /// Stores spans that an instance reported and waits until they are committed; false if the writer is behind,
    /// and the sender should try again. Their memory is held until then.
    pub async fn report(
        &self,
        trial: TrialId,
        slot: SlotId,
        instance: Option<InstanceId>,
        spans: Vec<ReportedSpan>,
        hold: Option<Hold>,
    ) -> bool {
        let weight = weigh_reports(&spans);
        let entry = Entry::Reported { trial, slot, instance, spans };
        let Ok(ack) = self.queue.submit(entry, weight, hold) else { return false };
        self.queue.hurry();
        ack.committed().await.is_ok()
    }

    /// The memory of what instances report, shared by all slots.
    pub(crate) fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Spans recorded so far, by all handles of the campaign.
    pub fn recorded(&self) -> u64 {
        self.queue.recorded()
    }

    /// Spans dropped so far, by all handles of the campaign.
    pub fn dropped(&self) -> u64 {
        self.queue.refused() + self.queue.lost()
    }
}
