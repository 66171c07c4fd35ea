//! Imports of Python and Go: those that are there are used, others are added.

use tree_sitter::Node;

use crate::edit::Edit;
use crate::language::Language;
use crate::outline::words;
use crate::source::Source;
use crate::walk::{children, find_all};

/// A module or package that inserted code needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Import(pub(crate) &'static str);

impl Import {
    /// The name under which it is used: the last part of its path.
    pub(crate) fn name(self) -> &'static str {
        self.0.rsplit('/').next().unwrap_or(self.0)
    }
}

/// Replaces `{name}` in inserted lines by the name that an import has here, and adds what is missing.
pub(crate) fn resolve(source: &Source<'_>, lines: &mut [String], imports: &[Import]) -> Vec<Edit> {
    let mut missing = Vec::new();
    for &import in imports {
        let name = match find_name(source, import) {
            Some(name) => name,
            // A variable of the same name would hide the import, so it gets a name that nobody has.
            None => {
                let is_taken = is_used_otherwise(source, import.name());
                let name =
                    if is_taken { format!("injected_{}", import.name()) } else { import.name().to_owned() };
                missing.push((import, is_taken.then(|| name.clone())));
                name
            }
        };
        let place = format!("{{{}}}", import.name());
        lines.iter_mut().for_each(|line| *line = line.replace(&place, &name));
    }
    match missing.is_empty() {
        true => Vec::new(),
        false => vec![add(source, &missing)],
    }
}

fn find_name(source: &Source<'_>, import: Import) -> Option<String> {
    match source.language {
        Language::Python => find_all(source.root(), &["import_statement"])
            .into_iter()
            .filter(|statement| statement.parent().is_some_and(|parent| parent.kind() == "module"))
            .flat_map(children)
            .find_map(|clause| match clause.kind() {
                "aliased_import" if source.field(clause, "name") == import.0 => {
                    Some(source.field(clause, "alias").to_owned())
                }
                "dotted_name" if source.text_of(clause) == import.0 => Some(import.0.to_owned()),
                _ => None,
            }),
        Language::Go => find_all(source.root(), &["import_spec"]).into_iter().find_map(|spec| {
            let is_same = source.field(spec, "path").trim_matches('"') == import.0;
            let alias = source.field(spec, "name");
            let name = if alias.is_empty() { import.name() } else { alias };
            (is_same && !matches!(alias, "_" | ".")).then(|| name.to_owned())
        }),
        _ => None,
    }
}

/// Whether a name means something else in this file.
fn is_used_otherwise(source: &Source<'_>, name: &str) -> bool {
    words(source.text).any(|word| word == name)
        && find_all(source.root(), &["identifier", "package_identifier", "dotted_name"])
            .into_iter()
            .any(|node| source.text_of(node) == name)
}

fn add(source: &Source<'_>, missing: &[(Import, Option<String>)]) -> Edit {
    let newline = source.newline();
    match source.language {
        Language::Python => {
            let line = |(import, alias): &(Import, Option<String>)| match alias {
                Some(alias) => format!("import {} as {alias}{newline}", import.0),
                None => format!("import {}{newline}", import.0),
            };
            Edit::insert(first_python_statement(source), missing.iter().map(line).collect::<String>())
        }
        _ => {
            let spec = |(import, alias): &(Import, Option<String>)| match alias {
                Some(alias) => format!("{alias} \"{}\"", import.0),
                None => format!("\"{}\"", import.0),
            };
            let specs: Vec<String> = missing.iter().map(spec).collect();
            add_go(source, &specs)
        }
    }
}

/// The place behind the doc string and imports from `__future__`, which must stand first.
fn first_python_statement(source: &Source<'_>) -> usize {
    let statements = children(source.root());
    let leads = |node: &&Node<'_>| {
        let text = source.text_of(**node);
        node.kind() == "future_import_statement"
            || (node.kind() == "expression_statement"
                && text.starts_with(['"', '\'', 'r'])
                && !text.contains('('))
    };
    let n_leading = statements.iter().take_while(leads).count();
    statements.get(n_leading).map_or(source.text.len(), |node| source.line_start(node.start_byte()))
}

fn add_go(source: &Source<'_>, specs: &[String]) -> Edit {
    let newline = source.newline();
    if let Some(list) = find_all(source.root(), &["import_spec_list"]).into_iter().next() {
        let text: String = specs.iter().map(|spec| format!("{newline}\t{spec}")).collect();
        return Edit::insert(list.start_byte() + 1, text);
    }
    let clause = children(source.root()).into_iter().find(|node| node.kind() == "package_clause");
    let at = clause.map_or(0, |node| node.end_byte());
    let text: String = specs.iter().map(|spec| format!("{newline}{newline}import {spec}")).collect();
    Edit::insert(at, text)
}
