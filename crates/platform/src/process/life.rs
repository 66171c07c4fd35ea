//! The life of one instance: started, ready, paused, ended.

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use faultscope_model::outcome::StartEnding;
use faultscope_model::plan::InstancePlan;
use regex::Regex;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Signal;
use tokio::net::TcpStream;
use tokio::net::unix::pipe::Receiver;
use tokio::sync::watch;
use tokio::time::Instant;

use super::cgroup::Group;
use super::slot::{GROUP_PAUSE, GROUP_TRIES, Slot};
use super::snapshot::Restore;
use super::stage::Stage;
use super::tree::{End, Tree};
use super::{bad_plan, trouble, usage};
use crate::log::{Log, LogFile};
use crate::readiness::{Reach, Waited, over_too_soon, wait_until_ready};
use crate::{PlatformError, PlatformErrorKind, PlatformEvent, now_us};

/// How long to wait for the last output of a dead instance.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// The kernel freezes each process when it is next scheduled, which takes a while on a busy machine.
const STILL_PAUSE: Duration = Duration::from_millis(2);
const STILL_WITHIN: Duration = Duration::from_secs(30);

/// One start of an instance.
#[derive(Debug)]
pub(crate) struct Life {
    pub(crate) plan: InstancePlan,
    pub(crate) tree: Tree,
    pub(crate) log: Arc<Log>,
    /// Its folder: data layer, hosts file.
    pub(crate) own: PathBuf,
    pub(crate) group: Option<Group>,
    started: Instant,
    /// Its start in microseconds since 1970.
    pub(crate) started_us: u64,
    /// The number of earlier lives of this instance.
    pub(crate) restarts: u32,
    /// How often memory ran out in them, and in this one once it has ended.
    kills: AtomicU64,
    /// Its end was requested, so it is not reported.
    asked: AtomicBool,
    paused: AtomicBool,
    ready_after: Mutex<Option<Duration>>,
    ended: watch::Sender<Option<LifeEnd>>,
}

/// How a life ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LifeEnd {
    pub(crate) end: End,
    pub(crate) out_of_memory: bool,
}

