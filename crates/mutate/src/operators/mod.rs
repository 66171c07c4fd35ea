//! The operators: from what a source contains to drafts of mutants.

mod concurrent;
mod local_state;
mod local_state_typed;
mod out_of_order;

use crate::config;
use crate::edit::Edit;
use crate::imports;
use crate::language::Language;
use crate::mutant::{Draft, Mutant, Scope, name_drafts};
use crate::operator::Operator;
use crate::outline::{Field, Function, InsertionPoint, functions, outermost_class, response_fields};
use crate::snippet::{INSERTING, Snippet, snippet};
use crate::source::Source;
use crate::walk::children;

/// More mutants of one file are not listed. A file of 1 MiB that consists of empty functions has 100,000 places.
pub const MAX_MUTANTS: usize = 5_000;

/// Every mutant of a source, in the order of its text: always the same for the same text.
pub fn enumerate(source: &Source<'_>) -> Vec<Mutant> {
    name_drafts(source, find_drafts(source))
}

fn find_drafts(source: &Source<'_>) -> Vec<Draft> {
    if source.language == Language::Yaml {
        return config::drafts(source);
    }
    let functions = functions(source);
    let mut drafts = Vec::new();
    for function in &functions {
        insert_statements(source, function, &mut drafts);
        if drafts.len() > MAX_MUTANTS {
            break;
        }
    }
    for field in response_fields(source, &functions) {
        change_field(field, &mut drafts);
    }
    shorten_tuples(source, &functions, &mut drafts);
    for function in &functions {
        out_of_order::drafts(source, function, &mut drafts);
    }
    concurrent::drafts(source, &functions, &mut drafts);
    local_state::drafts(source, &mut drafts);
    drafts.truncate(MAX_MUTANTS);
    drafts
}

fn scope(function: &Function<'_>) -> Scope {
    if function.responds { Scope::Responding } else { Scope::Elsewhere }
}

fn insert_statements(source: &Source<'_>, function: &Function<'_>, drafts: &mut Vec<Draft>) {
    let points = function.insertion_points(source);
    for (operator, variant) in INSERTING {
        for point in &points {
            let Some(found) = snippet(source, function, operator, variant) else { continue };
            let Some(edits) = insert(source, function, point, found) else { continue };
            drafts.push(Draft {
                operator,
                variant,
                at: point.at,
                within: function.name.clone(),
                service: None,
                anchor: point.anchor.clone(),
                scope: scope(function),
                edits,
            });
        }
    }
}

fn insert(
    source: &Source<'_>,
    function: &Function<'_>,
    point: &InsertionPoint,
    snippet: Snippet,
) -> Option<Vec<Edit>> {
    let Snippet { mut lines, imports, declaration } = snippet;
    let mut edits = imports::resolve(source, &mut lines, &imports);
    if let Some(declaration) = declaration {
        edits.push(declare(source, function, declaration)?);
    }
    edits.push(Edit::insert(point.at, point.render(&lines, source.newline())));
    Some(edits)
}

/// Adds a declaration: at the end of a Go file, in Java to the outermost class of the function.
fn declare(source: &Source<'_>, function: &Function<'_>, declaration: &str) -> Option<Edit> {
    let newline = source.newline();
    if source.language == Language::Java {
        let body = outermost_class(function.node)?.child_by_field_name("body")?;
        let indent = format!("{}{}", source.indent(body.start_byte()), source.indent_unit());
        return Some(Edit::insert(body.start_byte() + 1, format!("{newline}{indent}{declaration}")));
    }
    let ends_line = source.text.ends_with('\n');
    let lead = if ends_line { "" } else { newline };
    Some(Edit::insert(source.text.len(), format!("{lead}{newline}{declaration}{newline}")))
}

fn change_field(field: Field, drafts: &mut Vec<Draft>) {
    let Field { name, at, within, scope, removal, retyping, renaming } = field;
    let forms = [
        (Operator::IncompleteResponse, None, removal),
        (Operator::FieldChange, Some("type"), Vec::from_iter(retyping)),
        (Operator::FieldChange, Some("name"), Vec::from_iter(renaming)),
    ];
    for (operator, variant, edits) in forms {
        if !edits.is_empty() {
            let (within, anchor) = (within.clone(), name.clone());
            drafts.push(Draft { operator, variant, at, within, service: None, anchor, scope, edits });
        }
    }
}

/// `return a, b` becomes `return a`, the example of Table 3.5.
fn shorten_tuples(source: &Source<'_>, functions: &[Function<'_>], drafts: &mut Vec<Draft>) {
    if source.language != Language::Python {
        return;
    }
    for function in functions {
        for statement in function.find_own(source, &["return_statement"]) {
            let Some(list) = children(statement).into_iter().next() else { continue };
            let values = children(list);
            let (true, [.., before, last]) =
                (matches!(list.kind(), "expression_list" | "tuple"), values.as_slice())
            else {
                continue;
            };
            drafts.push(Draft {
                operator: Operator::IncompleteResponse,
                variant: Some("tuple"),
                at: statement.start_byte(),
                within: function.name.clone(),
                service: None,
                anchor: source.text_of(statement).to_owned(),
                scope: scope(function),
                edits: vec![Edit::remove(before.end_byte()..last.end_byte())],
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_places_are_bounded() {
        let text = "function f() { g(); }\n".repeat(700);
        let source = Source::parse("many.js", text.as_bytes(), Language::JavaScript).unwrap();
        assert_eq!(find_drafts(&source).len(), MAX_MUTANTS);
    }
}
