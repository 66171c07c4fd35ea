//! Encoded messages with some of their values replaced, or with their cut end left out.

use prost_reflect::{FieldDescriptor, Kind, MessageDescriptor};

use super::raw::decode_raw;
use super::wire::{WireEnd, WireField, WireReader, WireValue, write_bytes, write_field};

/// Deeper messages stay as they are; as deep as the decoder reads.
const MAX_DEPTH: usize = 100;

/// What stands in place of a hidden text.
const HIDDEN: &[u8] = b"[redacted]";

/// Decides which values of a message are hidden.
pub trait Hide {
    /// Whether the field at this path is hidden, whatever it holds. The last element is its name in JSON.
    fn is_secret(&mut self, path: &[String]) -> bool;
    /// Takes note of a value that is hidden.
    fn on_secret(&mut self, value: &[u8]);
    /// What stands in place of a text in a field that is not hidden; none keeps it.
    fn replace_text(&mut self, text: &[u8]) -> Option<Vec<u8>>;
}

/// An encoded message with values replaced; none if there is nothing to replace. Lengths are those of the new values.
/// Where bytes are missing at the end, as many are missing afterwards.
pub(super) fn hide_values(
    kind: Option<&MessageDescriptor>,
    bytes: &[u8],
    hide: &mut dyn Hide,
) -> Option<Vec<u8>> {
    let mut rewriter = Rewriter { hide, path: Vec::new(), has_changed: false };
    let mut out = Vec::with_capacity(bytes.len() + HIDDEN.len());
    let mut reader = WireReader::new(bytes);
    rewriter.message(kind, &mut reader, None, &mut out);
    out.extend(reader.rest());
    rewriter.has_changed.then_some(out)
}

struct Rewriter<'h> {
    hide: &'h mut dyn Hide,
    path: Vec<String>,
    has_changed: bool,
}

impl Rewriter<'_> {
    /// Copies the fields of a message or of a group. What cannot be read stays in the reader.
    fn message(
        &mut self,
        kind: Option<&MessageDescriptor>,
        reader: &mut WireReader<'_>,
        group: Option<u32>,
        out: &mut Vec<u8>,
    ) {
        loop {
            let before = *reader;
            let Ok(Some(field)) = reader.next_field() else {
                *reader = before;
                return;
            };
            let known = kind.and_then(|kind| kind.get_field(field.number));
            match field.value {
                WireValue::GroupEnd => {
                    write_field(field, out);
                    if group == Some(field.number) {
                        return;
                    }
                }
                WireValue::GroupStart if self.path.len() < MAX_DEPTH => {
                    write_field(field, out);
                    let inner = known.as_ref().map(FieldDescriptor::kind);
                    let inner = inner.as_ref().and_then(Kind::as_message);
                    self.path.push(field_name(known.as_ref(), field.number));
                    self.message(inner, reader, Some(field.number), out);
                    self.path.pop();
                }
                _ => {
                    self.path.push(field_name(known.as_ref(), field.number));
                    match &known {
                        Some(known) => self.known_field(known, field, out),
                        None => self.unknown_field(field, out),
                    }
                    self.path.pop();
                }
            }
        }
    }

    fn known_field(&mut self, known: &FieldDescriptor, field: WireField<'_>, out: &mut Vec<u8>) {
        let kind = known.kind();
        if asks_to_be_hidden(known) || self.hide.is_secret(&self.path) {
            return self.hide_field(&kind, field, out);
        }
        let WireValue::Bytes { content, missing } = field.value else { return write_field(field, out) };
        match &kind {
            Kind::Message(entry) if known.is_map() => {
                // The key of an entry is the name of its value.
                if let Some(key) = map_key(content) {
                    self.path.push(key);
                    let value = entry.map_entry_value_field();
                    let is_secret = self.hide.is_secret(&self.path);
                    self.map_entry(&value, is_secret, (field.number, content, missing), out);
                    self.path.pop();
                } else {
                    write_field(field, out);
                }
            }
            Kind::Message(inner) => self.nested(Some(inner), (field.number, content, missing), out),
            Kind::String | Kind::Bytes => self.text((field.number, content, missing), out),
            _ => write_field(field, out),
        }
    }

    fn map_entry(
        &mut self,
        value: &FieldDescriptor,
        is_secret: bool,
        (number, content, missing): (u32, &[u8], u64),
        out: &mut Vec<u8>,
    ) {
        let mut inner = Vec::new();
        let mut reader = WireReader::new(content);
        loop {
            let before = reader;
            match reader.next_field() {
                Ok(Some(field)) if field.number == 2 && is_secret => {
                    self.hide_field(&value.kind(), field, &mut inner);
                }
                Ok(Some(field)) if field.number == 2 => self.known_field(value, field, &mut inner),
                Ok(Some(field)) => write_field(field, &mut inner),
                Ok(None) | Err(_) => {
                    inner.extend(before.rest());
                    break;
                }
            }
        }
        write_bytes(number, &inner, missing, out);
    }

    fn hide_field(&mut self, kind: &Kind, field: WireField<'_>, out: &mut Vec<u8>) {
        let WireValue::Bytes { content, missing } = field.value else {
            // A number has no room for a word.
            let value = match field.value {
                WireValue::Varint(_) => WireValue::Varint(0),
                WireValue::Fixed64(_) => WireValue::Fixed64(0),
                WireValue::Fixed32(_) => WireValue::Fixed32(0),
                other => other,
            };
            self.has_changed |= value != field.value;
            return write_field(WireField { value, ..field }, out);
        };
        // That a value is empty is no secret.
        if content.is_empty() && missing == 0 || content == HIDDEN {
            return write_field(field, out);
        }
        let hidden = match kind {
            Kind::String | Kind::Bytes => {
                self.hide.on_secret(content);
                HIDDEN.to_vec()
            }
            Kind::Message(inner) => self.hide_message(inner, content),
            // Packed numbers hold no word.
            _ => Vec::new(),
        };
        self.has_changed |= hidden != content;
        write_bytes(field.number, &hidden, missing, out);
    }

    /// A message of which every value is hidden, so that it does not look as if it had been empty. What no descriptor
    /// knows is left out.
    fn hide_message(&mut self, kind: &MessageDescriptor, content: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        if self.path.len() >= MAX_DEPTH {
            return out;
        }
        let mut reader = WireReader::new(content);
        while let Ok(Some(field)) = reader.next_field() {
            if matches!(field.value, WireValue::GroupStart | WireValue::GroupEnd) {
                break;
            }
            if let Some(known) = kind.get_field(field.number) {
                self.path.push(known.json_name().to_owned());
                self.hide_field(&known.kind(), field, &mut out);
                self.path.pop();
            }
        }
        out
    }

    /// A field that no descriptor knows.
    fn unknown_field(&mut self, field: WireField<'_>, out: &mut Vec<u8>) {
        let WireValue::Bytes { content, missing } = field.value else { return write_field(field, out) };
        let is_text = std::str::from_utf8(content).is_ok_and(|text| !text.chars().any(char::is_control));
        let is_message = !is_text && !content.is_empty() && decode_raw(content, missing > 0).is_some();
        if is_message && self.path.len() < MAX_DEPTH {
            self.nested(None, (field.number, content, missing), out);
        } else {
            self.text((field.number, content, missing), out);
        }
    }

    fn nested(
        &mut self,
        kind: Option<&MessageDescriptor>,
        (number, content, missing): (u32, &[u8], u64),
        out: &mut Vec<u8>,
    ) {
        if self.path.len() >= MAX_DEPTH {
            return write_bytes(number, content, missing, out);
        }
        let mut inner = Vec::with_capacity(content.len());
        let mut reader = WireReader::new(content);
        self.message(kind, &mut reader, None, &mut inner);
        inner.extend(reader.rest());
        write_bytes(number, &inner, missing, out);
    }

    fn text(&mut self, (number, content, missing): (u32, &[u8], u64), out: &mut Vec<u8>) {
        let replaced = self.hide.replace_text(content);
        self.has_changed |= replaced.is_some();
        write_bytes(number, replaced.as_deref().unwrap_or(content), missing, out);
    }
}

