//! Reserves the listeners of a plan, and applies it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use faultscope_model::plan::{InstancePlan, Plan};
use faultscope_model::wiring::{Caller, Endpoint, ListenerSpec};
use faultscope_model::{InstanceId, NodeId, ServiceName};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::life::{Life, Origin};
use super::slot::Slot;
use super::snapshot::Restore;
use super::{NAME, bad_plan, trouble};
use crate::process::parts::drain;
use crate::starting::{check_order, start_in_order};
use crate::{Deployed, Deployment, PlatformError, PlatformErrorKind, Reservation, ReservedListener};

/// Containers that are started at once; waiting for readiness does not count.
const STARTS_AT_ONCE: usize = 8;

impl Slot {
    /// Stops what the plan does not keep and opens listeners.
    pub(super) async fn reserve(&self, plan: &Plan) -> Result<Reservation, PlatformError> {
        let _turn = self.turn.lock().await;
        let destroyed = self.end_others(plan).await?;
        self.destroyed.fetch_add(destroyed, Ordering::AcqRel);
        let first_image = plan.instances.iter().find_map(|i| i.image.clone());
        *self.test_image.lock().unwrap_or_else(PoisonError::into_inner) = first_image;
        let (at, hosts) = {
            let mut addresses = self.addresses();
            let learnt = addresses.learn(plan);
            learnt.map_err(|e| bad_plan("assign addresses", e))?;
            let localhost = plan.localhost();
            let at: Vec<_> = plan
                .listeners(false)
                .into_iter()
                .flat_map(|spec| {
                    let callee = spec.callee.as_str();
                    let places = (addresses.alias(callee), addresses.test_alias(callee));
                    listeners_of(&localhost, spec, places)
                })
                .collect();
            (at, addresses.test_hosts())
        };
        let action = "open listeners";
        std::fs::write(self.hosts_file(), hosts).map_err(|e| trouble(action, e))?;
        let aliases: BTreeSet<Ipv4Addr> = at.iter().map(|(_, address, _)| *address).collect();
        let aliases: Vec<_> = aliases.into_iter().filter(|a| !a.is_loopback()).collect();
        let sidecar = self.sidecar();
        sidecar.add(&aliases).await.map_err(|e| trouble(action, e))?;
        let places: Vec<_> = at.iter().map(|(_, address, port)| (*address, *port)).collect();
        let sockets = sidecar.listen(&places).await.map_err(|e| trouble(action, e))?;
        if self.lives().is_empty() {
            sockets.iter().for_each(drain);
        }
        let pair = |((spec, ..), socket): ((ListenerSpec, _, _), _)| ReservedListener { spec, socket };
        let listeners = at.into_iter().zip(sockets).map(pair).collect();
        let addresses = self.addresses();
        let caller = |i: &InstancePlan| Caller {
            instance: i.id.clone(),
            node: i.node,
            address: addresses.place(&i.id.to_string()).map(IpAddr::V4),
        };
        // The test has its own listeners instead of a source address.
        let test = Caller { instance: InstanceId::test(), node: NodeId::default(), address: None };
        let endpoint =
            |i: &InstancePlan| Endpoint { instance: i.id.clone(), node: i.node, addresses: BTreeMap::new() };
        Ok(Reservation {
            listeners,
            callers: plan.instances.iter().map(caller).chain([test]).collect(),
            endpoints: plan.instances.iter().map(endpoint).collect(),
            kept: self.lives().keys().cloned().collect(),
            watch: None,
        })
    }

    /// Applies the plan.
    pub(super) async fn apply(
        self: &Arc<Self>,
        plan: &Plan,
        cancel: &CancellationToken,
    ) -> Result<Deployment, PlatformError> {
        check_order(plan, NAME)?;
        let is_reserved = {
            let addresses = self.addresses();
            let has_place = |i: &InstancePlan| addresses.place(&i.id.to_string()).is_some();
            plan.instances.iter().all(has_place)
        };
        if !is_reserved {
            self.reserve(plan).await?;
        }
        let _turn = self.turn.lock().await;
        let destroyed = self.end_others(plan).await? + self.destroyed.swap(0, Ordering::AcqRel);
        let kept: BTreeSet<InstanceId> = self.lives().keys().cloned().collect();
        let create: Vec<&InstancePlan> = plan.instances.iter().filter(|i| !kept.contains(&i.id)).collect();
        // Once only: the next deployment is fresh again, however this one ends.
        let restore = self.set_restore(None);
        tokio::select! {
            biased;
            () = cancel.cancelled() => {
                return Err(PlatformError::new(PlatformErrorKind::Cancelled, NAME, "apply the plan"));
            }
            started = self.start_all(&create, restore.as_ref()) => started?,
        }
        let lives = self.lives();
        let instances = plan.instances.iter().map(|i| Deployed {
            id: i.id.clone(),
            node: i.node,
            ready_after: lives.get(&i.id).and_then(|l| l.ready_after()).unwrap_or_default(),
        });
        Ok(Deployment { instances: instances.collect(), created: create.len(), destroyed, kept: kept.len() })
    }

    /// Starts instances, each when the services it waits for are ready.
    async fn start_all(
        self: &Arc<Self>,
        create: &[&InstancePlan],
        restore: Option<&Arc<Restore>>,
    ) -> Result<(), PlatformError> {
        let room = &Semaphore::new(STARTS_AT_ONCE);
        start_in_order(create, |instance| async move {
            let permit = room.acquire().await;
            let life = Life::start(self, instance, Origin::Fresh(restore)).await?;
            drop(permit);
            life.ready(self).await
        })
        .await
    }
}

/// The listeners of a callee: for instances, for the test by name, and for the test on `localhost`.
fn listeners_of(
    localhost: &BTreeMap<u16, (ServiceName, u16)>,
    spec: ListenerSpec,
    (alias, test_alias): (Option<Ipv4Addr>, Option<Ipv4Addr>),
) -> Vec<(ListenerSpec, Ipv4Addr, u16)> {
    let port = spec.port;
    let for_test = ListenerSpec { caller: Some(InstanceId::test()), ..spec.clone() };
    let means = |(_, meant): &(&u16, &(ServiceName, u16))| meant.0 == spec.callee && meant.1 == port;
    let published: Vec<_> = localhost
        .iter()
        .filter(means)
        .map(|(&port, _)| (for_test.clone(), Ipv4Addr::LOCALHOST, port))
        .collect();
    let named = test_alias.map(|address| (for_test, address, port));
    alias.map(|address| (spec, address, port)).into_iter().chain(named).chain(published).collect()
}
