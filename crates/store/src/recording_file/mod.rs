//! A recording as one file, sealed with a passphrase, so that another machine can read it.
//!
//! ```text
//! faultscope-recording 1\n
//! {"kdf": ..., "salt": ..., "nonce": ...}\n
//! for each frame:  length: u32, lowest byte first | XChaCha20-Poly1305 of a deflated frame | tag: 16
//! ```
//!
//! A frame is a list of JSON documents, one in a line; the first line of all is the [`RecordingHead`], each other one a
//! call. The nonce of a frame has its number, and what is sealed with it says whether it is the last one: a frame that is
//! missing, moved or cut off is noticed. Everything from a file is bounded, since anybody may have written it.

mod passphrase;
mod read;
mod write;

pub use passphrase::{Passphrase, PassphraseError};
pub use read::RecordingReader;
pub use write::RecordingWriter;

use std::io;

use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use serde::{Deserialize, Serialize};

/// The first line of a file, without its version.
const MAGIC: &str = "faultscope-recording ";

/// The version that this tool writes, and the newest that it reads.
const VERSION: u32 = 1;

/// The longest first and second line.
const MAX_LINE: usize = 1 << 10;

/// The text of a frame that is written, and the longest one that is read. One call may be larger than a frame should be:
/// two bodies of 16 MiB as base64, and headers.
const FRAME: usize = 1 << 20;
const MAX_FRAME: usize = 64 << 20;

/// The most calls and the most bytes of text in a file.
const MAX_CALLS: u64 = 5_000_000;
const MAX_TEXT: u64 = 8 << 30;

/// What a file says about its recording.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordingHead {
    /// The version of the tool that wrote it.
    pub tool: String,
    /// The application that was recorded.
    pub application: String,
    /// When the recording began, in microseconds since 1970.
    pub started_us: u64,
    /// Whether secrets are in it.
    pub secrets: bool,
}

/// Why a file cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum RecordingFileError {
    /// An error of the operating system.
    #[error("the file cannot be used")]
    Io(#[from] io::Error),
    /// It is something else.
    #[error("it is not a recording")]
    NotARecording,
    /// A newer version of the tool wrote it.
    #[error("a newer version of the tool wrote it (format {0})")]
    Newer(u32),
    /// Another passphrase, or a file that was changed.
    #[error("the passphrase is wrong, or the file is damaged")]
    WrongPassphrase,
    /// Changed or cut off.
    #[error("the file is damaged: {0}")]
    Damaged(&'static str),
    /// More than any recording has.
    #[error("the file is too large: {0}")]
    TooLarge(&'static str),
}

/// The second line of a file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sealing {
    kdf: Kdf,
    memory_kib: u32,
    passes: u32,
    #[serde(with = "hex")]
    salt: [u8; 16],
    #[serde(with = "hex")]
    nonce: [u8; 16],
}

/// How a key is made of a passphrase.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kdf {
    Argon2id,
}

/// Seals and opens the frames of one file.
struct Frames {
    cipher: XChaCha20Poly1305,
    nonce: [u8; 16],
    next: u64,
}

impl Frames {
    fn new(key: &[u8; 32], nonce: [u8; 16]) -> Self {
        Self { cipher: XChaCha20Poly1305::new(&(*key).into()), nonce, next: 0 }
    }

    fn seal(&mut self, text: &[u8], is_last: bool) -> io::Result<Vec<u8>> {
        let (nonce, aad) = (self.next_nonce(), [u8::from(is_last)]);
        let sealed = self.cipher.encrypt(&nonce, Payload { msg: text, aad: &aad });
        sealed.map_err(|_| io::Error::other("too long to be sealed"))
    }

    /// The text of the next frame, and whether it is the last one.
    fn open(&mut self, sealed: &[u8]) -> Option<(Vec<u8>, bool)> {
        let nonce = self.next_nonce();
        let open = |is_last: bool| {
            let aad = [u8::from(is_last)];
            self.cipher.decrypt(&nonce, Payload { msg: sealed, aad: &aad }).ok().map(|text| (text, is_last))
        };
        open(false).or_else(|| open(true))
    }

    fn next_nonce(&mut self) -> XNonce {
        let mut nonce = [0; 24];
        nonce[..16].copy_from_slice(&self.nonce);
        nonce[16..].copy_from_slice(&self.next.to_le_bytes());
        self.next += 1;
        XNonce::from(nonce)
    }
}

mod hex {
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8; 16], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&format!("{:032x}", u128::from_be_bytes(*bytes)))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<[u8; 16], D::Error> {
        let text = String::deserialize(deserializer)?;
        let is_hex = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = u128::from_str_radix(&text, 16).ok().filter(|_| is_hex);
        number.map(u128::to_be_bytes).ok_or_else(|| serde::de::Error::custom("not 16 bytes in hexadecimal"))
    }
}

#[cfg(test)]
mod tests;
