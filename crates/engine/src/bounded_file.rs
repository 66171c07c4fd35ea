//! Reads files that come from outside: application files and what they name, inputs, reports of tests.
//!
//! Any of them may be a device without end, a pipe that nobody writes to, or larger than the memory. So only regular
//! files are read, opening never waits, and reading stops at a bound, whatever the size of the file was before.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

/// The most bytes of an application file, and of the files that it extends or includes.
pub const MAX_APPLICATION_FILE: u64 = 16 << 20;

/// Reads a regular file of at most `limit` bytes.
pub fn read_bounded(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let file = open_regular(path)?;
    let size = file.metadata()?.len();
    if size > limit {
        return Err(too_large(&format!("{size} bytes"), limit));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or_default());
    file.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return Err(too_large("more bytes than before", limit));
    }
    Ok(bytes)
}

/// As [`read_bounded`], for text.
pub fn read_text_bounded(path: &Path, limit: u64) -> io::Result<String> {
    let not_text = |_| io::Error::new(io::ErrorKind::InvalidData, "it is not text in UTF-8");
    String::from_utf8(read_bounded(path, limit)?).map_err(not_text)
}

/// Opens a file without waiting for anybody; anything but a regular file is an error.
fn open_regular(path: &Path) -> io::Result<File> {
    // A pipe would wait for its writer, a terminal would become the tool's own.
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let flags = i32::try_from(flags.bits()).unwrap_or_default();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    // Asked of the open file: a path may lead elsewhere the next moment.
    let about = file.metadata()?;
    if about.is_file() {
        return Ok(file);
    }
    let what = if about.is_dir() { "a folder" } else { "a device, pipe or socket" };
    Err(io::Error::new(io::ErrorKind::InvalidInput, format!("it is {what}, not a regular file")))
}

fn too_large(has: &str, limit: u64) -> io::Error {
    io::Error::new(io::ErrorKind::FileTooLarge, format!("it has {has}, and the limit is {limit}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_up_to_the_limit() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "twelve bytes").unwrap();
        assert_eq!(read_text_bounded(&file, 12).unwrap(), "twelve bytes");
        let error = read_bounded(&file, 11).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(error.to_string(), "it has 12 bytes, and the limit is 11");
        std::fs::write(&file, [0xff, 0xfe]).unwrap();
        assert_eq!(read_text_bounded(&file, 12).unwrap_err().kind(), io::ErrorKind::InvalidData);
        let missing = read_bounded(&folder.path().join("missing"), 9).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn what_has_no_end_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        let at = rustix::fs::CWD;
        rustix::fs::mknodat(at, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0).unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("/dev/zero", &link).unwrap();
        for path in [Path::new("/dev/zero"), &pipe, &link, folder.path()] {
            let error = read_bounded(path, 100).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{}: {error}", path.display());
        }
        // Files of the kernel claim to be empty, or are endless.
        assert_eq!(
            read_bounded(Path::new("/proc/self/maps"), 10).unwrap_err().kind(),
            io::ErrorKind::FileTooLarge
        );
    }
}
