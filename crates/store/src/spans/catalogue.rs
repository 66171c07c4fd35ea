//! The list of slices: `catalogue.json`, with the bounds of each.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::schema;
use crate::error::{StoreError, StoreErrorKind};
use crate::files;
use crate::format::{FileStep, read_versioned};
use crate::sealed::ReadKey;

/// The version of `catalogue.json`.
const CATALOGUE_FORMAT: u32 = 1;

/// Migrations from each version to the next; the first one leads from version 1 to 2.
const CATALOGUE_STEPS: &[FileStep] = &[];

const _: () = assert!(CATALOGUE_STEPS.len() + 1 == CATALOGUE_FORMAT as usize, "every format needs its step");

/// The file in the folder of spans.
pub(crate) const CATALOGUE: &str = "catalogue.json";

/// All slices, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Catalogue {
    format: u32,
    /// The number of the next slice; never reused, since readers may still have removed ones open.
    next: u32,
    pub(super) slices: Vec<SliceEntry>,
    /// The clock by which slices age; it follows the time that passes while spans are written, so that a jump of the
    /// system's clock removes nothing.
    #[serde(default)]
    pub(super) clock: RetentionClock,
}

/// How much time has passed, as far as it was observed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct RetentionClock {
    /// What the system's clock showed last, in microseconds since 1970.
    wall_us: u64,
    /// Microseconds that have passed since the first slice.
    pub(super) passed_us: u64,
}

/// The time between two writers that counts at most: it may have been long, or the clock may be wrong.
const MAX_GAP_US: u64 = 24 * 60 * 60 * 1_000_000;

impl RetentionClock {
    /// Continues after a time in which nothing was written.
    pub(super) fn resume(&mut self, wall_us: u64) {
        if self.wall_us > 0 {
            self.passed_us += wall_us.saturating_sub(self.wall_us).min(MAX_GAP_US);
        }
        self.wall_us = wall_us;
    }

    /// Adds time that a steady clock measured.
    pub(super) fn advance(&mut self, passed_us: u64, wall_us: u64) {
        self.passed_us += passed_us;
        self.wall_us = wall_us;
    }
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
    /// When it was closed by the clock of retention; none while it is written, and in older catalogues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) closed_at_us: Option<u64>,
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
                return Ok(Self::empty());
            }
            Err(error) => return Err(error),
        };
        let value = read_versioned(&path, &text, CATALOGUE_STEPS)?;
        let mut catalogue: Self =
            serde_json::from_value(value).map_err(|error| StoreError::damaged(&path, error.to_string()))?;
        catalogue.format = CATALOGUE_FORMAT;
        Ok(catalogue)
    }

    fn empty() -> Self {
        Self { format: CATALOGUE_FORMAT, next: 1, slices: Vec::new(), clock: RetentionClock::default() }
    }

    /// Reads the catalogue of a folder. If it is damaged, the slices are those whose files are there.
    pub(super) fn read_or_list(folder: &Path) -> Result<Self, StoreError> {
        match Self::read(folder) {
            Err(error) if error.is_local() => {
                tracing::warn!(%error, cause = %error.source, "the catalogue cannot be read; slices are found by their names");
                let mut catalogue = Self::empty();
                for number in slice_numbers(folder)? {
                    // Not known to be closed, so each is looked at again.
                    catalogue.slices.push(SliceEntry { number, ..SliceEntry::default() });
                }
                catalogue.slices.sort_by_key(|slice| slice.number);
                Ok(catalogue)
            }
            other => other,
        }
    }

    pub(super) fn write(&self, folder: &Path) -> Result<(), StoreError> {
        let path = folder.join(CATALOGUE);
        let text = serde_json::to_string_pretty(self)
            .map_err(|error| StoreError::new(StoreErrorKind::Other, "write", &path, error.to_string()))?;
        files::write_text(&path, &(text + "\n"))
    }

    /// Adds unlisted slices on disk: a lost catalogue must not lose spans.
    pub(super) fn adopt(&mut self, folder: &Path, now_us: u64, key: &ReadKey) -> Result<(), StoreError> {
        for number in slice_numbers(folder)? {
            if self.slices.iter().any(|slice| slice.number == number) {
                continue;
            }
            let mut slice =
                SliceEntry { number, opened_us: now_us, closed_us: Some(now_us), ..SliceEntry::default() };
            let path = slice.path(folder);
            let measured = schema::open_reader(&path, key).and_then(|connection| match connection {
                Some(connection) => {
                    slice.measure(&connection, folder).map_err(StoreError::sqlite("read", &path)).map(Some)
                }
                None => Ok(None),
            });
            match measured {
                Ok(Some(())) => {
                    // The writer of a lost catalogue may have ended before its last segment.
                    slice.last_us = slice.last_us.max(now_us);
                    tracing::warn!(
                        slice = number,
                        "a slice was missing from the catalogue and has been added"
                    );
                    self.slices.push(slice);
                }
                Ok(None) => {}
                // It stays where it is, for `store repair`.
                Err(error) => super::slice::name_unreadable(&error),
            }
        }
        self.slices.sort_by_key(|slice| slice.number);
        // Also above those that cannot be read, so that no new one gets their name.
        let last =
            slice_numbers(folder)?.into_iter().chain(self.slices.iter().map(|slice| slice.number)).max();
        self.next = last.map_or(1, |number| number.saturating_add(1)).max(self.next);
        Ok(())
    }

    /// Adds a new slice at the end.
    pub(super) fn push(&mut self, opened_us: u64) {
        self.slices.push(SliceEntry { number: self.next, opened_us, ..SliceEntry::default() });
        self.next += 1;
    }
}

