//! The report of a resilience campaign as one file: per test its defects, each with its trace.

use std::time::Duration;

use faultscope_engine::resilience::{Defect, ResilienceReport, TraceStep, Verdict};
use faultscope_engine::views::{
    ResilienceView, TestView, describe_finding, describe_outage, describe_sets, describe_skipped,
    describe_trials, describe_verdict, trace_length_us,
};
use faultscope_model::units::{count, nouns, show_duration};
use maud::{Markup, html};

use crate::frame;

/// The whole report as a self-contained page.
pub fn resilience_report(report: &ResilienceReport) -> String {
    let ResilienceView { defects, trials, tests, .. } = ResilienceView::new(report);
    let headline = headline(report);
    let body = html! {
        p.soft { "Faultscope " (env!("CARGO_PKG_VERSION")) " · resilience campaign " (report.campaign) " of " (report.application) }
        h1 { (headline) }
        div.facts {
            div { b { (report.tests.len()) } (nouns(&report.tests.len(), "test")) }
            div { b { (defects) } (nouns(&defects, "defect")) }
            div { b { (trials) } (nouns(&trials, "trial")) }
            div { b { (show_duration(report.took)) } "in all" }
        }
        @for test in &tests { (test_part(test)) }
        @for test in &report.not_begun { h2 { (test) } p { "Not begun." } }
        p.soft { "Seed " (report.seed) " · strategy " (report.strategy.word()) }
    };
    frame::page(&format!("{}: {headline}", report.application), &body)
}

fn headline(report: &ResilienceReport) -> String {
    capitalized(&report.summary())
}

fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

fn test_part(shown: &TestView<'_>) -> Markup {
    let test = shown.test;
    let (trials, tally) = (&test.trials, &test.tally);
    html! {
        h2 { (test.test) }
        @match &test.verdict {
            Verdict::Clean if test.tally.degraded + test.tally.unclear + test.tally.not_applied == 0 => {
                p.good { (capitalized(&describe_verdict(test))) }
            },
            Verdict::FailsAlready | Verdict::Unresolved { .. } | Verdict::Defects => {
                p.bad { (capitalized(&describe_verdict(test))) }
            },
            Verdict::Clean | Verdict::NothingToPerturb | Verdict::Stopped | Verdict::OutOfBudget => {
                p { (capitalized(&describe_verdict(test))) }
            },
        }
        @if let Some(signature) = &test.signature { p { "Failure: " code { (signature) } } }
        @for (number, defect) in test.defects.iter().enumerate() { (defect_part(defect, number + 1)) }
        div.sheet {
            table {
                tr { th { "carried out" } th { "passed" } th { "degraded" } th { "broke the test" }
                     th { "only beside a defect" } th { "not applied" } th { "never tried" } }
                tr {
                    td.number { (tally.carried_out()) } td.number { (tally.passed) } td.number { (tally.degraded) }
                    td.number { (tally.broke) } td.number { (tally.unclear) } td.number { (tally.not_applied) }
                    td.number { (tally.never_tried) }
                }
            }
            @for outage in &test.outages { p { (capitalized(&describe_outage(outage))) } }
            @for finding in &test.findings {
                p { "Finding, not counted as a defect: " (describe_finding(finding)) }
            }
            @for skipped in &test.skipped { p.soft { "Never tried: " (describe_skipped(skipped)) } }
            @if let Some(sets) = describe_sets(&test.sets) { p.soft { (capitalized(&sets)) "." } }
            p.soft { (count(test.seen, "call")) " seen; " (describe_trials(test)) "." }
            @for missed in &test.missed {
                p.soft { "Not applied: " code { (missed.perturbation) } " (" (missed.why) ")" }
            }
            @for unresolved in &shown.unresolved {
                p.soft { "Unresolved: " (unresolved.reason) " (" (unresolved.trials) " of " (count(trials.all(), "trial")) ")" }
            }
            @if let Some(flaky) = test.flaky {
                p.soft { "It is flaky without perturbations: " (flaky.failed) " of " (flaky.tried)
                    " runs failed. Failing trials were repeated " (flaky.must_fail) " times." }
            }
            @for note in &test.notes { p.soft { (note) } }
        }
    }
}

fn defect_part(defect: &Defect, number: usize) -> Markup {
    html! {
        h3 { "Defect " (number) }
        div.sheet.cause {
            table {
                tr { th { "done" } th { "to" } }
                @for perturbation in &defect.perturbations {
                    tr { td.bad { (perturbation.kind) } td { code { (perturbation.target) } } }
                }
            }
            @if defect.perturbations.len() > 1 { p.soft { "Only together." } }
            @for also in &defect.also {
                p.soft { "Also: " @for perturbation in also { code { (perturbation) } " " } }
            }
            @if let Some(signature) = &defect.signature {
                p { @if defect.invariant { "Invariant that does not hold: " } @else { "Failure: " } code { (signature) } }
            }
            @if let Some(location) = &defect.location { p { "At " code { (location) } } }
            (trace(&defect.trace))
            @if let Some(run) = &defect.run { p { "Failing run " code { (run) } } }
            @if let Some(command) = &defect.reproduce {
                p { "Reproduce:" }
                pre { (command) }
            }
        }
    }
}

/// The calls with time bars, and the perturbations.
fn trace(steps: &[TraceStep]) -> Markup {
    const WIDTH: u64 = 200;
    let whole = trace_length_us(steps).max(1);
    let place = |us: u64| us.min(whole) * WIDTH / whole;
    let took = |step: &TraceStep| show_duration(Duration::from_micros(step.took_us));
    html! {
        @if !steps.is_empty() {
            ul.tree {
                @for step in steps {
                    li.differs[!step.marks.is_empty()] style=(format!("padding-left: {}ch", 2 * step.depth.min(30))) {
                        (step.receiver) " " (step.operation) " " span.soft { (step.ending) }
                        @for mark in &step.marks { " " b.bad { "← " (mark) } }
                        @if step.took_us > 0 {
                            " " svg viewBox=(format!("0 0 {WIDTH} 8")) width=(WIDTH) height="8" role="img" aria-label=(took(step)) {
                                rect.pass x=(place(step.start_us)) y="1" height="6"
                                    width=((place(step.start_us + step.took_us) - place(step.start_us)).max(2)) {
                                    title { (took(step)) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}
