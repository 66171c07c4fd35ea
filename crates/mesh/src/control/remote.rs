//! The sidecar's side of what the tool decides: asks, and waits for the answer.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use faultscope_model::span::Span;
use faultscope_model::wiring::OutageMode;
use faultscope_model::{InstanceId, NotApplied, RestartError, ServiceName, SpanId};
use futures_util::future::BoxFuture;
use tokio::sync::{mpsc, oneshot};

use super::{ArrivedCall, CountedCall, ToSidecar, ToTool};
use crate::call_identity::ArrivingCall;
use crate::hooks::{Recorder, Restarter};
use crate::reports::RuleHits;
use crate::sequencer::{Arrival, Handled, Ticket};
use crate::steering::{Answer, ClosedInstance, Hold, Steering, Verdict};

/// The way to the tool.
#[derive(Debug)]
pub(super) struct Line {
    frames: mpsc::Sender<ToTool>,
    next: AtomicU64,
    waiting: Mutex<HashMap<u64, Waiting>>,
    has_lost: AtomicBool,
    /// The trial that is wired.
    trial: AtomicU64,
}

#[derive(Debug)]
enum Waiting {
    Verdict(oneshot::Sender<Verdict>),
    Go(oneshot::Sender<()>),
    Restart(oneshot::Sender<Result<(), RestartError>>),
    Close(oneshot::Sender<Result<(), NotApplied>>),
    Counted(oneshot::Sender<Option<OutageMode>>),
}

/// Steering by the tool, for one trial.
#[derive(Debug)]
pub(super) struct RemoteSteering {
    pub(super) line: Arc<Line>,
    pub(super) trial: u64,
    pub(super) has_gates: bool,
    pub(super) has_targets: bool,
}

// === impl Line ===

impl Line {
    pub(super) fn new(frames: mpsc::Sender<ToTool>) -> Self {
        Self {
            frames,
            next: AtomicU64::new(1),
            waiting: Mutex::default(),
            has_lost: AtomicBool::new(false),
            trial: AtomicU64::new(0),
        }
    }

    /// Reports without waiting. What cannot be reported is remembered, and said as soon as there is room.
    pub(super) fn report(&self, frame: ToTool) {
        if self.frames.try_send(frame).is_err() {
            self.has_lost.store(true, Ordering::Release);
        }
        if self.has_lost.load(Ordering::Acquire) && self.frames.try_send(ToTool::Lost).is_ok() {
            self.has_lost.store(false, Ordering::Release);
        }
    }

    /// Another trial begins.
    pub(super) fn begin(&self, trial: u64) {
        self.trial.store(trial, Ordering::Release);
    }

    /// Gives an answer of the tool to whoever waits for it; other frames come back.
    pub(super) fn accept_answer(&self, frame: ToSidecar) -> Option<ToSidecar> {
        let ask = match &frame {
            ToSidecar::Effective { ask, .. }
            | ToSidecar::Go { ask }
            | ToSidecar::Restarted { ask, .. }
            | ToSidecar::Closed { ask, .. }
            | ToSidecar::Counted { ask, .. } => *ask,
            _ => return Some(frame),
        };
        // Whoever asked may have gone meanwhile.
        match (self.lock().remove(&ask), frame) {
            (Some(Waiting::Verdict(answer)), ToSidecar::Effective { rules, target, .. }) => {
                drop(answer.send(Verdict { target, rules }));
            }
            (Some(Waiting::Go(answer)), ToSidecar::Go { .. }) => drop(answer.send(())),
            (Some(Waiting::Restart(answer)), ToSidecar::Restarted { error, .. }) => {
                drop(answer.send(error.map_or(Ok(()), Err)));
            }
            (Some(Waiting::Close(answer)), ToSidecar::Closed { why_not, .. }) => {
                drop(answer.send(why_not.map_or(Ok(()), Err)));
            }
            (Some(Waiting::Counted(answer)), ToSidecar::Counted { outage, .. }) => {
                let _ = answer.send(outage);
            }
            _ => {}
        }
        None
    }

