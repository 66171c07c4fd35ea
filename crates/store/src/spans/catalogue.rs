//! The list of slices: `catalogue.json`, with the bounds of each.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::schema;
use crate::error::{StoreError, StoreErrorKind};
use crate::files;
use crate::format::{FileStep, read_versioned};

/// The version of `catalogue.json`.
const CATALOGUE_FORMAT: u32 = 1;

/// Migrations from each version to the next; the first one leads from version 1 to 2.
const CATALOGUE_STEPS: &[FileStep] = &[];

const _: () = assert!(CATALOGUE_STEPS.len() + 1 == CATALOGUE_FORMAT as usize, "every format needs its step");

/// The file in the folder of spans.
pub(super) const CATALOGUE: &str = "catalogue.json";

/// All slices, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Catalogue {
    format: u32,
    /// The number of the next slice; never reused, since readers may still have removed ones open.
    next: u32,
    pub(super) slices: Vec<SliceEntry>,
}

/// One slice. Its bounds and counts are known once it is closed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SliceEntry {
    /// From 1.
    pub number: u32,
    /// Arrival of its first span in microseconds since 1970.
    pub opened_us: u64,
    /// Arrival of its last span; none while it is written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed_us: Option<u64>,
    /// Number of spans.
    #[serde(default)]
    pub spans: u64,
    /// Size of its file.
    #[serde(default)]
    pub bytes: u64,
    /// The start of its earliest span; 0 if some span has none.
    #[serde(default)]
    pub first_us: u64,
    /// The start of its latest span.
    #[serde(default)]
    pub last_us: u64,
}

impl SliceEntry {
    /// The path of its file.
    pub(super) fn path(&self, folder: &Path) -> PathBuf {
        folder.join(format!("{:06}.sqlite", self.number))
    }

    /// Its current size, including the files beside its database.
    pub(super) fn size(&self, folder: &Path) -> u64 {
        let path = self.path(folder);
        let size = |path: &Path| fs::metadata(path).map_or(0, |metadata| metadata.len());
        size(&path) + size(&path.with_extension("sqlite-wal"))
    }

