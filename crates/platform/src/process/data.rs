//! The data of a slot: which layers its instances see, and the template that `setup` fills once.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::FlockOperation;

use super::agent_protocol::Request;
use super::slot::Slot;
use super::stage::Stage;
use super::{bad_plan, farm, files, trouble};
use crate::{Execution, Place, PlatformError, Rights};

/// How long `setup` may take.
const SETUP_WITHIN: Duration = Duration::from_secs(600);
const SETUP_OUTPUT: usize = 64 << 10;

/// How instances see the application folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Layers {
    /// Overlays with their upper layers on the disk of the state folder.
    Disk {
        /// The result of `setup`.
        template: Option<PathBuf>,
        /// The template merged with the application, where it cannot be a layer of its own.
        joined: Option<PathBuf>,
    },
    /// Overlays with their upper layers in memory, because the file system of the disk does not allow them.
    Memory {
        /// The template, created again with each agent.
        joined: Option<PathBuf>,
    },
    /// No overlays: links and copies.
    Copies {
        /// The result of `setup`.
        template: Option<PathBuf>,
    },
}

impl Layers {
    /// The layers below an instance's own, topmost first.
    pub(crate) fn lower(&self, application: &Path) -> Vec<PathBuf> {
        match self {
            Self::Disk { joined: Some(joined), .. } | Self::Memory { joined: Some(joined) } => {
                vec![joined.clone()]
            }
            Self::Disk { template: Some(template), joined: None } => {
                vec![template.clone(), application.to_owned()]
            }
            _ => vec![application.to_owned()],
        }
    }
}

impl Slot {
    /// Determines which layers work here; called once, when the slot is opened.
    pub(crate) async fn find_layers(&self, stage: &Stage) -> Layers {
        if !self.isolated {
            self.shared.note("without namespaces only directories named `durable` are fresh for each trial");
            return Layers::Copies { template: None };
        }
        let folder = self.folder.join("try");
        let Err(refused) = self.try_overlay(stage, &folder.join("disk")).await else {
            return Layers::Disk { template: None, joined: None };
        };
        let memory = folder.join("memory");
        let in_memory = async {
            fs::create_dir_all(&memory)?;
            stage.agent.link.request(Request::Memory { target: memory.clone() }, &[]).await?;
            self.try_overlay(stage, &memory.join("try")).await
        };
        match in_memory.await {
            Ok(()) => {
                self.shared.note(&format!("data layers are in memory, the disk refuses them: {refused}"));
                Layers::Memory { joined: None }
            }
            Err(error) => {
                self.shared
                    .note(&format!("only directories named `durable` are fresh for each trial: {error}"));
                Layers::Copies { template: None }
            }
        }
    }

    /// Prepares the layers of an agent: memory, template.
    pub(crate) async fn furnish(self: &Arc<Self>, stage: &Arc<Stage>) -> Result<(), PlatformError> {
        // What an earlier agent had merged is gone with it.
        self.set_layers(match self.layers() {
            Layers::Disk { .. } => Layers::Disk { template: None, joined: None },
            Layers::Memory { .. } => Layers::Memory { joined: None },
            Layers::Copies { .. } => Layers::Copies { template: None },
        });
        if let Layers::Memory { .. } = self.layers() {
            let target = self.lives_folder();
            let ask = stage.agent.link.request(Request::Memory { target }, &[]);
            ask.await.map_err(|e| trouble("put data layers into memory", e))?;
        }
        self.renew_home(stage, true).await;
        let Some(setup) = self.spec.setup.clone() else {
            return Ok(());
        };
        let own = match self.layers() {
            Layers::Memory { .. } => self.lives_folder().join("template"),
            _ => self.template_folder(),
        };
        let in_memory = matches!(self.layers(), Layers::Memory { .. });
        self.fill_template(stage, &own, &setup, in_memory).await?;
        let application = &self.spec.application;
        let upper = own.join("upper");
        let layers = match self.layers() {
            Layers::Copies { .. } => Layers::Copies { template: Some(farm::root(&own)) },
            // The kernel rejects layers that lie inside each other, so the two are merged.
            Layers::Disk { .. } if upper.starts_with(application) => {
                Layers::Disk { joined: Some(self.join_template(stage, &upper).await?), template: Some(upper) }
            }
            Layers::Disk { .. } => Layers::Disk { template: Some(upper), joined: None },
            Layers::Memory { .. } => {
                Layers::Memory { joined: Some(self.join_template(stage, &upper).await?) }
            }
        };
        self.set_layers(layers);
        Ok(())
    }

