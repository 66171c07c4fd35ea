//! An engine, an image made from scratch, slots and plans.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use faultscope_model::SlotId;
use faultscope_model::units::ByteSize;
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
            control: None,
        }
    }
}

pub(crate) async fn platform() -> DockerPlatform {
    DockerPlatform::connect(DockerOptions::default()).await.expect("an engine, by DOCKER_HOST")
}
