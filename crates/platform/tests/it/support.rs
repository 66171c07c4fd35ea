//! Applications in temporary folders, plans for them, and slots to run them in.

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use faultscope_model::circumstance::Circumstance;
use faultscope_model::plan::{InstancePlan, Limits, Plan, PortPlan, Probe, Readiness, Reset};
use faultscope_model::units::ByteSize;
use faultscope_model::{InstanceId, NodeId, Protocol, SlotId};
use faultscope_platform::{
    Execution, Place, PlatformError, ProcessOptions, ProcessPlatform, Rights, SlotSpec, WantedIsolation,
};

/// Where a test that runs itself as another user puts the program, as that user may not see the build.
pub(crate) const PROGRAM: &str = "FAULTSCOPE_TEST_PROGRAM";

pub(crate) fn program() -> PathBuf {
    std::env::var_os(PROGRAM).map_or_else(|| env!("CARGO_BIN_EXE_faultscope-launch").into(), PathBuf::from)
}

/// Runs a test once more where it may mount: in a user namespace whose root is whoever runs this.
#[track_caller]
pub(crate) fn run_as_root_of_its_own(test: &str) {
    let mut command = std::process::Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount"]).arg(std::env::current_exe().unwrap());
    let output = command.args(["--exact", test, "--nocapture"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

/// Runs a test once more without privileges: as nobody, with programs from a folder that nobody may read.
#[track_caller]
pub(crate) fn run_without_privileges(test: &str) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    let (own, launch) = (folder.path().join("test"), folder.path().join("launch"));
    std::fs::copy(std::env::current_exe().unwrap(), &own).unwrap();
    std::fs::copy(program(), &launch).unwrap();
    // Whoever is not root has none to give up.
    let mut command = if rustix::process::geteuid().is_root() {
        let mut command = std::process::Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(own);
        command
    } else {
        std::process::Command::new(own)
    };
    command.args(["--exact", test, "--nocapture", "--include-ignored"]).current_dir("/");
    let output = command.env("HOME", "/").env(PROGRAM, launch).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

pub(crate) struct App {
    folder: tempfile::TempDir,
}

impl App {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    /// A number no other application of this test run has.
    pub(crate) fn number(&self) -> u32 {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        std::process::id() * 10 + NEXT.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn slot(&self, id: u16) -> SlotSpec {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        SlotSpec {
            id: SlotId(id),
            label: format!("it-{}-{number}", std::process::id()),
            application: self.path().to_owned(),
            state: self.path().join(".faultscope"),
            setup: None,
            template: "1".into(),
            program: program(),
            log_limit: ByteSize(1 << 20),
            authority: None,
            control: None,
            home: None,
            shared: Vec::new(),
        }
    }
}

pub(crate) fn platform(isolation: WantedIsolation) -> ProcessPlatform {
    ProcessPlatform::new(ProcessOptions { isolation, program: program(), state: None }).unwrap()
}

/// `order-2` running the contract's service with these arguments after its port.
pub(crate) fn instance(id: &str, port: u16, orders: &[&str]) -> InstancePlan {
    let mut command = vec![program().display().to_string(), "service".into(), port.to_string()];
    command.extend(orders.iter().map(ToString::to_string));
    InstancePlan {
        entrypoint: None,
        id: id.parse().unwrap(),
        node: NodeId(0),
        command,
        image: None,
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
            within: Duration::from_secs(20),
        },
        durable: Vec::new(),
        stop_within: Duration::from_secs(2),
        mounts: Vec::new(),
        reset: Reset::default(),
        privileged: false,
    }
}

pub(crate) fn shell(id: &str, script: &str, probe: Probe) -> InstancePlan {
    InstancePlan {
        command: vec!["sh".into(), "-c".into(), script.into()],
        ports: Vec::new(),
        ready: Readiness { probe, within: Duration::from_secs(20) },
        ..instance(id, 1, &[])
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

pub(crate) fn run(script: &str) -> Execution {
    Execution {
        command: vec!["sh".into(), "-c".into(), script.into()],
        env: BTreeMap::new(),
        directory: String::new(),
        within: Duration::from_secs(20),
        output_limit: 64 << 10,
        place: Place::Test,
        rights: Rights::Service,
    }
}

pub(crate) fn id(text: &str) -> InstanceId {
    text.parse().unwrap()
}

/// An error with its causes, as people see it.
pub(crate) fn message(error: &PlatformError) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    text
}

/// How many `sleep` processes of this machine carry the mark.
pub(crate) fn processes(mark: &str) -> usize {
    let commands = std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let folder = entry.ok()?.path();
        let state = std::fs::read_to_string(folder.join("stat")).ok()?;
        let alive = !state.rsplit_once(')')?.1.trim_start().starts_with('Z');
        alive.then(|| std::fs::read(folder.join("cmdline")).ok())?
    });
    let wanted = format!("sleep\0{mark}\0");
    commands.filter(|command| command == wanted.as_bytes()).count()
}

/// Waits until so many processes carry the mark.
pub(crate) async fn until_processes(mark: &str, count: usize) {
    let seen = async {
        while processes(mark) != count {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let seen = tokio::time::timeout(Duration::from_secs(20), seen).await;
    assert!(seen.is_ok(), "{} processes rather than {count}", processes(mark));
}
