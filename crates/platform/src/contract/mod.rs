//! The promises every back end keeps; each back end's tests call [`contract`] once.
//!
//! It panics at the first broken promise. Nothing in it sleeps: it waits for what it wants to see, and
//! what must not happen is bounded by a short wait.

mod data;
mod measuring;
mod running;
mod service;

use std::collections::BTreeMap;
use std::time::Duration;

use faultscope_model::circumstance::Circumstance;
use faultscope_model::plan::{InstancePlan, Limits, Plan, PortPlan, Probe, Readiness, Reset};
use faultscope_model::{InstanceId, NodeId, Protocol, SlotId};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

pub use service::service_main;

use crate::{Execution, Isolation, Place, Platform, PlatformErrorKind, Rights, SlotSpec};

/// An application every back end can run, as it wants it.
pub struct ContractApp {
    /// Says how a slot is opened; every call brings a new label.
    pub slot: Box<dyn Fn(SlotId) -> SlotSpec + Send + Sync>,
    /// What runs [`service_main`]; its arguments follow.
    pub service: Vec<String>,
    /// The image it is in, where images are run.
    pub image: Option<String>,
}

/// Checks every promise.
pub async fn contract(platform: &dyn Platform, application: ContractApp) {
    let case = Case { platform, application, slot: SlotId(0) };
    let simulated = platform.capabilities().isolation == Isolation::Simulated;
    platform.open_slot(&(case.application.slot)(case.slot)).await.expect("a slot opens");
    case.counts_only_differences().await;
    case.cancels_at_once().await;
    case.measures_what_instances_use(simulated).await;
    if !simulated {
        case.runs_dials_and_logs().await;
        case.carries_calls_to_listeners().await;
        case.says_why_a_service_died().await;
        case.limits_memory().await;
        case.acts_on_instances().await;
        case.bounds_tests().await;
        case.keeps_durable_data_only().await;
        case.puts_snapshots_back().await;
        case.keeps_slots_apart().await;
    }
    platform.close_slot(case.slot).await.expect("a slot closes");
    assert!(platform.metrics(case.slot).await.is_err(), "a closed slot has nothing to measure");
    platform.reap_orphans().await.expect("reaping works");
}

struct Case<'a> {
    platform: &'a dyn Platform,
    application: ContractApp,
    slot: SlotId,
}

