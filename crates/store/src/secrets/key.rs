//! The key of this machine: a file in the user's data folder, never beside the store.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use chacha20poly1305::aead::{AeadInPlace, KeyInit};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};

use crate::error::{StoreError, StoreErrorKind};

/// The first word of a key file.
const HEAD: &str = "faultscope-key-1";

/// The file of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyPlace(PathBuf);

impl KeyPlace {
    /// A key file at this path.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// The default key file of the user: `faultscope/secrets.key` in `$XDG_DATA_HOME`, else in `~/.local/share`.
    pub fn user_default() -> Result<Self, StoreError> {
        // The XDG specification says to ignore relative paths.
        let folder = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
        let data = folder("XDG_DATA_HOME").or_else(|| folder("HOME").map(|home| home.join(".local/share")));
        data.map(|data| Self(data.join("faultscope/secrets.key"))).ok_or_else(|| {
            let reason = "neither XDG_DATA_HOME nor HOME names a folder for the key that seals what is stored; set one of them, or record with `record: { plain: true }`";
            StoreError::new(StoreErrorKind::NotFound, "find", Path::new("secrets.key"), reason)
        })
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

/// A key that seals secrets.
#[derive(Clone, PartialEq, Eq)]
pub struct Key {
    /// Identifies the key without revealing anything about it.
    pub(super) id: [u8; 8],
    pub(super) bytes: [u8; 32],
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key").finish_non_exhaustive()
    }
}

impl Key {
    /// Reads the key; none if there is no file.
    pub fn load(place: &KeyPlace) -> Result<Option<Self>, StoreError> {
        let path = place.path();
        let refuse = |kind, reason: &str| Err(StoreError::new(kind, "use the key", path, reason));
        let mut file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(StoreError::io("read the key", path)(error)),
        };
        let mode = file.metadata().map_err(StoreError::io("read the key", path))?.permissions().mode();
        if mode & 0o077 != 0 {
            return refuse(
                StoreErrorKind::NotPermitted,
                "others can read it; `chmod 600` it, or remove it and lose what it seals",
            );
        }
        let mut text = String::new();
        let read = (&mut file).take(1024).read_to_string(&mut text);
        read.map_err(StoreError::io("read the key", path))?;
        match Self::parse(&text) {
            Some(key) => Ok(Some(key)),
            None => {
                refuse(StoreErrorKind::Damaged, "it holds no key; what it sealed is lost if it is removed")
            }
        }
    }

    /// Reads the key, creating one if there is no file.
    pub fn load_or_make(place: &KeyPlace) -> Result<Self, StoreError> {
        if let Some(key) = Self::load(place)? {
            return Ok(key);
        }
        let path = place.path();
        make(path).map_err(StoreError::io("make the key", path))?;
        // Read back: if another process was faster, its key counts.
        Self::load(place)?.ok_or_else(|| {
            StoreError::new(StoreErrorKind::NotFound, "make the key", path, "it is gone again")
        })
    }

    /// Identifies the key without revealing anything about it.
    pub(crate) fn id(&self) -> &[u8; 8] {
        &self.id
    }

    pub(crate) fn bytes(&self) -> &[u8; 32] {
        &self.bytes
    }

    /// A key for another purpose, which reveals nothing about this one.
    pub(crate) fn derive(&self, label: [u8; 24]) -> [u8; 32] {
        let mut derived = [0; 32];
        let cipher = XChaCha20Poly1305::new(&self.bytes.into());
        // The key stream of a label. Nonces of sealed texts are random, so none of them is ever a label.
        let _ = cipher.encrypt_in_place_detached(&XNonce::from(label), b"", &mut derived);
        derived
    }

    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_whitespace();
        let head = words.next()?;
        let mut decode = || STANDARD.decode(words.next()?).ok();
        let (id, bytes) = (decode()?.try_into().ok()?, decode()?.try_into().ok()?);
        (head == HEAD && words.next().is_none()).then_some(Self { id, bytes })
    }
}

fn make(path: &Path) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    let mut random = [0u8; 40];
    getrandom::fill(&mut random).map_err(io::Error::other)?;
    let (id, bytes) = random.split_at(8);
    let text = format!("{HEAD} {} {}\n", STANDARD.encode(id), STANDARD.encode(bytes));
    // A name that no other process or thread uses.
    let temporary =
        path.with_extension(format!("tmp{:x}", u64::from_le_bytes(id.try_into().unwrap_or_default())));
    let write = || {
        let mut file =
            File::options().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        // Linking never replaces a file: of two processes one creates the key, and both use it.
        match fs::hard_link(&temporary, path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => Ok(()),
        }
    };
    let written = write();
    let _ = fs::remove_file(&temporary);
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_made_once_and_only_its_owner_may_read_it() {
        let folder = tempfile::tempdir().unwrap();
        let place = KeyPlace::at(folder.path().join("data/faultscope/secrets.key"));
        assert_eq!(Key::load(&place).unwrap(), None);
        let keys: Vec<Key> = std::thread::scope(|scope| {
            let makers: Vec<_> = (0..8).map(|_| scope.spawn(|| Key::load_or_make(&place).unwrap())).collect();
            makers.into_iter().map(|maker| maker.join().unwrap()).collect()
        });
        assert!(keys.iter().all(|key| *key == keys[0]));
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(place.path()), mode(place.path().parent().unwrap())), (0o600, 0o700));
        assert_eq!(fs::read_dir(place.path().parent().unwrap()).unwrap().count(), 1, "nothing else is left");

        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(Key::load(&place).unwrap_err().kind, StoreErrorKind::NotPermitted);
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(place.path(), "nonsense").unwrap();
        assert_eq!(Key::load_or_make(&place).unwrap_err().kind, StoreErrorKind::Damaged);
    }
}
