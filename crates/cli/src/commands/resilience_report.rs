//! The files that `resilience --report` writes.

use std::path::Path;

use clap::ValueEnum;
use faultscope_engine::resilience::ResilienceReport;
use faultscope_store::Store;
use faultscope_store::secrets::SecretOptions;

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
    /// For pull requests and tickets.
    Md,
}

impl Format {
    fn ending(self) -> &'static str {
        match self {
            Self::Html => "html",
            Self::Json => "json",
            Self::Junit => "xml",
            Self::Md => "md",
        }
    }

    pub(super) fn render(self, report: &ResilienceReport) -> Result<String, CommandError> {
        Ok(match self {
            Self::Html => faultscope_console::resilience_report(report),
            Self::Junit => resilience::junit(report),
            Self::Md => resilience::markdown(report),
            Self::Json => serde_json::to_string_pretty(report)
                .map_err(|e| CommandError::internal("the report cannot be written as JSON").because(e))?,
        })
    }
}

impl From<report::Format> for Format {
    fn from(format: report::Format) -> Self {
        match format {
            report::Format::Html => Self::Html,
            report::Format::Json => Self::Json,
            report::Format::Junit => Self::Junit,
            report::Format::Md => Self::Md,
        }
    }
}

/// Writes the report files of a campaign that has just ended; those without a name are kept with it.
pub(crate) fn write_all(
    state: &Path,
    report: &ResilienceReport,
    wanted: &[Wanted<Format>],
    (secrets, printer): (&SecretOptions, &Printer),
) -> Result<(), CommandError> {
    for Wanted { format, file } in wanted {
        let (text, ending) = (format.render(report)?, format.ending());
        let Some(file) = file else {
            let stored = Store::open(state)?.find_campaign(&report.campaign)?;
            let called = format.to_possible_value().map(|form| form.get_name().to_owned());
            let names = ("resilience", called.as_deref().unwrap_or_default(), ending);
            report::keep(&stored, names, &text, (secrets, printer))?;
            continue;
        };
        write(file, &text)?;
        printer.talk(format!("report: {}", file.display()));
    }
    Ok(())
}
