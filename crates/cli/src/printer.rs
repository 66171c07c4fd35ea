//! Prints results to stdout and messages to stderr.

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
        let _ = writeln!(io::stdout().lock(), "{text}");
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
            let _ = writeln!(io::stderr().lock(), "{text}");
        }
    }

    pub(crate) fn warn(&self, text: impl Display) {
        let label = self.err_style("warning:", Style::new().yellow().bold());
        let _ = writeln!(io::stderr().lock(), "{label} {text}");
    }

    pub(crate) fn error(&self, error: &CommandError) {
        let mut out = io::stderr().lock();
        let label = self.err_style("error:", Style::new().red().bold());
        let _ = writeln!(out, "{label} {}", error.message);
        for cause in &error.causes {
            let _ = writeln!(out, "  because: {cause}");
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
