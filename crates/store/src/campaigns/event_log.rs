//! The event log: one JSON object per line, appended and never changed.
//!
//! A killed writer leaves at most one torn line at the end, which readers skip and the next writer
//! terminates.

use std::borrow::Cow;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::facts::{facts_to_format_3, facts_to_format_4};
use crate::error::{StoreError, StoreErrorKind};
use crate::files;
use crate::sealed::{AtRest, ReadKey, open_text, seal_text};
use crate::secrets::{Key, Redactor, UnsealError};

/// The longest line that is read; a longer one is skipped.
const MAX_LINE: u64 = 16 << 20;

/// The event log of a campaign, open for appending.
#[derive(Debug)]
pub struct EventLog {
    path: PathBuf,
    file: Mutex<File>,
    redactor: Option<Redactor>,
    at_rest: AtRest,
}

/// An event with its time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoggedEvent<E> {
    /// Microseconds since 1970.
    pub at_us: u64,
    /// The event.
    pub event: E,
}

/// A part of an event log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Events<E> {
    /// The events, in order.
    pub events: Vec<LoggedEvent<E>>,
    /// Complete lines that could not be parsed: written by another version, or damaged.
    pub skipped: usize,
    /// The offset to continue from; before a line that is not complete yet.
    pub next: u64,
}

impl EventLog {
    /// The name of the log in a campaign's folder.
    pub(crate) const NAME: &'static str = "events.jsonl";

    pub(crate) fn append_to(folder: &Path) -> Result<Self, StoreError> {
        let path = folder.join(Self::NAME);
        let mut options = OpenOptions::new();
        let mut file = options
            .create(true)
            .append(true)
            .read(true)
            .open(&path)
            .map_err(StoreError::io("open", &path))?;
        close_torn_line(&mut file).map_err(StoreError::io("open", &path))?;
        Ok(Self { path, file: Mutex::new(file), redactor: None, at_rest: AtRest::Plain })
    }

    /// Redacts events before they are written.
    pub(crate) fn redacted_by(self, redactor: Redactor) -> Self {
        Self { redactor: Some(redactor), ..self }
    }

    /// Seals events before they are written.
    pub(crate) fn sealed_by(self, at_rest: AtRest) -> Self {
        Self { at_rest, ..self }
    }

    /// Appends an event; when this returns, killing the process does not lose it.
    pub fn append<E: Serialize>(&self, at_us: u64, event: E) -> Result<(), StoreError> {
        let event = serde_json::to_string(&event).map_err(|error| {
            StoreError::new(StoreErrorKind::Invalid, "write", &self.path, error.to_string())
        })?;
        let redacted = self.redactor.as_ref().and_then(|redactor| redactor.json_text(&event));
        let event = redacted.unwrap_or(event);
        let line = match &self.at_rest {
            AtRest::Plain => format!("{{\"at_us\":{at_us},\"event\":{event}}}\n"),
            AtRest::Sealed(key) => {
                let sealed = seal_text(key, Self::NAME, event.as_bytes());
                let sealed = sealed.map_err(StoreError::io("seal", &self.path))?;
                format!("{{\"at_us\":{at_us},\"sealed\":\"{sealed}\"}}\n")
            }
        };
        let line = line.into_bytes();
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        // One write for the whole line, so that it is there or not.
        let written = file.write_all(&line);
        written.map_err(|error| {
            // Part of the line may have been written, as on a full disk; it must not spoil the next one.
            let _ = close_torn_line(&mut file);
            StoreError::io("write", &self.path)(error)
        })
    }
}

