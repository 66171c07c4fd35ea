//! Operations: a method and a path with placeholders, `PUT /orders/{id}`, or a method of gRPC, `shop.Orders/Get`.

use std::fmt;
use std::str::FromStr;

pub use faultscope_probe_format::grpc_path;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The longest path, in bytes.
const MAX_PATH: usize = 2048;

/// Matches requests by method and path. A method `*` matches all; a path segment in braces or `*`
/// matches any one segment, a last segment `**` any rest. Queries are ignored. `package.Service/Method` is read as
/// `POST /package.Service/Method`, which is how gRPC calls it.
///
/// ```
/// use faultscope_model::OperationPattern;
/// let pattern: OperationPattern = "PUT /orders/{id}".parse().unwrap();
/// assert!(pattern.matches("PUT", "/orders/17?fast=1"));
/// assert!(!pattern.matches("GET", "/orders/17"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OperationPattern {
    method: String,
    path: String,
}

/// A text that is not a method and a path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not an operation; write a method and a path, such as `PUT /orders/{{id}}`, or `package.Service/Method`"
)]
pub struct InvalidOperation(String);

impl OperationPattern {
    /// The method, upper case, or `*`.
    pub fn method(&self) -> &str {
        &self.method
    }

    /// The path with its placeholders.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Whether a request with this method and path (query allowed) is of this operation.
    pub fn matches(&self, method: &str, path: &str) -> bool {
        if self.method != "*" && !self.method.eq_ignore_ascii_case(method) {
            return false;
        }
        let path = path.split(['?', '#']).next().unwrap_or_default();
        let mut wanted = self.path.trim_matches('/').split('/');
        let mut given = path.trim_matches('/').split('/');
        loop {
            match (wanted.next(), given.next()) {
                (Some("**"), _) | (None, None) => return true,
                (Some(w), Some(g)) if w == "*" || is_hole(w) || w == g => {}
                _ => return false,
            }
        }
    }
}

fn is_hole(segment: &str) -> bool {
    segment.starts_with('{') && segment.ends_with('}')
}

impl FromStr for OperationPattern {
    type Err = InvalidOperation;

    fn from_str(text: &str) -> Result<Self, InvalidOperation> {
        let invalid = || InvalidOperation(text.chars().take(120).collect());
        let text = text.trim();
        if text.len() <= MAX_PATH
            && let Some(path) = grpc_path(text)
        {
            return Ok(Self { method: "POST".to_owned(), path });
        }
        // A bare path matches any method.
        let (method, path) = match text.split_once(char::is_whitespace) {
            Some((method, path)) => (method, path.trim()),
            None => ("*", text),
        };
        let method_is_plain =
            method == "*" || (!method.is_empty() && method.bytes().all(|b| b.is_ascii_alphabetic()));
        if !method_is_plain
            || !path.starts_with('/')
            || path.len() > MAX_PATH
            || path.contains(char::is_whitespace)
        {
            return Err(invalid());
        }
        Ok(Self { method: method.to_ascii_uppercase(), path: path.to_owned() })
    }
}

impl fmt::Display for OperationPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.path)
    }
}

impl Serialize for OperationPattern {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for OperationPattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pattern: &str, method: &str, path: &str, expected: bool) {
        assert_eq!(
            pattern.parse::<OperationPattern>().unwrap().matches(method, path),
            expected,
            "{pattern} {path}"
        );
    }

    #[test]
    fn matching() {
        check("GET /", "GET", "/", true);
        check("GET /", "GET", "/a", false);
        check("get /a/{x}/c", "GET", "/a/b/c", true);
        check("get /a/{x}/c", "GET", "/a/b", false);
        check("/a/**", "DELETE", "/a/b/c/d?x=/y", true);
        check("* /a/*", "POST", "/a/b/", true);
        check("POST /pkg.Service/Method", "POST", "/pkg.Service/Method", true);
        check("pkg.Service/Method", "POST", "/pkg.Service/Method", true);
        check("pkg.Service/Method", "POST", "/pkg.Service/Other", false);
        check("pkg.Service/*", "POST", "/pkg.Service/Other", true);
        check("Greeter/SayHello", "POST", "/Greeter/SayHello", true);
    }

    #[test]
    fn refusing() {
        for bad in
            ["", "GET", "GET orders", "G T /x", "1 /x", "orders/7", "orders/get", "a.B", "a.B/", "a.B/C/D"]
        {
            assert!(bad.parse::<OperationPattern>().is_err(), "{bad}");
        }
    }
}
