//! What services see at paths of their own, whichever file says it.

use serde::Serialize;

use super::warnings::Warnings;
use crate::mount::{MAX_CONTENT, MAX_MEMORY, MAX_MOUNTS, parse_target};
use crate::units::ByteSize;

/// The longest part of a volume's name that is made of a path.
const MAX_SLUG: usize = 40;

/// Folders of a machine that say nothing about an application.
const SYSTEM: [&str; 12] = [
    "/proc",
    "/sys",
    "/dev",
    "/run",
    "/var/run",
    "/etc",
    "/lib",
    "/usr",
    "/boot",
    "/bin",
    "/sbin",
    "/var/lib/docker",
];

/// Something that a service sees at a path of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ImportedMount {
    /// Where it is seen.
    pub to: String,
    /// What is seen there.
    #[serde(flatten)]
    pub source: ImportedSource,
    /// Whether the service cannot change it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub readonly: bool,
    /// The permissions of a text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<u32>,
}

/// What a mount shows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ImportedSource {
    /// A file or folder, relative to the project.
    From(String),
    /// A folder that instances share, or that one has alone if `${instance}` is in its name.
    Volume(String),
    /// A folder in memory, with its size in bytes.
    Tmpfs(Option<u64>),
    /// A text.
    Content(String),
}

/// What stands at a path of this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathKind {
    /// Nothing.
    Missing,
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// A socket, a device, or a link that leads out of the application.
    Other,
}

/// The mounts of one service, checked one after the other.
#[derive(Debug)]
pub(super) struct Mounts<'w> {
    service: String,
    warnings: &'w mut Warnings,
    pub(super) list: Vec<ImportedMount>,
}

impl<'w> Mounts<'w> {
    pub(super) fn new(service: &str, warnings: &'w mut Warnings) -> Self {
        Self { service: service.to_owned(), warnings, list: Vec::new() }
    }

    /// Adds a mount, or says why the application file cannot have it. A later one takes the place of an earlier one.
    pub(super) fn add(&mut self, to: &str, source: ImportedSource, readonly: bool) {
        self.add_with_mode(to, source, readonly, None);
    }

    /// Adds a mount with permissions of its own.
    pub(super) fn add_with_mode(
        &mut self,
        to: &str,
        source: ImportedSource,
        readonly: bool,
        mode: Option<u32>,
    ) {
        let to = match parse_target(to) {
            Ok(to) => to,
            Err(reason) => return self.warn(format!("a mount is left out: {reason}")),
        };
        let source = match source {
            ImportedSource::Tmpfs(size) => {
                ImportedSource::Tmpfs(size.map(|bytes| bytes.clamp(1, MAX_MEMORY.0)))
            }
            ImportedSource::Content(text) if text.len() > MAX_CONTENT => {
                let size = ByteSize(text.len() as u64);
                return self
                    .warn(format!("the text at `{to}` has {size}; put it into a file and mount that"));
            }
            source => source,
        };
        // Only texts are made by us; everything else has its own permissions.
        let mode = mode.filter(|_| matches!(source, ImportedSource::Content(_)));
        let mount = ImportedMount { to, source, readonly, mode };
        if let Some(known) = self.list.iter_mut().find(|known| known.to == mount.to) {
            *known = mount;
        } else if self.list.len() < MAX_MOUNTS {
            self.list.push(mount);
        } else {
            self.warn(format!("only the first {MAX_MOUNTS} mounts are carried over"));
        }
    }

    /// Adds a folder or file of the machine that lies outside of the project.
    pub(super) fn add_outside(&mut self, source: &str, to: &str, readonly: bool) {
        if is_socket(source) {
            self.warn(format!(
                "`{source}` is a socket of this machine, which no trial shares; it is left out"
            ));
        } else if is_system_path(source) {
            self.warn(format!("`{source}` belongs to the machine, not to the project; it is left out"));
        } else if looks_like_file(source) {
            self.warn(format!("`{source}` is outside of the project: copy it there and mount it at `{to}`"));
        } else {
            self.warn(format!(
                "`{source}` is outside of the project: a fresh volume takes its place at `{to}`"
            ));
            self.add(to, ImportedSource::Volume(volume_name(source)), readonly);
        }
    }

    /// Adds a warning about the service.
    pub(super) fn warn(&mut self, message: impl Into<String>) {
        self.warnings.add(&self.service, message);
    }
}

/// A name that the application file takes for a volume.
pub(super) fn volume_name(text: &str) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let name: String = text.chars().map(|c| if fits(c) { c } else { '-' }).collect();
    let name = name.trim_start_matches(['.', '_', '-']).trim_end_matches('-');
    let start = name.len().saturating_sub(MAX_SLUG);
    let name = name[start..].trim_start_matches(['.', '_', '-']);
    if name.is_empty() { "volume".to_owned() } else { name.to_owned() }
}

