//! gRPC: how a call ended, what its messages are made of, and how they are read and written.
//!
//! [`Descriptors`] know the services and messages of an application, from `.proto` files, from descriptor sets or
//! from a service that describes itself. [`decode_body`] reads what the mesh recorded of a call, with descriptors
//! or without. Nothing here loads a file: whoever has one hands over its text.

mod body;
mod descriptors;
mod frames;
mod json;
mod message_type;
mod path;
mod raw;
mod reflection;
mod rewrite;
mod sources;
mod status;
mod wire;

pub use body::{BodySide, DecodedBody, decode_body, decode_frames, is_grpc, redact_body};
pub use descriptors::{DescriptorError, Descriptors, Idempotency, Method};
pub use frames::{Frame, Frames, frame_message, split_frames};
pub use message_type::{DecodeError, EncodeError, MessageType};
pub(crate) use path::UnknownField;
pub use raw::decode_raw;
pub use reflection::{REFLECTION_PATHS, Reflection};
pub use rewrite::Hide;
pub use sources::{OpenProto, ProtoSource};
pub use status::{GrpcCode, decode_message};

#[cfg(test)]
mod tests;
