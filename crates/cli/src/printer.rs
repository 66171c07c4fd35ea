//! Prints results to stdout and messages to stderr.

use std::borrow::Cow;
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use faultscope_engine::views::plain;
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

/// Text without what could steer a terminal: services and files may hold anything. Only line ends, tabs and, where
/// the tool itself uses colours, changes of colour stay.
fn neutralize(text: &str, colored: bool) -> Cow<'_, str> {
    let stays = |c: char| !c.is_control() || matches!(c, '\n' | '\t');
    if text.chars().all(stays) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let color = if colored { color_code(rest) } else { None };
        match color {
            Some(code) => out.push_str(code),
            None => out.push(if stays(c) { c } else { ' ' }),
        }
        rest = &rest[color.map_or(c.len_utf8(), str::len)..];
    }
    Cow::Owned(out)
}

/// The change of colour that a text begins with: `ESC [ 1 ; 31 m`.
fn color_code(text: &str) -> Option<&str> {
    let numbers = text.strip_prefix("\u{1b}[")?;
    let end = numbers.find(|c: char| !c.is_ascii_digit() && c != ';')?;
    numbers[end..].starts_with('m').then(|| &text[..end + 3])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_but_colours_steers_the_terminal() {
        let text = "\u{1b}[1;31mred\u{1b}[0m \u{1b}[2J\u{1b}]0;title\u{7}\r\u{9b}1A\ta\nb\u{1b}[";
        assert_eq!(neutralize(text, true), "\u{1b}[1;31mred\u{1b}[0m  [2J ]0;title   1A\ta\nb [");
        assert_eq!(neutralize(text, false), " [1;31mred [0m  [2J ]0;title   1A\ta\nb [");
        assert!(matches!(neutralize("plain\n\ttext é", false), Cow::Borrowed(_)));
    }
}
