//! What a service sees at paths of its own, and where it works: `volumes`, `tmpfs`, `configs`, `secrets`, `build`,
//! `working_dir`.

use super::load::{Model, Project};
use super::paths;
use crate::import::mounts::{
    ImportedMount, ImportedSource, Mounts, PathKind, looks_like_file, own_volume_name, parse_mode,
    volume_name,
};
use crate::import::node::{Kind, Node};
use crate::units::ByteSize;

/// The folder of this machine in which a service works when it runs as a process; the error names one that is
/// outside of the project.
pub(super) fn find_directory(project: &Project<'_>, service: &Node) -> Result<Option<String>, String> {
    let context = service.get("build").and_then(|build| build.get_text("context"));
    let context = context.filter(|context| !paths::is_elsewhere(context) || context.starts_with('/'));
    let inside = service.get_text("working_dir");
    let volumes = service.get("volumes").and_then(Node::as_list).unwrap_or_default();

    // Code mounted over the working directory tells best where it is on this machine.
    let mounted = inside.and_then(|inside| {
        volumes.iter().filter(|m| m.get_text("type") == Some("bind")).find_map(|mount| {
            let rest = paths::below(inside, mount.get_text("target")?)?;
            Some(paths::join(mount.get_text("source")?, rest))
        })
    });
    let built = context.map(|context| match inside {
        Some(inside) if !inside.starts_with('/') => paths::join(context, inside),
        _ => context.to_owned(),
    });
    let Some(directory) = mounted.or(built) else { return Ok(None) };
    match project.find_in_project(&directory) {
        Some(inside) => Ok(Some(inside).filter(|inside| inside != ".")),
        None => Err(directory),
    }
}

/// Everything that a service sees at paths of its own.
pub(super) fn find_mounts(
    project: &mut Project<'_>,
    model: &Model,
    name: &str,
    service: &Node,
) -> Vec<ImportedMount> {
    let mut warnings = std::mem::take(&mut project.warnings);
    let mut mounts = Mounts::new(name, &mut warnings);
    for volume in service.get("volumes").and_then(Node::as_list).unwrap_or_default() {
        add_volume(project, model, volume, &mut mounts);
    }
    for entry in service.get("tmpfs").map(single_or_list).unwrap_or_default() {
        let Some((path, options)) = entry.as_text().map(|text| text.split_once(':').unwrap_or((text, "")))
        else {
            continue;
        };
        let size = options.split(',').find_map(|option| option.strip_prefix("size="));
        mounts.add(path, ImportedSource::Tmpfs(size.and_then(parse_size)), false);
    }
    for (key, folder) in [("configs", ""), ("secrets", "/run/secrets")] {
        let definitions = if key == "configs" { &model.configs } else { &model.secrets };
        for entry in service.get(key).and_then(Node::as_list).unwrap_or_default() {
            let Some(source) = entry.as_text().or_else(|| entry.get_text("source")) else { continue };
            let target = entry.get_text("target").unwrap_or(source);
            let to = if target.starts_with('/') { target.to_owned() } else { format!("{folder}/{target}") };
            let mode = entry.get_text("mode").and_then(parse_mode);
            add_definition(project, source, definitions.get(source), &to, mode, &mut mounts);
        }
    }
    let list = mounts.list;
    project.warnings = warnings;
    list
}

fn add_volume(project: &Project<'_>, model: &Model, volume: &Node, mounts: &mut Mounts<'_>) {
    let Some(target) = volume.get_text("target") else { return };
    let source = volume.get_text("source").filter(|source| !source.is_empty());
    let readonly = volume.get_text("read_only") == Some("true");
    if volume.get("volume").is_some_and(|options| options.get("subpath").is_some()) {
        mounts.warn(format!("`subpath` of the volume at `{target}` is not carried over"));
    }
    match (volume.get_text("type").unwrap_or("volume"), source) {
        ("bind", Some(source)) => add_bind(project, source, target, readonly, mounts),
        ("tmpfs", _) => {
            let size = volume.get("tmpfs").and_then(|options| options.get_text("size")).and_then(parse_size);
            mounts.add(target, ImportedSource::Tmpfs(size), readonly);
        }
        // Containers have one each, filled with what the image has there.
        ("volume", None) => {
            mounts.add(target, ImportedSource::Volume(own_volume_name(target)), readonly);
        }
        ("volume", Some(source)) => {
            let options = model.volumes.get(source).and_then(|volume| volume.get("driver_opts"));
            let option = |key: &str| options.and_then(|options| options.get_text(key));
            let is_bind = option("o").is_some_and(|o| o.split(',').any(|o| matches!(o, "bind" | "rbind")));
            match option("device") {
                Some(device) if is_bind => add_bind(project, device, target, readonly, mounts),
                _ if option("type") == Some("tmpfs") => {
                    mounts.add(target, ImportedSource::Tmpfs(None), readonly)
                }
                _ => mounts.add(target, ImportedSource::Volume(volume_name(source)), readonly),
            }
        }
        (kind, _) => mounts.warn(format!("the {kind} at `{target}` is not mounted")),
    }
}

fn add_bind(project: &Project<'_>, source: &str, target: &str, readonly: bool, mounts: &mut Mounts<'_>) {
    let Some(path) = project.find_in_project(source) else {
        return mounts.add_outside(source, target, readonly);
    };
    match (project.input.look)(&path) {
        PathKind::File | PathKind::Folder => mounts.add(target, ImportedSource::From(path), readonly),
        PathKind::Other => mounts.add_outside(source, target, readonly),
        PathKind::Missing if looks_like_file(&path) => {
            mounts.warn(format!("there is no `{path}` to mount at `{target}`; make it first"));
            mounts.add(target, ImportedSource::From(path), readonly);
        }
        // Docker makes an empty folder then.
        PathKind::Missing => {
            mounts.warn(format!("there is no `{path}`: a fresh volume takes its place at `{target}`"));
            mounts.add(target, ImportedSource::Volume(volume_name(&path)), readonly);
        }
    }
}

/// Mounts a config or a secret, whose text the project has in a file, in itself or in a variable.
fn add_definition(
    project: &Project<'_>,
    name: &str,
    definition: Option<&Node>,
    to: &str,
    mode: Option<u32>,
    mounts: &mut Mounts<'_>,
) {
    let get = |key: &str| definition.and_then(|definition| definition.get_text(key));
    let text = match (get("content"), get("environment")) {
        (Some(text), _) => text.to_owned(),
        (None, Some(variable)) => match project.lookup(variable) {
            Some(text) => text,
            None => return mounts.warn(format!("`{variable}` is not set, so nothing is mounted at `{to}`")),
        },
        (None, None) => match get("file") {
            Some(file) => return add_bind(project, file, to, true, mounts),
            None => {
                return mounts.warn(format!(
                    "the project has no text of `{name}`: add a mount with `from` or `content` at `{to}`"
                ));
            }
        },
    };
    mounts.add_with_mode(to, ImportedSource::Content(text), true, mode);
}

fn parse_size(text: &str) -> Option<u64> {
    text.parse::<ByteSize>().ok().map(|size| size.0)
}

fn single_or_list(node: &Node) -> Vec<&Node> {
    match &node.kind {
        Kind::List(items) => items.iter().collect(),
        _ => vec![node],
    }
}
