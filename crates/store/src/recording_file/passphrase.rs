//! A passphrase, and the key that is made of it.

use std::fmt;

use argon2::{Algorithm, Argon2, Params, Version};

/// Memory and passes of files that are written: the second recommendation of RFC 9106, for machines with little memory.
pub(super) const MEMORY_KIB: u32 = 64 << 10;
pub(super) const PASSES: u32 = 3;

/// The most memory and passes that a file may ask for, and the least memory: a hostile one must not stop the machine.
const MEMORY_BOUNDS: std::ops::RangeInclusive<u32> = 8..=256 << 10;
const PASSES_BOUNDS: std::ops::RangeInclusive<u32> = 1..=16;

/// Shorter ones are found by trying.
const MIN_CHARACTERS: usize = 12;

/// The longest passphrase.
const MAX_BYTES: usize = 1024;

/// A passphrase; never shown.
#[derive(Clone)]
pub struct Passphrase(Box<[u8]>);

/// Why a text is no passphrase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PassphraseError {
    /// It can be guessed.
    #[error("the passphrase has fewer than 12 characters")]
    TooShort,
    /// It is a document.
    #[error("the passphrase is longer than 1024 bytes")]
    TooLong,
}

impl fmt::Debug for Passphrase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Passphrase")
    }
}

impl Passphrase {
    /// A passphrase, without line breaks at its end.
    pub fn new(text: &str) -> Result<Self, PassphraseError> {
        let text = text.trim_end_matches(['\r', '\n']);
        if text.chars().count() < MIN_CHARACTERS {
            return Err(PassphraseError::TooShort);
        }
        if text.len() > MAX_BYTES {
            return Err(PassphraseError::TooLong);
        }
        Ok(Self(text.as_bytes().into()))
    }

    /// The key for a file; none if the file asks for more than is sensible.
    pub(super) fn derive_key(&self, salt: &[u8; 16], memory_kib: u32, passes: u32) -> Option<[u8; 32]> {
        if !MEMORY_BOUNDS.contains(&memory_kib) || !PASSES_BOUNDS.contains(&passes) {
            return None;
        }
        let params = Params::new(memory_kib, passes, 1, Some(32)).ok()?;
        let mut key = [0; 32];
        let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
        argon2.hash_password_into(&self.0, salt, &mut key).ok()?;
        Some(key)
    }
}
