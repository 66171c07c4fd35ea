//! Open files: the tool raises its own limit, and services get the one that the user had.
//!
//! A slot needs a few descriptors for each instance and each listener, more than the usual soft limit of 1024 when
//! an application has some dozens of services. Services must not see the raised limit: programs that call `select`
//! break with descriptors above 1024, and some close every descriptor up to the limit when they start.

use std::fs;
use std::sync::OnceLock;

use faultscope_model::plan::{Plan, Reset};
use faultscope_model::wiring::ListenerSpec;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::NAME;
use crate::{PlatformError, PlatformErrorKind};

/// Descriptors of an instance: its output, the socket of its init, and sockets for calls that come next.
const PER_INSTANCE: u64 = 4;
/// Descriptors for calls in flight, for instances that are just being started, and for the store.
const RESERVE: u64 = 128;

/// The soft limit that this process was started with. A resource limit belongs to the process, and so does this.
static INHERITED: OnceLock<Option<u64>> = OnceLock::new();

/// Raises the soft limit of this process to its hard limit. Call it once, before anything is started.
pub fn raise_limit() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    INHERITED.get_or_init(|| current);
    // Refused only where a filter forbids it; then the check before each start speaks for itself.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// The soft limit for services; none where it was not raised, or where there was none.
pub(crate) fn limit_for_services() -> Option<u64> {
    INHERITED.get().copied().flatten()
}

/// Refuses to start what cannot end well. `counted` is what earlier plans of the slot needed; the answer is what all
/// of them need.
pub(crate) fn check(plan: &Plan, isolated: bool, counted: u64) -> Result<u64, PlatformError> {
    let needed = needed_for(plan, isolated).max(counted);
    let Some(limit) = getrlimit(Resource::Nofile).current else { return Ok(needed) };
    let open = fs::read_dir("/proc/self/fd").map_or(0, |files| files.count() as u64);
    let needed_in_all = open + (needed - counted);
    if needed_in_all <= limit {
        return Ok(needed);
    }
    let kind = PlatformErrorKind::OpenFiles { needed: needed_in_all, limit };
    Err(PlatformError::new(kind, NAME, format!("open files for {} instances", plan.instances.len())))
}

fn needed_for(plan: &Plan, isolated: bool) -> u64 {
    let listeners = if isolated {
        // The test finds each port on `localhost`, too, for both versions of IP.
        plan.listeners(false).len() + 2 * plan.localhost().len()
    } else {
        let may_stay = |spec: &ListenerSpec| {
            plan.instances.iter().any(|i| Some(&i.id) == spec.caller.as_ref() && i.reset == Reset::Keep)
        };
        let all = plan.listeners(true);
        // Those of instances that may be kept are held for the next trial, too.
        all.len() + all.iter().filter(|spec| may_stay(spec)).count()
    };
    listeners as u64 + PER_INSTANCE * plan.instances.len() as u64 + RESERVE
}