/// The name of a field in JSON; its number where nobody knows it.
fn field_name(known: Option<&FieldDescriptor>, number: u32) -> String {
    known.map_or_else(|| number.to_string(), |known| known.json_name().to_owned())
}

fn asks_to_be_hidden(field: &FieldDescriptor) -> bool {
    // Decoding options is slow, and few fields have any.
    if field.field_descriptor_proto().options.is_none() {
        return false;
    }
    field.options().get_field_by_name("debug_redact").is_some_and(|value| value.as_bool() == Some(true))
}

fn map_key(entry: &[u8]) -> Option<String> {
    let mut reader = WireReader::new(entry);
    while let Ok(Some(field)) = reader.next_field() {
        match (field.number, field.value) {
            (1, WireValue::Bytes { content, missing: 0 }) => {
                return String::from_utf8(content.to_vec()).ok();
            }
            (1, WireValue::Varint(number)) => return Some(number.to_string()),
            _ => {}
        }
    }
    None
}

/// What there is of a message that was cut, as a message of its own: a text keeps its beginning, a number that is
/// incomplete is left out.
pub(super) fn trim_message(kind: &MessageDescriptor, bytes: &[u8]) -> Vec<u8> {
    trim_nested(kind, bytes, 0)
}

fn trim_nested(kind: &MessageDescriptor, bytes: &[u8], depth: usize) -> Vec<u8> {
    let mut reader = WireReader::new(bytes);
    let mut done = 0;
    while let Ok(Some(field)) = reader.next_field() {
        let WireValue::Bytes { content, missing } = field.value else {
            done = bytes.len() - reader.rest().len();
            continue;
        };
        if missing == 0 {
            done = bytes.len() - reader.rest().len();
            continue;
        }
        // Only the last field can be cut.
        let mut out = bytes[..done].to_vec();
        let known = kind.get_field(field.number);
        let content = match known.map(|known| known.kind()) {
            Some(Kind::Message(inner)) if depth < MAX_DEPTH => trim_nested(&inner, content, depth + 1),
            Some(Kind::String) => match std::str::from_utf8(content) {
                Ok(_) => content.to_vec(),
                Err(error) => content[..error.valid_up_to()].to_vec(),
            },
            Some(Kind::Bytes) => content.to_vec(),
            Some(kind) => trim_packed(&kind, content),
            None => return out,
        };
        write_bytes(field.number, &content, 0, &mut out);
        return out;
    }
    bytes[..done].to_vec()
}

/// The whole ones among packed numbers.
fn trim_packed(kind: &Kind, content: &[u8]) -> Vec<u8> {
    let size = match kind {
        Kind::Double | Kind::Fixed64 | Kind::Sfixed64 => 8,
        Kind::Float | Kind::Fixed32 | Kind::Sfixed32 => 4,
        _ => {
            let mut reader = WireReader::new(content);
            let mut whole = 0;
            while reader.varint() != Err(WireEnd::Cut) && whole < content.len() - reader.rest().len() {
                whole = content.len() - reader.rest().len();
            }
            return content[..whole].to_vec();
        }
    };
    content[..content.len() - content.len() % size].to_vec()
}
