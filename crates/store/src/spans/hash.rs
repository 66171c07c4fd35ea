//! Hashes that are stored on disk: they must never change within a format.

use crate::sealed::sip_hash;
use crate::secrets::Key;

/// FNV-1a, 64 bits.
pub(super) fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(PRIME))
}

/// What the terms of a slice are hashed with.
#[derive(Debug, Clone, Copy)]
pub(super) enum Terms {
    /// Values are plain, and so is the hash.
    Plain,
    /// Values are sealed: nobody without the key can find out which one a term stands for.
    Keyed(u64, u64),
}

impl Terms {
    /// The hash for what is sealed with a key, or with none.
    pub(super) fn new(key: Option<&Key>) -> Self {
        let Some(key) = key else { return Self::Plain };
        let derived = key.derive(*b"faultscope search terms\0");
        let half = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&derived[at..at + 8]);
            u64::from_le_bytes(bytes)
        };
        Self::Keyed(half(0), half(8))
    }

    /// The term of a tag key or an annotation.
    pub(super) fn word(&self, text: &str) -> u32 {
        fold(self.long_word(text))
    }

    /// The terms of a tag: of its key alone, and of its key and value.
    pub(super) fn tag(&self, key: &str, value: &str) -> [u32; 2] {
        let word = self.long_word(key);
        let both = match self {
            Self::Plain => {
                let key = (word ^ u64::from(b'=')).wrapping_mul(PRIME);
                value.bytes().fold(key, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME))
            }
            Self::Keyed(a, b) => sip_hash((*a, *b), Some(word), value.as_bytes()),
        };
        [fold(word), fold(both)]
    }

    /// What stands for a sealed value of a tag in the list of suggestions; none if values are plain.
    pub(super) fn suggestion(&self, key: &str, value: &str) -> Option<String> {
        match self {
            Self::Plain => None,
            Self::Keyed(a, b) => {
                let word = self.long_word(key);
                Some(format!("{:016x}", sip_hash((*a, *b), Some(word), value.as_bytes())))
            }
        }
    }

    fn long_word(&self, text: &str) -> u64 {
        match self {
            Self::Plain => hash(text.as_bytes()),
            Self::Keyed(a, b) => sip_hash((*a, *b), None, text.as_bytes()),
        }
    }
}

const PRIME: u64 = 0x0100_0000_01b3;

fn fold(hash: u64) -> u32 {
    (hash >> 32) as u32 ^ hash as u32
}
