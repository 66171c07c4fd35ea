//! What the answer to a step of a test must look like, and what it must not.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::de::{self, Deserializer, Visitor};
use serde::ser::Serializer;
use serde::{Deserialize, Serialize};

use super::alternatives::{Alternative, Alternatives};
use crate::grpc::GrpcCode;

/// The statuses that HTTP has room for.
const STATUSES: std::ops::RangeInclusive<u16> = 100..=599;

/// What an answer must look like. If neither this nor `not` names a status, any below 400 is accepted; of gRPC only
/// the code `OK`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expectation {
    /// The statuses that are accepted.
    #[serde(default, skip_serializing_if = "Statuses::is_empty")]
    pub status: Statuses,
    /// The codes that are accepted, of gRPC.
    #[serde(default, skip_serializing_if = "Codes::is_empty")]
    pub code: Codes,
    /// A regular expression that must match somewhere in the message of the status, of gRPC.
    #[serde(default, deserialize_with = "pattern", skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// A regular expression that must match somewhere in the body.
    #[serde(default, deserialize_with = "pattern", skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// Regular expressions by dotted path into the JSON body; each must match the whole value.
    #[serde(default, deserialize_with = "patterns", skip_serializing_if = "BTreeMap::is_empty")]
    pub json: BTreeMap<String, String>,
    /// Dotted paths that the JSON body must not have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub absent: Vec<String>,
    /// Regular expressions by header name; each must match the whole value. Of gRPC these are the metadata of the
    /// answer, trailers included.
    #[serde(
        default,
        alias = "metadata",
        deserialize_with = "patterns",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub headers: BTreeMap<String, String>,
    /// What the answer must not look like.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not: Option<Box<Exclusion>>,
}

/// What an answer must not look like: none of its entries may apply. A path or header that the answer does not have
/// matches nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exclusion {
    /// The statuses that are refused.
    #[serde(default, skip_serializing_if = "Statuses::is_empty")]
    pub status: Statuses,
    /// The codes that are refused, of gRPC.
    #[serde(default, skip_serializing_if = "Codes::is_empty")]
    pub code: Codes,
    /// A regular expression that must match nowhere in the message of the status, of gRPC.
    #[serde(default, deserialize_with = "pattern", skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// A regular expression that must match nowhere in the body.
    #[serde(default, deserialize_with = "pattern", skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// Regular expressions by dotted path into the JSON body; none may match the whole value.
    #[serde(default, deserialize_with = "patterns", skip_serializing_if = "BTreeMap::is_empty")]
    pub json: BTreeMap<String, String>,
    /// Regular expressions by header name; none may match the whole value.
    #[serde(
        default,
        alias = "metadata",
        deserialize_with = "patterns",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub headers: BTreeMap<String, String>,
}

impl Expectation {
    /// All regular expressions in it.
    pub fn patterns(&self) -> impl Iterator<Item = &str> {
        let texts = self.message.iter().chain(&self.body);
        let own = texts.chain(self.json.values()).chain(self.headers.values());
        let not = self.not.iter().flat_map(|not| {
            let texts = not.message.iter().chain(&not.body);
            texts.chain(not.json.values()).chain(not.headers.values())
        });
        own.chain(not).map(String::as_str)
    }

    /// All texts in it that may contain placeholders: patterns, paths and names of headers.
    pub(super) fn texts(&self) -> impl Iterator<Item = &str> {
        let own = self.absent.iter().chain(self.json.keys()).chain(self.headers.keys());
        let not = self.not.iter().flat_map(|not| not.json.keys().chain(not.headers.keys()));
        self.patterns().chain(own.chain(not).map(String::as_str))
    }

