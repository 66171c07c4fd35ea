//! A log of changed documents, one JSON line each.
//!
//! Written without waiting for the disk: it has to survive the process, not the machine.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Collections, StoreError};

/// A log this much longer than its documents is rewritten.
const SPARE_LINES: u64 = 1000;

/// The open log.
#[derive(Debug)]
pub(crate) struct FileLog {
    path: PathBuf,
    file: File,
    n_lines: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    c: String,
    k: String,
    #[serde(default)]
    v: Option<Value>,
}

#[derive(Serialize)]
struct LineRef<'line> {
    c: &'line str,
    k: &'line str,
    #[serde(skip_serializing_if = "Option::is_none")]
    v: Option<&'line Value>,
}

impl FileLog {
    /// Opens or creates the log and reads what it holds.
    pub(super) fn open(path: &Path) -> Result<(Collections, Self), StoreError> {
        let failed = |error: std::io::Error| StoreError(format!("{}: {error}", path.display()));
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(failed)?;
        }
        let mut collections = Collections::new();
        let mut n_lines = 0;
        let mut torn = false;
        let file = OpenOptions::new().read(true).append(true).create(true).open(path).map_err(failed)?;
        for line in BufReader::new(&file).lines() {
            let line = line.map_err(failed)?;
            n_lines += 1;
            // A process that was killed while writing leaves half a last line; the change was never answered.
            let Ok(line) = serde_json::from_str::<Line>(&line) else {
                torn = true;
                continue;
            };
            let documents = collections.entry(line.c).or_default();
            match line.v {
                Some(value) => documents.insert(line.k, value),
                None => documents.remove(&line.k),
            };
        }
        let mut log = Self { path: path.to_owned(), file, n_lines };
        if torn {
            log.rewrite(&collections)?;
        }
        Ok((collections, log))
    }

    /// How many changes were ever logged, compaction aside.
    pub(super) fn n_lines(&self) -> u64 {
        self.n_lines
    }

    /// Logs a document's new state; `None` if it was removed.
    pub(super) fn append(&mut self, c: &str, k: &str, v: Option<&Value>) -> Result<(), StoreError> {
        let mut line = serde_json::to_vec(&LineRef { c, k, v }).map_err(|error| self.failed(&error))?;
        line.push(b'\n');
        self.file.write_all(&line).map_err(|error| self.failed(&error))?;
        self.n_lines += 1;
        Ok(())
    }

    /// Rewrites the log if most of its lines are history.
    pub(super) fn compact_if_long(&mut self, collections: &Collections) -> Result<(), StoreError> {
        let n_documents: usize = collections.values().map(|documents| documents.len()).sum();
        if self.n_lines > 2 * n_documents as u64 + SPARE_LINES { self.rewrite(collections) } else { Ok(()) }
    }

    fn rewrite(&mut self, collections: &Collections) -> Result<(), StoreError> {
        let fresh = self.path.with_extension("new");
        let write = || -> std::io::Result<(File, u64)> {
            let mut writer = BufWriter::new(File::create(&fresh)?);
            let mut n_lines = 0;
            for (c, documents) in collections {
                for (k, v) in documents {
                    serde_json::to_writer(&mut writer, &LineRef { c, k, v: Some(v) })?;
                    writer.write_all(b"\n")?;
                    n_lines += 1;
                }
            }
            writer.flush()?;
            fs::rename(&fresh, &self.path)?;
            Ok((OpenOptions::new().append(true).open(&self.path)?, n_lines))
        };
        (self.file, self.n_lines) = write().map_err(|error| self.failed(&error))?;
        Ok(())
    }

    fn failed(&self, error: &dyn std::fmt::Display) -> StoreError {
        StoreError(format!("{}: {error}", self.path.display()))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use serde_json::json;

    use super::FileLog;

    #[test]
    fn a_torn_line_is_forgotten_and_history_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let (_, mut log) = FileLog::open(&path).unwrap();
        log.append("orders", "a", Some(&json!({"n": 1}))).unwrap();
        log.append("orders", "b", Some(&json!(null))).unwrap();
        log.append("orders", "a", Some(&json!({"n": 2}))).unwrap();
        log.file.write_all(b"{\"c\":\"orders\",\"k\":\"c\",\"v").unwrap();
        drop(log);
        let (collections, log) = FileLog::open(&path).unwrap();
        assert_eq!(collections["orders"]["a"], json!({"n": 2}));
        assert!(!collections["orders"].contains_key("c"));
        assert_eq!(log.n_lines(), collections["orders"].len() as u64);
    }
}
