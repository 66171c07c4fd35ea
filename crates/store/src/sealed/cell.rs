//! Sealed cells of a database: one for each row, with a nonce that costs next to nothing.
//!
//! ```text
//! 0x81 | epoch | count | packed text | tag: 16
//! ```
//!
//! An epoch is what one writer writes between opening a database and a failed transaction. Its key is derived from
//! the machine's by a random prefix, which lies in the table `seals`; the nonce is a count. A transaction that was
//! rolled back may have reached the disk already, so its epoch ends with it, and no nonce is used twice.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use rusqlite::types::{ToSqlOutput, Type, ValueRef};
use rusqlite::{Connection, OptionalExtension, ToSql};

use super::pack::{pack_into, unpack};
use super::{AtRest, ReadKey};
use crate::secrets::{Key, UnsealError};
use crate::sqlite::damaged_row;

/// The table of epochs, which every database with sealed cells has.
pub(crate) const SEALS_TABLE: &str =
    "CREATE TABLE seals (id INTEGER PRIMARY KEY, key BLOB NOT NULL, prefix BLOB NOT NULL) STRICT;";

/// The first byte of a sealed cell. The plain data of a span begins with a byte below 64.
const MARK: u8 = 0x81;

/// What a cell holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Column {
    SpanData = 1,
    Name = 2,
    Series = 3,
    Suggestion = 4,
    Call = 5,
    Run = 6,
    Log = 7,
    Report = 8,
}

/// The place of a sealed value. It is authenticated, so that a value cannot be moved to another place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) column: Column,
    /// A number that the row has in a plain column.
    pub(crate) row: i64,
}

impl Cell {
    fn to_bytes(self) -> [u8; 9] {
        let mut bytes = [self.column as u8; 9];
        bytes[1..].copy_from_slice(&self.row.to_le_bytes());
        bytes
    }
}

/// Whether bytes of a column are sealed.
pub(crate) fn is_sealed(bytes: &[u8]) -> bool {
    bytes.first() == Some(&MARK)
}

/// A text on its way into a column that takes both.
#[derive(Debug)]
pub(crate) enum Stored<'t> {
    Plain(&'t str),
    Sealed(&'t [u8]),
}

impl ToSql for Stored<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Plain(text) => ValueRef::Text(text.as_bytes()),
            Self::Sealed(bytes) => ValueRef::Blob(bytes),
        }))
    }
}

/// Seals the cells that one writer writes to one database.
pub(crate) struct CellSealer {
    key: Option<Key>,
    epoch: Option<Epoch>,
    buffer: Vec<u8>,
}

struct Epoch {
    id: u64,
    cipher: LessSafeKey,
    count: u64,
}

impl fmt::Debug for CellSealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CellSealer").field("is_plain", &self.is_plain()).finish_non_exhaustive()
    }
}

impl CellSealer {
    pub(crate) fn new(at_rest: &AtRest) -> Self {
        Self { key: at_rest.key().cloned(), epoch: None, buffer: Vec::new() }
    }

    /// Whether values are written as they are.
    pub(crate) fn is_plain(&self) -> bool {
        self.key.is_none()
    }

    /// Seals a value within a transaction; none if values are plain.
    #[inline]
    pub(crate) fn seal(
        &mut self,
        connection: &Connection,
        cell: Cell,
        plain: &[u8],
    ) -> rusqlite::Result<Option<&[u8]>> {
        let Some(key) = &self.key else { return Ok(None) };
        let epoch = match &mut self.epoch {
            Some(epoch) => epoch,
            none => none.insert(Epoch::begin(connection, key)?),
        };
        let out = &mut self.buffer;
        out.clear();
        out.push(MARK);
        put(out, epoch.id);
        put(out, epoch.count);
        let start = out.len();
        pack_into(out, plain);
        let nonce = nonce(epoch.count);
        epoch.count += 1;
        let place = Aad::from(cell.to_bytes());
        let tag = epoch.cipher.seal_in_place_separate_tag(nonce, place, &mut out[start..]);
        let tag = tag.map_err(|_| damaged_row("a value is too long to be sealed".to_owned()))?;
        out.extend_from_slice(tag.as_ref());
        Ok(Some(out))
    }

