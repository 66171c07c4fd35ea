//! Looks at every part of a store without changing it.

use std::fs;
use std::path::Path;

use super::{PartKind, PartState, StorePart};
use crate::campaigns::check_campaign;
use crate::error::{StoreError, StoreErrorKind};
use crate::lock::is_held;
use crate::sealed::ReadKey;
use crate::secrets::KeyPlace;
use crate::spans::{CATALOGUE, SPANS_FOLDER, check_catalogue, check_slice, slice_files};

/// Lists every campaign and slice of a `.faultscope` folder with its state; campaigns by name, then slices.
pub fn check_store(state: &Path, key: Option<KeyPlace>) -> Result<Vec<StorePart>, StoreError> {
    let key = ReadKey::new(key);
    let mut parts = Vec::new();
    let campaigns = state.join("campaigns");
    for name in names_in(&campaigns)? {
        let path = campaigns.join(&name);
        let found = if is_held(&path) { Ok(PartState::InUse) } else { check_campaign(&path, &key) };
        parts.push(part(PartKind::Campaign, name, &path, found));
    }
    let spans = state.join(SPANS_FOLDER);
    if !spans.is_dir() {
        return Ok(parts);
    }
    let catalogue = spans.join(CATALOGUE);
    if catalogue.exists() {
        parts.push(part(PartKind::Catalogue, CATALOGUE.to_owned(), &catalogue, check_catalogue(&spans)));
    }
    let is_written = is_held(&spans);
    for path in slice_files(&spans)? {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let found = check_slice(&path, &key, is_written);
        parts.push(part(PartKind::Slice, name, &path, found));
    }
    Ok(parts)
}

fn part(kind: PartKind, name: String, path: &Path, found: Result<PartState, StoreError>) -> StorePart {
    let state = found.unwrap_or_else(|error| state_of_error(&error));
    StorePart { kind, name, path: path.to_owned(), state }
}

pub(super) fn state_of_error(error: &StoreError) -> PartState {
    let reason = format!("{error}: {}", error.source);
    match error.kind {
        StoreErrorKind::Newer => PartState::Newer { reason },
        StoreErrorKind::Sealed => PartState::Sealed { reason },
        StoreErrorKind::InUse => PartState::InUse,
        _ => PartState::Damaged { reason },
    }
}

/// The names of the folders in a folder, sorted; none if there is no such folder.
fn names_in(folder: &Path) -> Result<Vec<String>, StoreError> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(StoreError::io("read", folder)(error)),
    };
    let is_folder = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    let names =
        entries.flatten().filter(is_folder).map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.filter(|name| !name.starts_with('.')).collect();
    names.sort();
    Ok(names)
}
