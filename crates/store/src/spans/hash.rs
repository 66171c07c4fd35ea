//! Hashes that are stored on disk: they must never change within a format.

/// FNV-1a, 64 bits.
pub(super) fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(PRIME))
}

/// The hash of a tag key or an annotation in a segment.
pub(super) fn word_term(text: &str) -> u32 {
    fold(hash(text.as_bytes()))
}

/// The hash of a tag with its value in a segment.
pub(super) fn tag_term(key: &str, value: &str) -> u32 {
    let key = (hash(key.as_bytes()) ^ u64::from(b'=')).wrapping_mul(PRIME);
    fold(value.bytes().fold(key, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME)))
}

const PRIME: u64 = 0x0100_0000_01b3;

fn fold(hash: u64) -> u32 {
    (hash >> 32) as u32 ^ hash as u32
}
