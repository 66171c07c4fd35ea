//! The wiring as proxies use it: a snapshot that a connection keeps until the wiring changes.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use faultscope_model::wiring::{Endpoint, ExternalHost, Link, ListenerSpec, OutageMode, RecordLevel, Wiring};
use faultscope_model::{InstanceId, NodeId, OperationPattern, ServiceName};

use crate::balance::{Choice, Target};
use crate::mocks::Mocks;
use crate::steering::{LocalSteering, Steering};
use crate::trial::{Instance, Pair, Trial};

/// The wiring of a slot and the memory of its trial.
#[derive(Debug)]
pub(crate) struct Scene {
    pub(crate) wiring: Wiring,
    pub(crate) trial: Arc<Trial>,
    /// Whether calls need no more than an instance: no names, rules, gates or links.
    pub(crate) is_plain: bool,
    /// Services that are away.
    pub(crate) outages: BTreeMap<ServiceName, OutageMode>,
    /// What stands for services that are not there.
    pub(crate) mocks: Option<Arc<dyn Mocks>>,
}

/// One caller's way to one callee, found once for each connection and scene.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) scene: Arc<Scene>,
    pub(crate) caller: InstanceId,
    pub(crate) caller_node: NodeId,
    pub(crate) caller_is_test: bool,
    pub(crate) caller_state: Arc<Instance>,
    pub(crate) callee: ServiceName,
    pub(crate) port: u16,
    pub(crate) external: Option<ExternalHost>,
    /// How much is recorded of calls to the callee, by operation; the first that fits counts.
    levels: Vec<(Option<OperationPattern>, RecordLevel)>,
    /// What answers in the callee's place.
    pub(crate) mocks: Option<Arc<dyn Mocks>>,
    pub(crate) choice: Choice,
    pub(crate) pair: Arc<Pair>,
}

/// What a link adds to one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct LinkDelay {
    pub(crate) there: Duration,
    pub(crate) back: Duration,
}

// === impl Scene ===

impl Scene {
    /// A new trial.
    pub(crate) fn new(wiring: Wiring) -> Self {
        let steering = Arc::new(LocalSteering::new(&wiring.rules, &wiring.gates, wiring.targets));
        Self::steered(wiring, steering)
    }

    /// A new trial whose decisions are made elsewhere.
    pub(crate) fn steered(wiring: Wiring, steering: Arc<dyn Steering>) -> Self {
        let trial = Arc::new(Trial::new(&wiring, steering));
        let is_plain =
            wiring.rules.is_empty() && wiring.gates.is_empty() && wiring.links.is_empty() && !wiring.targets;
        Self { wiring, trial, is_plain, outages: BTreeMap::new(), mocks: None }
    }

    /// The same trial with others in the place of services that are not there.
    pub(crate) fn with_mocks(self, mocks: Option<Arc<dyn Mocks>>) -> Self {
        Self { mocks, ..self }
    }

    /// Whether the wiring knows a service and has no instance of it, nor does anybody stand for it.
    pub(crate) fn is_down(&self, service: &ServiceName) -> bool {
        self.wiring.endpoints.get(service).is_some_and(Vec::is_empty) && self.mocks_of(service).is_none()
    }

    fn mocks_of(&self, service: &ServiceName) -> Option<&Arc<dyn Mocks>> {
        self.mocks.as_ref().filter(|mocks| mocks.stands_for(service))
    }

    /// Whether connections to a listener are refused, as by a host on which nothing listens: its service has no
    /// instance, or is away. The test can call a service that is away.
    pub(crate) fn refuses(&self, spec: &ListenerSpec) -> bool {
        let is_for_test = spec.caller.as_ref().is_some_and(InstanceId::is_test);
        self.is_down(&spec.callee)
            || (!is_for_test && self.outages.get(&spec.callee) == Some(&OutageMode::Refuse))
    }

    /// The same trial with other services away.
    pub(crate) fn with_outages(&self, outages: BTreeMap<ServiceName, OutageMode>) -> Self {
        Self {
            wiring: self.wiring.clone(),
            trial: Arc::clone(&self.trial),
            is_plain: self.is_plain,
            outages,
            mocks: self.mocks.clone(),
        }
    }

    /// The same trial with other endpoints.
    pub(crate) fn with_endpoints(&self, endpoints: BTreeMap<ServiceName, Vec<Endpoint>>) -> Self {
        let wiring = Wiring { endpoints, ..self.wiring.clone() };
        let (trial, outages) = (Arc::clone(&self.trial), self.outages.clone());
        Self { wiring, trial, is_plain: self.is_plain, outages, mocks: self.mocks.clone() }
    }

