//! What the application file asks an instance to see at paths of its own: files, volumes, memory, texts.
//!
//! Nothing of this machine is changed for it. A path that does not exist yet gets a layer over the nearest folder
//! that does, and the layer belongs to the instance.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, StatVfsMountFlags};
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind, mount_bind_recursive, mount_change,
    mount_remount, unmount,
};

use super::mounts::overlay;
use crate::process::agent_protocol::{MountSpec, Shown, View};
use crate::process::files;

/// The kind of an error for which the application file is to blame; no error of the kernel has it.
pub(super) const BAD_PLAN: io::ErrorKind = io::ErrorKind::InvalidData;

/// Sources that later mounts hide, opened before that, by the number of their mount.
pub(super) type Sources = BTreeMap<usize, OwnedFd>;

/// Opens what lies in the tool's folder, which is hidden later, and makes room for paths that do not exist.
pub(super) fn prepare(view: &View) -> io::Result<Sources> {
    // Before anything is opened: a source of the old root could not be mounted in the new one.
    take_own_root(view)?;
    let mut sources = Sources::new();
    for (number, spec) in view.mounts.iter().enumerate() {
        let source = match &spec.shown {
            Shown::Volume { folder } => folder.clone(),
            Shown::Content { text, mode } => {
                let file = own_folder(view, number)?.join("content");
                fs::write(&file, text)?;
                if let Some(mode) = mode {
                    fs::set_permissions(&file, fs::Permissions::from_mode(*mode))?;
                }
                file
            }
            // The user's own file must not be written, and here no layer lies over it.
            Shown::Path { path } if view.lower.is_empty() && !spec.readonly => {
                let from = view.target.join(path).canonicalize().map_err(|e| missing(path, &e))?;
                let to = own_folder(view, number)?.join("copy");
                if to.is_dir() {
                    // From the start before this one.
                    files::remove_tree(&to)?;
                }
                files::copy_tree(&from, &to)?;
                to
            }
            Shown::Path { .. } | Shown::Memory { .. } => continue,
        };
        sources.insert(number, open(&source)?);
    }
    make_room(view)?;
    Ok(sources)
}

/// Paths of the application that the instance may change through its mounts. Like bind mounts of containers they
/// survive a restart.
pub(super) fn written_sources(view: &View) -> Vec<PathBuf> {
    let written = view.mounts.iter().filter(|spec| !spec.readonly);
    let source = |spec: &MountSpec| match &spec.shown {
        Shown::Path { path } => Some(path.clone()),
        _ => None,
    };
    written.filter_map(source).collect()
}

/// Mounts everything, outer paths first.
pub(super) fn mount_all(view: &View, sources: &Sources) -> io::Result<()> {
    let mut order: Vec<(usize, &MountSpec)> = view.mounts.iter().enumerate().collect();
    order.sort_by_key(|(_, spec)| spec.to.components().count());
    for (number, spec) in order {
        mount_one(view, spec, sources.get(&number)).map_err(|e| {
            let message = format!("cannot mount `{}`: {e}", spec.to.display());
            io::Error::new(e.kind(), message)
        })?;
    }
    Ok(())
}

fn mount_one(view: &View, spec: &MountSpec, source: Option<&OwnedFd>) -> io::Result<()> {
    if let Shown::Memory { bytes } = &spec.shown {
        make_point(view, spec, true)?;
        let options = CString::new(format!("mode=1777,size={bytes}"))?;
        let mut flags = MountFlags::NOSUID | MountFlags::NODEV;
        flags.set(MountFlags::RDONLY, spec.readonly);
        return Ok(mount("none", &spec.to, "tmpfs", flags, options.as_c_str())?);
    }
    let from = match (&spec.shown, source) {
        (_, Some(source)) => PathBuf::from(format!("/proc/self/fd/{}", source.as_raw_fd())),
        // Through the instance's own layer: what it writes stays there.
        (Shown::Path { path }, None) => view.target.join(path),
        (_, None) => return Err(io::Error::other("its source was not opened")),
    };
    let about = fs::metadata(&from).map_err(|e| match &spec.shown {
        Shown::Path { path } => missing(path, &e),
        _ => e,
    })?;
    make_point(view, spec, about.is_dir())?;
    if fs::metadata(&spec.to)?.is_dir() != about.is_dir() {
        return Err(bad_plan("one of the two is a folder and the other a file"));
    }
    mount_bind(&from, &spec.to)?;
    if spec.readonly {
        make_readonly(&spec.to)?;
    }
    Ok(())
}

