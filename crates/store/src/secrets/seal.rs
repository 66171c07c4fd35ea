//! Encrypted originals: XChaCha20-Poly1305 with the machine's key.
//!
//! ```text
//! 1 | key id: 8 | nonce: 24 | for each secret: place, index, length, bytes | tag: 16
//! ```

use chacha20poly1305::aead::{Aead, KeyInit, Payload as Sealed};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};

use super::Key;

const VERSION: u8 = 1;
const HEAD: usize = 1 + 8 + 24;

/// The part of a span that an original belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Place {
    Path = 0,
    RequestHeader = 1,
    ResponseHeader = 2,
    RequestBody = 3,
    ResponseBody = 4,
    Name = 5,
    Tag = 6,
    Annotation = 7,
}

impl Place {
    fn from_number(number: u8) -> Option<Self> {
        use Place::{Annotation, Name, Path, RequestBody, RequestHeader, ResponseBody, ResponseHeader, Tag};
        let all = [Path, RequestHeader, ResponseHeader, RequestBody, ResponseBody, Name, Tag, Annotation];
        all.get(usize::from(number)).copied()
    }
}

/// A value before it was redacted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Original {
    pub(crate) place: Place,
    /// The index of the header, tag or annotation.
    pub(crate) index: usize,
    pub(crate) bytes: Vec<u8>,
}

/// Why secrets cannot be restored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnsealError {
    /// Sealed on another machine, or by another user.
    #[error(
        "it was sealed with another key: read it on the machine and as the user that recorded it, \
         or copy that user's `~/.local/share/faultscope/secrets.key`"
    )]
    OtherKey,
    /// There is no key that can be used.
    #[error("it is sealed, and the key cannot be used: {0}")]
    NoKey(String),
    /// Changed or cut off since.
    #[error("the sealed data is damaged")]
    Damaged,
}

/// Seals with a key.
pub(super) struct Sealing {
    id: [u8; 8],
    cipher: XChaCha20Poly1305,
    /// Random at the start of a process, then incremented: no nonce is used twice.
    nonce: [u8; 24],
    count: u64,
}

impl std::fmt::Debug for Sealing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sealing").finish_non_exhaustive()
    }
}

impl Sealing {
    pub(super) fn new(key: Key) -> Self {
        let mut nonce = [0; 24];
        if getrandom::fill(&mut nonce).is_err() {
            // Only without a random device, as on ancient kernels; time and process id make it unique.
            let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos();
            nonce[..16].copy_from_slice(&now.to_le_bytes());
            nonce[12..16].copy_from_slice(&std::process::id().to_le_bytes());
        }
        Self { id: key.id, cipher: XChaCha20Poly1305::new(&key.bytes.into()), nonce, count: 0 }
    }

    pub(super) fn seal(&mut self, originals: &[Original]) -> Vec<u8> {
        let mut plain = Vec::new();
        for Original { place, index, bytes } in originals {
            plain.push(*place as u8);
            for number in [*index, bytes.len()] {
                plain.extend(u32::try_from(number).unwrap_or(u32::MAX).to_le_bytes());
            }
            plain.extend(bytes);
        }
        self.count += 1;
        let mut nonce = self.nonce;
        nonce[16..].copy_from_slice(&self.count.to_le_bytes());
        let mut out = vec![VERSION];
        out.extend(self.id);
        out.extend(nonce);
        let sealed = self.cipher.encrypt(&XNonce::from(nonce), Sealed { msg: &plain, aad: &self.id });
        // Encryption fails only for texts of hundreds of gigabytes.
        out.extend(sealed.unwrap_or_default());
        out
    }
}

/// Opens what [`Sealing::seal`] has sealed.
pub(crate) fn unseal(key: &Key, sealed: &[u8]) -> Result<Vec<Original>, UnsealError> {
    let (head, text) = sealed.split_at_checked(HEAD).ok_or(UnsealError::Damaged)?;
    let nonce: [u8; 24] = head[9..].try_into().map_err(|_| UnsealError::Damaged)?;
    if head[0] != VERSION {
        return Err(UnsealError::Damaged);
    }
    if head[1..9] != key.id {
        return Err(UnsealError::OtherKey);
    }
    let cipher = XChaCha20Poly1305::new(&key.bytes.into());
    let plain = cipher
        .decrypt(&XNonce::from(nonce), Sealed { msg: text, aad: &key.id })
        .map_err(|_| UnsealError::Damaged)?;
    let mut rest = plain.as_slice();
    let mut originals = Vec::new();
    while let Some((head, after)) = rest.split_first_chunk::<9>() {
        let number =
            |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]) as usize;
        let place = Place::from_number(head[0]).ok_or(UnsealError::Damaged)?;
        let (bytes, after) = after.split_at_checked(number(5)).ok_or(UnsealError::Damaged)?;
        originals.push(Original { place, index: number(1), bytes: bytes.to_vec() });
        rest = after;
    }
    if rest.is_empty() { Ok(originals) } else { Err(UnsealError::Damaged) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_key_opens_what_it_sealed() {
        let key = |n: u8| Key { id: [n; 8], bytes: [n; 32] };
        let originals = [
            Original { place: Place::RequestHeader, index: 3, bytes: b"Bearer abc".to_vec() },
            Original { place: Place::ResponseBody, index: 0, bytes: Vec::new() },
        ];
        let mut sealing = Sealing::new(key(1));
        let (sealed, again) = (sealing.seal(&originals), sealing.seal(&originals));
        assert_ne!(sealed, again, "the same secret never looks the same");
        assert!(!sealed.windows(3).any(|w| w == b"abc"));
        assert_eq!(unseal(&key(1), &sealed).unwrap(), originals);
        assert_eq!(unseal(&key(2), &sealed), Err(UnsealError::OtherKey));
        // A copied key id does not help.
        assert_eq!(unseal(&Key { id: [1; 8], bytes: [2; 32] }, &sealed), Err(UnsealError::Damaged));
        for cut in 0..sealed.len() {
            assert!(unseal(&key(1), &sealed[..cut]).is_err());
        }
        let mut changed = sealed;
        *changed.last_mut().unwrap() ^= 1;
        assert_eq!(unseal(&key(1), &changed), Err(UnsealError::Damaged));
    }
}
