//! The report as JUnit XML: a failing test case for each cause, so that CI shows it.

use std::fmt::Write as _;

use faultscope_engine::debug::{Document, Verdict};
use faultscope_model::terminal::is_printable;

pub(super) fn render(document: &Document) -> String {
    let report = &document.report;
    let class = escape(&format!("faultscope.{}", report.application));
    let test = match &report.signature {
        None => "debug".to_owned(),
        Some(signature) => match signature.service() {
            Some(service) => format!("start of {service}"),
            None => signature.test.clone(),
        },
    };
    let seconds = report.took.as_secs_f64();
    let mut cases = String::new();
    let mut failures = 0;
    let mut errors = 0;
    let each = seconds / report.causes.len().max(1) as f64;
    for (cause, number) in report.causes.iter().zip(1..) {
        failures += 1;
        let names: Vec<_> = cause.deltas.iter().map(|delta| delta.name.as_str()).collect();
        let mut text = String::new();
        for delta in &cause.deltas {
            let _ = writeln!(text, "{} {}: {} -> {}", delta.dimension, delta.name, delta.from, delta.to);
        }
        let _ = writeln!(text, "{}", cause.confirmation.describe());
        if let Some(command) = &cause.reproduce {
            let _ = writeln!(text, "reproduce: {command}");
        }
        let own = |delta: &String| names.contains(&delta.as_str());
        for boundary in report.boundaries.iter().filter(|boundary| own(&boundary.delta)) {
            let _ = writeln!(text, "{}", boundary.describe());
        }
        if let (1, Some(rest)) = (number, &report.rest) {
            let _ = writeln!(text, "{}", rest.describe());
        }
        if let (1, Some(input)) = (number, &report.input) {
            let _ = writeln!(text, "{}\n{}", input.describe(), input.shown());
        }
        if let (1, Some(difference)) = (number, &report.difference) {
            let (failing, passing) = difference.calls();
            let _ = writeln!(text, "failing call: {failing}\npassing call: {passing}");
            if let Some(failed) = difference.further_call() {
                let _ = writeln!(text, "failed call: {failed}");
            }
            for line in difference.printed.shown() {
                let _ = writeln!(text, "printed: {line}");
            }
        }
        if let (1, Some(start)) = (number, &report.start) {
            let _ = writeln!(text, "{} {}\n{}", start.instance, start.reason, start.last_lines.join("\n"));
        }
        let _ = writeln!(
            cases,
            "  <testcase classname=\"{class}\" name=\"{}\" time=\"{each:.3}\">\n    <failure message=\"{}\" type=\"cause\">{}</failure>\n  </testcase>",
            escape(&format!("{test}: cause {number}")),
            escape(&format!("fails because of {}{}", names.join(" and "), cause.confirmation.title_note())),
            escape(&text)
        );
    }
    if report.causes.is_empty() {
        // A failure without deltas is one of the service; other verdicts say nothing about the system.
        let (element, kind) = match report.verdict {
            Verdict::FailsAlready => ("failure", "fails_already"),
            _ => ("error", "undecided"),
        };
        failures += u32::from(element == "failure");
        errors += u32::from(element == "error");
        let _ = writeln!(
            cases,
            "  <testcase classname=\"{class}\" name=\"{}\" time=\"{seconds:.3}\">\n    <{element} message=\"{}\" type=\"{kind}\"/>\n  </testcase>",
            escape(&test),
            escape(&report.summary())
        );
    }
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"{class}\" tests=\"{}\" failures=\"{failures}\" errors=\"{errors}\" time=\"{seconds:.3}\">\n{cases}</testsuite>\n",
        failures + errors
    )
}

/// Escapes text for XML and replaces characters that XML cannot contain.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::new();
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&apos;"),
            '\n' => out.push('\n'),
            '\t' => out.push(' '),
            c if !is_printable(c) || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_stays_text() {
        assert_eq!(escape("<a b='\"&\u{1}"), "&lt;a b=&apos;&quot;&amp;\u{fffd}");
    }
}
