//! After an outage: waits until everybody is well again, and runs the test once more.
//!
//! "Does it come back by itself?" is what an outage is about. So a test may fail honestly while a service is away, but
//! it must pass when that service is back and its callers had time to notice.

use std::collections::BTreeSet;
use std::time::Duration;

use faultscope_model::outcome::{Ending, TestResult};
use faultscope_model::perturbation::masked_operation;
use faultscope_model::plan::InstancePlan;
use faultscope_model::{ServiceName, Span};
use faultscope_platform::{PlatformEvent, is_ready};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::honest::is_error;
use crate::trial::Live;

/// Between two looks at those who should be well again: short beside the start of a test, long beside a probe.
const PAUSE: Duration = Duration::from_millis(20);

/// The first pause before a test that failed is tried again; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// What a second run of a test shows in the same deployment, without perturbations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Repetition {
    /// Nobody has tried.
    #[default]
    Unknown,
    /// It passes, so it must also pass after an outage.
    Passes,
    /// It fails by what it expects, such as a number of items; errors still show that something is broken.
    Fails,
    /// It gets errors, so these show nothing.
    FailsWithError,
}

/// How long to wait before a test that must pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Patience {
    /// A failure within the time is followed by another attempt, so nothing has to be waited for but probes.
    Repeat,
    /// There is one attempt: callers must have connected again, too.
    Connected,
    /// There is one attempt, and others would be blamed for its failure: the whole time.
    Whole,
}

/// What the test showed when the outage was over.
#[derive(Debug, Default)]
pub(crate) struct RecoveryRun {
    /// Results of the attempt that counts: the last one, or the first of several that fail without an error.
    pub(crate) results: Vec<TestResult>,
    /// Whether a request of the test itself ended in an error in it.
    pub(super) got_error: bool,
}

/// What a recovery run says.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Recovered {
    /// The test passes again, or fails as it does without an outage.
    Works,
    /// It does not work again.
    Broken(TestResult),
    /// It fails without an error. What the first run left half done may explain that.
    Unclear(TestResult),
}

impl Repetition {
    pub(super) fn judge(results: &[TestResult], got_error: bool) -> Self {
        match results.iter().find_map(|result| result.failure.as_ref()) {
            None => Self::Passes,
            Some(failure) if got_error || is_hanging(failure.ending) => Self::FailsWithError,
            Some(_) => Self::Fails,
        }
    }
}

impl RecoveryRun {
    pub(super) fn passed(&self) -> bool {
        self.results.iter().all(|result| result.failure.is_none())
    }

    /// Judges it by whether the first run passed, and by what a second run shows without an outage.
    pub(super) fn judge(&self, first_passed: bool, repetition: Repetition) -> Recovered {
        let Some(failed) = self.results.iter().find(|result| result.failure.is_some()) else {
            return Recovered::Works;
        };
        let ending = failed.failure.as_ref().map(|failure| failure.ending);
        let is_error = self.got_error || ending.is_some_and(is_hanging);
        match (repetition, is_error) {
            (Repetition::FailsWithError, _) | (Repetition::Fails, false) => Recovered::Works,
            (_, true) => Recovered::Broken(failed.clone()),
            // A run that passed leaves what a second run can bear. One that failed may have left half of it.
            (Repetition::Passes, false) if first_passed => Recovered::Broken(failed.clone()),
            (Repetition::Passes | Repetition::Unknown, false) => Recovered::Unclear(failed.clone()),
        }
    }
}

/// Whether a test ended in a way that is no comparison that failed.
fn is_hanging(ending: Ending) -> bool {
    match ending {
        Ending::TimedOut | Ending::Signal(_) | Ending::Ended | Ending::Start(_) => true,
        Ending::Step(_) | Ending::Code(_) | Ending::Case => false,
    }
}

/// Whether a request of the test itself ended in an error that its operation does not end in without perturbations.
pub(super) fn has_error_of_test(spans: &[Span], expected: &BTreeSet<String>) -> bool {
    spans.iter().any(|span| span.caller.is_test() && is_error(span) && !expected.contains(&operation(span)))
}

/// Operations of the test itself that end in an error.
pub(crate) fn failing_operations(spans: &[Span]) -> BTreeSet<String> {
    spans.iter().filter(|span| span.caller.is_test() && is_error(span)).map(operation).collect()
}

fn operation(span: &Span) -> String {
    format!("{} {}", span.callee, masked_operation(&span.method, &span.path))
}

/// Returns when the services that were away or restarted, and those that call them, are well again; at the latest when
/// the time is over.
pub(super) async fn wait_until_well(
    live: &Live<'_>,
    disturbed: &BTreeSet<ServiceName>,
    deadline: Instant,
    patience: Patience,
    ends: &mut EndWatch,
    cancel: &CancellationToken,
) {
    let well = async {
        if patience == Patience::Whole {
            std::future::pending::<()>().await;
        }
        let called = live.mesh().map(|mesh| mesh.called()).unwrap_or_default();
        let callers: BTreeSet<ServiceName> = called
            .into_iter()
            .filter(|(_, callee)| disturbed.contains(callee))
            .map(|(caller, _)| caller)
            .collect();
        let application = live.application();
        let plan = application.plan(&application.simplest, &live.lease.expansion);
        for instance in plan.map(|plan| plan.instances).unwrap_or_default() {
            let service = &instance.id.service;
            if disturbed.contains(service) || callers.contains(service) {
                wait_until_ready(live, &instance, callers.contains(service), patience).await;
            }
        }
        while patience == Patience::Connected && has_lost_connections(live, disturbed) {
            tokio::time::sleep(PAUSE).await;
        }
    };
    tokio::select! {
        () = well => {}
        () = tokio::time::sleep_until(deadline) => {}
        () = ends.until_ended() => {}
        () = cancel.cancelled() => {}
    }
}

