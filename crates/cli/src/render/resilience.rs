//! The result of a resilience campaign, on the terminal and as JUnit XML.

use std::fmt::Write as _;
use std::time::Duration;

use faultscope_engine::resilience::{
    Defect, ResilienceReport, TestReport, TraceStep, UnresolvedTrials, Verdict,
};
use faultscope_engine::views::{
    ResilienceView, TestView, describe_finding, describe_outage, describe_sets, describe_skipped,
    describe_trials, describe_verdict, trace_length_us,
};
use faultscope_model::perturbation::Perturbation;
use faultscope_model::units::{count, show_duration};

use super::report::escape;
use super::waterfall::plain;
use crate::printer::Printer;

/// Characters of the time bar.
const BAR: u64 = 24;

/// The most steps of a trace that are shown around the perturbations.
const MAX_STEPS: usize = 40;

/// The most skipped perturbations that are listed.
const MAX_MISSED: usize = 5;

/// The most outages that are listed.
const MAX_OUTAGES: usize = 12;

/// The most alternatives of a defect that are listed.
const MAX_ALSO: usize = 8;

/// One test: its defects, and its trials.
pub(crate) fn test(test: &TestReport, printer: &Printer) {
    let words = plain(&describe_verdict(test));
    let verdict = match &test.verdict {
        Verdict::Clean if test.tally.degraded + test.tally.unclear + test.tally.not_applied == 0 => {
            printer.good(&words)
        }
        Verdict::Defects | Verdict::FailsAlready | Verdict::Unresolved { .. } => printer.bad(&words),
        Verdict::Clean | Verdict::NothingToPerturb | Verdict::Stopped | Verdict::OutOfBudget => words,
    };
    printer.line(format!("{}: {verdict}", printer.strong(&test.test)));
    if let Some(signature) = &test.signature {
        // An invariant or a case of a suite has its own name.
        let name = if signature.test == test.test { String::new() } else { format!("{}: ", signature.test) };
        printer.line(format!("  {}{}: {}", plain(&name), signature.ending, plain(&signature.message)));
    }
    for (number, defect) in (1..).zip(&test.defects) {
        show(defect, number, printer);
    }
    for missed in test.missed.iter().take(MAX_MISSED) {
        printer.line(format!("  not applied: {} ({})", missed.perturbation, missed.why));
    }
    if test.missed.len() > MAX_MISSED {
        printer.line(format!("  not applied: {} more", test.missed.len() - MAX_MISSED));
    }
    for UnresolvedTrials { reason, trials } in TestView::new(test).unresolved.into_iter().take(MAX_MISSED) {
        printer.line(format!(
            "  unresolved: {} ({trials} of {} trials)",
            plain(&reason.to_string()),
            test.trials.all()
        ));
    }
    if let Some(flaky) = test.flaky {
        printer.line(format!(
            "  It is flaky without perturbations ({} of {}): failing trials were repeated {}",
            flaky.failed,
            count(flaky.tried, "run"),
            count(flaky.must_fail, "time")
        ));
    }
    // Those that broke the test come first: the list may be long.
    let mut outages: Vec<_> = test.outages.iter().collect();
    outages.sort_by_key(|outage| std::cmp::Reverse(outage.shown));
    for outage in outages.iter().take(MAX_OUTAGES) {
        printer.line(format!("  {}", plain(&describe_outage(outage))));
    }
    if outages.len() > MAX_OUTAGES {
        printer.line(format!(
            "  {} more outages, in the other forms of this report",
            outages.len() - MAX_OUTAGES
        ));
    }
    for finding in &test.findings {
        printer.line(format!("  finding, not counted as a defect: {}", plain(&describe_finding(finding))));
    }
    for skipped in &test.skipped {
        printer.line(format!("  never tried: {}", plain(&describe_skipped(skipped))));
    }
    if let Some(sets) = describe_sets(&test.sets) {
        printer.line(format!("  {sets}"));
    }
    for note in &test.notes {
        printer.line(format!("  {note}"));
    }
    printer.line(printer.dim(&format!("  {}", cost(test))));
}

fn defects(test: &TestReport) -> String {
    count(test.defects.len(), "defect")
}

fn cost(test: &TestReport) -> String {
    let mut parts = Vec::new();
    // The calls of a test that fails already were not counted.
    if test.seen > 0 || !matches!(test.verdict, Verdict::FailsAlready | Verdict::Unresolved { .. }) {
        parts.push(format!("{} seen", count(test.seen, "call")));
    }
    parts.push(describe_trials(test));
    parts.join("; ")
}

