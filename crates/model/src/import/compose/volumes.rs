//! Where a service works and what survives its restart, from `build`, `working_dir` and `volumes`.

use super::paths;
use crate::import::node::Node;

/// What the mounts of a service mean outside of a container.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Places {
    /// The working directory, relative to the project.
    pub(super) directory: Option<String>,
    /// Directories below it that survive a restart.
    pub(super) durable: Vec<String>,
    /// What cannot be carried over.
    pub(super) warnings: Vec<String>,
}

/// Finds the places of a service.
pub(super) fn places(service: &Node) -> Places {
    let context = service.get("build").and_then(|build| build.get_text("context"));
    let context = context.filter(|context| !paths::is_elsewhere(context) || context.starts_with('/'));
    let inside = service.get_text("working_dir");
    let mounts = service.get("volumes").and_then(Node::as_list).unwrap_or_default();

    // Code mounted over the working directory tells best where it is on this machine.
    let mounted = inside.and_then(|inside| {
        mounts.iter().filter(|m| m.get_text("type") == Some("bind")).find_map(|mount| {
            let rest = paths::below(inside, mount.get_text("target")?)?;
            Some(paths::join(mount.get_text("source")?, rest))
        })
    });
    let built = context.map(|context| match inside {
        Some(inside) if !inside.starts_with('/') => paths::join(context, inside),
        _ => context.to_owned(),
    });
    let directory = mounted.or(built);

    let mut places = Places::default();
    if directory.is_none()
        && let Some(inside) = inside
    {
        places.warnings.push(format!("working directory `{inside}` is inside the image; set `directory`"));
    }
    for mount in mounts {
        place_mount(mount, inside, directory.as_deref(), &mut places);
    }
    places.directory = directory.filter(|directory| directory != ".");
    if let Some(outside) = places.directory.take_if(|directory| is_outside(directory)) {
        places.warnings.push(format!(
            "directory `{outside}` is outside of the project; move the file or set `directory`"
        ));
    }
    places
}

/// Whether a path looks like that of a file: its last part has an extension.
fn is_file_name(path: &str) -> bool {
    path.rsplit('/').next().is_some_and(|last| last.trim_start_matches('.').contains('.'))
}

/// Whether a path leads out of where it starts.
fn is_outside(path: &str) -> bool {
    path.starts_with('/') || path.split('/').any(|part| part == "..")
}

fn place_mount(mount: &Node, inside: Option<&str>, directory: Option<&str>, places: &mut Places) {
    let Some(target) = mount.get_text("target") else {
        return;
    };
    let source = mount.get_text("source");
    let bind = mount.get_text("type") == Some("bind");
    if mount.get_text("type") == Some("tmpfs") {
        return;
    }
    let below_inside = inside.and_then(|inside| paths::below(target, inside));
    let below_directory = match (bind, source, directory) {
        (true, Some(source), Some(directory)) => paths::below(source, directory),
        _ => None,
    };
    // The directory itself, or something the directory is in: it is there anyway.
    if bind
        && directory.zip(source).is_some_and(|(directory, source)| paths::below(directory, source).is_some())
    {
        return;
    }
    let read_only = mount.get_text("read_only") == Some("true");
    match below_directory.or(below_inside.filter(|rest| !rest.is_empty())) {
        Some(_) if read_only => {}
        // A single file of the directory; it is there anyway.
        Some(rest) if bind && is_file_name(rest) => {}
        Some(rest) if !is_outside(rest) => places.durable.push(format!("{rest}/")),
        Some(_) => places.warnings.push(format!("mount `{target}` leads out of the working directory")),
        None if inside.is_none() && !bind => {
            let what = source.map(|source| format!("volume `{source}` at ")).unwrap_or_default();
            places.warnings.push(format!(
                "{what}`{target}`: name it in `durable`, relative to the working directory, if a restart keeps it"
            ));
        }
        None => {
            let what = source.map(|source| format!("`{source}` at ")).unwrap_or_default();
            let effect = if read_only {
                "the file must be found another way"
            } else {
                "its data is fresh in every trial"
            };
            places
                .warnings
                .push(format!("mount {what}`{target}` is outside of the working directory; {effect}"));
        }
    }
}
