//! Sealed files and lines: XChaCha20-Poly1305 with a random nonce for each.
//!
//! ```text
//! 2 | key id: 8 | nonce: 24 | packed text | tag: 16
//! ```

use std::io;

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use chacha20poly1305::aead::{AeadInPlace, KeyInit};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};

use super::ReadKey;
use super::pack::{pack_into, unpack};
use crate::secrets::{Key, UnsealError};

/// Sealed secrets of a span have version 1.
const VERSION: u8 = 2;
const HEAD: usize = 1 + 8 + 24;
const TAG: usize = 16;

/// Seals bytes. The label says what they are, so that one file cannot stand for another.
pub(crate) fn seal_bytes(key: &Key, label: &str, plain: &[u8]) -> io::Result<Vec<u8>> {
    let mut nonce = [0; 24];
    getrandom::fill(&mut nonce).map_err(io::Error::other)?;
    let mut out = Vec::with_capacity(HEAD + plain.len() + TAG + 1);
    out.push(VERSION);
    out.extend_from_slice(key.id());
    out.extend_from_slice(&nonce);
    pack_into(&mut out, plain);
    let cipher = XChaCha20Poly1305::new(&(*key.bytes()).into());
    let tag = cipher.encrypt_in_place_detached(&XNonce::from(nonce), label.as_bytes(), &mut out[HEAD..]);
    let tag = tag.map_err(|_| io::Error::other("too long to be sealed"))?;
    out.extend_from_slice(&tag);
    Ok(out)
}

/// Opens what [`seal_bytes`] has sealed.
pub(crate) fn open_bytes(key: &ReadKey, label: &str, sealed: &[u8]) -> Result<Vec<u8>, UnsealError> {
    let (head, rest) = sealed.split_at_checked(HEAD).ok_or(UnsealError::Damaged)?;
    if head[0] != VERSION {
        return Err(UnsealError::Damaged);
    }
    let key = key.load_by_id(&head[1..9])?;
    let nonce: [u8; 24] = head[9..].try_into().map_err(|_| UnsealError::Damaged)?;
    let (text, tag) = rest.split_last_chunk::<TAG>().ok_or(UnsealError::Damaged)?;
    let mut plain = text.to_vec();
    let cipher = XChaCha20Poly1305::new(&(*key.bytes()).into());
    let opened =
        cipher.decrypt_in_place_detached(&XNonce::from(nonce), label.as_bytes(), &mut plain, &(*tag).into());
    opened.map_err(|_| UnsealError::Damaged)?;
    unpack(plain)
}

/// As [`seal_bytes`], in letters that stand in JSON.
pub(crate) fn seal_text(key: &Key, label: &str, plain: &[u8]) -> io::Result<String> {
    seal_bytes(key, label, plain).map(|sealed| STANDARD_NO_PAD.encode(sealed))
}

/// Opens what [`seal_text`] has sealed.
pub(crate) fn open_text(key: &ReadKey, label: &str, sealed: &str) -> Result<Vec<u8>, UnsealError> {
    let sealed = STANDARD_NO_PAD.decode(sealed).map_err(|_| UnsealError::Damaged)?;
    open_bytes(key, label, &sealed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secrets::KeyPlace;

    #[test]
    fn a_file_is_opened_with_its_key_and_label_only() {
        let folder = tempfile::tempdir().unwrap();
        let make = |name: &str| {
            let place = KeyPlace::at(folder.path().join(name));
            (Key::load_or_make(&place).unwrap(), ReadKey::new(Some(place)))
        };
        let ((key, reading), (_, other)) = (make("one.key"), make("two.key"));
        let sealed = seal_text(&key, "report", b"a text").unwrap();
        assert_ne!(sealed, seal_text(&key, "report", b"a text").unwrap());
        assert_eq!(open_text(&reading, "report", &sealed).unwrap(), b"a text");
        assert_eq!(open_text(&reading, "events", &sealed), Err(UnsealError::Damaged));
        assert_eq!(open_text(&other, "report", &sealed), Err(UnsealError::OtherKey));
        let missing = ReadKey::new(Some(KeyPlace::at(folder.path().join("none.key"))));
        assert!(matches!(open_text(&missing, "report", &sealed), Err(UnsealError::NoKey(_))));
        for cut in 0..sealed.len() {
            assert!(open_text(&reading, "report", &sealed[..cut]).is_err());
        }
    }
}
