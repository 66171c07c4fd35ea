//! The report as Markdown.

use std::fmt::Write as _;

use faultscope_engine::debug::{Document, RoundCounts, TreeCall};
use faultscope_model::terminal::{is_printable, neutralize_line, neutralize_lines};
use faultscope_model::units::{count, show_duration};

pub(super) fn render(document: &Document) -> String {
    let report = &document.report;
    let mut out = String::new();
    let _ = writeln!(out, "# {}: {}\n", plain(&report.application), plain(&report.summary()));
    if let Some(signature) = &report.signature {
        let _ = writeln!(out, "Failure: {}\n", code(&signature.to_string()));
    }
    for (cause, number) in report.causes.iter().zip(1..) {
        let _ = match report.causes.len() {
            1 => writeln!(out, "## {}{}\n", cause.title(), cause.confirmation.title_note()),
            several => {
                let note = cause.confirmation.title_note();
                writeln!(out, "## {} {number} of {several}, enough alone{note}\n", cause.title())
            }
        };
        let _ = writeln!(out, "| dimension | delta | simplest | failing |\n|---|---|---|---|");
        for delta in &cause.deltas {
            let _ = writeln!(
                out,
                "| {} | {} | {} | {} |",
                delta.dimension,
                cell(&code(&delta.name)),
                cell(&plain(&delta.from)),
                cell(&plain(&delta.to))
            );
        }
        if let Some(tied) = cause.describe_tied() {
            let _ = writeln!(out, "\n{}.", plain(&tied));
        }
        let _ = writeln!(out, "\n{}.", cause.confirmation.describe());
        for otherwise in &cause.otherwise {
            let _ = writeln!(out, "\n{}", plain(&otherwise.describe()));
        }
        if let Some(hint) = cause.hint() {
            let _ = writeln!(out, "\n{hint}.");
        }
        if let Some(command) = &cause.reproduce {
            let _ = writeln!(out, "\nReproduce:\n\n{}", fenced(command));
        }
        out.push('\n');
    }
    if report.none_left {
        let _ = writeln!(
            out,
            "A passing trial without any of these deltas shows that no further cause is left.\n"
        );
    }
    if let Some(rest) = &report.rest {
        let _ = writeln!(out, "{}\n", plain(&rest.describe()));
    }
    if !report.boundaries.is_empty() {
        let _ = writeln!(out, "## Where it starts\n");
        for boundary in &report.boundaries {
            let _ = writeln!(out, "- {}", plain(&boundary.describe()));
        }
        out.push('\n');
    }
    if let Some(input) = &report.input {
        let _ = writeln!(out, "## Input\n\n{}\n", plain(&input.describe()));
        if !input.text.is_empty() {
            let _ = writeln!(out, "{}", fenced(&input.shown()));
        }
    }
    if let Some(difference) = &report.difference {
        let (failing, passing) = difference.calls();
        let _ = writeln!(out, "## First call that differs\n");
        let _ = writeln!(out, "- failing (run {}): {}", difference.failing, code(failing));
        let _ = writeln!(out, "- passing (run {}): {}", difference.passing, code(passing));
        if let Some(failed) = difference.further_call() {
            let _ = writeln!(out, "- failed call: {}", code(failed));
        }
        out.push('\n');
        if !difference.printed.is_empty() {
            let lines = difference.printed.shown().join("\n");
            let _ = writeln!(out, "Printed meanwhile, and not when it passes:\n\n{}", fenced(&lines));
        }
        for (name, calls) in [("failing", &difference.failing_tree), ("passing", &difference.passing_tree)] {
            if !calls.is_empty() {
                let _ = writeln!(out, "{name}:\n\n{}", fenced(&tree(calls)));
            }
        }
    }
    if let Some(start) = &report.start {
        let _ = writeln!(out, "## How it ended\n");
        let _ = writeln!(
            out,
            "- {} (run {}): {}",
            start.instance,
            start.failing,
            plain(&start.reason.to_string())
        );
        if let Some(passing) = &start.passing {
            let without = plain(&start.without.join(", "));
            let _ = writeln!(out, "- run {passing}, without {without}: everything comes up");
        }
        out.push('\n');
        if !start.last_lines.is_empty() {
            let _ = writeln!(out, "Its last lines:\n\n{}", fenced(&start.last_lines.join("\n")));
        }
    }
    rounds(&document.course.rounds, &mut out);
    let _ = writeln!(
        out,
        "{}, {}, seed {}, Faultscope {}: {}",
        count(report.deltas, "delta"),
        show_duration(report.took),
        document.seed,
        document.version,
        code(&document.command_line.join(" "))
    );
    out
}

fn rounds(rounds: &[RoundCounts], out: &mut String) {
    if rounds.is_empty() {
        return;
    }
    let _ = writeln!(out, "## Rounds\n\n| round | {} |", RoundCounts::NAMES.join(" | "));
    let _ = writeln!(out, "|---|{}", "---:|".repeat(RoundCounts::NAMES.len()));
    let mut row = |name: String, r: &RoundCounts| {
        let counts = r.counts().map(|count| count.to_string());
        let _ = writeln!(out, "| {name} | {} |", counts.join(" | "));
    };
    for (round, number) in rounds.iter().zip(1..) {
        row(number.to_string(), round);
    }
    row("total".into(), &RoundCounts::total(rounds));
    out.push('\n');
}

fn tree(calls: &[TreeCall]) -> String {
    let line = |call: &TreeCall| {
        let mark = if call.differs { "  <-- differs" } else { "" };
        format!("{}{} {} {}{mark}", "  ".repeat(call.depth), call.callee, call.operation, call.ending)
    };
    calls.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Escapes text so that none of it is taken as Markdown or HTML.
fn plain(text: &str) -> String {
    let mut out = String::new();
    for letter in text.chars() {
        match letter {
            letter if !is_printable(letter) => out.push(' '),
            '\\' | '`' | '*' | '_' | '<' | '>' | '[' | ']' | '#' | '|' => out.extend(['\\', letter]),
            _ => out.push(letter),
        }
    }
    out
}

/// Inline code, with as many backticks as needed.
fn code(text: &str) -> String {
    let ticks = "`".repeat(1 + longest_run(text));
    let text = neutralize_line(text);
    let blank = if text.starts_with('`') || text.ends_with('`') { " " } else { "" };
    format!("{ticks}{blank}{text}{blank}{ticks}")
}

fn fenced(text: &str) -> String {
    let text = &neutralize_lines(text);
    let fence = "`".repeat(longest_run(text).max(2) + 1);
    format!("{fence}\n{text}\n{fence}\n")
}

/// A table cell: a bar would end it, even inside code.
fn cell(text: &str) -> String {
    text.replace("\\|", "|").replace('|', "\\|")
}

fn longest_run(text: &str) -> usize {
    text.split(|letter| letter != '`').map(str::len).max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_stay_texts() {
        assert_eq!(plain("a_b <i>\n|"), "a\\_b \\<i\\> \\|");
        assert_eq!(code("a"), "`a`");
        assert_eq!(code("`a``b"), "``` `a``b ```");
        assert_eq!(fenced("```x"), "````\n```x\n````\n");
        assert_eq!(cell(&plain("a|b")), "a\\|b");
    }
}
