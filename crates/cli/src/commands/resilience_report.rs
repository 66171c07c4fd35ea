//! The files that `resilience --report` writes.

use std::path::Path;

use clap::ValueEnum;
use faultscope_engine::resilience::ResilienceReport;
use faultscope_store::Store;

use super::report::{self, Wanted, write};
use crate::error::CommandError;
use crate::printer::Printer;
use crate::render::resilience;

/// The format of a report file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// A self-contained page.
    Html,
    /// Everything, for programs.
    Json,
    /// For CI: a test case for each test, with its defects.
    Junit,
}

impl Format {
    fn ending(self) -> &'static str {
        match self {
            Self::Html => "html",
            Self::Json => "json",
            Self::Junit => "xml",
        }
    }

    pub(super) fn render(self, report: &ResilienceReport) -> Result<String, CommandError> {
        Ok(match self {
            Self::Html => faultscope_console::resilience_report(report),
            Self::Junit => resilience::junit(report),
            Self::Json => serde_json::to_string_pretty(report)
                .map_err(|e| CommandError::internal("the report cannot be written as JSON").because(e))?,
        })
    }
}

impl TryFrom<report::Format> for Format {
    type Error = CommandError;

    fn try_from(format: report::Format) -> Result<Self, CommandError> {
        match format {
            report::Format::Html => Ok(Self::Html),
            report::Format::Json => Ok(Self::Json),
            report::Format::Junit => Ok(Self::Junit),
            report::Format::Md => Err(CommandError::usage("a resilience report is html, json or junit")),
        }
    }
}

/// Writes the report files of a campaign that has just ended; without a name they are put beside it.
pub(crate) fn write_all(
    state: &Path,
    report: &ResilienceReport,
    wanted: &[Wanted<Format>],
    printer: &Printer,
) -> Result<(), CommandError> {
    for Wanted { format, file } in wanted {
        let (text, ending) = (format.render(report)?, format.ending());
        let file = match file {
            Some(file) => file.clone(),
            None => {
                let stored = Store::open(state)?.find_campaign(&report.campaign)?;
                stored.folder().join(format!("resilience-report.{ending}"))
            }
        };
        write(&file, &text)?;
        printer.talk(format!("report: {}", file.display()));
    }
    Ok(())
}
