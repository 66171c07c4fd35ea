//! What all targets share.

use faultscope_store::interop::Limits;
use faultscope_store::interop::decoders::DECODERS;

/// Reads bytes with one decoder, within the usual limits and within very small ones.
pub fn read(name: &str, bytes: &[u8]) {
    let decoder = DECODERS.iter().find(|decoder| decoder.name == name).expect("a decoder of this name");
    (decoder.read)(bytes, &Limits::default());
    let small = Limits { body_bytes: 1 << 14, item_bytes: 1 << 12, items: 3, tags: 4, annotations: 3, text_bytes: 16 };
    (decoder.read)(bytes, &small);
}
