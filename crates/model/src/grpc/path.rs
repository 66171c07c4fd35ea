//! Dotted paths into messages, as the expectations of steps write them.

use prost_reflect::{Kind, MessageDescriptor};

use super::message_type::MessageType;

/// A part of a path that no answer can have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UnknownField {
    /// The full name of the message, or the path up to a value that has no parts of this kind.
    pub(crate) holder: String,
    pub(crate) part: String,
    /// The fields that are there, by their names in JSON.
    pub(crate) known: Vec<String>,
}

impl MessageType {
    /// The first part of a dotted path that a message of this type cannot have.
    pub(crate) fn find_unknown_field(&self, path: &str) -> Option<UnknownField> {
        walk(self.0.clone(), path)
    }
}

fn walk(mut message: MessageDescriptor, path: &str) -> Option<UnknownField> {
    let mut parts = path.split('.');
    let mut behind: Vec<&str> = Vec::new();
    while let Some(part) = parts.next() {
        // Types such as Timestamp and Struct have JSON of their own; a placeholder is known when the step runs.
        if message.full_name().starts_with("google.protobuf.") || part.contains("${") {
            return None;
        }
        let field = message.get_field_by_json_name(part).or_else(|| message.get_field_by_name(part));
        let Some(field) = field else {
            let known = message.fields().map(|field| field.json_name().to_owned()).collect();
            return Some(UnknownField {
                holder: message.full_name().to_owned(),
                part: part.to_owned(),
                known,
            });
        };
        behind.push(part);
        let mut kind = field.kind();
        if field.is_map() || field.is_list() {
            let key = parts.next()?;
            let is_index = key.contains("${") || key.parse::<usize>().is_ok();
            if field.is_list() && !is_index {
                return Some(UnknownField {
                    holder: behind.join("."),
                    part: key.to_owned(),
                    known: Vec::new(),
                });
            }
            behind.push(key);
            if let (true, Kind::Message(entry)) = (field.is_map(), &kind) {
                kind = entry.map_entry_value_field().kind();
            }
        }
        match kind {
            Kind::Message(inner) => message = inner,
            _ => {
                let part = parts.next()?.to_owned();
                return Some(UnknownField { holder: behind.join("."), part, known: Vec::new() });
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use crate::grpc::tests::shop;

    #[test]
    fn paths_that_no_answer_has() {
        let (shop, order) = (shop(), shop().message("shop.Order").unwrap());
        for (path, expected) in [
            ("id", ""),
            ("access_token", ""),
            ("accessToken", ""),
            ("items", ""),
            ("items.0.pieces", ""),
            ("items.0.offsets.3", ""),
            ("items.${n}.sku", ""),
            ("labels.any", ""),
            ("parts.wheel.sku", ""),
            ("at", ""),
            ("extra.whatever", ""),
            ("loginSecret.user", ""),
            ("itmes.0", "shop.Order itmes"),
            ("items.0.price", "shop.Item price"),
            ("items.sku", "items sku"),
            ("id.x", "id x"),
            ("labels.any.x", "labels.any x"),
            ("parts.wheel.size", "shop.Item size"),
        ] {
            let found = order.find_unknown_field(path);
            let found = found.map(|unknown| format!("{} {}", unknown.holder, unknown.part));
            assert_eq!(found.unwrap_or_default(), expected, "{path}");
        }
        let unknown = shop.message("shop.Credentials").unwrap().find_unknown_field("usr").unwrap();
        assert_eq!(unknown.known, ["user"]);
    }
}
