//! The report of a debug campaign as one file: causes, evidence, cost, rounds, time line.

use std::time::Duration;

use faultscope_engine::debug::{
    Bar, Course, DebugReport, Difference, Document, InputReport, NamedDelta, RoundCounts, StartReport,
    TreeCall, TrialEnding, ValueBoundary, Verdict,
};
use faultscope_engine::views::{CauseView, DebugView, FolderOption};
use faultscope_model::units::{count, nouns, show_duration};
use maud::{Markup, html};

use crate::frame;

/// The whole report as a self-contained page.
pub fn debug_report(document: &Document) -> String {
    let report = &document.report;
    // A page may be read anywhere, so its commands name no folder.
    let view = DebugView::new(report, &FolderOption::default());
    let body = html! {
        p.soft { "Faultscope " (document.version) " · debug campaign " (report.campaign) " of " (report.application) }
        h1 { (headline(report)) }
        @if let Some(signature) = &report.signature {
            p { "Failure: " code { (signature) } }
        }
        (facts(document))
        @for (number, cause) in view.causes.iter().enumerate() {
            (cause_part(cause, number + 1, report))
        }
        @if let Some(smallest) = view.smallest {
            h2 { "Smallest failing set so far" }
            div.sheet { (deltas(smallest.deltas)) }
        }
        @if report.none_left {
            p.good { "A passing trial without any of these deltas shows that no further cause is left." }
        }
        @if let Some(rest) = &report.rest { p.bad { (rest.describe()) } }
        (boundaries(&report.boundaries))
        @if let Some(input) = &report.input { (smallest(input)) }
        @if let Some(difference) = &report.difference { (evidence(difference)) }
        @if let Some(start) = &report.start { (last_words(start)) }
        (timeline(&document.course))
        (rounds(&document.course.rounds))
        h2 { "How it was run" }
        div.sheet {
            pre { (document.command_line.join(" ")) }
            p.soft { "Seed " (document.seed) " · strategy " (report.strategy.name()) " · " (count(report.deltas, "delta")) }
        }
    };
    frame::page(&format!("{}: {}", report.application, headline(report)), &body)
}

/// The result in one line.
fn headline(report: &DebugReport) -> String {
    match (&report.verdict, report.causes.as_slice()) {
        (Verdict::Reduced, [only]) => {
            let own = only.deltas.len();
            format!("{own} of {} {}", count(report.deltas, "delta"), report.effect(own))
        }
        (Verdict::Reduced, several) => {
            format!("{} independent causes among {} deltas", several.len(), report.deltas)
        }
        _ => {
            let summary = report.summary();
            let mut letters = summary.chars();
            letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
        }
    }
}

fn facts(document: &Document) -> Markup {
    let (report, total) = (&document.report, RoundCounts::total(&document.course.rounds));
    let slots = document.course.bars.iter().map(|bar| bar.slot).collect::<std::collections::BTreeSet<_>>();
    html! {
        div.facts {
            div { b { (report.deltas) } (nouns(&report.deltas, "delta")) }
            div { b { (total.finished) } (nouns(&total.finished, "trial")) " finished" }
            div { b { (report.trials.confirmations) } (nouns(&report.trials.confirmations, "confirmation")) }
            div { b { (total.cancelled) } "cancelled" }
            div { b { (report.trials.unresolved) } "unresolved" }
            div { b { (slots.len()) } (nouns(&slots.len(), "slot")) }
            div { b { (show_duration(report.took)) } "in all" }
        }
    }
}

fn cause_part(shown: &CauseView<'_>, number: usize, report: &DebugReport) -> Markup {
    let cause = shown.cause;
    let title = match report.causes.len() {
        1 => cause.title().to_owned(),
        several => format!("{} {number} of {several}: enough alone", cause.title()),
    };
    let title = title + &cause.confirmation.title_note();
    html! {
        h2 { (title) }
        div.sheet.cause {
            (deltas(&cause.deltas))
            @if cause.deltas.len() > 1 {
                p.soft { "Only together: without any one of them " (report.passing()) " or it fails in another way." }
            }
            @if shown.implied > 0 {
                p.soft { "The failing trial also had " (count(shown.implied, "pair"))
                    " of calls that these imply." }
            }
            @if let Some(tied) = cause.describe_tied() { p.soft { (tied) "." } }
            p.soft { (cause.confirmation.describe()) "." }
            @for otherwise in &cause.otherwise { p { (otherwise.describe()) } }
            @if let Some(hint) = cause.hint() { p.soft { (hint) } }
            @if let Some(run) = &cause.run { p { "Failing run " code { (run) } } }
            @if let Some(command) = &cause.reproduce {
                p { "Reproduce:" }
                pre { (command) }
            }
        }
    }
}

fn deltas(list: &[NamedDelta]) -> Markup {
    html! {
        table {
            tr { th { "dimension" } th { "delta" } th { "simplest" } th { "failing" } }
            @for delta in list {
                tr {
                    td { (delta.dimension) }
                    td { code { (delta.name) } }
                    td { (delta.from) }
                    td.bad { (delta.to) }
                }
            }
        }
    }
}

/// The boundaries of numeric deltas.
fn boundaries(found: &[ValueBoundary]) -> Markup {
    if found.is_empty() {
        return html! {};
    }
    html! {
        h2 { "Where it starts" }
        div.sheet {
            table {
                tr { th { "delta" } th { "fails" } th { "passes" } th { "in words" } }
                @for boundary in found {
                    tr {
                        td { code { (boundary.delta) } }
                        td.bad { (boundary.fails) }
                        td.good { (boundary.passes.as_deref().unwrap_or("none found")) }
                        td { (boundary.describe()) }
                    }
                }
            }
        }
    }
}

