//! Writes a recording into a file.

use std::io::{self, Write};

use faultscope_model::Span;
use flate2::Compression;
use flate2::write::DeflateEncoder;
use serde::Serialize;

use super::passphrase::{MEMORY_KIB, PASSES};
use super::{FRAME, Frames, Kdf, MAGIC, Passphrase, RecordingHead, Sealing, VERSION};

/// Writes calls, frame by frame. A file without [`RecordingWriter::finish`] counts as cut off.
pub struct RecordingWriter<W> {
    out: W,
    frames: Frames,
    text: Vec<u8>,
}

impl<W> std::fmt::Debug for RecordingWriter<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RecordingWriter").finish_non_exhaustive()
    }
}

impl<W: Write> RecordingWriter<W> {
    /// Begins a file.
    pub fn new(mut out: W, passphrase: &Passphrase, head: &RecordingHead) -> io::Result<Self> {
        let (mut salt, mut nonce) = ([0; 16], [0; 16]);
        getrandom::fill(&mut salt).map_err(io::Error::other)?;
        getrandom::fill(&mut nonce).map_err(io::Error::other)?;
        let key = passphrase.derive_key(&salt, MEMORY_KIB, PASSES);
        let key = key.ok_or_else(|| io::Error::other("no key can be made of the passphrase"))?;
        let sealing = Sealing { kdf: Kdf::Argon2id, memory_kib: MEMORY_KIB, passes: PASSES, salt, nonce };
        writeln!(out, "{MAGIC}{VERSION}")?;
        serde_json::to_writer(&mut out, &sealing)?;
        out.write_all(b"\n")?;
        let mut writer = Self { out, frames: Frames::new(&key, nonce), text: Vec::new() };
        writer.add_line(head)?;
        Ok(writer)
    }

    /// Adds a call.
    pub fn add(&mut self, call: &Span) -> io::Result<()> {
        self.add_line(call)?;
        if self.text.len() >= FRAME { self.end_frame(false) } else { Ok(()) }
    }

    /// Writes the rest.
    pub fn finish(mut self) -> io::Result<W> {
        self.end_frame(true)?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn add_line(&mut self, value: &impl Serialize) -> io::Result<()> {
        serde_json::to_writer(&mut self.text, value)?;
        self.text.push(b'\n');
        Ok(())
    }

    fn end_frame(&mut self, is_last: bool) -> io::Result<()> {
        let mut deflated = DeflateEncoder::new(Vec::new(), Compression::default());
        deflated.write_all(&self.text)?;
        let sealed = self.frames.seal(&deflated.finish()?, is_last)?;
        let length = u32::try_from(sealed.len()).map_err(io::Error::other)?;
        self.out.write_all(&length.to_le_bytes())?;
        self.out.write_all(&sealed)?;
        self.text.clear();
        Ok(())
    }
}