pub(super) fn make_readonly(target: &Path) -> io::Result<()> {
    // In a user namespace the kernel refuses to drop flags that the mount came with.
    let has = rustix::fs::statvfs(target)?.f_flag;
    let mut flags = MountFlags::BIND | MountFlags::RDONLY;
    for (old, new) in [
        (StatVfsMountFlags::NOSUID, MountFlags::NOSUID),
        (StatVfsMountFlags::NODEV, MountFlags::NODEV),
        (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
        (StatVfsMountFlags::NOATIME, MountFlags::NOATIME),
        (StatVfsMountFlags::NODIRATIME, MountFlags::NODIRATIME),
        (StatVfsMountFlags::RELATIME, MountFlags::RELATIME),
    ] {
        flags.set(new, has.contains(old));
    }
    Ok(mount_remount(target, flags, c"")?)
}

/// Takes a root folder of its own where a path directly below `/` is missing, such as `/data`: no layer can be laid
/// over `/` itself. Everything that is there now is also in the new root.
fn take_own_root(view: &View) -> io::Result<()> {
    let at_root = |spec: &&MountSpec| {
        !spec.to.exists() && !can_create(view, spec) && nearest_folder(&spec.to) == Path::new("/")
    };
    let missing: Vec<&MountSpec> = view.mounts.iter().filter(at_root).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let root = view.own.join("root");
    fs::create_dir_all(&root)?;
    mount("none", &root, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, c"mode=755,size=1m")?;
    // Otherwise the folder that contains it would bring it along again.
    mount_change(&root, MountPropagationFlags::UNBINDABLE)?;
    for entry in fs::read_dir("/")? {
        let entry = entry?;
        let (kind, path, copy) = (entry.file_type()?, entry.path(), root.join(entry.file_name()));
        if kind.is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(&path)?, &copy)?;
        } else if kind.is_dir() {
            fs::create_dir(&copy)?;
            mount_bind_recursive(&path, &copy)?;
        } else if kind.is_file() {
            create(&copy, false)?;
            mount_bind(&path, &copy)?;
        }
    }
    for spec in missing {
        let below = spec.to.strip_prefix("/").map_err(io::Error::other)?;
        create(&root.join(below), is_folder(view, spec))?;
    }
    std::env::set_current_dir(&root)?;
    // The old root ends up over the new one, and is taken away from there.
    rustix::process::pivot_root(".", ".")?;
    unmount(".", UnmountFlags::DETACH)?;
    std::env::set_current_dir("/")
}

fn nearest_folder(path: &Path) -> &Path {
    path.ancestors().skip(1).find(|folder| folder.is_dir()).unwrap_or(Path::new("/"))
}

/// Lays a layer over each folder in which paths are missing, with these paths in it.
fn make_room(view: &View) -> io::Result<()> {
    let mut layers: BTreeMap<PathBuf, Vec<&MountSpec>> = BTreeMap::new();
    for spec in view.mounts.iter().filter(|spec| !spec.to.exists() && !can_create(view, spec)) {
        let found = nearest_folder(&spec.to);
        let needs = [&view.target, &view.own];
        if needs.iter().any(|path| path.starts_with(found)) {
            return Err(bad_plan(&format!(
                "cannot mount `{}`: there is no such path on this machine, and {} cannot be covered; create the path, \
                 choose another one, or use `--platform docker`",
                spec.to.display(),
                found.display()
            )));
        }
        layers.entry(found.to_owned()).or_default().push(spec);
    }
    for (number, (folder, specs)) in layers.iter().enumerate() {
        let own = view.own.join("points").join(number.to_string());
        let (upper, work) = (own.join("upper"), own.join("work"));
        files::remove_tree(&own)?;
        fs::create_dir_all(&upper)?;
        fs::create_dir_all(&work)?;
        for spec in specs {
            let below = spec.to.strip_prefix(folder).map_err(io::Error::other)?;
            create(&upper.join(below), is_folder(view, spec))?;
        }
        overlay(std::slice::from_ref(folder), &upper, &work, folder, view.user, "").map_err(|e| {
            io::Error::new(e.kind(), format!("cannot lay a layer over {}: {e}", folder.display()))
        })?;
    }
    Ok(())
}

/// Whether a missing path can be created where it is mounted, because only this instance sees what is there.
fn can_create(view: &View, spec: &MountSpec) -> bool {
    let in_layer = !view.lower.is_empty() && spec.to.starts_with(&view.target);
    let in_tmp = ["/tmp", "/var/tmp"].iter().any(|folder| spec.to.starts_with(folder));
    let in_home =
        view.home.as_ref().is_some_and(|home| home.layer.is_some() && spec.to.starts_with(&home.path));
    let in_mount = view.mounts.iter().any(|outer| outer.to != spec.to && spec.to.starts_with(&outer.to));
    in_layer || in_tmp || in_home || in_mount
}

fn make_point(view: &View, spec: &MountSpec, folder: bool) -> io::Result<()> {
    if spec.to.exists() {
        return Ok(());
    }
    if !can_create(view, spec) {
        return Err(bad_plan("there is no such path"));
    }
    create(&spec.to, folder)
}

fn create(path: &Path, folder: bool) -> io::Result<()> {
    if folder {
        return fs::create_dir_all(path);
    }
    fs::create_dir_all(path.parent().unwrap_or(path))?;
    File::options().create(true).append(true).open(path).map(drop)
}

fn is_folder(view: &View, spec: &MountSpec) -> bool {
    match &spec.shown {
        Shown::Volume { .. } | Shown::Memory { .. } => true,
        Shown::Content { .. } => false,
        Shown::Path { path } => {
            let layers = view.lower.iter().chain([&view.target]);
            layers.map(|layer| layer.join(path)).find(|path| path.exists()).is_some_and(|path| path.is_dir())
        }
    }
}

fn own_folder(view: &View, number: usize) -> io::Result<PathBuf> {
    let folder = view.own.join("mounts").join(number.to_string());
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

fn open(path: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?)
}

/// A source that the application does not have; the file is to blame, not the machine.
fn missing(path: &Path, error: &io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::NotFound {
        return bad_plan(&format!(
            "`{}` does not exist below the folder of the application file",
            path.display()
        ));
    }
    io::Error::new(error.kind(), format!("cannot read `{}`: {error}", path.display()))
}

pub(super) fn bad_plan(reason: &str) -> io::Error {
    io::Error::new(BAD_PLAN, reason)
}