impl Case<'_> {
    /// An instance of the contract's service; `orders` are what it does before it listens.
    fn instance(&self, name: &str, port: u16, orders: &[&str]) -> InstancePlan {
        let mut command = self.application.service.clone();
        command.push("${port}".into());
        command.extend(orders.iter().map(ToString::to_string));
        InstancePlan {
            entrypoint: None,
            id: name.parse().expect("an instance"),
            node: NodeId(0),
            command,
            image: self.application.image.clone(),
            directory: String::new(),
            working_dir: None,
            user: None,
            env: BTreeMap::new(),
            ports: vec![PortPlan { port, protocol: Protocol::Http }],
            calls: Vec::new(),
            after: Vec::new(),
            limits: Limits::default(),
            ready: Readiness {
                probe: Probe::Http { path: "/health".into(), port },
                within: Duration::from_secs(30),
            },
            durable: Vec::new(),
            stop_within: Duration::from_secs(5),
            mounts: Vec::new(),
            reset: Reset::default(),
            privileged: false,
        }
    }

    fn plan(&self, instances: Vec<InstancePlan>, reset: Reset) -> Plan {
        let instances: Vec<_> = instances.into_iter().map(|i| InstancePlan { reset, ..i }).collect();
        let ports = instances.iter().map(|i| (i.id.service.clone(), i.ports.clone())).collect();
        let (aliases, externals) = (BTreeMap::new(), Vec::new());
        Plan {
            circumstance: Circumstance::default(),
            instances,
            ports,
            aliases,
            published: BTreeMap::new(),
            externals,
        }
    }

    fn run(&self, orders: &[&str]) -> Execution {
        let mut command = self.application.service.clone();
        command.push("0".into());
        command.extend(orders.iter().map(ToString::to_string));
        Execution {
            command,
            env: BTreeMap::new(),
            directory: String::new(),
            within: Duration::from_secs(30),
            output_limit: 4096,
            place: Place::Test,
            rights: Rights::Service,
        }
    }

    /// Reserves and applies; the listeners are given back.
    async fn deploy(&self, plan: &Plan) -> (crate::Reservation, crate::Deployment) {
        let reservation = self.platform.reserve(self.slot, plan).await.expect("listeners can be reserved");
        let cancel = CancellationToken::new();
        let deployment = self.platform.apply(self.slot, plan, &cancel).await.expect("the plan is reached");
        assert_eq!(deployment.instances.len(), plan.instances.len(), "all instances run");
        (reservation, deployment)
    }

    async fn fails(&self, plan: &Plan) -> PlatformErrorKind {
        self.platform.reserve(self.slot, plan).await.expect("listeners can be reserved");
        let cancel = CancellationToken::new();
        self.platform.apply(self.slot, plan, &cancel).await.expect_err("the plan cannot be reached").kind
    }

    /// GETs a path of an instance.
    async fn get(
        &self,
        slot: SlotId,
        instance: &InstanceId,
        port: u16,
        path: &str,
    ) -> std::io::Result<String> {
        let stream = self.platform.dial(slot, instance, port).await?;
        get(stream, path).await
    }

    /// 1 -> 6 instances with a memory limit, keeping what can be kept: one goes, six come.
    async fn counts_only_differences(&self) {
        let one = self.plan(vec![self.instance("order-1", 8080, &[])], Reset::Keep);
        let (_, first) = self.deploy(&one).await;
        assert_eq!((first.destroyed, first.created, first.kept), (0, 1, 0));
        let (_, again) = self.deploy(&one).await;
        assert_eq!((again.destroyed, again.created, again.kept), (0, 0, 1), "what fits is kept");
        let limited = |n: u32| {
            let mut instance = self.instance(&format!("order-{n}"), 8080, &[]);
            instance.limits.memory = Some("256MiB".parse().expect("a size"));
            instance
        };
        let (_, six) = self.deploy(&self.plan((1..=6).map(limited).collect(), Reset::Keep)).await;
        assert_eq!(
            (six.destroyed, six.created, six.kept),
            (1, 6, 0),
            "a changed instance is one pair of actions"
        );
        let (_, fresh) = self.deploy(&self.plan((1..=2).map(limited).collect(), Reset::Restart)).await;
        assert_eq!(
            (fresh.destroyed, fresh.created, fresh.kept),
            (6, 2, 0),
            "a restart makes everything anew"
        );
    }

    /// A cancel in the middle of `apply` stops it, and clearing leaves nothing behind.
    async fn cancels_at_once(&self) {
        let mut silent = self.instance("silent-1", 8080, &[]);
        silent.ready.probe = Probe::Log { pattern: "^never$".into() };
        let plan = self.plan(vec![silent, self.instance("order-1", 8081, &[])], Reset::Restart);
        self.platform.reserve(self.slot, &plan).await.expect("listeners can be reserved");
        let cancel = CancellationToken::new();
        let mut events = self.platform.events(self.slot);
        let (result, ()) = tokio::join!(self.platform.apply(self.slot, &plan, &cancel), async {
            // The other one is ready: the middle of the way. A simulation has no such middle.
            if self.platform.capabilities().isolation != Isolation::Simulated {
                let _ = tokio::time::timeout(Duration::from_secs(30), events.recv()).await;
            }
            cancel.cancel();
        });
        assert_eq!(result.expect_err("a cancelled apply fails").kind, PlatformErrorKind::Cancelled);
        self.platform.clear_slot(self.slot).await.expect("a slot can be cleared");
        assert!(self.platform.metrics(self.slot).await.expect("metrics").is_empty(), "nothing is left");
        let (_, after) =
            self.deploy(&self.plan(vec![self.instance("order-1", 8080, &[])], Reset::Keep)).await;
        assert_eq!((after.destroyed, after.created), (0, 1), "a cleared slot starts from nothing");
    }
}

async fn get(mut stream: TcpStream, path: &str) -> std::io::Result<String> {
    let exchange = async {
        stream
            .write_all(format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").as_bytes())
            .await?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await?;
        match text.split_once("\r\n\r\n") {
            Some((head, body)) if head.starts_with("HTTP/1.1 200") => Ok(body.to_owned()),
            _ => Err(std::io::Error::other(text)),
        }
    };
    let late = || std::io::Error::new(std::io::ErrorKind::TimedOut, "no answer");
    tokio::time::timeout(Duration::from_secs(10), exchange).await.map_err(|_| late())?
}
