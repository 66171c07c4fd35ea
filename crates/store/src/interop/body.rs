//! Decodes request bodies by content type and content encoding.

use std::borrow::Cow;
use std::io::Read;

use flate2::read::{MultiGzDecoder, ZlibDecoder};

use super::{Batch, DecodeError, Decoded, Limits, otlp, zipkin};

/// How much is decompressed before more memory is requested.
const STEP: usize = 256 << 10;

/// A format of received spans.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SpanFormat {
    /// Zipkin v1, JSON.
    ZipkinV1Json,
    /// Zipkin v1, Thrift's binary protocol.
    ZipkinV1Thrift,
    /// Zipkin v2, JSON.
    ZipkinV2Json,
    /// Zipkin v2, protobuf.
    ZipkinV2Proto,
    /// OpenTelemetry, JSON.
    OtlpJson,
    /// OpenTelemetry, protobuf.
    OtlpProto,
}

/// A format of received metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MetricFormat {
    /// OpenTelemetry, JSON.
    OtlpJson,
    /// OpenTelemetry, protobuf.
    OtlpProto,
}

impl SpanFormat {
    /// All formats.
    pub const ALL: [Self; 6] = [
        Self::ZipkinV1Json,
        Self::ZipkinV1Thrift,
        Self::ZipkinV2Json,
        Self::ZipkinV2Proto,
        Self::OtlpJson,
        Self::OtlpProto,
    ];

    /// The format of a body posted to `/api/v1/spans`; JSON without a content type.
    pub fn zipkin_v1(content_type: Option<&str>) -> Result<Self, DecodeError> {
        match media_type(content_type).as_str() {
            "application/x-thrift" => Ok(Self::ZipkinV1Thrift),
            text if is_json(text) => Ok(Self::ZipkinV1Json),
            text => Err(unsupported(text)),
        }
    }

    /// The format of a body posted to `/api/v2/spans`; JSON without a content type.
    pub fn zipkin_v2(content_type: Option<&str>) -> Result<Self, DecodeError> {
        match media_type(content_type).as_str() {
            text if is_protobuf(text) => Ok(Self::ZipkinV2Proto),
            text if is_json(text) => Ok(Self::ZipkinV2Json),
            text => Err(unsupported(text)),
        }
    }

    /// The format of a body posted to `/v1/traces`.
    pub fn otlp(content_type: Option<&str>) -> Result<Self, DecodeError> {
        match media_type(content_type).as_str() {
            text if is_protobuf(text) => Ok(Self::OtlpProto),
            "application/json" => Ok(Self::OtlpJson),
            text => Err(unsupported(text)),
        }
    }

    /// Decodes the spans of an uncompressed body.
    pub fn decode(self, body: &[u8], limits: &Limits) -> Result<Decoded, DecodeError> {
        if body.len() > limits.body_bytes {
            return Err(DecodeError::TooLarge { what: "the body", limit: limits.body_bytes });
        }
        match self {
            Self::ZipkinV1Json => zipkin::v1_json(body, limits),
            Self::ZipkinV1Thrift => zipkin::v1_thrift(body, limits),
            Self::ZipkinV2Json => zipkin::v2_json(body, limits),
            Self::ZipkinV2Proto => zipkin::v2_proto(body, limits),
            Self::OtlpJson => otlp::traces_json(body, limits),
            Self::OtlpProto => otlp::traces_proto(body, limits),
        }
    }
}

impl MetricFormat {
    /// The format of a body posted to `/v1/metrics`.
    pub fn otlp(content_type: Option<&str>) -> Result<Self, DecodeError> {
        Ok(match SpanFormat::otlp(content_type)? {
            SpanFormat::OtlpJson => Self::OtlpJson,
            _ => Self::OtlpProto,
        })
    }

    /// Decodes the points of an uncompressed body.
    pub fn decode(self, body: &[u8], limits: &Limits) -> Result<Batch<otlp::MetricPoint>, DecodeError> {
        if body.len() > limits.body_bytes {
            return Err(DecodeError::TooLarge { what: "the body", limit: limits.body_bytes });
        }
        match self {
            Self::OtlpJson => otlp::metrics_json(body, limits),
            Self::OtlpProto => otlp::metrics_proto(body, limits),
        }
    }
}

