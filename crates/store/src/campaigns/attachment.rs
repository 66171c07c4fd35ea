//! Files that are kept with a campaign until somebody asks for them. They hold what the files of the user hold, so
//! they are sealed like everything else; a sealed one has `.sealed` behind its name.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::campaign::Campaign;
use super::folder::StoredCampaign;
use crate::error::StoreError;
use crate::files;
use crate::sealed::{AtRest, ReadKey, open_bytes, seal_bytes};
use crate::secrets::{Key, SecretOptions};

const SEALED: &str = "sealed";

/// A larger file is not read: a bundle holds at most 256 MiB before it is packed.
const MAX_BYTES: u64 = 320 << 20;

impl Campaign {
    /// Keeps a file with the campaign that is being written, as [`StoredCampaign::attach`] does.
    pub fn attach(&self, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        keep(self.folder(), name, bytes, self.at_rest())
    }
}

impl StoredCampaign {
    /// Keeps a file with the campaign, in place of an earlier one of this name. It is sealed unless the user chose to
    /// store values as they are.
    pub fn attach(&self, name: &str, bytes: &[u8], secrets: &SecretOptions) -> Result<(), StoreError> {
        keep(self.folder(), name, bytes, &AtRest::new(secrets)?)
    }

    /// A file that was kept; none if there is none of this name.
    pub fn attachment(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.upgrade()?;
        read_sealed(self.folder(), name, self.key())
    }
}

/// Seals the bundles, inputs and reports that an older version kept as they were.
pub(super) fn seal_attachments(folder: &Path, key: &Key) -> Result<(), StoreError> {
    for entry in fs::read_dir(folder).map_err(StoreError::io("read", folder))?.flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_bundle = name.starts_with("repro") && name.ends_with(".tar.gz");
        let is_other =
            ["input.", "debug-report.", "resilience-report."].iter().any(|start| name.starts_with(start));
        let is_sealed = path.extension().is_some_and(|end| end == SEALED);
        if !(is_bundle || is_other) || is_sealed {
            continue;
        }
        let Some(bytes) = read_whole(&path)? else { continue };
        write_sealed(folder, &name, key, &bytes)?;
        fs::remove_file(&path).map_err(StoreError::io("remove", &path))?;
    }
    Ok(())
}

fn keep(folder: &Path, name: &str, bytes: &[u8], at_rest: &AtRest) -> Result<(), StoreError> {
    match at_rest {
        AtRest::Sealed(key) => write_sealed(folder, name, key, bytes),
        AtRest::Plain => files::write_bytes(&folder.join(name), bytes),
    }
}

fn sealed_path(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.{SEALED}"))
}

fn write_sealed(folder: &Path, name: &str, key: &Key, bytes: &[u8]) -> Result<(), StoreError> {
    let path = sealed_path(folder, name);
    let sealed = seal_bytes(key, name, bytes).map_err(StoreError::io("seal", &path))?;
    files::write_bytes(&path, &sealed)
}

fn read_sealed(folder: &Path, name: &str, key: &ReadKey) -> Result<Option<Vec<u8>>, StoreError> {
    let path = sealed_path(folder, name);
    let Some(sealed) = read_whole(&path)? else { return read_whole(&folder.join(name)) };
    open_bytes(key, name, &sealed).map(Some).map_err(|error| StoreError::unseal(&path, &error))
}

/// A file of at most [`MAX_BYTES`]; none if there is none.
fn read_whole(path: &Path) -> Result<Option<Vec<u8>>, StoreError> {
    let mut bytes = Vec::new();
    match File::open(path).and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut bytes)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(StoreError::io("read", path)(error)),
        Ok(_) if bytes.len() as u64 > MAX_BYTES => {
            Err(StoreError::damaged(path, format!("it is larger than {MAX_BYTES} bytes")))
        }
        Ok(_) => Ok(Some(bytes)),
    }
}
