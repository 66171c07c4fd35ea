//! The reproduction bundles that `debug` writes, and what it says about them.

use std::path::{Path, PathBuf};

use faultscope_engine::debug::bundle::{
    self, Compared, Contents, Manifest, Reduced, Written, restore_settings,
};
use faultscope_engine::debug::{self, DebugReport, FoundCause, nearest_passing};
use faultscope_engine::stored;
use faultscope_model::secrets::SecretNames;
use faultscope_model::units::{ByteSize, count};
use faultscope_model::{Circumstance, Run};
use faultscope_store::secrets::SecretOptions;
use faultscope_store::{Store, StoredCampaign};

use super::debug_args::DebugArgs;
use crate::args::Target;
use crate::error::CommandError;
use crate::exit::Exit;
use crate::printer::Printer;
use crate::project::Project;
use crate::shell::{self, quote};

/// The name of a bundle that the user gave no file for. It is kept with the campaign, sealed, because it holds the
/// user's files as they are.
const KEPT: &str = "repro.tar.gz";
/// More bundles than a campaign has causes.
const MAX_KEPT: usize = 100;

/// Names in one message; more would hide the rest of the output.
const SHOWN_NAMES: usize = 5;
/// Places of secrets in one message. Each counts; the rest is in the bundle's README.
const SHOWN_SECRETS: usize = 20;
/// A bundle of this size does not fit into most mails, so the largest folders are named.
const LARGE_BYTES: u64 = 16 << 20;

/// Checks what the application file says about bundles before anything runs.
pub(crate) fn check(project: &Project) -> Result<(), CommandError> {
    bundle::check(&project.application).map_err(|error| {
        CommandError::new(Exit::Spec, error.to_string()).hint("patterns are those of a `.gitignore` file")
    })
}

/// Writes the reproduction bundles; returns a line about each. Failing to write one that was not requested is only a
/// warning.
pub(crate) fn write(
    project: &Project,
    args: &DebugArgs,
    report: &DebugReport,
    printer: &Printer,
) -> Result<Vec<String>, CommandError> {
    let bundles = match write_all(project, args, report) {
        Err(error) if args.bundle.is_none() => {
            printer.warn(format!("no reproduction bundle: {}", error.causes.join(": ")));
            return Ok(Vec::new());
        }
        other => other?,
    };
    // All bundles of a campaign hold the same files.
    if let Some((_, written)) = bundles.first() {
        describe_gaps(project, written, printer);
    }
    let describe = |(file, written): &(PathBuf, Written)| {
        let kept = args.bundle.is_none().then_some(report.campaign.as_str());
        describe_bundle(project, file, written, kept)
    };
    Ok(bundles.iter().map(describe).collect())
}

/// Says how a bundle is used; one that is kept with a campaign is written first.
fn describe_bundle(project: &Project, file: &Path, written: &Written, kept_with: Option<&str>) -> String {
    let restore = if project.application.bundle.restore.is_some() { " --restore" } else { "" };
    let file = quote(&file.to_string_lossy());
    let size = format!("({}, {})", ByteSize(written.packed_bytes), count(written.files, "file"));
    match kept_with {
        None => format!("Elsewhere with `faultscope repro {file}{restore}` {size}"),
        Some(campaign) => {
            let at = shell::at(&project.root);
            format!(
                "For another machine: `faultscope report {campaign} --bundle {KEPT}{at}` {size}, there \
                 `faultscope repro {file}{restore}`"
            )
        }
    }
}

/// Writes the bundles that are kept with a campaign to a file of the user, and more of them beside it; returns where.
pub(crate) fn export(campaign: &StoredCampaign, to: &Path) -> Result<Vec<PathBuf>, CommandError> {
    let mut written = Vec::new();
    for number in 1..=MAX_KEPT {
        let name = numbered(Path::new(KEPT), number);
        // A cause without a run of its own has no bundle, but the next one may have.
        let Some(bytes) = campaign.attachment(&name.to_string_lossy())? else { continue };
        let file = numbered(to, number);
        super::report::write(&file, &bytes)?;
        written.push(file);
    }
    if written.is_empty() {
        let problem = format!("campaign {} has no reproduction bundle", campaign.meta.id);
        return Err(CommandError::usage(problem).hint("`faultscope debug --bundle FILE` writes one"));
    }
    Ok(written)
}

