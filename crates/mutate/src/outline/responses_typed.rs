//! Fields of responses where types name them: Java maps and setters, `json!` and serde in Rust, tags in Go.

use std::ops::Range;

use tree_sitter::Node;

use super::functions::Function;
use super::responses::{Field, element_range, is_responder, is_sent, renamed};
use crate::edit::Edit;
use crate::language::Language;
use crate::mutant::Scope;
use crate::source::Source;
use crate::walk::{children, find_all};

fn scope(function: &Function<'_>) -> Scope {
    if function.responds { Scope::Responding } else { Scope::Elsewhere }
}

/// `Map.of("k", v)`, `map.put("k", v)` and `answer.setK(v)`.
pub(super) fn java_fields(source: &Source<'_>, function: &Function<'_>, fields: &mut Vec<Field>) {
    for call in function.find_own(source, &["method_invocation"]) {
        let name = source.field(call, "name");
        let object = source.field(call, "object");
        let arguments = call.child_by_field_name("arguments").map(children).unwrap_or_default();
        match (object, name) {
            ("Map", "of") if is_answered(source, call) => {
                for pair in arguments.chunks_exact(2) {
                    fields.push(map_field(source, function, pair[0], pair[1], None));
                }
            }
            (_, "put") if arguments.len() == 2 && is_sent(source, function, object) => {
                if let Some(statement) = own_statement(call) {
                    let whole = statement_range(source, statement);
                    fields.push(map_field(source, function, arguments[0], arguments[1], Some(whole)));
                }
            }
            (_, setter)
                if setter.starts_with("set") && arguments.len() == 1 && is_sent(source, function, object) =>
            {
                if let Some(statement) = own_statement(call) {
                    fields.push(Field {
                        name: setter[3..].to_owned(),
                        at: call.start_byte(),
                        within: function.name.clone(),
                        scope: scope(function),
                        removal: vec![Edit::remove(statement_range(source, statement))],
                        retyping: None,
                        renaming: None,
                    });
                }
            }
            _ => {}
        }
    }
}

fn map_field(
    source: &Source<'_>,
    function: &Function<'_>,
    key: Node<'_>,
    value: Node<'_>,
    statement: Option<Range<usize>>,
) -> Field {
    let key_text = source.text_of(key);
    let name = key_text.trim_matches('"').to_owned();
    let result = source.field(function.node, "type");
    // Another type compiles only where values may be anything.
    let is_open = result.contains("Object") || result.contains('?') || result.is_empty();
    let is_literal = key_text.starts_with('"');
    let list = format!("java.util.Collections.singletonList({})", source.text_of(value));
    let removal = statement.unwrap_or_else(|| element_range(source, key.start_byte()..value.end_byte()));
    Field {
        at: key.start_byte(),
        within: function.name.clone(),
        scope: scope(function),
        removal: vec![Edit::remove(removal)],
        retyping: is_open.then(|| Edit::replace(value.byte_range(), list)),
        renaming: is_literal.then(|| Edit::replace(key.start_byte() + 1..key.end_byte() - 1, renamed(&name))),
        name,
    }
}

/// Whether a value is returned or handed to what writes responses, within one statement.
fn is_answered(source: &Source<'_>, value: Node<'_>) -> bool {
    let mut next = value.parent();
    while let Some(node) = next {
        match node.kind() {
            "return_statement" => return true,
            "method_invocation" if is_responder(source, node) => return true,
            "block" | "class_body" | "program" => return false,
            _ => next = node.parent(),
        }
    }
    false
}

fn own_statement(call: Node<'_>) -> Option<Node<'_>> {
    call.parent().filter(|node| node.kind() == "expression_statement")
}

/// A statement, with its line where nothing else stands in it.
fn statement_range(source: &Source<'_>, statement: Node<'_>) -> Range<usize> {
    let Range { start, end } = statement.byte_range();
    let rest = source.text[end..].trim_start_matches([' ', '\t', '\r']);
    match source.starts_line(start) && rest.starts_with('\n') {
        true => source.line_start(start)..source.text.len() - rest.len() + 1,
        false => start..end,
    }
}

/// The fields of `json!({ ... })`, also of objects within.
pub(super) fn rust_fields(source: &Source<'_>, function: &Function<'_>, fields: &mut Vec<Field>) {
    for call in function.find_own(source, &["macro_invocation"]) {
        let is_json = source.field(call, "macro").rsplit("::").next() == Some("json");
        if !is_json {
            continue;
        }
        let Range { start, end } = call.byte_range();
        let Some(open) = source.text[start..end].find('{') else { continue };
        let mut objects = vec![start + open + 1];
        while let Some(at) = objects.pop() {
            for element in split_object(&source.text[..end], at) {
                let text = &source.text[element.clone()];
                let Some((key, value)) = split_pair(text) else { continue };
                let value = element.start + value.start..element.start + value.end;
                if source.text[value.clone()].starts_with('{') {
                    objects.push(value.start + 1);
                }
                let list = format!("[{}]", &source.text[value.clone()]);
                fields.push(Field {
                    at: element.start,
                    within: function.name.clone(),
                    scope: scope(function),
                    removal: vec![Edit::remove(element_range(source, element.clone()))],
                    retyping: Some(Edit::replace(value, list)),
                    renaming: Some(Edit::replace(
                        element.start + 1..element.start + 1 + key.len(),
                        renamed(key),
                    )),
                    name: key.to_owned(),
                });
            }
        }
    }
}

/// The elements of a brace group that begins at `start`, trimmed.
fn split_object(text: &str, start: usize) -> Vec<Range<usize>> {
    let mut elements = Vec::new();
    let (mut depth, mut from, mut quoted, mut escaped) = (0_usize, start, false, false);
    let mut push = |from: usize, to: usize| {
        let part = &text[from..to];
        let trimmed = part.trim();
        if !trimmed.is_empty() {
            let begin = from + (part.len() - part.trim_start().len());
            elements.push(begin..begin + trimmed.len());
        }
    };
    for (offset, byte) in text.bytes().enumerate().skip(start) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            _ if quoted => {}
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' if depth == 0 => {
                push(from, offset);
                break;
            }
            b')' | b']' | b'}' => depth -= 1,
            b',' if depth == 0 => {
                push(from, offset);
                from = offset + 1;
            }
            _ => {}
        }
    }
    elements
}

