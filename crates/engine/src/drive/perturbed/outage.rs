//! What is done to services as a whole before the test begins: they go away and come back, or are restarted.
//!
//! The test then shows whether the others got over it. A service that ends because of it is a failure, even if the
//! test does not need that service.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use faultscope_model::outcome::{Ending, Signature};
use faultscope_model::perturbation::{Kind, Perturbation};
use faultscope_model::run::InstanceExit;
use faultscope_model::{InstanceId, NotApplied, RestartError, ServiceName};
use faultscope_platform::Action;
use tokio_util::sync::CancellationToken;

use crate::trial::Live;

/// What became of what was to be done to services as a whole.
#[derive(Debug, Default)]
pub(crate) struct ServicesDisturbed {
    pub(super) done: BTreeSet<Perturbation>,
    pub(super) missed: BTreeMap<Perturbation, NotApplied>,
}

/// Does everything that concerns services as a whole, and gives the others time to get over it.
pub(super) async fn disturb_services(
    live: &Live<'_>,
    perturbations: &[Perturbation],
    cancel: &CancellationToken,
) -> ServicesDisturbed {
    let mut disturbed = ServicesDisturbed::default();
    // An adapter of actors may have names of its own that look like these; what is no service is left to it.
    let is_service = |p: &Perturbation| {
        let name = p.target.receiver().and_then(|name| name.parse::<ServiceName>().ok());
        name.is_some_and(|name| live.application().services.contains_key(&name))
    };
    let concerns_service =
        |p: &&Perturbation| p.target.is_whole() && (p.kind == Kind::Outage || is_service(p));
    let whole: Vec<&Perturbation> = perturbations.iter().filter(concerns_service).collect();
    if whole.is_empty() {
        return disturbed;
    }
    let settings = live.application().resilience.outage;
    take_away(live, &whole, settings.lasts, &mut disturbed, cancel).await;
    for perturbation in whole.iter().filter(|p| p.kind == Kind::Restart) {
        let restarted = restart(live, perturbation).await;
        disturbed.note(perturbation, restarted);
    }
    if !disturbed.done.is_empty() {
        wait(settings.recovery, cancel).await;
    }
    disturbed
}

/// Has all services that are to be away be so at the same time.
async fn take_away(
    live: &Live<'_>,
    whole: &[&Perturbation],
    lasts: Duration,
    disturbed: &mut ServicesDisturbed,
    cancel: &CancellationToken,
) {
    let outages: Vec<&Perturbation> = whole.iter().copied().filter(|p| p.kind == Kind::Outage).collect();
    let Some(mesh) = live.mesh().filter(|_| !outages.is_empty()) else { return };
    let how = live.application().resilience.outage.how;
    let named = |p: &Perturbation| p.target.receiver().and_then(|name| name.parse::<ServiceName>().ok());
    let away = outages.iter().filter_map(|p| Some((named(p)?, how))).collect();
    let before = mesh.called();
    mesh.set_outages(away);
    wait(lasts, cancel).await;
    mesh.set_outages(BTreeMap::new());
    let tried = mesh.called();
    for perturbation in outages {
        let concerned = named(perturbation)
            .is_some_and(|name| before.iter().chain(&tried).any(|(_, callee)| *callee == name));
        disturbed.note(perturbation, if concerned { Ok(()) } else { Err(NotApplied::NobodyConnected) });
    }
}

async fn restart(live: &Live<'_>, perturbation: &Perturbation) -> Result<(), NotApplied> {
    let name = perturbation.target.receiver().unwrap_or_default();
    let Ok(service) = name.parse::<ServiceName>() else { return Err(NotApplied::NoSuchCall) };
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

async fn wait(time: Duration, cancel: &CancellationToken) {
    tokio::select! {
        () = tokio::time::sleep(time) => {}
        () = cancel.cancelled() => {}
    }
}

impl ServicesDisturbed {
    fn note(&mut self, perturbation: &Perturbation, result: Result<(), NotApplied>) {
        match result {
            Ok(()) => {
                self.done.insert(perturbation.clone());
            }
            Err(why) => {
                self.missed.insert(perturbation.clone(), why);
            }
        }
    }
}

/// The failure of a test that passed although a service ended by itself after something was done to services.
pub(super) fn ended_because(
    test: &str,
    disturbed: &ServicesDisturbed,
    exits: &[InstanceExit],
) -> Option<Signature> {
    let exit = exits.iter().find(|exit| exit.start.is_none()).filter(|_| !disturbed.done.is_empty())?;
    let message = format!("{} {}", exit.instance, exit.reason);
    Some(Signature { test: test.to_owned(), ending: Ending::Ended, message })
}