/// Decompresses a body: gzip, deflate or none.
///
/// The result is bounded, whatever the compressed bytes claim.
pub fn inflate<'a>(
    body: &'a [u8],
    content_encoding: Option<&str>,
    limits: &Limits,
) -> Result<Cow<'a, [u8]>, DecodeError> {
    inflate_within(body, content_encoding, limits, &mut |_| true)
}

/// Decompresses a body while there is room.
pub fn inflate_within<'a>(
    body: &'a [u8],
    content_encoding: Option<&str>,
    limits: &Limits,
    room: Room<'_>,
) -> Result<Cow<'a, [u8]>, DecodeError> {
    let encoding = content_encoding.unwrap_or_default().trim().to_ascii_lowercase();
    let too_large = DecodeError::TooLarge { what: "the body", limit: limits.body_bytes };
    match encoding.as_str() {
        "" | "identity" if body.len() > limits.body_bytes => Err(too_large),
        "" | "identity" => Ok(Cow::Borrowed(body)),
        // Some reporters keep the header on an empty body.
        "gzip" | "x-gzip" | "deflate" if body.is_empty() => Ok(Cow::Borrowed(body)),
        "gzip" | "x-gzip" => read_bounded(MultiGzDecoder::new(body), "gzip", limits, room),
        "deflate" => read_bounded(ZlibDecoder::new(body), "deflate", limits, room),
        _ => Err(DecodeError::Unsupported { what: "content encoding", text: short(&encoding) }),
    }
}

/// Called before this many more bytes are allocated; returns whether there is room.
pub type Room<'r> = &'r mut dyn FnMut(usize) -> bool;

/// The only message of a gRPC body: a compression flag, its length in four bytes, the message.
pub fn grpc_message<'a>(
    body: &'a [u8],
    encoding: &str,
    limits: &Limits,
    room: Room<'_>,
) -> Result<Cow<'a, [u8]>, DecodeError> {
    let malformed = |reason: &str| DecodeError::malformed("gRPC", reason);
    let (head, message) = body.split_first_chunk::<5>().ok_or_else(|| malformed("the message is cut off"))?;
    let [compressed, length @ ..] = *head;
    if u32::from_be_bytes(length) as usize != message.len() {
        return Err(malformed("there is not just one message"));
    }
    let encoding = if compressed == 0 { "identity" } else { encoding };
    inflate_within(message, Some(encoding), limits, room)
}

fn read_bounded<'a>(
    reader: impl Read,
    format: &'static str,
    limits: &Limits,
    room: Room<'_>,
) -> Result<Cow<'a, [u8]>, DecodeError> {
    let most = u64::try_from(limits.body_bytes).unwrap_or(u64::MAX).saturating_add(1);
    let mut reader = reader.take(most);
    let mut out = Vec::new();
    loop {
        if !room(STEP) {
            return Err(DecodeError::NoRoom);
        }
        let before = out.len();
        // Exactly what was counted: a list that grows by itself doubles.
        out.reserve_exact(STEP);
        out.resize(before + STEP, 0);
        let read = read_full(&mut reader, out.get_mut(before..).unwrap_or_default());
        let read = read.map_err(|error| DecodeError::malformed(format, error.to_string()))?;
        out.truncate(before + read);
        if read < STEP {
            break;
        }
    }
    if out.len() > limits.body_bytes {
        return Err(DecodeError::TooLarge { what: "the decompressed body", limit: limits.body_bytes });
    }
    Ok(Cow::Owned(out))
}

/// Reads until the buffer is full or nothing more comes; returns how much came.
fn read_full(reader: &mut impl Read, buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match reader.read(rest) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

fn media_type(content_type: Option<&str>) -> String {
    let text = content_type.unwrap_or_default();
    text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// Browsers may send JSON as plain text to avoid a preflight request; `curl -d` sends everything as
/// a form.
fn is_json(text: &str) -> bool {
    matches!(
        text,
        "" | "application/json"
            | "text/plain"
            | "text/json"
            | "application/octet-stream"
            | "application/x-www-form-urlencoded"
    )
}

fn is_protobuf(text: &str) -> bool {
    matches!(text, "application/x-protobuf" | "application/protobuf")
}

fn unsupported(text: &str) -> DecodeError {
    DecodeError::Unsupported { what: "content type", text: short(text) }
}

fn short(text: &str) -> String {
    text.chars().take(80).collect()
}
