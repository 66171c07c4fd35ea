//! Which operation a request is for.

use std::collections::BTreeMap;

use http::Method;

/// Most segments of a path that are looked at.
const MAXIMUM_SEGMENTS: usize = 64;

/// A parsed `METHOD /path/{parameter}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Route {
    method: Method,
    segments: Vec<Segment>,
}

/// Ordered so that the more literal route is the smaller one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Segment {
    Literal(String),
    Parameter(String),
    Rest(String),
}

impl Route {
    /// Reads the key of an operation.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (method, path) = text.split_once(' ').ok_or("an operation is called `METHOD /path`")?;
        let method =
            Method::from_bytes(method.as_bytes()).map_err(|_| format!("`{method}` is not a method"))?;
        let path = path.trim().strip_prefix('/').ok_or("a path starts with `/`")?;
        let mut segments = Vec::new();
        for segment in path.split('/').filter(|segment| !segment.is_empty()) {
            if matches!(segments.last(), Some(Segment::Rest(_))) {
                return Err("nothing can follow `{...}` with three dots".to_owned());
            }
            let inner = segment.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
            segments.push(match inner {
                Some(name) => match name.strip_suffix("...") {
                    Some(name) => Segment::Rest(parameter(name)?),
                    None => Segment::Parameter(parameter(name)?),
                },
                None if segment.contains(['{', '}']) => {
                    return Err(format!("`{segment}`: a parameter is a whole segment"));
                }
                None => Segment::Literal(segment.to_owned()),
            });
        }
        if segments.len() > MAXIMUM_SEGMENTS {
            return Err(format!("a path has more than {MAXIMUM_SEGMENTS} segments"));
        }
        Ok(Self { method, segments })
    }

    /// Whether the path has such a parameter.
    pub(crate) fn has_parameter(&self, name: &str) -> bool {
        self.segments.iter().any(|segment| match segment {
            Segment::Literal(_) => false,
            Segment::Parameter(parameter) | Segment::Rest(parameter) => parameter == name,
        })
    }

    /// The parameters' values if the request is for this route.
    pub(crate) fn matches(&self, method: &Method, path: &str) -> Option<BTreeMap<String, String>> {
        if *method != self.method {
            return None;
        }
        let given: Vec<&str> =
            path.split('/').filter(|segment| !segment.is_empty()).take(MAXIMUM_SEGMENTS + 1).collect();
        let mut parameters = BTreeMap::new();
        for (index, segment) in self.segments.iter().enumerate() {
            match segment {
                Segment::Rest(name) => {
                    parameters.insert(name.clone(), decode(&given.get(index..)?.join("/")));
                    return Some(parameters);
                }
                Segment::Literal(literal) => {
                    if given.get(index)? != literal {
                        return None;
                    }
                }
                Segment::Parameter(name) => {
                    parameters.insert(name.clone(), decode(given.get(index)?));
                }
            }
        }
        (given.len() == self.segments.len()).then_some(parameters)
    }

    /// Sorts the more literal route first.
    pub(crate) fn specificity(&self) -> impl Ord + use<> {
        self.segments
            .iter()
            .map(|segment| match segment {
                Segment::Literal(_) => 0_u8,
                Segment::Parameter(_) => 1,
                Segment::Rest(_) => 2,
            })
            .collect::<Vec<_>>()
    }
}

/// Undoes percent encoding; what is not valid stays as it is.
pub(crate) fn decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let escaped = (bytes[at] == b'%').then(|| bytes.get(at + 1..at + 3)).flatten();
        let value = escaped.and_then(|digits| {
            let text = std::str::from_utf8(digits).ok()?;
            digits.iter().all(u8::is_ascii_hexdigit).then(|| u8::from_str_radix(text, 16).ok()).flatten()
        });
        decoded.push(value.unwrap_or(bytes[at]));
        at += if value.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

/// Escapes what cannot stand in a query value.
pub(crate) fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

/// The parameters of a query.
pub(crate) fn query(text: &str) -> BTreeMap<String, String> {
    text.split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .map(|(name, value)| (decode(&name.replace('+', " ")), decode(&value.replace('+', " "))))
        .collect()
}

fn parameter(name: &str) -> Result<String, String> {
    let word = name.chars().all(|character| character.is_ascii_alphanumeric() || character == '_');
    if word && !name.is_empty() {
        Ok(name.to_owned())
    } else {
        Err(format!("`{name}` is not a parameter's name"))
    }
}

#[cfg(test)]
mod tests {
    use super::{Method, Route, decode, encode, query};

    fn check(route: &str, path: &str, expected: Option<&str>) {
        let found = Route::parse(route).unwrap().matches(&Method::GET, path);
        let shown = found.map(|parameters| {
            parameters.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(",")
        });
        assert_eq!(shown.as_deref(), expected, "{route} {path}");
    }

    #[test]
    fn paths_match_routes() {
        check("GET /", "/", Some(""));
        check("GET /orders", "/orders/", Some(""));
        check("GET /orders/{id}", "/orders/a%20b", Some("id=a b"));
        check("GET /orders/{id}", "/orders", None);
        check("GET /orders/{id}", "/orders/1/2", None);
        check("GET /orders/{id}/lines/{line}", "/orders/1/lines/2", Some("id=1,line=2"));
        check("GET /{rest...}", "/a/b", Some("rest=a/b"));
        check("POST /orders", "/orders", None);
    }

    #[test]
    fn wrong_routes_are_refused() {
        for route in ["GET", "GET orders", "G T /", "GET /a{b}", "GET /{}", "GET /{a...}/b", "GET /{a-b}"] {
            assert!(Route::parse(route).is_err(), "{route}");
        }
    }

    #[test]
    fn escapes_are_undone() {
        assert_eq!(decode("%41%zz%4"), "A%zz%4");
        assert_eq!(decode(&encode("ü & =/?")), "ü & =/?");
        assert_eq!(query("a=1+2&b&c=%26")["a"], "1 2");
        assert_eq!(query("a=1+2&b&c=%26")["c"], "&");
    }
}
