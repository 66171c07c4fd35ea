//! Checks what services see at paths of their own: `mounts`.

use super::raw::RawMount;
use super::read::{Reader, SpecError};
use crate::mount::{Mount, MountSource};
use crate::units::ByteSize;

/// Bytes of a `content`: configuration files are small, and larger ones belong into a file of their own.
const MOST_CONTENT: usize = 256 << 10;
/// What a folder in memory may hold, and what it holds where the file does not say.
const MOST_MEMORY: ByteSize = ByteSize(4 << 30);
const USUAL_MEMORY: ByteSize = ByteSize(64 << 20);
/// Mounts of one service.
const MOST_MOUNTS: usize = 100;
/// Places that belong to the kernel or to the tool.
const RESERVED: [&str; 5] = ["/proc", "/sys", "/dev", "/etc/hosts", "/etc/resolv.conf"];

impl Reader<'_> {
    pub(super) fn mounts(&self, service: &str, raw: &[RawMount]) -> Result<Vec<Mount>, SpecError> {
        if raw.len() > MOST_MOUNTS {
            let problem = format!("a service has at most {MOST_MOUNTS} mounts");
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
}

fn mount(raw: &RawMount) -> Result<Mount, String> {
    let RawMount { from, volume, tmpfs, size, content, to, readonly } = raw;
    let sources = [from.is_some(), volume.is_some(), tmpfs.is_some(), content.is_some()];
    if sources.iter().filter(|source| **source).count() != 1 {
        return Err("say one of `from`, `volume`, `tmpfs`, `content`".into());
    }
    if size.is_some() && tmpfs.is_none() {
        return Err("only `tmpfs` has a `size`".into());
    }
    let to = match (to, tmpfs) {
        (Some(_), Some(_)) => return Err("`tmpfs` says the path itself and needs no `to`".into()),
        (Some(to), None) | (None, Some(to)) => target(to)?,
        (None, None) => return Err("`to` is missing: where the service sees it".into()),
    };
    let source = match (from, volume, content) {
        (Some(from), ..) => MountSource::Path(below(from)?),
        (_, Some(volume), _) => MountSource::Volume(volume_name(volume)?),
        (.., Some(content)) if content.len() > MOST_CONTENT => {
            return Err(format!(
                "`content` has more than {MOST_CONTENT} bytes; put it into a file and use `from`"
            ));
        }
        (.., Some(content)) => MountSource::Content(content.clone()),
        _ => MountSource::Memory { size: memory_size(size.as_deref())? },
    };
    Ok(Mount { to, source, readonly: readonly.unwrap_or_default() })
}

/// An absolute path in its plainest form.
fn target(path: &str) -> Result<String, String> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    let plain = format!("/{}", parts.join("/"));
    if !path.starts_with('/') || parts.contains(&"..") || path.contains('\0') {
        return Err(format!("`{path}` is not an absolute path without `..`"));
    }
    let is_below = |reserved: &&str| {
        plain.strip_prefix(*reserved).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    if parts.is_empty() || RESERVED.iter().any(is_below) {
        return Err(format!("nothing can be mounted at `{plain}`"));
    }
    Ok(plain)
}

/// A path below the folder of the file in its plainest form.
fn below(path: &str) -> Result<String, String> {
    if path.starts_with('/') || path.split('/').any(|part| part == "..") || path.contains('\0') {
        return Err(format!("`{path}` must lie below the folder of the file"));
    }
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    Ok(parts.join("/"))
}

fn volume_name(name: &str) -> Result<String, String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if name.is_empty()
        || name.len() > 64
        || !name.starts_with(|c: char| c.is_ascii_alphanumeric())
        || !name.chars().all(fits)
    {
        return Err(format!("`{name}` is no name of a volume: letters, digits, `.`, `_` and `-`"));
    }
    Ok(name.to_owned())
}

fn memory_size(size: Option<&str>) -> Result<ByteSize, String> {
    let Some(size) = size else { return Ok(USUAL_MEMORY) };
    let size: ByteSize = size.parse().map_err(|error: crate::units::InvalidUnit| error.to_string())?;
    if size.0 == 0 || size > MOST_MEMORY {
        return Err(format!("the size of a `tmpfs` lies between 1 byte and {MOST_MEMORY}"));
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
        let mount = |to: &str, source, readonly| Mount { to: to.into(), source, readonly };
        let expected = vec![
            mount("/etc/web/web.conf", MountSource::Path("conf/web.conf".into()), true),
            mount("/var/lib/db", MountSource::Volume("data".into()), false),
            mount("/run", MountSource::Memory { size: ByteSize(16 << 20) }, false),
            mount("/cache", MountSource::Memory { size: USUAL_MEMORY }, false),
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
}