/// Says what people should know before they hand a bundle on.
fn describe_gaps(project: &Project, written: &Written, printer: &Printer) {
    let secrets = debug::bundle::secrets(&project.application);
    if !secrets.is_empty() {
        printer.warn(format!("the bundle holds values that look like secrets: {}", secrets.join(", ")));
    }
    if !written.secrets.is_empty() {
        let shown: Vec<_> = written.secrets.iter().take(SHOWN_SECRETS).map(ToString::to_string).collect();
        let more = written.secrets.len().saturating_sub(shown.len());
        let more =
            if more > 0 { format!(" and {more} more, see README.md in the bundle") } else { String::new() };
        printer.warn(format!("places in the bundle that look like secrets: {}{more}", shown.join(", ")));
    }
    if !written.left_out.is_empty() {
        printer.warn(format!(
            "not in the bundle, as they are large or look secret: {}; what a command, a setting, a mount or an \
             `input` of the application names is taken along",
            list_paths(&written.left_out)
        ));
    }
    if !written.outside.is_empty() {
        printer.warn(format!(
            "not in the bundle, as they lie outside of {}: {}",
            project.root.display(),
            written.outside.join(", ")
        ));
    }
    if !written.ignored.is_empty() {
        printer.talk(format!(
            "not in the bundle, as .gitignore lists them: {}; `bundle: {{ exclude: [\"!{}\"] }}` takes one along",
            list_paths(&written.ignored),
            written.ignored[0].display()
        ));
    }
    let is_cut = !written.largest.is_empty() && !written.left_out.is_empty();
    if written.bytes > LARGE_BYTES || is_cut {
        let largest: Vec<String> = written.largest.iter().map(describe_folder).collect();
        let most = if largest.is_empty() {
            String::new()
        } else {
            format!(", most of it in {}", largest.join(", "))
        };
        let what = if is_cut {
            "the application's folder is large".to_owned()
        } else {
            format!("the bundle holds {}", ByteSize(written.bytes))
        };
        printer.warn(format!(
            "{what}{most}; `bundle: {{ exclude: [FOLDER], restore: [COMMAND] }}` leaves out what can be made again"
        ));
    }
}

fn describe_folder((folder, bytes): &(PathBuf, u64)) -> String {
    format!("{} ({})", folder.display(), ByteSize(*bytes))
}

fn list_paths(paths: &[PathBuf]) -> String {
    let shown: Vec<_> = paths.iter().take(SHOWN_NAMES).map(|path| path.display().to_string()).collect();
    let more = paths.len().saturating_sub(shown.len());
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    shown.join(", ") + &more
}

