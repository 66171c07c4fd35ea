//! What stands for `${name}` in a step: a value that an earlier step saved, or one of the slot.

use std::collections::BTreeMap;

use faultscope_model::application::{Expansion, fill_path, fill_placeholders};
use regex::Regex;
use serde_json::Value;

/// The values that steps have saved so far, and those of the slot.
pub(super) struct Values<'a> {
    expansion: &'a Expansion,
    saved: BTreeMap<String, String>,
}

impl<'a> Values<'a> {
    pub(super) fn new(expansion: &'a Expansion) -> Self {
        Self { expansion, saved: BTreeMap::new() }
    }

    pub(super) fn save(&mut self, name: &str, value: String) {
        self.saved.insert(name.to_owned(), value);
    }

    fn value(&self, name: &str) -> Option<String> {
        self.saved.get(name).cloned().or_else(|| self.expansion.value(name))
    }

    pub(super) fn fill(&self, text: &str) -> String {
        fill_placeholders(text, |name| self.value(name))
    }

    /// Fills in the texts and the keys of a JSON value.
    pub(super) fn fill_json(&self, json: &Value) -> Value {
        match json {
            Value::String(text) => Value::String(self.fill(text)),
            Value::Array(items) => items.iter().map(|item| self.fill_json(item)).collect(),
            Value::Object(map) => {
                map.iter().map(|(key, value)| (self.fill(key), self.fill_json(value))).collect()
            }
            other => other.clone(),
        }
    }

    /// A regular expression that matches anywhere; values match literally.
    pub(super) fn regex(&self, pattern: &str) -> Result<Regex, String> {
        Regex::new(&self.fill_escaped(pattern)).map_err(|e| e.to_string())
    }

    /// A regular expression that matches whole texts; values match literally.
    pub(super) fn whole_regex(&self, pattern: &str) -> Result<Regex, String> {
        Regex::new(&format!("^(?:{})$", self.fill_escaped(pattern))).map_err(|e| e.to_string())
    }

    fn fill_escaped(&self, pattern: &str) -> String {
        fill_placeholders(pattern, |name| self.value(name).map(|value| regex::escape(&value)))
    }

    /// The value at a dotted path; numbers are indexes into a list.
    pub(super) fn look_up<'j>(&self, json: &'j Value, path: &str, keys: Keys) -> Option<&'j Value> {
        let segments = fill_path(path, |name| self.value(name));
        segments.iter().try_fold(json, |here, segment| match here {
            Value::Object(map) => map.get(segment).or_else(|| match keys {
                Keys::Exact => None,
                Keys::Protobuf => map.get(&json_name(segment)),
            }),
            Value::Array(items) => items.get(segment.parse::<usize>().ok()?),
            _ => None,
        })
    }

    /// Writes a message twice: for people with all values, and for the signature without them. `write` gets the
    /// function that fills in a text of the file.
    pub(super) fn message(&self, write: impl Fn(&dyn Fn(&str) -> String) -> String) -> Message {
        Message { shown: write(&|text| self.fill(text)), unfilled: write(&|text| text.to_owned()) }
    }
}

/// How keys of an answer are named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keys {
    /// As they are.
    Exact,
    /// As protobuf maps them to JSON. The name of the field in its `.proto` file is as good, as in requests.
    Protobuf,
}

/// The name in JSON of a field of protobuf: `orderId` for `order_id`.
fn json_name(field: &str) -> String {
    let mut parts = field.split('_');
    let mut name = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let mut letters = part.chars();
        name.extend(letters.next().map(|first| first.to_ascii_uppercase()));
        name.push_str(letters.as_str());
    }
    name
}

/// What is wrong with an answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Message {
    /// With the values of placeholders.
    pub(super) shown: String,
    /// With the placeholders themselves.
    pub(super) unfilled: String,
}

/// A message that contains nothing of the file.
impl From<String> for Message {
    fn from(text: String) -> Self {
        Self { shown: text.clone(), unfilled: text }
    }
}

#[cfg(test)]
mod tests {
    use faultscope_model::SlotId;
    use serde_json::json;

    use super::*;

    #[test]
    fn filling_reaches_into_texts_and_keys() {
        let expansion = Expansion { program: "/bin/fs".into(), slot: SlotId(3) };
        let mut values = Values::new(&expansion);
        values.save("x", "a.b".into());
        let filled = values.fill_json(&json!({"${x}": ["${x}", 1], "b": {"c": "-${slot}-"}}));
        assert_eq!(filled, json!({"a.b": ["a.b", 1], "b": {"c": "-3-"}}));
        let json = json!({"list": [{"a.b": 7}]});
        assert_eq!(
            values.look_up(&json, "list.0.${x}", Keys::Exact),
            Some(&json!(7)),
            "a value is one segment"
        );
        assert_eq!(values.look_up(&json, "list.0.a.b", Keys::Exact), None);
        assert!(values.whole_regex("${x}|y").unwrap().is_match("a.b"));
        assert!(!values.whole_regex("${x}").unwrap().is_match("aXb"), "a value is no pattern");
    }

    #[test]
    fn fields_of_protobuf_have_two_names() {
        let expansion = Expansion { program: "/bin/fs".into(), slot: SlotId(3) };
        let (values, json) = (Values::new(&expansion), json!({"order": {"orderId": 7, "line_2": 8}}));
        let look_up = |path, keys| values.look_up(&json, path, keys).and_then(Value::as_i64);
        assert_eq!(look_up("order.order_id", Keys::Protobuf), Some(7));
        assert_eq!(look_up("order.orderId", Keys::Protobuf), Some(7));
        assert_eq!(look_up("order.line_2", Keys::Protobuf), Some(8), "a key of a map stays as it is");
        assert_eq!(
            look_up("order.order_id", Keys::Exact),
            None,
            "another key of an HTTP answer is another key"
        );
    }
}
