//! Snapshots of a slot: all instances stand still at the same moment, their layers are copied, and each goes on at once.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use faultscope_model::InstanceId;
use faultscope_model::mount::MountSource;
use faultscope_model::plan::{InstancePlan, Plan};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared, join_all};
use tokio::time::Instant;

use super::copy::{copy_layer, copy_some};
use super::data::Layers;
use super::life::Life;
use super::slot::Slot;
use super::{NAME, bad_plan, farm, trouble};
use crate::{
    DataForm, DataSize, InstanceSnapshot, PlatformError, PlatformErrorKind, SharedData, SharedSnapshot,
    Snapshot, now_us,
};

/// A process that does not stand still by then is waiting for a device; the others must not wait for it.
const FREEZE_WITHIN: Duration = Duration::from_secs(5);

/// Data that the next deployment starts from.
#[derive(Debug)]
pub(crate) struct Restore {
    folder: PathBuf,
    snapshot: Snapshot,
}

/// A copy that several instances may wait for. Errors are texts, since all of them get it.
type Copying = Shared<BoxFuture<'static, Result<DataSize, String>>>;

/// How an instance was stopped for a snapshot.
struct Frozen {
    asked: Instant,
    at_us: u64,
    state: io::Result<FrozenState>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum FrozenState {
    /// It goes on when its data is copied.
    ByUs,
    /// It stays as somebody else left it.
    AlreadyPaused,
    /// It had ended.
    Over,
}

impl Slot {
    /// Takes a snapshot of all instances.
    pub(crate) async fn snapshot(self: Arc<Self>, into: PathBuf) -> Result<Snapshot, PlatformError> {
        let action = "take a snapshot";
        let form = self.data_form(action)?;
        let _turn = self.turn.lock().await;
        let stage = self.stage();
        let lives: Vec<Arc<Life>> = stage.lives().values().cloned().collect();
        // Before anything stands still: a disk that cannot be written to stops nobody.
        for folder in [instances_folder(&into), shared_folder(&into)] {
            fs::create_dir_all(folder).map_err(|e| trouble(action, e))?;
        }
        let frozen = join_all(lives.iter().map(|life| freeze(life, &self.spec.label))).await;
        let all_still = frozen.iter().all(|frozen| frozen.state.is_ok());
        let shared = if all_still { self.copy_shared(&lives, &into) } else { Vec::new() };
        let finish = |(life, frozen): (&Arc<Life>, Frozen)| {
            let own = all_still.then(|| copy_own(&self.layers(), &self.spec.application, life, &into));
            let needed: Vec<Copying> = shared
                .iter()
                .filter(|(of, _)| is_used(of, &life.plan))
                .map(|(_, copy)| copy.clone())
                .collect();
            finish_instance(Arc::clone(life), frozen, own, needed)
        };
        let instances = join_all(lives.iter().zip(frozen).map(finish)).await;
        // Only now: everybody goes on, whatever happened to others.
        let instances = instances.into_iter().collect::<Result<Vec<_>, _>>();
        let instances = instances.map_err(|reason| trouble(action, reason))?;
        let mut kept = Vec::new();
        for (of, copy) in shared {
            kept.push(SharedSnapshot { of, data: copy.await.map_err(|reason| trouble(action, reason))? });
        }
        Ok(Snapshot { platform: NAME.into(), form, instances, shared: kept })
    }

    /// Checks a snapshot and keeps it for the next deployment.
    pub(crate) fn restore(&self, from: &Path, snapshot: &Snapshot) -> Result<(), PlatformError> {
        let action = "start from this snapshot";
        snapshot.check(NAME, self.data_form(action)?)?;
        let own = snapshot.instances.iter().map(|instance| instance_folder(from, &instance.id));
        let shared = (0..snapshot.shared.len()).map(|number| shared_folder(from).join(number.to_string()));
        if let Some(gone) = own.chain(shared).find(|folder| !folder.is_dir()) {
            return Err(bad_plan(action, format!("its files are gone: there is no `{}`", gone.display())));
        }
        self.set_restore(Some(Arc::new(Restore { folder: from.to_owned(), snapshot: snapshot.clone() })));
        Ok(())
    }