/// The name of a volume that each instance has for itself.
pub(super) fn own_volume_name(text: &str) -> String {
    format!("${{instance}}-{}", volume_name(text))
}

/// Whether a path looks like that of a file: its last part has an extension.
pub(super) fn looks_like_file(path: &str) -> bool {
    let last = path.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    let ending = last.trim_start_matches('.').rsplit_once('.').map_or("", |(_, ending)| ending);
    // `/etc/conf.d` is a folder.
    !ending.is_empty() && ending != "d" && !ending.bytes().all(|b| b.is_ascii_digit()) && !path.ends_with('/')
}

/// Permissions: octal with a leading zero; decimal without one, because YAML has turned octal numbers into decimal
/// ones. The usual permissions need no mention.
pub(super) fn parse_mode(text: &str) -> Option<u32> {
    let mode = match text.strip_prefix("0o").or_else(|| text.strip_prefix('0')) {
        Some(digits) => u32::from_str_radix(digits, 8).ok()?,
        None => text.parse().ok()?,
    };
    Some(mode).filter(|mode| *mode <= 0o777 && *mode != 0o644)
}

fn is_socket(path: &str) -> bool {
    path.ends_with(".sock") || path.ends_with(".socket")
}

fn is_system_path(path: &str) -> bool {
    let path = path.trim_end_matches('/');
    let is_below = |folder: &&str| {
        path.strip_prefix(*folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    path.is_empty() || path == "/var" || path == "/var/log" || SYSTEM.iter().any(is_below)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_paths() {
        for (text, expected) in [
            ("data", "data"),
            ("/var/lib/db/", "var-lib-db"),
            ("./.cache dir", "cache-dir"),
            ("...", "volume"),
            ("é", "volume"),
        ] {
            assert_eq!(volume_name(text), expected, "{text}");
        }
        assert_eq!(volume_name(&"a".repeat(200)).len(), MAX_SLUG);
        for file in ["a.conf", "/x/.env.local", "conf/nginx.conf.template"] {
            assert!(looks_like_file(file), "{file}");
        }
        for folder in ["data", "./conf.d", "/x/.ssh", "a.conf/", "postgres-16.1"] {
            assert!(!looks_like_file(folder), "{folder}");
        }
    }

    #[test]
    fn modes() {
        for (text, expected) in [
            ("0755", Some(0o755)),
            ("493", Some(0o755)),
            ("420", None),
            ("0644", None),
            ("x", None),
            ("9999", None),
        ] {
            assert_eq!(parse_mode(text), expected, "{text}");
        }
        let node = crate::import::node::Node::parse("f", "defaultMode: 0755\nother: '0755'\n").unwrap();
        for key in ["defaultMode", "other"] {
            assert_eq!(node.get_text(key).and_then(parse_mode), Some(0o755), "{key}");
        }
    }

    #[test]
    fn paths_of_the_machine() {
        for (source, n_mounts, part) in [
            ("/var/run/docker.sock", 0, "is a socket"),
            ("/", 0, "belongs to the machine"),
            ("/proc", 0, "belongs to the machine"),
            ("/etc/localtime", 0, "belongs to the machine"),
            ("~/.aws/credentials.ini", 0, "copy it there"),
            ("/srv/data", 1, "a fresh volume"),
            ("~/.aws", 1, "a fresh volume"),
        ] {
            let mut warnings = Warnings::default();
            let mut mounts = Mounts::new("a", &mut warnings);
            mounts.add_outside(source, "/x", false);
            assert_eq!(mounts.list.len(), n_mounts, "{source}");
            let warnings = warnings.render();
            assert!(warnings[0].contains(part), "{source}: {warnings:?}");
        }
    }

    #[test]
    fn what_no_file_may_have() {
        let mut warnings = Warnings::default();
        let mut mounts = Mounts::new("a", &mut warnings);
        for to in ["/", "/proc/x", "etc", "/a/../b"] {
            mounts.add(to, ImportedSource::Tmpfs(None), false);
        }
        mounts.add("/big", ImportedSource::Content("x".repeat(MAX_CONTENT + 1)), true);
        assert!(mounts.list.is_empty());
        mounts.add("/run/", ImportedSource::Tmpfs(Some(u64::MAX)), false);
        mounts.add("/run", ImportedSource::Volume("v".into()), false);
        assert_eq!(mounts.list.len(), 1, "the later one takes the place of the earlier one");
        for n in 0..200 {
            mounts.add(&format!("/m/{n}"), ImportedSource::Tmpfs(None), false);
        }
        assert_eq!(mounts.list.len(), MAX_MOUNTS);
        assert_eq!(warnings.render().len(), 6);
    }
}
