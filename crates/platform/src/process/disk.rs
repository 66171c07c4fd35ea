//! Bounds what a trial has on disk: the layers of its instances and tests, volumes, the layer over the home.
//!
//! Quotas of the kernel need a file system that was made for them, so the slot's folder is measured again and again. A
//! program that writes without end is killed before it fills the disk of the machine, with a reason that reports show.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

use faultscope_model::units::ByteSize;
use tokio::time::Instant;

use super::bad_plan;
use super::life::Life;
use super::slot::Slot;
use crate::{PlatformError, PlatformEvent};

/// The setting with another limit, such as `20GiB`. It depends on the machine and not on the application.
const SETTING: &str = "FAULTSCOPE_TRIAL_DISK";

/// More than the data of any sample; a disk writes it in several seconds, so that the next look comes in time.
const DEFAULT_LIMIT: u64 = 8 << 30;

const TICK: Duration = Duration::from_millis(500);

/// Measuring a tree with many files takes its time, and shall take at most a twentieth of a core.
const REST: u32 = 20;

/// The most bytes that a trial may have on disk.
pub(super) fn limit() -> Result<u64, PlatformError> {
    let Ok(text) = std::env::var(SETTING) else { return Ok(DEFAULT_LIMIT) };
    let size: Result<ByteSize, _> = text.parse();
    size.map(|size| size.0).map_err(|e| bad_plan(format!("read {SETTING}"), e.to_string()))
}

/// Measures a slot until it is gone.
pub(super) async fn watch(slot: Weak<Slot>) {
    let mut rest = TICK;
    loop {
        tokio::time::sleep(rest).await;
        let Some(slot) = slot.upgrade() else { return };
        let began = Instant::now();
        let folder = slot.folder.clone();
        let used = tokio::task::spawn_blocking(move || measure(&folder)).await.unwrap_or_default();
        rest = TICK.max(began.elapsed() * REST);
        if used > slot.shared.disk {
            end_writer(&slot).await;
        }
    }
}

/// Kills the instance that has written most. Where none has, a test writes, or all do to what they share: everything
/// in the slot is ended, and the trial is invalid.
async fn end_writer(slot: &Slot) {
    let limit = ByteSize(slot.shared.disk);
    let stage = slot.stage();
    let lives: Vec<Arc<Life>> = stage.lives().values().filter(|life| !life.is_over()).cloned().collect();
    let measured = tokio::task::spawn_blocking(move || {
        lives.into_iter().map(|life| (measure(&life.own), life)).max_by_key(|(bytes, _)| *bytes)
    });
    match measured.await.ok().flatten() {
        Some((bytes, life)) if bytes > limit.0 / 2 => {
            let instance = life.plan.id.clone();
            tracing::warn!(%instance, bytes, "killed: it writes too much to disk");
            let _ = slot.events.send(PlatformEvent::OutOfDisk { instance, limit });
            life.stop(Duration::ZERO).await;
            // Its files would count against those that go on.
            slot.discard(life.own.clone());
        }
        _ => {
            slot.shared.note(&format!("a trial wrote more than {limit} to disk and was ended ({SETTING})"));
            tracing::warn!(slot = %slot.spec.id, "ended: a test or several instances write too much to disk");
            let _ = stage.agent.end().await;
        }
    }
}

/// The bytes that a tree takes on disk. What vanishes meanwhile or cannot be read counts nothing.
fn measure(folder: &Path) -> u64 {
    let mut bytes = 0;
    let mut folders = vec![folder.to_owned()];
    let Ok(disk) = fs::symlink_metadata(folder).map(|about| about.dev()) else { return 0 };
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let Ok(about) = entry.metadata() else { continue };
            // What is mounted below shows files of the application.
            if about.dev() != disk {
                continue;
            }
            // Blocks have 512 bytes whatever the file system, and a sparse file has few.
            bytes += about.blocks() * 512;
            if about.is_dir() {
                folders.push(entry.path());
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_has_the_bytes_of_all_its_files() {
        let folder = tempfile::tempdir().unwrap();
        let below = folder.path().join("a/b");
        fs::create_dir_all(&below).unwrap();
        let before = measure(folder.path());
        fs::write(below.join("data"), vec![1; 1 << 20]).unwrap();
        fs::File::create(below.join("sparse")).unwrap().set_len(1 << 40).unwrap();
        let grown = measure(folder.path()) - before;
        assert!((1 << 20..2 << 20).contains(&grown), "{grown}");
        assert_eq!(measure(&folder.path().join("missing")), 0);
    }
}