    /// Deletes an unused folder in the background.
    pub(crate) fn discard(&self, folder: PathBuf) {
        if matches!(self.layers(), Layers::Memory { .. }) {
            return;
        }
        tokio::task::spawn_blocking(move || {
            if let Err(error) = files::remove_tree(&folder) {
                tracing::debug!(folder = %folder.display(), %error, "a folder stays until the slot is closed");
            }
        });
    }

    async fn try_overlay(&self, stage: &Stage, folder: &Path) -> io::Result<()> {
        let [upper, work, target] = ["upper", "work", "target"].map(|name| folder.join(name));
        let lower = self.spec.application.clone();
        let request = Request::Layer { lower, upper, work, target, user: self.shared.user };
        stage.agent.link.request(request, &[]).await.map(drop)
    }

    async fn join_template(&self, stage: &Stage, upper: &Path) -> Result<PathBuf, PlatformError> {
        let action = "lay the template over the application";
        let folder = self.folder.join(format!("layer.{}", self.next_key()));
        // The template itself must not change: it is only a lower layer, never written to.
        let (work, target) =
            (upper.with_file_name(format!("work.{}.{}", self.spec.label, self.next_key())), folder);
        let request = Request::Layer {
            lower: self.spec.application.clone(),
            upper: upper.to_owned(),
            work,
            target: target.clone(),
            user: self.shared.user,
        };
        stage.agent.link.request(request, &[]).await.map_err(|e| trouble(action, e))?;
        Ok(target)
    }

    async fn fill_template(
        self: &Arc<Self>,
        stage: &Arc<Stage>,
        own: &Path,
        setup: &[String],
        in_memory: bool,
    ) -> Result<(), PlatformError> {
        let action = "run the application's setup";
        let done = own.join("done");
        let _lock = if in_memory {
            None
        } else {
            let folder = self.spec.state.join("templates");
            let path = own.with_extension("lock");
            let lock = tokio::task::spawn_blocking(move || -> io::Result<File> {
                fs::create_dir_all(folder)?;
                let file = File::create(path)?;
                // Another tool may be filling the same template; its result serves as well.
                rustix::fs::flock(&file, FlockOperation::LockExclusive)?;
                Ok(file)
            });
            Some(lock.await.map_err(io::Error::other).and_then(|l| l).map_err(|e| trouble(action, e))?)
        };
        if !in_memory {
            if done.exists() {
                return Ok(());
            }
            files::remove_tree(own).map_err(|e| trouble(action, e))?;
            fs::create_dir_all(own).map_err(|e| trouble(action, e))?;
        }
        let run = Execution {
            command: setup.to_vec(),
            env: BTreeMap::new(),
            directory: String::new(),
            within: SETUP_WITHIN,
            output_limit: SETUP_OUTPUT,
            place: Place::Test,
            rights: Rights::Service,
        };
        let result = self.exec_in(stage, &run, own.to_owned()).await;
        let failed = match result {
            Ok(exit) if exit.code == Some(0) => None,
            Ok(exit) => {
                let how = match (exit.timed_out, exit.code, exit.signal) {
                    (true, ..) => "it takes too long".to_owned(),
                    (_, Some(code), _) => format!("it exited with {code}"),
                    (_, _, signal) => format!("it was killed by signal {}", signal.unwrap_or_default()),
                };
                let lines: Vec<&str> = exit.stdout.lines().chain(exit.stderr.lines()).collect();
                let last = lines[lines.len().saturating_sub(20)..].join("\n");
                Some(bad_plan(action, format!("{how}; its last lines:\n{last}")))
            }
            Err(error) => Some(error),
        };
        if let Some(error) = failed {
            let _ = files::remove_tree(own);
            return Err(error);
        }
        if !in_memory {
            fs::write(&done, "").map_err(|e| trouble(action, e))?;
        }
        Ok(())
    }

    fn template_folder(&self) -> PathBuf {
        self.spec.state.join("templates").join(format!("{:032x}", fingerprint(&self.spec.template)))
    }
}

/// FNV-1a of 128 bits: the same in every build, unlike the standard library's hashers.
fn fingerprint(text: &str) -> u128 {
    let start = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128;
    text.bytes()
        .fold(start, |hash, byte| (hash ^ u128::from(byte)).wrapping_mul(0x0100_0000_0000_0000_0000_013b))
}
