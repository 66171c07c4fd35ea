//! Snapshots of a slot: containers are paused together, committed, and their volumes are copied before they go on.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use faultscope_model::InstanceId;
use faultscope_model::mount::MountSource;
use faultscope_model::plan::InstancePlan;
use futures_util::future::join_all;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::engine::{Engine, as_io};
use super::life::Life;
use super::slot::Slot;
use super::{NAME, bad_plan, trouble};
use crate::process::parts::copy_layer;
use crate::{DataForm, DataSize, InstanceSnapshot, PlatformError, Snapshot, now_us};

/// The name of all images of snapshots; their tags tell them apart.
const IMAGE: &str = "faultscope-clone";
const VOLUMES: &str = "volumes.json";
const MOUNTS: &str = "mounts";
const SAVED_IMAGE: &str = "image.tar";

/// Data that the next deployment starts from.
#[derive(Debug)]
pub(super) struct Restore {
    folder: PathBuf,
    snapshot: Snapshot,
    /// Shared volumes that an instance has filled already.
    filled: Mutex<BTreeSet<String>>,
}

/// An archive of a volume, in the order of the files `0.tar`, `1.tar`.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct VolumeArchive {
    /// Where the container sees it.
    target: String,
    /// Its name in the application file, if instances share it.
    shared: Option<String>,
}

/// What an instance starts from.
#[derive(Debug, Default)]
pub(super) struct Restored {
    pub(super) image: Option<String>,
    /// The folder into which an archive is extracted, and the archive.
    pub(super) archives: Vec<(String, PathBuf)>,
    /// Copies of files that the instance could change.
    pub(super) mounts: Option<PathBuf>,
}

impl Slot {
    /// Takes a snapshot of all instances.
    pub(super) async fn snapshot(self: Arc<Self>, into: PathBuf) -> Result<Snapshot, PlatformError> {
        let action = "take a snapshot";
        let _turn = self.turn.lock().await;
        let lives: Vec<Arc<Life>> = self.lives().values().cloned().collect();
        for life in &lives {
            fs::create_dir_all(instance_folder(&into, &life.plan.id)).map_err(|e| trouble(action, e))?;
        }
        let targets = join_all(lives.iter().map(|life| self.engine.volume_targets(&life.container))).await;
        let paused = join_all(lives.iter().map(|life| pause(&self, life))).await;
        let all_still = paused.iter().all(|(_, _, still)| still.is_ok());
        let finish =
            |((life, targets), (asked, at_us, still)): ((&Arc<Life>, Result<Vec<String>, _>), Paused)| {
                let (slot, life, into) = (Arc::clone(&self), Arc::clone(life), into.clone());
                async move {
                    let copied = match (all_still, targets) {
                        (true, Ok(targets)) => slot.copy_instance(&life, &targets, &into).await,
                        (true, Err(error)) => Err(as_io(error)),
                        (false, _) => Err(io::Error::other("others could not be paused")),
                    };
                    let was_paused = matches!(still, Ok(true));
                    if was_paused {
                        life.pause(&slot, false).await.map_err(|e| io::Error::other(e.to_string()))?;
                    }
                    let pause = if was_paused { asked.elapsed() } else { Duration::ZERO };
                    still.map_err(io::Error::other)?;
                    let (image, data) = copied?;
                    Ok::<_, io::Error>(InstanceSnapshot {
                        id: life.plan.id.clone(),
                        ran: was_paused,
                        started_us: life.started_us,
                        at_us,
                        pause,
                        data,
                        image: Some(image),
                    })
                }
            };
        let instances = join_all(lives.iter().zip(targets).zip(paused).map(finish)).await;
        let instances = instances.into_iter().collect::<io::Result<Vec<_>>>();
        let instances = instances.map_err(|e| trouble(action, e))?;
        Ok(Snapshot { platform: NAME.into(), form: DataForm::Images, instances, shared: Vec::new() })
    }

    /// Checks a snapshot and keeps it for the next deployment; loads images that came with it from elsewhere.
    pub(super) async fn restore(&self, from: &Path, snapshot: &Snapshot) -> Result<(), PlatformError> {
        let action = "start from this snapshot";
        snapshot.check(NAME, DataForm::Images)?;
        for instance in &snapshot.instances {
            let folder = instance_folder(from, &instance.id);
            if !folder.is_dir() {
                let reason = format!("its files are gone: there is no `{}`", folder.display());
                return Err(bad_plan(action, reason));
            }
            let image = instance.image.as_deref().unwrap_or_default();
            if self.engine.has_image(image).await {
                continue;
            }
            let saved = folder.join(SAVED_IMAGE);
            if !saved.is_file() {
                return Err(bad_plan(action, format!("the engine has no image `{image}`")));
            }
            self.engine.load_image(&saved).await.map_err(|e| trouble(action, e))?;
        }
        let (folder, snapshot) = (from.to_owned(), snapshot.clone());
        self.set_restore(Some(Arc::new(Restore { folder, snapshot, filled: Mutex::default() })));
        Ok(())
    }

