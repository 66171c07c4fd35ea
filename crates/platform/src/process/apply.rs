//! Reserves the listeners of a plan, and applies it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use faultscope_model::plan::{InstancePlan, Plan, Reset};
use faultscope_model::wiring::{Caller, Endpoint, ListenerSpec};
use faultscope_model::{InstanceId, NodeId, ServiceName};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::agent_protocol::{ListenAt, MAX_FDS, PlaceSpec, Request};
use super::life::{Life, Origin};
use super::ports::Layout;
use super::slot::Slot;
use super::snapshot::Restore;
use super::stage::Stage;
use super::{NAME, bad_plan, trouble};
use crate::starting::{check_order, start_in_order};
use crate::{
    ConnectionWatch, Deployed, Deployment, PlatformError, PlatformErrorKind, Reservation, ReservedListener,
};

/// Instances that are started at once; waiting for readiness does not count.
const STARTS_AT_ONCE: usize = 16;
/// Places and addresses in one request, well below the limit of a packet.
const CHUNK: usize = 500;

impl Slot {
    /// Stops what the plan does not keep, creates networks and opens listeners.
    pub(crate) async fn reserve(&self, plan: &Plan) -> Result<Reservation, PlatformError> {
        let _turn = self.turn.lock().await;
        self.check_open_files(plan)?;
        let stage = self.stage();
        let destroyed = self.end_others(&stage, plan).await;
        self.destroyed.fetch_add(destroyed, Ordering::AcqRel);
        self.renew_home(&stage, false).await;
        let listeners = if self.isolated {
            self.listen_inside(&stage, plan).await
        } else {
            self.listen_outside(&stage, plan)
        };
        let listeners = listeners.map_err(|e| trouble("open listeners", e))??;
        if stage.lives().is_empty() {
            listeners.iter().for_each(|l| drain(&l.socket));
        }
        self.renew_hosts(&stage);
        let address = |id: &InstanceId| stage.addresses().of_place(&id.to_string()).map(IpAddr::V4);
        let test = Caller {
            instance: InstanceId::test(),
            node: NodeId::default(),
            address: address(&InstanceId::test()),
        };
        let callers = plan.instances.iter().map(|i| Caller {
            instance: i.id.clone(),
            node: i.node,
            address: address(&i.id),
        });
        let endpoint =
            |i: &InstancePlan| Endpoint { instance: i.id.clone(), node: i.node, addresses: BTreeMap::new() };
        let watch = self.watch_connections(&stage, plan).await;
        let kept = stage.lives().keys().cloned().collect();
        Ok(Reservation {
            callers: callers.chain([test]).collect(),
            endpoints: plan.instances.iter().map(endpoint).collect(),
            kept,
            watch,
            listeners,
        })
    }

    /// Applies the plan.
    pub(crate) async fn apply(
        self: &Arc<Self>,
        plan: &Plan,
        cancel: &CancellationToken,
    ) -> Result<Deployment, PlatformError> {
        check_order(plan, NAME)?;
        let stage = self.stage();
        let is_reserved = match stage.layout() {
            Some(layout) => plan.instances.iter().all(|i| layout.knows(&i.id)),
            None => {
                let addresses = stage.addresses();
                self.isolated
                    && plan.instances.iter().all(|i| addresses.of_place(&i.id.to_string()).is_some())
            }
        };
        if !is_reserved {
            self.reserve(plan).await?;
        }
        let _turn = self.turn.lock().await;
        let destroyed = self.end_others(&stage, plan).await + self.destroyed.swap(0, Ordering::AcqRel);
        let kept: BTreeSet<InstanceId> = stage.lives().keys().cloned().collect();
        let create: Vec<&InstancePlan> = plan.instances.iter().filter(|i| !kept.contains(&i.id)).collect();
        // Once only: the next deployment is fresh again, however this one ends.
        let restore = self.set_restore(None);
        if let Some(restore) = &restore {
            self.fill_volumes(restore, plan).await.map_err(|e| trouble("restore volumes", e))?;
        }
        tokio::select! {
            biased;
            () = cancel.cancelled() => {
                return Err(PlatformError::new(PlatformErrorKind::Cancelled, NAME, "apply the plan"));
            }
            started = self.start_all(&stage, &create, restore.as_ref()) => started?,
        }
        let lives = stage.lives();
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
        stage: &Arc<Stage>,
        create: &[&InstancePlan],
        restore: Option<&Arc<Restore>>,
    ) -> Result<(), PlatformError> {
        let room = &Semaphore::new(STARTS_AT_ONCE);
        start_in_order(create, |instance| async move {
            let permit = room.acquire().await;
            let life = Life::start(self, stage, instance, Origin::Fresh(restore)).await?;
            drop(permit);
            life.ready(self, stage).await
        })
        .await
    }

