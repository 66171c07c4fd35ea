//! The file system of an instance: the application folder with a layer of its own on top, its own
//! hosts file, its own temporary folders, its own `/proc`, and the user's home behind the layer of the trial.

use std::ffi::{CStr, CString};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Gid, Mode, OFlags, Uid};
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind, mount_bind_recursive, mount_change,
    mount_remount, unmount,
};

use super::kernel_files::{self, cover};
use super::places::{self, bad_plan, make_readonly};
use crate::process::agent_protocol::{HomeView, View};
use crate::process::files;

/// Folders of temporary data, which no trial shares with another one or with this machine.
pub(super) const TEMPORARY: [&str; 3] = ["/tmp", "/var/tmp", "/dev/shm"];

/// How they are mounted. They are in memory, and the kernel's default of half of it for each would let one service that
/// writes without end take the whole machine.
const TEMPORARY_OPTIONS: &CStr = c"mode=1777,size=10%,nr_inodes=500k";

/// Makes the mounts of this process private.
pub(super) fn make_private() -> io::Result<()> {
    Ok(mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?)
}

/// Mounts a view; this process must already have its own mount namespace.
pub(super) fn furnish(view: &View) -> io::Result<()> {
    make_private().map_err(|e| named("keep mounts private", &e))?;
    if view.privileged {
        kernel_files::show_all_devices();
    }
    fs::create_dir_all(&view.own).map_err(|e| named("make its folder", &e))?;
    // Before the hosts file is put in place: a layer over `/etc` would cover it.
    let sources = places::prepare(view)?;
    let (hosts, resolver) = (view.own.join("hosts"), view.own.join("resolv.conf"));
    fs::write(&hosts, &view.hosts).map_err(|e| named("write the hosts file", &e))?;
    // Without a resolver nothing listens there: unknown names fail at once rather than after a time-out.
    let asked = match view.resolver {
        Some(address) => format!("nameserver {address}\noptions use-vc timeout:1 attempts:1\n"),
        None => "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n".to_owned(),
    };
    fs::write(&resolver, asked).map_err(|e| named("write the resolver's file", &e))?;
    // Before the application is covered: the instance's own folder may lie below it.
    if Path::new("/etc/hosts").exists() {
        mount_bind(&hosts, "/etc/hosts").map_err(|e| named("put the hosts file in place", &e.into()))?;
    }
    // Some systems have no such file, or a dangling link.
    let _ = mount_bind(&resolver, "/etc/resolv.conf");
    // Everything below may cover these, so they are opened now and mounted by descriptor.
    let layers = if view.lower.is_empty() { None } else { Some(DataLayers::open(view)?) };
    let shared = open_all(&view.shared).map_err(|(path, e)| {
        let reason = format!("`shared` names `{}`, which this machine does not have: {e}", path.display());
        bad_plan(&reason)
    })?;
    let seen = open_all(&view.seen).map_err(|(_, e)| named("open a folder of its own", &e))?;
    if let Some(home) = &view.home {
        show_home(home, view).map_err(|e| named("show the user's home", &e))?;
    }
    if let Some(layers) = layers {
        layers.lay(view)?;
    }
    for path in &view.masked {
        cover(path).map_err(|e| named(&format!("mask {}", path.display()), &e))?;
    }
    hide(&view.hide, view.authority.as_ref(), &seen).map_err(|e| named("hide the tool's folder", &e))?;
    replace_temporary(view).map_err(|e| named("make its temporary folders", &e))?;
    for (path, source) in &shared {
        show_again(source, path).map_err(|e| named(&format!("share {}", path.display()), &e))?;
    }
    // After everything that could cover them, and while `/proc` still knows this process by its number.
    places::mount_all(view, &sources)?;
    // Refused if the outer `/proc` is masked; process ids look odd then, but everything else works.
    let _ = mount("proc", "/proc", "proc", MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC, None);
    if view.privileged {
        return Ok(());
    }
    match kernel_files::protect() {
        // In a user namespace the kernel itself refuses what would matter.
        Err(_) if view.user => Ok(()),
        done => done.map_err(|e| named("protect the files of the kernel", &e)),
    }
}

/// Lays the layer of a trial over the user's home, and takes away the one before. Instances that go on keep theirs.
pub(super) fn lay_home(
    home: &Path,
    layer: &Path,
    masked: &[PathBuf],
    before: Option<&Path>,
    user: bool,
) -> io::Result<()> {
    if let Some(before) = before {
        unmount(before.join("merged"), UnmountFlags::DETACH)?;
    }
    let [upper, work, target] = ["upper", "work", "merged"].map(|name| layer.join(name));
    for folder in [&upper, &work, &target] {
        fs::create_dir_all(folder)?;
    }
    fs::set_permissions(&upper, fs::metadata(home)?.permissions())?;
    for path in masked {
        // In the layer a file with these numbers means that there is none.
        make_parents(home, &upper, path)?;
        let mask = upper.join(path);
        match rustix::fs::mknodat(CWD, &mask, FileType::CharacterDevice, Mode::empty(), 0) {
            // A restored layer has what a service put there itself.
            Err(rustix::io::Errno::EXIST) if covers_all(&mask, user) => {}
            made => made?,
        }
    }
    let lay = |mode| overlay(std::slice::from_ref(&home.to_owned()), &upper, &work, &target, user, mode);
    lay(",volatile").or_else(|_| lay(""))
}

