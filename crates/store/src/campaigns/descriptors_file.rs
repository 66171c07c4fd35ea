//! What is known of the gRPC messages of a campaign, beside its database.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::time::SystemTime;

use faultscope_model::grpc::Descriptors;

use crate::error::StoreError;
use crate::files;

const DESCRIPTORS: &str = "descriptors.bin";

/// A larger file is not read; the interfaces of a large cloud have a tenth of it.
const MAX_BYTES: u64 = 128 << 20;

/// Reads the descriptors of a campaign. Without them messages are shown by the numbers of their fields, so what cannot
/// be read is no error.
pub(super) fn read_descriptors(folder: &Path) -> Descriptors {
    let path = folder.join(DESCRIPTORS);
    let mut bytes = Vec::new();
    let read = File::open(&path).and_then(|file| file.take(MAX_BYTES).read_to_end(&mut bytes));
    match read {
        Ok(_) => Descriptors::from_bytes(&bytes).unwrap_or_else(|error| {
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
pub(super) fn write_descriptors(folder: &Path, descriptors: &Descriptors) -> Result<(), StoreError> {
    files::write_bytes(&folder.join(DESCRIPTORS), &descriptors.to_bytes())
}
