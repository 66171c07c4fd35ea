//! Compares two JSON values field by field.

use serde_json::Value;

use super::path::Segment;
use super::{Comparison, FieldPath, Place};

/// The most characters of a value that are kept in a difference.
const MAX_SHOWN: usize = 200;

pub(super) fn compare(recorded: &Value, replayed: &Value, path: &mut FieldPath, found: &mut Comparison) {
    match (recorded, replayed) {
        (Value::Object(recorded), Value::Object(replayed)) => {
            for (key, value) in recorded {
                path.within(Segment::Key(key.clone()), |path| match replayed.get(key) {
                    Some(other) => compare(value, other, path, found),
                    None => found.add(Place::Field(path.clone()), Some(show(value)), None),
                });
            }
            for (key, value) in replayed.iter().filter(|(key, _)| !recorded.contains_key(*key)) {
                path.within(Segment::Key(key.clone()), |path| {
                    found.add(Place::Field(path.clone()), None, Some(show(value)));
                });
            }
        }
        (Value::Array(recorded), Value::Array(replayed)) => {
            let elements = |list: &[Value]| Some(format!("{} elements", list.len()));
            found.add(Place::Field(path.clone()), elements(recorded), elements(replayed));
            for (index, (value, other)) in recorded.iter().zip(replayed).enumerate() {
                path.within(Segment::Index(index), |path| compare(value, other, path, found));
            }
        }
        _ => {
            let is_equal = recorded == replayed || is_same_number(recorded, replayed);
            let replayed = if is_equal { show(recorded) } else { show(replayed) };
            let recorded = show(recorded);
            // Two long values may begin alike.
            let replayed = if !is_equal && replayed == recorded {
                format!("{replayed} (another end)")
            } else {
                replayed
            };
            found.add(Place::Field(path.clone()), Some(recorded), Some(replayed));
        }
    }
}

fn is_same_number(one: &Value, other: &Value) -> bool {
    match (one.as_f64(), other.as_f64()) {
        // Whole numbers beyond 2^53 are compared as such before.
        (Some(one), Some(other)) => (one - other).abs() == 0.0 && one.abs() < 9e15,
        _ => false,
    }
}

fn show(value: &Value) -> String {
    let text = value.to_string();
    if text.chars().count() <= MAX_SHOWN {
        return text;
    }
    text.chars().take(MAX_SHOWN).chain(['…']).collect()
}