/// Whether an entry of a layer hides everything below it: a file does, and a folder that is marked so.
fn covers_all(path: &Path, user: bool) -> bool {
    if !fs::symlink_metadata(path).is_ok_and(|about| about.is_dir()) {
        return true;
    }
    let name = if user { c"user.overlay.opaque" } else { c"trusted.overlay.opaque" };
    let mut value = [0_u8; 8];
    rustix::fs::lgetxattr(path, name, &mut value[..]).is_ok_and(|length| &value[..length] == b"y")
}

/// Makes the parents of a path in a layer as they are below it.
fn make_parents(lower: &Path, upper: &Path, path: &Path) -> io::Result<()> {
    let parents: Vec<&Path> = path.ancestors().skip(1).filter(|p| !p.as_os_str().is_empty()).collect();
    for parent in parents.into_iter().rev() {
        let (about, copy) = (fs::metadata(lower.join(parent))?, upper.join(parent));
        if copy.exists() {
            continue;
        }
        fs::create_dir(&copy)?;
        let (user, group) =
            (std::os::unix::fs::MetadataExt::uid(&about), std::os::unix::fs::MetadataExt::gid(&about));
        // Refused for somebody else's folder, which an ordinary user may have in his home.
        let _ = rustix::fs::chownat(
            CWD,
            &copy,
            Some(Uid::from_raw(user)),
            Some(Gid::from_raw(group)),
            rustix::fs::AtFlags::empty(),
        );
        fs::set_permissions(&copy, fs::Permissions::from_mode(about.permissions().mode()))?;
    }
    Ok(())
}

fn show_home(home: &HomeView, view: &View) -> io::Result<()> {
    // A layer shows one file system only, so that others below the home are shown as they are, but not to be changed.
    let others: Vec<(PathBuf, OwnedFd)> = kernel_files::mounts_below(&home.path.to_string_lossy())?
        .into_iter()
        .map(|(point, _)| PathBuf::from(point))
        .filter(|point| *point != home.path && !point.starts_with(&view.hide))
        // Some cannot be seen even by root.
        .filter_map(|point| open_all(&[point]).ok()?.pop())
        .collect();
    match &home.layer {
        Some(layer) => mount_bind(layer.join("merged"), &home.path)?,
        None => {
            // Stays as it is: only the mount around it becomes read-only.
            mount_bind(&view.own, &view.own)?;
            mount_bind_recursive(&home.path, &home.path)?;
            make_readonly(&home.path)?;
        }
    }
    if home.layer.is_some() {
        for (path, source) in &others {
            show_again(source, path)?;
            let _ = make_readonly(path);
        }
    }
    Ok(())
}

/// Covers the tool's folder, except for one file and some folders in it.
fn hide(folder: &Path, shown: Option<&(PathBuf, String)>, seen: &[(PathBuf, OwnedFd)]) -> io::Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount("none", folder, "tmpfs", flags, c"size=64k")?;
    if let Some((file, text)) = shown.filter(|(file, _)| file.starts_with(folder)) {
        fs::create_dir_all(file.parent().unwrap_or(folder))?;
        fs::write(file, text)?;
    }
    for (path, source) in seen {
        show_again(source, path)?;
    }
    Ok(mount_remount(folder, flags | MountFlags::RDONLY, c"size=64k")?)
}

/// Gives the instance empty temporary folders. What it needs of the old ones is still there.
fn replace_temporary(view: &View) -> io::Result<()> {
    let home = view.home.as_ref().map(|home| &home.path);
    let needed: Vec<&PathBuf> =
        [&view.target, &view.program, &view.hide].into_iter().chain(home).chain(&view.seen).collect();
    let mut done: Vec<PathBuf> = Vec::new();
    for folder in TEMPORARY {
        // One may be a link to the other, or missing.
        let Ok(folder) = fs::canonicalize(folder) else { continue };
        if done.contains(&folder) || needed.contains(&&folder) {
            continue;
        }
        let below = |path: &&&PathBuf| path.starts_with(&folder);
        let is_inside_other =
            |path: &&&PathBuf| needed.iter().any(|other| path.starts_with(other) && ***path != **other);
        let kept: Vec<PathBuf> = needed
            .iter()
            .filter(below)
            .filter(|path| !is_inside_other(path))
            .map(|path| (*path).clone())
            .collect();
        let kept = open_all(&kept).map_err(|(_, e)| e)?;
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        mount("none", &folder, "tmpfs", flags, TEMPORARY_OPTIONS)?;
        for (path, source) in &kept {
            show_again(source, path)?;
        }
        done.push(folder);
    }
    Ok(())
}

