//! YAML as a tree that remembers lines and tags, bounded; the form in which foreign files are merged.

use std::fmt;

use indexmap::IndexMap;
use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{Spanned, Tagged};

use super::ImportError;
use crate::yaml::parse_options;

/// The most bytes one foreign file may have; real ones have a hundredth of it.
const MAX_BYTES: usize = 4 << 20;

/// The most bytes of a stream of documents; rendered charts are longer than files that people write.
const MAX_STREAM: usize = 16 << 20;

/// The most documents of one stream.
const MAX_DOCUMENTS: usize = 5_000;

/// The deepest nesting; merging and emitting recurse, so this also bounds the stack.
const MAX_DEPTH: usize = 48;

/// One value of a YAML file.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Node {
    /// Where it stands, from 1; 0 when it was made here.
    pub(super) line: u32,
    /// In which file, by its number among the files of the import.
    pub(super) file: u16,
    /// Its tag, such as `!reset`.
    pub(super) tag: Option<String>,
    /// The value.
    pub(super) kind: Kind,
}

/// What a node is. All scalars are text, because Compose replaces variables before it looks at types.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Kind {
    Null,
    Scalar(String),
    List(Vec<Node>),
    Map(Map),
}

/// A mapping in the order of the file.
pub(super) type Map = IndexMap<String, Node>;

impl Node {
    /// Reads one file.
    pub(super) fn parse(file: &str, text: &str) -> Result<Self, ImportError> {
        if text.len() > MAX_BYTES {
            return Err(ImportError::at(file, 0, format!("the file has more than {MAX_BYTES} bytes")));
        }
        // A second document is refused with a better message than that of a budget.
        let options = foreign_options(2);
        // An empty file is an empty mapping; the parser would call it a missing document.
        if text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
            return Ok(Self::made(Kind::Null));
        }
        serde_saphyr::from_str_with_options(text, options).map_err(|error| parse_error(file, &error))
    }

    /// Reads all documents of a file, such as the manifests that `kustomize build` prints.
    pub(super) fn parse_documents(file: &str, text: &str) -> Result<Vec<Self>, ImportError> {
        if text.len() > MAX_STREAM {
            return Err(ImportError::at(file, 0, format!("the file has more than {MAX_STREAM} bytes")));
        }
        let mut options = foreign_options(MAX_DOCUMENTS);
        // As `kubectl` does; Compose refuses a key that is there twice.
        options.duplicate_keys = serde_saphyr::DuplicateKeyPolicy::LastWins;
        serde_saphyr::from_multiple_with_options(text, options).map_err(|error| parse_error(file, &error))
    }

    /// A node that stands in no file.
    pub(super) fn made(kind: Kind) -> Self {
        Self { line: 0, file: 0, tag: None, kind }
    }

    /// Another value in the place of this one, so that messages still name its line.
    pub(super) fn with(&self, kind: Kind) -> Self {
        Self { line: self.line, file: self.file, tag: None, kind }
    }

    /// A text in the place of this one.
    pub(super) fn with_text(&self, text: impl Into<String>) -> Self {
        self.with(Kind::Scalar(text.into()))
    }

    /// Does something to every node below and to this one.
    pub(super) fn for_each<E>(&mut self, act: &mut dyn FnMut(&mut Self) -> Result<(), E>) -> Result<(), E> {
        act(self)?;
        match &mut self.kind {
            Kind::Null | Kind::Scalar(_) => Ok(()),
            Kind::List(items) => items.iter_mut().try_for_each(|item| item.for_each(act)),
            Kind::Map(map) => map.values_mut().try_for_each(|value| value.for_each(act)),
        }
    }

    /// Whether nothing is given.
    pub(super) fn is_null(&self) -> bool {
        self.kind == Kind::Null
    }

    /// The scalar's text.
    pub(super) fn as_text(&self) -> Option<&str> {
        match &self.kind {
            Kind::Scalar(text) => Some(text),
            _ => None,
        }
    }

    /// The mapping.
    pub(super) fn as_map(&self) -> Option<&Map> {
        match &self.kind {
            Kind::Map(map) => Some(map),
            _ => None,
        }
    }

    /// The items of a list.
    pub(super) fn as_list(&self) -> Option<&[Self]> {
        match &self.kind {
            Kind::List(items) => Some(items),
            _ => None,
        }
    }

    /// The entry of a mapping, unless it is null.
    pub(super) fn get(&self, key: &str) -> Option<&Self> {
        self.as_map()?.get(key).filter(|node| !node.is_null())
    }

    /// The text of an entry of a mapping.
    pub(super) fn get_text(&self, key: &str) -> Option<&str> {
        self.get(key)?.as_text()
    }

    /// What kind of value it is, for messages.
    pub(super) fn what(&self) -> &'static str {
        match self.kind {
            Kind::Null => "nothing",
            Kind::Scalar(_) => "a single value",
            Kind::List(_) => "a list",
            Kind::Map(_) => "a mapping",
        }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Tagged(spanned, tag) = Tagged::<Spanned<Kind>>::deserialize(deserializer)?;
        // Core tags have done their work during parsing.
        let tag = tag.filter(|tag| tag.starts_with('!'));
        let line = u32::try_from(spanned.referenced.line()).unwrap_or(0);
        Ok(Self { line, file: 0, tag, kind: spanned.value })
    }
}

