//! Reads keys and values of a YAML file together with their places.

use std::ops::Range;

use tree_sitter::Node;

use crate::edit::Edit;
use crate::source::Source;
use crate::walk::children;

/// The application file has fewer levels; deeper ones are not looked at.
const MAX_DEPTH: usize = 12;

/// A value of a YAML file.
#[derive(Debug)]
pub(super) enum Value {
    /// With its entries in the order of the file.
    Map {
        entries: Vec<(String, Self)>,
        is_flow: bool,
        range: Range<usize>,
    },
    Scalar(Scalar),
    /// A list, an alias, or nothing.
    Other,
}

/// A text, number or truth value.
#[derive(Debug)]
pub(super) struct Scalar {
    /// The text within the quotes.
    pub(super) inner: Range<usize>,
    pub(super) text: String,
}

impl Value {
    pub(super) fn entries(&self) -> &[(String, Self)] {
        match self {
            Self::Map { entries, .. } => entries,
            Self::Scalar(_) | Self::Other => &[],
        }
    }

    pub(super) fn get(&self, key: &str) -> Option<&Self> {
        self.entries().iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    pub(super) fn find(&self, path: &[&str]) -> Option<&Self> {
        path.iter().try_fold(self, |value, key| value.get(key))
    }
}

/// The first document of a file.
pub(super) fn read_document(source: &Source<'_>) -> Value {
    let document = children(source.root()).into_iter().find(|node| node.kind() == "document");
    let content = document.map(children).unwrap_or_default();
    let content = content.into_iter().find(|node| matches!(node.kind(), "block_node" | "flow_node"));
    content.map_or(Value::Other, |node| read_value(source, node, 0))
}

fn read_value(source: &Source<'_>, node: Node<'_>, depth: usize) -> Value {
    // Anchors and tags stand beside what they belong to.
    let is_content = |node: &Node<'_>| !matches!(node.kind(), "anchor" | "tag");
    let Some(content) = children(node).into_iter().find(is_content).filter(|_| depth < MAX_DEPTH) else {
        return Value::Other;
    };
    let range = content.byte_range();
    match content.kind() {
        "block_mapping" | "flow_mapping" => {
            let read = |pair: Node<'_>| {
                let key = source.field(pair, "key").trim_matches(['"', '\'']).to_owned();
                let value = pair.child_by_field_name("value");
                (key, value.map_or(Value::Other, |value| read_value(source, value, depth + 1)))
            };
            let is_pair = |node: &Node<'_>| matches!(node.kind(), "block_mapping_pair" | "flow_pair");
            let entries = children(content).into_iter().filter(is_pair).map(read).collect();
            Value::Map { entries, is_flow: content.kind() == "flow_mapping", range }
        }
        "double_quote_scalar" | "single_quote_scalar" => {
            let inner = range.start + 1..range.end.saturating_sub(1).max(range.start + 1);
            let text = source.text.get(inner.clone()).unwrap_or_default().to_owned();
            // Escapes would have to be understood to be changed.
            if text.contains(['\\', '\n', '\'']) {
                Value::Other
            } else {
                Value::Scalar(Scalar { inner, text })
            }
        }
        "plain_scalar" => {
            let text = source.text_of(content).to_owned();
            if text.contains('\n') { Value::Other } else { Value::Scalar(Scalar { inner: range, text }) }
        }
        _ => Value::Other,
    }
}

/// Adds a key that is not there yet, in front of its future siblings.
pub(super) fn insert_key(source: &Source<'_>, root: &Value, path: &[&str], value: &str) -> Option<Edit> {
    let newline = source.newline();
    let mut here = root;
    let mut depth = 0;
    while let Some(next) = path.get(depth).and_then(|key| here.get(key)) {
        here = next;
        depth += 1;
    }
    let (Value::Map { is_flow, range, .. }, [first, rest @ ..]) = (here, path.get(depth..)?) else {
        return None;
    };
    let inner = rest.iter().rev().fold(value.to_owned(), |inner, key| format!("{{ {key}: {inner} }}"));
    if *is_flow {
        let is_empty = here.entries().is_empty();
        return Some(Edit::insert(
            range.start + 1,
            format!(" {first}: {inner}{}", if is_empty { "" } else { "," }),
        ));
    }
    if depth == 0 {
        let lead = if source.text.ends_with('\n') { "" } else { newline };
        return Some(Edit::insert(source.text.len(), format!("{lead}{first}: {inner}{newline}")));
    }
    let indent = source.indent(range.start);
    Some(Edit::insert(range.start, format!("{first}: {inner}{newline}{indent}")))
}
