//! How long trials wait for services that were seen not to become ready (design note 0016).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use faultscope_model::digest::Digest;
use faultscope_model::plan::Plan;
use faultscope_model::{Circumstance, ServiceName, TrialRole};

/// A start that takes five times as long as the slowest one so far is not expected any more. Starts on a busy
/// machine vary by a factor of two or three.
const TIMES_SLOWEST: u32 = 5;
/// Services that are ready in a moment get this much: a pause of the machine is not a late start.
const LEAST: Duration = Duration::from_secs(3);

/// What a campaign has learnt about starts. It shortens nothing unless [`StartLimits::shorten`] was called.
#[derive(Debug, Default)]
pub(crate) struct StartLimits(Mutex<Learnt>);

#[derive(Debug, Default)]
struct Learnt {
    shortens: bool,
    services: BTreeMap<ServiceName, Starts>,
    /// Circumstances in which a service was waited for as long as the application file says, in vain.
    waited_out: BTreeSet<Digest>,
    /// Whether some trial ended after a shortened wait.
    was_cut: bool,
}

#[derive(Debug, Default)]
struct Starts {
    /// The longest time in which an instance became ready.
    slowest: Option<Duration>,
    /// Whether one did not become ready within the limit of the application file, although its process ran.
    was_late: bool,
}

/// The services whose limits were shortened for a trial, each with the limit of the application file.
pub(crate) type Shortened = BTreeMap<ServiceName, Duration>;

impl StartLimits {
    fn learnt(&self) -> MutexGuard<'_, Learnt> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on waits are shortened where that is known to be enough, or never.
    pub(crate) fn shorten(&self, shortens: bool) {
        let mut learnt = self.learnt();
        (learnt.shortens, learnt.was_cut) = (shortens, false);
    }

    /// Whether a trial since the last [`Self::shorten`] ended after a shortened wait.
    pub(crate) fn was_cut(&self) -> bool {
        self.learnt().was_cut
    }

    /// Shortens the limits of a plan; returns what was shortened.
    pub(crate) fn apply(&self, plan: &mut Plan, role: TrialRole) -> Shortened {
        let learnt = self.learnt();
        let mut shortened = Shortened::new();
        if !learnt.shortens || !learnt.may_cut(role, &plan.circumstance) {
            return shortened;
        }
        for instance in &mut plan.instances {
            let service = &instance.id.service;
            let Some(limit) = learnt.limit(service).filter(|limit| *limit < instance.ready.within) else {
                continue;
            };
            let full = std::mem::replace(&mut instance.ready.within, limit);
            shortened.insert(service.clone(), full);
        }
        shortened
    }

    /// Notes how long an instance took to become ready.
    pub(crate) fn note_ready(&self, service: &ServiceName, after: Duration) {
        let mut learnt = self.learnt();
        let starts = learnt.services.entry(service.clone()).or_default();
        starts.slowest = starts.slowest.max(Some(after));
    }

    /// Notes that an instance was not ready in time; returns the further time that it gets, the first time that this
    /// is known to be less than before.
    pub(crate) fn note_late(
        &self,
        service: &ServiceName,
        within: Duration,
        circumstance: &Circumstance,
        shortened: &Shortened,
    ) -> Option<Duration> {
        let mut learnt = self.learnt();
        if shortened.contains_key(service) {
            learnt.was_cut = true;
            return None;
        }
        learnt.waited_out.insert(Digest::hash_json(circumstance));
        let starts = learnt.services.entry(service.clone()).or_default();
        let is_new = !std::mem::replace(&mut starts.was_late, true);
        learnt.limit(service).filter(|limit| *limit < within && is_new && learnt.shortens)
    }
}

impl Learnt {
    /// Whether a trial of this role may be cut. Answers are confirmed with the whole limit once, and what is found
    /// after the answer is not confirmed at all, so those trials wait.
    fn may_cut(&self, role: TrialRole, circumstance: &Circumstance) -> bool {
        match role {
            TrialRole::Search | TrialRole::CheckFailing | TrialRole::Sentinel => true,
            TrialRole::Confirm => self.waited_out.contains(&Digest::hash_json(circumstance)),
            TrialRole::CheckSimplest
            | TrialRole::Boundary
            | TrialRole::Input
            | TrialRole::Again
            | TrialRole::Baseline => false,
        }
    }