    /// The way of a connection that a listener took from this peer.
    pub(crate) fn route(self: &Arc<Self>, spec: &ListenerSpec, peer: Option<IpAddr>) -> Route {
        let callers = &self.wiring.callers;
        let by_address = || callers.iter().find(|caller| peer.is_some() && caller.address == peer);
        let known = match &spec.caller {
            Some(instance) => callers.iter().find(|caller| caller.instance == *instance),
            None => by_address(),
        };
        let caller = match (&spec.caller, known) {
            (Some(instance), _) => instance.clone(),
            (None, Some(caller)) => caller.instance.clone(),
            (None, None) => unknown_caller(),
        };
        let wiring = &self.wiring;
        let target = |endpoint: &Endpoint| {
            Arc::new(Target { endpoint: endpoint.clone(), instance: self.trial.instance(&endpoint.instance) })
        };
        let choice = Choice {
            targets: wiring.endpoints.get(&spec.callee).into_iter().flatten().map(target).collect(),
            balance: wiring.balance.get(&spec.callee).cloned().unwrap_or_default(),
            turns: self.trial.turns(&spec.callee),
        };
        Route {
            scene: Arc::clone(self),
            caller_node: known.map_or(NodeId(0), |caller| caller.node),
            caller_is_test: caller.service.as_str() == ServiceName::TEST,
            caller_state: self.trial.instance(&caller),
            callee: spec.callee.clone(),
            port: spec.port,
            external: wiring.externals.iter().find(|external| external.service == spec.callee).cloned(),
            levels: wiring
                .record_rules
                .iter()
                .filter(|rule| rule.service == spec.callee)
                .map(|rule| (rule.operation.clone(), rule.level))
                .collect(),
            mocks: self.mocks_of(&spec.callee).cloned(),
            choice,
            pair: self.trial.pair(&caller.service, &spec.callee),
            caller,
        }
    }

    /// The link between two nodes; one that names more of its ends wins.
    pub(crate) fn link(&self, from: NodeId, to: NodeId) -> Option<&Link> {
        if from == to {
            return None;
        }
        let fits = |end: Option<NodeId>, node| end.is_none_or(|end| end == node);
        let joins = |link: &&Link| {
            (fits(link.from, from) && fits(link.to, to)) || (fits(link.from, to) && fits(link.to, from))
        };
        let named = |link: &&Link| u8::from(link.from.is_some()) + u8::from(link.to.is_some());
        // Of equally specific ones the first in the wiring wins, which `max_by_key` alone would not give.
        self.wiring.links.iter().rev().filter(joins).max_by_key(named)
    }
}

// === impl Route ===

impl Route {
    /// How much is recorded of a call.
    pub(crate) fn record_level(&self, method: &str, path: &str) -> RecordLevel {
        let fits = |operation: &Option<OperationPattern>| {
            operation.as_ref().is_none_or(|operation| operation.matches(method, path))
        };
        let found = self.levels.iter().find(|(operation, _)| fits(operation));
        found.map_or(self.scene.wiring.record, |(_, level)| *level)
    }
}

/// Whoever calls from an address that the wiring does not name.
fn unknown_caller() -> InstanceId {
    match "unknown".parse() {
        Ok(service) => InstanceId::new(service, 1),
        Err(_) => InstanceId::test(),
    }
}

#[cfg(test)]
mod tests {
    use faultscope_model::SlotId;

    use super::*;

    fn scene(links: Vec<Link>) -> Scene {
        Scene::new(Wiring {
            slot: SlotId(0),
            seed: 1,
            campaign: 0,
            callers: Vec::new(),
            endpoints: BTreeMap::new(),
            balance: BTreeMap::new(),
            links,
            rules: Vec::new(),
            targets: false,
            gates: Vec::new(),
            record: Default::default(),
            externals: Vec::new(),
            callers_by_context: false,
            record_rules: Vec::new(),
        })
    }

    fn link(from: Option<u16>, to: Option<u16>, millis: u64) -> Link {
        let latency = Duration::from_millis(millis);
        Link { from: from.map(NodeId), to: to.map(NodeId), latency, jitter: Duration::ZERO, loss: 0.0 }
    }

    #[test]
    fn specific_links_win() {
        let scene = scene(vec![
            link(None, None, 1),
            link(Some(1), Some(2), 2),
            link(Some(2), None, 3),
            link(None, None, 9),
        ]);
        let latency = |from, to| scene.link(NodeId(from), NodeId(to)).map(|link| link.latency.as_millis());
        assert_eq!(latency(0, 0), None);
        assert_eq!(latency(0, 1), Some(1));
        assert_eq!(latency(1, 2), Some(2));
        assert_eq!(latency(2, 1), Some(2));
        assert_eq!(latency(0, 2), Some(3));
    }
}
