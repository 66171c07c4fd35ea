//! The tool's side of a sidecar: tells it the wiring and decides for it with the slot's own steering.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use faultscope_model::NotApplied;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;

use super::{CountedCall, Frames, MAX_WAITING, SidecarListener, ToSidecar, ToTool, VERSION, write_frames};
use crate::call_identity::ArrivingCall;
use crate::mesh::MeshError;
use crate::scene::Scene;
use crate::sequencer::{Arrival, Handled, Ticket};
use crate::slot::{MeshSlot, RemoteFlow};
use crate::steering::{Answer, ClosedInstance, Verdict};

/// A sidecar that is connected; the work of one stream.
struct Session {
    slot: MeshSlot,
    frames: mpsc::Sender<ToSidecar>,
    tickets: Arc<Mutex<HashMap<u64, (u64, Ticket)>>>,
    /// Instances that the sidecar has closed, by its question; each is open again when its entry goes.
    closed: HashMap<u64, oneshot::Sender<()>>,
    tasks: JoinSet<()>,
    flow: RemoteFlow,
    bound: watch::Sender<Option<Vec<SocketAddr>>>,
}

impl MeshSlot {
    /// Serves a sidecar of this slot until its stream ends, and tells it each new wiring. The addresses of
    /// its listeners appear in `bound`. A sidecar that goes by itself makes the trial invalid.
    pub async fn attach<S>(
        &self,
        stream: S,
        token: &str,
        listeners: Vec<SidecarListener>,
        bound: watch::Sender<Option<Vec<SocketAddr>>>,
    ) -> Result<(), MeshError>
    where
        S: AsyncRead + AsyncWrite + Send + 'static,
    {
        let (reader, writer) = tokio::io::split(stream);
        let mut frames = Frames::new(reader);
        match frames.next().await.map_err(MeshError::Control)? {
            Some(ToTool::Hello { version: VERSION, token: given, .. }) if given == token => {}
            _ => return Err(MeshError::Refused),
        }
        let (sender, receiver) = mpsc::channel(MAX_WAITING);
        let mut session = Session {
            slot: self.clone(),
            frames: sender.clone(),
            tickets: Arc::default(),
            closed: HashMap::new(),
            tasks: JoinSet::new(),
            flow: self.remote_flow(),
            bound,
        };
        let ended = tokio::select! {
            written = write_frames(writer, receiver) => written,
            heard = session.hear(&mut frames) => heard,
            () = send_scenes(self, &sender, listeners) => Ok(()),
        };
        // The owner ends this by dropping it; a sidecar that goes by itself takes reports along.
        self.note_lost_report();
        ended.map_err(MeshError::Control)
    }
}

/// Sends each new wiring for as long as the sidecar listens.
async fn send_scenes(slot: &MeshSlot, frames: &mpsc::Sender<ToSidecar>, listeners: Vec<SidecarListener>) {
    let mut changes = slot.scene_changes();
    let mut sent: Option<Arc<Scene>> = None;
    loop {
        changes.borrow_and_update();
        let scene = slot.scene();
        let frame = match &sent {
            Some(before) if Arc::ptr_eq(&before.trial, &scene.trial) => {
                let (endpoints, outages) = (scene.wiring.endpoints.clone(), scene.outages.clone());
                ToSidecar::Endpoints { endpoints, outages }
            }
            _ => ToSidecar::Wire {
                trial: scene.trial.number(),
                wiring: Box::new(scene.wiring.clone()),
                listeners: listeners.clone(),
            },
        };
        sent = Some(scene);
        if frames.send(frame).await.is_err() || changes.changed().await.is_err() {
            return;
        }
    }
}

impl Session {
    async fn hear<R: AsyncRead + Unpin>(&mut self, frames: &mut Frames<R>) -> std::io::Result<()> {
        while let Some(frame) = frames.next().await? {
            self.handle(frame);
            while self.tasks.try_join_next().is_some() {}
        }
        Ok(())
    }