fn show(defect: &Defect, number: usize, printer: &Printer) {
    let together = if defect.perturbations.len() > 1 { ", only together" } else { "" };
    printer.line(format!("  {}{together}:", printer.strong(&format!("defect {number}"))));
    for perturbation in &defect.perturbations {
        let kind = format!("{:<11}", perturbation.kind);
        printer.line(format!("    {} {}", printer.bad(&kind), plain(&perturbation.target.to_string())));
    }
    for also in defect.also.iter().take(MAX_ALSO) {
        printer.line(format!("    also: {}", plain(&named(also))));
    }
    if defect.also.len() > MAX_ALSO {
        printer.line(format!("    also: {} more", defect.also.len() - MAX_ALSO));
    }
    if let Some(signature) = &defect.signature {
        let what = if defect.invariant { "invariant " } else { "" };
        let message = signature.message.lines().map(plain).collect::<Vec<_>>().join("\n      ");
        printer.line(format!("    {what}{}: {}: {message}", signature.test, signature.ending));
    }
    if let Some(location) = &defect.location {
        printer.line(format!("    at {location}"));
    }
    for exit in &defect.exits {
        printer.line(format!("    {}", plain(exit)));
    }
    trace(&defect.trace, printer);
    if let Some(run) = &defect.run {
        printer.line(printer.dim(&format!("    failing run: {run}")));
    }
    if let Some(command) = &defect.reproduce {
        printer.line(format!("    reproduce with `{command}`"));
    }
}

fn named(perturbations: &[Perturbation]) -> String {
    perturbations.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ")
}

/// The calls of a failing run, with the perturbations marked.
fn trace(steps: &[TraceStep], printer: &Printer) {
    let whole = trace_length_us(steps);
    let first = steps.iter().position(|step| !step.marks.is_empty()).unwrap_or_default();
    let from = first.saturating_sub(MAX_STEPS / 2).min(steps.len().saturating_sub(MAX_STEPS));
    let shown = &steps[from..steps.len().min(from + MAX_STEPS)];
    let label = |step: &TraceStep| {
        let text = format!("{}{} {}", "  ".repeat(step.depth.min(20)), step.receiver, step.operation);
        plain(&text).chars().take(80).collect::<String>()
    };
    let widest = shown.iter().map(|step| label(step).chars().count()).max().unwrap_or_default();
    if from > 0 {
        printer.line(printer.dim(&format!("      {from} steps before")));
    }
    for step in shown {
        let mark = if step.marks.is_empty() { " " } else { ">" };
        let done = match step.marks.as_slice() {
            [] => String::new(),
            marks => printer.bad(&format!("  <- {}", marks.join(", "))),
        };
        let time = if whole == 0 {
            String::new()
        } else {
            let took = show_duration(Duration::from_micros(step.took_us));
            format!("  {took:>8}  {} {}", bar(step, whole), plain(&step.ending))
        };
        let line = format!("    {mark} {:<widest$}{time}", label(step));
        printer.line(format!("{}{done}", line.trim_end()));
    }
    if from + shown.len() < steps.len() {
        printer.line(printer.dim(&format!("      {} steps after", steps.len() - from - shown.len())));
    }
}

fn bar(step: &TraceStep, whole: u64) -> String {
    let place = |us: u64| (us * BAR / whole.max(1)).min(BAR) as usize;
    let from = place(step.start_us).min(BAR as usize - 1);
    let to = place(step.start_us + step.took_us).max(from + 1);
    format!("{}{}{}", " ".repeat(from), "▬".repeat(to - from), " ".repeat(BAR as usize - to))
}

/// What was done and what was not, line by line.
fn facts(test: &TestReport) -> Vec<String> {
    let mut lines = vec![describe_verdict(test)];
    lines.extend(test.missed.iter().map(|m| format!("not applied: {} ({})", m.perturbation, m.why)));
    lines.extend(test.outages.iter().map(describe_outage));
    lines.extend(
        test.findings.iter().map(|f| format!("finding, not counted as a defect: {}", describe_finding(f))),
    );
    lines.extend(test.skipped.iter().map(|s| format!("never tried: {}", describe_skipped(s))));
    lines.extend(describe_sets(&test.sets));
    lines.extend(test.notes.iter().cloned());
    lines.push(describe_trials(test));
    lines
}

