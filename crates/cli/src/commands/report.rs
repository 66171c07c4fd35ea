//! `faultscope report`, and the files that `debug --report` writes.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::{Args, ValueEnum};
use faultscope_engine::debug::Document;
use faultscope_engine::replay::ReplayReport;
use faultscope_engine::views::{self, Archive, CampaignReport, Subject, ViewError};
use faultscope_store::secrets::SecretOptions;
use faultscope_store::{Store, StoredCampaign};

use super::resilience_report;
use crate::error::CommandError;
use crate::exit::Exit;
use crate::printer::Printer;
use crate::project;
pub(crate) use crate::render::report::Format;
use crate::render::{replay, report, resilience};
use crate::shell;

#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// A campaign, or the beginning of its id; `last` for the newest debug or resilience campaign.
    #[arg(default_value = "last")]
    pub(crate) campaign: String,
    /// Format; by default text with the rounds of the search.
    #[arg(long, value_enum)]
    pub(crate) format: Option<Format>,
    /// File to write; its folder is created if needed. Prints to standard output by default.
    #[arg(long, short, value_name = "FILE", requires = "format")]
    pub(crate) output: Option<PathBuf>,
    /// Write the reproduction bundle that `debug` kept with the campaign to this file.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["format", "output"])]
    pub(crate) bundle: Option<PathBuf>,
    /// Write the smallest input that `debug --input` found to this file, with the secrets that it has.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["format", "output", "bundle"])]
    pub(crate) input: Option<PathBuf>,
    /// The application's folder or file.
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    pub(crate) folder: PathBuf,
}

/// A requested report file: `html`, or `html=where.html`. The available formats depend on the report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wanted<F = Format> {
    pub(crate) format: F,
    pub(crate) file: Option<PathBuf>,
}

impl<F: ValueEnum> FromStr for Wanted<F> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (format, file) = match text.split_once('=') {
            Some((_, "")) => return Err("the file's name is missing after `=`".into()),
            Some((format, file)) => (format, Some(PathBuf::from(file))),
            None => (text, None),
        };
        let format = F::from_str(format, true).map_err(|_| {
            let known = F::value_variants().iter().filter_map(ValueEnum::to_possible_value);
            let mut known: Vec<String> = known.map(|form| form.get_name().to_owned()).collect();
            let last = known.pop().unwrap_or_default();
            format!("{} or {last}", known.join(", "))
        })?;
        Ok(Self { format, file })
    }
}

pub(crate) fn run(args: &ReportArgs, printer: &Printer) -> Result<Exit, CommandError> {
    let state = project::state_folder(&args.folder);
    let archive = Archive::open(&state, Subject::Report)?;
    if let Some(file) = &args.bundle {
        let campaign = views::find_debug_campaign(&archive.store()?, &args.campaign)?;
        let files = super::bundles::export(&campaign, file)?;
        files.iter().for_each(|file| printer.line(file.display()));
        return Ok(Exit::Done);
    }
    if let Some(file) = &args.input {
        let campaign = views::find_debug_campaign(&archive.store()?, &args.campaign)?;
        write(file, export_input(&campaign)?)?;
        printer.line(file.display());
        return Ok(Exit::Done);
    }
    let found = views::find_report(&archive.store()?, &args.campaign)?;
    let Some(format) = args.format else {
        if printer.json {
            printer.result(&found)?;
            return Ok(Exit::Done);
        }
        match &found {
            CampaignReport::Debug(document) => {
                // The folder that holds the campaigns, which a file that extends another does not lie in.
                report::text::show(document, &shell::at(state.parent().unwrap_or(&state)), printer)
            }
            CampaignReport::Resilience(report) => {
                report.tests.iter().for_each(|test| resilience::test(test, printer));
            }
            CampaignReport::Replay(report) => {
                replay::show(report, &shell::at(state.parent().unwrap_or(&state)), printer);
            }
        }
        return Ok(Exit::Done);
    };
    let text = match &found {
        CampaignReport::Debug(document) => format.render(document)?,
        CampaignReport::Resilience(report) => resilience_report::Format::from(format).render(report)?,
        CampaignReport::Replay(report) => render_replay(report, format)?,
    };
    match &args.output {
        None => printer.line(text.trim_end()),
        Some(file) => {
            write(file, &text)?;
            printer.line(file.display());
        }
    }
    Ok(Exit::Done)
}

