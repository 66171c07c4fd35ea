//! The files that `resilience --report` writes.

use std::path::Path;

use clap::ValueEnum;
use faultscope_engine::resilience::ResilienceReport;
use faultscope_store::Store;

use super::report::{Wanted, write};
use crate::error::CommandError;
use crate::exit::Exit;
use crate::printer::Printer;
use crate::render::resilience;

/// The form of a report file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// One page that needs nothing else.
    Html,
    /// Everything, for programs.
    Json,
    /// For build servers: a test case for each test, with its defects.
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

    fn render(self, report: &ResilienceReport) -> Result<String, CommandError> {
        Ok(match self {
            Self::Html => faultscope_console::resilience_report(report),
            Self::Junit => resilience::junit(report),
            Self::Json => serde_json::to_string_pretty(report)
                .map_err(|e| CommandError::internal("the report cannot be written as JSON").because(e))?,
        })
    }
}

/// The stored report of a resilience campaign; none when another kind of campaign is meant.
pub(crate) fn stored(store: &Store, wanted: &str) -> Result<Option<ResilienceReport>, CommandError> {
    let campaign = match wanted {
        // The newest one that has a report, of either kind.
        "last" => {
            let mut newest = None;
            for campaign in store.campaigns()? {
                let kind = campaign.meta.kind.as_str();
                if matches!(kind, "debug" | "resilience") && campaign.report::<serde_json::Value>()?.is_some()
                {
                    newest = Some(campaign);
                    break;
                }
            }
            newest
        }
        named => store.campaign_by(named).ok(),
    };
    match campaign.filter(|campaign| campaign.meta.kind == "resilience") {
        Some(campaign) => Ok(campaign.report()?),
        None => Ok(None),
    }
}

/// Shows a stored report, or writes it as a file.
pub(crate) fn show(
    report: &ResilienceReport,
    format: Option<super::report::Format>,
    output: Option<&Path>,
    printer: &Printer,
) -> Result<Exit, CommandError> {
    let Some(format) = format else {
        if printer.json {
            printer.result(report)?;
        } else {
            report.tests.iter().for_each(|test| resilience::test(test, printer));
        }
        return Ok(Exit::Done);
    };
    let format = match format {
        super::report::Format::Html => Format::Html,
        super::report::Format::Json => Format::Json,
        super::report::Format::Junit => Format::Junit,
        super::report::Format::Md => {
            return Err(CommandError::usage("a resilience report is html, json or junit"));
        }
    };
    let text = format.render(report)?;
    match output {
        None => printer.line(text.trim_end()),
        Some(file) => {
            write(file, &text)?;
            printer.line(file.display());
        }
    }
    Ok(Exit::Done)
}

/// Writes the report files of a campaign that has just ended; without a name they go beside it.
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
                let stored = Store::open(state)?.campaign_by(&report.campaign)?;
                stored.folder().join(format!("resilience-report.{ending}"))
            }
        };
        write(&file, &text)?;
        printer.talk(format!("report: {}", file.display()));
    }
    Ok(())
}
