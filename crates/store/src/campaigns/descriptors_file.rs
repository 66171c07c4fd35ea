//! What is known of the gRPC messages of a campaign, beside its database.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::time::SystemTime;

use faultscope_model::grpc::Descriptors;

use crate::error::StoreError;
use crate::files;
use crate::sealed::{AtRest, ReadKey, open_bytes, seal_bytes};
use crate::secrets::Key;

const DESCRIPTORS: &str = "descriptors.bin";

/// What a sealed file begins with; a plain one begins with the tag of its first field.
const SEALED: &[u8] = b"\0sealed\0";

/// A larger file is not read; the interfaces of a large cloud have a tenth of it.
const MAX_BYTES: u64 = 128 << 20;

/// Reads the descriptors of a campaign. Without them messages are shown by the numbers of their fields, so what cannot
/// be read is no error.
pub(super) fn read_descriptors(folder: &Path, key: &ReadKey) -> Descriptors {
    let path = folder.join(DESCRIPTORS);
    let mut bytes = Vec::new();
    let read = File::open(&path).and_then(|file| file.take(MAX_BYTES).read_to_end(&mut bytes));
    let opened = match bytes.strip_prefix(SEALED) {
        Some(sealed) => open_bytes(key, DESCRIPTORS, sealed).map_err(io::Error::other),
        None => Ok(bytes),
    };
    match read.and(opened) {
        Ok(bytes) => Descriptors::from_bytes(&bytes).unwrap_or_else(|error| {
            tracing::warn!(%error, path = %path.display(), "messages of gRPC are shown without names");
            Descriptors::default()
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Descriptors::default(),
        Err(error) => {
            tracing::warn!(%error, path = %path.display(), "messages of gRPC are shown without names");
            Descriptors::default()
        }
    }
}

/// When the file was written and how long it is; none if there is none.
pub(super) fn state_of_descriptors(folder: &Path) -> Option<(SystemTime, u64)> {
    let metadata = std::fs::metadata(folder.join(DESCRIPTORS)).ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}

/// Writes the descriptors of a campaign, replacing earlier ones.
pub(super) fn write_descriptors(
    folder: &Path,
    descriptors: &Descriptors,
    at_rest: &AtRest,
) -> Result<(), StoreError> {
    let bytes = descriptors.to_bytes();
    match at_rest {
        AtRest::Plain => files::write_bytes(&folder.join(DESCRIPTORS), &bytes),
        AtRest::Sealed(key) => write_sealed(folder, key, &bytes),
    }
}

/// Seals the file that an older version wrote.
pub(super) fn seal_descriptors(folder: &Path, key: &Key) -> Result<(), StoreError> {
    let path = folder.join(DESCRIPTORS);
    let mut bytes = Vec::new();
    match File::open(&path).and_then(|file| file.take(MAX_BYTES).read_to_end(&mut bytes)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(StoreError::io("read", &path)(error)),
        Ok(_) if bytes.starts_with(SEALED) => Ok(()),
        Ok(_) => write_sealed(folder, key, &bytes),
    }
}

fn write_sealed(folder: &Path, key: &Key, bytes: &[u8]) -> Result<(), StoreError> {
    let path = folder.join(DESCRIPTORS);
    let sealed = seal_bytes(key, DESCRIPTORS, bytes).map_err(StoreError::io("seal", &path))?;
    files::write_bytes(&path, &[SEALED, &sealed].concat())
}
