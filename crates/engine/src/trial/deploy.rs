//! Deploys a plan in a slot, with the mesh around it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use faultscope_mesh::Mocks;
use faultscope_model::digest::Digest;
use faultscope_model::event::Event;
use faultscope_model::outcome::{StartEnding, Unresolved};
use faultscope_model::plan::Reset;
use faultscope_model::run::{Evidence, InstanceExit};
use faultscope_model::units::show_duration;
use faultscope_model::{ExitReason, ServiceName, TrialId};
use faultscope_platform::{Deployment, Isolation, PlatformError, PlatformErrorKind, PlatformEvent};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{TrialRequest, collector, wire};
use crate::clone::StartPoint;
use crate::error::EngineError;
use crate::replay::ReplayMocks;
use crate::session::{Lease, Session};

/// The result of a deployment.
pub(super) enum Deployed {
    Ready(Deployment, Duration),
    /// The circumstance keeps an instance from starting.
    NotReady(Box<(Evidence, Unresolved)>),
}

impl Session {
    /// Reserves listeners, passes them to the mesh, and applies the plan.
    pub(super) async fn deploy(
        &self,
        slot: &Lease,
        trial: TrialId,
        request: &TrialRequest,
        seed: u64,
        mocks: Option<Arc<ReplayMocks>>,
        cancel: &CancellationToken,
    ) -> Result<Deployed, EngineError> {
        let mut plan = self.application.plan(&request.circumstance, &slot.expansion)?;
        let start = request.drive.starts_from();
        if let Some(start) = start {
            start.adapt(&mut plan, &slot.expansion.program);
        }
        if slot.collector.is_some() {
            collector::announce(&mut plan, self.measured_every());
        }
        if slot.mesh.is_some() && self.platform.capabilities().isolation == Isolation::Netns {
            wire::answer_for_names(&mut plan);
        }
        let shortened = self.start_limits.apply(&mut plan, trial.role);
        let started = Instant::now();
        if let Some(mesh) = &slot.mesh {
            // Before their instances end: those that wait for open connections would take as long as they may.
            let may_stay = plan.instances.iter().filter(|instance| instance.reset == Reset::Keep);
            mesh.reset_connections_except(&may_stay.map(|instance| instance.id.clone()).collect()).await;
        }
        if let Some((folder, snapshot)) = start.and_then(StartPoint::data) {
            self.platform.restore(slot.id, folder, snapshot).await?;
        }
        let reservation = self.platform.reserve(slot.id, &plan).await?;
        if let Some(mesh) = &slot.mesh {
            mesh.reset_connections_except(&reservation.kept).await;
        }
        // Instances of the trial before are gone by now, and with them whatever they called of their own accord.
        slot.recorder.begin(trial);
        slot.recorder.sample(self.application.record.sample);
        slot.recorder.keep(request.drive.names_calls());
        if let Some(mesh) = &slot.mesh {
            let record = self.options.record.unwrap_or(self.application.record.level);
            let (callers, endpoints) = (reservation.callers, reservation.endpoints);
            if let Some(collector) = &slot.collector {
                collector.begin(trial, &callers);
            }
            let mut wiring =
                wire::wiring(&self.application, &plan, slot.id, seed, callers, endpoints, record);
            if self.options.record.is_none() {
                wiring.record_rules.clone_from(&self.application.record.rules);
            }
            wiring.targets = request.drive.names_calls();
            wiring.campaign = Digest::hash_bytes(self.campaign.id().as_str().as_bytes()).number();
            mesh.configure_mocked(wiring, mocks.map(|mocks| mocks as Arc<dyn Mocks>));
            collector::share(slot.collector.as_ref(), mesh, reservation.listeners)
                .map_err(|e| EngineError::Internal(format!("the collector cannot listen: {e}")))?;
            if let Some(watch) = reservation.watch {
                mesh.watch(watch.socket, watch.hosts);
            }
        }
        let mut happenings = self.platform.events(slot.id);
        let apply = self.platform.apply(slot.id, &plan, cancel);
        tokio::pin!(apply);
        let mut ready = 0;
        let mut ready_at = BTreeMap::new();
        let mut note = |event| {
            if let PlatformEvent::Ready { instance } = event {
                ready += 1;
                // Counted from the beginning of the deployment, so that it is never too little.
                let after = started.elapsed();
                self.start_limits.note_ready(&instance.service, after);
                ready_at.insert(instance.service.clone(), after);
                let all = plan.instances.len();
                self.events.emit(Event::InstanceReady { trial, instance, ready, all });
            }
        };
        let applied = loop {
            tokio::select! {
                applied = &mut apply => break applied,
                Ok(event) = happenings.recv() => note(event),
            }
        };
        // Events of the last instances may arrive in the same moment in which `apply` returns.
        while let Ok(event) = happenings.try_recv() {
            note(event);
        }
        match applied {
            Ok(deployment) => {
                self.slow_start.note(&self.application, &ready_at);
                Ok(Deployed::Ready(deployment, started.elapsed()))
            }
            Err(PlatformError {
                kind: PlatformErrorKind::NotReady { instance, ending, reason, last_lines },
                ..
            }) => {
                let mut evidence = Evidence::default();
                let service = &instance.service;
                let is_late = ending == StartEnding::Late;
                let full = shortened.get(service).filter(|_| is_late);
                if let Some(planned) = plan.instances.iter().find(|i| i.id == instance).filter(|_| is_late) {
                    let within = planned.ready.within;
                    let next =
                        self.start_limits.note_late(service, within, &request.circumstance, &shortened);
                    next.into_iter().for_each(|next| self.announce_limit(service, within, next));
                }
                let is_cut = full.is_some();
                let detail = match full {
                    Some(full) => {
                        format!("{reason}; an earlier trial waited {}, in vain", show_duration(*full))
                    }
                    None => reason,
                };
                let reason = ExitReason::NotReady { detail };
                let why = Unresolved::NotReady { instance: instance.clone(), reason: reason.clone() };
                let start = Some(ending);
                evidence.exits.push(InstanceExit { instance: instance.clone(), reason, start, is_cut });
                evidence.logs.insert(instance, last_lines);
                Ok(Deployed::NotReady(Box::new((evidence, why))))
            }
            Err(error) => Err(error.into()),
        }
    }

    fn announce_limit(&self, service: &ServiceName, within: Duration, next: Duration) {
        let text = format!(
            "{service} was not ready within {}: other trials wait {} for it, and the answer is confirmed with the \
             full time",
            show_duration(within),
            show_duration(next)
        );
        self.events.emit(Event::Note { text });
    }
}