    /// As [`Self::seal`], for a column that takes both.
    pub(crate) fn seal_text<'t>(
        &'t mut self,
        connection: &Connection,
        cell: Cell,
        text: &'t str,
    ) -> rusqlite::Result<Stored<'t>> {
        let sealed = self.seal(connection, cell, text.as_bytes())?;
        Ok(sealed.map_or(Stored::Plain(text), Stored::Sealed))
    }

    /// Ends the epoch after a transaction that was rolled back.
    pub(crate) fn end_epoch(&mut self) {
        self.epoch = None;
    }
}

impl Epoch {
    fn begin(connection: &Connection, key: &Key) -> rusqlite::Result<Self> {
        let mut prefix = [0; 16];
        getrandom::fill(&mut prefix)
            .map_err(|error| rusqlite::Error::ToSqlConversionFailure(std::io::Error::other(error).into()))?;
        connection
            .prepare_cached("INSERT INTO seals VALUES (NULL, ?1, ?2)")?
            .execute((&key.id()[..], &prefix[..]))?;
        let id = connection.last_insert_rowid().cast_unsigned();
        Ok(Self { id, cipher: epoch_cipher(key, &prefix), count: 0 })
    }
}

/// Cells are short and many, so this one is ring's, which is written in assembly.
fn epoch_cipher(key: &Key, prefix: &[u8; 16]) -> LessSafeKey {
    let mut label = *b"----------------cells v1";
    label[..16].copy_from_slice(prefix);
    let key = UnboundKey::new(&CHACHA20_POLY1305, &key.derive(label));
    LessSafeKey::new(key.unwrap_or_else(|_| unreachable!("32 bytes are a key")))
}

fn nonce(count: u64) -> Nonce {
    let mut nonce = [0; NONCE_LEN];
    nonce[4..].copy_from_slice(&count.to_le_bytes());
    Nonce::assume_unique_for_key(nonce)
}

/// Opens the cells of one database.
#[derive(Clone)]
pub(crate) struct CellOpener {
    key: ReadKey,
    /// Of each epoch that was met so far.
    ciphers: Arc<Mutex<HashMap<u64, LessSafeKey>>>,
}

impl fmt::Debug for CellOpener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CellOpener").finish_non_exhaustive()
    }
}

impl CellOpener {
    pub(crate) fn new(key: ReadKey) -> Self {
        Self { key, ciphers: Arc::default() }
    }

    /// The text of a sealed cell.
    pub(crate) fn open(
        &self,
        connection: &Connection,
        cell: Cell,
        sealed: &[u8],
    ) -> rusqlite::Result<Vec<u8>> {
        let damaged = || unseal_error(UnsealError::Damaged);
        let mut rest = sealed.split_first().filter(|(mark, _)| **mark == MARK).ok_or_else(damaged)?.1;
        let epoch = take(&mut rest).ok_or_else(damaged)?;
        let count = take(&mut rest).ok_or_else(damaged)?;
        let mut plain = rest.to_vec();
        let mut ciphers = self.ciphers.lock().unwrap_or_else(PoisonError::into_inner);
        let cipher = match ciphers.entry(epoch) {
            std::collections::hash_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::hash_map::Entry::Vacant(new) => new.insert(self.load_epoch(connection, epoch)?),
        };
        let opened = cipher.open_in_place(nonce(count), Aad::from(cell.to_bytes()), &mut plain);
        let length = opened.map_err(|_| damaged())?.len();
        drop(ciphers);
        plain.truncate(length);
        unpack(plain).map_err(unseal_error)
    }

    /// The text of a column that takes both.
    pub(crate) fn open_text(
        &self,
        connection: &Connection,
        cell: Cell,
        value: ValueRef<'_>,
    ) -> rusqlite::Result<String> {
        let bytes = match value {
            ValueRef::Blob(sealed) => self.open(connection, cell, sealed)?,
            other => other.as_bytes()?.to_vec(),
        };
        String::from_utf8(bytes).map_err(|_| damaged_row("a text is not valid".to_owned()))
    }

    fn load_epoch(&self, connection: &Connection, epoch: u64) -> rusqlite::Result<LessSafeKey> {
        let sql = "SELECT key, prefix FROM seals WHERE id = ?1";
        let found = connection
            .prepare_cached(sql)?
            .query_row([epoch.cast_signed()], |row| {
                Ok((row.get::<_, Vec<u8>>(0)?, row.get::<_, Vec<u8>>(1)?))
            })
            .optional()?;
        let (id, prefix) = found.ok_or_else(|| unseal_error(UnsealError::Damaged))?;
        let prefix: [u8; 16] = prefix.try_into().map_err(|_| unseal_error(UnsealError::Damaged))?;
        let key = self.key.load_by_id(&id).map_err(unseal_error)?;
        Ok(epoch_cipher(key, &prefix))
    }
}

