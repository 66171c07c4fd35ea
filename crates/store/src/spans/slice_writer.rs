//! What commits spans and points: it writes to the last slice, closes slices that are large enough and removes
//! old ones.

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

use faultscope_model::metrics::Point;
use faultscope_model::trace::ReportedSpan;

use super::SpanStoreOptions;
use super::active::Active;
use super::catalogue::{CATALOGUE, Catalogue, SliceEntry};
use super::slice::name_unreadable;
use crate::error::{StoreError, StoreErrorKind};
use crate::interop::Weigh;
use crate::interop::otlp::{MetricPoint, points_of};
use crate::sealed::{AtRest, ReadKey};
use crate::secrets::{Redactor, Sealer};
use crate::upkeep::set_aside;
use crate::weight::{weigh_point, weigh_span};
use crate::writer::{Bounds, Commit, Weight};

/// How long batches are gathered: their senders wait, so this is what they wait longer than they must.
const GATHER: Duration = Duration::from_millis(4);

/// How many spans and points make a group of batches.
const ENOUGH: usize = 2000;

/// Spans and points that came together and are acknowledged together.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) spans: Vec<ReportedSpan>,
    pub(super) points: Vec<Point>,
    /// Metrics as they were sent: a histogram becomes its points only when it is written, because each of them
    /// repeats all labels.
    pub(super) metrics: Vec<MetricPoint>,
}

/// What was committed so far.
#[derive(Debug, Default)]
pub(super) struct Stored {
    pub(super) spans: AtomicU64,
    pub(super) points: AtomicU64,
}

/// How much may wait for the writer.
pub(super) fn bounds(options: &SpanStoreOptions) -> Bounds {
    Bounds { items: options.queued_spans, bytes: options.queued_bytes, gather: GATHER, enough: ENOUGH }
}

impl Batch {
    /// What it counts in the queue.
    pub(super) fn weigh(&self) -> Weight {
        let spans = self.spans.iter().map(weigh_span);
        let bytes =
            spans.chain(self.points.iter().map(weigh_point)).chain(self.metrics.iter().map(Weigh::weigh));
        Weight { items: self.spans.len() + self.points.len() + self.metrics.len(), bytes: bytes.sum() }
    }

    /// Its points, made as they are needed.
    pub(super) fn points(&self) -> impl Iterator<Item = Cow<'_, Point>> {
        let made = self.metrics.iter().flat_map(points_of).map(Cow::Owned);
        self.points.iter().map(Cow::Borrowed).chain(made)
    }
}

/// Writes slices of a folder.
pub(super) struct SliceWriter {
    folder: PathBuf,
    options: SpanStoreOptions,
    catalogue: Catalogue,
    /// None after a slice could not be opened; the next batch tries again.
    active: Option<Active>,
    redactor: Redactor,
    sealer: Sealer,
    at_rest: AtRest,
    key: ReadKey,
    /// When the clock of retention was last advanced.
    advanced: Instant,
    stored: Arc<Stored>,
}

impl SliceWriter {
    /// Takes over a folder whose lock is held.
    pub(super) fn open(
        folder: PathBuf,
        options: SpanStoreOptions,
        stored: Arc<Stored>,
    ) -> Result<Self, StoreError> {
        let redactor = Redactor::new(&options.secrets.rules);
        let sealer = Sealer::new(&options.secrets)?;
        let at_rest = AtRest::new(&options.secrets)?;
        let key = ReadKey::new(options.secrets.key.clone());
        let mut catalogue = match Catalogue::read(&folder) {
            // What it listed is found again by the names of the files.
            Err(error) if error.kind == StoreErrorKind::Damaged => {
                tracing::warn!(%error, cause = %error.source, "the catalogue is set aside and made again");
                set_aside(folder.parent().unwrap_or(&folder), &folder.join(CATALOGUE))?;
                Catalogue::read(&folder)?
            }
            other => other?,
        };
        catalogue.adopt(&folder, now_us(), &key)?;
        catalogue.clock.resume(now_us());
        for slice in &mut catalogue.slices {
            if slice.closed_us.is_some() {
                slice.closed_at_us.get_or_insert(catalogue.clock.passed_us);
            }
        }
        let advanced = Instant::now();
        let mut writer = Self {
            folder,
            options,
            catalogue,
            active: None,
            redactor,
            sealer,
            at_rest,
            key,
            advanced,
            stored,
        };
        writer.activate()?;
        writer.retain()?;
        Ok(writer)
    }

