//! How a gRPC call says that it ended: a code, its name, and a message in the trailers.

use std::fmt;

use crate::application::nearest_hint;

/// The names of the codes 0 to 16, as the protocol defines them.
const NAMES: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];

/// The code of a gRPC status. Shown by its name, or by its number where the protocol has no name for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GrpcCode(pub u16);

impl GrpcCode {
    /// The largest code that the protocol has a name for.
    pub const MAX: u16 = 16;

    /// Reads the name or number of a code that the protocol has; the error suggests one.
    pub fn parse_known(text: &str) -> Result<Self, String> {
        Self::parse(text).filter(|code| code.name().is_some()).ok_or_else(|| {
            let hint = nearest_hint(&text.to_ascii_uppercase(), NAMES.iter().copied()).unwrap_or_default();
            format!("`{text}` is not a code of gRPC; {hint}")
        })
    }

    /// The name that the protocol has for it, such as `UNAVAILABLE`.
    pub fn name(self) -> Option<&'static str> {
        NAMES.get(usize::from(self.0)).copied()
    }

    /// Reads a name or a number.
    pub fn parse(text: &str) -> Option<Self> {
        let by_name = NAMES.iter().position(|name| name.eq_ignore_ascii_case(text));
        by_name.and_then(|code| u16::try_from(code).ok()).or_else(|| text.parse().ok()).map(Self)
    }
}

impl fmt::Display for GrpcCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "gRPC status {}", self.0),
        }
    }
}

/// Decodes the value of `grpc-message`: bytes beyond printable ASCII are written as `%` and two digits. What is not
/// written so is left as it is.
pub fn decode_message(value: &str) -> String {
    let bytes = value.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let digit = |place: usize| bytes.get(place).and_then(|byte| char::from(*byte).to_digit(16));
        match (byte, digit(at + 1), digit(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                decoded.push((high * 16 + low) as u8);
                at += 3;
            }
            _ => {
                decoded.push(*byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_names() {
        assert_eq!(GrpcCode(14).to_string(), "UNAVAILABLE");
        assert_eq!(GrpcCode(17).to_string(), "gRPC status 17");
        assert_eq!(GrpcCode::parse("unavailable"), Some(GrpcCode(14)));
        assert_eq!(GrpcCode::parse("5"), Some(GrpcCode(5)));
        assert_eq!(GrpcCode::parse("gone"), None);
    }

    #[test]
    fn messages_are_decoded() {
        assert_eq!(decode_message("no%20stock%3A %C3%BC 100%"), "no stock: ü 100%");
        assert_eq!(decode_message("%ZZ%4"), "%ZZ%4");
    }
}