    /// A fresh folder for one start of an instance, and whether it has restored data in it.
    pub(crate) async fn new_folder(
        &self,
        instance: &InstanceId,
        key: u64,
        restore: Option<&Arc<Restore>>,
    ) -> io::Result<(PathBuf, bool)> {
        let own = self.lives_folder().join(format!("{instance}.{key}"));
        let Some(restore) = restore.filter(|restore| restore.snapshot.instance(instance).is_some()) else {
            return Ok((own, false));
        };
        let from = instance_folder(&restore.folder, instance);
        let to = match self.layers() {
            Layers::Copies { .. } => farm::root(&own),
            Layers::Disk { .. } | Layers::Memory { .. } => own.join("upper"),
        };
        let copy = move || -> io::Result<DataSize> {
            fs::create_dir_all(to.parent().unwrap_or(&to))?;
            copy_layer(&from, &to)
        };
        tokio::task::spawn_blocking(copy).await.map_err(io::Error::other)??;
        Ok((own, true))
    }

    /// Fills the volumes that a plan uses.
    pub(crate) async fn fill_volumes(&self, restore: &Arc<Restore>, plan: &Plan) -> io::Result<()> {
        let used: BTreeSet<String> = plan.instances.iter().flat_map(volumes_of).map(str::to_owned).collect();
        let (restore, volumes) = (Arc::clone(restore), self.volumes_folder());
        let fill = move || -> io::Result<()> {
            fs::create_dir_all(&volumes)?;
            for (number, shared) in restore.snapshot.shared.iter().enumerate() {
                // Names come from a file, so that only those of the plan are used as paths.
                let SharedData::Volume(name) = &shared.of else { continue };
                if used.contains(name) {
                    let from = shared_folder(&restore.folder).join(number.to_string());
                    copy_layer(&from, &volumes.join(name))?;
                }
            }
            Ok(())
        };
        tokio::task::spawn_blocking(fill).await.map_err(io::Error::other)?
    }

    /// Fills the layer over the user's home before it is laid.
    pub(crate) async fn fill_home(&self, layer: &Path) -> io::Result<()> {
        let Some(restore) = self.pending_restore() else { return Ok(()) };
        let home = restore.snapshot.shared.iter().position(|shared| shared.of == SharedData::Home);
        let Some(number) = home else { return Ok(()) };
        let from = shared_folder(&restore.folder).join(number.to_string());
        let layer = layer.to_owned();
        let fill = move || {
            fs::create_dir_all(&layer)?;
            copy_layer(&from, &layer.join("upper")).map(drop)
        };
        tokio::task::spawn_blocking(fill).await.map_err(io::Error::other)?
    }

    fn data_form(&self, action: &str) -> Result<DataForm, PlatformError> {
        match self.layers() {
            Layers::Disk { .. } if self.shared.user => Ok(DataForm::UserLayers),
            Layers::Disk { .. } => Ok(DataForm::Layers),
            Layers::Copies { .. } => Ok(DataForm::Copies),
            // They are mounted where only the slot's agent sees them.
            Layers::Memory { .. } => Err(PlatformError::new(PlatformErrorKind::Unsupported, NAME, action)
                .because("data layers are in memory, because the disk does not allow them")),
        }
    }

