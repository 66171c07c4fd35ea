//! Compares the answers of a replay with the recorded ones.
//!
//! Answers are compared field by field where they are JSON. What also differs between two replays of the same thing is
//! noise: it is counted and listed, but is no difference. Rules of the user come first.

mod json;
mod path;
mod rules;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use faultscope_model::recording::Answer;
use serde::{Deserialize, Serialize};

pub use path::{FieldPath, PathError, PathPattern};
pub use rules::{FieldRule, FieldRules, Requirement, RuleError};

/// The most differences of one answer that are listed; the rest is counted.
pub const MAX_DIFFERENCES: usize = 50;

/// Where two answers differ.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind", content = "at")]
pub enum Place {
    /// How the call ended: its HTTP status, its gRPC status, or why there was no answer.
    Status,
    /// A header, in lower case.
    Header(String),
    /// A field of a JSON body.
    Field(FieldPath),
    /// A body that is no JSON.
    Body,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status => f.write_str("status"),
            Self::Header(name) => write!(f, "header {name}"),
            Self::Field(path) => path.fmt(f),
            Self::Body => f.write_str("body"),
        }
    }
}

impl Place {
    /// The same place in all answers to the same operation: any element of a list is the same place.
    fn pattern(&self) -> PlacePattern {
        match self {
            Self::Status => PlacePattern::Status,
            Self::Header(name) => PlacePattern::Header(name.clone()),
            Self::Field(path) => PlacePattern::Field(path.pattern()),
            Self::Body => PlacePattern::Body,
        }
    }
}

/// A place in all answers to an operation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind", content = "at")]
pub enum PlacePattern {
    /// How the call ended.
    Status,
    /// A header, in lower case.
    Header(String),
    /// A field, in any element of the lists around it.
    Field(PathPattern),
    /// A body that is no JSON.
    Body,
}

impl fmt::Display for PlacePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status => f.write_str("status"),
            Self::Header(name) => write!(f, "header {name}"),
            Self::Field(pattern) => pattern.fmt(f),
            Self::Body => f.write_str("body"),
        }
    }
}

/// A difference between two answers. A value is none where the place exists only on the other side.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Difference {
    /// Where.
    #[serde(flatten)]
    pub place: Place,
    /// What was recorded.
    pub recorded: Option<String>,
    /// What the replay got.
    pub replayed: Option<String>,
}

/// The result of comparing two answers.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Comparison {
    /// The differences, at most [`MAX_DIFFERENCES`].
    pub differences: Vec<Difference>,
    /// Differences beyond those.
    pub more: usize,
    /// Fields, headers and the rest that were compared.
    pub compared: usize,
    /// Why part of the answer could not be compared.
    pub incomparable: Option<Incomparable>,
}

/// Why an answer could not be compared as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Incomparable {
    /// Only the beginning of the recorded body is there.
    RecordedInPart,
    /// The replayed body was larger than what is read.
    ReplayedInPart,
}

impl fmt::Display for Incomparable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RecordedInPart => "only the beginning of the answer was recorded",
            Self::ReplayedInPart => "the answer of the replay is too large",
        })
    }
}

/// Headers that belong to the connection, the time or the trace of an answer. The length of a body is seen in it.
const UNCOMPARED_HEADERS: [&str; 12] = [
    "age",
    "connection",
    "content-length",
    "date",
    "grpc-message",
    "grpc-status",
    "keep-alive",
    "server-timing",
    "traceparent",
    "tracestate",
    "trailer",
    "transfer-encoding",
];

/// Compares two answers to the same request.
pub fn compare_answers(recorded: &Answer, replayed: &Answer) -> Comparison {
    let mut found = Comparison::default();
    let statuses = (describe_status(recorded), describe_status(replayed));
    found.add(Place::Status, Some(statuses.0), Some(statuses.1));
    let mut headers = (headers_of(recorded), headers_of(replayed));
    if recorded.headers.is_empty() {
        // Whoever recorded it kept no headers, so none can be missed.
        headers.1.clear();
    }
    let names: BTreeSet<&String> = headers.0.keys().chain(headers.1.keys()).collect();
    for name in names {
        let value = |side: &BTreeMap<String, String>| side.get(name).cloned();
        found.add(Place::Header(name.clone()), value(&headers.0), value(&headers.1));
    }
    compare_bodies(recorded, replayed, &mut found);
    found
}

