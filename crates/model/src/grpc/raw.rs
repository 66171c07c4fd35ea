//! Messages whose type nobody knows, by the numbers of their fields.

use base64::Engine as _;
use serde_json::{Map, Value, json};

use super::wire::{WireEnd, WireField, WireReader, WireValue};

/// Deeper messages are shown as bytes.
const MAX_DEPTH: usize = 24;

/// Decodes a message without its descriptor: `{"1": "abc", "2": 7, "3": {"1": true}}`. None if the bytes are no message.
///
/// Only what the bytes say is shown. Numbers of fixed length are hexadecimal, since they may be fractions. Bytes are a
/// text if they are readable, a message if they are one from the first to the last byte, and `{"base64": ..}`
/// otherwise. Two letters are often a valid message as well, so readable text without control characters is never
/// taken for one.
pub fn decode_raw(bytes: &[u8], is_cut: bool) -> Option<Value> {
    read_message(bytes, is_cut, 0).map(Value::Object)
}

fn read_message(bytes: &[u8], is_cut: bool, depth: usize) -> Option<Map<String, Value>> {
    let mut reader = WireReader::new(bytes);
    let (fields, end) = read_fields(&mut reader, is_cut, depth, None);
    match end {
        Ok(()) => Some(fields),
        // What a cut body ends in is left out.
        Err(WireEnd::Cut) if is_cut => Some(fields),
        Err(_) => None,
    }
}

/// Reads until the end of the message, or of the group that it is in.
fn read_fields(
    reader: &mut WireReader<'_>,
    is_cut: bool,
    depth: usize,
    group: Option<u32>,
) -> (Map<String, Value>, Result<(), WireEnd>) {
    let mut fields = Map::new();
    loop {
        let WireField { number, value } = match reader.next_field() {
            Ok(Some(field)) => field,
            Ok(None) => return (fields, if group.is_none() { Ok(()) } else { Err(WireEnd::Cut) }),
            Err(end) => return (fields, Err(end)),
        };
        let shown = match value {
            WireValue::Varint(value) => json!(value),
            WireValue::Fixed64(value) => json!(format!("{value:#018x}")),
            WireValue::Fixed32(value) => json!(format!("{value:#010x}")),
            WireValue::Bytes { missing, .. } if missing > 0 && !is_cut => return (fields, Err(WireEnd::Cut)),
            WireValue::Bytes { content, missing } => show_bytes(content, missing > 0, depth),
            WireValue::GroupStart if depth >= MAX_DEPTH => return (fields, Err(WireEnd::Damaged)),
            WireValue::GroupStart => {
                let (inner, end) = read_fields(reader, is_cut, depth + 1, Some(number));
                add(&mut fields, number, Value::Object(inner));
                match end {
                    Ok(()) => continue,
                    Err(_) => return (fields, end),
                }
            }
            WireValue::GroupEnd if group == Some(number) => return (fields, Ok(())),
            WireValue::GroupEnd => return (fields, Err(WireEnd::Damaged)),
        };
        add(&mut fields, number, shown);
    }
}

/// A field that occurs again makes a list.
fn add(fields: &mut Map<String, Value>, number: u32, value: Value) {
    match fields.get_mut(&number.to_string()) {
        // No single value is a list, so a list is always made of repetitions.
        Some(Value::Array(list)) => list.push(value),
        Some(first) => *first = Value::Array(vec![first.take(), value]),
        None => {
            fields.insert(number.to_string(), value);
        }
    }
}

fn show_bytes(content: &[u8], is_cut: bool, depth: usize) -> Value {
    let text = match std::str::from_utf8(content) {
        Ok(text) => Some(text),
        // The last letter of a cut text may be incomplete.
        Err(error) if is_cut && error.error_len().is_none() => {
            std::str::from_utf8(&content[..error.valid_up_to()]).ok()
        }
        Err(_) => None,
    };
    let is_plain = text.is_some_and(|text| !text.chars().any(char::is_control));
    if let Some(text) = text.filter(|_| is_plain) {
        return json!(text);
    }
    // Tags of the first fields are control characters, a line feed among them.
    if depth < MAX_DEPTH
        && let Some(message) = read_message(content, is_cut, depth + 1)
        && !message.is_empty()
    {
        return Value::Object(message);
    }
    let is_readable = |text: &&str| text.chars().all(|c| !c.is_control() || matches!(c, '\n' | '\r' | '\t'));
    match text.filter(is_readable) {
        Some(text) => json!(text),
        None => json!({ "base64": base64::engine::general_purpose::STANDARD.encode(content) }),
    }
}
