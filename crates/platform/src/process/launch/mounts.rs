//! The file system of an instance: the application folder with a layer of its own on top, its own
//! hosts file, its own `/proc`.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_bind, mount_change, mount_remount};

use super::{kernel_files, places};
use crate::process::agent_protocol::View;
use crate::process::files;

/// Makes the mounts of this process private.
pub(super) fn make_private() -> io::Result<()> {
    Ok(mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?)
}

/// Mounts a view; this process must already have its own mount namespace.
pub(super) fn furnish(view: &View) -> io::Result<()> {
    make_private().map_err(|e| named("keep mounts private", &e))?;
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
    if !view.lower.is_empty() {
        lay_data(view)?;
    }
    if let Some(hidden) = &view.hide {
        hide(hidden, view.authority.as_ref()).map_err(|e| named("hide the tool's folder", &e))?;
    }
    if view.private_tmp {
        let _ = mount("none", "/tmp", "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, c"mode=1777");
    }
    // After everything that could cover them, and while `/proc` still knows this process by its number.
    places::mount_all(view, &sources)?;
    // Refused if the outer `/proc` is masked; process ids look odd then, but everything else works.
    let _ = mount("proc", "/proc", "proc", MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC, None);
    if view.privileged {
        kernel_files::show_all_devices();
        return Ok(());
    }
    match kernel_files::protect() {
        // In a user namespace the kernel itself refuses what would matter.
        Err(_) if view.user => Ok(()),
        done => done.map_err(|e| named("protect the files of the kernel", &e)),
    }
}

/// Covers the tool's folder, except for one file in it.
fn hide(folder: &Path, shown: Option<&(PathBuf, String)>) -> io::Result<()> {
    mount("none", folder, "tmpfs", MountFlags::empty(), c"size=64k")?;
    if let Some((file, text)) = shown.filter(|(file, _)| file.starts_with(folder)) {
        fs::create_dir_all(file.parent().unwrap_or(folder))?;
        fs::write(file, text)?;
    }
    Ok(mount_remount(folder, MountFlags::RDONLY, c"size=64k")?)
}

/// Mounts the instance's own layer over the application.
fn lay_data(view: &View) -> io::Result<()> {
    let (upper, work) = (view.own.join("upper"), view.own.join("work"));
    if upper.exists() {
        let kept = [view.durable.clone(), places::written_sources(view)].concat();
        files::keep_only(&upper, &kept).map_err(|e| named("drop data that is not durable", &e))?;
    }
    fs::create_dir_all(&upper).map_err(|e| named("make the data layer", &e))?;
    // A layer that was mounted as volatile must not be mounted again with its old work folder.
    files::remove_tree(&work).map_err(|e| named("make the data layer", &e))?;
    fs::create_dir_all(&work).map_err(|e| named("make the data layer", &e))?;
    let mode = if view.lasting { "" } else { ",volatile" };
    let lay = |mode| overlay(&view.lower, &upper, &work, &view.target, view.user, mode);
    // Kernels before 5.10 do not know that mode.
    lay(mode).or_else(|_| lay("")).map_err(|e| named("lay data over the application", &e))?;
    for path in &view.durable {
        // Like a volume, a durable directory exists even if the application has none.
        let _ = fs::create_dir_all(view.target.join(path));
    }
    Ok(())
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
    // Folders are given by descriptor: paths may contain the commas and colons that separate options.
    let open = |path: &Path| -> io::Result<OwnedFd> {
        rustix::fs::open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .map_err(|e| named(&format!("open {}", path.display()), &e.into()))
    };
    let by_number = |fd: &OwnedFd| format!("/proc/self/fd/{}", fd.as_raw_fd());
    let lower = lower.iter().map(|path| open(path)).collect::<io::Result<Vec<_>>>()?;
    let (upper, work) = (open(upper)?, open(work)?);
    let layers: Vec<String> = lower.iter().map(by_number).collect();
    let mut options = format!(
        "lowerdir={},upperdir={},workdir={}{mode}",
        layers.join(":"),
        by_number(&upper),
        by_number(&work)
    );
    if user {
        options.push_str(",userxattr");
    }
    let options = CString::new(options).map_err(|_| io::Error::other("a zero in an option"))?;
    Ok(mount("faultscope", target, "overlay", MountFlags::empty(), options.as_c_str())?)
}

/// Mounts a file system in memory.
pub(super) fn memory(target: &Path) -> io::Result<()> {
    Ok(mount("none", target, "tmpfs", MountFlags::empty(), c"mode=755")?)
}

fn named(what: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot {what}: {error}"))
}
