//! The result of a resilience campaign, with everything that every display of it would compute.

use faultscope_model::outcome::Unresolved;
use serde::Serialize;

use faultscope_model::units::{count, show_duration};
use faultscope_model::wiring::OutageMode;

use crate::resilience::{
    Finding, OutageResult, ResilienceReport, SetsTried, Shown, SkipReason, Skipped, TestReport, TraceStep,
    UnresolvedTrials, Verdict,
};

/// A resilience report, prepared for display.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ResilienceView<'r> {
    /// The report itself.
    pub report: &'r ResilienceReport,
    /// Number of defects of all tests.
    pub defects: usize,
    /// Number of trials of all tests.
    pub trials: usize,
    /// The tests, in order.
    pub tests: Vec<TestView<'r>>,
}

/// A test, prepared for display.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TestView<'r> {
    /// The report of the test.
    pub test: &'r TestReport,
    /// Why trials could not be judged and how many, except for perturbations that had no effect in any trial:
    /// those are listed separately.
    pub unresolved: Vec<&'r UnresolvedTrials>,
}

impl<'r> ResilienceView<'r> {
    /// Prepares a report.
    pub fn new(report: &'r ResilienceReport) -> Self {
        Self {
            report,
            defects: report.tests.iter().map(|test| test.defects.len()).sum(),
            trials: report.tests.iter().map(|test| test.trials.all()).sum(),
            tests: report.tests.iter().map(TestView::new).collect(),
        }
    }
}

impl<'r> TestView<'r> {
    /// Prepares the report of one test.
    pub fn new(test: &'r TestReport) -> Self {
        // Perturbations that had no effect have their own list.
        let is_listed = |reason: &Unresolved| match reason {
            Unresolved::NotApplied { perturbation, .. } => {
                test.missed.iter().any(|missed| missed.perturbation == *perturbation)
            }
            _ => false,
        };
        let unresolved = test.unresolved.iter().filter(|unresolved| !is_listed(&unresolved.reason));
        Self { test, unresolved: unresolved.collect() }
    }
}

/// How a test ended, in a few words.
pub fn describe_verdict(test: &TestReport) -> String {
    let defects = count(test.defects.len(), "defect");
    let tally = &test.tally;
    match &test.verdict {
        Verdict::Clean if tally.passed == 0 && tally.degraded > 0 => {
            format!("no defect found, but every perturbation degraded the test: {tally}")
        }
        Verdict::Clean => format!("no defect found: {tally}"),
        Verdict::Defects => format!("{defects}: {tally}"),
        Verdict::FailsAlready => "fails without any perturbation".into(),
        Verdict::NothingToPerturb => "nothing to perturb".into(),
        Verdict::Unresolved { reason } => format!("unresolved: {reason}"),
        Verdict::Stopped => format!("stopped before everything was tried, {defects} so far: {tally}"),
        Verdict::OutOfBudget => format!("the budget was used up, {defects} so far: {tally}"),
    }
}

/// Why something was not tried, and what would change that.
pub fn describe_skipped(skipped: &Skipped) -> String {
    let number = skipped.number;
    let names = match skipped.names.as_slice() {
        [] => String::new(),
        names if skipped.unnamed > 0 => format!(": {} and {} more", names.join(", "), skipped.unnamed),
        names => format!(": {}", names.join(", ")),
    };
    let what = match skipped.why {
        SkipReason::NoDelivery => format!(
            "{} not repeated, because no `delivery` is declared (--all-deliveries repeats all)",
            count(number, "request")
        ),
        SkipReason::NotDurable => {
            format!("{} of services without `durable` (--all-restarts)", count(number, "restart"))
        }
        SkipReason::NotHttp => {
            format!("requests on {} of another protocol than HTTP", count(number, "connection"))
        }
        SkipReason::NoCalls => format!("{} that the test does not call", count(number, "service")),
        SkipReason::UnknownCause => format!(
            "{} of unknown cause: made without trace context, while no request or several were handled, by",
            count(number, "call")
        ),
        SkipReason::Unstable => format!("{} that not every unperturbed run makes", count(number, "call")),
        SkipReason::OutOfBudget => {
            format!("{}, because the budget was used up", count(number, "perturbation"))
        }
        SkipReason::Stopped => format!("{}, because it was stopped", count(number, "perturbation")),
        SkipReason::Strategy => {
            format!("{}, because the strategy ends with its first defect", count(number, "perturbation"))
        }
    };
    match skipped.why {
        SkipReason::UnknownCause => format!("{what}{}", names.trim_start_matches(':')),
        _ => format!("{what}{names}"),
    }
}

