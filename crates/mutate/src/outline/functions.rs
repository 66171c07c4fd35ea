//! Functions and the places in them where statements can be put.

use tree_sitter::Node;

use super::route::{find_writer, is_handler, route_name};
use crate::language::Language;
use crate::source::Source;
use crate::walk::{ancestor, children, find_all, walk};

/// A function with a body of statements.
#[derive(Debug)]
pub(crate) struct Function<'t> {
    pub(crate) node: Node<'t>,
    pub(crate) body: Node<'t>,
    /// With the names of its classes, or the route of one without a name.
    pub(crate) name: String,
    pub(crate) is_async: bool,
    /// Whether it answers requests.
    pub(crate) responds: bool,
    /// The parameter that the response is written to.
    pub(crate) writer: Option<String>,
}

/// A place in front of a statement.
#[derive(Debug)]
pub(crate) struct InsertionPoint {
    pub(crate) at: usize,
    /// The indentation of statements here.
    pub(crate) indent: String,
    /// Whether the place begins its line.
    starts_line: bool,
    /// The statement behind it.
    pub(crate) anchor: String,
}

/// How much of a statement goes into the id of a mutant in front of it.
const MAX_ANCHOR: usize = 200;

impl InsertionPoint {
    /// The text to insert, so that these lines stand here as statements.
    pub(crate) fn render(&self, lines: &[String], newline: &str) -> String {
        let between = format!("{newline}{}", self.indent);
        let text = lines.join(&between);
        match self.starts_line {
            true => format!("{text}{between}"),
            false => format!("{between}{text}{between}"),
        }
    }
}

fn function_kinds(language: Language) -> &'static [&'static str] {
    match language {
        Language::Python => &["function_definition"],
        Language::JavaScript | Language::TypeScript | Language::Tsx => {
            &["function_declaration", "function_expression", "arrow_function", "method_definition"]
        }
        Language::Go => &["function_declaration", "method_declaration", "func_literal"],
        // Constructors are left out: nothing may stand in front of a call of `super`.
        Language::Java => &["method_declaration", "lambda_expression"],
        Language::Rust => &["function_item"],
        Language::Yaml => &[],
    }
}

/// All functions of a source, in its order.
pub(crate) fn functions<'t>(source: &'t Source<'_>) -> Vec<Function<'t>> {
    let found = find_all(source.root(), function_kinds(source.language)).into_iter();
    found.filter_map(|node| read_function(source, node)).collect()
}

fn read_function<'t>(source: &Source<'_>, node: Node<'t>) -> Option<Function<'t>> {
    let body = node.child_by_field_name("body").filter(|body| is_block(*body))?;
    if source.language == Language::Rust && (is_const(source, node) || is_test(source, node)) {
        return None;
    }
    let writer = find_writer(source, node);
    Some(Function {
        node,
        body,
        name: name_function(source, node),
        is_async: is_async(source, node),
        responds: writer.is_some() || is_handler(source, node),
        writer,
    })
}

fn is_block(node: Node<'_>) -> bool {
    matches!(node.kind(), "block" | "statement_block")
}

fn modifiers<'s>(source: &Source<'s>, node: Node<'_>) -> &'s str {
    let end = node.child_by_field_name("body").map_or(node.end_byte(), |body| body.start_byte());
    let end = node.child_by_field_name("parameters").map_or(end, |node| node.start_byte());
    let end = node.child_by_field_name("name").map_or(end, |node| node.start_byte());
    source.text.get(node.start_byte()..end).unwrap_or_default()
}

fn is_async(source: &Source<'_>, node: Node<'_>) -> bool {
    modifiers(source, node).split_whitespace().any(|word| word == "async")
}

fn is_const(source: &Source<'_>, node: Node<'_>) -> bool {
    modifiers(source, node).split_whitespace().any(|word| word == "const")
}

fn is_test(source: &Source<'_>, node: Node<'_>) -> bool {
    let mut item = Some(node);
    while let Some(node) = item {
        let mut before = node.prev_named_sibling();
        while let Some(attribute) = before.filter(|node| node.kind() == "attribute_item") {
            let text = source.text_of(attribute);
            if text.contains("test]") || text.contains("cfg(test)") || text.contains("::test(") {
                return true;
            }
            before = attribute.prev_named_sibling();
        }
        item = ancestor(node, &["mod_item", "function_item", "impl_item"]);
    }
    false
}