/// What an instance starts from.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Origin<'a> {
    /// Fresh data, or that of a snapshot.
    Fresh(Option<&'a Arc<Restore>>),
    /// The folder and the log of the life before.
    Restart(&'a Life),
}

impl Life {
    /// Starts an instance.
    pub(crate) async fn start(
        slot: &Arc<Slot>,
        stage: &Arc<Stage>,
        plan: InstancePlan,
        origin: Origin<'_>,
    ) -> Result<Arc<Self>, PlatformError> {
        let (started, started_us) = (Instant::now(), now_us());
        let name = plan.id.to_string();
        let key = slot.next_key();
        let action = || format!("start {name}");
        let (before, (own, is_restored)) = match origin {
            Origin::Restart(life) => (Some(life), (life.own.clone(), false)),
            Origin::Fresh(restore) => {
                let folder = slot.new_folder(&plan.id, key, restore).await;
                (None, folder.map_err(|e| trouble(action(), e))?)
            }
        };
        let group = slot.group(&format!("{name}.{key}"), &plan.limits).map_err(|e| trouble(action(), e))?;
        let spec = slot
            .instance_spec(stage, &plan, (&own, is_restored), group.as_ref())
            .map_err(|e| bad_plan(action(), e))?;
        let (output, outputs) = pipes().map_err(|e| trouble(action(), e))?;
        let place = slot.isolated.then_some(name.as_str());
        let into = super::tree::Into::Place(place);
        let tree =
            Tree::start(&stage.agent, key, into, &spec, outputs).await.map_err(|e| trouble(action(), e))?;
        let log = before.map_or_else(Log::new, |life| Arc::clone(&life.log));
        let file = LogFile::new(slot.log_file(&plan.id), slot.spec.log_limit.0);
        let following = tokio::spawn(Arc::clone(&log).follow(output, file));
        let life = Arc::new(Self {
            plan,
            tree,
            log,
            own,
            group,
            started,
            started_us,
            restarts: before.map_or(0, |life| life.restarts + 1),
            kills: AtomicU64::new(before.map_or(0, |life| life.all_kills())),
            asked: AtomicBool::new(false),
            paused: AtomicBool::new(false),
            ready_after: Mutex::new(None),
            ended: watch::Sender::new(None),
        });
        stage.lives().insert(life.plan.id.clone(), Arc::clone(&life));
        let (watched, events) = (Arc::clone(&life), slot.events.clone());
        tokio::spawn(async move {
            let end = watched.tree.gone().await;
            let _ = tokio::time::timeout(LAST_WORDS, following).await;
            watched.bury(end, &events);
            for _ in 0..GROUP_TRIES {
                if watched.group.as_ref().is_none_or(Group::remove) {
                    break;
                }
                tokio::time::sleep(GROUP_PAUSE).await;
            }
        });
        match life.tree.started().await {
            Ok(()) => Ok(life),
            Err(End { refused: Some((true, reason)), .. }) => Err(bad_plan(action(), reason)),
            Err(End { refused: Some((false, reason)), .. }) => Err(trouble(action(), reason)),
            Err(_) => Err(trouble(action(), "the slot's agent is gone")),
        }
    }

    /// Returns when the instance is ready, or an error with the reason why it will not be.
    pub(crate) async fn ready(&self, slot: &Arc<Slot>, stage: &Arc<Stage>) -> Result<(), PlatformError> {
        let readiness = &self.plan.ready;
        let target = Target { slot, stage, life: self };
        let mut ended = self.ended.subscribe();
        let left = (self.started + readiness.within).saturating_duration_since(Instant::now());
        let (ending, reason) = tokio::select! {
            // Its end is checked first: a port that answers may belong to a process that the instance left behind.
            biased;
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
        Err(PlatformError::new(kind, super::NAME, format!("get {} ready", self.plan.id)))
    }

    /// How long it took to become ready; none if it is not, or has ended.
    pub(crate) fn ready_after(&self) -> Option<Duration> {
        if self.is_over() {
            return None;
        }
        *self.ready_after.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.ended.borrow().is_some()
    }

    /// Ends it, with SIGTERM first unless `patience` is zero; returns when everything of it is gone.
    pub(crate) async fn stop(&self, patience: Duration) {
        self.asked.store(true, Ordering::Release);
        self.thaw().await;
        if !patience.is_zero() && self.tree.signal(Signal::TERM).await.is_ok() {
            let _ = tokio::time::timeout(patience, self.tree.gone()).await;
        }
        let killing = self.tree.kill();
        // A frozen process does not die, and it may have been frozen between the thaw and the kill.
        self.thaw().await;
        killing.await;
        let _ = self.ended.subscribe().wait_for(Option::is_some).await;
    }

    /// Whether somebody has frozen it.
    pub(crate) fn is_paused(&self) -> bool {
        self.paused.load(Ordering::Acquire)
    }

    /// Freezes all its processes, in the slot with this label; none of them runs any more when this returns.
    pub(crate) async fn pause(&self, label: &str) -> io::Result<()> {
        self.paused.store(true, Ordering::Release);
        let group = self.group.as_ref().filter(|group| group.freeze(true));
        if group.is_none() {
            self.tree.signal(Signal::TSTP).await?;
        }
        let name = self.plan.id.to_string();
        let still = async {
            while !group.map_or_else(|| usage::is_stopped(&name, label), Group::is_frozen) {
                tokio::time::sleep(STILL_PAUSE).await;
            }
        };
        if tokio::time::timeout(STILL_WITHIN, still).await.is_ok() {
            return Ok(());
        }
        self.resume().await?;
        Err(io::Error::new(io::ErrorKind::TimedOut, "some of its processes go on"))
    }

    /// Thaws all its processes.
    pub(crate) async fn resume(&self) -> io::Result<()> {
        if !self.group.as_ref().is_some_and(|group| group.freeze(false)) {
            self.tree.signal(Signal::CONT).await?;
        }
        self.paused.store(false, Ordering::Release);
        Ok(())
    }

    /// How often memory has run out so far.
    pub(crate) fn out_of_memory_kills(&self) -> u64 {
        self.group.as_ref().map_or(0, Group::out_of_memory_kills)
    }

    /// How often memory ran out in this life and those before.
    pub(crate) fn all_kills(&self) -> u64 {
        // Its own count is added permanently when its group is removed.
        let own = if self.is_over() { 0 } else { self.out_of_memory_kills() };
        self.kills.load(Ordering::Acquire) + own
    }

    async fn thaw(&self) {
        if self.paused.load(Ordering::Acquire) {
            let _ = self.resume().await;
        }
    }

    fn bury(&self, end: End, events: &tokio::sync::broadcast::Sender<PlatformEvent>) {
        let kills = self.out_of_memory_kills();
        let out_of_memory = kills > 0;
        self.kills.fetch_add(kills, Ordering::AcqRel);
        let expected = self.asked.load(Ordering::Acquire) || end.agent_lost || end.refused.is_some();
        let (code, signal) = (end.code, end.signal);
        self.ended.send_replace(Some(LifeEnd { end, out_of_memory }));
        if !expected {
            let instance = self.plan.id.clone();
            let _ = events.send(PlatformEvent::Exited { instance, code, signal, out_of_memory });
        }
    }

    fn reason(&self, ended: Option<&LifeEnd>) -> (StartEnding, String) {
        let (out_of_memory, code, signal) = ended
            .map(|LifeEnd { end, out_of_memory }| (*out_of_memory, end.code, end.signal))
            .unwrap_or_default();
        over_too_soon(&self.plan, out_of_memory, code, signal)
    }
}

struct Target<'a> {
    slot: &'a Arc<Slot>,
    stage: &'a Arc<Stage>,
    life: &'a Life,
}

#[async_trait]
impl Reach for Target<'_> {
    async fn connect(&self, port: u16) -> io::Result<TcpStream> {
        self.stage.dial(&self.life.plan.id, port).await
    }

    async fn run(&self, command: &[String]) -> io::Result<bool> {
        self.slot.run_inside(self.stage, self.life, command).await
    }

    async fn printed(&self, pattern: &str) -> io::Result<()> {
        let pattern = Regex::new(pattern).map_err(io::Error::other)?;
        self.life.log.expect(pattern).await.map_err(io::Error::other)
    }
}

/// One pipe for both outputs, so that their lines stay in order.
fn pipes() -> io::Result<(Receiver, (OwnedFd, OwnedFd))> {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
    let second = write.try_clone()?;
    Ok((Receiver::from_owned_fd(read)?, (write, second)))
}