/// How far errors, lost answers and the like were tried; none where there were none.
pub fn describe_sets(sets: &[SetsTried]) -> Option<String> {
    let [single, larger @ ..] = sets else { return None };
    let mut text = match single.left {
        0 => "all single perturbations done".to_owned(),
        left => format!("{} of {} single perturbations tried", single.tried, single.tried + left),
    };
    if larger.is_empty() && single.left == 0 {
        text += "; pairs of errors and lost answers were not tried (--together 2)";
    }
    for SetsTried { size, tried, pruned, left } in larger {
        let what = if *size == 2 { "pairs".to_owned() } else { format!("sets of {size}") };
        text += &match left {
            0 => format!("; all {what} done: {tried} tried"),
            left => format!("; {tried} of {} {what} tried", tried + left),
        };
        if *pruned > 0 {
            text += &format!(", {pruned} left out because no service would see anything new");
        }
    }
    Some(text)
}

/// What was noticed beside defects.
pub fn describe_finding(finding: &Finding) -> String {
    match finding {
        Finding::AnswerDiffers { target, status: [first, second], fields, .. } if fields.is_empty() => {
            format!("{target} arrived twice and was answered {first}, then {second}")
        }
        Finding::AnswerDiffers { target, fields, .. } => {
            format!("{target} arrived twice and was answered differently: {}", fields.join(", "))
        }
        Finding::FailsAfterOutage { perturbation, message, .. } => format!(
            "the test still fails after {perturbation}, without an error; what its interrupted run left may be why: \
             {message}"
        ),
    }
}

/// What an outage did: who was away, how, when, for how long, and how the test took it.
pub fn describe_outage(result: &OutageResult) -> String {
    let OutageResult { outage, shown, run } = result;
    let how = match (outage.how, outage.accepted) {
        (OutageMode::Refuse, true) => "accept and reset, as this platform cannot refuse",
        (how, _) => how.word(),
    };
    let when = if outage.perturbation.target.any_call_number().is_none() { ", before the test" } else { "" };
    let lasted = show_duration(outage.lasted);
    let after = outage.recovered_after.map(show_duration);
    let then = match (shown, after) {
        (Shown::Passed, Some(after)) => format!("passed, also {after} after it"),
        (Shown::Degraded, Some(after)) => format!("degraded, and passed {after} after it"),
        (Shown::Passed, None) => "passed".to_owned(),
        (Shown::Degraded, None) => "degraded".to_owned(),
        (Shown::Failed, _) => "broke the test".to_owned(),
    };
    format!("{} ({how} for {lasted}{when}): {then} ({run})", outage.perturbation)
}

/// The trials of a test and what they were for.
pub fn describe_trials(test: &TestReport) -> String {
    let trials = &test.trials;
    let split = [
        (trials.baseline, "without perturbations"),
        (trials.neutral, "with perturbations that must not change anything"),
        (trials.changing, "with errors, lost answers or outages, which may change an answer"),
        (trials.confirming, "to confirm"),
    ];
    let split: Vec<_> = split.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect();
    let mut text = format!("{} in {}", count(trials.all(), "trial"), show_duration(test.took));
    if !split.is_empty() {
        text += &format!(": {}", split.join(", "));
    }
    let aside =
        [(trials.unresolved, "could not be judged"), (trials.earlier, "from before the interruption")];
    let aside: Vec<_> = aside.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect();
    if !aside.is_empty() {
        text += &format!(" ({})", aside.join(", "));
    }
    text
}

/// Microseconds from the start of a failing trace to the end of its last step; 0 for messages, which have no times.
pub fn trace_length_us(steps: &[TraceStep]) -> u64 {
    steps.iter().map(|step| step.start_us + step.took_us).max().unwrap_or_default()
}