/// Reads the events of a campaign's folder from an offset on; `0` reads all.
pub(crate) fn read<E: DeserializeOwned>(
    folder: &Path,
    from: u64,
    key: &ReadKey,
) -> Result<Events<E>, StoreError> {
    let path = folder.join(EventLog::NAME);
    let mut events = Events { events: Vec::new(), skipped: 0, next: from };
    let mut file = match File::open(&path) {
        Ok(file) => file,
        // The campaign was killed before its first event.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(events),
        Err(error) => return Err(StoreError::io("read", &path)(error)),
    };
    file.seek(SeekFrom::Start(from)).map_err(StoreError::io("read", &path))?;
    let mut reader = BufReader::new(file);
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = (&mut reader).take(MAX_LINE).read_until(b'\n', &mut line);
        let mut read = read.map_err(StoreError::io("read", &path))? as u64;
        if !line.ends_with(b"\n") {
            if read < MAX_LINE {
                return Ok(events);
            }
            line.clear();
            match skip_line(&mut reader).map_err(StoreError::io("read", &path))? {
                Some(rest) => read += rest,
                None => return Ok(events),
            }
        }
        events.next += read;
        let line = match open_line(&line, key) {
            Ok(line) => line,
            Err(UnsealError::Damaged) => {
                events.skipped += 1;
                continue;
            }
            Err(error) => return Err(StoreError::unseal(&path, &error)),
        };
        match read_line(&line) {
            Ok(event) => events.events.push(event),
            Err(_) if line.iter().all(u8::is_ascii_whitespace) && !line.is_empty() => {}
            Err(_) => events.skipped += 1,
        }
    }
}

/// A line of the log whose event is sealed.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SealedLine<'l> {
    at_us: u64,
    sealed: &'l str,
}

/// The plain form of a line.
fn open_line<'l>(line: &'l [u8], key: &ReadKey) -> Result<Cow<'l, [u8]>, UnsealError> {
    let Ok(SealedLine { at_us, sealed }) = serde_json::from_slice(line) else {
        return Ok(Cow::Borrowed(line));
    };
    let event = open_text(key, EventLog::NAME, sealed)?;
    let mut plain = format!("{{\"at_us\":{at_us},\"event\":").into_bytes();
    plain.extend(event);
    plain.push(b'}');
    Ok(Cow::Owned(plain))
}

/// Seals the events of a log that an older version wrote. The log is replaced as a whole, so that a kill leaves the
/// old one; lines that are sealed already stay as they are.
pub(super) fn seal_log(folder: &Path, key: &Key) -> Result<(), StoreError> {
    #[derive(Deserialize)]
    struct PlainLine<'l> {
        at_us: u64,
        #[serde(borrow)]
        event: &'l serde_json::value::RawValue,
    }
    let path = folder.join(EventLog::NAME);
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(StoreError::io("read", &path)(error)),
    };
    let mut sealed = Vec::new();
    let mut reader = BufReader::new(file);
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = (&mut reader).take(MAX_LINE).read_until(b'\n', &mut line);
        if read.map_err(StoreError::io("read", &path))? == 0 {
            break;
        }
        if serde_json::from_slice::<SealedLine<'_>>(&line).is_ok() {
            sealed.extend(line.trim_ascii_end());
            sealed.push(b'\n');
        } else if let Ok(PlainLine { at_us, event }) = serde_json::from_slice(&line) {
            let text = seal_text(key, EventLog::NAME, event.get().as_bytes());
            let text = text.map_err(StoreError::io("seal", &path))?;
            sealed.extend(format!("{{\"at_us\":{at_us},\"sealed\":\"{text}\"}}\n").into_bytes());
        }
        // Anything else is a torn line, which no reader reads.
    }
    files::write_bytes(&path, &sealed)
}

/// Reads an event. The log is append-only, so lines of an earlier format are converted as they are read.
fn read_line<E: DeserializeOwned>(line: &[u8]) -> serde_json::Result<LoggedEvent<E>> {
    serde_json::from_slice(line).or_else(|_| {
        let mut older = serde_json::from_slice(line)?;
        facts_to_format_3(&mut older);
        facts_to_format_4(&mut older);
        serde_json::from_value(older)
    })
}