/// The smallest input that still fails.
fn smallest(input: &InputReport) -> Markup {
    html! {
        h2 { "Input" }
        div.sheet {
            p { (input.describe()) }
            @if !input.text.is_empty() { pre { (input.shown()) } }
            @if !input.stages.is_empty() {
                p.soft {
                    @for (number, stage) in input.stages.iter().enumerate() {
                        @if number > 0 { ", " }
                        (stage.stage) " " (stage.before) " → " (stage.after)
                    }
                }
            }
        }
    }
}

fn evidence(difference: &Difference) -> Markup {
    let (failing, passing) = difference.calls();
    html! {
        h2 { "Evidence: the first call that differs" }
        p.soft { "The passing run is the nearest one; it lacks " (difference.without.join(", ")) "." }
        div.pair {
            div.sheet {
                p { b.bad { "failing" } " run " code { (difference.failing) } }
                pre { (failing) }
                @if let Some(failed) = difference.further_call() { p.soft { "then" } pre { (failed) } }
                @if !difference.printed.is_empty() {
                    p.soft { "printed meanwhile, and not when it passes" }
                    pre { (difference.printed.shown().join("\n")) }
                }
                (tree(&difference.failing_tree))
            }
            div.sheet {
                p { b.good { "passing" } " run " code { (difference.passing) } }
                pre { (passing) }
                (tree(&difference.passing_tree))
            }
        }
    }
}

/// How a service ended that does not become ready.
fn last_words(start: &StartReport) -> Markup {
    html! {
        h2 { "Evidence: how it ended" }
        div.sheet {
            p { b { (start.instance) } " " b.bad { (start.reason) } " in run " code { (start.failing) } }
            @if !start.last_lines.is_empty() { pre { (start.last_lines.join("\n")) } }
            @if let Some(passing) = &start.passing {
                p.soft { "Everything comes up in run " code { (passing) } ", without " (start.without.join(", ")) "." }
            }
        }
    }
}

fn tree(calls: &[TreeCall]) -> Markup {
    html! {
        ul.tree {
            @for call in calls {
                li.differs[call.differs] style=(format!("padding-left: {}ch", 2 * call.depth.min(30))) {
                    (call.callee) " " (call.operation) " "
                    @if is_bad(&call.ending) { b.bad { (call.ending) } } @else { span.soft { (call.ending) } }
                }
            }
        }
    }
}

fn is_bad(ending: &str) -> bool {
    ending.parse::<u16>().is_ok_and(|status| status >= 400)
        || ending.parse::<u16>().is_err() && ending != "ended"
}

/// Slots as lanes, trials as bars.
fn timeline(course: &Course) -> Markup {
    const WIDTH: u64 = 1000;
    const LEFT: u64 = 54;
    const LANE: u64 = 22;
    let Some(last) = course.bars.iter().map(|bar| bar.slot.0).max() else { return html! {} };
    let lanes = u64::from(last) + 1;
    let whole = course.took_us.max(1);
    let place = |us: u64| LEFT + us.min(whole) * (WIDTH - LEFT - 4) / whole;
    let title = |bar: &Bar| {
        let took = show_duration(Duration::from_micros(bar.to_us.saturating_sub(bar.from_us)));
        format!("{}: {}, {}, {took}", bar.trial, count(bar.deltas, "delta"), bar.end)
    };
    let height = lanes * LANE + 22;
    html! {
        h2 { "Time line of the slots" }
        div.sheet {
            svg viewBox=(format!("0 0 {WIDTH} {height}")) role="img" aria-label="trials by slot and time" {
                @for lane in 0..lanes {
                    text x="0" y=(lane * LANE + 15) { "slot " (lane) }
                    line.lane x1=(LEFT) x2=(WIDTH) y1=(lane * LANE + LANE - 1) y2=(lane * LANE + LANE - 1) {}
                }
                @for bar in &course.bars {
                    rect class=(bar.end.word()) x=(place(bar.from_us)) y=(u64::from(bar.slot.0) * LANE + 3)
                        width=((place(bar.to_us) - place(bar.from_us)).saturating_sub(1).max(2)) height=(LANE - 7) rx="2" {
                        title { (title(bar)) }
                    }
                }
                text x=(LEFT) y=(height - 5) { "0" }
                text x=(WIDTH) y=(height - 5) text-anchor="end" { (show_duration(Duration::from_micros(whole))) }
            }
            p.legend.soft {
                @for end in [TrialEnding::Pass, TrialEnding::Fail, TrialEnding::Unresolved, TrialEnding::Cancelled] {
                    span { i class=(end.word()) {} (end.word()) }
                }
            }
        }
    }
}

/// Table 4 of the paper, with the tasks of its Figure 4 below.
fn rounds(rounds: &[RoundCounts]) -> Markup {
    if rounds.is_empty() {
        return html! {};
    }
    html! {
        h2 { "Rounds" }
        div.sheet {
            table {
                tr {
                    th { "round" }
                    @for name in RoundCounts::NAMES { th.number { (name) } }
                }
                @for (number, round) in rounds.iter().enumerate() {
                    tr { td { (number + 1) } @for cell in round.counts() { td.number { (cell) } } }
                }
                tr.total { td { "total" } @for cell in RoundCounts::total(rounds).counts() { td.number { (cell) } } }
            }
        }
        @if rounds.iter().any(|round| !round.tasks.is_empty()) {
            div.sheet.tasks {
                @for (number, round) in rounds.iter().enumerate() {
                    div {
                        b { (number + 1) ". " }
                        @for task in &round.tasks {
                            span class=(task.end.word()) { (task.part) @if !task.part.is_empty() { " " } "(" (task.deltas) ") " (task.end.word()) }
                        }
                    }
                }
            }
        }
    }
}
