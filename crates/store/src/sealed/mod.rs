//! Payloads at rest: every value that comes from a system under test is encrypted with the machine's key.
//!
//! | part | what it seals |
//! |---|---|
//! | `cell` | the variable part of a row, once for each row |
//! | `file` | files, and lines of the event log |
//! | `digest` | keyed digests, by which sealed values are searched |
//! | `pack` | compression before sealing |
//!
//! In a database a text is plain and a blob is sealed, so one reader reads both.

mod cell;
mod digest;
mod file;
mod pack;

use std::sync::{Arc, OnceLock};

pub(crate) use cell::{Cell, CellOpener, CellSealer, Column, SEALS_TABLE, is_sealed};
pub(crate) use digest::sip_hash;
pub(crate) use file::{open_bytes, open_text, seal_bytes, seal_text};

use crate::error::StoreError;
use crate::secrets::{Key, KeyPlace, SecretOptions, UnsealError};

/// How payloads are written.
#[derive(Debug, Clone)]
pub(crate) enum AtRest {
    /// Sealed with a key of the machine.
    Sealed(Key),
    /// As they are, because the user chose it.
    Plain,
}

impl AtRest {
    /// Reads the key, or makes one; fails at once if that is not possible.
    pub(crate) fn new(options: &SecretOptions) -> Result<Self, StoreError> {
        if options.plain {
            return Ok(Self::Plain);
        }
        let place = options.key.clone().map_or_else(KeyPlace::user_default, Ok)?;
        Key::load_or_make(&place).map(Self::Sealed)
    }

    /// The key; none if payloads are plain.
    pub(crate) fn key(&self) -> Option<&Key> {
        match self {
            Self::Sealed(key) => Some(key),
            Self::Plain => None,
        }
    }
}

/// The key for reading. It is loaded with the first sealed value, since plain stores need none.
#[derive(Debug, Clone, Default)]
pub(crate) struct ReadKey {
    /// The key file; the user's default if none.
    place: Option<KeyPlace>,
    /// Only success is remembered: a missing key may be put back.
    loaded: Arc<OnceLock<Key>>,
}

impl ReadKey {
    pub(crate) fn new(place: Option<KeyPlace>) -> Self {
        Self { place, loaded: Arc::default() }
    }

    /// Options to write with the same key.
    pub(crate) fn to_options(&self) -> SecretOptions {
        SecretOptions { key: self.place.clone(), ..SecretOptions::default() }
    }

    /// The key.
    pub(crate) fn load(&self) -> Result<&Key, UnsealError> {
        if let Some(key) = self.loaded.get() {
            return Ok(key);
        }
        let unusable = |error: StoreError| UnsealError::NoKey(format!("{error}: {}", error.source));
        let place = self.place.clone().map_or_else(KeyPlace::user_default, Ok).map_err(unusable)?;
        let key = Key::load(&place).map_err(unusable)?;
        let missing = || UnsealError::NoKey(format!("there is no `{}`", place.path().display()));
        let key = key.ok_or_else(missing)?;
        Ok(self.loaded.get_or_init(|| key))
    }

    /// The key with an id.
    pub(crate) fn load_by_id(&self, id: &[u8]) -> Result<&Key, UnsealError> {
        let key = self.load()?;
        if key.id() == id { Ok(key) } else { Err(UnsealError::OtherKey) }
    }
}