fn render_replay(report: &ReplayReport, format: Format) -> Result<String, CommandError> {
    match format {
        Format::Html => Ok(faultscope_console::replay_report(report)),
        Format::Json => serde_json::to_string_pretty(report)
            .map_err(|e| CommandError::internal("the report cannot be written").because(e)),
        Format::Md => Ok(replay::markdown(report)),
        Format::Junit => Err(CommandError::usage("the report of a replay is `html`, `json` or `md`")),
    }
}

/// The smallest input that is kept with a campaign.
fn export_input(campaign: &StoredCampaign) -> Result<Vec<u8>, CommandError> {
    let document = Document::read(campaign)?.ok_or_else(|| ViewError::NoReport(campaign.meta.id.clone()))?;
    let kept = document.report.input.and_then(|input| input.kept);
    let bytes = kept.map(|name| campaign.attachment(&name)).transpose()?.flatten();
    bytes.ok_or_else(|| {
        let problem = format!("campaign {} has no smallest input", campaign.meta.id);
        CommandError::usage(problem).hint("`faultscope debug --input` looks for one")
    })
}

/// Keeps a report that has no file of its own with its campaign, sealed like everything there.
pub(super) fn keep(
    stored: &StoredCampaign,
    (kind, format, ending): (&str, &str, &str),
    text: &str,
    (secrets, printer): (&SecretOptions, &Printer),
) -> Result<(), CommandError> {
    let name = format!("{kind}-report.{ending}");
    stored.attach(&name, text.as_bytes(), secrets)?;
    // The campaign lies in `.faultscope/campaigns`, beside the application file.
    let at = shell::at(stored.folder().ancestors().nth(3).unwrap_or(stored.folder()));
    let command = format!("faultscope report {} --format {format} --output {name}{at}", stored.meta.id);
    printer.talk(format!("report: kept with the campaign, `{command}` writes it"));
    Ok(())
}

/// Writes the report files of a campaign that has just ended; those without a name are kept with it.
pub(crate) fn write_all(
    state: &Path,
    campaign: &str,
    wanted: &[Wanted],
    (secrets, printer): (&SecretOptions, &Printer),
) -> Result<(), CommandError> {
    if wanted.is_empty() {
        return Ok(());
    }
    let stored = views::find_campaign(&Store::open(state)?, campaign)?;
    let document = Document::read(&stored)?.ok_or_else(|| ViewError::NoReport(stored.meta.id.clone()))?;
    for Wanted { format, file } in wanted {
        let text = format.render(&document)?;
        let Some(file) = file else {
            let called = format.to_possible_value().map(|form| form.get_name().to_owned());
            let names = ("debug", called.as_deref().unwrap_or_default(), format.ending());
            keep(&stored, names, &text, (secrets, printer))?;
            continue;
        };
        write(file, &text)?;
        printer.talk(format!("report: {}", file.display()));
    }
    Ok(())
}

pub(crate) fn write(file: &Path, text: impl AsRef<[u8]>) -> Result<(), CommandError> {
    let cannot =
        |e| CommandError::new(Exit::Environment, format!("cannot write {}", file.display())).because(e);
    if let Some(parent) = file.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        std::fs::create_dir_all(parent).map_err(cannot)?;
    }
    std::fs::write(file, text).map_err(cannot)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_with_and_without_a_file() {
        let html: Wanted = "html".parse().unwrap();
        assert_eq!((html.format, html.file), (Format::Html, None));
        let junit: Wanted = "junit=out/a=b.xml".parse().unwrap();
        assert_eq!(junit.file, Some("out/a=b.xml".into()));
        assert!("pdf".parse::<Wanted>().is_err() && "html=".parse::<Wanted>().is_err());
    }
}
