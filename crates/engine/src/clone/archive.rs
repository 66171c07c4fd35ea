//! A clone as one file, to be used elsewhere: a compressed tar archive of the manifest and the data.
//!
//! The manifest is readable in it, without the values of variables that look like secrets unless the user wants them.
//! An archive comes from anywhere, so that nothing in it is trusted: paths stay below the clone, links are not followed,
//! sizes are bounded.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs::{self, File, Metadata};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use faultscope_model::secrets::SecretNames;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, Uid, XattrFlags};
use tar::{Archive, Builder, Entry, EntryType, Header};

use super::error::CloneError;
use super::manifest::Manifest;
use super::shelf::{CloneShelf, StoredClone, parse_manifest};

const MANIFEST: &str = "clone.json";
const DATA: &str = "data";
/// How GNU tar and others store extended attributes.
const ATTRIBUTE: &str = "SCHILY.xattr.";
/// A larger manifest is none of ours.
const MAX_MANIFEST: u64 = 64 << 20;
/// What an archive may contain: more than a test system has, less than a disk.
const MAX_BYTES: u64 = 64 << 30;
const MAX_ENTRIES: u64 = 5_000_000;
/// Values of attributes; the kernel allows no longer ones.
const MAX_ATTRIBUTE: usize = 64 << 10;
/// Zeros of this length become holes.
const CHUNK: usize = 64 << 10;

/// What was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exported {
    /// The size of the archive.
    pub bytes: u64,
    /// Variables whose values were left out.
    pub left_out: Vec<String>,
}

/// Writes a clone as a file that only its owner can read. An existing file is replaced when everything is written.
pub fn export_clone(
    clone: &StoredClone,
    file: &Path,
    secrets: Option<&SecretNames>,
) -> Result<Exported, CloneError> {
    let mut manifest = clone.manifest.clone();
    if let Some(names) = secrets {
        leave_out(&mut manifest, names);
    }
    let temporary = file.with_extension(format!("tmp{}", std::process::id()));
    let write = || -> io::Result<u64> {
        let out = File::options().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
        let mut builder = Builder::new(GzEncoder::new(out, Compression::fast()));
        let text = serde_json::to_vec(&manifest)?;
        let mut header = Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o600);
        builder.append_data(&mut header, MANIFEST, text.as_slice())?;
        append_folder(&mut builder, &clone.data, Path::new(DATA))?;
        let out = builder.into_inner()?.finish()?;
        out.sync_data()?;
        let bytes = out.metadata()?.len();
        fs::rename(&temporary, file)?;
        Ok(bytes)
    };
    let written = write().inspect_err(|_| drop(fs::remove_file(&temporary)));
    let bytes = written.map_err(CloneError::file("write", file))?;
    Ok(Exported { bytes, left_out: manifest.left_out })
}

/// Reads an archive as a clone of this machine; it keeps its id unless another clone has it.
pub fn import_clone(shelf: &CloneShelf, file: &Path) -> Result<StoredClone, CloneError> {
    let damaged = |reason: String| CloneError::Damaged { path: file.to_owned(), reason };
    let source = File::open(file).map_err(CloneError::file("read", file))?;
    let draft = shelf.begin()?;
    let mut archive = Archive::new(GzDecoder::new(source).take(MAX_BYTES));
    let mut entries = archive.entries().map_err(|e| damaged(e.to_string()))?;
    let mut first =
        entries.next().ok_or_else(|| damaged("it is empty".into()))?.map_err(|e| damaged(e.to_string()))?;
    if first.path().map_err(|e| damaged(e.to_string()))? != Path::new(MANIFEST) || first.size() > MAX_MANIFEST
    {
        return Err(damaged("it is no clone: it does not begin with a manifest".into()));
    }
    let mut text = Vec::new();
    first.read_to_end(&mut text).map_err(|e| damaged(e.to_string()))?;
    let mut manifest = parse_manifest(file, &text)?;
    let mut folders = Vec::new();
    let mut n_entries = 0;
    for entry in entries {
        n_entries += 1;
        if n_entries > MAX_ENTRIES {
            return Err(damaged("it has too many files".into()));
        }
        let mut entry = entry.map_err(|e| damaged(e.to_string()))?;
        unpack(&mut entry, &draft.data(), &mut folders).map_err(|e| damaged(e.to_string()))?;
    }
    // Deepest first, and last of all: a folder may not be writable.
    for (folder, about) in folders.into_iter().rev() {
        set_about(&folder, &about).map_err(|e| damaged(e.to_string()))?;
    }
    if shelf.read(&manifest.id).is_ok() {
        manifest.id = shelf.unused_id(manifest.taken_us);
    }
    if manifest.name.as_deref().is_some_and(|name| shelf.check_name(name).is_err()) {
        manifest.name = None;
    }
    shelf.finish(draft, &manifest)
}