fn compare_bodies(recorded: &Answer, replayed: &Answer, found: &mut Comparison) {
    if !recorded.is_whole() {
        // What is there must be equal, which proves nothing about the rest.
        let beginning = &replayed.body[..recorded.body.len().min(replayed.body.len())];
        if beginning == recorded.body {
            found.compared += 1;
        } else {
            found.add_texts(&recorded.body, beginning);
        }
        found.incomparable = Some(Incomparable::RecordedInPart);
        return;
    }
    if !replayed.is_whole() {
        found.incomparable = Some(Incomparable::ReplayedInPart);
    }
    match (json_of(recorded), json_of(replayed)) {
        (Some(recorded), Some(replayed)) => {
            json::compare(&recorded, &replayed, &mut FieldPath::root(), found);
        }
        _ if recorded.body == replayed.body => found.compared += 1,
        _ => found.add_texts(&recorded.body, &replayed.body),
    }
}

fn json_of(answer: &Answer) -> Option<serde_json::Value> {
    match &answer.decoded {
        Some(text) => serde_json::from_str(text).ok(),
        None => serde_json::from_slice(&answer.body).ok(),
    }
}

fn describe_status(answer: &Answer) -> String {
    let words = [
        answer.status.filter(|status| answer.grpc_status.is_none() || *status >= 300).map(|s| s.to_string()),
        answer.grpc_status.map(|code| faultscope_model::grpc::GrpcCode(code).to_string()),
        answer.error.as_ref().map(ToString::to_string),
    ];
    words.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

fn headers_of(answer: &Answer) -> BTreeMap<String, String> {
    let mut headers: BTreeMap<String, String> = BTreeMap::new();
    for (name, value) in &answer.headers {
        let name = name.to_ascii_lowercase();
        if !UNCOMPARED_HEADERS.contains(&name.as_str()) {
            let all = headers.entry(name).or_default();
            if !all.is_empty() {
                all.push_str(", ");
            }
            all.push_str(value);
        }
    }
    headers
}

impl Comparison {
    fn add(&mut self, place: Place, recorded: Option<String>, replayed: Option<String>) {
        self.compared += 1;
        if recorded == replayed {
            return;
        }
        if self.differences.len() < MAX_DIFFERENCES {
            self.differences.push(Difference { place, recorded, replayed });
        } else {
            self.more += 1;
        }
    }

    /// Texts are shown from where they begin to differ.
    fn add_texts(&mut self, recorded: &[u8], replayed: &[u8]) {
        let same = recorded.iter().zip(replayed).take_while(|(a, b)| a == b).count();
        let excerpt = |bytes: &[u8]| {
            let from = same.saturating_sub(20).min(bytes.len());
            let until = (same + 60).min(bytes.len());
            let text = String::from_utf8_lossy(&bytes[from..until]).into_owned();
            let (before, behind) =
                (if from > 0 { "…" } else { "" }, if until < bytes.len() { "…" } else { "" });
            Some(format!("{before}{text}{behind}"))
        };
        self.add(Place::Body, excerpt(recorded), excerpt(replayed));
    }
}

/// Places that differ between executions of the same thing, by operation.
#[derive(Debug, Clone, Default)]
pub struct Noise {
    places: BTreeMap<String, BTreeSet<PlacePattern>>,
}

impl Noise {
    /// Learns from two answers to the same request.
    pub fn learn(&mut self, operation: &str, one: &Answer, other: &Answer) {
        let comparison = compare_answers(one, other);
        if comparison.differences.is_empty() {
            return;
        }
        let places = self.places.entry(operation.to_owned()).or_default();
        places.extend(comparison.differences.iter().map(|difference| difference.place.pattern()));
    }

    /// Whether a place differs anyway.
    pub fn covers(&self, operation: &str, place: &Place) -> bool {
        self.places.get(operation).is_some_and(|places| places.contains(&place.pattern()))
    }

    /// All noisy places by operation.
    pub fn places(&self) -> &BTreeMap<String, BTreeSet<PlacePattern>> {
        &self.places
    }
}

/// A comparison after rules and noise.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Judged {
    /// What differs.
    pub differences: Vec<Difference>,
    /// Differences that are noise.
    pub noise: usize,
}

