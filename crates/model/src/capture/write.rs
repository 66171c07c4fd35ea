//! Writes a failing circumstance into the text of an application file, leaving everything else as it is.

use std::fmt::Write as _;

use super::Captured;
use crate::application::Tree;
use crate::circumstance::Circumstance;
use crate::import::{quote, scalar};

/// The layout of the file does not allow to insert a section.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct LayoutError(String);

/// Renders the `failing:` section.
pub fn section(failing: &Circumstance) -> String {
    let mut out = String::from("failing:\n");
    let mut put = |line: std::fmt::Arguments<'_>| {
        // Writing to a String cannot fail.
        let _ = writeln!(out, "  {line}");
    };
    let list = |parts: Vec<String>| parts.join(", ");
    if failing.nodes != 1 {
        put(format_args!("nodes: {}", failing.nodes));
    }
    if !failing.instances.is_empty() {
        let parts = failing.instances.iter().map(|(name, n)| format!("{}: {n}", scalar(name.as_str())));
        put(format_args!("instances: {{ {} }}", list(parts.collect())));
    }
    if !failing.versions.is_empty() {
        let parts =
            failing.versions.iter().map(|(name, v)| format!("{}: {}", scalar(name.as_str()), quote(v)));
        put(format_args!("versions: {{ {} }}", list(parts.collect())));
    }
    if !failing.config.is_empty() {
        put(format_args!("config:"));
        for (name, items) in &failing.config {
            let parts = items.iter().map(|(key, value)| format!("{}: {}", scalar(key), quote(value)));
            put(format_args!("  {}: {{ {} }}", scalar(name.as_str()), list(parts.collect())));
        }
    }
    if !failing.sequence.is_empty() {
        put(format_args!("sequence:"));
        for order in &failing.sequence {
            let calls = order.order.iter().map(|call| quote(&call.to_string()));
            put(format_args!(
                "  - {{ from: {}, in: {}, order: [{}] }}",
                scalar(order.from.as_str()),
                quote(&order.handling.to_string()),
                list(calls.collect())
            ));
        }
    }
    if out == "failing:\n" { "failing: {}\n".to_owned() } else { out }
}

/// Replaces the failing circumstance in the text and adds the versions it needs.
pub fn write(text: &str, captured: &Captured) -> Result<String, LayoutError> {
    let mut lines: Vec<String> = text.lines().map(ToOwned::to_owned).collect();
    let tree = Tree::read(text);
    let keys = tree.top_level();
    let section = section(&captured.failing);
    let section: Vec<String> = section.lines().map(ToOwned::to_owned).collect();
    match keys.iter().position(|(key, _)| key == "failing") {
        None => lines.extend(section),
        Some(at) => {
            let start = index(keys[at].1);
            if !lines.get(start).is_some_and(|line| line.starts_with("failing:")) {
                return Err(LayoutError("`failing` does not begin a line of its own".into()));
            }
            let mut end = keys.get(at + 1).map_or(lines.len(), |(_, line)| index(*line)).max(start + 1);
            // Comments and empty lines before the next key belong to that key.
            let between = |line: &String| line.trim().is_empty() || line.starts_with('#');
            while end > start + 1 && lines.get(end - 1).is_some_and(between) {
                end -= 1;
            }
            let end = end.min(lines.len());
            lines.splice(start..end, section);
        }
    }
    let mut written = lines.join("\n") + "\n";
    for (service, image) in &captured.images {
        let version = format!("{}: {{ image: {} }}", scalar(&image.version), quote(&image.image));
        written = add_version(&written, service.as_str(), &version)?;
    }
    Ok(written)
}

fn index(line: u64) -> usize {
    usize::try_from(line).unwrap_or(usize::MAX).saturating_sub(1)
}

/// Adds a version to a service that is written as a block.
fn add_version(text: &str, service: &str, version: &str) -> Result<String, LayoutError> {
    let tree = Tree::read(text);
    let refuse = || {
        LayoutError(format!(
            "add `versions: {{ {version} }}` to `{service}` by hand: its layout does not allow it"
        ))
    };
    if tree.line(&["services", service, "versions"]).0 == 3 {
        return Err(refuse());
    }
    let (2, Some(line)) = tree.line(&["services", service]) else { return Err(refuse()) };
    let mut lines: Vec<&str> = text.lines().collect();
    let at = index(line);
    let own = lines.get(at).ok_or_else(refuse)?;
    let indent = |line: &str| line.len() - line.trim_start().len();
    let head = own.split(" #").next().unwrap_or_default();
    let next = lines.get(at + 1).copied().filter(|l| indent(l) > indent(own) && !l.trim().is_empty());
    let (true, Some(next)) = (head.trim_end().ends_with(':'), next) else { return Err(refuse()) };
    let added = format!("{}versions: {{ {version} }}", " ".repeat(indent(next)));
    lines.insert(at + 1, &added);
    Ok(lines.join("\n") + "\n")
}