fn leave_out(manifest: &mut Manifest, names: &SecretNames) {
    let mut left_out: BTreeSet<String> = manifest.left_out.iter().cloned().collect();
    for instance in &mut manifest.plan.instances {
        instance.env.retain(|name, value| {
            let is_secret = names.is_secret_field(name, value.as_bytes());
            if is_secret {
                left_out.insert(name.clone());
            }
            !is_secret
        });
    }
    manifest.left_out = left_out.into_iter().collect();
}

fn append_folder(builder: &mut Builder<impl Write>, from: &Path, to: &Path) -> io::Result<()> {
    let mut names: Vec<_> =
        fs::read_dir(from)?.map(|entry| Ok(entry?.file_name())).collect::<io::Result<_>>()?;
    names.sort();
    for name in names {
        let (from, to) = (from.join(&name), to.join(&name));
        let about = fs::symlink_metadata(&from)?;
        append(builder, &from, &to, &about)?;
        if about.is_dir() {
            append_folder(builder, &from, &to)?;
        }
    }
    Ok(())
}

fn append(builder: &mut Builder<impl Write>, from: &Path, to: &Path, about: &Metadata) -> io::Result<()> {
    let attributes = read_attributes(from)?;
    let pairs = attributes.iter().map(|(name, value)| (name.as_str(), value.as_slice()));
    builder.append_pax_extensions(pairs)?;
    let mut header = Header::new_gnu();
    header.set_metadata(about);
    let kind = about.file_type();
    if kind.is_symlink() {
        return builder.append_link(&mut header, to, fs::read_link(from)?);
    }
    if kind.is_file() {
        return builder.append_data(&mut header, to, File::open(from)?.take(about.len()));
    }
    header.set_size(0);
    if kind.is_char_device() {
        header.set_entry_type(EntryType::Char);
        header.set_device_major(0)?;
        header.set_device_minor(0)?;
    }
    builder.append_data(&mut header, to, io::empty())
}

/// Attributes under the names that they have in an archive.
fn read_attributes(path: &Path) -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut names = vec![0_u8; MAX_ATTRIBUTE];
    let length = match rustix::fs::llistxattr(path, &mut names[..]) {
        Ok(length) => length,
        Err(rustix::io::Errno::OPNOTSUPP) => 0,
        Err(error) => return Err(error.into()),
    };
    let mut found = Vec::new();
    for name in names[..length].split(|byte| *byte == 0) {
        let Some(name) = std::str::from_utf8(name).ok().filter(|name| is_carried(name)) else { continue };
        let mut value = vec![0_u8; MAX_ATTRIBUTE];
        let length = rustix::fs::lgetxattr(path, CString::new(name)?.as_c_str(), &mut value[..])?;
        value.truncate(length);
        found.push((format!("{ATTRIBUTE}{name}"), value));
    }
    Ok(found)
}

/// Attributes that are content; others belong to the machine.
fn is_carried(name: &str) -> bool {
    name.starts_with("user.") || name.starts_with("trusted.overlay.") || name == "security.capability"
}

/// What is set when everything is in its place.
struct About {
    mode: u32,
    user: u32,
    group: u32,
    modified: u64,
}

