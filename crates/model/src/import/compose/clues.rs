//! What else of a Compose service helps to infer ports: labels, health checks, mounted files, Dockerfiles.

use std::collections::BTreeMap;

use super::load::Project;
use super::paths;
use crate::import::ImportedService;
use crate::import::infer::{Clues, Dockerfile, Style, Text};
use crate::import::mounts::ImportedSource;
use crate::import::node::{Kind, Node};

/// Endings of mounted files that are searched for addresses.
const TEXT_ENDINGS: [&str; 11] =
    ["conf", "yaml", "yml", "json", "toml", "ini", "properties", "cfg", "cnf", "template", "env"];

/// The most mounted files of one service that are read.
const MAX_FILES: usize = 20;

/// Gathers what the files say about a service and whom it calls.
pub(super) fn gather_clues(project: &Project<'_>, node: &Node, service: &ImportedService) -> Clues {
    let mut clues = Clues { labels: read_pairs(node.get("labels")), ..Clues::default() };
    if let Some(test) = node.get("healthcheck").and_then(|check| check.get("test")) {
        let words: Vec<&str> = match &test.kind {
            Kind::List(items) => items.iter().filter_map(Node::as_text).collect(),
            _ => test.as_text().into_iter().collect(),
        };
        clues.texts.push(Text {
            place: "healthcheck".to_owned(),
            text: words.join(" "),
            style: Style::Command,
        });
    }
    for (label, text) in &clues.labels {
        clues.texts.push(Text { place: label.clone(), text: text.clone(), style: Style::Value });
    }
    for mount in service.mounts.iter().take(MAX_FILES) {
        let (place, text) = match &mount.source {
            ImportedSource::From(path) if is_text_file(path) => (path, project.load_if_there(path)),
            ImportedSource::Content(text) => (&mount.to, Some(text.clone())),
            _ => continue,
        };
        clues.texts.extend(text.map(|text| Text { place: place.clone(), text, style: Style::Value }));
    }
    clues.dockerfile = node.get("build").and_then(|build| read_dockerfile(project, build));
    clues.needs.extend(service.after.iter().cloned());
    clues
}

fn is_text_file(path: &str) -> bool {
    TEXT_ENDINGS.contains(&path.rsplit_once('.').map_or("", |(_, ending)| ending))
}

fn read_dockerfile(project: &Project<'_>, build: &Node) -> Option<(String, Dockerfile)> {
    let arguments = read_pairs(build.get("args"));
    let target = build.get_text("target");
    if let Some(text) = build.get_text("dockerfile_inline") {
        return Some(("dockerfile_inline".to_owned(), Dockerfile::parse(text, &arguments, target)?));
    }
    let context = build.get_text("context").unwrap_or(".");
    if paths::is_elsewhere(context) {
        return None;
    }
    let path = paths::join(context, build.get_text("dockerfile").unwrap_or("Dockerfile"));
    let text = project.load_if_there(&path)?;
    Some((path, Dockerfile::parse(&text, &arguments, target)?))
}

/// Names with values, from a mapping or from a list of `name=value`.
fn read_pairs(node: Option<&Node>) -> BTreeMap<String, String> {
    match node.map(|node| &node.kind) {
        Some(Kind::Map(map)) => {
            map.iter().filter_map(|(key, value)| Some((key.clone(), value.as_text()?.to_owned()))).collect()
        }
        Some(Kind::List(items)) => items
            .iter()
            .filter_map(|item| item.as_text()?.split_once('='))
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect(),
        _ => BTreeMap::new(),
    }
}