    async fn listen_inside(
        &self,
        stage: &Stage,
        plan: &Plan,
    ) -> io::Result<Result<Vec<ReservedListener>, PlatformError>> {
        let link = &stage.agent.link;
        let test = InstanceId::test();
        let names: Vec<String> =
            plan.instances.iter().map(|i| i.id.to_string()).chain([test.to_string()]).collect();
        let (places, aliases, at) = {
            let mut addresses = stage.addresses();
            addresses.learn(plan);
            let place = |name: &String| PlaceSpec { address: addresses.place(name).0, name: name.clone() };
            let places: Vec<_> = names.iter().map(place).collect();
            let localhost = plan.localhost();
            let mut at: Vec<(ListenerSpec, ListenAt)> = Vec::new();
            for spec in plan.listeners(false) {
                let address = IpAddr::V4(addresses.alias(spec.callee.as_str()).0);
                at.push((
                    spec.clone(),
                    ListenAt { place: None, address: SocketAddr::new(address, spec.port) },
                ));
                // The test may use `localhost`.
                let means =
                    |(_, meant): &(&u16, &(ServiceName, u16))| meant.0 == spec.callee && meant.1 == spec.port;
                for (&port, _) in localhost.iter().filter(means) {
                    for address in [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)] {
                        let spec = ListenerSpec { caller: Some(test.clone()), ..spec.clone() };
                        let address = SocketAddr::new(address, port);
                        at.push((spec, ListenAt { place: Some(test.to_string()), address }));
                    }
                }
            }
            let aliases = at.iter().filter_map(|(_, a)| match (a.address.ip(), &a.place) {
                (IpAddr::V4(address), None) => Some(address),
                _ => None,
            });
            let mut aliases: BTreeSet<Ipv4Addr> = aliases.collect();
            // A call to an undeclared port of a service is refused at once instead of timing out.
            aliases.extend(plan.instances.iter().map(|i| addresses.alias(i.id.service.as_str()).0));
            (places, aliases, at)
        };
        let mut places = places.into_iter().peekable();
        while places.peek().is_some() {
            link.request(Request::Places { places: places.by_ref().take(CHUNK).collect() }, &[]).await?;
        }
        let mut aliases = aliases.into_iter().peekable();
        while aliases.peek().is_some() {
            link.request(Request::Aliases { addresses: aliases.by_ref().take(CHUNK).collect() }, &[]).await?;
        }
        let mut listeners = Vec::with_capacity(at.len());
        for chunk in at.chunks(MAX_FDS) {
            let request = Request::Listen { listeners: chunk.iter().map(|(_, at)| at.clone()).collect() };
            let sockets = link.request(request, &[]).await?;
            if sockets.len() != chunk.len() {
                return Err(io::Error::other("listeners were lost on the way"));
            }
            let pair = |((spec, _), socket): (&(ListenerSpec, ListenAt), _)| ReservedListener {
                spec: spec.clone(),
                socket: TcpListener::from(socket),
            };
            listeners.extend(chunk.iter().zip(sockets).map(pair));
        }
        Ok(Ok(listeners))
    }

    /// Hears of connections that no listener takes. A machine that does not allow it runs trials all the same.
    async fn watch_connections(&self, stage: &Stage, plan: &Plan) -> Option<ConnectionWatch> {
        if !self.isolated {
            return None;
        }
        let socket = match stage.agent.link.request(Request::Watch, &[]).await {
            Ok(mut sockets) => UdpSocket::from(sockets.pop()?),
            Err(error) => {
                tracing::debug!(%error, "connections to undeclared ports are not seen");
                return None;
            }
        };
        let mut addresses = stage.addresses();
        let services = plan.ports.keys().chain(plan.instances.iter().map(|instance| &instance.id.service));
        let host = |service: &ServiceName| (IpAddr::V4(addresses.alias(service.as_str()).0), service.clone());
        Some(ConnectionWatch { socket, hosts: services.map(host).collect() })
    }

    fn listen_outside(
        &self,
        stage: &Stage,
        plan: &Plan,
    ) -> io::Result<Result<Vec<ReservedListener>, PlatformError>> {
        let (mut listeners, mut ports, mut held) = (Vec::new(), Vec::new(), Vec::new());
        let mut open = stage.listeners_of_lives();
        let may_stay = |caller: &InstanceId| {
            plan.instances.iter().any(|instance| instance.id == *caller && instance.reset == Reset::Keep)
        };
        for spec in plan.listeners(true) {
            let is_same = |(of, _): &(ListenerSpec, _)| {
                (&of.caller, &of.callee, of.port) == (&spec.caller, &spec.callee, spec.port)
            };
            let socket = match open.iter().position(is_same) {
                // The same socket, so that the port stays.
                Some(at) => open.swap_remove(at).1,
                None => TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?,
            };
            socket.set_nonblocking(true)?;
            if spec.caller.as_ref().is_some_and(may_stay) {
                held.push((spec.clone(), socket.try_clone()?));
            }
            ports.push((spec.clone(), socket.local_addr()?.port()));
            listeners.push(ReservedListener { spec, socket });
        }
        stage.hold_listeners(held);
        let layout = match Layout::new(plan, &ports, stage.layout().as_deref()) {
            Ok(layout) => layout,
            Err(reason) => return Ok(Err(bad_plan("assign ports", reason))),
        };
        stage.set_layout(layout);
        Ok(Ok(listeners))
    }

    /// Updates the names for kept instances; the mounted file must be written in place.
    fn renew_hosts(&self, stage: &Stage) {
        if !self.isolated {
            return;
        }
        let lives: Vec<_> = stage.lives().values().cloned().collect();
        for life in lives {
            let text = stage.addresses().hosts(&life.plan.id.to_string());
            let _ = std::fs::write(life.own.join("hosts"), text);
        }
    }
}

/// Accepts and drops connections that nobody waits for any more.
pub(crate) fn drain(listener: &TcpListener) {
    while listener.accept().is_ok() {}
}
