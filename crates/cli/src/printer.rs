//! Prints results to stdout and messages to stderr.

use std::borrow::Cow;
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use faultscope_engine::views::plain;
use faultscope_model::terminal::neutralize_lines;
use owo_colors::{OwoColorize, Style};
use serde::Serialize;

use crate::args::Color;
use crate::error::CommandError;

/// Prints results and messages.
#[derive(Debug, Clone)]
pub(crate) struct Printer {
    pub(crate) json: bool,
    pub(crate) quiet: bool,
    color_out: bool,
    color_err: bool,
    /// Whether a result was printed.
    answered: Arc<AtomicBool>,
}

impl Printer {
    pub(crate) fn new(json: bool, color: Color, quiet: bool) -> Self {
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let wanted = |terminal: bool| match color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => terminal && !no_color,
        };
        Self {
            json,
            quiet,
            color_out: wanted(io::stdout().is_terminal()),
            color_err: wanted(io::stderr().is_terminal()),
            answered: Arc::default(),
        }
    }

    /// Whether log lines, which go to stderr, have colours.
    pub(crate) fn is_log_coloured(&self) -> bool {
        self.color_err
    }

    /// Prints a line of the result.
    pub(crate) fn line(&self, text: impl Display) {
        self.answered.store(true, Ordering::Relaxed);
        // A closed pipe (`| head`) ends the output, not the work.
        let _ = writeln!(io::stdout().lock(), "{}", neutralize(&text.to_string(), self.color_out));
    }

    /// Prints the result as JSON.
    pub(crate) fn result(&self, value: &impl Serialize) -> Result<(), CommandError> {
        let text = serde_json::to_string_pretty(value)
            .map_err(|e| CommandError::internal("the result cannot be written as JSON").because(e))?;
        self.line(text);
        Ok(())
    }

    /// Prints a message to stderr.
    pub(crate) fn talk(&self, text: impl Display) {
        if !self.quiet {
            let _ = writeln!(io::stderr().lock(), "{}", neutralize(&text.to_string(), self.color_err));
        }
    }

    pub(crate) fn warn(&self, text: impl Display) {
        let label = self.err_style("warning:", Style::new().yellow().bold());
        let text = text.to_string();
        let _ = writeln!(io::stderr().lock(), "{label} {}", neutralize(&text, false));
    }

    pub(crate) fn error(&self, error: &CommandError) {
        let mut out = io::stderr().lock();
        let label = self.err_style("error:", Style::new().red().bold());
        let _ = writeln!(out, "{label} {}", neutralize(&error.message, false));
        for cause in &error.causes {
            let _ = writeln!(out, "  because: {}", neutralize(cause, false));
        }
        for line in &error.lines {
            // A service's own words: they must not move the cursor.
            let _ = writeln!(out, "  | {}", plain(line));
        }
        if let Some(hint) = &error.hint {
            let hint = neutralize_lines(hint);
            let _ = writeln!(out, "\n{} {hint}", self.err_style("hint:", Style::new().cyan().bold()));
        }
        drop(out);
        if self.json && !self.answered.load(Ordering::Relaxed) {
            // Programs that read results get errors as JSON, too: one document either way.
            self.line(error.to_json());
        }
    }

    fn err_style(&self, text: &str, style: Style) -> String {
        if self.color_err { text.style(style).to_string() } else { text.to_owned() }
    }

    fn style(&self, text: &str, style: Style) -> String {
        if self.color_out { text.style(style).to_string() } else { text.to_owned() }
    }

    pub(crate) fn good(&self, text: &str) -> String {
        self.style(text, Style::new().green())
    }

    pub(crate) fn bad(&self, text: &str) -> String {
        self.style(text, Style::new().red().bold())
    }

    pub(crate) fn dim(&self, text: &str) -> String {
        self.style(text, Style::new().dimmed())
    }

    pub(crate) fn strong(&self, text: &str) -> String {
        self.style(text, Style::new().bold())
    }
}

/// Text without what could steer a terminal. Only where the tool itself uses colours, its own changes of colour stay.
fn neutralize(text: &str, colored: bool) -> Cow<'_, str> {
    if !colored || !text.contains('\u{1b}') {
        return neutralize_lines(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\u{1b}') {
        out.push_str(&neutralize_lines(&rest[..at]));
        rest = &rest[at..];
        let own = OWN_COLORS.iter().find(|code| rest.starts_with(**code)).copied();
        out.push_str(own.unwrap_or(" "));
        rest = &rest[own.map_or(1, str::len)..];
    }
    out.push_str(&neutralize_lines(rest));
    Cow::Owned(out)
}

/// The changes of colour that the styles below make, and no others: a service must not hide its text or blink.
const OWN_COLORS: [&str; 7] =
    ["\u{1b}[0m", "\u{1b}[1m", "\u{1b}[2m", "\u{1b}[32m", "\u{1b}[31;1m", "\u{1b}[33;1m", "\u{1b}[36;1m"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_but_own_colours_steers_the_terminal() {
        let text = "\u{1b}[31;1mred\u{1b}[0m \u{1b}[8mhidden \u{1b}[2J\u{1b}]0;title\u{7}\r\u{9b}1A\ta\nb\u{202e}\u{1b}[";
        assert_eq!(neutralize(text, true), "\u{1b}[31;1mred\u{1b}[0m  [8mhidden  [2J ]0;title   1A\ta\nb  [");
        assert_eq!(neutralize(text, false), " [31;1mred [0m  [8mhidden  [2J ]0;title   1A\ta\nb  [");
        assert!(matches!(neutralize("plain\n\ttext é", false), Cow::Borrowed(_)));
    }

    #[test]
    fn own_colours_are_known() {
        let printer =
            Printer { json: false, quiet: false, color_out: true, color_err: true, answered: Arc::default() };
        let labels = [Style::new().yellow().bold(), Style::new().red().bold(), Style::new().cyan().bold()];
        let styled = labels.map(|style| printer.err_style("x", style));
        let own = [printer.good("x"), printer.bad("x"), printer.dim("x"), printer.strong("x")];
        for text in styled.iter().chain(&own) {
            assert_eq!(&neutralize(text, true), text);
        }
    }
}