/// The report as Markdown.
pub(crate) fn markdown(report: &ResilienceReport) -> String {
    let view = ResilienceView::new(report);
    let mut text = format!("# Resilience of {}\n\n{}.\n\n", report.application, report.summary());
    text +=
        "| test | carried out | passed | degraded | broke the test | unclear | not applied | never tried |\n";
    text += "|---|---|---|---|---|---|---|---|\n";
    for test in &report.tests {
        let t = &test.tally;
        let numbers =
            [t.carried_out(), t.passed, t.degraded, t.broke, t.unclear, t.not_applied, t.never_tried];
        let numbers: Vec<String> = numbers.iter().map(ToString::to_string).collect();
        let _ = writeln!(text, "| {} | {} |", in_cell(&test.test), numbers.join(" | "));
    }
    for test in &report.not_begun {
        let _ = writeln!(text, "| {} | not begun | | | | | | |", in_cell(test));
    }
    for TestView { test, .. } in &view.tests {
        let _ = write!(text, "\n## {}\n\n", test.test.replace(['\n', '\r'], " "));
        for (number, defect) in (1..).zip(&test.defects) {
            let _ = writeln!(text, "### Defect {number}\n");
            for perturbation in &defect.perturbations {
                let _ = writeln!(text, "- `{}`", in_code(&perturbation.to_string()));
            }
            for also in &defect.also {
                let _ = writeln!(text, "- also `{}`", in_code(&named(also)));
            }
            if let Some(signature) = &defect.signature {
                let _ = writeln!(text, "\n```text\n{}\n```", signature.to_string().replace("```", "` ` `"));
            }
            if let Some(command) = &defect.reproduce {
                let _ = writeln!(text, "\nReproduce:\n\n```sh\n{command}\n```");
            }
            text.push('\n');
        }
        for line in facts(test) {
            let _ = writeln!(text, "- {}", line.replace(['\n', '\r'], " "));
        }
    }
    text
}

fn in_cell(text: &str) -> String {
    text.replace(['\n', '\r'], " ").replace('|', "\\|")
}

fn in_code(text: &str) -> String {
    text.replace(['\n', '\r'], " ").replace('`', "'")
}

/// The report as JUnit XML: a test case for each test, failing with its defects.
pub(crate) fn junit(report: &ResilienceReport) -> String {
    let class = escape(&format!("faultscope.{}", report.application));
    let mut cases = String::new();
    let (mut failures, mut errors) = (0, 0);
    for test in &report.tests {
        let (element, message) = match &test.verdict {
            Verdict::Clean | Verdict::NothingToPerturb => (None, String::new()),
            Verdict::Defects => (Some("failure"), defects(test)),
            Verdict::FailsAlready => (Some("failure"), "fails without any perturbation".into()),
            Verdict::Unresolved { reason } => (Some("error"), reason.to_string()),
            Verdict::Stopped | Verdict::OutOfBudget if !test.defects.is_empty() => {
                (Some("failure"), format!("{} so far", defects(test)))
            }
            Verdict::Stopped => (Some("error"), "stopped before all was tried".into()),
            Verdict::OutOfBudget => (Some("error"), "the budget was used up before all was tried".into()),
        };
        let mut text = test.signature.as_ref().map(|signature| format!("{signature}\n")).unwrap_or_default();
        for defect in &test.defects {
            let _ = writeln!(text, "{}", named(&defect.perturbations));
            for also in &defect.also {
                let _ = writeln!(text, "  also: {}", named(also));
            }
            if let Some(signature) = &defect.signature {
                let _ = writeln!(text, "  {signature}");
            }
            if let Some(location) = &defect.location {
                let _ = writeln!(text, "  at {location}");
            }
            if let Some(command) = &defect.reproduce {
                let _ = writeln!(text, "  reproduce: {command}");
            }
        }
        let (name, seconds) = (escape(&test.test), test.took.as_secs_f64());
        let _ = write!(cases, "  <testcase classname=\"{class}\" name=\"{name}\" time=\"{seconds:.3}\">");
        if let Some(element) = element {
            failures += u32::from(element == "failure");
            errors += u32::from(element == "error");
            let _ = write!(
                cases,
                "\n    <{element} message=\"{}\" type=\"resilience\">{}</{element}>\n  ",
                escape(&message),
                escape(&text)
            );
        }
        let _ = write!(cases, "\n    <system-out>{}</system-out>\n  ", escape(&facts(test).join("\n")));
        let _ = writeln!(cases, "</testcase>");
    }
    for test in &report.not_begun {
        errors += 1;
        let _ = writeln!(
            cases,
            "  <testcase classname=\"{class}\" name=\"{}\" time=\"0.000\">\n    <error message=\"not begun\" \
             type=\"resilience\"/>\n  </testcase>",
            escape(test)
        );
    }
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"{class}\" tests=\"{}\" failures=\"{failures}\" errors=\"{errors}\" time=\"{:.3}\">\n{cases}</testsuite>\n",
        report.tests.len() + report.not_begun.len(),
        report.took.as_secs_f64()
    )
}