    /// An expectation that no answer meets: the key of it, below `expect`, and why.
    pub(super) fn contradiction(&self) -> Option<(Vec<&'static str>, String)> {
        for path in self.json.keys() {
            if let Some(absent) = self.absent.iter().find(|absent| is_below(path, absent)) {
                let problem = format!("`{absent}` is absent, but `json` expects a value at `{path}`");
                return Some((vec!["absent"], problem));
            }
        }
        let not = self.not.as_deref()?;
        if *not == Exclusion::default() {
            return Some((vec!["not"], "it names nothing, such as `not: { status: 500 }`".into()));
        }
        let is_left = |status: &u16| {
            (self.status.is_empty() || self.status.contains(*status)) && !not.status.contains(*status)
        };
        if !STATUSES.into_iter().any(|status| is_left(&status)) {
            let problem = match self.status.is_empty() {
                true => "no status is left".to_owned(),
                false => format!("`status: {}` and this exclude each other", self.status),
            };
            return Some((vec!["not", "status"], problem));
        }
        let is_left = |code: &GrpcCode| {
            (self.code.is_empty() || self.code.contains(*code)) && !not.code.contains(*code)
        };
        if !(0..=GrpcCode::MAX).map(GrpcCode).any(|code| is_left(&code)) {
            let problem = match self.code.is_empty() {
                true => "no code is left".to_owned(),
                false => format!("`code: {}` and this exclude each other", self.code),
            };
            return Some((vec!["not", "code"], problem));
        }
        for (key, own, not) in [("body", &self.body, &not.body), ("message", &self.message, &not.message)] {
            if let Some(pattern) = own.as_ref().filter(|&own| Some(own) == not.as_ref()) {
                return Some((
                    vec!["not", key],
                    format!("the {key} cannot match `{pattern}` and not match it"),
                ));
            }
        }
        let both = |key: &str, pattern: &str| format!("`{key}` cannot match `{pattern}` and not match it");
        for (path, pattern) in &not.json {
            if self.json.get(path) == Some(pattern) {
                return Some((vec!["not", "json"], both(path, pattern)));
            }
        }
        for (name, pattern) in &not.headers {
            let is_same =
                |(own, wanted): (&String, &String)| own.eq_ignore_ascii_case(name) && wanted == pattern;
            if self.headers.iter().any(is_same) {
                return Some((vec!["not", "headers"], both(name, pattern)));
            }
        }
        None
    }
}

impl Expectation {
    /// The first key, below `expect`, that belongs to the other protocol.
    pub(super) fn misplaced(&self, is_grpc: bool) -> Option<Vec<&'static str>> {
        let not = self.not.as_deref();
        let given = [
            ("status", false, !self.status.is_empty(), not.is_some_and(|not| !not.status.is_empty())),
            ("body", false, self.body.is_some(), not.is_some_and(|not| not.body.is_some())),
            ("code", true, !self.code.is_empty(), not.is_some_and(|not| !not.code.is_empty())),
            ("message", true, self.message.is_some(), not.is_some_and(|not| not.message.is_some())),
        ];
        given.into_iter().filter(|(_, of_grpc, ..)| *of_grpc != is_grpc).find_map(
            |(key, _, own, not)| match (own, not) {
                (true, _) => Some(vec![key]),
                (false, true) => Some(vec!["not", key]),
                (false, false) => None,
            },
        )
    }
}

/// Whether a dotted path is the other one or lies below it.
pub(super) fn is_below(path: &str, above: &str) -> bool {
    path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// A status, or a class of them such as `2xx`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatusPattern {
    /// Just this one.
    Exact(u16),
    /// All that begin with this digit.
    Class(u16),
}

impl fmt::Display for StatusPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(status) => status.fmt(f),
            Self::Class(class) => write!(f, "{class}xx"),
        }
    }
}

impl FromStr for StatusPattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let class = text.to_ascii_lowercase().strip_suffix("xx").and_then(|class| class.parse().ok());
        match (class, text.parse()) {
            (Some(class @ 1..=5), _) => Ok(Self::Class(class)),
            (_, Ok(status)) if STATUSES.contains(&status) => Ok(Self::Exact(status)),
            _ => Err(format!("`{text}` is not a status; write `200`, `2xx`, or a list of them")),
        }
    }
}

