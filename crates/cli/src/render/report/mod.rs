//! The report of a debug campaign for the terminal and for files.

mod junit;
mod markdown;
pub(crate) mod text;

pub(crate) use junit::escape;

use faultscope_engine::debug::Document;

use crate::error::CommandError;

/// The format of a report file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// A self-contained page.
    Html,
    /// Everything, for programs.
    Json,
    /// For issues and chats.
    Md,
    /// For CI: a test case for each cause.
    Junit,
}

impl Format {
    /// The usual extension of such a file.
    pub(crate) fn ending(self) -> &'static str {
        match self {
            Self::Html => "html",
            Self::Json => "json",
            Self::Md => "md",
            Self::Junit => "xml",
        }
    }

    /// Renders the report in this format.
    pub(crate) fn render(self, document: &Document) -> Result<String, CommandError> {
        Ok(match self {
            Self::Html => faultscope_console::debug_report(document),
            Self::Json => serde_json::to_string_pretty(document)
                .map_err(|e| CommandError::internal("the report cannot be written as JSON").because(e))?,
            Self::Md => markdown::render(document),
            Self::Junit => junit::render(document),
        })
    }
}