/// Takes noise and what the user's rules allow out of a comparison.
pub fn judge_differences(
    comparison: &Comparison,
    operation: &str,
    noise: &Noise,
    rules: &FieldRules,
) -> Judged {
    let mut judged = Judged::default();
    for difference in &comparison.differences {
        match rules.allow(difference) {
            Some(true) => {}
            None if noise.covers(operation, &difference.place) => judged.noise += 1,
            Some(false) | None => judged.differences.push(difference.clone()),
        }
    }
    judged
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, headers: &[(&str, &str)], body: &str) -> Answer {
        let header = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Answer {
            status: Some(status),
            headers: headers.iter().map(header).collect(),
            body: body.into(),
            bytes: body.len() as u64,
            ..Answer::default()
        }
    }

    fn places(recorded: &Answer, replayed: &Answer) -> Vec<String> {
        compare_answers(recorded, replayed).differences.iter().map(|d| d.place.to_string()).collect()
    }

    #[test]
    fn status_headers_and_fields_are_compared() {
        let recorded = answer(
            200,
            &[("Content-Type", "a"), ("Date", "1"), ("Gone", "x")],
            r#"{"a": [1, {"b": 2}], "c": null}"#,
        );
        let replayed = answer(
            500,
            &[("content-type", "b"), ("date", "2")],
            r#"{"a": [1, {"b": 3}, 4], "d": 1, "c": null}"#,
        );
        assert_eq!(
            places(&recorded, &replayed),
            ["status", "header content-type", "header gone", "$.a", "$.a[1].b", "$.d"]
        );
        assert!(places(&recorded, &recorded).is_empty());
    }

    #[test]
    fn numbers_are_equal_by_value_and_keys_in_any_order() {
        let (one, other) = (answer(200, &[], r#"{"a": 1.0, "b": 2}"#), answer(200, &[], r#"{"b":2,"a":1}"#));
        assert!(places(&one, &other).is_empty());
    }

    #[test]
    fn a_part_proves_nothing_but_shows_a_difference() {
        let mut recorded = answer(200, &[], "the beginning");
        recorded.bytes = 5000;
        let equal = compare_answers(&recorded, &answer(200, &[], "the beginning and the rest"));
        assert_eq!((equal.differences.len(), equal.incomparable), (0, Some(Incomparable::RecordedInPart)));
        let other = compare_answers(&recorded, &answer(200, &[], "another text"));
        assert_eq!(other.differences.len(), 1);
    }

    #[test]
    fn what_differs_between_two_replays_is_noise_everywhere_in_a_list() {
        let list = |ids: &[u32], sum: u32| {
            let items: Vec<_> = ids.iter().map(|id| serde_json::json!({"id": id, "n": 1})).collect();
            answer(200, &[], &serde_json::json!({"items": items, "sum": sum}).to_string())
        };
        let mut noise = Noise::default();
        noise.learn("op", &list(&[1, 7], 3), &list(&[1, 8], 3));
        let comparison = compare_answers(&list(&[4, 5], 3), &list(&[6, 7], 4));
        let judged = judge_differences(&comparison, "op", &noise, &FieldRules::default());
        assert_eq!(judged.noise, 2);
        assert_eq!(judged.differences.iter().map(|d| d.place.to_string()).collect::<Vec<_>>(), ["$.sum"]);
        let other = judge_differences(&comparison, "other op", &noise, &FieldRules::default());
        assert_eq!(other.differences.len(), 3, "noise of one operation is none of another");
        let listed: Vec<_> = noise.places()["op"].iter().map(ToString::to_string).collect();
        assert_eq!(listed, ["$.items[*].id"]);
    }

    #[test]
    fn endless_differences_are_counted() {
        let list = |n: u32| {
            answer(200, &[], &serde_json::json!((0..500).map(|i| i * n).collect::<Vec<_>>()).to_string())
        };
        let comparison = compare_answers(&list(1), &list(2));
        assert_eq!((comparison.differences.len(), comparison.more), (MAX_DIFFERENCES, 499 - MAX_DIFFERENCES));
    }
}
