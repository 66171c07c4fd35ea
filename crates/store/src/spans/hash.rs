//! Hashes that stand on disk: they may never change within a format.

/// FNV-1a, 64 bits.
pub(super) fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(PRIME))
}

/// What a segment remembers of a tag's key, or of an annotation.
pub(super) fn word_term(text: &str) -> u32 {
    fold(hash(text.as_bytes()))
}

/// What a segment remembers of a tag with its value.
pub(super) fn tag_term(key: &str, value: &str) -> u32 {
    let key = (hash(key.as_bytes()) ^ u64::from(b'=')).wrapping_mul(PRIME);
    fold(value.bytes().fold(key, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME)))
}

const PRIME: u64 = 0x0100_0000_01b3;

fn fold(hash: u64) -> u32 {
    (hash >> 32) as u32 ^ hash as u32
}
