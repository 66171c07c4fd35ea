//! Finds the line of a key in a YAML text, so that an error found after parsing can still point at it.

use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;

use super::read;
use crate::yaml::parse_options;

/// A YAML value reduced to its keys and where they stand.
pub(crate) enum Tree {
    Map(Vec<(Spanned<String>, Self)>),
    List(Vec<Self>),
    Leaf,
}

impl Tree {
    /// Reads the keys of a text that was parsed before; anything unexpected becomes a leaf.
    pub(crate) fn read(text: &str) -> Self {
        let options = parse_options(read::MAX_BYTES, read::MAX_DEPTH, 2);
        serde_saphyr::from_str_with_options(text, options).unwrap_or(Self::Leaf)
    }

    /// The line of the deepest key that was found along `path` (`failing.instances.order`, `tests.2.run`), and
    /// how many segments of the path were found.
    pub(crate) fn line(&self, path: &[&str]) -> (usize, Option<u64>) {
        let mut here = self;
        let mut line = None;
        let mut found = 0;
        for step in path {
            here = match here {
                Self::Map(entries) => {
                    let Some((key, value)) = entries.iter().find(|(key, _)| key.value == *step) else {
                        break;
                    };
                    line = Some(key.defined.line());
                    value
                }
                Self::List(items) => {
                    let Some(item) = step.parse::<usize>().ok().and_then(|n| items.get(n)) else {
                        break;
                    };
                    line = item.first_line().or(line);
                    item
                }
                Self::Leaf => break,
            };
            found += 1;
        }
        (found, line.filter(|&line| line > 0))
    }

    /// The outermost keys and their lines, in the order of the file.
    pub(crate) fn top_level(&self) -> Vec<(String, u64)> {
        match self {
            Self::Map(entries) => {
                entries.iter().map(|(key, _)| (key.value.clone(), key.defined.line())).collect()
            }
            Self::List(_) | Self::Leaf => Vec::new(),
        }
    }

    /// The key whose value is at a position of the text, as a dotted path; empty where that is unknown.
    pub(super) fn key_at(&self, line: u64, column: u64) -> String {
        let mut last = String::new();
        self.last_before((line, column), "", &mut last);
        last
    }

    /// Keys come before their values, so the last key before a position is the one it belongs to.
    fn last_before(&self, place: (u64, u64), above: &str, last: &mut String) {
        let below = |name: &str| {
            if above.is_empty() { name.to_owned() } else { format!("{above}.{name}") }
        };
        match self {
            Self::Map(entries) => {
                for (key, value) in entries {
                    if (key.defined.line(), key.defined.column()) > place {
                        return;
                    }
                    *last = below(&key.value);
                    value.last_before(place, &below(&key.value), last);
                }
            }
            Self::List(items) => {
                for (index, item) in items.iter().enumerate() {
                    item.last_before(place, &below(&index.to_string()), last);
                }
            }
            Self::Leaf => {}
        }
    }

    fn first_line(&self) -> Option<u64> {
        match self {
            Self::Map(entries) => entries.first().map(|(key, _)| key.defined.line()),
            Self::List(items) => items.first().and_then(Self::first_line),
            Self::Leaf => None,
        }
    }
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TreeVisitor;

        impl<'de> Visitor<'de> for TreeVisitor {
            type Value = Tree;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("anything")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Tree, A::Error> {
                let mut entries = Vec::new();
                while let Some(key) = map.next_key::<Spanned<String>>()? {
                    entries.push((key, map.next_value()?));
                }
                Ok(Tree::Map(entries))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Tree, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = list.next_element()? {
                    items.push(item);
                }
                Ok(Tree::List(items))
            }

            fn visit_unit<E>(self) -> Result<Tree, E> {
                Ok(Tree::Leaf)
            }

            fn visit_bool<E>(self, _: bool) -> Result<Tree, E> {
                Ok(Tree::Leaf)
            }

            fn visit_i64<E>(self, _: i64) -> Result<Tree, E> {
                Ok(Tree::Leaf)
            }

            fn visit_u64<E>(self, _: u64) -> Result<Tree, E> {
                Ok(Tree::Leaf)
            }

            fn visit_f64<E>(self, _: f64) -> Result<Tree, E> {
                Ok(Tree::Leaf)
            }

            fn visit_str<E>(self, _: &str) -> Result<Tree, E> {
                Ok(Tree::Leaf)
            }

            fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Tree, D::Error> {
                IgnoredAny::deserialize(deserializer).map(|_| Tree::Leaf)
            }
        }

        deserializer.deserialize_any(TreeVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_lines() {
        let tree = Tree::read("a:\n  b:\n    c: 1\n  d: [1, 2]\ne:\n  - f: 1\n    g: 2\n  - h: 3\n");
        assert_eq!(tree.line(&["a", "b", "c"]).1, Some(3));
        assert_eq!(tree.line(&["a", "d"]).1, Some(4));
        assert_eq!(tree.line(&["e", "1", "h"]).1, Some(8));
        assert_eq!(tree.line(&["e", "0", "zzz"]).1, Some(6));
        assert_eq!(tree.line(&["nothing"]).1, None);
    }

    #[test]
    fn finds_keys() {
        let tree = Tree::read("a:\n  b: { c: 1, d: 2 }\n  e: [3]\nf:\n  - g: 4\n  - g: 5\n");
        for (line, column, key) in [(2, 11, "a.b.c"), (2, 17, "a.b.d"), (3, 7, "a.e"), (6, 8, "f.1.g")] {
            assert_eq!(tree.key_at(line, column), key);
        }
        assert_eq!(Tree::Leaf.key_at(1, 1), "");
    }
}