/// The numbers of the slices whose files lie in a folder.
pub(super) fn slice_numbers(folder: &Path) -> Result<Vec<u32>, StoreError> {
    let entries = fs::read_dir(folder).map_err(StoreError::io("read", folder))?;
    let number = |entry: fs::DirEntry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        name.strip_suffix(".sqlite").and_then(|number| number.parse::<u32>().ok())
    };
    Ok(entries.flatten().filter_map(number).collect())
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
    /// The numbers of slices to remove: the oldest closed ones beyond the limits. Their age is measured by the clock
    /// of retention.
    pub(super) fn choose(&self, slices: &[SliceEntry], clock: RetentionClock) -> Vec<u32> {
        let mut bytes: u64 = slices.iter().map(|slice| slice.bytes).sum();
        let too_old = |closed_at_us: u64| {
            let age = std::time::Duration::from_micros(clock.passed_us.saturating_sub(closed_at_us));
            self.most_age.is_some_and(|most| age > most)
        };
        let mut chosen = Vec::new();
        for slice in slices {
            if slice.closed_us.is_none() {
                continue;
            }
            let closed_at_us = slice.closed_at_us.unwrap_or(clock.passed_us);
            if self.most_bytes.is_some_and(|most| bytes > most) || too_old(closed_at_us) {
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
        let slice = |number, closed: Option<u64>| SliceEntry {
            number,
            closed_us: closed,
            closed_at_us: closed,
            bytes: 10,
            ..SliceEntry::default()
        };
        let clock = RetentionClock { wall_us: 0, passed_us: 4_000_000 };
        let slices = [slice(1, Some(1_000_000)), slice(2, Some(2_000_000)), slice(3, None)];
        let of = |most_bytes, seconds: Option<u64>| {
            let most_age = seconds.map(Duration::from_secs);
            SpanRetention { most_bytes, most_age }.choose(&slices, clock)
        };
        assert!(of(None, None).is_empty());
        assert!(of(Some(30), Some(3)).is_empty());
        assert_eq!(of(Some(29), None), [1]);
        assert_eq!(of(Some(0), None), [1, 2]);
        assert_eq!(of(None, Some(2)), [1]);
        assert_eq!(of(None, Some(0)), [1, 2]);
    }
    #[test]
    fn a_jump_of_the_clock_makes_nothing_old() {
        let hour = 3_600_000_000;
        let mut clock = RetentionClock::default();
        clock.resume(1_700_000_000_000_000);
        assert_eq!(clock.passed_us, 0, "nothing is known of the time before");
        clock.advance(hour, 1_700_000_000_000_000 + hour);
        // Ten years ahead, a year back: at most a day counts, and none.
        clock.resume(1_700_000_000_000_000 + 24 * 3650 * hour);
        assert_eq!(clock.passed_us, 25 * hour);
        clock.resume(1_690_000_000_000_000);
        assert_eq!(clock.passed_us, 25 * hour);
        clock.advance(hour, 1);
        assert_eq!(clock.passed_us, 26 * hour);
        let older = SliceEntry { number: 1, closed_us: Some(1), ..SliceEntry::default() };
        let week = SpanRetention { most_age: Some(Duration::from_secs(7 * 24 * 3600)), most_bytes: None };
        assert!(week.choose(&[older], clock).is_empty(), "what an older version closed is taken as new");
    }
}
