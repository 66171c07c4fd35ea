//! How gRPC puts messages into a body: each after a byte that says whether it is compressed and four of its length.

use std::borrow::Cow;
use std::io::Read;

/// Bytes in front of each message.
const HEAD: usize = 5;
/// The most bytes that one compressed message may grow to: four times what a recording holds.
const MAX_INFLATED: u64 = 4 << 20;

/// One message of a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame<'b> {
    /// The message, decompressed unless it is opaque.
    pub message: Cow<'b, [u8]>,
    /// Bytes of the message that the body does not have; at least 1 if it is cut.
    pub missing: u64,
    /// Whether the message is compressed in a way that cannot be read.
    pub is_opaque: bool,
}

/// The messages of a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frames<'b> {
    /// In the order of the body.
    pub frames: Vec<Frame<'b>>,
    /// Whether the body ends in the middle of a message or of its length.
    pub is_cut: bool,
}

/// Splits a body into its messages; none if it is no gRPC body. `encoding` is the value of `grpc-encoding`.
///
/// Frames of gRPC-Web that hold trailers are left out.
pub fn split_frames<'b>(body: &'b [u8], encoding: Option<&str>) -> Option<Frames<'b>> {
    let mut frames = Frames { frames: Vec::new(), is_cut: false };
    let mut rest = body;
    while let Some((head, after)) = rest.split_first_chunk::<HEAD>() {
        let [flags, length @ ..] = *head;
        let is_trailer = flags & 0x80 != 0;
        if flags & !0x81 != 0 {
            return None;
        }
        let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
        let (message, next) = after.split_at(length.min(after.len()));
        let missing = (length - message.len()) as u64;
        rest = next;
        frames.is_cut |= missing > 0;
        if is_trailer {
            continue;
        }
        let plain = || Frame { message: Cow::Borrowed(message), missing, is_opaque: false };
        frames.frames.push(match flags & 1 {
            0 => plain(),
            _ => match inflate(message, encoding) {
                Some((message, is_cut)) => {
                    frames.is_cut |= is_cut;
                    Frame { message: Cow::Owned(message), missing: is_cut.into(), is_opaque: false }
                }
                None => Frame { is_opaque: true, ..plain() },
            },
        });
    }
    frames.is_cut |= !rest.is_empty();
    Some(frames)
}

/// Puts a message into a frame of its own, uncompressed.
pub fn frame_message(message: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(HEAD + message.len());
    write_frame(&Frame { message: Cow::Borrowed(message), missing: 0, is_opaque: false }, &mut frame);
    frame
}

/// Writes a frame, uncompressed unless it is opaque.
pub(super) fn write_frame(frame: &Frame<'_>, out: &mut Vec<u8>) {
    let length = u32::try_from(frame.message.len() as u64 + frame.missing).unwrap_or(u32::MAX);
    out.push(frame.is_opaque.into());
    out.extend(length.to_be_bytes());
    out.extend(frame.message.iter());
}

/// What there is of a compressed message, and whether there is more of it; none where its compression is unknown.
fn inflate(message: &[u8], encoding: Option<&str>) -> Option<(Vec<u8>, bool)> {
    let mut out = Vec::new();
    // A cut message ends in an error, after what there is of it.
    let mut read = |reader: &mut dyn Read| reader.take(MAX_INFLATED).read_to_end(&mut out).is_err();
    let is_gzip = match encoding.map(str::trim) {
        Some(name) if name.eq_ignore_ascii_case("deflate") => false,
        Some(name) if name.eq_ignore_ascii_case("gzip") => true,
        // Where the header was not recorded, the first bytes tell.
        None if message.starts_with(&[0x1f, 0x8b]) => true,
        _ => return None,
    };
    let is_cut = match is_gzip {
        true => read(&mut flate2::read::GzDecoder::new(message)),
        false => read(&mut flate2::read::ZlibDecoder::new(message)),
    };
    let is_cut = is_cut || out.len() as u64 >= MAX_INFLATED;
    Some((out, is_cut))
}