/// An error that keeps its type on the way through the database.
pub(crate) fn unseal_error(error: UnsealError) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(0, Type::Blob, Box::new(error))
}

/// Appends a number, seven bits a byte, the lowest first.
fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secrets::{KeyPlace, SecretOptions};

    fn database() -> Connection {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch(SEALS_TABLE).unwrap();
        connection
    }

    fn make_key(folder: &std::path::Path, name: &str) -> (AtRest, ReadKey) {
        let place = KeyPlace::at(folder.join(name));
        let options = SecretOptions { key: Some(place.clone()), ..SecretOptions::default() };
        (AtRest::new(&options).unwrap(), ReadKey::new(Some(place)))
    }

    fn kind_of(error: &rusqlite::Error) -> Option<&UnsealError> {
        match error {
            rusqlite::Error::FromSqlConversionFailure(_, _, cause) => cause.downcast_ref(),
            _ => None,
        }
    }

    #[test]
    fn a_cell_is_opened_in_its_place_with_its_key_only() {
        let folder = tempfile::tempdir().unwrap();
        let (at_rest, reading) = make_key(folder.path(), "one.key");
        let (_, other) = make_key(folder.path(), "two.key");
        let connection = database();
        let mut sealer = CellSealer::new(&at_rest);
        let cell = Cell { column: Column::SpanData, row: 7 };
        let long = "long ".repeat(1000);
        let opener = CellOpener::new(reading);
        for text in ["", "a value", &long] {
            let sealed = sealer.seal(&connection, cell, text.as_bytes()).unwrap().unwrap().to_vec();
            let again = sealer.seal(&connection, cell, text.as_bytes()).unwrap().unwrap().to_vec();
            assert_ne!(sealed, again, "the same value never looks the same");
            assert!(is_sealed(&sealed) && !sealed.windows(5).any(|w| w == b"value"));
            assert_eq!(opener.open(&connection, cell, &sealed).unwrap(), text.as_bytes());
            let moved = Cell { row: 8, ..cell };
            let error = opener.open(&connection, moved, &sealed).unwrap_err();
            assert_eq!(kind_of(&error), Some(&UnsealError::Damaged));
            let error = CellOpener::new(other.clone()).open(&connection, cell, &sealed).unwrap_err();
            assert_eq!(kind_of(&error), Some(&UnsealError::OtherKey));
            for cut in 0..sealed.len().min(40) {
                assert!(opener.open(&connection, cell, &sealed[..cut]).is_err());
            }
        }
        let sealed = sealer.seal(&connection, cell, b"a value").unwrap().unwrap();
        assert!(sealed.len() <= 7 + 1 + 3 + 16, "{} bytes", sealed.len());
    }

    #[test]
    fn no_nonce_is_used_twice_after_a_transaction_that_failed() {
        let folder = tempfile::tempdir().unwrap();
        let (at_rest, reading) = make_key(folder.path(), "one.key");
        let connection = database();
        let mut sealer = CellSealer::new(&at_rest);
        let cell = Cell { column: Column::Log, row: 1 };
        connection.execute_batch("BEGIN").unwrap();
        let lost = sealer.seal(&connection, cell, b"a value").unwrap().unwrap().to_vec();
        connection.execute_batch("ROLLBACK").unwrap();
        sealer.end_epoch();
        let kept = sealer.seal(&connection, cell, b"a value").unwrap().unwrap().to_vec();
        assert_eq!((lost[1], lost[2]), (kept[1], kept[2]), "epoch and count are those of the lost one");
        assert_ne!(lost, kept, "but the key is not");
        assert_eq!(CellOpener::new(reading).open(&connection, cell, &kept).unwrap(), b"a value");
    }

    #[test]
    fn plain_texts_stay_texts() {
        let connection = database();
        let mut sealer = CellSealer::new(&AtRest::Plain);
        let cell = Cell { column: Column::Run, row: 1 };
        assert!(matches!(sealer.seal_text(&connection, cell, "x"), Ok(Stored::Plain("x"))));
        let opener = CellOpener::new(ReadKey::default());
        assert_eq!(opener.open_text(&connection, cell, ValueRef::Text(b"x")).unwrap(), "x");
    }
}
