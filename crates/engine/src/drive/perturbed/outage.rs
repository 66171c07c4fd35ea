//! What is done to services as a whole: they go away and come back, before the test or during it, or are restarted.
//!
//! What follows shows whether the others got over it. A service that ends because of it is a failure, even if the
//! test does not need that service.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use faultscope_mesh::{ArmedOutage, MeshSlot};
use faultscope_model::outcome::{Ending, Signature};
use faultscope_model::perturbation::{Kind, Perturbation};
use faultscope_model::run::{InstanceExit, OutageSeen};
use faultscope_model::wiring::OutageMode;
use faultscope_model::{InstanceId, NotApplied, RestartError, ServiceName};
use faultscope_platform::Action;
use futures_util::future::join_all;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::trial::Live;

/// What became of what was to be done to services as a whole.
#[derive(Debug, Default)]
pub(crate) struct ServicesDisturbed {
    pub(super) done: BTreeSet<Perturbation>,
    pub(super) missed: BTreeMap<Perturbation, NotApplied>,
    /// The outages that were carried out; when the test passed again is filled in later.
    pub(super) outages: Vec<OutageSeen>,
    /// When the last of it was over.
    pub(super) over: Option<Instant>,
}

/// The service that a perturbation of a whole service concerns.
fn service_of(perturbation: &Perturbation) -> Option<ServiceName> {
    perturbation.target.receiver().and_then(|name| name.parse().ok())
}

/// Does everything that concerns services as a whole and comes before the test.
pub(super) async fn disturb_before(
    live: &Live<'_>,
    perturbations: &[Perturbation],
    cancel: &CancellationToken,
) -> ServicesDisturbed {
    let mut disturbed = ServicesDisturbed::default();
    // An adapter of actors may have names of its own that look like these; what is no service is left to it.
    let is_service =
        |p: &Perturbation| service_of(p).is_some_and(|name| live.application().services.contains_key(&name));
    let concerns_service =
        |p: &&Perturbation| p.target.is_whole() && (p.kind == Kind::Outage || is_service(p));
    let whole: Vec<&Perturbation> = perturbations.iter().filter(concerns_service).collect();
    take_away(live, &whole, &mut disturbed, cancel).await;
    for perturbation in whole.iter().filter(|p| p.kind == Kind::Restart) {
        let restarted = restart(live, perturbation).await;
        disturbed.note(perturbation, restarted);
    }
    disturbed
}

/// Takes all services away that are to be away before the test, at the same time.
async fn take_away(
    live: &Live<'_>,
    whole: &[&Perturbation],
    disturbed: &mut ServicesDisturbed,
    cancel: &CancellationToken,
) {
    let outages: Vec<&Perturbation> = whole.iter().copied().filter(|p| p.kind == Kind::Outage).collect();
    let Some(mesh) = live.mesh().filter(|_| !outages.is_empty()) else { return };
    let settings = live.application().resilience.outage;
    let away = outages.iter().filter_map(|p| Some((service_of(p)?, settings.how))).collect();
    let before = mesh.called();
    let began = Instant::now();
    mesh.set_outages(away);
    wait(settings.lasts, cancel).await;
    mesh.set_outages(BTreeMap::new());
    let tried = mesh.called();
    for perturbation in outages {
        let is_felt = service_of(perturbation)
            .is_some_and(|name| before.iter().chain(&tried).any(|(_, callee)| *callee == name));
        disturbed.note(perturbation, if is_felt { Ok(()) } else { Err(NotApplied::NobodyConnected) });
        if is_felt {
            disturbed.note_outage(perturbation, settings.how, began.elapsed());
        }
    }
}

async fn restart(live: &Live<'_>, perturbation: &Perturbation) -> Result<(), NotApplied> {
    let Some(service) = service_of(perturbation) else { return Err(NotApplied::NoSuchCall) };
    let count = live.application().simplest.instances.get(&service).copied().unwrap_or(1);
    for ordinal in 1..=count {
        let instance = InstanceId::new(service.clone(), ordinal);
        let restarted = live.session.platform.act(live.lease.id(), &instance, Action::Restart).await;
        restarted.map_err(|e| {
            let cause = std::error::Error::source(&e).map(|c| format!(": {c}")).unwrap_or_default();
            NotApplied::from(RestartError::Platform { message: format!("{e}{cause}") })
        })?;
    }
    Ok(())
}