    async fn copy_instance(
        &self,
        life: &Life,
        targets: &[String],
        into: &Path,
    ) -> io::Result<(String, DataSize)> {
        let folder = instance_folder(into, &life.plan.id);
        let tag = format!("{}-{}-{}", self.spec.label, life.plan.id, self.next_key());
        self.engine.commit(&life.container, IMAGE, &tag).await.map_err(as_io)?;
        let mut size = DataSize::default();
        let mut archives = Vec::new();
        for (number, target) in targets.iter().enumerate() {
            let file = folder.join(format!("{number}.tar"));
            size.bytes += self.engine.download(&life.container, target, &file).await?;
            size.files += 1;
            archives.push(VolumeArchive { target: target.clone(), shared: shared_name(&life.plan, target) });
        }
        fs::write(folder.join(VOLUMES), serde_json::to_vec(&archives)?)?;
        if let Some(own) = life.mounts_folder() {
            let (own, to) = (own.to_owned(), folder.join(MOUNTS));
            let copied = tokio::task::spawn_blocking(move || copy_layer(&own, &to)).await;
            size.add(copied.map_err(io::Error::other)??);
        }
        Ok((format!("{IMAGE}:{tag}"), size))
    }
}

impl Restore {
    /// What an instance starts from; nothing if the snapshot does not have it.
    pub(super) fn find(&self, plan: &InstancePlan) -> io::Result<Restored> {
        let Some(stored) = self.snapshot.instance(&plan.id) else { return Ok(Restored::default()) };
        let folder = instance_folder(&self.folder, &plan.id);
        let archives: Vec<VolumeArchive> = serde_json::from_slice(&fs::read(folder.join(VOLUMES))?)?;
        let mut filled = self.filled.lock().unwrap_or_else(PoisonError::into_inner);
        let mut wanted = Vec::new();
        for (number, archive) in archives.into_iter().enumerate() {
            // The second instance would take away what the first one has written since.
            if archive.shared.is_some_and(|name| !filled.insert(name)) {
                continue;
            }
            // An archive begins with the name of the folder itself.
            let parent = Path::new(&archive.target).parent().unwrap_or(Path::new("/"));
            wanted.push((parent.to_string_lossy().into_owned(), folder.join(format!("{number}.tar"))));
        }
        let mounts = Some(folder.join(MOUNTS)).filter(|mounts| mounts.is_dir());
        Ok(Restored { image: stored.image.clone(), archives: wanted, mounts })
    }
}

/// When it was asked, when it stood still, and whether this paused it; false if it had ended.
type Paused = (Instant, u64, Result<bool, String>);

async fn pause(slot: &Slot, life: &Life) -> Paused {
    let asked = Instant::now();
    let still = if life.is_over() {
        Ok(false)
    } else {
        life.pause(slot, true).await.map(|()| true).map_err(|e| e.to_string())
    };
    (asked, now_us(), still)
}

/// Saves the images of a snapshot beside its other data, so that it can be used with another engine.
pub(super) async fn save_images(engine: &Engine, from: &Path, snapshot: &Snapshot) -> io::Result<()> {
    for instance in &snapshot.instances {
        let Some(image) = &instance.image else { continue };
        engine.save_image(image, &instance_folder(from, &instance.id).join(SAVED_IMAGE)).await?;
    }
    Ok(())
}

/// Removes the images of a snapshot.
pub(super) async fn remove_images(
    engine: &Engine,
    snapshot: &Snapshot,
) -> Result<(), bollard::errors::Error> {
    for image in snapshot.instances.iter().filter_map(|instance| instance.image.as_deref()) {
        // Only ours: the name may come from an imported file.
        if image.starts_with(&format!("{IMAGE}:")) {
            engine.remove_image(image).await?;
        }
    }
    Ok(())
}

fn shared_name(plan: &InstancePlan, target: &str) -> Option<String> {
    plan.mounts.iter().find_map(|mount| match &mount.source {
        MountSource::Volume(name) if mount.to == target => Some(name.clone()),
        _ => None,
    })
}

fn instance_folder(snapshot: &Path, instance: &InstanceId) -> PathBuf {
    snapshot.join("instances").join(instance.to_string())
}
