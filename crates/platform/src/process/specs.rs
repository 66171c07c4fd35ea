//! Builds the specification of a process tree from a plan.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use faultscope_model::InstanceId;
use faultscope_model::mount::{Mount, MountSource};
use faultscope_model::plan::InstancePlan;

use super::agent_protocol::{InitRights, InitSpec, MountSpec, Shown, View};
use super::cgroup::Group;
use super::data::Layers;
use super::home::Home;
use super::life::Life;
use super::slot::Slot;
use super::stage::Stage;

use super::{farm, files, open_files, ports, reap};
use crate::types::LimitsBy;
use crate::{Execution, Rights};

/// The file of a slot's certificate authority.
pub(crate) const AUTHORITY: &str = "authority.pem";
/// Variables that name the authority's file: OpenSSL and Go, Node, Python's requests, curl.
const TRUSTED_BY: [&str; 4] =
    ["SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"];

impl Slot {
    /// The specification of an instance.
    pub(crate) fn instance_spec(
        &self,
        stage: &Stage,
        plan: &InstancePlan,
        (own, is_restored): (&Path, bool),
        group: Option<&Group>,
    ) -> io::Result<InitSpec> {
        let (mut command, mut env) = (plan.words(), self.environment(&plan.id, &plan.env));
        if let Some(layout) = stage.layout() {
            layout.check_free(&plan.id).map_err(io::Error::other)?;
            layout.rewrite(&plan.id, &mut command, &mut env);
        } else {
            ports::name_own(plan, &mut command, &mut env);
        }
        let durable =
            plan.durable.iter().map(|d| relative(&plan.directory, d)).collect::<io::Result<Vec<_>>>()?;
        let within = relative(&plan.directory, "")?;
        let mounts = self.mount_specs(plan)?;
        let (mut view, directory) = self.place_data(stage, &plan.id, (own, is_restored), &within, durable)?;
        if let Some(view) = &mut view {
            view.mounts = mounts;
            view.privileged = plan.privileged;
        }
        let directory = match shown_working_dir(plan) {
            Some(shown) if view.is_some() => shown,
            _ => directory,
        };
        let by_rlimit = self.shared.limiter.by() == LimitsBy::Rlimit;
        Ok(InitSpec {
            name: plan.id.to_string(),
            command,
            env,
            directory,
            cgroups: group.map(Group::join_files).unwrap_or_default(),
            view,
            memory: plan.limits.memory.filter(|_| by_rlimit).map(|m| m.0),
            open_files: open_files::limit_for_services(),
            rights: self.rights(plan.privileged),
        })
    }

    /// The specification of a test command.
    pub(crate) fn test_spec(&self, stage: &Stage, run: &Execution, own: &Path) -> io::Result<InitSpec> {
        let test = InstanceId::test();
        let (mut command, mut env) = (run.command.clone(), self.environment(&test, &run.env));
        if let Some(layout) = stage.layout() {
            layout.rewrite(&test, &mut command, &mut env);
        }
        let within = relative(&run.directory, "")?;
        let (mut view, directory) = self.place_data(stage, &test, (own, false), &within, Vec::new())?;
        if let Some(view) = &mut view {
            let exchange = self.exchange_folder();
            std::fs::create_dir_all(&exchange)?;
            view.seen.push(exchange);
        }
        Ok(InitSpec {
            name: test.to_string(),
            command,
            env,
            directory,
            // It stays in that of the agent.
            cgroups: Vec::new(),
            view,
            memory: None,
            open_files: open_files::limit_for_services(),
            rights: match run.rights {
                Rights::Service => self.rights(false),
                Rights::Agent => InitRights::Agent,
            },
        })
    }

    /// The specification of a command inside a running instance, which has its view of the disk already.
    pub(crate) fn joined_spec(&self, stage: &Stage, life: &Life, run: &Execution) -> InitSpec {
        let id = &life.plan.id;
        let (mut command, mut env) = (run.command.clone(), self.environment(id, &run.env));
        if let Some(layout) = stage.layout() {
            layout.rewrite(id, &mut command, &mut env);
        }
        let root = match self.layers() {
            Layers::Copies { .. } => farm::root(&life.own),
            Layers::Disk { .. } | Layers::Memory { .. } => self.spec.application.clone(),
        };
        InitSpec {
            name: id.to_string(),
            command,
            env,
            directory: root.join(&run.directory),
            // Inside, groups are read-only, so that they are joined before.
            cgroups: match (&life.group, self.isolated) {
                (Some(group), false) => group.join_files(),
                _ => Vec::new(),
            },
            view: None,
            memory: None,
            open_files: open_files::limit_for_services(),
            rights: match run.rights {
                Rights::Service => self.rights(life.plan.privileged),
                Rights::Agent => InitRights::Agent,
            },
        }
    }

    fn rights(&self, privileged: bool) -> InitRights {
        if privileged {
            InitRights::Own
        } else {
            InitRights::Limited { user: self.isolated && self.shared.user }
        }
    }

