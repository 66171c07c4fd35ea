//! Reads a recording from a file, frame by frame.

use std::io::{BufRead, Read};

use faultscope_model::Span;
use flate2::read::DeflateDecoder;

use super::{
    Frames, MAGIC, MAX_CALLS, MAX_FRAME, MAX_LINE, MAX_TEXT, Passphrase, RecordingFileError, RecordingHead,
    Sealing, VERSION,
};

/// Reads the calls of a file.
pub struct RecordingReader<R> {
    input: R,
    frames: Frames,
    head: RecordingHead,
    /// The text of the current frame, and how much of it was read.
    text: Vec<u8>,
    read: usize,
    is_last: bool,
    calls: u64,
    bytes: u64,
}

impl<R> std::fmt::Debug for RecordingReader<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RecordingReader").field("head", &self.head).finish_non_exhaustive()
    }
}

impl<R: BufRead> RecordingReader<R> {
    /// Opens a file.
    pub fn open(mut input: R, passphrase: &Passphrase) -> Result<Self, RecordingFileError> {
        let first = read_line(&mut input)?.ok_or(RecordingFileError::NotARecording)?;
        let version = first.strip_prefix(MAGIC).and_then(|version| version.parse::<u32>().ok());
        match version.ok_or(RecordingFileError::NotARecording)? {
            VERSION => {}
            0 => return Err(RecordingFileError::NotARecording),
            newer => return Err(RecordingFileError::Newer(newer)),
        }
        let damaged = || RecordingFileError::Damaged("its second line cannot be read");
        let second = read_line(&mut input)?.ok_or_else(damaged)?;
        let sealing: Sealing = serde_json::from_str(&second).map_err(|_| damaged())?;
        let key = passphrase.derive_key(&sealing.salt, sealing.memory_kib, sealing.passes);
        let key = key.ok_or(RecordingFileError::TooLarge("it asks for too much memory or time"))?;
        let mut reader = Self {
            input,
            frames: Frames::new(&key, sealing.nonce),
            head: RecordingHead {
                tool: String::new(),
                application: String::new(),
                started_us: 0,
                secrets: false,
            },
            text: Vec::new(),
            read: 0,
            is_last: false,
            calls: 0,
            bytes: 0,
        };
        // The first frame tells a wrong passphrase from damage as well as can be.
        reader.next_frame().map_err(|error| match error {
            RecordingFileError::Damaged(_) => RecordingFileError::WrongPassphrase,
            other => other,
        })?;
        let head = reader.next_line().ok_or(RecordingFileError::Damaged("it has no head"))?;
        reader.head =
            serde_json::from_slice(head).map_err(|_| RecordingFileError::Damaged("its head is wrong"))?;
        Ok(reader)
    }

    /// What the file says about its recording.
    pub fn head(&self) -> &RecordingHead {
        &self.head
    }

    /// The next call; none at the end.
    pub fn next_call(&mut self) -> Result<Option<Span>, RecordingFileError> {
        while self.read >= self.text.len() {
            if self.is_last {
                return Ok(None);
            }
            self.next_frame()?;
        }
        self.calls += 1;
        if self.calls > MAX_CALLS {
            return Err(RecordingFileError::TooLarge("too many calls"));
        }
        let line = self.next_line().ok_or(RecordingFileError::Damaged("a frame has no line"))?;
        let call = serde_json::from_slice(line);
        call.map(Some).map_err(|_| RecordingFileError::Damaged("a call cannot be read"))
    }

    fn next_line(&mut self) -> Option<&[u8]> {
        let rest = &self.text[self.read..];
        let length = rest.iter().position(|byte| *byte == b'\n')?;
        let from = self.read;
        self.read += length + 1;
        Some(&self.text[from..from + length])
    }

    fn next_frame(&mut self) -> Result<(), RecordingFileError> {
        let cut_off = |_| RecordingFileError::Damaged("it is cut off");
        let mut length = [0; 4];
        self.input.read_exact(&mut length).map_err(cut_off)?;
        let length = u32::from_le_bytes(length) as usize;
        if length > MAX_FRAME {
            return Err(RecordingFileError::TooLarge("a frame"));
        }
        // Read as it comes: a length alone must not take memory.
        let mut sealed = Vec::new();
        let read = self.input.by_ref().take(length as u64).read_to_end(&mut sealed)?;
        if read < length {
            return Err(RecordingFileError::Damaged("it is cut off"));
        }
        let opened = self.frames.open(&sealed);
        let (deflated, is_last) = opened.ok_or(RecordingFileError::Damaged("a frame was changed"))?;
        self.text.clear();
        let inflated =
            DeflateDecoder::new(&deflated[..]).take(MAX_FRAME as u64 + 1).read_to_end(&mut self.text);
        inflated.map_err(|_| RecordingFileError::Damaged("a frame cannot be inflated"))?;
        self.bytes += self.text.len() as u64;
        if self.text.len() > MAX_FRAME || self.bytes > MAX_TEXT {
            return Err(RecordingFileError::TooLarge("its text"));
        }
        if self.text.last().is_some_and(|last| *last != b'\n') {
            return Err(RecordingFileError::Damaged("a frame ends within a line"));
        }
        (self.read, self.is_last) = (0, is_last);
        Ok(())
    }
}

/// A short line; none if it is too long, or is no text.
fn read_line(input: &mut impl BufRead) -> Result<Option<String>, RecordingFileError> {
    let mut line = Vec::new();
    input.by_ref().take(MAX_LINE as u64).read_until(b'\n', &mut line)?;
    if line.pop() != Some(b'\n') {
        return Ok(None);
    }
    Ok(String::from_utf8(line).ok())
}
