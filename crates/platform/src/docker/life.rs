//! The life of one instance: one container from its start to its end.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bollard::models::{ContainerCreateBody, HostConfig};
use faultscope_model::outcome::StartEnding;
use faultscope_model::plan::InstancePlan;
use futures_util::StreamExt;
use regex::Regex;
use rustix::event::{PollFd, PollFlags, Timespec};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::io::StreamReader;

use super::engine::{Ended, Output, as_io, fault, labels};
use super::mounts::{BAD_PLAN, OwnMounts};
use super::sidecar::{endpoint, no_log};
use super::slot::Slot;
use super::snapshot::{Restore, Restored};
use super::{NAME, bad_plan, image, trouble};
use crate::log::{Log, LogFile};
use crate::process::parts::name_own;
use crate::readiness::{Reach, Waited, over_too_soon, wait_until_ready};
use crate::{PlatformError, PlatformErrorKind, PlatformEvent, now_us};

/// How long to wait for the last output of a dead instance.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// How long after the end of an instance the engine may report that memory ran out.
const LATE_WORD: Duration = Duration::from_millis(500);

/// One start of an instance.
#[derive(Debug)]
pub(super) struct Life {
    pub(super) plan: InstancePlan,
    pub(super) container: String,
    pub(super) log: Arc<Log>,
    process: Option<OwnedFd>,
    volumes: Vec<(String, String)>,
    mounts: OwnMounts,
    started: Instant,
    /// Its start in microseconds since 1970.
    pub(super) started_us: u64,
    /// The number of earlier lives of this instance.
    pub(super) restarts: u32,
    /// How many of them ended because memory ran out.
    pub(super) kills: u32,
    /// Its end was requested, so it is not reported.
    asked: AtomicBool,
    paused: AtomicBool,
    ready_after: Mutex<Option<Duration>>,
    ended: watch::Sender<Option<Ended>>,
}

