//! Instances that ended by themselves during a trial, from events of the platform.

use std::time::Duration;

use faultscope_model::ExitReason;
use faultscope_model::run::InstanceExit;
use faultscope_platform::PlatformEvent;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};

/// How long after its connections broke the end of an instance may stay unknown.
const EXIT_WITHIN: Duration = Duration::from_millis(500);

/// Waits a moment for the end of an instance: its connections break before its end is known.
pub(super) async fn wait(happenings: &mut Receiver<PlatformEvent>, exits: &mut Vec<InstanceExit>) {
    let before = exits.len();
    let news = async {
        while exits.len() == before {
            match happenings.recv().await {
                Ok(event) => note(event, exits),
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return,
            }
        }
    };
    let _ = tokio::time::timeout(EXIT_WITHIN, news).await;
}

/// Handles all events that have arrived.
pub(super) fn collect(happenings: &mut Receiver<PlatformEvent>, exits: &mut Vec<InstanceExit>) {
    loop {
        match happenings.try_recv() {
            Ok(event) => note(event, exits),
            Err(TryRecvError::Lagged(_)) => {}
            Err(_) => return,
        }
    }
}

/// Handles one event.
pub(super) fn note(event: PlatformEvent, exits: &mut Vec<InstanceExit>) {
    let exit = match event {
        PlatformEvent::Exited { instance, code, signal, out_of_memory } => {
            if out_of_memory {
                // The kill was reported before its victim had ended.
                exits.retain(|exit| exit.instance != instance || exit.reason != ExitReason::ChildOutOfMemory);
            }
            let reason = match (out_of_memory, code, signal) {
                (true, ..) => ExitReason::OutOfMemory,
                (_, Some(code), _) => ExitReason::Exited { code },
                (_, _, Some(signal)) => ExitReason::Signalled { signal },
                _ => ExitReason::Ended,
            };
            InstanceExit { instance, reason, start: None, is_cut: false }
        }
        PlatformEvent::OutOfMemory { instance } => {
            InstanceExit { instance, reason: ExitReason::ChildOutOfMemory, start: None, is_cut: false }
        }
        PlatformEvent::OutOfDisk { instance, limit } => {
            let reason = ExitReason::OutOfDisk { limit };
            InstanceExit { instance, reason, start: None, is_cut: false }
        }
        PlatformEvent::Ready { .. } => return,
    };
    // An instance that did not become ready has been recorded with its reason.
    let is_known = |known: &InstanceExit| {
        known.instance == exit.instance && (known.start.is_some() || known.reason == exit.reason)
    };
    if !exits.iter().any(is_known) {
        exits.push(exit);
    }
}

#[cfg(test)]
mod tests {
    use faultscope_model::InstanceId;

    use super::*;

    #[test]
    fn an_early_kill_is_reported_once() {
        let instance: InstanceId = InstanceId::new("back".parse().unwrap(), 1);
        let mut exits = Vec::new();
        note(PlatformEvent::OutOfMemory { instance: instance.clone() }, &mut exits);
        let (code, signal) = (None, Some(9));
        note(
            PlatformEvent::Exited { instance: instance.clone(), code, signal, out_of_memory: true },
            &mut exits,
        );
        assert_eq!(
            exits,
            [InstanceExit { instance, reason: ExitReason::OutOfMemory, start: None, is_cut: false }]
        );
    }
}
