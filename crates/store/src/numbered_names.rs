//! Names that recur in every span, written once and then only as a number.

use std::collections::HashMap;

use faultscope_model::ServiceName;
use foldhash::fast::RandomState;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Statement};

use crate::sealed::{Cell, CellOpener, CellSealer, Column};

/// The most names that get a number; later ones are written as text.
const MAX_NAMES: usize = 8192;

/// The longest name that gets a number; longer ones rarely occur twice.
const LONGEST: usize = 64;

/// The writer's map from names to numbers.
#[derive(Debug, Default)]
pub(crate) struct Names {
    /// Looked up for every name and value of every span. The hash is fast, but seeded: names come from outside, and
    /// nobody must be able to make them collide.
    numbers: HashMap<Box<str>, i64, RandomState>,
}

impl Names {
    /// Reads the names that a database already has.
    pub(crate) fn load(connection: &Connection, opener: &CellOpener) -> rusqlite::Result<Self> {
        let mut names = Self::default();
        let mut statement = connection.prepare("SELECT id, text FROM names")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let number = row.get(0)?;
            let text = opener.open_text(connection, name_cell(number), row.get_ref(1)?)?;
            names.numbers.insert(text.into(), number);
        }
        Ok(names)
    }

    /// The number of a name, if it has one.
    pub(crate) fn existing_number(&self, text: &str) -> Option<i64> {
        self.numbers.get(text).copied()
    }

    /// How many names have a number.
    pub(crate) fn len(&self) -> usize {
        self.numbers.len()
    }

    /// The number of a name, assigned if it is new; none if it must be written as text.
    pub(crate) fn number(&mut self, text: &str, insert: &mut Statement<'_>) -> rusqlite::Result<Option<i64>> {
        if let Some(&number) = self.numbers.get(text) {
            return Ok(Some(number));
        }
        let Some(number) = self.free_number(text) else { return Ok(None) };
        insert.execute((number, text))?;
        self.numbers.insert(text.into(), number);
        Ok(Some(number))
    }

    /// As [`Self::number`], for a value: its text is sealed.
    pub(crate) fn value_number(
        &mut self,
        text: &str,
        insert: &mut Statement<'_>,
        connection: &Connection,
        sealer: &mut CellSealer,
    ) -> rusqlite::Result<Option<i64>> {
        if let Some(&number) = self.numbers.get(text) {
            return Ok(Some(number));
        }
        let Some(number) = self.free_number(text) else { return Ok(None) };
        insert.execute((number, sealer.seal_text(connection, name_cell(number), text)?))?;
        self.numbers.insert(text.into(), number);
        Ok(Some(number))
    }

    /// The number of the next name; none if there are too many, or if it is too long.
    fn free_number(&self, text: &str) -> Option<i64> {
        let fits = self.numbers.len() < MAX_NAMES && text.len() <= LONGEST;
        fits.then(|| self.numbers.len() as i64 + 1)
    }
}

/// The place of a name that is a value.
pub(crate) fn name_cell(number: i64) -> Cell {
    Cell { column: Column::Name, row: number }
}

/// The reader's map from numbers to names.
#[derive(Debug, Default)]
pub(crate) struct NameTable {
    names: HashMap<i64, (String, Option<ServiceName>)>,
}

impl NameTable {
    /// Reads all names.
    pub(crate) fn load(connection: &Connection) -> rusqlite::Result<Self> {
        let mut names = HashMap::new();
        let mut statement = connection.prepare_cached("SELECT id, text FROM names")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let text: String = row.get(1)?;
            // Methods and errors are names too, but not valid names of services.
            let service = text.parse().ok();
            names.insert(row.get(0)?, (text, service));
        }
        Ok(Self { names })
    }

    /// The service in a column.
    pub(crate) fn service(&self, value: ValueRef<'_>) -> Result<ServiceName, String> {
        if let ValueRef::Integer(number) = value
            && let Some((_, Some(service))) = self.names.get(&number)
        {
            return Ok(service.clone());
        }
        self.text(value)?.parse().map_err(|error| format!("{error}"))
    }

    /// The text in a column.
    pub(crate) fn text(&self, value: ValueRef<'_>) -> Result<String, String> {
        match value {
            ValueRef::Integer(number) => match self.names.get(&number) {
                Some((text, _)) => Ok(text.clone()),
                None => Err(format!("name {number} is not there")),
            },
            ValueRef::Text(text) => Ok(String::from_utf8_lossy(text).into_owned()),
            other => Err(format!("a name is of type {}", other.data_type())),
        }
    }
}
