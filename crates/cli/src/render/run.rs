//! Renders a run: its tests and its evidence.

use std::collections::BTreeMap;

use faultscope_engine::views::{RunTests, plain, readable_text};
use faultscope_model::outcome::Ending;
use faultscope_model::run::InstanceExit;
use faultscope_model::units::{count, show_duration};
use faultscope_model::{InstanceId, Outcome, Run};

use crate::printer::Printer;

/// The most lines of a failing test's message.
pub(crate) const MESSAGE_LINES: usize = 12;

/// The most lines of an unexpected response, and characters of each.
const ANSWER_LINES: usize = 6;
const ANSWER_WIDTH: usize = 300;

/// The most perturbations that are listed.
const MAX_ASKED: usize = 20;

/// A run in one line.
pub(crate) fn summary(run: &Run, printer: &Printer) {
    let tests = RunTests::count(run);
    let verdict = match &run.outcome {
        Outcome::Pass => printer.good("pass"),
        Outcome::Fail { .. } => printer.bad("fail"),
        Outcome::Unresolved { reason } => format!("{} ({reason})", printer.bad("unresolved")),
    };
    let mut said = Vec::new();
    // `up` runs no tests, and if an instance did not become ready, none ran.
    if tests.all > 0 {
        said.push(format!("{} of {} passed", tests.passed(), count(tests.all, "test")));
    }
    if tests.all > 0 || run.evidence.spans > 0 {
        // Perturbed messages of actors are not calls.
        if run.evidence.spans > 0 || run.perturbed.is_none() {
            said.push(format!("{} seen", count(run.evidence.spans, "call")));
        }
        said.push(format!("ready after {}", show_duration(run.cost.deploy)));
    }
    said.push(format!("took {}", show_duration(run.cost.total)));
    let name = printer.strong(&format!("run {}", run.id));
    printer.line(format!("{name} {verdict}: {}", said.join(", ")));
}

/// The tests of a run, one line each; failing ones with their message.
pub(crate) fn tests(run: &Run, printer: &Printer) {
    summary(run, printer);
    for test in &run.evidence.tests {
        let mark = if test.failure.is_some() { printer.bad("FAIL") } else { printer.good("pass") };
        printer.line(format!("  {mark}  {:<44} {:>8}", test.test, show_duration(test.took)));
        if let Some(failure) = &test.failure {
            printer.line(format!("        {}", failure.ending));
            let lines: Vec<_> = failure.message.lines().filter(|l| !l.trim().is_empty()).collect();
            for line in &lines[lines.len().saturating_sub(MESSAGE_LINES)..] {
                printer.line(format!("        | {}", plain(line)));
            }
            // For steps this is the last response; the output of a command is part of its message.
            if matches!(failure.ending, Ending::Step(_)) && !test.output.trim().is_empty() {
                printer.line("        answer:");
                for line in readable_text(&test.output).lines().take(ANSWER_LINES) {
                    printer.line(format!("        | {}", shorten(&plain(line))));
                }
            }
        }
    }
}

fn shorten(line: &str) -> String {
    let mut short: String = line.chars().take(ANSWER_WIDTH).collect();
    if short.len() < line.len() {
        short.push('…');
    }
    short
}

/// Instances that ended by themselves, with their last lines.
pub(crate) fn endings(run: &Run, most_lines: usize, printer: &Printer) {
    ended(&run.evidence.exits, &run.evidence.logs, most_lines, printer);
}

/// Instances that ended by themselves, and the last lines of each.
pub(crate) fn ended(
    exits: &[InstanceExit],
    logs: &BTreeMap<InstanceId, Vec<String>>,
    most_lines: usize,
    printer: &Printer,
) {
    for InstanceExit { instance, reason, .. } in exits {
        let reason = plain(&reason.to_string());
        printer.line(format!("  {} {reason}", printer.strong(&instance.to_string())));
    }
    for (instance, lines) in logs {
        if lines.is_empty() {
            // Whoever looks for a reason should not have to wonder whether it was lost.
            printer.line(format!("  {instance} printed nothing"));
            continue;
        }
        printer.line(format!("  last lines of {instance}:"));
        for line in &lines[lines.len().saturating_sub(most_lines)..] {
            printer.line(format!("    | {}", plain(line)));
        }
    }
}

/// Further evidence: gates, rules, perturbations, circumstance.
pub(crate) fn evidence(run: &Run, printer: &Printer) {
    let evidence = &run.evidence;
    for gate in &evidence.gates {
        // Gates are numbered in the order of the circumstance, from 1.
        let order = run.circumstance.sequence.get((gate.gate as usize).wrapping_sub(1));
        let name = order
            .map_or_else(|| format!("gate {}", gate.gate), |o| format!("order of {} {}", o.from, o.handling));
        printer.line(format!("  {name}: {}", gate.outcome));
    }
    // Perturbations are rules, too, and listed below; those of messages match no call.
    for rule in evidence.rules.iter().filter(|_| run.perturbed.is_none()) {
        printer.line(format!(
            "  rule {}: matched {}, applied to {}",
            rule.rule,
            count(rule.matched, "call"),
            rule.applied
        ));
    }
    if let Some(perturbed) = &run.perturbed {
        let asked = run.treatment.perturbations();
        for perturbation in asked.iter().take(MAX_ASKED) {
            printer.line(format!("  perturbed: {perturbation}"));
        }
        if asked.len() > MAX_ASKED {
            printer.line(format!("  perturbed: {} more", asked.len() - MAX_ASKED));
        }
        for missed in perturbed.missed.iter().take(MAX_ASKED) {
            printer.line(format!("  not applied: {} ({})", missed.perturbation, missed.why));
        }
    }
    if evidence.spans_dropped > 0 {
        printer.line(format!(
            "  {} dropped, because the disk was too slow",
            count(evidence.spans_dropped, "call")
        ));
    }
    if evidence.left_out > 0 {
        printer.line(format!(
            "  {} not kept, because a trial keeps 1 GiB of calls and 512 MiB of reports at most",
            count(evidence.left_out, "call or reported span")
        ));
    }
    let circumstance = &run.circumstance;
    if circumstance.nodes > 1 || !circumstance.instances.is_empty() || !circumstance.config.is_empty() {
        let instances =
            circumstance.instances.iter().map(|(service, count)| format!("instances {service}={count}"));
        let config = circumstance.config.iter().flat_map(|(service, items)| {
            items.iter().map(move |(key, value)| format!("config {service}.{key}={value}"))
        });
        let nodes = (circumstance.nodes > 1).then(|| format!("nodes={}", circumstance.nodes));
        let all: Vec<_> = nodes.into_iter().chain(instances).chain(config).collect();
        printer.line(format!("  under {}", all.join(", ")));
    }
}