/// Key and value of `"key": value`.
fn split_pair(text: &str) -> Option<(&str, Range<usize>)> {
    let key = text.strip_prefix('"')?.split('"').next()?;
    let rest = &text[key.len() + 2..];
    let value = rest.trim_start().strip_prefix(':')?.trim_start();
    (!value.is_empty()).then(|| (key, text.len() - value.len()..text.len()))
}

/// Fields whose name in JSON stands at the declaration of a type.
pub(super) fn declared_fields(source: &Source<'_>, functions: &[Function<'_>], fields: &mut Vec<Field>) {
    let answers = |name: &str| {
        let uses =
            |function: &&Function<'_>| function.responds && source.text_of(function.node).contains(name);
        if functions.iter().any(|function| uses(&function)) { Scope::Responding } else { Scope::Elsewhere }
    };
    match source.language {
        Language::Go => {
            for spec in find_all(source.root(), &["type_spec"]) {
                let name = source.field(spec, "name");
                for field in find_all(spec, &["field_declaration"]) {
                    fields.extend(tagged_field(source, field, name, answers(name)));
                }
            }
        }
        Language::Rust => {
            for item in find_all(source.root(), &["struct_item"]) {
                let name = source.field(item, "name");
                if is_serialized(source, item) {
                    let declared = find_all(item, &["field_declaration"]).into_iter();
                    fields
                        .extend(declared.filter_map(|field| serde_field(source, field, name, answers(name))));
                }
            }
        }
        Language::Java => {
            for annotation in find_all(source.root(), &["annotation"]) {
                fields.extend(annotated_field(source, annotation));
            }
        }
        _ => {}
    }
}

fn tagged_field(source: &Source<'_>, field: Node<'_>, within: &str, scope: Scope) -> Option<Field> {
    let tag = field.child_by_field_name("tag")?;
    let text = source.text_of(tag);
    let start = text.find("json:\"")? + "json:\"".len();
    let name = text[start..].split(['"', ',']).next().filter(|name| !name.is_empty() && *name != "-")?;
    let at = tag.start_byte() + start;
    let value_end = at + text[start..].find('"')?;
    Some(Field {
        name: name.to_owned(),
        at: field.start_byte(),
        within: within.to_owned(),
        scope,
        removal: vec![Edit::replace(at..value_end, "-")],
        retyping: None,
        renaming: Some(Edit::replace(at..at + name.len(), renamed(name))),
    })
}

fn is_serialized(source: &Source<'_>, item: Node<'_>) -> bool {
    let mut before = item.prev_named_sibling();
    while let Some(attribute) = before.filter(|node| node.kind() == "attribute_item" || node.is_extra()) {
        if source.text_of(attribute).contains("Serialize") {
            return true;
        }
        before = attribute.prev_named_sibling();
    }
    false
}

fn serde_field(source: &Source<'_>, field: Node<'_>, within: &str, scope: Scope) -> Option<Field> {
    let before = field.prev_named_sibling();
    if before.is_some_and(|node| node.kind() == "attribute_item" && source.text_of(node).contains("serde")) {
        return None;
    }
    let at = field.start_byte();
    let name = source.field(field, "name");
    let behind = match source.starts_line(at) {
        true => format!("{}{}", source.newline(), source.indent(at)),
        false => " ".to_owned(),
    };
    let attribute = |content: String| Some(Edit::insert(at, format!("#[serde({content})]{behind}")));
    Some(Field {
        name: name.to_owned(),
        at,
        within: within.to_owned(),
        scope,
        removal: attribute("skip_serializing".into()).into_iter().collect(),
        retyping: None,
        renaming: attribute(format!("rename(serialize = \"{}\")", renamed(name))),
    })
}

fn annotated_field(source: &Source<'_>, annotation: Node<'_>) -> Option<Field> {
    if source.field(annotation, "name") != "JsonProperty" {
        return None;
    }
    let literal = find_all(annotation, &["string_literal"]).into_iter().next()?;
    let name = source.text_of(literal).trim_matches('"');
    Some(Field {
        name: name.to_owned(),
        at: annotation.start_byte(),
        within: name.to_owned(),
        scope: Scope::Responding,
        removal: Vec::new(),
        retyping: None,
        renaming: Some(Edit::replace(literal.start_byte() + 1..literal.end_byte() - 1, renamed(name))),
    })
}
