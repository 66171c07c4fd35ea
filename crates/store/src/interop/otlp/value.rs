//! Attributes: keys with values of any type, and their texts.

use std::borrow::Cow;
use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use prost::{Message, Oneof};
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde::ser::{SerializeMap, Serializer};
use serde::{Deserialize, Serialize};

use super::scalars::{double, nullable, signed};

/// An attribute.
#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(default)]
pub(in crate::interop) struct KeyValue {
    #[prost(string, tag = "1")]
    #[serde(deserialize_with = "nullable")]
    pub(super) key: String,
    #[prost(message, optional, tag = "2")]
    pub(super) value: Option<AnyValue>,
}

/// A value of any kind.
#[derive(Clone, PartialEq, Message)]
pub(in crate::interop) struct AnyValue {
    #[prost(oneof = "Value", tags = "1, 2, 3, 4, 5, 6, 7")]
    pub(super) value: Option<Value>,
}

/// The kinds of values.
#[derive(Clone, PartialEq, Oneof)]
pub(in crate::interop) enum Value {
    #[prost(string, tag = "1")]
    String(String),
    #[prost(bool, tag = "2")]
    Bool(bool),
    #[prost(int64, tag = "3")]
    Int(i64),
    #[prost(double, tag = "4")]
    Double(f64),
    #[prost(message, tag = "5")]
    Array(ArrayValue),
    #[prost(message, tag = "6")]
    List(KeyValueList),
    #[prost(bytes = "vec", tag = "7")]
    Bytes(Vec<u8>),
}

/// Values one after the other.
#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(default)]
pub(in crate::interop) struct ArrayValue {
    #[prost(message, repeated, tag = "1")]
    #[serde(deserialize_with = "nullable")]
    pub(super) values: Vec<AnyValue>,
}

/// Values with keys.
#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(default)]
pub(in crate::interop) struct KeyValueList {
    #[prost(message, repeated, tag = "1")]
    #[serde(deserialize_with = "nullable")]
    pub(super) values: Vec<KeyValue>,
}

impl KeyValue {
    pub(super) fn new(key: &str, value: Value) -> Self {
        Self { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }) }
    }

    /// Its key and the text of its value.
    pub(super) fn into_texts(self) -> (String, String) {
        match self.value {
            Some(AnyValue { value: Some(Value::String(text)) }) => (self.key, text),
            value => {
                let text = Self { key: String::new(), value }.text().into_owned();
                (self.key, text)
            }
        }
    }

    /// The text of its value; arrays and maps as JSON.
    pub(super) fn text(&self) -> Cow<'_, str> {
        let Some(value) = self.value.as_ref().and_then(|value| value.value.as_ref()) else {
            return Cow::Borrowed("");
        };
        match value {
            Value::String(text) => Cow::Borrowed(text),
            Value::Bool(truth) => Cow::Borrowed(if *truth { "true" } else { "false" }),
            Value::Int(number) => Cow::Owned(number.to_string()),
            Value::Double(number) => Cow::Owned(number.to_string()),
            Value::Bytes(bytes) => Cow::Owned(STANDARD.encode(bytes)),
            Value::Array(_) | Value::List(_) => Cow::Owned(plain(value).to_string()),
        }
    }
}

/// Attributes as a plain JSON object.
pub(super) fn plain_object(attributes: &[KeyValue]) -> serde_json::Value {
    let entry = |attribute: &KeyValue| (attribute.key.clone(), plain_any(attribute.value.as_ref()));
    serde_json::Value::Object(attributes.iter().map(entry).collect())
}

/// Attributes of a plain JSON object.
pub(super) fn from_plain(value: &serde_json::Value) -> Value {
    match value {
        serde_json::Value::String(text) => Value::String(text.clone()),
        serde_json::Value::Bool(truth) => Value::Bool(*truth),
        serde_json::Value::Number(number) => match number.as_i64() {
            Some(number) => Value::Int(number),
            None => Value::Double(number.as_f64().unwrap_or_default()),
        },
        other => Value::String(other.to_string()),
    }
}

fn plain_any(value: Option<&AnyValue>) -> serde_json::Value {
    value.and_then(|value| value.value.as_ref()).map_or(serde_json::Value::Null, plain)
}

/// The depth is bounded by the decoders: 100 messages in protobuf, 128 levels in JSON.
fn plain(value: &Value) -> serde_json::Value {
    match value {
        Value::String(text) => text.clone().into(),
        Value::Bool(truth) => (*truth).into(),
        Value::Int(number) => (*number).into(),
        // What JSON cannot represent becomes text.
        Value::Double(number) if !number.is_finite() => number.to_string().into(),
        Value::Double(number) => (*number).into(),
        Value::Bytes(bytes) => STANDARD.encode(bytes).into(),
        Value::Array(array) => array.values.iter().map(|value| plain_any(Some(value))).collect(),
        Value::List(list) => plain_object(&list.values),
    }
}

// === impl AnyValue ===

impl Serialize for AnyValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        match &self.value {
            Some(Value::String(text)) => map.serialize_entry("stringValue", text)?,
            Some(Value::Bool(truth)) => map.serialize_entry("boolValue", truth)?,
            Some(Value::Int(number)) => map.serialize_entry("intValue", &number.to_string())?,
            Some(Value::Double(number)) if number.is_finite() => {
                map.serialize_entry("doubleValue", number)?
            }
            Some(Value::Double(number)) => map.serialize_entry("doubleValue", &number.to_string())?,
            Some(Value::Bytes(bytes)) => map.serialize_entry("bytesValue", &STANDARD.encode(bytes))?,
            Some(Value::Array(array)) => map.serialize_entry("arrayValue", array)?,
            Some(Value::List(list)) => map.serialize_entry("kvlistValue", list)?,
            None => {}
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for AnyValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AnyVisitor;
        impl<'de> Visitor<'de> for AnyVisitor {
            type Value = AnyValue;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value such as {\"stringValue\": \"x\"}")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<AnyValue, A::Error> {
                let mut value = None;
                while let Some(key) = map.next_key::<Cow<'de, str>>()? {
                    value = match key.as_ref() {
                        "stringValue" => map.next_value::<Option<String>>()?.map(Value::String),
                        "boolValue" => map.next_value::<Option<bool>>()?.map(Value::Bool),
                        "intValue" => map.next_value::<Option<Signed>>()?.map(|Signed(n)| Value::Int(n)),
                        "doubleValue" => {
                            map.next_value::<Option<Double>>()?.map(|Double(n)| Value::Double(n))
                        }
                        "arrayValue" => map.next_value::<Option<ArrayValue>>()?.map(Value::Array),
                        "kvlistValue" => map.next_value::<Option<KeyValueList>>()?.map(Value::List),
                        "bytesValue" => {
                            map.next_value::<Option<Base64>>()?.map(|Base64(bytes)| Value::Bytes(bytes))
                        }
                        _ => {
                            map.next_value::<IgnoredAny>()?;
                            value
                        }
                    };
                }
                Ok(AnyValue { value })
            }
        }
        deserializer.deserialize_map(AnyVisitor)
    }
}

struct Signed(i64);

impl<'de> Deserialize<'de> for Signed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        signed(deserializer).map(Self)
    }
}

struct Double(f64);

impl<'de> Deserialize<'de> for Double {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        double(deserializer).map(Self)
    }
}

struct Base64(Vec<u8>);

impl<'de> Deserialize<'de> for Base64 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        STANDARD.decode(text.as_bytes()).map(Self).map_err(serde::de::Error::custom)
    }
}