/// Writes a bundle for each cause.
fn write_all(
    project: &Project,
    args: &DebugArgs,
    report: &DebugReport,
) -> Result<Vec<(PathBuf, Written)>, CommandError> {
    let Some(signature) = &report.signature else { return Ok(Vec::new()) };
    let stored = Store::open(project.root.join(".faultscope"))?.find_campaign(&report.campaign)?;
    let runs = stored::runs(&stored.reader()?)?;
    let secrets = project.secrets();
    let mut bundles = Vec::new();
    for (cause, number) in report.causes.iter().zip(1..) {
        let Some((failing, passing)) = both_ends(cause, &runs) else { continue };
        let (first, last) = (&project.application.simplest, &project.application.failing);
        let names = SecretNames::new(&project.application.record.secrets);
        let failing = &restore_settings(&failing.circumstance, &names, [last, first]);
        let passing = passing.map_or(first, |run| &run.circumstance);
        let passing = &restore_settings(passing, &names, [first, last]);
        let compared = compared(project, &args.target, failing, passing)?;
        let reduced = compared.is_none().then_some(Reduced { files: &project.files, failing, passing });
        let manifest = Manifest {
            format: Manifest::format(&project.application, compared.is_some(), signature),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            application: report.application.clone(),
            campaign: report.campaign.clone(),
            signature: signature.clone(),
            rate: report.calibration.map_or(1.0, |known| known.rate),
            seed: args.seed,
            deltas: cause.deltas.iter().map(|delta| delta.name.clone()).collect(),
            only: args.only,
            compared,
        };
        let contents = Contents { root: &project.root, application: &project.application, reduced };
        let to = numbered(args.bundle.as_deref().unwrap_or(Path::new(KEPT)), number);
        let write = |to: &Path| {
            bundle::write(to, &manifest, &contents).map_err(|e| {
                CommandError::new(Exit::Environment, format!("cannot write {}", to.display())).because(e)
            })
        };
        let written = match &args.bundle {
            Some(_) => write(&to)?,
            None => keep(&stored, &to, &secrets, write)?,
        };
        bundles.push((to, written));
    }
    Ok(bundles)
}

/// Keeps a bundle with its campaign. It is put together in a folder of the user's own, which is gone afterwards.
fn keep(
    campaign: &StoredCampaign,
    name: &Path,
    secrets: &SecretOptions,
    write: impl Fn(&Path) -> Result<Written, CommandError>,
) -> Result<Written, CommandError> {
    let cannot = |e| CommandError::new(Exit::Environment, "cannot put the bundle together").because(e);
    let folder = tempfile::tempdir().map_err(cannot)?;
    let file = folder.path().join(name);
    let written = write(&file)?;
    campaign.attach(&name.to_string_lossy(), &std::fs::read(&file).map_err(cannot)?, secrets)?;
    Ok(written)
}

/// The comparison part of a bundle; none if one file was debugged.
fn compared(
    project: &Project,
    target: &Target,
    failing: &Circumstance,
    passing: &Circumstance,
) -> Result<Option<Compared>, CommandError> {
    if !target.comparison.is_asked_for() {
        return Ok(None);
    }
    let inside = |path: &PathBuf| {
        bundle::inside(&project.root, path)
            .map_err(|e| CommandError::new(Exit::Environment, "the comparison cannot be bundled").because(e))
    };
    let all = |paths: &[PathBuf]| paths.iter().map(inside).collect::<Result<Vec<_>, _>>();
    Ok(Some(Compared {
        good: all(&target.comparison.good)?,
        bad: all(&target.comparison.bad)?,
        tests: target.comparison.tests_from.as_ref().map(inside).transpose()?,
        failing: failing.clone(),
        passing: passing.clone(),
    }))
}

/// The run that showed a cause, and the passing run with the fewest different deltas.
fn both_ends<'a>(cause: &FoundCause, runs: &'a [Run]) -> Option<(&'a Run, Option<&'a Run>)> {
    let failing = runs.iter().find(|run| Some(&run.id) == cause.run.as_ref())?;
    let all: Vec<&Run> = runs.iter().collect();
    Some((failing, nearest_passing(failing, &all).first().copied()))
}

/// `a.tar.gz` for the first, `a-2.tar.gz` for the second.
fn numbered(file: &Path, number: usize) -> PathBuf {
    if number == 1 {
        return file.to_owned();
    }
    let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let (stem, ending) = name.split_once('.').map_or((name.as_str(), ""), |(stem, ending)| (stem, ending));
    let dot = if ending.is_empty() { "" } else { "." };
    file.with_file_name(format!("{stem}-{number}{dot}{ending}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn further_bundles_have_numbers() {
        assert_eq!(numbered(Path::new("a/b.tar.gz"), 1), Path::new("a/b.tar.gz"));
        assert_eq!(numbered(Path::new("a/b.tar.gz"), 2), Path::new("a/b-2.tar.gz"));
        assert_eq!(numbered(Path::new("b"), 3), Path::new("b-3"));
    }
}
