//! Decoded messages as JSON, as protobuf maps them. Fields that the descriptor does not know are shown by number.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use prost_reflect::{DynamicMessage, EnumDescriptor, FieldDescriptor, Kind, MapKey, ReflectMessage, Value};
use serde_json::{Map, Value as Json, json};

use super::raw::decode_raw;

/// Whether fields are shown that have the value they have by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Defaults {
    LeaveOut,
    Show,
}

pub(super) fn show_message(message: &DynamicMessage, defaults: Defaults) -> Json {
    let kind = message.descriptor();
    // Times, wrappers and the like have a form of their own. Values out of its range are shown by field.
    if kind.package_name() == "google.protobuf"
        && let Ok(json) = serde_json::to_value(message)
    {
        return json;
    }
    let mut fields = Map::new();
    let mut add = |field: &FieldDescriptor, value: &Value| {
        fields.insert(field.json_name().to_owned(), show_field(field, value, defaults));
    };
    for (field, value) in message.fields() {
        add(&field, value);
    }
    if defaults == Defaults::Show {
        // A field that can be absent is absent, as one of several alternatives.
        for field in kind.fields().filter(|field| !field.supports_presence() && !message.has_field(field)) {
            add(&field, &message.get_field(&field));
        }
    }
    for (extension, value) in message.extensions() {
        fields.insert(extension.json_name().to_owned(), show_value(&extension.kind(), value, defaults));
    }
    let mut unknown = Vec::new();
    message.unknown_fields().for_each(|field| field.encode(&mut unknown));
    if let Some(Json::Object(unknown)) = decode_raw(&unknown, false) {
        fields.extend(unknown);
    }
    Json::Object(fields)
}

fn show_field(field: &FieldDescriptor, value: &Value, defaults: Defaults) -> Json {
    match (value, field.kind()) {
        (Value::Map(entries), Kind::Message(entry)) if field.is_map() => {
            let kind = entry.map_entry_value_field().kind();
            let mut shown: Vec<(String, Json)> = entries
                .iter()
                .map(|(key, value)| (show_key(key), show_value(&kind, value, defaults)))
                .collect();
            // The decoder has no order of entries; the same message must always read the same.
            shown.sort_by(|one, other| one.0.cmp(&other.0));
            Json::Object(shown.into_iter().collect())
        }
        (value, kind) => show_value(&kind, value, defaults),
    }
}

fn show_value(kind: &Kind, value: &Value, defaults: Defaults) -> Json {
    match value {
        Value::Bool(value) => json!(value),
        Value::I32(value) => json!(value),
        Value::U32(value) => json!(value),
        // As text: numbers of JSON are exact up to 53 bits only.
        Value::I64(value) => json!(value.to_string()),
        Value::U64(value) => json!(value.to_string()),
        Value::F32(value) => show_float(f64::from(*value), || json!(value)),
        Value::F64(value) => show_float(*value, || json!(value)),
        Value::String(value) => json!(value),
        Value::Bytes(value) => json!(STANDARD.encode(value)),
        Value::EnumNumber(number) => show_enum(kind.as_enum(), *number),
        Value::Message(message) => show_message(message, defaults),
        Value::List(list) => list.iter().map(|value| show_value(kind, value, defaults)).collect(),
        // Maps occur in fields only.
        Value::Map(_) => Json::Null,
    }
}

fn show_float(value: f64, finite: impl FnOnce() -> Json) -> Json {
    if value.is_nan() {
        json!("NaN")
    } else if value.is_infinite() {
        json!(if value > 0.0 { "Infinity" } else { "-Infinity" })
    } else {
        finite()
    }
}

fn show_enum(kind: Option<&EnumDescriptor>, number: i32) -> Json {
    let name = kind.and_then(|kind| kind.get_value(number));
    name.map_or_else(|| json!(number), |name| json!(name.name()))
}

fn show_key(key: &MapKey) -> String {
    match key {
        MapKey::Bool(key) => key.to_string(),
        MapKey::I32(key) => key.to_string(),
        MapKey::I64(key) => key.to_string(),
        MapKey::U32(key) => key.to_string(),
        MapKey::U64(key) => key.to_string(),
        MapKey::String(key) => key.clone(),
    }
}