/// What an instance starts from.
#[derive(Debug, Clone, Copy)]
pub(super) enum Origin<'a> {
    /// Fresh data, or that of a snapshot.
    Fresh(Option<&'a Arc<Restore>>),
    /// The data and the log of the life before.
    Restart(&'a Life),
}

impl Life {
    /// Starts an instance.
    pub(super) async fn start(
        slot: &Arc<Slot>,
        plan: InstancePlan,
        origin: Origin<'_>,
    ) -> Result<Arc<Self>, PlatformError> {
        let (started, started_us, name) = (Instant::now(), now_us(), plan.id.to_string());
        let action = format!("start {name}");
        let (before, restored) = match origin {
            // From the service's own image, as every restart: of a snapshot only durable data stays.
            Origin::Restart(life) => (Some(life), Restored::default()),
            Origin::Fresh(restore) => {
                let found = restore.map(|restore| restore.find(&plan)).transpose();
                (None, found.map_err(|e| trouble(action.as_str(), e))?.unwrap_or_default())
            }
        };
        let (mut body, directory) = base(slot, &plan).await?;
        if restored.image.is_some() {
            body.image.clone_from(&restored.image);
        }
        let volumes = match before {
            Some(life) => life.volumes.clone(),
            None => {
                let target = |(n, durable): (usize, &String)| {
                    let target = Path::new(&directory).join(durable);
                    let volume = format!("faultscope-{}-{name}-{n}", slot.spec.label);
                    (volume, target.to_string_lossy().into_owned())
                };
                plan.durable.iter().enumerate().map(target).collect()
            }
        };
        let mounts = match before {
            Some(life) => life.mounts.clone(),
            None => {
                let (slot, plan, restored) = (Arc::clone(slot), plan.clone(), restored.mounts.clone());
                let preparing = tokio::task::spawn_blocking(move || {
                    OwnMounts::prepare(&slot, &plan, restored.as_deref())
                });
                let prepared = preparing.await.map_err(|e| trouble(action.as_str(), e))?;
                prepared.map_err(|e| match e.kind() {
                    BAD_PLAN => bad_plan(action.as_str(), e),
                    _ => trouble(action.as_str(), e),
                })?
            }
        };
        if let Some(host) = &mut body.host_config {
            let durable = volumes.iter().map(|(name, target)| image::volume(name, target));
            host.mounts.get_or_insert_default().extend(durable.chain(mounts.mounts.iter().cloned()));
        }
        let making = slot.making().await;
        let (engine, label) = (slot.engine.clone(), slot.spec.label.clone());
        let own = volumes.iter().map(|(name, _)| name);
        let names: Vec<String> = own.chain(&mounts.shared).cloned().collect();
        let is_new = before.is_none();
        let archives = restored.archives;
        let container_name = format!("faultscope-{label}-{name}-{}", slot.next_key());
        // A task of its own: dropping this future half-way must not leave an unknown container.
        let made = tokio::spawn(async move {
            let _making = making;
            if is_new {
                for volume in &names {
                    engine.make_volume(volume, &label).await?;
                }
            }
            let container = engine.create(&container_name, body).await?;
            for (folder, archive) in &archives {
                let filled = engine.upload(&container, folder, archive).await;
                if filled.is_err() {
                    engine.remove(&container).await?;
                }
                filled?;
            }
            let output = engine.attach(&container).await?;
            let started = engine.start(&container).await;
            if started.is_err() {
                engine.remove(&container).await?;
            }
            started?;
            let process = engine.process(&container).await;
            Ok::<_, bollard::errors::Error>((container, output, process))
        });
        let made = made.await.map_err(|e| trouble(action.as_str(), e))?;
        let (container, output, process) = made.map_err(|e| fault(action.as_str(), e))?;
        let log = before.map_or_else(Log::new, |life| Arc::clone(&life.log));
        let file = LogFile::new(slot.log_file(&plan.id), slot.spec.log_limit.0);
        let following = tokio::spawn(Arc::clone(&log).follow(Box::pin(reader(output)), file));
        let life = Arc::new(Self {
            plan,
            container,
            process,
            log,
            volumes,
            mounts,
            started,
            started_us,
            restarts: before.map_or(0, |life| life.restarts + 1),
            kills: before.map_or(0, |life| life.kills + u32::from(life.ran_out_of_memory())),
            asked: AtomicBool::new(false),
            paused: AtomicBool::new(false),
            ready_after: Mutex::new(None),
            ended: watch::Sender::new(None),
        });
        slot.lives().insert(life.plan.id.clone(), Arc::clone(&life));
        let (watched, slot) = (Arc::clone(&life), Arc::clone(slot));
        tokio::spawn(async move {
            let ended = slot.engine.ended(&watched.container).await;
            let _ = tokio::time::timeout(LAST_WORDS, following).await;
            watched.bury(&slot, ended).await;
        });
        Ok(life)
    }

    /// Copies of files that it may change.
    pub(super) fn mounts_folder(&self) -> Option<&Path> {
        self.mounts.folder()
    }

    fn ran_out_of_memory(&self) -> bool {
        self.ended.borrow().as_ref().is_some_and(|ended| ended.out_of_memory)
    }

    /// Returns when the instance is ready, or an error with the reason why it will not be.
    pub(super) async fn ready(&self, slot: &Arc<Slot>) -> Result<(), PlatformError> {
        let readiness = &self.plan.ready;
        let target = Target { slot, life: self };
        let (mut ended, era) = (self.ended.subscribe(), slot.era());
        let left = (self.started + readiness.within).saturating_duration_since(Instant::now());
        let (ending, reason) = tokio::select! {
            biased;
            () = era.cancelled() => {
                return Err(PlatformError::new(PlatformErrorKind::Cancelled, NAME, format!("get {} ready", self.plan.id)));
            }
            Ok(end) = ended.wait_for(Option::is_some) => self.reason(end.as_ref()),
            ready = wait_until_ready(readiness, left, &target) => match ready {
                Ok(Waited::Ready) => {
                    *self.ready_after.lock().unwrap_or_else(PoisonError::into_inner) = Some(self.started.elapsed());
                    let _ = slot.events.send(PlatformEvent::Ready { instance: self.plan.id.clone() });
                    return Ok(());
                }
                Err(error) => return Err(bad_plan(format!("wait for {}", self.plan.id), error)),
                Ok(Waited::Late(late)) => (StartEnding::Late, late),
            },
        };
        let kind = PlatformErrorKind::NotReady {
            instance: self.plan.id.clone(),
            ending,
            reason,
            last_lines: self.log.last_lines(),
        };
        Err(PlatformError::new(kind, NAME, format!("get {} ready", self.plan.id)))
    }

    /// How long it took to be ready, if it is, and still runs.
    pub(super) fn ready_after(&self) -> Option<Duration> {
        if self.is_over() {
            return None;
        }
        *self.ready_after.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it has ended.
    pub(super) fn is_over(&self) -> bool {
        self.ended.borrow().is_some()
    }

    /// Whether its process has ended, though the engine may not have noticed yet.
    pub(super) fn is_dying(&self) -> bool {
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        self.process.as_ref().is_some_and(|process| {
            rustix::event::poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&at_once)) == Ok(1)
        })
    }

    /// Returns when it has ended.
    pub(super) async fn over(&self) {
        // The sender lives as long as this life, so waiting cannot fail.
        let _ = self.ended.subscribe().wait_for(Option::is_some).await;
    }

    /// Its end is asked for from now on: nobody needs to be told of it.
    pub(super) fn mark_requested(&self) {
        self.asked.store(true, Ordering::Release);
    }

    /// Ends it: asks first when there is patience, and returns when its container is gone. Its data stays.
    pub(super) async fn stop(&self, slot: &Slot, patience: Duration) -> Result<(), PlatformError> {
        self.mark_requested();
        if self.paused.swap(false, Ordering::AcqRel) {
            let _ = slot.engine.pause(&self.container, false).await;
        }
        if !patience.is_zero() && !self.is_over() {
            slot.engine.stop(&self.container, patience).await;
        }
        let removed = slot.engine.remove(&self.container).await;
        removed.map_err(|e| fault(format!("end {}", self.plan.id), e))?;
        self.over().await;
        Ok(())
    }

    /// Removes its durable data, once its container is gone.
    pub(super) async fn forget(&self, slot: &Slot) {
        for (volume, _) in &self.volumes {
            if let Err(error) = slot.engine.remove_volume(volume).await {
                tracing::warn!(volume, %error, "cannot remove");
            }
        }
        self.mounts.remove(slot).await;
    }

    /// Freezes it or lets it go on.
    pub(super) async fn pause(&self, slot: &Slot, pause: bool) -> Result<(), PlatformError> {
        let doing = if pause { "pause" } else { "resume" };
        let done = slot.engine.pause(&self.container, pause).await;
        done.map_err(|e| fault(format!("{doing} {}", self.plan.id), e))?;
        self.paused.store(pause, Ordering::Release);
        Ok(())
    }

    async fn bury(&self, slot: &Slot, ended: Option<Ended>) {
        let mut end = ended.unwrap_or(Ended { code: None, signal: None, out_of_memory: false });
        let asked = self.asked.load(Ordering::Acquire);
        // The engine hears of both from different places, and of the end sometimes first.
        if !asked && end.signal == Some(9) && !end.out_of_memory {
            let word = slot.out_of_memory(&self.container);
            end.out_of_memory = tokio::time::timeout(LATE_WORD, word).await.is_ok();
        }
        self.ended.send_replace(Some(end));
        if !asked && ended.is_some() {
            let _ = slot.events.send(PlatformEvent::Exited {
                instance: self.plan.id.clone(),
                code: end.code,
                signal: end.signal,
                out_of_memory: end.out_of_memory,
            });
        }
    }

    fn reason(&self, ended: Option<&Ended>) -> (StartEnding, String) {
        let (out_of_memory, code, signal) =
            ended.map(|end| (end.out_of_memory, end.code, end.signal)).unwrap_or_default();
        over_too_soon(&self.plan, out_of_memory, code, signal)
    }
}

