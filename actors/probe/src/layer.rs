//! The spans that travel with messages: what each stands for, and how many are open.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use faultscope_probe_format::TargetId;
use tracing::span::Id;
use tracing::{Metadata, Span, Subscriber};
use tracing_subscriber::filter::FilterFn;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, filter};

use crate::{ProbeError, Shared};

/// The target of the probe's own spans.
const TARGET: &str = "faultscope";

/// The span in which kameo handles a message; it follows from the one that the adapter passed.
const KAMEO: &str = "actor.handle_message";

/// What a span stands for: a turn of an actor, or the test.
#[derive(Clone)]
pub(crate) struct Origin {
    pub(crate) probe: Weak<Shared>,
    pub(crate) turn: Option<u64>,
    pub(crate) target: TargetId,
    pub(crate) actor: Option<String>,
}

impl Origin {
    pub(crate) fn is_of(&self, probe: &std::sync::Arc<Shared>) -> bool {
        self.probe.as_ptr() == std::sync::Arc::as_ptr(probe)
    }
}

/// The open spans of all probes of the process: a span has no room for more than its number.
fn spans() -> MutexGuard<'static, HashMap<u64, Origin>> {
    static SPANS: OnceLock<Mutex<HashMap<u64, Origin>>> = OnceLock::new();
    SPANS.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn origin(id: Option<&Id>) -> Option<Origin> {
    spans().get(&id?.into_u64()).cloned()
}

fn opened(id: u64, origin: Origin) {
    if let Some(probe) = origin.probe.upgrade() {
        spans().insert(id, origin);
        probe.open.send_modify(|open| *open += 1);
    }
}

/// Opens a span; it is closed when the last message that was sent in it has been handled.
pub(crate) fn open(origin: Origin) -> Span {
    let span = tracing::info_span!(target: TARGET, parent: None, "turn");
    if let Some(id) = span.id() {
        opened(id.into_u64(), origin);
    }
    span
}

struct Watch;

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Watch {
    fn on_follows_from(&self, span: &Id, follows: &Id, _: Context<'_, S>) {
        let known = spans().contains_key(&span.into_u64());
        if let Some(origin) = origin(Some(follows)).filter(|_| !known) {
            opened(span.into_u64(), origin);
        }
    }

    fn on_close(&self, id: Id, _: Context<'_, S>) {
        let closed = spans().remove(&id.into_u64());
        if let Some(probe) = closed.and_then(|origin| origin.probe.upgrade()) {
            probe.open.send_modify(|open| *open -= 1);
        }
    }
}

/// The layer that a test with its own tracing subscriber has to add to it.
///
/// ```no_run
/// use tracing_subscriber::prelude::*;
/// tracing_subscriber::registry().with(faultscope_probe::layer()).with(tracing_subscriber::fmt::layer()).init();
/// ```
pub fn layer<S: Subscriber + for<'a> LookupSpan<'a>>() -> impl Layer<S> {
    let wanted: FilterFn = filter::filter_fn(is_wanted as fn(&Metadata<'_>) -> bool);
    Watch.with_filter(wanted)
}

fn is_wanted(metadata: &Metadata<'_>) -> bool {
    metadata.is_span() && (metadata.target() == TARGET || metadata.name() == KAMEO)
}

/// Installs a subscriber unless the test has one.
pub(crate) fn install() -> Result<(), ProbeError> {
    static INSTALLED: OnceLock<bool> = OnceLock::new();
    let seen = INSTALLED.get_or_init(|| {
        // Has no effect if the test has its own subscriber.
        let _ = tracing_subscriber::registry().with(layer()).try_init();
        // A span that the layer does not see stays in the list after its end.
        let span = tracing::info_span!(target: TARGET, parent: None, "check");
        let Some(id) = span.id().map(|id| id.into_u64()) else {
            return false;
        };
        let (probe, target) = (Weak::new(), TargetId::root());
        spans().insert(id, Origin { probe, turn: None, target, actor: None });
        drop(span);
        spans().remove(&id).is_none()
    });
    if *seen { Ok(()) } else { Err(ProbeError::Subscriber) }
}
