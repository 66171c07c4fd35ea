//! Namespaces of the calling thread.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::process::{getegid, geteuid};
use rustix::thread::{
    CapabilitySet, LinkNameSpaceType, UnshareFlags, capabilities, configure_capability_in_ambient_set,
    move_into_link_name_space, set_capabilities,
};

/// Moves this thread into new namespaces.
#[expect(unsafe_code, reason = "rustix marks every unshare as unsafe because of CLONE_FILES")]
pub(super) fn unshare(flags: UnshareFlags) -> rustix::io::Result<()> {
    let flags = flags.difference(UnshareFlags::FILES);
    // SAFETY: only an unshared table of descriptors is dangerous, and that flag was removed above.
    unsafe { rustix::thread::unshare_unsafe(flags) }
}

/// A handle of one of this process's namespaces: `net`, `pid`.
pub(super) fn own(kind: &str) -> rustix::io::Result<OwnedFd> {
    rustix::fs::open(format!("/proc/self/ns/{kind}"), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
}

/// Moves this thread into a network namespace.
pub(super) fn enter_network(namespace: impl AsFd) -> rustix::io::Result<()> {
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
}

/// Sets the PID namespace of future children.
pub(super) fn children_into(namespace: impl AsFd) -> rustix::io::Result<()> {
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::ProcessID))
}

/// Creates a user namespace in which the user id stays the same and other namespaces may be created.
///
/// The id is not mapped to root, because some programs refuse to run as root. The capabilities of this
/// process therefore have to be passed through `exec` as ambient capabilities.
pub(super) fn own_users() -> io::Result<()> {
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    unshare(UnshareFlags::NEWUSER)?;
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
    fs::write("/proc/self/gid_map", format!("{group} {group} 1"))?;
    let mut sets = capabilities(None)?;
    sets.inheritable = sets.permitted;
    set_capabilities(None, sets)?;
    for capability in sets.permitted.iter() {
        configure_capability_in_ambient_set(capability, true)?;
    }
    Ok(())
}

/// Whether namespaces can be created without a user namespace.
pub(super) fn may_unshare() -> bool {
    let needed = CapabilitySet::SYS_ADMIN | CapabilitySet::NET_ADMIN;
    capabilities(None).is_ok_and(|sets| sets.effective.contains(needed))
}