    fn ask<T>(&self, wait: impl FnOnce(oneshot::Sender<T>) -> Waiting) -> (u64, oneshot::Receiver<T>) {
        let ask = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = oneshot::channel();
        self.lock().insert(ask, wait(sender));
        (ask, receiver)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Recorder for Line {
    fn record(&self, span: Span) {
        // Spans of an earlier trial end with its connections, before the next one is wired.
        let trial = self.trial.load(Ordering::Acquire);
        self.report(ToTool::Span { trial, span: Box::new(span) });
    }
}

impl Restarter for Line {
    fn restart(&self, instance: &InstanceId) -> BoxFuture<'static, Result<(), RestartError>> {
        let (ask, answer) = self.ask(Waiting::Restart);
        self.report(ToTool::Restart { ask, instance: instance.clone() });
        Box::pin(async move { answer.await.unwrap_or(Err(RestartError::ToolGone)) })
    }
}

// === impl RemoteSteering ===

impl Steering for RemoteSteering {
    fn count(&self, selected: &[usize], arrived: &ArrivingCall<'_>) -> Answer<Verdict> {
        let (ask, answer) = self.line.ask(Waiting::Verdict);
        let call = Box::new(CountedCall {
            span: arrived.span,
            trace: arrived.trace,
            parent: arrived.parent,
            caller: arrived.caller.clone(),
            callee: arrived.callee.clone(),
            instance: arrived.instance.cloned(),
            method: arrived.method.to_owned(),
            path: arrived.path.to_owned(),
            is_request: arrived.is_request,
        });
        self.line.report(ToTool::Count { ask, trial: self.trial, selected: selected.to_vec(), call });
        Answer::Later(Box::pin(async move { answer.await.unwrap_or_default() }))
    }

    fn count_call(&self, callee: &ServiceName) -> Answer<Option<OutageMode>> {
        let (ask, answer) = self.line.ask(Waiting::Counted);
        self.line.report(ToTool::CountCall { ask, trial: self.trial, callee: callee.clone() });
        Answer::Later(Box::pin(async move { answer.await.unwrap_or_default() }))
    }

    fn note_unrefused(&self, callee: &ServiceName) {
        self.line.report(ToTool::Unrefused { trial: self.trial, callee: callee.clone() });
    }

    fn missed(&self, rule: usize, why: NotApplied) {
        self.line.report(ToTool::Missed { trial: self.trial, rule, why });
    }

    fn failing(&self, span: SpanId) {
        if self.has_targets {
            self.line.report(ToTool::Failing { trial: self.trial, span });
        }
    }

    /// The tool learns of it by the span itself.
    fn finished(&self, _span: &Span) {}

    fn twin(&self, of: SpanId, twin: SpanId) -> Answer<()> {
        if !self.has_targets {
            return Answer::Now(());
        }
        let (ask, answer) = self.line.ask(Waiting::Go);
        self.line.report(ToTool::Twin { ask, trial: self.trial, of, twin });
        Answer::Later(Box::pin(async move {
            let _ = answer.await;
        }))
    }

    fn close(
        &self,
        instance: &InstanceId,
        span: SpanId,
    ) -> BoxFuture<'static, Result<ClosedInstance, NotApplied>> {
        let (ask, answer) = self.line.ask(Waiting::Close);
        let instance = instance.clone();
        self.line.report(ToTool::Close { ask, trial: self.trial, instance, span });
        let line = Arc::clone(&self.line);
        // From now on the tool may have closed it, whether or not its answer is ever heard.
        let closed = ClosedInstance::new(move || {
            line.lock().remove(&ask);
            line.report(ToTool::Open { ask });
        });
        Box::pin(async move {
            answer.await.unwrap_or(Err(NotApplied::ToolGone))?;
            Ok(closed)
        })
    }

    fn applied(&self, rule: usize) {
        self.line.report(ToTool::Applied { trial: self.trial, rule });
    }

    fn has_gates(&self) -> bool {
        self.has_gates
    }

    fn begin(&self, handled: Handled<'_>) -> Answer<()> {
        let (ask, answer) = self.line.ask(Waiting::Go);
        self.line.report(ToTool::Begin {
            ask,
            trial: self.trial,
            span: handled.span,
            trace: handled.trace,
            instance: handled.instance.clone(),
            method: handled.method.to_owned(),
            path: handled.path.to_owned(),
        });
        // The callee's own calls are reported by another sidecar: the tool must know of the handling first.
        Answer::Later(Box::pin(async move {
            let _ = answer.await;
        }))
    }

    fn arrive(&self, arrival: Arrival<'_>) -> Option<Hold> {
        let (ask, answer) = self.line.ask(Waiting::Go);
        let call = ArrivedCall {
            caller: arrival.caller.clone(),
            parent: arrival.parent,
            trace: arrival.trace,
            callee: arrival.callee.clone(),
            method: arrival.method.to_owned(),
            path: arrival.path.to_owned(),
        };
        self.line.report(ToTool::Arrive { ask, trial: self.trial, call: Box::new(call) });
        let release = Box::pin(async move {
            let _ = answer.await;
        });
        Some(Hold { ticket: Ticket::of_tool(ask), release })
    }

    fn answered(&self, ticket: Ticket) {
        self.line.report(ToTool::Answered { ask: ticket.number() });
    }

    fn ended(&self, span: SpanId) {
        self.line.report(ToTool::Ended { trial: self.trial, span });
    }

    fn lost(&self) {
        self.line.report(ToTool::Lost);
    }

    fn take_gates(&self) -> Vec<faultscope_model::series::GateReport> {
        Vec::new()
    }

    fn take_rules(&self) -> Vec<RuleHits> {
        Vec::new()
    }
}