/// Skips the rest of a line; none if it does not end.
fn skip_line(reader: &mut impl BufRead) -> std::io::Result<Option<u64>> {
    let mut skipped = 0;
    loop {
        let buffer = reader.fill_buf()?;
        if buffer.is_empty() {
            return Ok(None);
        }
        let end = buffer.iter().position(|byte| *byte == b'\n');
        let used = end.map_or(buffer.len(), |end| end + 1);
        reader.consume(used);
        skipped += used as u64;
        if end.is_some() {
            return Ok(Some(skipped));
        }
    }
}

fn close_torn_line(file: &mut File) -> std::io::Result<()> {
    let length = file.seek(SeekFrom::End(0))?;
    if length == 0 {
        return Ok(());
    }
    file.seek(SeekFrom::Start(length - 1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    if last != *b"\n" { file.write_all(b"\n") } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    #[serde(tag = "kind", rename_all = "snake_case")]
    enum Event {
        Started { trial: u64 },
        Ended,
    }

    #[test]
    fn torn_and_unknown_lines_are_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(read::<Event>(folder.path(), 0, &ReadKey::default()).unwrap().events, []);
        let log = EventLog::append_to(folder.path()).unwrap();
        log.append(1, Event::Started { trial: 7 }).unwrap();
        log.append(2, serde_json::json!({"kind": "of the future"})).unwrap();
        let file = folder.path().join(EventLog::NAME);
        let mut text = std::fs::read(&file).unwrap();
        let complete = text.len() as u64;
        text.extend(b"{\"at_us\":3,\"ev");
        std::fs::write(&file, &text).unwrap();

        let events = read::<Event>(folder.path(), 0, &ReadKey::default()).unwrap();
        assert_eq!(events.events, [LoggedEvent { at_us: 1, event: Event::Started { trial: 7 } }]);
        assert_eq!((events.skipped, events.next), (1, complete));

        let log = EventLog::append_to(folder.path()).unwrap();
        log.append(4, Event::Ended).unwrap();
        let more = read::<Event>(folder.path(), events.next, &ReadKey::default()).unwrap();
        assert_eq!(more.events, [LoggedEvent { at_us: 4, event: Event::Ended }]);
        assert_eq!(more.skipped, 1);
    }
    #[test]
    fn a_log_is_sealed_line_by_line_and_again_without_harm() {
        let folder = tempfile::tempdir().unwrap();
        let place = crate::secrets::KeyPlace::at(folder.path().join("secrets.key"));
        let key = Key::load_or_make(&place).unwrap();
        let log = EventLog::append_to(folder.path()).unwrap();
        log.append(1, Event::Started { trial: 7_654_321 }).unwrap();
        let log = log.sealed_by(AtRest::Sealed(key.clone()));
        log.append(2, Event::Ended).unwrap();
        let file = folder.path().join(EventLog::NAME);
        std::fs::write(&file, [std::fs::read(&file).unwrap(), b"{\"torn".to_vec()].concat()).unwrap();
        for _ in 0..2 {
            seal_log(folder.path(), &key).unwrap();
            let text = std::fs::read_to_string(&file).unwrap();
            assert!(!text.contains("7654321") && !text.contains("ended"), "{text}");
            let events = read::<Event>(folder.path(), 0, &ReadKey::new(Some(place.clone()))).unwrap();
            assert_eq!(
                events.events[0],
                LoggedEvent { at_us: 1, event: Event::Started { trial: 7_654_321 } }
            );
            assert_eq!((events.events.len(), events.skipped), (2, 0));
        }
        let other = crate::secrets::KeyPlace::at(folder.path().join("other.key"));
        Key::load_or_make(&other).unwrap();
        let refused = read::<Event>(folder.path(), 0, &ReadKey::new(Some(other))).unwrap_err();
        assert_eq!(refused.kind, StoreErrorKind::Sealed);
    }
}