/// The container of an instance, without its data, and the folder its paths are relative to.
async fn base(slot: &Slot, plan: &InstancePlan) -> Result<(ContainerCreateBody, String), PlatformError> {
    let name = plan.id.to_string();
    let action = || format!("start {name}");
    let (mut command, mut env) = (plan.command.clone(), plan.env.clone());
    name_own(plan, &mut command, &mut env);
    let mut entrypoint = plan.entrypoint.clone();
    if let Some(words) = &mut entrypoint {
        name_own(plan, words, &mut env);
    }
    env.entry("FAULTSCOPE_INSTANCE".into()).or_insert_with(|| name.clone());
    let own = slot.spec.program.to_string_lossy();
    let first_word = entrypoint.iter().flatten().chain(&command).next();
    let is_own = plan.image.is_none() && first_word.is_some_and(|program| *program == own);
    let image = match &plan.image {
        Some(image) => image.clone(),
        None if is_own => image::name(),
        None => return Err(bad_plan(action(), "the service has no `image:`")),
    };
    let (directory, mounts) = if is_own {
        let durable: Vec<_> = plan.durable.iter().map(|d| Path::new(&plan.directory).join(d)).collect();
        let directory = slot.spec.application.join(&plan.directory);
        (directory.to_string_lossy().into_owned(), slot.own_mounts(&durable))
    } else if let Some(directory) = &plan.working_dir {
        (directory.clone(), Vec::new())
    } else {
        // `directory` names a folder of this machine, which the image knows nothing of.
        let directory = slot.engine.working_directory(&image).await;
        (directory.map_err(|e| fault(action(), e))?, Vec::new())
    };
    let (address, extra_hosts) = {
        let addresses = slot.addresses();
        (addresses.place(&name), addresses.extra_hosts())
    };
    let address =
        address.ok_or_else(|| bad_plan(action(), "it has no address: the plan was not reserved"))?;
    let memory = plan.limits.memory.map(|m| i64::try_from(m.0).unwrap_or(i64::MAX));
    let host = HostConfig {
        mounts: Some(mounts),
        network_mode: Some(slot.network.clone()),
        extra_hosts: Some(extra_hosts),
        // Names that are not in the hosts file fail at once.
        dns: Some(vec![slot.subnet.sidecar().to_string()]),
        memory,
        // The same value again: no swap.
        memory_swap: memory,
        nano_cpus: plan.limits.cpu.map(|cores| (cores * 1e9) as i64),
        pids_limit: plan.limits.pids.map(i64::from),
        privileged: Some(plan.privileged),
        log_config: Some(no_log()),
        ..Default::default()
    };
    // Without `entrypoint` that of the image stays. With one the engine ignores the image's command as well; an
    // empty one only switches the entry point off.
    let body = ContainerCreateBody {
        image: Some(image),
        hostname: Some(name.clone()),
        entrypoint,
        cmd: (!command.is_empty()).then_some(command),
        user: plan.user.clone().filter(|_| !is_own),
        env: Some(env.iter().map(|(name, value)| format!("{name}={value}")).collect()),
        working_dir: (is_own || plan.working_dir.is_some()).then(|| directory.clone()),
        labels: Some(labels(&slot.spec.label, Some(&name))),
        host_config: Some(host),
        networking_config: Some(endpoint(&slot.network, address)),
        ..Default::default()
    };
    Ok((body, directory))
}

/// The output of a container as bytes, both streams in order.
fn reader(output: Output) -> impl tokio::io::AsyncRead + Send {
    StreamReader::new(output.map(|piece| piece.map(|p| p.into_bytes()).map_err(as_io)))
}

struct Target<'a> {
    slot: &'a Arc<Slot>,
    life: &'a Life,
}

#[async_trait]
impl Reach for Target<'_> {
    async fn connect(&self, port: u16) -> io::Result<TcpStream> {
        self.slot.dial(&self.life.plan.id, port).await
    }

    async fn run(&self, command: &[String]) -> io::Result<bool> {
        self.slot.run_inside(self.life, command).await
    }

    async fn printed(&self, pattern: &str) -> io::Result<()> {
        let pattern = Regex::new(pattern).map_err(io::Error::other)?;
        self.life.log.expect(pattern).await.map_err(io::Error::other)
    }
}