fn name_function(source: &Source<'_>, node: Node<'_>) -> String {
    const NAMED: [&str; 9] = [
        "function_definition",
        "function_declaration",
        "method_definition",
        "method_declaration",
        "function_item",
        "class_definition",
        "class_declaration",
        "record_declaration",
        "variable_declarator",
    ];
    let mut parts = Vec::new();
    if !NAMED.contains(&node.kind()) {
        parts.extend(route_name(source, node));
    }
    let mut next = Some(node);
    while let Some(node) = next {
        let name = match node.kind() {
            "impl_item" => source.field(node, "type"),
            _ => source.field(node, "name"),
        };
        if !name.is_empty() {
            parts.push(name.to_owned());
        }
        // The variable that a function is assigned to names it; variables further out do not.
        let kinds = if parts.is_empty() { &NAMED[..] } else { &NAMED[..8] };
        next = ancestor(node, kinds).or_else(|| ancestor(node, &["impl_item"]));
    }
    if source.language == Language::Go && node.kind() == "method_declaration" {
        let receiver = source.field(node, "receiver").trim_matches(['(', ')']);
        parts.extend(receiver.split([' ', '*']).next_back().map(str::to_owned));
    }
    if parts.is_empty() {
        return "anonymous function".into();
    }
    parts.reverse();
    parts.join(".")
}

impl<'t> Function<'t> {
    /// The places for statements: the beginning of the function and of each of its branches.
    pub(crate) fn insertion_points(&self, source: &Source<'_>) -> Vec<InsertionPoint> {
        let branches = self.find_own(source, &["block", "statement_block"]).into_iter().filter(|block| {
            let above = block.parent().map_or("", |parent| parent.kind());
            matches!(above, "if_statement" | "elif_clause" | "else_clause" | "if_expression")
        });
        std::iter::once(self.body).chain(branches).filter_map(|block| first_place(source, block)).collect()
    }

    /// All nodes of some kinds in the body, but not in functions within it.
    pub(crate) fn find_own(&self, source: &Source<'_>, kinds: &[&str]) -> Vec<Node<'t>> {
        let nested = function_kinds(source.language);
        let mut found = Vec::new();
        walk(self.body, |node| {
            if nested.contains(&node.kind()) {
                return false;
            }
            if node.is_named() && node.id() != self.body.id() && kinds.contains(&node.kind()) {
                found.push(node);
            }
            true
        });
        found
    }
}

fn first_place(source: &Source<'_>, block: Node<'_>) -> Option<InsertionPoint> {
    let mut statements = children(block);
    if let [list] = statements.as_slice()
        && list.kind() == "statement_list"
    {
        statements = children(*list);
    }
    // Doc strings, `"use strict"` and inner attributes stay in front.
    let leads = |node: &&Node<'_>| {
        let text = source.text_of(**node);
        let is_string = matches!(node.kind(), "expression_statement") && text.starts_with(['"', '\'']);
        is_string || node.kind() == "inner_attribute_item"
    };
    let n_leading = statements.iter().take_while(leads).count();
    let Some(first) = statements.get(n_leading) else {
        return empty_place(source, block, n_leading > 0);
    };
    let at = first.start_byte();
    let starts_line = source.starts_line(at);
    if source.language == Language::Python && !starts_line {
        return None;
    }
    Some(InsertionPoint {
        at,
        indent: match starts_line {
            true => source.indent(at).to_owned(),
            false => format!("{}{}", source.indent(at), source.indent_unit()),
        },
        starts_line,
        anchor: source.text_of(*first).chars().take(MAX_ANCHOR).collect(),
    })
}

/// A place between the braces of an empty body.
fn empty_place(source: &Source<'_>, block: Node<'_>, has_leading: bool) -> Option<InsertionPoint> {
    if has_leading || !source.text_of(block).starts_with('{') {
        return None;
    }
    let at = block.start_byte() + 1;
    let indent = format!("{}{}", source.indent(at), source.indent_unit());
    Some(InsertionPoint { at, indent, starts_line: false, anchor: String::new() })
}
