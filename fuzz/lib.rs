//! What all targets share.

use faultscope_model::grpc::{Descriptors, Reflection, decode_frames, decode_raw};
use faultscope_store::interop::Limits;
use faultscope_store::interop::decoders::DECODERS;

/// Reads bytes with one decoder, within the usual limits and within very small ones.
pub fn read(name: &str, bytes: &[u8]) {
    let decoder = DECODERS.iter().find(|decoder| decoder.name == name).expect("a decoder of this name");
    (decoder.read)(bytes, &Limits::default());
    let small = Limits { body_bytes: 1 << 14, item_bytes: 1 << 12, items: 3, tags: 4, annotations: 3, text_bytes: 16 };
    (decoder.read)(bytes, &small);
}

/// Reads bytes as a recorded body, a message, a descriptor set and what a service says of itself.
pub fn read_message(bytes: &[u8]) {
    let _ = decode_frames(bytes, None, None);
    for is_cut in [false, true] {
        let _ = decode_raw(bytes, is_cut);
    }
    if let Ok(descriptors) = Descriptors::from_descriptor_set(bytes) {
        for name in descriptors.method_names() {
            let _ = descriptors.method(&name).map(|method| method.input.decode_beginning(bytes));
        }
    }
    let mut reflection = Reflection::of_all_services();
    reflection.read_answer(bytes);
    let _ = reflection.finish();
}
