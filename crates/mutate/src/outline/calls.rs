//! Calls that leave the service, and statements that consist of one.

use tree_sitter::Node;

use super::functions::Function;
use crate::language::Language;
use crate::source::Source;
use crate::walk::children;

/// Parts of the names of clients. What matches is a call to another service.
const CLIENTS: [&str; 14] = [
    "requests.",
    "httpx.",
    "session.",
    "client.",
    "resttemplate",
    "webclient",
    "http.get",
    "http.post",
    "axios",
    "fetch(",
    "urlopen",
    "stub.",
    "http.do",
    "publisher.",
];

/// The words of a text, split as identifiers are.
pub(crate) fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|word| !word.is_empty())
}

/// Whether a text calls another service through one of the usual clients.
pub(crate) fn is_call_out(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    CLIENTS.iter().any(|client| lower.contains(client))
}

/// A statement that makes one call to another service.
#[derive(Debug)]
pub(crate) struct CallStatement<'t> {
    pub(crate) node: Node<'t>,
    /// The variable that takes the result.
    pub(crate) variable: Option<String>,
    /// The type of that variable, where it is written.
    pub(crate) declared_type: Option<String>,
    /// The call, without `await`.
    pub(crate) call: Node<'t>,
    pub(crate) is_awaited: bool,
}

/// The statements of a block that make calls to other services, in groups that follow one another in one block.
pub(crate) fn call_statements<'t>(
    source: &Source<'_>,
    function: &Function<'t>,
    callers: &[String],
) -> Vec<Vec<CallStatement<'t>>> {
    let kinds = ["block", "statement_block", "statement_list"];
    let blocks = std::iter::once(function.body).chain(function.find_own(source, &kinds));
    let read = |statement: Node<'t>| {
        read_statement(source, statement)
            .filter(|statement| statement.is_awaited || leaves(source, statement.call, callers))
    };
    blocks.map(|block| children(block).into_iter().filter_map(read).collect()).collect()
}

fn leaves(source: &Source<'_>, call: Node<'_>, callers: &[String]) -> bool {
    let callee = source.text_of(call);
    let name = callee.split('(').next().unwrap_or_default();
    is_call_out(callee) || words(name).last().is_some_and(|name| callers.iter().any(|caller| caller == name))
}

fn read_statement<'t>(source: &Source<'_>, statement: Node<'t>) -> Option<CallStatement<'t>> {
    let (variable, declared_type, value) = match statement.kind() {
        "expression_statement" => {
            let inner = children(statement).into_iter().next()?;
            match inner.kind() {
                "assignment" if inner.child_by_field_name("type").is_none() => {
                    (Some(inner.child_by_field_name("left")?), None, inner.child_by_field_name("right")?)
                }
                "assignment" => return None,
                _ => (None, None, inner),
            }
        }
        "lexical_declaration" | "local_variable_declaration" => {
            let declarators = children(statement);
            let mut declarators = declarators.iter().filter(|node| node.kind() == "variable_declarator");
            let (Some(only), None) = (declarators.next(), declarators.next()) else { return None };
            let kind = statement.child_by_field_name("type").map(|node| source.text_of(node).to_owned());
            (Some(only.child_by_field_name("name")?), kind, only.child_by_field_name("value")?)
        }
        _ => return None,
    };
    // Patterns that take a result apart would have to be written anew.
    let variable = match variable {
        Some(node) if node.kind() != "identifier" => return None,
        Some(node) => Some(source.text_of(node).to_owned()),
        None => None,
    };
    let (call, is_awaited) = match value.kind() {
        "await" | "await_expression" => (children(value).into_iter().next()?, true),
        _ => (value, false),
    };
    let is_call = matches!(call.kind(), "call" | "call_expression" | "method_invocation");
    is_call.then_some(CallStatement { node: statement, variable, declared_type, call, is_awaited })
}

/// Expressions that wait for a call: `await f()`, `f().await`.
pub(crate) fn awaited_calls<'t>(source: &Source<'_>, function: &Function<'t>) -> Vec<Node<'t>> {
    let mut found = function.find_own(source, &["await", "await_expression"]);
    if source.language == Language::Python {
        found.retain(|node| children(*node).first().is_some_and(|inner| inner.kind() == "call"));
    }
    found
}
