//! Small files beside the store that hold values of a system under test, sealed with the machine's key.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::error::{StoreError, StoreErrorKind};
use crate::files;
use crate::sealed::{AtRest, ReadKey, open_bytes, seal_bytes};
use crate::secrets::{KeyPlace, SecretOptions};

/// What a sealed file begins with; JSON never does.
const SEALED: &[u8] = b"\0sealed\0";

/// Replaces a file. The label says what it is, so that one file cannot stand for another.
pub fn write_sealed(
    path: &Path,
    label: &str,
    bytes: &[u8],
    options: &SecretOptions,
) -> Result<(), StoreError> {
    match AtRest::new(options)?.key() {
        None => files::write_bytes(path, bytes),
        Some(key) => {
            let sealed = seal_bytes(key, label, bytes).map_err(StoreError::io("seal", path))?;
            files::write_bytes(path, &[SEALED, &sealed].concat())
        }
    }
}

/// Reads what [`write_sealed`] wrote, up to `most` bytes.
pub fn read_sealed(
    path: &Path,
    label: &str,
    most: u64,
    key: Option<KeyPlace>,
) -> Result<Vec<u8>, StoreError> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(most + 1).read_to_end(&mut bytes));
    read.map_err(StoreError::io("read", path))?;
    if bytes.len() as u64 > most {
        let reason = format!("it is larger than {most} bytes");
        return Err(StoreError::new(StoreErrorKind::Damaged, "read", path, reason));
    }
    match bytes.strip_prefix(SEALED) {
        Some(sealed) => {
            open_bytes(&ReadKey::new(key), label, sealed).map_err(|error| StoreError::unseal(path, &error))
        }
        None => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_sealed_unless_it_shall_be_plain() {
        let folder = tempfile::tempdir().unwrap();
        let (path, key) = (folder.path().join("file"), KeyPlace::at(folder.path().join("key")));
        for plain in [false, true] {
            let options = SecretOptions { plain, key: Some(key.clone()), ..SecretOptions::default() };
            write_sealed(&path, "clone", b"{\"token\": 1}", &options).unwrap();
            let stored = std::fs::read(&path).unwrap();
            assert_eq!(stored.windows(5).any(|part| part == b"token"), plain);
            assert_eq!(read_sealed(&path, "clone", 100, Some(key.clone())).unwrap(), b"{\"token\": 1}");
        }
        assert!(read_sealed(&path, "clone", 5, Some(key.clone())).is_err(), "too large");
        write_sealed(
            &path,
            "clone",
            b"x",
            &SecretOptions { key: Some(key.clone()), ..SecretOptions::default() },
        )
        .unwrap();
        let other = read_sealed(&path, "report", 100, Some(key));
        assert_eq!(other.unwrap_err().kind, StoreErrorKind::Damaged);
    }
}
