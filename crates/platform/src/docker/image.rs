//! The tool's own image: nothing but mount points. The program and the libraries it needs are mounted from
//! this machine, read-only, so that there is nothing to build, to copy or to keep up to date.

use std::path::{Path, PathBuf};

use bollard::models::{Mount, MountType};

use super::engine::{Engine, fault};
use crate::PlatformError;

const NAME: &str = "faultscope-empty";
const TAG: &str = "1";
/// Where programs of this machine find their loader and libraries.
const LIBRARIES: [&str; 5] = ["/lib", "/lib64", "/usr/lib", "/usr/lib64", "/nix/store"];

/// The image's full name.
pub(super) fn name() -> String {
    format!("{NAME}:{TAG}")
}

/// Makes the image unless it is there.
pub(super) async fn ensure(engine: &Engine) -> Result<(), PlatformError> {
    if engine.has_image(&name()).await {
        return Ok(());
    }
    let made = engine.import(NAME, TAG, archive(&[("etc", "0000755"), ("tmp", "0001777")])).await;
    made.map_err(|e| fault("make the tool's own image", e))
}

/// What is mounted so that a program of this machine runs in it.
pub(super) fn mounts(program: &Path, at: &Path) -> Vec<Mount> {
    let libraries = LIBRARIES.iter().map(PathBuf::from).filter(|folder| folder.exists());
    libraries.map(|folder| bind(&folder, &folder, true)).chain([bind(program, at, true)]).collect()
}

/// A file or folder of this machine, seen in a container.
pub(super) fn bind(source: &Path, target: &Path, read_only: bool) -> Mount {
    Mount {
        typ: Some(MountType::BIND),
        source: Some(source.to_string_lossy().into_owned()),
        target: Some(target.to_string_lossy().into_owned()),
        read_only: Some(read_only),
        ..Default::default()
    }
}

/// A volume, seen in a container; an empty one begins with what the image has there.
pub(super) fn volume(name: &str, target: &str) -> Mount {
    Mount {
        typ: Some(MountType::VOLUME),
        source: Some(name.to_owned()),
        target: Some(target.to_owned()),
        ..Default::default()
    }
}

/// A tar archive of empty folders.
fn archive(folders: &[(&str, &str)]) -> Vec<u8> {
    let mut archive = Vec::new();
    for (folder, mode) in folders {
        let mut header = [0_u8; 512];
        let mut put = |at: usize, text: &str| header[at..at + text.len()].copy_from_slice(text.as_bytes());
        put(0, &format!("{folder}/"));
        put(100, mode);
        put(108, "0000000\0");
        put(116, "0000000\0");
        put(124, "00000000000\0");
        put(136, "00000000000\0");
        put(148, "        ");
        put(156, "5");
        put(257, "ustar\x0000");
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        archive.extend(header);
    }
    archive.resize(archive.len() + 1024, 0);
    archive
}
