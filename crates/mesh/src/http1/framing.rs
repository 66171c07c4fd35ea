//! Where a body of HTTP/1 ends. Bytes pass through as they are; this only follows them.

use std::ops::Range;

/// How a body is framed, and how far it has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Framing {
    /// It is over, or there never was one.
    Done,
    /// So many bytes are left.
    Length(u64),
    /// Chunks, then trailers.
    Chunked(Chunk),
    /// Until the sender closes.
    UntilClose,
}

/// The place within chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Chunk {
    Size { value: u64, digits: u8 },
    Extension { value: u64, length: u32 },
    SizeEnd { value: u64 },
    Data { left: u64 },
    DataEnd { seen_return: bool },
    Trailer { line: u32, total: u32 },
}

/// A body that does not follow its framing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Malformed;

/// A piece of a body: how many raw bytes it takes, and which of them are payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) raw: usize,
    pub(super) payload: Range<usize>,
}

const LONGEST_EXTENSION: u32 = 4 * 1024;
const LONGEST_TRAILERS: u32 = 16 * 1024;

impl Framing {
    /// Chunks, from their beginning.
    pub(super) fn chunked() -> Self {
        Self::Chunked(Chunk::Size { value: 0, digits: 0 })
    }

    /// A body of a known length.
    pub(super) fn length(length: u64) -> Self {
        if length == 0 { Self::Done } else { Self::Length(length) }
    }

    pub(super) fn is_done(&self) -> bool {
        *self == Self::Done
    }

    /// Takes the next piece from the input, which is not empty.
    pub(super) fn take(&mut self, input: &[u8]) -> Result<Piece, Malformed> {
        match self {
            Self::Done => Ok(Piece { raw: 0, payload: 0..0 }),
            Self::UntilClose => Ok(Piece { raw: input.len(), payload: 0..input.len() }),
            Self::Length(left) => {
                let count = usize::try_from(*left).unwrap_or(usize::MAX).min(input.len());
                *left -= count as u64;
                if *left == 0 {
                    *self = Self::Done;
                }
                Ok(Piece { raw: count, payload: 0..count })
            }
            Self::Chunked(chunk) => {
                let mut at = 0;
                while at < input.len() {
                    if let Chunk::Data { left } = chunk {
                        let count = usize::try_from(*left).unwrap_or(usize::MAX).min(input.len() - at);
                        *left -= count as u64;
                        if *left == 0 {
                            *chunk = Chunk::DataEnd { seen_return: false };
                        }
                        return Ok(Piece { raw: at + count, payload: at..at + count });
                    }
                    let next = chunk.step(input[at])?;
                    at += 1;
                    match next {
                        Some(next) => *chunk = next,
                        None => {
                            *self = Self::Done;
                            break;
                        }
                    }
                }
                Ok(Piece { raw: at, payload: at..at })
            }
        }
    }
}

impl Chunk {
    /// Goes on by one byte that is not payload; none is the end of the body.
    fn step(self, byte: u8) -> Result<Option<Self>, Malformed> {
        let next = match (self, byte) {
            (Self::Size { value, digits }, _) if byte.is_ascii_hexdigit() => {
                let digit = char::from(byte).to_digit(16).unwrap_or_default();
                if digits >= 16 {
                    return Err(Malformed);
                }
                Self::Size { value: value << 4 | u64::from(digit), digits: digits + 1 }
            }
            (Self::Size { digits: 0, .. }, _) => return Err(Malformed),
            (Self::Size { value, .. } | Self::Extension { value, .. }, b'\r') => Self::SizeEnd { value },
            (Self::Size { value, .. } | Self::Extension { value, .. } | Self::SizeEnd { value }, b'\n') => {
                match value {
                    0 => Self::Trailer { line: 0, total: 0 },
                    left => Self::Data { left },
                }
            }
            (Self::Size { value, .. }, b';' | b' ' | b'\t') => Self::Extension { value, length: 0 },
            (Self::Extension { value, length }, _) if length < LONGEST_EXTENSION => {
                Self::Extension { value, length: length + 1 }
            }
            (Self::DataEnd { seen_return: false }, b'\r') => Self::DataEnd { seen_return: true },
            (Self::DataEnd { .. }, b'\n') => Self::Size { value: 0, digits: 0 },
            (Self::Trailer { line: 0, .. }, b'\n') => return Ok(None),
            (Self::Trailer { total, .. }, _) if total >= LONGEST_TRAILERS => return Err(Malformed),
            (Self::Trailer { total, .. }, b'\n') => Self::Trailer { line: 0, total: total + 1 },
            // A lone return at the beginning of a line is the first half of the end.
            (Self::Trailer { line: 0, total }, b'\r') => Self::Trailer { line: 0, total: total + 1 },
            (Self::Trailer { line, total }, _) => Self::Trailer { line: line + 1, total: total + 1 },
            _ => return Err(Malformed),
        };
        Ok(Some(next))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Feeds the input in steps; gives the payload and what is left behind the body.
    fn follow(input: &[u8], step: usize) -> Result<(Vec<u8>, Vec<u8>, bool), Malformed> {
        let mut framing = Framing::chunked();
        let (mut payload, mut rest) = (Vec::new(), Vec::new());
        for part in input.chunks(step.max(1)) {
            let mut part = part;
            while !part.is_empty() && !framing.is_done() {
                let piece = framing.take(part)?;
                payload.extend_from_slice(&part[piece.payload.clone()]);
                part = &part[piece.raw..];
            }
            rest.extend_from_slice(part);
        }
        Ok((payload, rest, framing.is_done()))
    }

    #[test]
    fn chunks_extensions_and_trailers() {
        let input = b"4;a=b\r\nWiki\r\n5\r\npedia\r\n0\r\nX-Sum: 1\r\n\r\nGET /";
        for step in 1..input.len() {
            assert_eq!(follow(input, step), Ok((b"Wikipedia".to_vec(), b"GET /".to_vec(), true)), "{step}");
        }
    }

    #[test]
    fn broken_chunks() {
        for bad in ["\r\n", "x\r\n", "4\r\nWikix", "11111111111111111\r\n"] {
            assert_eq!(follow(bad.as_bytes(), 1), Err(Malformed), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_chunked_comes_out_whole(
            parts in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..40), 0..6),
            step in 1usize..50,
        ) {
            let mut input = Vec::new();
            for part in &parts {
                input.extend_from_slice(format!("{:x}\r\n", part.len()).as_bytes());
                input.extend_from_slice(part);
                input.extend_from_slice(b"\r\n");
            }
            input.extend_from_slice(b"0\r\n\r\nnext");
            let (payload, rest, done) = follow(&input, step).unwrap();
            prop_assert_eq!(payload, parts.concat());
            prop_assert_eq!(rest, b"next");
            prop_assert!(done);
        }

        #[test]
        fn any_bytes_are_survived(input in proptest::collection::vec(any::<u8>(), 0..200), step in 1usize..20) {
            let _ = follow(&input, step);
        }
    }
}
