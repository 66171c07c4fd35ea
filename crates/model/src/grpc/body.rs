//! Bodies as they were recorded: several messages, some compressed, the last one cut off.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::descriptors::Descriptors;
use super::frames::{Frame, Frames, split_frames, write_frame};
use super::message_type::MessageType;
use super::raw::decode_raw;
use super::rewrite::{Hide, hide_values};
use crate::span::{Payload, Span};

/// The most messages of one body that are decoded; more are counted.
const MAX_MESSAGES: usize = 1000;

/// What a body says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecodedBody {
    /// Each message as JSON: by the names of its fields if its type is known, by their numbers otherwise.
    pub messages: Vec<Value>,
    /// Whether there was more than was recorded or decoded.
    #[serde(default, rename = "cut", skip_serializing_if = "std::ops::Not::not")]
    pub is_cut: bool,
}

impl DecodedBody {
    /// The message, or a list of them if there is not exactly one.
    pub fn to_json(&self) -> Value {
        match self.messages.as_slice() {
            [only] => only.clone(),
            several => Value::Array(several.to_vec()),
        }
    }
}

impl fmt::Display for DecodedBody {
    /// One message in a line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, message) in self.messages.iter().enumerate() {
            let gap = if index > 0 { "\n" } else { "" };
            write!(f, "{gap}{message}")?;
        }
        if self.is_cut { f.write_str("…") } else { Ok(()) }
    }
}

/// Whether a call is one of gRPC: it has a gRPC status, or says so in its headers.
pub fn is_grpc(span: &Span) -> bool {
    span.grpc_status.is_some()
        || span.payload.as_deref().is_some_and(|payload| {
            [&payload.request_headers, &payload.response_headers].into_iter().any(|headers| {
                header(headers, "content-type").is_some_and(|value| {
                    value.trim_ascii_start().to_ascii_lowercase().starts_with("application/grpc")
                })
            })
        })
}

/// The body of the request or of the response of a gRPC call; none if it is not gRPC, or not readable as such.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodySide {
    /// From the caller.
    Request,
    /// From the callee.
    Response,
}

/// Decodes a recorded body of a gRPC call; none if the call or the body is not gRPC.
pub fn decode_body(span: &Span, side: BodySide, descriptors: &Descriptors) -> Option<DecodedBody> {
    if !is_grpc(span) {
        return None;
    }
    let payload = span.payload.as_deref()?;
    let kind = message_type(span, side, descriptors);
    decode_frames(side.body(payload), side.encoding(payload), kind.as_ref())
}

/// Decodes frames; none if this is no gRPC body.
pub fn decode_frames(body: &[u8], encoding: Option<&str>, kind: Option<&MessageType>) -> Option<DecodedBody> {
    let Frames { frames, is_cut } = split_frames(body, encoding)?;
    let is_cut = is_cut || frames.len() > MAX_MESSAGES;
    let mut messages = Vec::new();
    for frame in frames.iter().take(MAX_MESSAGES) {
        messages.push(decode_frame(frame, kind)?);
    }
    Some(DecodedBody { messages, is_cut })
}

fn decode_frame(frame: &Frame<'_>, kind: Option<&MessageType>) -> Option<Value> {
    let Frame { message, missing, is_opaque } = frame;
    if *is_opaque {
        return Some(json!({ "compressed": message.len() as u64 + missing }));
    }
    let known = kind.and_then(|kind| match missing {
        // With all fields, so that a field that is 0 in one of two equal runs does not change the shape.
        0 => kind.decode_with_defaults(message).ok(),
        _ => kind.decode_beginning(message).ok(),
    });
    // A descriptor may be older than the service.
    known.or_else(|| decode_raw(message, *missing > 0))
}

/// A recorded body with values replaced, still a gRPC body; none if there is nothing to replace. Messages that were
/// compressed are stored as they are read.
pub fn redact_body(
    span: &Span,
    side: BodySide,
    descriptors: &Descriptors,
    hide: &mut dyn Hide,
) -> Option<Vec<u8>> {
    let payload = span.payload.as_deref()?;
    let kind = message_type(span, side, descriptors);
    let Frames { frames, .. } = split_frames(side.body(payload), side.encoding(payload))?;
    let mut has_changed = false;
    let mut out = Vec::new();
    for mut frame in frames {
        if !frame.is_opaque
            && let Some(message) = hide_values(kind.as_ref().map(|kind| &kind.0), &frame.message, hide)
        {
            has_changed = true;
            frame.message = Cow::Owned(message);
        }
        write_frame(&frame, &mut out);
    }
    has_changed.then_some(out)
}

fn message_type(span: &Span, side: BodySide, descriptors: &Descriptors) -> Option<MessageType> {
    let method = descriptors.method(span.path.split('?').next()?)?;
    Some(match side {
        BodySide::Request => method.input,
        BodySide::Response => method.output,
    })
}

impl BodySide {
    fn body(self, payload: &Payload) -> &[u8] {
        match self {
            Self::Request => &payload.request_body,
            Self::Response => &payload.response_body,
        }
    }

    fn encoding(self, payload: &Payload) -> Option<&str> {
        let headers = match self {
            Self::Request => &payload.request_headers,
            Self::Response => &payload.response_headers,
        };
        header(headers, "grpc-encoding")
    }
}

fn header<'h>(headers: &'h [(String, String)], wanted: &str) -> Option<&'h str> {
    headers.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| value.as_str())
}
