//! Copies the data layer of an instance as it is: modes, owners, times, attributes, whiteouts, hard links, holes, pipes.
//!
//! Its files were written by a service, so names and kinds may be anything. Links are never followed.

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, SeekFrom, Timespec, Timestamps, Uid, XattrFlags,
};
use rustix::io::Errno;

use crate::DataSize;

/// Bytes that are read at once where the kernel cannot copy by itself.
const CHUNK: usize = 256 << 10;
/// The longest list of attribute names and the longest value; the kernel's own bounds.
const MAX_ATTRIBUTE: usize = 64 << 10;
/// Attributes of overlays that describe the machine the layer is on, not its content.
const NOT_CONTENT: [&[u8]; 4] = [b"origin", b"impure", b"uuid", b"upper"];

/// Copies everything below `from` into `to`, which must not exist yet or be an empty folder.
pub(crate) fn copy_layer(from: &Path, to: &Path) -> io::Result<DataSize> {
    copy_some(from, to, &|_, _| true)
}

/// Copies what `is_wanted`, which is asked with the path of an entry and what it is.
pub(crate) fn copy_some(
    from: &Path,
    to: &Path,
    is_wanted: &dyn Fn(&Path, &Metadata) -> bool,
) -> io::Result<DataSize> {
    let mut copy = Copy { is_wanted, linked: HashMap::new(), size: DataSize::default() };
    let about = fs::symlink_metadata(from)?;
    copy.folder(from, to, &about)?;
    Ok(copy.size)
}

struct Copy<'a> {
    is_wanted: &'a dyn Fn(&Path, &Metadata) -> bool,
    /// Where files with several names were copied to, by device and inode.
    linked: HashMap<(u64, u64), PathBuf>,
    size: DataSize,
}

impl Copy<'_> {
    fn folder(&mut self, from: &Path, to: &Path, about: &Metadata) -> io::Result<()> {
        match fs::DirBuilder::new().mode(0o700).create(to) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && to.is_dir() => {}
            made => made.map_err(|e| named("make", to, &e))?,
        }
        for entry in fs::read_dir(from).map_err(|e| named("read", from, &e))? {
            let entry = entry.map_err(|e| named("read", from, &e))?;
            let (from, to) = (entry.path(), to.join(entry.file_name()));
            let about = fs::symlink_metadata(&from).map_err(|e| named("read", &from, &e))?;
            if !(self.is_wanted)(&from, &about) {
                continue;
            }
            match self.entry(&from, &to, &about) {
                Ok(()) => {}
                // What a service made unreadable for its own user, or named too long, cannot be had.
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidFilename
                    ) =>
                {
                    self.size.left_out += 1;
                }
                Err(error) => return Err(named("copy", &from, &error)),
            }
        }
        copy_attributes(from, to)?;
        set_owner_and_times(to, about)?;
        Ok(())
    }

    fn entry(&mut self, from: &Path, to: &Path, about: &Metadata) -> io::Result<()> {
        let kind = about.file_type();
        if kind.is_dir() {
            self.size.files += 1;
            return self.folder(from, to, about);
        }
        if about.nlink() > 1 {
            if let Some(first) = self.linked.get(&(about.dev(), about.ino())) {
                fs::hard_link(first, to)?;
                self.size.files += 1;
                return Ok(());
            }
            self.linked.insert((about.dev(), about.ino()), to.to_owned());
        }
        if kind.is_file() {
            self.size.bytes += copy_file(from, to, about)?;
            copy_attributes(from, to)?;
        } else if kind.is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(from)?, to)?;
        } else if kind.is_char_device() && about.rdev() == 0 {
            // A whiteout: the layer says that there is no such file.
            rustix::fs::mknodat(CWD, to, FileType::CharacterDevice, Mode::empty(), 0)?;
        } else if kind.is_fifo() {
            rustix::fs::mknodat(CWD, to, FileType::Fifo, Mode::from_raw_mode(0o600), 0)?;
        } else {
            // The socket of a process that the copy does not have; devices lead out of the copy.
            self.size.left_out += 1;
            self.linked.remove(&(about.dev(), about.ino()));
            return Ok(());
        }
        self.size.files += 1;
        set_owner_and_times(to, about)
    }
}