    fn handle(&mut self, frame: ToTool) {
        // What belongs to an earlier trial is answered, so that its call goes on, but no longer counted.
        let current = self.slot.scene().trial.clone();
        let of_now = |trial: u64| trial == current.number();
        let steering = Arc::clone(&current.steering);
        match frame {
            ToTool::Hello { .. } => {}
            ToTool::Listening { bound } => drop(self.bound.send(Some(bound))),
            ToTool::Failed { reason } => {
                tracing::error!(reason, "a sidecar cannot listen");
                self.slot.note_lost_report();
            }
            ToTool::Span { trial, span } => {
                // A span that comes when its trial is over must not appear in another.
                if of_now(trial) && !current.open_calls.is_over() {
                    steering.finished(&span);
                    self.slot.record(*span);
                }
            }
            ToTool::InFlight { calls } => self.flow.set(calls),
            ToTool::Lost => self.slot.note_lost_report(),
            ToTool::Count { ask, trial, selected, call } => {
                let effective = move |Verdict { target, rules }| ToSidecar::Effective { ask, rules, target };
                if !of_now(trial) {
                    return self.answer(effective(Verdict::default()));
                }
                match steering.count(&selected, &call.arrived()) {
                    Answer::Now(verdict) => self.answer(effective(verdict)),
                    Answer::Later(verdict) => self.answer_later(async move { effective(verdict.await) }),
                }
            }
            ToTool::CountCall { ask, trial, callee } => {
                let counted = of_now(trial).then(|| steering.count_call(&callee));
                let outage = match counted {
                    Some(Answer::Now(outage)) => outage,
                    _ => None,
                };
                if let Some(mode) = outage {
                    self.slot.begin_outage(&callee, mode);
                }
                self.answer(ToSidecar::Counted { ask, outage });
            }
            ToTool::Unrefused { trial, callee } if of_now(trial) => steering.note_unrefused(&callee),
            ToTool::Applied { trial, rule } if of_now(trial) => steering.applied(rule),
            ToTool::Missed { trial, rule, why } if of_now(trial) => steering.missed(rule, why),
            ToTool::Failing { trial, span } if of_now(trial) => steering.failing(span),
            ToTool::Twin { ask, trial, of, twin } => match of_now(trial).then(|| steering.twin(of, twin)) {
                Some(Answer::Later(turn)) => self.answer_later(async move {
                    turn.await;
                    ToSidecar::Go { ask }
                }),
                _ => self.answer(ToSidecar::Go { ask }),
            },
            ToTool::Close { ask, trial, .. } if !of_now(trial) => {
                self.answer(ToSidecar::Closed { ask, why_not: Some(NotApplied::TrialOver) });
            }
            ToTool::Close { ask, instance, span, .. } => {
                self.close_until_opened(ask, steering.close(&instance, span));
            }
            ToTool::Open { ask } => drop(self.closed.remove(&ask)),
            ToTool::Begin { ask, trial, span, trace, instance, method, path } => {
                if of_now(trial) {
                    let handled = Handled { span, trace, instance: &instance, method: &method, path: &path };
                    drop(steering.begin(handled));
                }
                self.answer(ToSidecar::Go { ask });
            }
            ToTool::Arrive { ask, trial, call } => {
                let arrival = Arrival {
                    caller: &call.caller,
                    parent: call.parent,
                    trace: call.trace,
                    callee: &call.callee,
                    method: &call.method,
                    path: &call.path,
                };
                let Some(hold) = of_now(trial).then(|| steering.arrive(arrival)).flatten() else {
                    return self.answer(ToSidecar::Go { ask });
                };
                self.tickets().insert(ask, (trial, hold.ticket));
                let frames = self.frames.clone();
                self.tasks.spawn(async move {
                    hold.release.await;
                    let _ = frames.send(ToSidecar::Go { ask }).await;
                });
            }
            ToTool::Answered { ask } => {
                let ticket = self.tickets().remove(&ask);
                if let Some((_, ticket)) = ticket.filter(|(trial, _)| of_now(*trial)) {
                    steering.answered(ticket);
                }
            }
            ToTool::Ended { trial, span } if of_now(trial) => steering.ended(span),
            ToTool::Applied { .. }
            | ToTool::Unrefused { .. }
            | ToTool::Missed { .. }
            | ToTool::Failing { .. }
            | ToTool::Ended { .. } => {}
            ToTool::Restart { ask, instance } => {
                let restart = self.slot.restart(&instance);
                let frames = self.frames.clone();
                self.tasks.spawn(async move {
                    let error = restart.await.err();
                    let _ = frames.send(ToSidecar::Restarted { ask, error }).await;
                });
            }
        }
    }

    /// Answers when the instance is closed, and holds it so until the sidecar opens it or is gone.
    fn close_until_opened(
        &mut self,
        ask: u64,
        closing: impl Future<Output = Result<ClosedInstance, NotApplied>> + Send + 'static,
    ) {
        let (open, opened) = oneshot::channel();
        self.closed.insert(ask, open);
        let frames = self.frames.clone();
        let closing = async move {
            let closed = closing.await;
            let _ = frames.send(ToSidecar::Closed { ask, why_not: closed.as_ref().err().cloned() }).await;
            if let Ok(_closed) = closed {
                std::future::pending().await
            }
        };
        self.tasks.spawn(async move {
            tokio::select! {
                () = closing => {}
                _ = opened => {}
            }
        });
    }

    fn answer_later(&mut self, frame: impl Future<Output = ToSidecar> + Send + 'static) {
        let frames = self.frames.clone();
        self.tasks.spawn(async move {
            let _ = frames.send(frame.await).await;
        });
    }

    fn answer(&self, frame: ToSidecar) {
        // A sidecar that does not read its answers has calls that wait: the trial cannot be trusted.
        if self.frames.try_send(frame).is_err() {
            self.slot.note_lost_report();
        }
    }

    fn tickets(&self) -> std::sync::MutexGuard<'_, HashMap<u64, (u64, Ticket)>> {
        self.tickets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CountedCall {
    fn arrived(&self) -> ArrivingCall<'_> {
        ArrivingCall {
            span: self.span,
            trace: self.trace,
            parent: self.parent,
            caller: &self.caller,
            callee: &self.callee,
            instance: self.instance.as_ref(),
            method: &self.method,
            path: &self.path,
            is_request: self.is_request,
        }
    }
}
