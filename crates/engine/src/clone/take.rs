//! Takes a clone of a running application: hooks first, then all data at one moment, then the manifest.

use std::time::Duration;

use faultscope_model::application::CloneHook;
use faultscope_model::plan::InstancePlan;
use faultscope_model::{Circumstance, Treatment};
use faultscope_platform::{Execution, Exit, Place, Rights};
use futures_util::future::join_all;
use tokio_util::sync::CancellationToken;

use super::error::CloneError;
use super::manifest::{CloneTrigger, FORMAT, InstanceState, Manifest, MemoryState};
use super::shelf::{CloneShelf, StoredClone};
use crate::error::EngineError;
use crate::session::{files_digest, now_us};
use crate::trial::Live;

/// What is kept of a hook's output; its last line explains why it failed.
const HOOK_OUTPUT: usize = 4 << 10;
/// The longest reason that is stored.
const MAX_REASON: usize = 200;

/// Takes a clone of everything that is up.
pub(super) async fn take_clone(
    live: &Live<'_>,
    shelf: &CloneShelf,
    trigger: CloneTrigger,
    name: Option<String>,
    (treatment, circumstance): (Treatment, Circumstance),
) -> Result<StoredClone, CloneError> {
    let session = live.session;
    let plan = session.application.plan(&circumstance, &live.lease.expansion).map_err(EngineError::from)?;
    let (own, root) = (shelf.clone(), session.options.root.clone());
    let blocking =
        tokio::task::spawn_blocking(move || Ok::<_, CloneError>((own.begin()?, files_digest(&root))));
    let (draft, source) = blocking.await.map_err(|e| EngineError::Internal(e.to_string()))??;
    let instances = join_all(plan.instances.iter().map(|instance| prepare(live, instance))).await;
    let taken_us = now_us();
    let snapshot = session.platform.snapshot(live.lease.id(), &draft.data()).await?;
    let kernel = rustix::system::uname().release().to_string_lossy().into_owned();
    let manifest = Manifest {
        format: FORMAT,
        id: shelf.unused_id(taken_us),
        name,
        application: session.application.name.clone(),
        tool: env!("CARGO_PKG_VERSION").into(),
        kernel,
        campaign: session.id().clone(),
        taken_us,
        trigger,
        treatment,
        circumstance,
        plan,
        program: live.lease.expansion.program.clone(),
        source,
        left_out: Vec::new(),
        instances,
        snapshot,
    };
    let own = shelf.clone();
    let finish = tokio::task::spawn_blocking(move || own.finish(draft, &manifest));
    finish.await.map_err(|e| EngineError::Internal(e.to_string()))?
}

/// Lets an instance write what it has in memory to its data.
async fn prepare(live: &Live<'_>, instance: &InstancePlan) -> InstanceState {
    let service = live.application().services.get(&instance.id.service);
    let memory = match service.and_then(|service| service.before_clone.as_ref()) {
        None => MemoryState::NotKept,
        Some(hook) => run_hook(live, instance, hook).await,
    };
    InstanceState { id: instance.id.clone(), memory }
}

async fn run_hook(live: &Live<'_>, instance: &InstancePlan, hook: &CloneHook) -> MemoryState {
    let CloneHook { command, within } = hook.clone();
    let run = Execution {
        command: command.clone(),
        env: instance.env.clone(),
        directory: instance.directory.clone(),
        within,
        output_limit: HOOK_OUTPUT,
        place: Place::Instance(instance.id.clone()),
        rights: Rights::Service,
    };
    let done = live.session.platform.exec(live.lease.id(), &run, &CancellationToken::new()).await;
    match done {
        Ok(Exit { code: Some(0), timed_out: false, took, .. }) => MemoryState::Hook { command, took },
        Ok(exit) => MemoryState::HookFailed { command, reason: explain(&exit, within) },
        Err(error) => {
            let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
            let reason = format!("{error}{}", cause.unwrap_or_default());
            MemoryState::HookFailed { command, reason: shorten(&reason) }
        }
    }
}

fn explain(exit: &Exit, within: Duration) -> String {
    if exit.timed_out {
        return format!("it took longer than {}", faultscope_model::units::show_duration(within));
    }
    let how = match (exit.code, exit.signal) {
        (Some(code), _) => format!("it exited with {code}"),
        (None, Some(signal)) => format!("signal {signal} ended it"),
        (None, None) => "it ended".to_owned(),
    };
    let last = exit.stderr.lines().chain(exit.stdout.lines()).rfind(|line| !line.trim().is_empty());
    shorten(&last.map_or(how.clone(), |line| format!("{how}: {line}")))
}

fn shorten(text: &str) -> String {
    text.chars().take(MAX_REASON).collect()
}
