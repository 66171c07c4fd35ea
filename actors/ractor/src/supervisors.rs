//! Restarts that wait for a supervisor: until it has been informed of its child's end, the test is not quiet.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use ractor::{ActorCell, ActorId};
use tracing::Span;

/// For every living probed actor, the restarts of its children that it has not handled.
type Waiting = HashMap<ActorId, HashMap<ActorId, Span>>;

fn waiting() -> MutexGuard<'static, Waiting> {
    static WAITING: OnceLock<Mutex<Waiting>> = OnceLock::new();
    WAITING.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
}

/// A living probed actor. Dropping it removes what waits for it, so that nobody waits for a dead supervisor.
pub(crate) struct Listed(ActorId);

impl Listed {
    pub(crate) fn new(actor: ActorId) -> Self {
        waiting().insert(actor, HashMap::new());
        Self(actor)
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        // Closing spans takes other locks, so this one is released first.
        let spans = waiting().remove(&self.0);
        drop(spans);
    }
}

/// Stores the span of a restart for the actor's supervisor, if that is probed.
pub(crate) fn hold(actor: &ActorCell, span: Span) {
    if let Some(supervisor) = actor.try_get_supervisor()
        && let Some(children) = waiting().get_mut(&supervisor.get_id())
    {
        children.insert(actor.get_id(), span);
    }
}

/// The span in which a supervisor handles the end of a child that was restarted.
pub(crate) fn release(supervisor: ActorId, child: ActorId) -> Option<Span> {
    waiting().get_mut(&supervisor)?.remove(&child)
}