    /// What an instance sees at paths of its own; makes the volumes it names.
    fn mount_specs(&self, plan: &InstancePlan) -> io::Result<Vec<MountSpec>> {
        if !plan.mounts.is_empty() && !self.isolated {
            let reason = "`mounts` need namespaces, and processes are kept apart by ports here; use `--isolation netns` \
                          or `--platform docker`, or let the service read its files below `directory`";
            return Err(io::Error::new(io::ErrorKind::Unsupported, reason));
        }
        let spec = |mount: &Mount| -> io::Result<MountSpec> {
            let shown = match &mount.source {
                MountSource::Path(path) => Shown::Path { path: relative(path, "")? },
                MountSource::Volume(name) => {
                    let folder = self.volumes_folder().join(name);
                    std::fs::create_dir_all(&folder)?;
                    Shown::Volume { folder }
                }
                MountSource::Memory { size } => Shown::Memory { bytes: size.0 },
                MountSource::Content(text) => Shown::Content { text: text.clone(), mode: mount.mode },
            };
            let to = self.find_mount_point(plan, &mount.to);
            Ok(MountSpec { to, readonly: mount.readonly, shown })
        };
        plan.mounts.iter().map(spec).collect()
    }

    /// Where a process sees a mount. Its `directory` stands for the working directory of the container, so what a
    /// container sees below the one is below the other.
    fn find_mount_point(&self, plan: &InstancePlan, to: &str) -> PathBuf {
        let is_copied = matches!(self.layers(), Layers::Copies { .. });
        let working_dir =
            plan.working_dir.as_ref().filter(|_| shown_working_dir(plan).is_none() && !is_copied);
        match working_dir.and_then(|directory| Path::new(to).strip_prefix(directory).ok()) {
            Some(below) => self.spec.application.join(&plan.directory).join(below),
            None => PathBuf::from(to),
        }
    }

    /// The view of the disk for a place, and its working directory there. Restored data is kept whole, as nothing of it
    /// is from a life before.
    pub(crate) fn place_data(
        &self,
        stage: &Stage,
        id: &InstanceId,
        (own, is_restored): (&Path, bool),
        within: &Path,
        durable: Vec<PathBuf>,
    ) -> io::Result<(Option<View>, PathBuf)> {
        let application = &self.spec.application;
        let layers = self.layers();
        let (lower, directory, seen) = if let Layers::Copies { template } = &layers {
            let root = farm::root(own);
            if root.exists() && !is_restored {
                files::keep_only(&root, &durable)?;
            }
            farm::plant(application, &root, &self.spec.state, within, &durable, template.as_deref())?;
            // The links lie in the tool's folder, which is hidden but for them.
            (Vec::new(), root.join(within), vec![own.to_owned()])
        } else {
            (layers.lower(application), application.join(within), Vec::new())
        };
        if !self.isolated {
            return Ok((None, directory));
        }
        // One after the other: both take the same lock.
        let hosts = stage.addresses().hosts(&id.to_string());
        let resolver = stage.addresses().resolver();
        let view = View {
            lower,
            target: application.clone(),
            own: own.to_owned(),
            durable,
            is_restored,
            hide: self.spec.state.clone(),
            seen,
            authority: self.spec.authority.clone().map(|text| (self.folder.join(AUTHORITY), text)),
            hosts,
            resolver,
            program: self.spec.program.clone(),
            home: self.home.as_ref().and_then(Home::view),
            masked: self.home.as_ref().map(Home::masked_by_mounts).unwrap_or_default(),
            shared: self.spec.shared.clone(),
            user: self.shared.user,
            lasting: !own.starts_with(self.lives_folder()),
            mounts: Vec::new(),
            privileged: false,
        };
        Ok((Some(view), directory))
    }

    fn environment(&self, id: &InstanceId, extra: &BTreeMap<String, String>) -> BTreeMap<String, String> {
        let mut env = self.shared.env.clone();
        env.insert("FAULTSCOPE_LABEL".into(), self.spec.label.clone());
        env.insert(reap::OWNER.into(), reap::this_owner());
        env.insert("FAULTSCOPE_INSTANCE".into(), id.to_string());
        env.insert("HOSTNAME".into(), id.to_string());
        if self.spec.authority.is_some() {
            let file = self.folder.join(AUTHORITY).to_string_lossy().into_owned();
            env.extend(TRUSTED_BY.map(|name| (name.to_owned(), file.clone())));
        }
        env.extend(extra.iter().map(|(name, value)| (name.clone(), value.clone())));
        env
    }
}

/// The working directory of the container, where a mount shows it to a process as well.
fn shown_working_dir(plan: &InstancePlan) -> Option<PathBuf> {
    let directory = PathBuf::from(plan.working_dir.as_ref()?);
    plan.mounts.iter().any(|mount| directory.starts_with(&mount.to)).then_some(directory)
}

/// A path below the application folder; fails if it leads out of it.
fn relative(directory: &str, below: &str) -> io::Result<PathBuf> {
    let mut path = PathBuf::new();
    for part in Path::new(directory).join(below).components() {
        match part {
            std::path::Component::Normal(name) => path.push(name),
            std::path::Component::CurDir => {}
            _ => {
                let reason = format!("`{below}` in `{directory}` leads out of the application's folder");
                return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
            }
        }
    }
    Ok(path)
}
