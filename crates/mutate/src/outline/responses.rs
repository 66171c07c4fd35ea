//! Fields of responses: literals that a function returns or hands to what writes responses.

use std::ops::Range;

use tree_sitter::Node;

use super::calls::{is_call_out, words};
use super::functions::Function;
use super::responses_typed;
use crate::edit::Edit;
use crate::language::Language;
use crate::mutant::Scope;
use crate::source::Source;
use crate::walk::{children, find_all};

/// The last word of functions that write or encode a response, in lower case.
const RESPONDERS: [&str; 18] = [
    "jsonify",
    "jsonresponse",
    "dumps",
    "make_response",
    "json",
    "send",
    "stringify",
    "encode",
    "marshal",
    "ok",
    "body",
    "json_response",
    "write_json",
    "writejson",
    "respond",
    "respondjson",
    "reply",
    "created",
];

/// Levels that are climbed from a literal to its statement. Nobody nests deeper by hand.
const MAX_CLIMB: usize = 40;

/// What a field is called after it was renamed.
pub(super) fn renamed(name: &str) -> String {
    format!("{name}_renamed")
}

/// A field of a response, and how it can be changed here.
#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) name: String,
    pub(crate) at: usize,
    /// The function or type it is in.
    pub(crate) within: String,
    pub(crate) scope: Scope,
    /// Empty if it cannot be left out here.
    pub(crate) removal: Vec<Edit>,
    pub(crate) retyping: Option<Edit>,
    pub(crate) renaming: Option<Edit>,
}

/// All fields of responses in a source.
pub(crate) fn response_fields(source: &Source<'_>, functions: &[Function<'_>]) -> Vec<Field> {
    let mut fields = Vec::new();
    for function in functions {
        match source.language {
            Language::Python | Language::JavaScript | Language::TypeScript | Language::Tsx | Language::Go => {
                let kinds = ["dictionary", "object", "composite_literal", "argument_list"];
                for literal in function.find_own(source, &kinds) {
                    literal_fields(source, function, literal, &mut fields);
                }
            }
            Language::Java => responses_typed::java_fields(source, function, &mut fields),
            Language::Rust => responses_typed::rust_fields(source, function, &mut fields),
            Language::Yaml => {}
        }
    }
    responses_typed::declared_fields(source, functions, &mut fields);
    fields
}

fn literal_fields(source: &Source<'_>, function: &Function<'_>, literal: Node<'_>, fields: &mut Vec<Field>) {
    let pairs: Vec<Node<'_>> = match literal.kind() {
        "dictionary" | "object" => {
            let is_field = |node: &Node<'_>| matches!(node.kind(), "pair" | "shorthand_property_identifier");
            children(literal).into_iter().filter(is_field).collect()
        }
        "composite_literal" => {
            let body = literal.child_by_field_name("body");
            let elements = body.map(children).unwrap_or_default();
            elements.into_iter().filter(|node| node.kind() == "keyed_element").collect()
        }
        // Only keyword arguments, as in `jsonify(left=3)`.
        _ if source.language == Language::Python => {
            children(literal).into_iter().filter(|node| node.kind() == "keyword_argument").collect()
        }
        _ => return,
    };
    if pairs.is_empty() {
        return;
    }
    let start = if literal.kind() == "argument_list" { literal.parent() } else { Some(literal) };
    let Some(scope) = start.and_then(|start| place_in_response(source, function, start, literal)) else {
        return;
    };
    for pair in pairs {
        fields.extend(read_pair(source, function, literal, pair, scope));
    }
}

fn read_pair(
    source: &Source<'_>,
    function: &Function<'_>,
    literal: Node<'_>,
    pair: Node<'_>,
    scope: Scope,
) -> Option<Field> {
    let parts = children(pair);
    let (key, value) = match parts.as_slice() {
        [key, value] => (*key, *value),
        _ => (pair, pair),
    };
    let key_text = source.text_of(key);
    let name = key_text.trim_matches(['"', '\'', '`']).to_owned();
    let quoted = key_text.starts_with(['"', '\'']);
    let kind = source.field(literal, "type");
    let new_name = renamed(&name);
    let is_shorthand = pair.kind() == "shorthand_property_identifier";
    let renaming = match source.language {
        // A field of a struct has the name of its declaration.
        Language::Go if !quoted => None,
        _ if is_shorthand => Some(Edit::replace(pair.byte_range(), format!("{new_name}: {name}"))),
        _ if quoted => Some(Edit::replace(key.start_byte() + 1..key.end_byte() - 1, new_name)),
        _ if key.kind() == "property_identifier" || key.kind() == "identifier" => {
            Some(Edit::replace(key.byte_range(), new_name))
        }
        _ => None,
    };
    let retyping = match source.language {
        Language::Go if !(kind.ends_with("any") || kind.ends_with("interface{}")) => None,
        _ if is_shorthand => Some(Edit::replace(pair.byte_range(), format!("{name}: [{name}]"))),
        language => Some(retype(source, value, language)),
    };
    Some(Field {
        at: pair.start_byte(),
        within: function.name.clone(),
        scope,
        removal: remove_pair(source, pair, value),
        retyping,
        renaming,
        name,
    })
}