/// Outages that begin with a call of the test. The mesh begins them, because the call itself must meet them.
pub(super) struct OutagesDuring<'a> {
    mesh: Option<&'a MeshSlot>,
    armed: Vec<(&'a Perturbation, ArmedOutage)>,
    lasts: Duration,
}

impl<'a> OutagesDuring<'a> {
    /// Counts calls from now on, also where there is no outage: baselines show which calls there are.
    pub(super) fn arm(live: &'a Live<'_>, perturbations: &'a [Perturbation]) -> Self {
        let settings = live.application().resilience.outage;
        let arm = |p: &'a Perturbation| {
            let at_call = p.target.any_call_number().filter(|_| p.kind == Kind::Outage)?;
            Some((p, ArmedOutage { service: service_of(p)?, at_call, mode: settings.how }))
        };
        let armed: Vec<_> = perturbations.iter().filter_map(arm).collect();
        let mesh = live.mesh();
        if let Some(mesh) = mesh {
            mesh.begin_counting(armed.iter().map(|(_, outage)| outage.clone()).collect());
        }
        Self { mesh, armed, lasts: settings.lasts }
    }

    /// Ends each outage when its time is over, also when the test is over before.
    pub(super) async fn run(
        &self,
        test_over: &CancellationToken,
        disturbed: &mut ServicesDisturbed,
        cancel: &CancellationToken,
    ) {
        let Some(mesh) = self.mesh else { return };
        let lasts = self.lasts;
        let each = self.armed.iter().map(|(perturbation, outage)| async move {
            tokio::select! {
                biased;
                () = mesh.until_away(&outage.service) => {}
                () = test_over.cancelled() => return (*perturbation, outage, None),
            }
            let began = Instant::now();
            wait(lasts, cancel).await;
            mesh.end_outage(&outage.service);
            (*perturbation, outage, Some(began.elapsed()))
        });
        for (perturbation, outage, lasted) in join_all(each).await {
            disturbed.note(perturbation, lasted.map(|_| ()).ok_or(NotApplied::NotCalled));
            if let Some(lasted) = lasted {
                disturbed.note_outage(perturbation, outage.mode, lasted);
            }
        }
    }

    /// Stops counting, and gives the calls to each service that other services made.
    pub(super) fn disarm(&self) -> BTreeMap<ServiceName, u32> {
        self.mesh.map(MeshSlot::stop_counting).unwrap_or_default()
    }

    /// Whether an outage has begun.
    pub(super) fn is_any_done(&self, disturbed: &ServicesDisturbed) -> bool {
        self.armed.iter().any(|(perturbation, _)| disturbed.done.contains(*perturbation))
    }
}

async fn wait(time: Duration, cancel: &CancellationToken) {
    tokio::select! {
        () = tokio::time::sleep(time) => {}
        () = cancel.cancelled() => {}
    }
}

impl ServicesDisturbed {
    /// The services that were away or were restarted.
    pub(super) fn services(&self) -> BTreeSet<ServiceName> {
        self.done.iter().filter_map(service_of).collect()
    }

    /// The services that were away.
    pub(super) fn were_away(&self) -> BTreeSet<ServiceName> {
        self.outages.iter().filter_map(|outage| service_of(&outage.perturbation)).collect()
    }

    /// What was done, for a message.
    pub(super) fn describe(&self) -> String {
        let names: Vec<String> = self.done.iter().map(ToString::to_string).collect();
        names.join(" and ")
    }

    fn note(&mut self, perturbation: &Perturbation, result: Result<(), NotApplied>) {
        match result {
            Ok(()) => {
                self.done.insert(perturbation.clone());
                self.over = Some(Instant::now());
            }
            Err(why) => {
                self.missed.insert(perturbation.clone(), why);
            }
        }
    }

    fn note_outage(&mut self, perturbation: &Perturbation, how: OutageMode, lasted: Duration) {
        let perturbation = perturbation.clone();
        self.outages.push(OutageSeen { perturbation, how, accepted: false, lasted, recovered_after: None });
    }
}

/// The failure of a test during or after which a service ended by itself, given what was done to services.
pub(super) fn find_ended(
    test: &str,
    disturbed: &ServicesDisturbed,
    exits: &[InstanceExit],
) -> Option<Signature> {
    let exit = exits.iter().find(|exit| exit.start.is_none()).filter(|_| !disturbed.done.is_empty())?;
    let message = format!("{} {} after {}", exit.instance, exit.reason, disturbed.describe());
    Some(Signature { test: test.to_owned(), ending: Ending::Ended, message })
}