    /// The limit of a service that was late once. One that was never ready may just need long.
    fn limit(&self, service: &ServiceName) -> Option<Duration> {
        let starts = self.services.get(service).filter(|starts| starts.was_late)?;
        Some((starts.slowest? * TIMES_SLOWEST).max(LEAST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultscope_model::Application;
    use faultscope_model::application::Expansion;

    const WITHIN: Duration = Duration::from_secs(30);

    fn plan() -> Plan {
        let file = "services: { order: { command: [order], ports: [80] }, stock: { command: [stock], ports: [81] } }";
        let application = Application::read_alone(file, "f").unwrap();
        let expansion = Expansion { program: String::new(), slot: faultscope_model::SlotId(0) };
        let mut plan = application.plan(&Circumstance::default(), &expansion).unwrap();
        plan.instances.iter_mut().for_each(|instance| instance.ready.within = WITHIN);
        plan
    }

    fn seconds(limits: &StartLimits, role: TrialRole) -> [u64; 2] {
        let mut plan = plan();
        limits.apply(&mut plan, role);
        [plan.instances[0].ready.within.as_secs(), plan.instances[1].ready.within.as_secs()]
    }

    fn late(limits: &StartLimits, shortened: &Shortened) -> Option<Duration> {
        let failing = Circumstance { nodes: 2, ..Circumstance::default() };
        limits.note_late(&"order".parse().unwrap(), WITHIN, &failing, shortened)
    }

    #[test]
    fn a_service_that_was_late_once_is_not_waited_for_again() {
        let limits = StartLimits::default();
        limits.shorten(true);
        assert_eq!(seconds(&limits, TrialRole::Search), [30, 30]);
        limits.note_ready(&"order".parse().unwrap(), Duration::from_millis(200));
        assert_eq!(seconds(&limits, TrialRole::Search), [30, 30], "it was never late");
        assert_eq!(late(&limits, &Shortened::new()), Some(LEAST));
        assert_eq!(late(&limits, &Shortened::new()), None, "it is said once");
        assert_eq!(seconds(&limits, TrialRole::Search), [3, 30]);
        assert_eq!(seconds(&limits, TrialRole::Boundary), [30, 30]);
        assert_eq!(seconds(&limits, TrialRole::Confirm), [30, 30], "not waited out in this circumstance");
        // A slower start gives all later ones more time, up to what the file says.
        limits.note_ready(&"order".parse().unwrap(), Duration::from_secs(4));
        assert_eq!(seconds(&limits, TrialRole::Search), [20, 30]);
        limits.note_ready(&"order".parse().unwrap(), Duration::from_secs(12));
        assert_eq!(seconds(&limits, TrialRole::Search), [30, 30]);
    }

    #[test]
    fn an_answer_is_waited_out_once() {
        let limits = StartLimits::default();
        limits.shorten(true);
        limits.note_ready(&"order".parse().unwrap(), Duration::from_millis(200));
        limits.note_late(&"order".parse().unwrap(), WITHIN, &Circumstance::default(), &Shortened::new());
        assert_eq!(seconds(&limits, TrialRole::Confirm), [3, 30], "waited out in this circumstance");
    }

    #[test]
    fn nothing_is_shortened_without_being_asked_for() {
        let limits = StartLimits::default();
        limits.note_ready(&"order".parse().unwrap(), Duration::from_millis(200));
        assert_eq!(late(&limits, &Shortened::new()), None);
        assert_eq!(seconds(&limits, TrialRole::Search), [30, 30]);
        assert!(!limits.was_cut());
    }

    #[test]
    fn a_service_that_was_never_ready_may_need_long() {
        let limits = StartLimits::default();
        limits.shorten(true);
        assert_eq!(late(&limits, &Shortened::new()), None);
        assert_eq!(seconds(&limits, TrialRole::Search), [30, 30]);
    }
}
