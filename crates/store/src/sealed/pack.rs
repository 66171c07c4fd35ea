//! Compression before sealing: what is sealed cannot be compressed any more.
//!
//! ```text
//! 0 | bytes          as they are
//! 1 | deflated bytes
//! 2 | length: u32, lowest byte first | a block of LZ4
//! ```

use std::cell::RefCell;
use std::io::Read;

use flate2::read::DeflateDecoder;
use flate2::{Compress, Compression, FlushCompress, Status};
use lz4_flex::block;

use crate::secrets::UnsealError;

const STORED: u8 = 0;
const DEFLATED: u8 = 1;
const LZ4: u8 = 2;

/// Shorter texts gain little.
const MIN_LZ4: usize = 512;

/// Below this the tables of a deflated text cost more time than all the rest of writing it, and LZ4 finds nearly as
/// much that repeats.
const MIN_DEFLATED: usize = 16 << 10;

/// The largest text that is unpacked; files of ours are not larger either.
const MAX_BYTES: u64 = 256 << 20;

thread_local! {
    /// A compressor has a third of a MiB of tables, and making them costs more than a short text.
    static COMPRESSOR: RefCell<Compress> = RefCell::new(Compress::new(Compression::fast(), false));
}

/// Appends a text, compressed if that makes it shorter.
pub(super) fn pack_into(out: &mut Vec<u8>, plain: &[u8]) {
    let start = out.len();
    let is_packed = match plain.len() {
        ..MIN_LZ4 => false,
        MIN_LZ4..MIN_DEFLATED => pack_by_lz4(out, plain),
        _ => deflate(out, plain),
    };
    if !is_packed || out.len() - start > plain.len() {
        out.truncate(start);
        out.push(STORED);
        out.extend_from_slice(plain);
    }
}

fn pack_by_lz4(out: &mut Vec<u8>, plain: &[u8]) -> bool {
    out.push(LZ4);
    out.extend_from_slice(&(plain.len() as u32).to_le_bytes());
    let start = out.len();
    out.resize(start + block::get_maximum_output_size(plain.len()), 0);
    let Ok(length) = block::compress_into(plain, &mut out[start..]) else { return false };
    out.truncate(start + length);
    true
}

fn deflate(out: &mut Vec<u8>, plain: &[u8]) -> bool {
    out.push(DEFLATED);
    // What does not fit into the room of the text itself is not shorter.
    out.reserve(plain.len());
    let deflated = COMPRESSOR.with_borrow_mut(|compressor| {
        compressor.reset();
        compressor.compress_vec(plain, out, FlushCompress::Finish)
    });
    matches!(deflated, Ok(Status::StreamEnd))
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
        Some(&LZ4) => {
            let (length, block) = packed[1..].split_first_chunk().ok_or(UnsealError::Damaged)?;
            let length = u32::from_le_bytes(*length) as usize;
            if length >= MIN_DEFLATED {
                return Err(UnsealError::Damaged);
            }
            block::decompress(block, length).map_err(|_| UnsealError::Damaged)
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
        let long = random.repeat(5);
        for plain in [&b""[..], b"short", &[b'x'; 5000], &random, &random[..700], &long] {
            let mut packed = Vec::new();
            pack_into(&mut packed, plain);
            assert!(packed.len() <= plain.len() + 1);
            assert_eq!(unpack(packed).unwrap(), plain);
        }
        for (length, most) in [(600, 30), (5000, 100), (50_000, 300)] {
            let mut packed = Vec::new();
            pack_into(&mut packed, &vec![b'x'; length]);
            assert!(packed.len() < most, "{}", packed.len());
        }
        let bomb = b"\x02\xff\xff\xff\xff\x1fx\x01\x00\xff";
        for bad in [&b""[..], b"\x02x", b"\x02\x05\0\0\0", b"\x03x", b"\x01\xff\xff\xff", bomb] {
            assert_eq!(unpack(bad.to_vec()), Err(UnsealError::Damaged));
        }
    }
}