    /// Opens the slice to be written: the last one if it was not closed, or a new one.
    fn activate(&mut self) -> Result<(), StoreError> {
        if self.active.is_some() {
            return Ok(());
        }
        if let Some(slice) = self.catalogue.slices.last()
            && slice.closed_us.is_none()
        {
            match Active::open(slice.path(&self.folder), &self.at_rest, &self.key) {
                Ok(Some(active)) => {
                    self.active = Some(active);
                    return Ok(());
                }
                // Sealed in another way: it ends here, and another one begins.
                Ok(None) => {}
                Err(error) if is_unusable(&error) => name_unreadable(&error),
                Err(error) => return Err(error),
            }
            self.abandon_last();
        }
        self.catalogue.push(now_us());
        // Listed before it is made, so that a reader never misses spans that are acknowledged.
        if let Err(error) = self.catalogue.write(&self.folder) {
            self.catalogue.slices.pop();
            return Err(error);
        }
        if let Some(slice) = self.catalogue.slices.last() {
            self.active = Active::open(slice.path(&self.folder), &self.at_rest, &self.key)?;
        }
        Ok(())
    }

    /// Closes the last slice as it is. Its last rows have no segment, so readers look at each of them.
    fn abandon_last(&mut self) {
        let (folder, clock) = (&self.folder, self.catalogue.clock);
        if let Some(slice) = self.catalogue.slices.last_mut() {
            let path = slice.path(folder);
            if let Ok(Some(connection)) = super::schema::open_reader(&path, &self.key) {
                let _ = slice.measure(&connection, folder);
            }
            slice.bytes = slice.size(folder);
            slice.last_us = slice.last_us.max(now_us());
            slice.closed_us = Some(now_us());
            slice.closed_at_us = Some(clock.passed_us);
        }
    }

    /// Closes the slice when it is large or old enough, and removes those beyond the limits.
    fn turn(&mut self) -> Result<(), StoreError> {
        let passed = self.advanced.elapsed();
        self.advanced += passed;
        self.catalogue.clock.advance(u64::try_from(passed.as_micros()).unwrap_or(u64::MAX), now_us());
        let (Some(active), Some(slice)) = (&self.active, self.catalogue.slices.last()) else {
            return Ok(());
        };
        let (spans, bytes) = active.size();
        let age = Duration::from_micros(now_us().saturating_sub(slice.opened_us));
        let options = &self.options;
        if !self.options.retention.choose(&self.catalogue.slices, self.catalogue.clock).is_empty() {
            return self.retain();
        }
        let full = spans >= options.slice_spans || bytes >= options.slice_bytes;
        // Points alone fill a slice too; only an empty one stays open.
        if full || !active.is_empty() && age >= options.slice_age {
            self.close()?;
            self.retain()?;
            self.activate()?;
        }
        Ok(())
    }

    fn close(&mut self) -> Result<(), StoreError> {
        let (Some(active), Some(slice)) = (self.active.take(), self.catalogue.slices.last_mut()) else {
            return Ok(());
        };
        let path = slice.path(&self.folder);
        let connection = active.close()?;
        slice.measure(&connection, &self.folder).map_err(StoreError::sqlite("close", &path))?;
        slice.closed_us = Some(now_us());
        slice.closed_at_us = Some(self.catalogue.clock.passed_us);
        self.catalogue.write(&self.folder)
    }

    fn retain(&mut self) -> Result<(), StoreError> {
        let chosen = self.options.retention.choose(&self.catalogue.slices, self.catalogue.clock);
        if chosen.is_empty() {
            return Ok(());
        }
        let is_chosen = |slice: &SliceEntry| chosen.contains(&slice.number);
        let (gone, kept) = self.catalogue.slices.iter().cloned().partition::<Vec<_>, _>(is_chosen);
        self.catalogue.slices = kept;
        // Out of the catalogue first, so that nobody opens what is about to go.
        self.catalogue.write(&self.folder)?;
        gone.iter().try_for_each(|slice| slice.remove(&self.folder))
    }
}

impl Commit for SliceWriter {
    type Entry = Batch;

    fn commit(&mut self, batches: &mut [Batch]) -> Result<(), StoreError> {
        self.activate()?;
        let Some(active) = &mut self.active else {
            return Err(StoreError::new(StoreErrorKind::Closed, "write", &self.folder, "no slice is open"));
        };
        let points = active.commit(batches, &self.options.tag_values, &self.redactor, &mut self.sealer)?;
        let spans: usize = batches.iter().map(|batch| batch.spans.len()).sum();
        self.stored.spans.fetch_add(spans as u64, Ordering::Relaxed);
        self.stored.points.fetch_add(points, Ordering::Relaxed);
        Ok(())
    }

    fn recover(&mut self) {
        // Closing the connection rolls back what it began.
        self.active = None;
    }

    fn maintain(&mut self) {
        if let Err(error) = self.turn() {
            tracing::warn!(%error, cause = %error.source, "slices could not be turned over");
        }
    }
}

/// Whether a slice cannot be written to, though others can.
fn is_unusable(error: &StoreError) -> bool {
    matches!(error.kind, StoreErrorKind::Damaged | StoreErrorKind::Newer | StoreErrorKind::Sealed)
}

/// Microseconds since 1970.
pub(super) fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}