/// Statuses of answers: one, a class, or a list of both.
pub type Statuses = Alternatives<StatusPattern>;

/// Codes of gRPC: one or a list, by name or number.
pub type Codes = Alternatives<GrpcCode>;

impl Alternative for StatusPattern {
    type Value = u16;
    const EXPECTED: &'static str = "a status such as `200`, a class such as `2xx`, or a list of them";

    fn parse(text: &str) -> Result<Self, String> {
        text.parse()
    }

    fn matches(&self, status: u16) -> bool {
        match self {
            Self::Exact(wanted) => status == *wanted,
            Self::Class(class) => status / 100 == *class,
        }
    }

    fn write<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Exact(status) => serializer.serialize_u16(*status),
            Self::Class(_) => serializer.collect_str(self),
        }
    }
}

impl Alternative for GrpcCode {
    type Value = Self;
    const EXPECTED: &'static str = "a code of gRPC such as `NOT_FOUND`, or a list of them";

    fn parse(text: &str) -> Result<Self, String> {
        Self::parse_known(text)
    }

    fn matches(&self, code: Self) -> bool {
        *self == code
    }

    fn write<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A regular expression; a number, `true`, `false` or `null` stands for itself.
struct Pattern(String);

impl<'de> Deserialize<'de> for Pattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PatternVisitor;
        impl PatternVisitor {
            fn literal(value: impl Into<serde_json::Value>) -> Pattern {
                Pattern(regex::escape(&value.into().to_string()))
            }
        }
        impl Visitor<'_> for PatternVisitor {
            type Value = Pattern;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a regular expression")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Pattern, E> {
                Ok(Pattern(text.to_owned()))
            }
            fn visit_bool<E: de::Error>(self, value: bool) -> Result<Pattern, E> {
                Ok(Self::literal(value))
            }
            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Pattern, E> {
                Ok(Self::literal(value))
            }
            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Pattern, E> {
                Ok(Self::literal(value))
            }
            fn visit_f64<E: de::Error>(self, value: f64) -> Result<Pattern, E> {
                Ok(Self::literal(value))
            }
            fn visit_unit<E: de::Error>(self) -> Result<Pattern, E> {
                Ok(Self::literal(serde_json::Value::Null))
            }
        }
        deserializer.deserialize_any(PatternVisitor)
    }
}

fn pattern<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    Ok(Some(Pattern::deserialize(from)?.0))
}

