//! Names that recur in every span, written once and then only as a number.

use std::collections::HashMap;

use faultscope_model::ServiceName;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Statement};

/// The most names that are numbered; later and longer ones stand in their row as text.
const MOST_NAMES: usize = 8192;

/// The longest name that is numbered; longer ones rarely come twice.
const LONGEST: usize = 64;

/// The numbers of names, as the writer knows them.
#[derive(Debug, Default)]
pub(crate) struct Names {
    numbers: HashMap<Box<str>, i64>,
}

impl Names {
    /// Reads the names a database already has.
    pub(crate) fn load(connection: &Connection) -> rusqlite::Result<Self> {
        let mut names = Self::default();
        let mut statement = connection.prepare("SELECT id, text FROM names")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            names.numbers.insert(row.get::<_, Box<str>>(1)?, row.get(0)?);
        }
        Ok(names)
    }

    /// The number of a name that has one already.
    pub(crate) fn known(&self, text: &str) -> Option<i64> {
        self.numbers.get(text).copied()
    }

    /// How many names have a number.
    pub(crate) fn len(&self) -> usize {
        self.numbers.len()
    }

    /// The number of a name, which is written when it is new; none when it is to stand as text.
    pub(crate) fn number(&mut self, text: &str, insert: &mut Statement<'_>) -> rusqlite::Result<Option<i64>> {
        if let Some(&number) = self.numbers.get(text) {
            return Ok(Some(number));
        }
        if self.numbers.len() >= MOST_NAMES || text.len() > LONGEST {
            return Ok(None);
        }
        let number = self.numbers.len() as i64 + 1;
        insert.execute((number, text))?;
        self.numbers.insert(text.into(), number);
        Ok(Some(number))
    }
}

/// All names of a database, as a reader needs them.
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
            // Methods and errors are names too, but not of services.
            let service = text.parse().ok();
            names.insert(row.get(0)?, (text, service));
        }
        Ok(Self { names })
    }

    /// The service that a column names.
    pub(crate) fn service(&self, value: ValueRef<'_>) -> Result<ServiceName, String> {
        if let ValueRef::Integer(number) = value
            && let Some((_, Some(service))) = self.names.get(&number)
        {
            return Ok(service.clone());
        }
        self.text(value)?.parse().map_err(|error| format!("{error}"))
    }

    /// The text of a column that holds a name.
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
