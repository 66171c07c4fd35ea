//! M14: the caller no longer waits, so what it starts ends in any order.

use tree_sitter::Node;

use super::scope;
use crate::edit::Edit;
use crate::imports::{self, Import};
use crate::language::Language;
use crate::mutant::Draft;
use crate::operator::Operator;
use crate::outline::{Function, awaited_calls, words};
use crate::source::Source;
use crate::walk::{children, find_all};

/// Methods of Go and Java that wait for something started before.
const WAITS: [&str; 4] = ["Wait", "join", "await", "get"];

pub(super) fn drafts(source: &Source<'_>, function: &Function<'_>, drafts: &mut Vec<Draft>) {
    let mut push = |node: Node<'_>, variant, edits: Vec<Edit>| {
        drafts.push(Draft {
            operator: Operator::OutOfOrder,
            variant,
            at: node.start_byte(),
            within: function.name.clone(),
            service: None,
            anchor: source.text_of(node).to_owned(),
            scope: scope(function),
            edits,
        });
    };
    match source.language {
        Language::Python | Language::JavaScript | Language::TypeScript | Language::Tsx => {
            for wait in awaited_calls(source, function) {
                let (variant, edits) = drop_await(source, wait);
                push(wait, Some(variant), edits);
            }
        }
        Language::Go => waiting_statements(source, function)
            .into_iter()
            .for_each(|statement| push(statement, None, vec![drop_wait_in_go(source, statement)])),
        Language::Java => waiting_statements(source, function).into_iter().for_each(|statement| {
            // The compiler still sees the exceptions that waiting may throw.
            push(statement, None, vec![Edit::insert(statement.start_byte(), "if (false) ")]);
        }),
        Language::Rust => {
            for wait in awaited_calls(source, function) {
                if let Some((variant, edit)) = detach_in_rust(source, function, wait) {
                    push(wait, Some(variant), vec![edit]);
                }
            }
        }
        Language::Yaml => {}
    }
}

/// Removes `await`. A coroutine of Python would not even start, so one whose result nobody uses becomes a task.
fn drop_await(source: &Source<'_>, wait: Node<'_>) -> (&'static str, Vec<Edit>) {
    let is_statement = wait.parent().is_some_and(|parent| parent.kind() == "expression_statement");
    let variant = if is_statement { "statement" } else { "value" };
    let Some(call) = children(wait).into_iter().next() else { return (variant, Vec::new()) };
    if source.language == Language::Python && is_statement {
        let mut task = ["{asyncio}.ensure_future(".to_owned()];
        let mut edits = imports::resolve(source, &mut task, &[Import("asyncio")]);
        let [task] = task;
        edits.push(Edit::replace(wait.start_byte()..call.start_byte(), task));
        edits.push(Edit::insert(call.end_byte(), ")"));
        return (variant, edits);
    }
    (variant, vec![Edit::remove(wait.start_byte()..call.start_byte())])
}

/// Statements that only wait: `wg.Wait()`, `<-done`, `future.join();`.
fn waiting_statements<'t>(source: &Source<'_>, function: &Function<'t>) -> Vec<Node<'t>> {
    let statements = function.find_own(source, &["expression_statement"]).into_iter();
    let waits = |statement: &Node<'_>| {
        let Some(inner) = children(*statement).into_iter().next() else { return false };
        let arguments = inner.child_by_field_name("arguments").map(children).unwrap_or_default();
        let method = match inner.kind() {
            "unary_expression" => return source.text_of(inner).starts_with("<-"),
            "call_expression" => words(source.field(inner, "function")).last().unwrap_or_default(),
            "method_invocation" => source.field(inner, "name"),
            _ => return false,
        };
        arguments.is_empty() && WAITS.contains(&method)
    };
    statements.filter(waits).collect()
}

/// Uses what was waited for without waiting, since Go refuses variables and imports that nothing uses.
fn drop_wait_in_go(source: &Source<'_>, statement: Node<'_>) -> Edit {
    let text = source.text_of(statement);
    let used = match text.strip_prefix("<-") {
        Some(channel) => channel.trim(),
        None => text.strip_suffix("()").unwrap_or(text),
    };
    Edit::replace(statement.byte_range(), format!("_ = {used}"))
}

/// Lets a future run on its own: a task that is waited for is detached, a call becomes a task.
fn detach_in_rust(
    source: &Source<'_>,
    function: &Function<'_>,
    wait: Node<'_>,
) -> Option<(&'static str, Edit)> {
    let future = children(wait).into_iter().next()?;
    let mut outer = wait;
    // `.await?` and `.await.unwrap()` end with the wait.
    while let Some(above) = outer.parent() {
        match above.kind() {
            "try_expression" | "call_expression" | "field_expression" => outer = above,
            "let_declaration" if source.field(above, "pattern") == "_" => outer = above,
            _ => break,
        }
    }
    let statement = match outer.kind() {
        "let_declaration" => outer,
        _ => outer.parent().filter(|node| node.kind() == "expression_statement")?,
    };
    let text = source.text_of(future);
    match future.kind() {
        "identifier" => Some(("task", Edit::replace(statement.byte_range(), format!("drop({text});")))),
        "call_expression" if moves_all(source, function, future, statement) => {
            let task = format!("tokio::spawn(async move {{ let _ = {text}.await; }});");
            Some(("call", Edit::replace(statement.byte_range(), task)))
        }
        _ => None,
    }
}

/// Whether a call can be moved into a task: it borrows nothing, and nothing it uses is used later.
fn moves_all(source: &Source<'_>, function: &Function<'_>, call: Node<'_>, statement: Node<'_>) -> bool {
    let text = source.text_of(call);
    let later = source.text.get(statement.end_byte()..function.body.end_byte()).unwrap_or_default();
    let parameters = source.field(function.node, "parameters");
    let borrowed = |name: &str| {
        words(name).any(|word| word == "self")
            || parameters
                .split(',')
                .any(|parameter| parameter.contains('&') && words(parameter).next() == Some(name))
    };
    let arguments: Vec<&str> =
        find_all(call, &["identifier", "self"]).into_iter().map(|node| source.text_of(node)).collect();
    let is_used = |name: &&str| words(later).any(|word| word == *name);
    !text.contains('&')
        && !text.contains('?')
        && !arguments.iter().any(|name| is_used(name) || borrowed(name))
}
