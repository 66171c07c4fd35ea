//! Checks what services see at paths of their own: `mounts`.

use super::raw::RawMount;
use super::read::{Reader, SpecError};
use crate::mount::{MAX_CONTENT, MAX_MEMORY, MAX_MOUNTS, Mount, MountSource, parse_target};
use crate::units::ByteSize;

/// What a folder in memory may hold where the file does not say.
const DEFAULT_MEMORY: ByteSize = ByteSize(64 << 20);

impl Reader<'_> {
    pub(super) fn mounts(&self, service: &str, raw: &[RawMount]) -> Result<Vec<Mount>, SpecError> {
        if raw.len() > MAX_MOUNTS {
            let problem = format!("a service has at most {MAX_MOUNTS} mounts");
            return Err(self.error(&["services", service, "mounts"], problem));
        }
        let mut mounts: Vec<Mount> = Vec::new();
        for (index, raw) in raw.iter().enumerate() {
            let at = index.to_string();
            let here = ["services", service, "mounts", at.as_str()];
            let mount = mount(raw).map_err(|problem| {
                let hint = "write `{ from: ./conf/app.yaml, to: /etc/app.yaml }`, `{ volume: data, to: /var/lib/db }`, \
                            `{ tmpfs: /run }` or `{ content: \"...\", to: /etc/app.yaml }`";
                SpecError { hint: Some(hint.into()), ..self.error(&here, problem) }
            })?;
            if mounts.iter().any(|other| other.to == mount.to) {
                return Err(self.error(&here, format!("`{}` is mounted twice", mount.to)));
            }
            mounts.push(mount);
        }
        Ok(mounts)
    }

    /// `shared`: paths of this machine that trials see as they are.
    pub(super) fn shared(&self, raw: Vec<String>) -> Result<Vec<String>, SpecError> {
        if raw.len() > MAX_MOUNTS {
            return Err(self.error(&["shared"], format!("there are at most {MAX_MOUNTS} shared paths")));
        }
        let path = |(index, path): (usize, String)| {
            // Of `/dev`, only this folder holds data.
            let in_memory = path.strip_prefix("/dev/shm").filter(|rest| rest.starts_with('/'));
            let below_home = path.strip_prefix('~').filter(|rest| rest.starts_with('/'));
            let plain = match (in_memory, below_home) {
                (Some(below), _) => parse_target(below).map(|below| format!("/dev/shm{below}")),
                (_, Some(below)) => parse_target(below).map(|below| format!("~{below}")),
                _ => parse_target(&path),
            };
            plain.map_err(|problem| {
                let hint = "write paths of this machine, such as `~/.m2` or `/tmp/.X11-unix`";
                let error = self.error(&["shared", &index.to_string()], problem);
                SpecError { hint: Some(hint.into()), ..error }
            })
        };
        raw.into_iter().enumerate().map(path).collect()
    }
}

fn mount(raw: &RawMount) -> Result<Mount, String> {
    let RawMount { from, volume, tmpfs, size, content, to, readonly, mode } = raw;
    let sources = [from.is_some(), volume.is_some(), tmpfs.is_some(), content.is_some()];
    if sources.iter().filter(|source| **source).count() != 1 {
        return Err("say one of `from`, `volume`, `tmpfs`, `content`".into());
    }
    if size.is_some() && tmpfs.is_none() {
        return Err("only `tmpfs` has a `size`".into());
    }
    let mode = match mode {
        Some(_) if content.is_none() => return Err("only `content` has a `mode`".into()),
        Some(mode) => Some(parse_mode(&mode.0)?),
        None => None,
    };
    let to = match (to, tmpfs) {
        (Some(_), Some(_)) => return Err("`tmpfs` says the path itself and needs no `to`".into()),
        (Some(to), None) | (None, Some(to)) => parse_target(to)?,
        (None, None) => return Err("`to` is missing: where the service sees it".into()),
    };
    let source = match (from, volume, content) {
        (Some(from), ..) => MountSource::Path(below(from)?),
        (_, Some(volume), _) => MountSource::Volume(volume_name(volume)?),
        (.., Some(content)) if content.len() > MAX_CONTENT => {
            return Err(format!(
                "`content` has more than {MAX_CONTENT} bytes; put it into a file and use `from`"
            ));
        }
        (.., Some(content)) => MountSource::Content(content.clone()),
        _ => MountSource::Memory { size: memory_size(size.as_deref())? },
    };
    Ok(Mount { to, source, readonly: readonly.unwrap_or_default(), mode })
}

/// A path below the folder of the file in its plainest form.
fn below(path: &str) -> Result<String, String> {
    if path.starts_with('/') || path.split('/').any(|part| part == "..") || path.contains('\0') {
        return Err(format!("`{path}` must lie below the folder of the file"));
    }
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    Ok(parts.join("/"))
}

/// What stands for the name of the instance in the name of a volume that instances do not share.
pub(super) const INSTANCE: &str = "${instance}";

fn volume_name(text: &str) -> Result<String, String> {
    // Names of instances have no other characters than names of volumes.
    let name = &text.replace(INSTANCE, "instance");
    let fits = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if name.is_empty()
        || name.len() > 64
        || !name.starts_with(|c: char| c.is_ascii_alphanumeric())
        || !name.chars().all(fits)
    {
        return Err(format!("`{text}` is no name of a volume: letters, digits, `.`, `_` and `-`"));
    }
    Ok(text.to_owned())
}