/// Notices that an instance has ended by itself. Who is gone does not come back, so nobody waits for it.
pub(super) struct EndWatch {
    events: broadcast::Receiver<PlatformEvent>,
    has_ended: bool,
}

impl EndWatch {
    pub(super) fn new(live: &Live<'_>) -> Self {
        Self { events: live.session.platform.events(live.lease.id()), has_ended: false }
    }

    /// Returns when an instance has ended; never if none does.
    async fn until_ended(&mut self) {
        while !self.has_ended {
            match self.events.recv().await {
                Ok(PlatformEvent::Exited { .. }) => self.has_ended = true,
                Ok(_) | Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => std::future::pending().await,
            }
        }
    }
}

async fn wait_until_ready(live: &Live<'_>, instance: &InstancePlan, is_caller: bool, patience: Patience) {
    loop {
        match is_ready(&*live.session.platform, live.lease.id(), instance).await {
            Some(true) => return,
            Some(false) => tokio::time::sleep(PAUSE).await,
            // Nothing says how it is, so it gets all the time there is, unless another attempt is possible.
            None if is_caller && patience != Patience::Repeat => std::future::pending().await,
            None => return,
        }
    }
}

fn has_lost_connections(live: &Live<'_>, disturbed: &BTreeSet<ServiceName>) -> bool {
    let lost = live.mesh().map(|mesh| mesh.lost_connections()).unwrap_or_default();
    lost.iter().any(|(_, callee)| disturbed.contains(callee))
}

/// The pauses between attempts at a test that must pass before a deadline.
#[derive(Debug)]
pub(super) struct Attempts {
    deadline: Instant,
    pause: Duration,
}

impl Attempts {
    pub(super) fn until(deadline: Instant) -> Self {
        Self { deadline, pause: FIRST_PAUSE }
    }

    /// Waits before the next attempt; false when there is none. The last one begins at the deadline. There is none
    /// when an instance has ended.
    pub(super) async fn next(&mut self, ends: &mut EndWatch, cancel: &CancellationToken) -> bool {
        let now = Instant::now();
        if now >= self.deadline || cancel.is_cancelled() {
            return false;
        }
        let until = self.deadline.min(now + self.pause);
        self.pause *= 2;
        tokio::select! {
            biased;
            () = ends.until_ended() => false,
            () = cancel.cancelled() => false,
            () = tokio::time::sleep_until(until) => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use faultscope_model::outcome::Failure;

    use super::*;

    fn run(failure: Option<Ending>, got_error: bool) -> RecoveryRun {
        let failure = failure.map(|ending| Failure::new(ending, "9 != 8"));
        let (test, took, output) = ("t".to_owned(), Duration::ZERO, String::new());
        RecoveryRun { results: vec![TestResult { test, failure, took, output }], got_error }
    }

    #[test]
    fn what_fails_after_an_outage_is_broken_unless_something_else_explains_it() {
        use Repetition::{Fails, FailsWithError, Passes, Unknown};
        let word = |run: &RecoveryRun, first_passed, repetition| match run.judge(first_passed, repetition) {
            Recovered::Works => "works",
            Recovered::Broken(_) => "broken",
            Recovered::Unclear(_) => "unclear",
        };
        let (passes, differs) = (run(None, false), run(Some(Ending::Step(1)), false));
        let (error, hangs) = (run(Some(Ending::Code(1)), true), run(Some(Ending::TimedOut), false));
        for repetition in [Unknown, Passes, Fails, FailsWithError] {
            assert_eq!(word(&passes, false, repetition), "works");
        }
        for repetition in [Unknown, Passes, Fails] {
            assert_eq!(word(&error, false, repetition), "broken", "{repetition:?}");
            assert_eq!(word(&hangs, false, repetition), "broken", "{repetition:?}");
        }
        assert_eq!(word(&error, true, FailsWithError), "works", "it does so without an outage");
        assert_eq!(word(&differs, true, Passes), "broken");
        assert_eq!(word(&differs, false, Passes), "unclear", "half of the first run may be left");
        assert_eq!(word(&differs, true, Unknown), "unclear");
        assert_eq!(word(&differs, true, Fails), "works", "it does so without an outage");
    }

    #[test]
    fn a_second_run_shows_what_can_be_expected_of_one_after_an_outage() {
        let judge = |run: RecoveryRun| Repetition::judge(&run.results, run.got_error);
        assert_eq!(judge(run(None, true)), Repetition::Passes);
        assert_eq!(judge(run(Some(Ending::Step(2)), false)), Repetition::Fails);
        assert_eq!(judge(run(Some(Ending::Step(2)), true)), Repetition::FailsWithError);
        assert_eq!(judge(run(Some(Ending::TimedOut), false)), Repetition::FailsWithError);
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_attempt_begins_at_the_deadline() {
        let (start, never) = (Instant::now(), CancellationToken::new());
        let mut ends = EndWatch { events: broadcast::channel(1).1, has_ended: false };
        let mut attempts = Attempts::until(start + Duration::from_secs(1));
        let mut began = Vec::new();
        while attempts.next(&mut ends, &never).await {
            began.push(start.elapsed().as_millis());
        }
        assert_eq!(began, [100, 300, 700, 1000]);
        let mut attempts = Attempts::until(Instant::now() + Duration::from_secs(1));
        ends.has_ended = true;
        assert!(!attempts.next(&mut ends, &never).await, "who has ended does not come back");
    }
}
