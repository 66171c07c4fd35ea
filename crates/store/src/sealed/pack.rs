//! Compression before sealing: what is sealed cannot be compressed any more.
//!
//! ```text
//! 0 | bytes          as they are
//! 1 | deflated bytes
//! ```

use std::cell::RefCell;
use std::io::Read;

use flate2::read::DeflateDecoder;
use flate2::{Compress, Compression, FlushCompress, Status};

use crate::secrets::UnsealError;

const STORED: u8 = 0;
const DEFLATED: u8 = 1;

/// Shorter texts gain little and would cost more than sealing them.
const SHORTEST: usize = 1024;

/// The largest text that is unpacked; files of ours are not larger either.
const MAX_BYTES: u64 = 256 << 20;

thread_local! {
    /// A compressor has a third of a MiB of tables, and making them costs more than a short text.
    static COMPRESSOR: RefCell<Compress> = RefCell::new(Compress::new(Compression::fast(), false));
}

/// Appends a text, compressed if that makes it shorter.
pub(super) fn pack_into(out: &mut Vec<u8>, plain: &[u8]) {
    let start = out.len();
    if plain.len() >= SHORTEST {
        out.push(DEFLATED);
        // What does not fit into the room of the text itself is not shorter.
        out.reserve(plain.len());
        let deflated = COMPRESSOR.with_borrow_mut(|compressor| {
            compressor.reset();
            compressor.compress_vec(plain, out, FlushCompress::Finish)
        });
        if matches!(deflated, Ok(Status::StreamEnd)) && out.len() - start <= plain.len() {
            return;
        }
        out.truncate(start);
    }
    out.push(STORED);
    out.extend_from_slice(plain);
}

/// The text that was packed.
pub(super) fn unpack(mut packed: Vec<u8>) -> Result<Vec<u8>, UnsealError> {
    match packed.first() {
        Some(&STORED) => {
            packed.drain(..1);
            Ok(packed)
        }
        Some(&DEFLATED) => {
            let mut plain = Vec::new();
            let read = DeflateDecoder::new(&packed[1..]).take(MAX_BYTES).read_to_end(&mut plain);
            read.map(|_| plain).map_err(|_| UnsealError::Damaged)
        }
        _ => Err(UnsealError::Damaged),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_come_back_and_long_ones_are_shorter() {
        let random: Vec<u8> = (0..5000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        for plain in [&b""[..], b"short", &[b'x'; 5000], &random] {
            let mut packed = Vec::new();
            pack_into(&mut packed, plain);
            assert!(packed.len() <= plain.len() + 1);
            assert_eq!(unpack(packed).unwrap(), plain);
        }
        let mut packed = Vec::new();
        pack_into(&mut packed, &[b'x'; 5000]);
        assert!(packed.len() < 100, "{}", packed.len());
        for bad in [&b""[..], b"\x02x", b"\x01\xff\xff\xff"] {
            assert_eq!(unpack(bad.to_vec()), Err(UnsealError::Damaged));
        }
    }
}