/// Mounts something that was covered where it was before, with all that is mounted in it.
fn show_again(source: &OwnedFd, path: &Path) -> io::Result<()> {
    let from = format!("/proc/self/fd/{}", source.as_raw_fd());
    if !path.exists() {
        if fs::metadata(&from)?.is_dir() {
            fs::create_dir_all(path)?;
        } else {
            fs::create_dir_all(path.parent().unwrap_or(path))?;
            File::create(path)?;
        }
    }
    Ok(mount_bind_recursive(from, path)?)
}

fn open_all(paths: &[PathBuf]) -> Result<Vec<(PathBuf, OwnedFd)>, (PathBuf, io::Error)> {
    let open = |path: &PathBuf| {
        rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
            .map(|fd| (path.clone(), fd))
            .map_err(|e| (path.clone(), e.into()))
    };
    paths.iter().map(open).collect()
}

/// The layers of the application folder, opened before they are covered.
struct DataLayers {
    lower: Vec<OwnedFd>,
    upper: OwnedFd,
    work: OwnedFd,
}

impl DataLayers {
    /// Prepares the instance's own layer.
    fn open(view: &View) -> io::Result<Self> {
        let (upper, work) = (view.own.join("upper"), view.own.join("work"));
        if upper.exists() && !view.is_restored {
            let kept = [view.durable.clone(), places::written_sources(view)].concat();
            files::keep_only(&upper, &kept).map_err(|e| named("drop data that is not durable", &e))?;
        }
        fs::create_dir_all(&upper).map_err(|e| named("make the data layer", &e))?;
        // A layer that was mounted as volatile must not be mounted again with its old work folder.
        files::remove_tree(&work).map_err(|e| named("make the data layer", &e))?;
        fs::create_dir_all(&work).map_err(|e| named("make the data layer", &e))?;
        let lower = view.lower.iter().map(|path| open_folder(path)).collect::<io::Result<_>>()?;
        Ok(Self { lower, upper: open_folder(&upper)?, work: open_folder(&work)? })
    }

    /// Mounts the instance's own layer over the application.
    fn lay(&self, view: &View) -> io::Result<()> {
        let mode = if view.lasting { "" } else { ",volatile" };
        let lay = |mode| overlay_opened(&self.lower, &self.upper, &self.work, &view.target, view.user, mode);
        // Kernels before 5.10 do not know that mode.
        lay(mode).or_else(|_| lay("")).map_err(|e| named("lay data over the application", &e))?;
        for path in &view.durable {
            // Like a volume, a durable directory exists even if the application has none.
            let _ = fs::create_dir_all(view.target.join(path));
        }
        Ok(())
    }
}

/// Mounts layers on top of each other, the topmost first in `lower`. The mode `,volatile` avoids the sync
/// to disk on unmount, for data that nobody needs after a crash.
pub(super) fn overlay(
    lower: &[PathBuf],
    upper: &Path,
    work: &Path,
    target: &Path,
    user: bool,
    mode: &str,
) -> io::Result<()> {
    let lower = lower.iter().map(|path| open_folder(path)).collect::<io::Result<Vec<_>>>()?;
    overlay_opened(&lower, &open_folder(upper)?, &open_folder(work)?, target, user, mode)
}

/// Folders are given by descriptor: paths may contain the commas and colons that separate options.
fn overlay_opened(
    lower: &[OwnedFd],
    upper: &OwnedFd,
    work: &OwnedFd,
    target: &Path,
    user: bool,
    mode: &str,
) -> io::Result<()> {
    let by_number = |fd: &OwnedFd| format!("/proc/self/fd/{}", fd.as_raw_fd());
    let layers: Vec<String> = lower.iter().map(by_number).collect();
    let mut options = format!(
        "lowerdir={},upperdir={},workdir={}{mode}",
        layers.join(":"),
        by_number(upper),
        by_number(work)
    );
    if user {
        options.push_str(",userxattr");
    }
    let options = CString::new(options).map_err(|_| io::Error::other("a zero in an option"))?;
    Ok(mount("faultscope", target, "overlay", MountFlags::empty(), options.as_c_str())?)
}

fn open_folder(path: &Path) -> io::Result<OwnedFd> {
    rustix::fs::open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .map_err(|e| named(&format!("open {}", path.display()), &e.into()))
}

/// Mounts a file system in memory.
pub(super) fn memory(target: &Path) -> io::Result<()> {
    Ok(mount("none", target, "tmpfs", MountFlags::empty(), c"mode=755,size=25%,nr_inodes=2m")?)
}

fn named(what: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot {what}: {error}"))
}