    /// Begins to copy what instances share.
    fn copy_shared(&self, lives: &[Arc<Life>], into: &Path) -> Vec<(SharedData, Copying)> {
        let names: BTreeSet<&str> = lives.iter().flat_map(|life| volumes_of(&life.plan)).collect();
        let mut sources: BTreeMap<SharedData, (PathBuf, Vec<PathBuf>)> = names
            .into_iter()
            .map(|name| (SharedData::Volume(name.to_owned()), (self.volumes_folder().join(name), Vec::new())))
            .collect();
        if let Some((layer, masked)) = self.home.as_ref().and_then(super::home::Home::current_layer) {
            sources.insert(SharedData::Home, (layer, masked));
        }
        let begin = |(number, (of, (from, masked))): (usize, (SharedData, (PathBuf, Vec<PathBuf>)))| {
            let to = shared_folder(into).join(number.to_string());
            let copy = move || {
                // The masks are those of this machine's secrets; the next layer has its own.
                let is_mask = |path: &Path, about: &Metadata| {
                    about.file_type().is_char_device()
                        && about.rdev() == 0
                        && masked.iter().any(|m| m == path)
                };
                if !from.is_dir() {
                    return fs::create_dir(&to).map(|()| DataSize::default());
                }
                copy_some(&from, &to, &|path, about| !is_mask(path, about))
            };
            (of, begin_copy(copy))
        };
        sources.into_iter().enumerate().map(begin).collect()
    }
}

/// Begins to copy the layer of an instance.
fn copy_own(layers: &Layers, application: &Path, life: &Life, into: &Path) -> Copying {
    let to = instance_folder(into, &life.plan.id);
    let is_farm = matches!(layers, Layers::Copies { .. });
    let from = if is_farm { farm::root(&life.own) } else { life.own.join("upper") };
    let application = application.to_owned();
    begin_copy(move || {
        if !from.is_dir() {
            return fs::create_dir(&to).map(|()| DataSize::default());
        }
        // What is only linked belongs to the application, and is linked anew.
        let is_link_into =
            |path: &Path| fs::read_link(path).is_ok_and(|target| target.starts_with(&application));
        copy_some(&from, &to, &|path, about| !(is_farm && about.is_symlink() && is_link_into(path)))
    })
}

fn begin_copy(copy: impl FnOnce() -> io::Result<DataSize> + Send + 'static) -> Copying {
    let copying = tokio::task::spawn_blocking(copy);
    let result = async move {
        copying.await.map_err(io::Error::other).and_then(|done| done).map_err(|e| e.to_string())
    };
    result.boxed().shared()
}

async fn freeze(life: &Life, label: &str) -> Frozen {
    let asked = Instant::now();
    let state = if life.is_over() {
        Ok(FrozenState::Over)
    } else if life.is_paused() {
        Ok(FrozenState::AlreadyPaused)
    } else {
        match tokio::time::timeout(FREEZE_WITHIN, life.pause(label)).await {
            Ok(paused) => paused.map(|()| FrozenState::ByUs),
            Err(_) => {
                let _ = life.resume().await;
                Err(io::Error::new(io::ErrorKind::TimedOut, "some of its processes do not stand still"))
            }
        }
    };
    Frozen { asked, at_us: now_us(), state }
}

/// Waits for the copies that an instance needs, and lets it go on.
async fn finish_instance(
    life: Arc<Life>,
    frozen: Frozen,
    own: Option<Copying>,
    needed: Vec<Copying>,
) -> Result<InstanceSnapshot, String> {
    let id = life.plan.id.clone();
    let mut copied = match own {
        Some(own) => own.await,
        None => Err("others could not be frozen".to_owned()),
    };
    for shared in needed {
        if let Err(reason) = shared.await {
            copied = Err(reason);
        }
    }
    if matches!(frozen.state, Ok(FrozenState::ByUs)) {
        // A process that ended meanwhile cannot go on, which is its own affair.
        let resumed = life.resume().await;
        resumed.or_else(|e| if life.is_over() { Ok(()) } else { Err(format!("cannot thaw {id}: {e}")) })?;
    }
    let pause = frozen.asked.elapsed();
    let state = frozen.state.map_err(|e| format!("cannot freeze {id}: {e}"))?;
    let data = copied.map_err(|reason| format!("{id}: {reason}"))?;
    Ok(InstanceSnapshot {
        id,
        ran: state != FrozenState::Over,
        started_us: life.started_us,
        at_us: frozen.at_us,
        pause: if state == FrozenState::ByUs { pause } else { Duration::ZERO },
        data,
        image: None,
    })
}

fn is_used(of: &SharedData, plan: &InstancePlan) -> bool {
    match of {
        SharedData::Volume(name) => volumes_of(plan).any(|used| used == name),
        // Any of them may write to it.
        SharedData::Home => true,
    }
}

fn volumes_of(plan: &InstancePlan) -> impl Iterator<Item = &str> {
    plan.mounts.iter().filter_map(|mount| match &mount.source {
        MountSource::Volume(name) => Some(name.as_str()),
        _ => None,
    })
}

fn instances_folder(snapshot: &Path) -> PathBuf {
    snapshot.join("instances")
}

fn instance_folder(snapshot: &Path, instance: &InstanceId) -> PathBuf {
    instances_folder(snapshot).join(instance.to_string())
}

fn shared_folder(snapshot: &Path) -> PathBuf {
    snapshot.join("shared")
}
