//! How much a call differs from a recorded one of the same operation.

use serde_json::Value;

use super::{AskedCall, RecordedCall};

/// Differences in a field weigh the same, however long its value is; bytes that are no JSON are weighed by their number.
const MAX: u64 = 1 << 32;

/// Zero for the same query and the same body.
pub(super) fn distance(asked: &AskedCall<'_>, recorded: &RecordedCall) -> u64 {
    let bodies = if asked.body == recorded.body {
        0
    } else {
        let json = |body: &[u8]| serde_json::from_slice::<Value>(body).ok();
        match (json(asked.body), json(&recorded.body)) {
            // Other bytes for the same values still differ a little.
            (Some(asked), Some(recorded)) => 1 + count_fields(&asked, &recorded),
            _ => count_bytes(asked.body, &recorded.body),
        }
    };
    (bodies + count_parts(query(asked.path), query(&recorded.path))).min(MAX)
}

fn query(path: &str) -> &str {
    path.split_once('?').map_or("", |(_, query)| query)
}

/// Parts of one query that the other lacks.
fn count_parts(one: &str, other: &str) -> u64 {
    if one == other {
        return 0;
    }
    let lacking = |one: &str, other: &str| {
        let known: std::collections::BTreeSet<&str> = other.split('&').collect();
        one.split('&').filter(|part| !known.contains(part)).count() as u64
    };
    lacking(one, other) + lacking(other, one)
}

/// Leaves that differ.
fn count_fields(one: &Value, other: &Value) -> u64 {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            let of_one: u64 = one
                .iter()
                .map(|(key, value)| {
                    other.get(key).map_or_else(|| count_leaves(value), |o| count_fields(value, o))
                })
                .sum();
            let of_other: u64 = other
                .iter()
                .filter(|(key, _)| !one.contains_key(*key))
                .map(|(_, value)| count_leaves(value))
                .sum();
            of_one + of_other
        }
        (Value::Array(one), Value::Array(other)) => {
            let common: u64 = one.iter().zip(other).map(|(one, other)| count_fields(one, other)).sum();
            let longer = if one.len() > other.len() { one } else { other };
            common + longer[one.len().min(other.len())..].iter().map(count_leaves).sum::<u64>()
        }
        (one, other) if one == other => 0,
        (one, other) => count_leaves(one).max(count_leaves(other)),
    }
}

fn count_leaves(value: &Value) -> u64 {
    match value {
        Value::Object(fields) => fields.values().map(count_leaves).sum::<u64>().max(1),
        Value::Array(items) => items.iter().map(count_leaves).sum::<u64>().max(1),
        _ => 1,
    }
}

/// Bytes between the common beginning and the common end.
fn count_bytes(one: &[u8], other: &[u8]) -> u64 {
    let beginning = one.iter().zip(other).take_while(|(a, b)| a == b).count();
    let (one, other) = (&one[beginning..], &other[beginning..]);
    let end = one.iter().rev().zip(other.iter().rev()).take_while(|(a, b)| a == b).count();
    (one.len().max(other.len()) - end) as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn differences_are_counted() {
        let json = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        let count = |one: &str, other: &str| count_fields(&json(one), &json(other));
        assert_eq!(count(r#"{"a":1,"b":[1,2]}"#, r#"{"b":[1,2],"a":1}"#), 0);
        assert_eq!(count(r#"{"a":1,"b":[1,2]}"#, r#"{"a":2,"b":[1]}"#), 2);
        assert_eq!(count(r#"{"a":1}"#, r#"{"b":{"c":1,"d":2}}"#), 3);
        assert_eq!(count_bytes(b"abcXdef", b"abcYYdef"), 2);
        assert_eq!(count_parts("a=1&b=2", "b=2&a=3"), 2);
    }

    proptest! {
        #[test]
        fn bytes_are_counted_in_both_directions(one: Vec<u8>, other: Vec<u8>) {
            prop_assert_eq!(count_bytes(&one, &other), count_bytes(&other, &one));
            prop_assert_eq!(count_bytes(&one, &other) == 0, one == other);
        }
    }
}
