//! Texts that recur in a slice, written once and then referred to by number.

use rusqlite::types::ValueRef;
use rusqlite::{Connection, Statement};

use super::hash::hash;
use super::row::UNNUMBERED;
use crate::numbered_names::{Names, name_cell};
use crate::sealed::{CellOpener, CellSealer};

/// The most numbers for tag values; the rest is for services, names and keys.
const MAX_VALUES: usize = 6000;

/// The longest value that gets a number.
const LONGEST_VALUE: usize = 48;

/// How many values are remembered until they occur again.
const REMEMBERED: usize = 1 << 14;

/// The writer's map from texts to numbers.
#[derive(Debug)]
pub(super) struct Interner {
    names: Names,
    /// Hashes of values that occurred once. A value gets its number when it occurs again, so that ids and
    /// addresses, which never do, use up no numbers.
    once: Box<[u64]>,
}

impl Interner {
    pub(super) fn load(connection: &Connection, opener: &CellOpener) -> rusqlite::Result<Self> {
        Ok(Self { names: Names::load(connection, opener)?, once: vec![0; REMEMBERED].into_boxed_slice() })
    }

    /// The number of a service or span name; 0 for an empty one.
    pub(super) fn name(&mut self, text: &str, insert: &mut Statement<'_>) -> rusqlite::Result<u16> {
        if text.is_empty() { Ok(0) } else { self.key(text, insert) }
    }

    /// The number of a tag's key.
    pub(super) fn key(&mut self, text: &str, insert: &mut Statement<'_>) -> rusqlite::Result<u16> {
        // Names are bounded below what 16 bits can count.
        let number = self.names.number(text, insert)?;
        Ok(number.and_then(|number| u16::try_from(number).ok()).unwrap_or(UNNUMBERED))
    }

    /// The number of a tag's value or an annotation; its text is sealed.
    pub(super) fn value(
        &mut self,
        text: &str,
        insert: &mut Statement<'_>,
        connection: &Connection,
        sealer: &mut CellSealer,
    ) -> rusqlite::Result<u16> {
        if text.len() > LONGEST_VALUE {
            return Ok(UNNUMBERED);
        }
        if let Some(number) = self.names.existing_number(text) {
            return Ok(u16::try_from(number).unwrap_or(UNNUMBERED));
        }
        let hash = hash(text.as_bytes());
        let Some(place) = self.once.get_mut(hash as usize % REMEMBERED) else {
            return Ok(UNNUMBERED);
        };
        if *place == hash && self.names.len() < MAX_VALUES {
            let number = self.names.value_number(text, insert, connection, sealer)?;
            return Ok(number.and_then(|number| u16::try_from(number).ok()).unwrap_or(UNNUMBERED));
        }
        *place = hash;
        Ok(UNNUMBERED)
    }
}

/// The reader's map from numbers to texts.
#[derive(Debug, Default)]
pub(super) struct NameList {
    /// Numbers start at 1 and have no gaps.
    texts: Vec<Box<str>>,
}

impl NameList {
    /// Reads the texts that were added since the last time.
    pub(super) fn refresh(&mut self, connection: &Connection, opener: &CellOpener) -> rusqlite::Result<()> {
        self.refresh_from(connection, opener, "names")
    }

    /// As [`Self::refresh`], from a table of another name.
    pub(super) fn refresh_from(
        &mut self,
        connection: &Connection,
        opener: &CellOpener,
        table: &str,
    ) -> rusqlite::Result<()> {
        let sql = format!("SELECT id, text FROM {table} WHERE id > ?1 ORDER BY id");
        let mut statement = connection.prepare_cached(&sql)?;
        let mut rows = statement.query([self.texts.len() as i64])?;
        while let Some(row) = rows.next()? {
            let text = opener.open_text(connection, name_cell(row.get(0)?), row.get_ref(1)?)?;
            self.texts.push(text.into());
        }
        Ok(())
    }

    /// The text with a number.
    pub(super) fn get(&self, number: u64) -> Result<&str, String> {
        let index = usize::try_from(number).unwrap_or(usize::MAX).wrapping_sub(1);
        self.texts.get(index).map(|text| &**text).ok_or_else(|| format!("name {number} is not there"))
    }

    /// The numbers of all texts that equal a name, ignoring case.
    pub(super) fn numbers(&self, name: &str) -> Vec<u16> {
        let texts = (1..).zip(&self.texts);
        texts.filter(|(_, text)| same(name, text)).map(|(number, _)| number).collect()
    }

    /// The text of a column that holds a name.
    pub(super) fn text(&self, value: ValueRef<'_>) -> Result<Option<String>, String> {
        match value {
            ValueRef::Null => Ok(None),
            ValueRef::Integer(number) => Ok(Some(self.get(number.cast_unsigned())?.to_owned())),
            ValueRef::Text(text) => Ok(Some(String::from_utf8_lossy(text).into_owned())),
            other => Err(format!("a name is of type {}", other.data_type())),
        }
    }
}

/// Whether two names are equal: Zipkin's reporters send lower case, those of OpenTelemetry do not.
pub(super) fn same(asked: &str, found: &str) -> bool {
    asked.eq_ignore_ascii_case(found) || (!found.is_ascii() && asked.to_lowercase() == found.to_lowercase())
}