    /// Deletes its files.
    pub(super) fn remove(&self, folder: &Path) -> Result<(), StoreError> {
        let path = self.path(folder);
        for extension in ["sqlite", "sqlite-wal", "sqlite-shm"] {
            let path = path.with_extension(extension);
            match fs::remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(StoreError::io("remove", &path)(error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Reads counts and bounds from the slice itself.
    pub(super) fn measure(
        &mut self,
        connection: &rusqlite::Connection,
        folder: &Path,
    ) -> rusqlite::Result<()> {
        let sql = "SELECT coalesce(min(min_us), 0), coalesce(max(max_us), 0) FROM segments";
        let (first, last) = connection.query_row(sql, [], |row| Ok((row.get::<_, i64>(0)?, row.get(1)?)))?;
        let spans: i64 =
            connection.query_row("SELECT coalesce(max(id), 0) FROM spans", [], |row| row.get(0))?;
        (self.first_us, self.last_us) = (first.cast_unsigned(), i64::cast_unsigned(last));
        self.spans = spans.cast_unsigned();
        self.bytes = self.size(folder);
        Ok(())
    }
}

impl Catalogue {
    /// Reads the catalogue of a folder; empty if there is none.
    pub(super) fn read(folder: &Path) -> Result<Self, StoreError> {
        let path = folder.join(CATALOGUE);
        let text = match files::read_text(&path) {
            Ok(text) => text,
            Err(error) if error.kind == StoreErrorKind::NotFound => {
                return Ok(Self { format: CATALOGUE_FORMAT, next: 1, slices: Vec::new() });
            }
            Err(error) => return Err(error),
        };
        let value = read_versioned(&path, &text, CATALOGUE_STEPS)?;
        let mut catalogue: Self =
            serde_json::from_value(value).map_err(|error| StoreError::damaged(&path, error.to_string()))?;
        catalogue.format = CATALOGUE_FORMAT;
        Ok(catalogue)
    }

    pub(super) fn write(&self, folder: &Path) -> Result<(), StoreError> {
        let path = folder.join(CATALOGUE);
        let text = serde_json::to_string_pretty(self)
            .map_err(|error| StoreError::new(StoreErrorKind::Other, "write", &path, error.to_string()))?;
        files::write_text(&path, &(text + "\n"))
    }

    /// Adds unlisted slices on disk: a lost catalogue must not lose spans.
    pub(super) fn adopt(&mut self, folder: &Path, now_us: u64) -> Result<(), StoreError> {
        let entries = fs::read_dir(folder).map_err(StoreError::io("read", folder))?;
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let number = name.strip_suffix(".sqlite").and_then(|number| number.parse::<u32>().ok());
            let Some(number) = number.filter(|number| self.slices.iter().all(|s| s.number != *number)) else {
                continue;
            };
            let mut slice =
                SliceEntry { number, opened_us: now_us, closed_us: Some(now_us), ..SliceEntry::default() };
            let path = slice.path(folder);
            match schema::open_reader(&path) {
                Ok(Some(connection)) => {
                    slice.measure(&connection, folder).map_err(StoreError::sqlite("read", &path))?;
                    // The writer of a lost catalogue may have ended before its last segment.
                    slice.last_us = slice.last_us.max(now_us);
                    tracing::warn!(
                        slice = number,
                        "a slice was missing from the catalogue and has been added"
                    );
                    self.slices.push(slice);
                }
                Ok(None) => {}
                Err(error) => tracing::warn!(%error, cause = %error.source, "a slice cannot be read"),
            }
        }
        self.slices.sort_by_key(|slice| slice.number);
        self.next = self.slices.last().map_or(1, |slice| slice.number + 1).max(self.next);
        Ok(())
    }

    /// Adds a new slice at the end.
    pub(super) fn push(&mut self, opened_us: u64) {
        self.slices.push(SliceEntry { number: self.next, opened_us, ..SliceEntry::default() });
        self.next += 1;
    }
}

/// Limits of what is kept; none means unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SpanRetention {
    /// The most bytes of all slices together.
    pub most_bytes: Option<u64>,
    /// How long after a slice was closed it is removed.
    pub most_age: Option<std::time::Duration>,
}

impl SpanRetention {
    /// The numbers of slices to remove: the oldest closed ones beyond the limits.
    pub(super) fn choose(&self, slices: &[SliceEntry], now_us: u64) -> Vec<u32> {
        let mut bytes: u64 = slices.iter().map(|slice| slice.bytes).sum();
        let too_old = |closed_us: u64| {
            let age = std::time::Duration::from_micros(now_us.saturating_sub(closed_us));
            self.most_age.is_some_and(|most| age > most)
        };
        let mut chosen = Vec::new();
        for slice in slices {
            let Some(closed_us) = slice.closed_us else { continue };
            if self.most_bytes.is_some_and(|most| bytes > most) || too_old(closed_us) {
                bytes -= slice.bytes;
                chosen.push(slice.number);
            }
        }
        chosen
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_oldest_closed_slices_go_first_and_the_active_one_never() {
        let slice = |number, closed_us| SliceEntry { number, closed_us, bytes: 10, ..SliceEntry::default() };
        let slices = [slice(1, Some(1_000_000)), slice(2, Some(2_000_000)), slice(3, None)];
        let of = |most_bytes, seconds: Option<u64>| {
            let most_age = seconds.map(Duration::from_secs);
            SpanRetention { most_bytes, most_age }.choose(&slices, 4_000_000)
        };
        assert!(of(None, None).is_empty());
        assert!(of(Some(30), Some(3)).is_empty());
        assert_eq!(of(Some(29), None), [1]);
        assert_eq!(of(Some(0), None), [1, 2]);
        assert_eq!(of(None, Some(2)), [1]);
        assert_eq!(of(None, Some(0)), [1, 2]);
    }
}
