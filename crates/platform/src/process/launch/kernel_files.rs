//! The kernel's own files as an instance sees them: devices, `/proc` and `/sys`, as containers have them.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, mount_remount, unmount};

use super::places::make_readonly;

/// The name of the mount that replaces `/dev`.
const OWN_DEVICES: &str = "faultscope-devices";
/// The devices that every container has.
const NODES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];
const LINKS: [(&str, &str); 5] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("ptmx", "pts/ptmx"),
];

/// What containers can only read, and what they do not see, by the defaults of the OCI runtimes.
const READ_ONLY: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];
const MASKED: [&str; 12] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/sys/devices/virtual/powercap",
    "/sys/firmware",
];
/// File systems below `/sys` that show what the kernel does for everybody.
const UNSEEN: [&str; 7] = ["bpf", "configfs", "debugfs", "efivarfs", "pstore", "securityfs", "tracefs"];

/// Replaces `/dev` by one with the usual devices only, for all instances of a slot.
pub(super) fn replace_devices() -> io::Result<()> {
    let open = |name: &str| {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        Some((name.to_owned(), rustix::fs::open(format!("/dev/{name}"), flags, Mode::empty()).ok()?))
    };
    // Before they are covered.
    let nodes: Vec<_> = NODES.iter().filter_map(|name| open(name)).collect();
    let memory = open("shm");
    let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
    mount(OWN_DEVICES, "/dev", "tmpfs", flags, c"mode=755,size=64k")?;
    let fill = || -> io::Result<()> {
        for (name, node) in &nodes {
            File::create(format!("/dev/{name}"))?;
            mount_bind(format!("/proc/self/fd/{}", node.as_raw_fd()), format!("/dev/{name}"))?;
        }
        for (name, target) in LINKS {
            std::os::unix::fs::symlink(target, format!("/dev/{name}"))?;
        }
        for folder in ["/dev/pts", "/dev/shm", "/dev/mqueue"] {
            fs::create_dir(folder)?;
        }
        // Instances get one of their own over it; what the file declares as shared is still found here.
        if let Some((_, memory)) = &memory {
            let _ = mount_bind(format!("/proc/self/fd/{}", memory.as_raw_fd()), "/dev/shm");
        }
        // Terminals of the slot's own; few services want any.
        let _ = mount("devpts", "/dev/pts", "devpts", flags, c"newinstance,ptmxmode=0666,mode=0620");
        // All trials of the slot see it, so that nothing may be left in it.
        Ok(mount_remount("/dev", flags | MountFlags::RDONLY, c"mode=755,size=64k")?)
    };
    fill().inspect_err(|_| {
        let _ = unmount("/dev", UnmountFlags::DETACH);
    })
}

/// Shows the devices of this machine again.
pub(super) fn show_all_devices() {
    let table = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    if table.lines().any(|line| line.starts_with(&format!("{OWN_DEVICES} /dev "))) {
        let _ = unmount("/dev", UnmountFlags::DETACH);
    }
}

/// Makes `/proc` and `/sys` harmless: what changes the whole machine is read-only or not there.
pub(super) fn protect() -> io::Result<()> {
    for (point, kind) in mounts_below("/sys")? {
        if UNSEEN.contains(&kind.as_str()) {
            cover(Path::new(&point))?;
        } else {
            make_readonly(Path::new(&point))?;
        }
    }
    for path in READ_ONLY.map(Path::new) {
        if path.exists() {
            mount_bind(path, path)?;
            make_readonly(path)?;
        }
    }
    for path in MASKED.map(Path::new) {
        cover(path)?;
    }
    Ok(())
}

/// Puts nothing in place of a file or folder, if it exists.
pub(super) fn cover(path: &Path) -> io::Result<()> {
    let Ok(about) = fs::metadata(path) else {
        return Ok(());
    };
    if !about.is_dir() {
        return Ok(mount_bind("/dev/null", path)?);
    }
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC | MountFlags::RDONLY;
    Ok(mount("none", path, "tmpfs", flags, c"mode=755,size=4k")?)
}

/// Mount points at and below a path with the names of their file systems, outer ones first.
pub(super) fn mounts_below(path: &str) -> io::Result<Vec<(String, String)>> {
    let table = fs::read_to_string("/proc/self/mounts")?;
    let mount = |line: &str| {
        let mut words = line.split(' ').skip(1);
        let (point, kind) = (unescape(words.next()?), words.next()?.to_owned());
        Path::new(&point).starts_with(path).then_some((point, kind))
    };
    Ok(table.lines().filter_map(mount).collect())
}

/// Spaces and the like are octal numbers in the kernel's table.
fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let digits = tail.get(..3).filter(|_| first == b'\\').and_then(|d| std::str::from_utf8(d).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[3..];
            }
            None => {
                bytes.push(first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_in_the_kernels_table() {
        assert_eq!(unescape("/mnt/a\\040b\\134c"), "/mnt/a b\\c");
        for as_it_is in ["/plain", "/bad\\9", "/end\\", "/end\\04", "/ü\\x40"] {
            assert_eq!(unescape(as_it_is), as_it_is);
        }
    }

    #[test]
    fn mounts_of_this_machine() {
        let found = mounts_below("/proc").unwrap();
        assert_eq!(found[0], ("/proc".to_owned(), "proc".to_owned()));
    }
}