fn unpack(
    entry: &mut Entry<'_, impl Read>,
    data: &Path,
    folders: &mut Vec<(PathBuf, About)>,
) -> io::Result<()> {
    let path = entry.path()?.into_owned();
    let below = safe_path(&path)?;
    let to = data.join(&below);
    check_parents(data, &below)?;
    let attributes: Vec<(String, Vec<u8>)> = match entry.pax_extensions()? {
        None => Vec::new(),
        Some(extensions) => extensions
            .filter_map(Result::ok)
            .filter_map(|one| {
                let name = one.key().ok()?.strip_prefix(ATTRIBUTE)?.to_owned();
                is_carried(&name).then(|| (name, one.value_bytes().to_vec()))
            })
            .collect(),
    };
    let header = entry.header();
    let number = |read: io::Result<u64>| read.ok().and_then(|n| u32::try_from(n).ok()).unwrap_or_default();
    let about = About {
        mode: header.mode().unwrap_or(0o600) & 0o7777,
        user: number(header.uid()),
        group: number(header.gid()),
        modified: header.mtime().unwrap_or_default(),
    };
    match header.entry_type() {
        EntryType::Directory => {
            fs::create_dir(&to)?;
            set_attributes(&to, &attributes)?;
            folders.push((to, about));
            return Ok(());
        }
        EntryType::Regular | EntryType::Continuous => {
            let mut file = File::options().write(true).create_new(true).mode(0o600).open(&to)?;
            write_with_holes(entry, &mut file)?;
        }
        EntryType::Symlink => {
            let target = entry.link_name()?.ok_or_else(|| refuse("a link leads nowhere"))?;
            return std::os::unix::fs::symlink(target, &to);
        }
        EntryType::Char => {
            let numbers = (header.device_major()?, header.device_minor()?);
            if numbers != (Some(0), Some(0)) {
                return Err(refuse("it has a device"));
            }
            return Ok(rustix::fs::mknodat(CWD, &to, FileType::CharacterDevice, Mode::empty(), 0)?);
        }
        EntryType::Fifo => {
            rustix::fs::mknodat(CWD, &to, FileType::Fifo, Mode::from_raw_mode(0o600), 0)?;
        }
        _ => return Err(refuse("it has an entry of an unknown kind")),
    }
    set_attributes(&to, &attributes)?;
    set_about(&to, &about)
}

/// A path below the data; anything that could lead elsewhere is refused.
fn safe_path(path: &Path) -> io::Result<PathBuf> {
    let below = path.strip_prefix(DATA).map_err(|_| refuse("it has files that belong to no clone"))?;
    let is_plain = below.components().all(|part| matches!(part, Component::Normal(_)));
    if !is_plain || below.as_os_str().is_empty() || below.as_os_str().as_bytes().contains(&0) {
        return Err(refuse("one of its paths leads out of it"));
    }
    Ok(below.to_owned())
}

/// A link on the way would lead out of the clone.
fn check_parents(data: &Path, below: &Path) -> io::Result<()> {
    for parent in below.ancestors().skip(1).filter(|parent| !parent.as_os_str().is_empty()) {
        if !fs::symlink_metadata(data.join(parent))?.is_dir() {
            return Err(refuse("one of its paths leads through a link"));
        }
    }
    Ok(())
}

fn write_with_holes(from: &mut impl Read, to: &mut File) -> io::Result<()> {
    let mut buffer = vec![0; CHUNK];
    let mut length = 0;
    loop {
        let mut filled = 0;
        while filled < CHUNK {
            match from.read(&mut buffer[filled..])? {
                0 => break,
                read => filled += read,
            }
        }
        let chunk = &buffer[..filled];
        length += filled as u64;
        if filled == CHUNK && chunk.iter().all(|byte| *byte == 0) {
            to.seek(SeekFrom::Start(length))?;
        } else {
            to.write_all(chunk)?;
        }
        if filled < CHUNK {
            return to.set_len(length);
        }
    }
}

fn set_attributes(path: &Path, attributes: &[(String, Vec<u8>)]) -> io::Result<()> {
    for (name, value) in attributes {
        let name = CString::new(name.as_str())?;
        rustix::fs::lsetxattr(path, name.as_c_str(), value, XattrFlags::empty())?;
    }
    Ok(())
}

fn set_about(path: &Path, about: &About) -> io::Result<()> {
    // Only root may; for others the files are their own.
    let (user, group) = (Uid::from_raw(about.user), Gid::from_raw(about.group));
    let _ = rustix::fs::chownat(CWD, path, Some(user), Some(group), AtFlags::SYMLINK_NOFOLLOW);
    fs::set_permissions(path, fs::Permissions::from_mode(about.mode))?;
    let modified = std::time::UNIX_EPOCH + std::time::Duration::from_secs(about.modified);
    // A pipe cannot be opened for this without waiting for its other end.
    if fs::symlink_metadata(path)?.file_type().is_fifo() {
        return Ok(());
    }
    match File::open(path) {
        Ok(file) => file.set_modified(modified),
        // Without permission to read, the time stays that of the import.
        Err(_) => Ok(()),
    }
}

fn refuse(reason: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}
