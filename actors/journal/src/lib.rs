//! What actors need to survive restarts and lost messages, usable without the rest of Faultscope.
//!
//! A [`Journal`] stores the events of every entity, in memory or in a file; [`Persistent`] is a state that
//! is rebuilt from them. [`Deliveries`] remembers messages until they are confirmed, so that they are
//! delivered at least once; [`HandledDeliveries`] lets a receiver handle each of them once.
//!
//! ```
//! use faultscope_journal::{Journal, Persistent};
//! let journal = Journal::new();
//! let add = |sum: &mut i64, event: &i64| *sum += event;
//! let mut account = Persistent::recover(&journal, "account", 0, add).unwrap();
//! account.persist(20).unwrap();
//! account.persist(22).unwrap();
//! drop(account); // a restart
//! let again = Persistent::recover(&journal, "account", 0, add).unwrap();
//! assert_eq!(*again.state(), 42);
//! ```

mod delivery;

pub use delivery::{Deliveries, HandledDeliveries};

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Seek, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Errors of a journal.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The file cannot be read or written.
    #[error("cannot use the journal's file")]
    File(#[from] io::Error),
    /// A line of the file is not an event of this type.
    #[error("line {line} of the journal is not an event")]
    Event {
        /// From 1.
        line: usize,
        /// Why it cannot be parsed.
        source: serde_json::Error,
    },
    /// An event cannot be written as JSON.
    #[error("an event cannot be written as JSON")]
    Write(#[source] serde_json::Error),
}

struct Inner<E> {
    events: HashMap<String, Vec<E>>,
    file: Option<File>,
}

/// The events of all entities, each in order. Clones share them.
pub struct Journal<E>(Arc<Mutex<Inner<E>>>);

impl<E> Clone for Journal<E> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<E> Default for Journal<E> {
    fn default() -> Self {
        Self::new()
    }
}

impl<E> std::fmt::Debug for Journal<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Journal").field("entities", &self.lock().events.len()).finish_non_exhaustive()
    }
}

impl<E> Journal<E> {
    /// In memory: survives restarts of actors, but not of the process.
    pub fn new() -> Self {
        Self(Arc::new(Mutex::new(Inner { events: HashMap::new(), file: None })))
    }

    /// The number of events of an entity.
    pub fn len(&self, entity: &str) -> usize {
        self.lock().events.get(entity).map_or(0, Vec::len)
    }

    /// Whether an entity has no events.
    pub fn is_empty(&self, entity: &str) -> bool {
        self.len(entity) == 0
    }

    /// Calls `each` with every event of an entity, in order.
    pub fn replay(&self, entity: &str, mut each: impl FnMut(&E)) {
        for event in self.lock().events.get(entity).into_iter().flatten() {
            each(event);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner<E>> {
        // A panic cannot leave half an event, so a poisoned lock is fine.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<E: Serialize> Journal<E> {
    /// Appends an event of an entity; it is in the file when this returns.
    pub fn append(&self, entity: &str, event: E) -> Result<(), JournalError> {
        let mut inner = self.lock();
        if let Some(file) = &mut inner.file {
            let mut line = serde_json::to_vec(&(entity, &event)).map_err(JournalError::Write)?;
            line.push(b'\n');
            file.write_all(&line)?;
            file.sync_data()?;
        }
        inner.events.entry(entity.to_owned()).or_default().push(event);
        Ok(())
    }
}

impl<E: Serialize + DeserializeOwned> Journal<E> {
    /// In a file, one event per line; an incomplete last line, left by a crash, is removed.
    pub fn open(path: &Path) -> Result<Self, JournalError> {
        let mut file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
        let mut events: HashMap<String, Vec<E>> = HashMap::new();
        let mut reader = BufReader::new(&mut file);
        let (mut line, mut whole, mut number) = (Vec::new(), 0u64, 0);
        loop {
            line.clear();
            let length = reader.read_until(b'\n', &mut line)?;
            if length == 0 || line.last() != Some(&b'\n') {
                break;
            }
            number += 1;
            let (entity, event): (String, E) = serde_json::from_slice(&line)
                .map_err(|source| JournalError::Event { line: number, source })?;
            events.entry(entity).or_default().push(event);
            whole += length as u64;
        }
        drop(reader);
        file.set_len(whole)?;
        file.seek(io::SeekFrom::End(0))?;
        Ok(Self(Arc::new(Mutex::new(Inner { events, file: Some(file) }))))
    }
}

/// A state that is rebuilt from its events.
#[derive(Debug)]
pub struct Persistent<S, E, F> {
    journal: Journal<E>,
    entity: String,
    state: S,
    apply: F,
}

impl<S, E: Serialize, F: Fn(&mut S, &E)> Persistent<S, E, F> {
    /// Rebuilds the state of an entity from its events, starting with the given one.
    pub fn recover(journal: &Journal<E>, entity: &str, mut state: S, apply: F) -> Result<Self, JournalError> {
        journal.replay(entity, |event| apply(&mut state, event));
        Ok(Self { journal: journal.clone(), entity: entity.to_owned(), state, apply })
    }

    /// Stores an event, then applies it to the state.
    pub fn persist(&mut self, event: E) -> Result<(), JournalError>
    where
        E: Clone,
    {
        self.journal.append(&self.entity, event.clone())?;
        (self.apply)(&mut self.state, &event);
        Ok(())
    }

    /// The current state.
    pub fn state(&self) -> &S {
        &self.state
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_survives_and_half_a_line_does_not_harm() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let journal: Journal<u32> = Journal::open(&path).unwrap();
        for (entity, event) in [("a", 1), ("b", 10), ("a", 2)] {
            journal.append(entity, event).unwrap();
        }
        drop(journal);
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(br#"["a",3"#).unwrap();
        let journal: Journal<u32> = Journal::open(&path).unwrap();
        journal.append("a", 4).unwrap();
        let journal: Journal<u32> = Journal::open(&path).unwrap();
        let mut events = Vec::new();
        journal.replay("a", |event| events.push(*event));
        assert_eq!(events, [1, 2, 4]);
        assert!(journal.is_empty("c"));
    }

    #[test]
    fn nonsense_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        std::fs::write(&path, "[\"a\",1]\nnonsense\n").unwrap();
        let error = Journal::<u32>::open(&path).unwrap_err();
        assert_eq!(error.to_string(), "line 2 of the journal is not an event");
    }
}
