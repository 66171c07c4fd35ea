//! An engine, an image made from scratch, slots and plans.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use faultscope_model::circumstance::Circumstance;
use faultscope_model::plan::{InstancePlan, Limits, Plan, PortPlan, Probe, Readiness, Reset};
use faultscope_model::units::ByteSize;
use faultscope_model::{NodeId, Protocol, SlotId};
use faultscope_platform::{DockerOptions, DockerPlatform, SlotSpec};

/// The image that `./test.sh docker` builds: busybox and this crate's test program, nothing else.
pub(crate) const IMAGE: &str = "faultscope-test";
/// The test program in it.
pub(crate) const SERVICE: [&str; 2] = ["/faultscope-launch", "service"];

pub(crate) struct App {
    folder: tempfile::TempDir,
}

impl App {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn slot(&self, id: u16) -> SlotSpec {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        SlotSpec {
            id: SlotId(id),
            label: format!("it-{}-{number}", std::process::id()),
            application: self.folder.path().to_owned(),
            state: self.folder.path().join(".faultscope"),
            setup: None,
            template: "1".into(),
            program: PathBuf::from(env!("CARGO_BIN_EXE_faultscope-launch")),
            log_limit: ByteSize(1 << 20),
            authority: None,
            control: None,
            home: None,
            shared: Vec::new(),
        }
    }
}

pub(crate) async fn platform() -> DockerPlatform {
    DockerPlatform::connect(DockerOptions::default()).await.expect("an engine, by DOCKER_HOST")
}

/// An instance of the contract's service.
pub(crate) fn instance(id: &str, port: u16) -> InstancePlan {
    InstancePlan {
        entrypoint: None,
        id: id.parse().unwrap(),
        node: NodeId(0),
        command: SERVICE.map(String::from).into_iter().chain([port.to_string()]).collect(),
        image: Some(IMAGE.into()),
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
        stop_within: Duration::from_secs(2),
        mounts: Vec::new(),
        reset: Reset::default(),
        privileged: false,
    }
}

pub(crate) fn plan(instances: Vec<InstancePlan>, reset: Reset) -> Plan {
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