/// Leaves a pair out. Go refuses variables that nothing uses any more, so there the value is used in front.
fn remove_pair(source: &Source<'_>, pair: Node<'_>, value: Node<'_>) -> Vec<Edit> {
    let removal = Edit::remove(element_range(source, pair.byte_range()));
    if source.language != Language::Go || find_all(value, &["identifier"]).is_empty() {
        return vec![removal];
    }
    let mut statement = pair;
    while let Some(above) =
        statement.parent().filter(|above| !matches!(above.kind(), "statement_list" | "block"))
    {
        statement = above;
    }
    let at = statement.start_byte();
    if !source.starts_line(at) {
        return Vec::new();
    }
    let used = format!("_ = {}{}{}", source.text_of(value), source.newline(), source.indent(at));
    vec![Edit::insert(at, used), removal]
}

/// Another type for a value: a number or truth value becomes a text, anything else a list of one.
fn retype(source: &Source<'_>, value: Node<'_>, language: Language) -> Edit {
    let text = source.text_of(value);
    let is_plain = text.parse::<f64>().is_ok() || matches!(text, "true" | "false" | "True" | "False");
    let (open, close) = match language {
        _ if is_plain => ("\"", "\""),
        Language::Go => ("[]any{", "}"),
        _ => ("[", "]"),
    };
    Edit::replace(value.byte_range(), format!("{open}{text}{close}"))
}

/// Whether a literal becomes a response, and where that happens. `start` is the expression that is climbed from.
fn place_in_response(
    source: &Source<'_>,
    function: &Function<'_>,
    start: Node<'_>,
    literal: Node<'_>,
) -> Option<Scope> {
    let mut responds = literal.kind() == "argument_list" && is_responder(source, start);
    if literal.kind() == "argument_list" && !responds {
        return None;
    }
    let mut node = start;
    for _ in 0..MAX_CLIMB {
        let above = node.parent()?;
        match above.kind() {
            "call" | "call_expression" => {
                if is_call_out(&format!("{}(", source.field(above, "function"))) {
                    return None;
                }
                responds |= is_responder(source, above);
            }
            "return_statement" => return Some(scope(responds || function.responds)),
            "expression_statement" | "if_statement" if responds => return Some(Scope::Responding),
            "assignment" | "assignment_expression" | "variable_declarator" | "short_var_declaration" => {
                let target =
                    above.child_by_field_name("left").or_else(|| above.child_by_field_name("name"))?;
                let name = source.text_of(target);
                let sent = responds || name.ends_with(".body") || is_sent(source, function, name);
                return sent.then(|| scope(function.responds));
            }
            "block" | "statement_block" | "statement_list" => return responds.then_some(Scope::Responding),
            _ => {}
        }
        node = above;
    }
    None
}

fn scope(responds: bool) -> Scope {
    if responds { Scope::Responding } else { Scope::Elsewhere }
}

/// Whether a call writes or encodes a response.
pub(super) fn is_responder(source: &Source<'_>, call: Node<'_>) -> bool {
    let callee = match call.child_by_field_name("function") {
        Some(function) => source.text_of(function),
        None => source.field(call, "name"),
    };
    let last = words(callee).last().unwrap_or_default().to_ascii_lowercase();
    RESPONDERS.contains(&last.as_str())
}

/// Whether a variable is returned, or handed to what writes responses.
pub(super) fn is_sent(source: &Source<'_>, function: &Function<'_>, variable: &str) -> bool {
    let kinds = ["return_statement", "call", "call_expression", "method_invocation"];
    function.find_own(source, &kinds).into_iter().any(|node| match node.kind() {
        "return_statement" => children(node).iter().any(|value| {
            let text = source.text_of(*value);
            text == variable || text.split(',').any(|part| part.trim() == variable)
        }),
        _ => {
            let arguments = node.child_by_field_name("arguments").map(children).unwrap_or_default();
            is_responder(source, node) && arguments.iter().any(|value| source.text_of(*value) == variable)
        }
    })
}

/// An element of a list together with one comma beside it; the whole line where nothing else stands in it.
pub(super) fn element_range(source: &Source<'_>, element: Range<usize>) -> Range<usize> {
    let text = source.text;
    let blank = |c: char| c.is_whitespace();
    let behind = text[element.end..].trim_start_matches(blank);
    if behind.starts_with(',') {
        let end = text.len() - behind.len() + 1;
        let line = &text[end..];
        let rest = line.trim_start_matches([' ', '\t', '\r']);
        if source.starts_line(element.start) && rest.starts_with('\n') {
            return source.line_start(element.start)..text.len() - rest.len() + 1;
        }
        return element.start..text.len() - line.trim_start_matches([' ', '\t']).len();
    }
    let before = text[..element.start].trim_end_matches(blank);
    match before.ends_with(',') {
        true => before.len() - 1..element.end,
        false => element,
    }
}