/// Copies the content of a file and returns its bytes without holes.
fn copy_file(from: &Path, to: &Path, about: &Metadata) -> io::Result<u64> {
    let no_follow = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let source = File::options().read(true).custom_flags(no_follow).open(from)?;
    let target = File::options().write(true).create_new(true).mode(0o600).open(to)?;
    let length = about.len();
    let stored = (about.blocks() * 512).min(length);
    // Shares the blocks, where the file system can.
    if length == 0 || rustix::fs::ioctl_ficlone(&target, &source).is_ok() {
        return Ok(stored);
    }
    let mut copied = 0;
    if stored >= length {
        copied = copy_range(&source, &target, 0, length)?;
    } else {
        let mut at = 0;
        while at < length {
            let start = match rustix::fs::seek(&source, SeekFrom::Data(at)) {
                Ok(start) => start,
                // Nothing but a hole follows.
                Err(Errno::NXIO) => break,
                // The file system knows no holes.
                Err(_) => at,
            };
            let end = rustix::fs::seek(&source, SeekFrom::Hole(start)).unwrap_or(length);
            copied += copy_range(&source, &target, start, end.min(length))?;
            at = end.max(start + 1);
        }
    }
    target.set_len(length)?;
    Ok(copied)
}

fn copy_range(source: &File, target: &File, start: u64, end: u64) -> io::Result<u64> {
    let (mut from, mut to) = (start, start);
    while from < end {
        let left = usize::try_from(end - from).unwrap_or(usize::MAX);
        match rustix::fs::copy_file_range(source, Some(&mut from), target, Some(&mut to), left) {
            // It became shorter.
            Ok(0) => break,
            Ok(_) => {}
            Err(_) => return Ok(from - start + copy_by_hand(source, target, from, end)?),
        }
    }
    Ok(from - start)
}

/// For kernels and file systems that cannot copy between files.
fn copy_by_hand(source: &File, target: &File, start: u64, end: u64) -> io::Result<u64> {
    let mut buffer = vec![0; CHUNK];
    let mut at = start;
    while at < end {
        let wanted = usize::try_from(end - at).unwrap_or(CHUNK).min(CHUNK);
        let read = source.read_at(&mut buffer[..wanted], at)?;
        if read == 0 {
            break;
        }
        target.write_all_at(&buffer[..read], at)?;
        at += read as u64;
    }
    Ok(at - start)
}

/// Copies attributes. Without those of overlays the copy would show other files, so they must not get lost.
fn copy_attributes(from: &Path, to: &Path) -> io::Result<()> {
    let mut names = vec![0_u8; 1 << 10];
    let length = loop {
        match rustix::fs::llistxattr(from, &mut names[..]) {
            Ok(length) => break length,
            Err(Errno::RANGE) if names.len() < MAX_ATTRIBUTE => names.resize(MAX_ATTRIBUTE, 0),
            Err(Errno::OPNOTSUPP) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    };
    for name in names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let overlay = name.strip_prefix(b"trusted.overlay.").or(name.strip_prefix(b"user.overlay."));
        if overlay.is_some_and(|name| NOT_CONTENT.contains(&name)) {
            continue;
        }
        let Ok(name) = CString::new(name) else { continue };
        let copied = copy_attribute(from, to, &name);
        // Others may belong to the security policy of the machine.
        if overlay.is_some() {
            copied.map_err(io::Error::other)?;
        }
    }
    Ok(())
}

fn copy_attribute(from: &Path, to: &Path, name: &CStr) -> io::Result<()> {
    let mut value = vec![0_u8; MAX_ATTRIBUTE];
    let length = rustix::fs::lgetxattr(from, name, &mut value[..])?;
    Ok(rustix::fs::lsetxattr(to, name, &value[..length], XattrFlags::empty())?)
}