impl<'de> Deserialize<'de> for Kind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(KindVisitor)
    }
}

struct KindVisitor;

impl<'de> Visitor<'de> for KindVisitor {
    type Value = Kind;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value, a list or a mapping")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Kind, E> {
        Ok(Kind::Null)
    }

    fn visit_none<E: de::Error>(self) -> Result<Kind, E> {
        Ok(Kind::Null)
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Kind, E> {
        Ok(Kind::Scalar(value.to_string()))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Kind, E> {
        Ok(Kind::Scalar(value.to_string()))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Kind, E> {
        Ok(Kind::Scalar(value.to_string()))
    }

    fn visit_i128<E: de::Error>(self, value: i128) -> Result<Kind, E> {
        Ok(Kind::Scalar(value.to_string()))
    }

    fn visit_u128<E: de::Error>(self, value: u128) -> Result<Kind, E> {
        Ok(Kind::Scalar(value.to_string()))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Kind, E> {
        Ok(Kind::Scalar(value.to_string()))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Kind, E> {
        Ok(Kind::Scalar(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Kind, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element()? {
            items.push(item);
        }
        Ok(Kind::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Kind, A::Error> {
        let mut map = Map::new();
        while let Some((key, value)) = access.next_entry::<String, Node>()? {
            map.insert(key, value);
        }
        Ok(Kind::Map(map))
    }
}

fn foreign_options(documents: usize) -> serde_saphyr::Options {
    let mut options = parse_options(MAX_STREAM, MAX_DEPTH, documents);
    // Compose and Kubernetes have octal numbers with a leading zero nevertheless: `defaultMode: 0755`.
    options.legacy_octal_numbers = true;
    options
}

fn parse_error(file: &str, error: &serde_saphyr::Error) -> ImportError {
    let line = error.location().map_or(0, |location| location.line());
    let message = error.render();
    // The line is part of our own message, and the parser's options mean nothing to users.
    let end = [" at line ", ", set "].iter().filter_map(|end| message.find(end)).min();
    let message = &message[..end.unwrap_or(message.len())];
    ImportError::at(file, u32::try_from(line).unwrap_or(0), one_line(message))
}

fn one_line(text: &str) -> String {
    let line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    line.chars().take(300).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_tags_and_merge_keys() {
        let text =
            "base: &b\n  x: 1\n  y: 2.50\nmore:\n  <<: *b\n  y: !reset null\n  z: !override [a]\n  on: yes\n";
        let node = Node::parse("f", text).unwrap();
        let more = node.get("more").unwrap().as_map().unwrap();
        assert_eq!(more["x"].as_text(), Some("1"));
        assert_eq!(more["y"].tag.as_deref(), Some("!reset"));
        assert_eq!(more["z"].tag.as_deref(), Some("!override"));
        assert_eq!(more["z"].line, 7);
        assert_eq!(node.get("base").unwrap().as_map().unwrap()["x"].line, 2);
        assert!(Node::parse("f", "# nothing\n\n").unwrap().is_null());
    }

    #[test]
    fn long_comments_and_many_aliases_are_usual() {
        let comments = "# not now\n".repeat(500);
        let node = Node::parse("f", &format!("a:\n{comments}  b: 1\n{comments}c: 2\n")).unwrap();
        assert_eq!(node.get("a").and_then(|a| a.get_text("b")), Some("1"));
        let aliases: String = (0..400).map(|n| format!("  s{n}: *e\n")).collect();
        let node = Node::parse("f", &format!("e: &e {{X: 1, Y: 2}}\nall:\n{aliases}")).unwrap();
        assert_eq!(node.get("all").and_then(Node::as_map).map(Map::len), Some(400));
    }

    #[test]
    fn errors_name_file_and_line() {
        let error = Node::parse("compose.yaml", "a: 1\na: 2\n").unwrap_err().to_string();
        assert!(error.starts_with("compose.yaml:2: "), "{error}");
        let two = Node::parse("f", "a: 1\n---\nb: 2\n").unwrap_err().to_string();
        assert!(two.contains("multiple"), "{two}");
        let deep = "[".repeat(100) + &"]".repeat(100);
        assert!(Node::parse("f", &deep).is_err());
        let laughs = "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b]\n\
                      d: &d [*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d]\nf: [*e,*e,*e,*e,*e,*e,*e,*e]\n";
        assert!(Node::parse("f", laughs).is_err());
    }
}
