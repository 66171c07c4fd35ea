//! What the application file asks an instance to see at paths of its own, as mounts of its container.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use bollard::models::{Mount, MountTmpfsOptions, MountType};
use faultscope_model::mount::MountSource;
use faultscope_model::plan::InstancePlan;

use super::image;
use super::slot::Slot;
use crate::process::parts::{copy_tree, remove_tree};

/// The kind of an error for which the application file is to blame; no error of the kernel has it.
pub(super) const BAD_PLAN: io::ErrorKind = io::ErrorKind::InvalidData;

/// The mounts of one instance, from its start to its end; a restart finds them as they were left.
#[derive(Debug, Clone, Default)]
pub(super) struct OwnMounts {
    pub(super) mounts: Vec<Mount>,
    /// Volumes that instances of the trial share.
    pub(super) shared: Vec<String>,
    /// Copies and texts, for this instance alone.
    folder: Option<PathBuf>,
}

impl OwnMounts {
    /// Prepares what a plan asks for. It works on files, so call it from a thread that may block.
    /// A snapshot's copies take the place of the application's files.
    pub(super) fn prepare(slot: &Slot, plan: &InstancePlan, restored: Option<&Path>) -> io::Result<Self> {
        let mut own = Self::default();
        let application = slot.spec.application.canonicalize()?;
        for (number, mount) in plan.mounts.iter().enumerate() {
            let target = Path::new(&mount.to);
            let shown = match &mount.source {
                MountSource::Path(path) => {
                    let source = find_source(&application, path)?;
                    // No trial changes what the user has.
                    let source = if mount.readonly {
                        source
                    } else {
                        let copy = own.make_folder(slot, plan)?.join(number.to_string());
                        let kept = restored.map(|folder| folder.join(number.to_string()));
                        copy_tree(kept.as_deref().filter(|kept| kept.exists()).unwrap_or(&source), &copy)?;
                        copy
                    };
                    image::bind(&source, target, mount.readonly)
                }
                MountSource::Content(text) => {
                    let file = own.make_folder(slot, plan)?.join(number.to_string());
                    fs::write(&file, text)?;
                    if let Some(mode) = mount.mode {
                        fs::set_permissions(&file, fs::Permissions::from_mode(mode))?;
                    }
                    image::bind(&file, target, mount.readonly)
                }
                MountSource::Volume(name) => {
                    let name = format!("faultscope-{}-shared-{name}", slot.spec.label);
                    own.shared.push(name.clone());
                    Mount { read_only: Some(mount.readonly), ..image::volume(&name, &mount.to) }
                }
                MountSource::Memory { size } => Mount {
                    typ: Some(MountType::TMPFS),
                    target: Some(mount.to.clone()),
                    read_only: Some(mount.readonly),
                    tmpfs_options: Some(MountTmpfsOptions {
                        size_bytes: Some(i64::try_from(size.0).unwrap_or(i64::MAX)),
                        mode: Some(0o1777),
                        ..Default::default()
                    }),
                    ..Default::default()
                },
            };
            own.mounts.push(shown);
        }
        Ok(own)
    }

    /// Removes everything of it that no other instance uses, once the container is gone.
    pub(super) async fn remove(&self, slot: &Slot) {
        for volume in &self.shared {
            // Refused as long as another instance has it; the last one takes it away.
            if let Err(error) = slot.engine.remove_volume(volume).await {
                tracing::debug!(volume, %error, "a shared volume stays");
            }
        }
        if let Some(folder) = self.folder.clone() {
            tokio::task::spawn_blocking(move || {
                if let Err(error) = remove_tree(&folder) {
                    tracing::debug!(folder = %folder.display(), %error, "a folder stays until the slot is closed");
                }
            });
        }
    }

    /// Copies and texts, for this instance alone.
    pub(super) fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    fn make_folder(&mut self, slot: &Slot, plan: &InstancePlan) -> io::Result<PathBuf> {
        if let Some(folder) = &self.folder {
            return Ok(folder.clone());
        }
        let folder = slot.folder.join("mounts").join(format!("{}.{}", plan.id, slot.next_key()));
        fs::create_dir_all(&folder)?;
        self.folder = Some(folder.clone());
        Ok(folder)
    }
}

/// A file or folder of the application; links must not lead out of it.
fn find_source(application: &Path, path: &str) -> io::Result<PathBuf> {
    let refuse = |reason: String| io::Error::new(BAD_PLAN, reason);
    let source = application.join(path).canonicalize().map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => {
            refuse(format!("`{path}` does not exist below the folder of the application file"))
        }
        _ => io::Error::new(e.kind(), format!("cannot read `{path}`: {e}")),
    })?;
    if !source.starts_with(application) {
        return Err(refuse(format!("`{path}` leads out of the folder of the application file")));
    }
    Ok(source)
}