fn set_owner_and_times(path: &Path, about: &Metadata) -> io::Result<()> {
    let no_follow = AtFlags::SYMLINK_NOFOLLOW;
    let (user, group) = (Uid::from_raw(about.uid()), Gid::from_raw(about.gid()));
    // Only root may; for others the files are their own anyway.
    let _ = rustix::fs::chownat(CWD, path, Some(user), Some(group), no_follow);
    if !about.is_symlink() && !about.file_type().is_char_device() {
        // After the owner, whose change takes special bits away.
        fs::set_permissions(path, fs::Permissions::from_mode(about.mode() & 0o7777))?;
    }
    let time = |seconds, nanos| Timespec { tv_sec: seconds, tv_nsec: nanos };
    let times = Timestamps {
        last_access: time(about.atime(), about.atime_nsec()),
        last_modification: time(about.mtime(), about.mtime_nsec()),
    };
    Ok(rustix::fs::utimensat(CWD, path, &times, no_follow)?)
}

fn named(what: &str, path: &Path, error: &io::Error) -> io::Error {
    // A path of a service, so at most so much of it as a line has.
    let shown = String::from_utf8_lossy(path.as_os_str().as_bytes());
    let shown: String = shown.chars().take(200).collect();
    io::Error::new(error.kind(), format!("cannot {what} `{shown}`: {error}"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, symlink};
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn everything_of_a_layer_is_copied_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        fs::create_dir_all(from.join("deep/er")).unwrap();
        fs::write(from.join("deep/er/file"), "content").unwrap();
        fs::set_permissions(from.join("deep/er/file"), fs::Permissions::from_mode(0o641)).unwrap();
        fs::hard_link(from.join("deep/er/file"), from.join("same")).unwrap();
        symlink("deep/er", from.join("link")).unwrap();
        symlink("/no/such", from.join("dangling")).unwrap();
        rustix::fs::mknodat(CWD, from.join("gone"), FileType::CharacterDevice, Mode::empty(), 0).unwrap();
        rustix::fs::mknodat(CWD, from.join("pipe"), FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        let _socket = UnixListener::bind(from.join("socket")).unwrap();
        let sparse = File::create(from.join("sparse")).unwrap();
        sparse.write_all_at(b"end", 50 << 20).unwrap();
        sparse.write_all_at(b"middle", 10 << 20).unwrap();
        sparse.set_len(60 << 20).unwrap();
        let name = c"user.overlay.opaque";
        let has_attributes =
            rustix::fs::lsetxattr(from.join("deep"), name, b"y", XattrFlags::empty()).is_ok();
        fs::set_permissions(from.join("deep"), fs::Permissions::from_mode(0o2550)).unwrap();
        let size = copy_layer(&from, &to).unwrap();
        let about = |path: &str| fs::symlink_metadata(to.join(path)).unwrap();
        assert_eq!(fs::read_to_string(to.join("link/file")).unwrap(), "content");
        assert_eq!(about("same").ino(), about("deep/er/file").ino());
        assert_eq!((about("same").mode() & 0o7777, about("deep").mode() & 0o7777), (0o641, 0o2550));
        assert_eq!(about("same").mtime_nsec(), fs::metadata(from.join("same")).unwrap().mtime_nsec());
        assert_eq!(fs::read_link(to.join("dangling")).unwrap(), Path::new("/no/such"));
        assert!(about("gone").file_type().is_char_device() && about("gone").rdev() == 0);
        assert!(about("pipe").file_type().is_fifo() && !to.join("socket").exists());
        assert_eq!(about("sparse").len(), 60 << 20);
        assert!(about("sparse").blocks() * 512 < 1 << 20, "{} blocks", about("sparse").blocks());
        let copy = File::open(to.join("sparse")).unwrap();
        let mut read = [0; 6];
        copy.read_exact_at(&mut read, 10 << 20).unwrap();
        assert_eq!(&read, b"middle");
        copy.read_exact_at(&mut read[..3], 50 << 20).unwrap();
        assert_eq!(&read[..3], b"end");
        let mut value = [0; 8];
        let attribute = rustix::fs::lgetxattr(to.join("deep"), name, &mut value[..]);
        assert_eq!(attribute.is_ok_and(|length| &value[..length] == b"y"), has_attributes);
        // Folders, two names of a file, two links, whiteout, pipe, sparse file.
        assert_eq!((size.files, size.left_out), (9, 1));
        assert!(size.bytes >= 7 + 9 && size.bytes < 1 << 20, "{}", size.bytes);
        assert!(copy_layer(&folder.path().join("nowhere"), &to).is_err());
    }
}
