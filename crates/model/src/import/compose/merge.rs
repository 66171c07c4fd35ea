//! One form for each key of a service, and the rules by which Compose merges files and `extends`.

use super::paths;
use crate::import::node::{Kind, Map, Node};

/// Lists that a later file replaces instead of extending.
const REPLACED: [&str; 3] = ["command", "entrypoint", "test"];

/// Lays `over` over `base`: values replace, mappings merge, lists append.
///
/// `key` names what the two are, because some lists have rules of their own.
pub(super) fn merge(base: &mut Node, mut over: Node, key: &str) {
    if over.tag.as_deref() == Some("!override") {
        over.tag = None;
        *base = over;
        return;
    }
    match (&mut base.kind, over.kind) {
        // An empty value says nothing, but an empty variable asks for the environment's.
        (_, Kind::Null) if key != "environment:" => {}
        (Kind::Map(base), Kind::Map(over)) => merge_maps(base, over, key),
        (Kind::List(base), Kind::List(over)) if key == "volumes" => {
            for volume in over {
                let target = volume.get_text("target");
                match base.iter_mut().find(|known| known.get_text("target") == target) {
                    Some(known) => *known = volume,
                    None => base.push(volume),
                }
            }
        }
        (Kind::List(base), Kind::List(over)) if !REPLACED.contains(&key) => {
            for item in over {
                // The line differs when the same thing is said twice.
                if !base.iter().any(|known| known.kind == item.kind) {
                    base.push(item);
                }
            }
        }
        (_, kind) => *base = Node { kind, ..over },
    }
}

/// Lays one mapping over another; `!reset` takes an entry away.
pub(super) fn merge_maps(base: &mut Map, over: Map, key: &str) {
    for (name, value) in over {
        if value.tag.as_deref() == Some("!reset") {
            base.shift_remove(&name);
            continue;
        }
        let inner = if key == "environment" { "environment:" } else { name.as_str() };
        match base.get_mut(&name) {
            Some(known) => merge(known, value, inner),
            None => {
                base.insert(name, value);
            }
        }
    }
}

/// Lays a service over the one that it extends. What it resets or overrides stays marked, because an
/// earlier file may have the same service.
pub(super) fn extend(base: &mut Node, own: Node) {
    let (Kind::Map(base), Kind::Map(own)) = (&mut base.kind, own.kind) else { return };
    for (name, value) in own {
        let tag = value.tag.clone();
        match tag.as_deref() {
            Some("!reset") => {
                base.insert(name, value);
            }
            Some("!override") => {
                merge_maps(base, Map::from([(name.clone(), value)]), "service");
                if let Some(merged) = base.get_mut(&name) {
                    merged.tag = tag;
                }
            }
            _ => merge_maps(base, Map::from([(name, value)]), "service"),
        }
    }
}

/// Takes away what is still marked `!reset` once everything is merged.
pub(super) fn drop_resets(node: &mut Node) {
    match &mut node.kind {
        Kind::Null | Kind::Scalar(_) => {}
        Kind::List(items) => {
            items.retain(|item| item.tag.as_deref() != Some("!reset"));
            items.iter_mut().for_each(drop_resets);
        }
        Kind::Map(map) => {
            map.retain(|_, value| value.tag.as_deref() != Some("!reset"));
            map.values_mut().for_each(drop_resets);
        }
    }
}

/// Brings short forms of a service into their long ones, so that files with different forms merge, and
/// makes its paths relative to the project.
pub(super) fn normalise(service: &mut Node, directory: &str) {
    let Kind::Map(map) = &mut service.kind else { return };
    for (key, value) in map.iter_mut() {
        let tag = value.tag.take();
        match key.as_str() {
            "environment" | "extra_hosts" => {
                list_to_map(value, if key == "environment" { &['='] } else { &['=', ':'] })
            }
            "depends_on" | "networks" => list_to_map(value, &[]),
            "build" => normalise_build(value, directory),
            "extends" => normalise_extends(value, directory),
            "env_file" => normalise_env_file(value, directory),
            "volumes" => normalise_volumes(value, directory),
            "expose" | "ports" | "profiles" | "links" => single_to_list(value),
            _ => {}
        }
        value.tag = tag;
    }
}

