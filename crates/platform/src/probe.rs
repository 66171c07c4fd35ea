//! Asks a running instance whether it is ready, on any back end.

use std::io;

use async_trait::async_trait;
use faultscope_model::plan::{InstancePlan, Probe};
use faultscope_model::{InstanceId, SlotId};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use crate::readiness::{ONE_ATTEMPT, Reach, try_probe};
use crate::{Execution, Place, Platform, Rights};

/// Bytes of the output of a probe's command that are read: nobody looks at them.
const OUTPUT_LIMIT: usize = 1 << 10;

/// Runs the probe of an instance that was ready before, once. Says nothing for one whose probe cannot be repeated: that
/// it has been started, or has printed a line, does not tell how it is now.
pub async fn is_ready(platform: &dyn Platform, slot: SlotId, instance: &InstancePlan) -> Option<bool> {
    let probe = &instance.ready.probe;
    if matches!(probe, Probe::Started | Probe::Log { .. }) {
        return None;
    }
    let running = Running { platform, slot, plan: instance };
    let answered = tokio::time::timeout(ONE_ATTEMPT, try_probe(probe, &running)).await;
    Some(matches!(answered, Ok(Ok(()))))
}

/// An instance, reached through its platform.
struct Running<'a> {
    platform: &'a dyn Platform,
    slot: SlotId,
    plan: &'a InstancePlan,
}

#[async_trait]
impl Reach for Running<'_> {
    async fn connect(&self, port: u16) -> io::Result<TcpStream> {
        self.platform.dial(self.slot, &self.plan.id, port).await
    }

    async fn run(&self, command: &[String]) -> io::Result<bool> {
        let run = Execution {
            command: command.to_vec(),
            env: Default::default(),
            directory: self.plan.directory.clone(),
            within: ONE_ATTEMPT,
            output_limit: OUTPUT_LIMIT,
            place: Place::Instance(InstanceId::clone(&self.plan.id)),
            rights: Rights::Service,
        };
        let exit = self.platform.exec(self.slot, &run, &CancellationToken::new()).await;
        exit.map(|exit| exit.code == Some(0)).map_err(io::Error::other)
    }

    async fn printed(&self, _pattern: &str) -> io::Result<()> {
        Ok(())
    }
}