fn parse_mode(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777);
    mode.ok_or_else(|| format!("`{text}` is no mode such as \"0755\""))
}

fn memory_size(size: Option<&str>) -> Result<ByteSize, String> {
    let Some(size) = size else { return Ok(DEFAULT_MEMORY) };
    let size: ByteSize = size.parse().map_err(|error: crate::units::InvalidUnit| error.to_string())?;
    if size.0 == 0 || size > MAX_MEMORY {
        return Err(format!("the size of a `tmpfs` lies between 1 byte and {MAX_MEMORY}"));
    }
    Ok(size)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Application;

    fn read(mounts: &str) -> Result<Vec<Mount>, String> {
        let file = format!("services:\n  web:\n    command: [web]\n    mounts: {mounts}\n");
        let read = Application::read_alone(&file, "faultscope.yaml");
        read.map(|mut application| {
            application.services.swap_remove("web").map(|s| s.mounts).unwrap_or_default()
        })
        .map_err(|error| error.to_string())
    }

    #[test]
    fn each_kind_of_mount() {
        let mounts = read(
            "[ { from: ./conf//web.conf, to: /etc/web/./web.conf, readonly: true }, { volume: data, to: /var/lib/db/ },
               { tmpfs: /run, size: 16MiB }, { tmpfs: /cache }, { content: \"a: 1\\n\", to: /etc/app.yaml } ]",
        );
        let mount = |to: &str, source, readonly| Mount { to: to.into(), source, readonly, mode: None };
        let expected = vec![
            mount("/etc/web/web.conf", MountSource::Path("conf/web.conf".into()), true),
            mount("/var/lib/db", MountSource::Volume("data".into()), false),
            mount("/run", MountSource::Memory { size: ByteSize(16 << 20) }, false),
            mount("/cache", MountSource::Memory { size: DEFAULT_MEMORY }, false),
            mount("/etc/app.yaml", MountSource::Content("a: 1\n".into()), false),
        ];
        assert_eq!(mounts, Ok(expected));
    }

    #[test]
    fn what_cannot_be_mounted() {
        for (mounts, problem) in [
            ("[ { to: /a } ]", "say one of `from`, `volume`, `tmpfs`, `content`"),
            ("[ { from: a, volume: b, to: /a } ]", "say one of `from`, `volume`, `tmpfs`, `content`"),
            ("[ { from: a } ]", "`to` is missing: where the service sees it"),
            ("[ { from: ../a, to: /a } ]", "`../a` must lie below the folder of the file"),
            ("[ { from: /etc/passwd, to: /a } ]", "`/etc/passwd` must lie below the folder of the file"),
            ("[ { from: a, to: etc/a } ]", "`etc/a` is not an absolute path without `..`"),
            ("[ { from: a, to: /etc/../a } ]", "`/etc/../a` is not an absolute path without `..`"),
            (
                "[ { volume: '${slot}', to: /b } ]",
                "`${slot}` is no name of a volume: letters, digits, `.`, `_` and `-`",
            ),
            ("[ { from: a, to: / } ]", "nothing can be mounted at `/`"),
            ("[ { from: a, to: /proc/self } ]", "nothing can be mounted at `/proc/self`"),
            ("[ { from: a, to: /b }, { volume: c, to: /b/ } ]", "`/b` is mounted twice"),
            (
                "[ { volume: ../c, to: /b } ]",
                "`../c` is no name of a volume: letters, digits, `.`, `_` and `-`",
            ),
            ("[ { tmpfs: /b, size: 1TiB } ]", "the size of a `tmpfs` lies between 1 byte and 4GiB"),
            ("[ { from: a, to: /b, size: 1MiB } ]", "only `tmpfs` has a `size`"),
        ] {
            let error = read(mounts).unwrap_err();
            assert!(error.ends_with(problem), "{mounts}: {error}");
        }
    }

    #[test]
    fn shared_paths_and_more_rights() {
        let read = |shared: &str| {
            let text =
                format!("services: {{ web: {{ command: [w], privileged: true }} }}\nshared: {shared}\n");
            Application::read_alone(&text, "a.yaml").map_err(|error| error.to_string())
        };
        let application = read("[ ~/.m2/, /tmp//x, /dev/shm/mark ]").unwrap();
        assert_eq!(application.shared, ["~/.m2", "/tmp/x", "/dev/shm/mark"]);
        assert!(application.services["web"].privileged);
        for (shared, problem) in [
            ("[ data ]", "shared.0: `data` is not an absolute path without `..`"),
            ("[ ~user/x ]", "shared.0: `~user/x` is not an absolute path without `..`"),
            ("[ ~/../etc ]", "shared.0: `/../etc` is not an absolute path without `..`"),
            ("[ ~/ ]", "shared.0: nothing can be mounted at `/`"),
            ("[ /a, /proc ]", "shared.1: nothing can be mounted at `/proc`"),
            ("[ /dev/sda ]", "shared.0: nothing can be mounted at `/dev/sda`"),
        ] {
            let error = read(shared).unwrap_err();
            assert!(error.ends_with(problem), "{shared}: {error}");
        }
    }
}
