//! The one writer of spans: a thread that takes batches from the queue, commits them as a group, answers
//! those who wait, closes slices that are large enough and removes old ones.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::SpanStoreOptions;
use super::active::Active;
use super::catalogue::{Catalogue, SliceEntry};
use super::queue::{Batch, Queue};
use crate::error::{StoreError, StoreErrorKind};
use crate::secrets::{Redactor, Sealer};

/// The writer and what it writes to.
pub(super) struct Writer {
    folder: PathBuf,
    options: SpanStoreOptions,
    catalogue: Catalogue,
    /// None after a slice could not be opened; the next batch tries again.
    active: Option<Active>,
    redactor: Redactor,
    sealer: Sealer,
}

impl Writer {
    /// Takes over a folder whose lock is held.
    pub(super) fn open(folder: PathBuf, options: SpanStoreOptions) -> Result<Self, StoreError> {
        let redactor = Redactor::new(&options.secrets.rules);
        let sealer = Sealer::new(&options.secrets)?;
        let mut catalogue = Catalogue::read(&folder)?;
        catalogue.adopt(&folder, now_us())?;
        let mut writer = Self { folder, options, catalogue, active: None, redactor, sealer };
        writer.activate()?;
        writer.retain()?;
        Ok(writer)
    }

    /// Writes until the queue is closed and empty.
    pub(super) fn run(mut self, queue: &Arc<Queue>) {
        let mut batches = Vec::new();
        while queue.take(&mut batches) {
            let spans = batches.iter().map(|batch| batch.spans.len() as u64).sum();
            let points = batches.iter().map(|batch| batch.points.len() as u64).sum();
            let written = if batches.is_empty() { Ok(()) } else { self.commit(&batches) };
            let counters = &queue.counters;
            match &written {
                Ok(()) => {
                    counters.stored.fetch_add(spans, Ordering::Relaxed);
                    counters.points.fetch_add(points, Ordering::Relaxed);
                    counters.commits.fetch_add(u64::from(!batches.is_empty()), Ordering::Relaxed);
                }
                Err(error) => {
                    tracing::warn!(%error, cause = %error.source, spans, "spans could not be stored");
                    counters.lost.fetch_add(spans, Ordering::Relaxed);
                }
            }
            for batch in batches.drain(..) {
                let answer = match &written {
                    Ok(()) => Ok(()),
                    Err(error) => Err(error.again()),
                };
                // Whoever waited may have gone, which is their business.
                let _ = batch.answer.send(answer);
            }
            // After the answers: who waits for spans need not wait for the next slice.
            if let Err(error) = self.turn() {
                tracing::warn!(%error, cause = %error.source, "slices could not be turned over");
            }
        }
    }

    fn commit(&mut self, batches: &[Batch]) -> Result<(), StoreError> {
        self.activate()?;
        match &mut self.active {
            Some(active) => {
                active.commit(batches, &self.options.tag_values, &self.redactor, &mut self.sealer)
            }
            None => Err(StoreError::new(StoreErrorKind::Closed, "write", &self.folder, "no slice is open")),
        }
    }

    /// Opens the slice to be written: the last one if it was not closed, or a new one.
    fn activate(&mut self) -> Result<(), StoreError> {
        if self.active.is_some() {
            return Ok(());
        }
        if self.catalogue.slices.last().is_none_or(|slice| slice.closed_us.is_some()) {
            self.catalogue.push(now_us());
            // Listed before it is made, so that a reader never misses spans that are acknowledged.
            if let Err(error) = self.catalogue.write(&self.folder) {
                self.catalogue.slices.pop();
                return Err(error);
            }
        }
        if let Some(slice) = self.catalogue.slices.last() {
            self.active = Some(Active::open(slice.path(&self.folder))?);
        }
        Ok(())
    }

    /// Closes the slice when it is large or old enough, and removes those beyond the limits.
    fn turn(&mut self) -> Result<(), StoreError> {
        let (Some(active), Some(slice)) = (&self.active, self.catalogue.slices.last()) else {
            return Ok(());
        };
        let (spans, bytes) = active.size();
        let age = Duration::from_micros(now_us().saturating_sub(slice.opened_us));
        let options = &self.options;
        if !self.options.retention.choose(&self.catalogue.slices, now_us()).is_empty() {
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
        self.catalogue.write(&self.folder)
    }

    fn retain(&mut self) -> Result<(), StoreError> {
        let chosen = self.options.retention.choose(&self.catalogue.slices, now_us());
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

/// Microseconds since 1970.
pub(super) fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}