/// Makes the paths of a volume, a config or a secret relative to the project.
pub(super) fn normalise_definition(definition: &mut Node, directory: &str) {
    let Kind::Map(map) = &mut definition.kind else { return };
    join_entry(map, "file", directory);
    if let Some(Kind::Map(options)) = map.get_mut("driver_opts").map(|options| &mut options.kind) {
        join_entry(options, "device", directory);
    }
}

/// `[A=1, B]` becomes `{A: 1, B: null}`.
fn list_to_map(value: &mut Node, separators: &[char]) {
    let Kind::List(items) = &value.kind else { return };
    let mut map = Map::new();
    for item in items {
        let Some(text) = item.as_text() else { continue };
        let (name, kind) = match text.split_once(separators) {
            Some((name, text)) => (name, Kind::Scalar(text.to_owned())),
            None => (text, Kind::Null),
        };
        map.insert(name.trim().to_owned(), item.with(kind));
    }
    *value = value.with(Kind::Map(map));
}

fn single_to_list(value: &mut Node) {
    if value.as_text().is_some() {
        *value = value.with(Kind::List(vec![value.clone()]));
    }
}

fn normalise_build(value: &mut Node, directory: &str) {
    if value.as_text().is_some() {
        *value = value.with(Kind::Map(Map::from([("context".to_owned(), value.clone())])));
    }
    if let Kind::Map(map) = &mut value.kind {
        join_entry(map, "context", directory);
    }
}

fn normalise_extends(value: &mut Node, directory: &str) {
    if value.as_text().is_some() {
        *value = value.with(Kind::Map(Map::from([("service".to_owned(), value.clone())])));
    }
    if let Kind::Map(map) = &mut value.kind {
        join_entry(map, "file", directory);
    }
}

fn normalise_env_file(value: &mut Node, directory: &str) {
    single_to_list(value);
    if value.as_map().is_some() {
        *value = value.with(Kind::List(vec![value.clone()]));
    }
    let Kind::List(items) = &mut value.kind else {
        return;
    };
    for item in items {
        if item.as_text().is_some() {
            *item = item.with(Kind::Map(Map::from([("path".to_owned(), item.clone())])));
        }
        if let Kind::Map(map) = &mut item.kind {
            join_entry(map, "path", directory);
        }
    }
}

fn normalise_volumes(value: &mut Node, directory: &str) {
    let Kind::List(items) = &mut value.kind else {
        return;
    };
    for item in items {
        if let Some(text) = item.as_text() {
            let mut parts = text.split(':');
            let (first, second) = (parts.next().unwrap_or_default(), parts.next());
            let mut map = Map::new();
            let target = match second {
                Some(target) => {
                    let bind = first.starts_with(['.', '/', '~']);
                    map.insert("type".to_owned(), item.with_text(if bind { "bind" } else { "volume" }));
                    map.insert("source".to_owned(), item.with_text(first));
                    target
                }
                None => first,
            };
            map.insert("target".to_owned(), item.with_text(target));
            if parts.next().is_some_and(|mode| mode.split(',').any(|m| m == "ro")) {
                map.insert("read_only".to_owned(), item.with_text("true"));
            }
            *item = item.with(Kind::Map(map));
        }
        if let Kind::Map(map) = &mut item.kind
            && map.get("type").and_then(Node::as_text) == Some("bind")
        {
            join_entry(map, "source", directory);
        }
    }
}

fn join_entry(map: &mut Map, key: &str, directory: &str) {
    if let Some(node) = map.get_mut(key)
        && let Some(path) = node.as_text()
    {
        *node = node.with_text(paths::join(directory, path));
    }
}