fn patterns<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, String>, D::Error> {
    let read: BTreeMap<String, Pattern> = BTreeMap::deserialize(from)?;
    Ok(read.into_iter().map(|(key, Pattern(pattern))| (key, pattern)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn read(text: &str) -> Expectation {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn statuses_are_numbers_classes_and_lists() {
        let statuses = |text: &str| serde_json::from_str::<Statuses>(text).map_err(|e| e.to_string());
        let some = statuses(r#"[200, "3xx"]"#).unwrap();
        assert!(some.contains(200) && some.contains(304) && !some.contains(201) && !some.contains(404));
        assert_eq!(some.to_string(), "200 or 3xx");
        for text in ["200", r#""2xx""#, r#"[200,"3xx"]"#] {
            assert_eq!(serde_json::to_string(&statuses(text).unwrap()).unwrap(), text);
        }
        for bad in ["20", "600", r#""6xx""#, r#""ok""#, "[]", "-1", "{}", "true"] {
            assert!(statuses(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn codes_are_names_and_numbers() {
        let codes = |text: &str| serde_json::from_str::<Codes>(text).map_err(|e| e.to_string());
        let some = codes(r#"["NOT_FOUND", 14]"#).unwrap();
        assert!(some.contains(GrpcCode(5)) && some.contains(GrpcCode(14)) && !some.contains(GrpcCode(0)));
        assert_eq!(serde_json::to_string(&some).unwrap(), r#"["NOT_FOUND","UNAVAILABLE"]"#);
        let wrong = codes(r#""NOTFOUND""#).unwrap_err();
        assert!(wrong.contains("did you mean `NOT_FOUND`?"), "{wrong}");
        assert!(codes("17").is_err() && codes("[]").is_err());
    }

    #[test]
    fn each_protocol_has_its_own_keys() {
        for (text, of_http, of_grpc) in [
            (r#"{"status":200}"#, None, Some(vec!["status"])),
            (r#"{"code":"OK"}"#, Some(vec!["code"]), None),
            (r#"{"not":{"message":"x"}}"#, Some(vec!["not", "message"]), None),
            (r#"{"json":{"a":"x"},"absent":["b"],"metadata":{"c":"d"}}"#, None, None),
        ] {
            let expect = read(text);
            assert_eq!((expect.misplaced(false), expect.misplaced(true)), (of_http, of_grpc), "{text}");
        }
    }

    #[test]
    fn what_is_not_named_is_not_written() {
        let text = r#"{"status":200,"json":{"a":"x"}}"#;
        assert_eq!(
            serde_json::to_string(&read(text)).unwrap(),
            text,
            "digests of older questions stay valid"
        );
    }

    #[test]
    fn values_stand_for_themselves() {
        let text = r#"{"json":{"a":1.5,"b":null,"c":true,"d":-3,"e":"x+"}}"#;
        let wanted = [("a", r"1\.5"), ("b", "null"), ("c", "true"), ("d", r"\-3"), ("e", "x+")];
        let wanted = wanted.map(|(path, pattern)| (path.to_owned(), pattern.to_owned()));
        assert_eq!(read(text).json, BTreeMap::from(wanted));
    }

    #[test]
    fn expectations_that_nothing_meets() {
        let cases = [
            (
                r#"{"status":200,"not":{"status":200}}"#,
                "not.status: `status: 200` and this exclude each other",
            ),
            (
                r#"{"status":[200,204],"not":{"status":"2xx"}}"#,
                "not.status: `status: 200 or 204` and this exclude each other",
            ),
            (r#"{"not":{"status":["1xx","2xx","3xx","4xx","5xx"]}}"#, "not.status: no status is left"),
            (r#"{"not":{}}"#, "not: it names nothing, such as `not: { status: 500 }`"),
            (r#"{"body":"a","not":{"body":"a"}}"#, "not.body: the body cannot match `a` and not match it"),
            (
                r#"{"json":{"a":"x"},"not":{"json":{"a":"x"}}}"#,
                "not.json: `a` cannot match `x` and not match it",
            ),
            (
                r#"{"headers":{"A":"x"},"not":{"headers":{"a":"x"}}}"#,
                "not.headers: `a` cannot match `x` and not match it",
            ),
            (r#"{"code":"OK","not":{"code":0}}"#, "not.code: `code: OK` and this exclude each other"),
            (
                r#"{"message":"a","not":{"message":"a"}}"#,
                "not.message: the message cannot match `a` and not match it",
            ),
            (
                r#"{"json":{"a.b":"x"},"absent":["a"]}"#,
                "absent: `a` is absent, but `json` expects a value at `a.b`",
            ),
        ];
        for (text, problem) in cases {
            let (key, found) = read(text).contradiction().unwrap();
            assert_eq!(format!("{}: {found}", key.join(".")), problem);
        }
        for fine in [
            r#"{"status":"2xx","not":{"status":204}}"#,
            r#"{"json":{"ab":"x"},"absent":["a"]}"#,
            r#"{"json":{"a":"x+"},"not":{"json":{"a":"xx"}}}"#,
        ] {
            assert_eq!(read(fine).contradiction(), None, "{fine}");
        }
    }
}
