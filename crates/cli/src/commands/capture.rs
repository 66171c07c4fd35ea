//! `faultscope capture`

use std::path::Path;

use clap::Args;
use faultscope_engine::views::{self, CommandLine};
use faultscope_engine::{MAX_APPLICATION_FILE, read_text_bounded};
use faultscope_model::Application;
use faultscope_model::capture::{self, Captured};
use faultscope_model::units::count;
use serde::Serialize;

use crate::error::CommandError;
use crate::exit::Exit;
use crate::folder::FileArg;
use crate::printer::Printer;
use crate::project::{FILE_NAME, Project};

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("source").required(true))]
pub(crate) struct CaptureArgs {
    #[command(flatten)]
    pub(crate) file: FileArg,
    /// A recorded run of `up`, `test` or `debug`; `last` for the newest.
    #[arg(long, value_name = "RUN", group = "source")]
    pub(crate) from_run: Option<String>,
    /// A trace that services reported, by its id in `faultscope traces ls`.
    #[arg(long, value_name = "ID", group = "source")]
    pub(crate) from_trace: Option<String>,
    /// A Compose project that runs now; `DOCKER_HOST` says where.
    #[cfg(feature = "docker")]
    #[arg(long, value_name = "PROJECT", group = "source")]
    pub(crate) compose: Option<String>,
    /// Write it into the file instead of printing it. Everything else in the file stays as it is.
    #[arg(long)]
    pub(crate) write: bool,
    /// Replace the failing circumstance of the file instead of adding to it.
    #[arg(long)]
    pub(crate) replace: bool,
}

/// What `capture` prints as JSON.
#[derive(Debug, Serialize)]
struct CaptureOutput<'a> {
    #[serde(flatten)]
    captured: &'a Captured,
    deltas: usize,
    written: Option<&'a Path>,
}

pub(crate) async fn run(args: CaptureArgs, printer: &Printer) -> Result<Exit, CommandError> {
    let file = if args.file.is_dir() { args.file.join(FILE_NAME) } else { args.file.to_path_buf() };
    let project = Project::read(&file)?;
    let application = &project.application;
    let mut captured = capture_circumstance(&args, &project, printer).await?;
    if !args.replace {
        captured.failing = capture::over(&captured.failing, &application.failing);
    }
    for note in &captured.notes {
        printer.warn(note);
    }
    let before = read_text_bounded(&file, MAX_APPLICATION_FILE)
        .map_err(|e| CommandError::new(Exit::Spec, format!("cannot read {}", file.display())).because(e))?;
    let text = capture::write(&before, &captured).map_err(|e| {
        CommandError::new(Exit::Spec, e.to_string())
            .hint(format!("the section itself is\n{}", capture::section(&captured.failing)))
    })?;
    let read = read_back(&file, &text)?;
    if read.failing != captured.failing
        || (Application {
            failing: application.failing.clone(),
            services: application.services.clone(),
            // Of the files that `protos` names, which the text does not contain.
            descriptors: application.descriptors.clone(),
            ..read.clone()
        }) != *application
    {
        return Err(CommandError::internal("the written file would have another meaning"));
    }
    let deltas = read.space().map_or(0, |space| space.full().len());
    if args.write {
        replace(&file, &text)?;
    }
    if printer.json {
        let written = args.write.then_some(file.as_path());
        printer.result(&CaptureOutput { captured: &captured, deltas, written })?;
    } else if args.write {
        printer.line(format!(
            "wrote the failing circumstance of {}: {}",
            file.display(),
            count(deltas, "delta")
        ));
        let next = |verb: &str| CommandLine::faultscope([verb, &file.to_string_lossy()]);
        printer.line(format!("next: `{}`, then `{}`", next("check"), next("debug")));
    } else {
        printer.line(capture::section(&captured.failing).trim_end());
        for (service, image) in &captured.images {
            printer.talk(format!("`{service}` also gets the version `{}`: {}", image.version, image.image));
        }
        printer.talk(format!("{}; `--write` puts it into {}", count(deltas, "delta"), file.display()));
    }
    Ok(Exit::Done)
}

async fn capture_circumstance(
    args: &CaptureArgs,
    project: &Project,
    printer: &Printer,
) -> Result<Captured, CommandError> {
    let application = &project.application;
    if let Some(wanted) = &args.from_run {
        let store = super::runs::open(&project.root)?.store()?;
        let found = views::find_last_run_of(&store, wanted, &application.name)?;
        printer.talk(format!("from run {}", found.run.id));
        return Ok(capture::from_run(application, &found.run, &found.reader.spans_of(found.run.trial)?));
    }
    if let Some(id) = &args.from_trace {
        let archive = super::traces::open(&project.root)?;
        let calls = capture::nested_calls_of_reports(&views::find_trace(&archive, id)?);
        let captured = capture::from_calls(application, &calls);
        if captured.failing.sequence.is_empty() && captured.notes.is_empty() {
            return Err(CommandError::new(
                Exit::Unresolved,
                "no calls of one handling overlap in this trace",
            )
            .hint(
                "services must report both sides of their calls, under the names of the application file",
            ));
        }
        return Ok(captured);
    }
    #[cfg(feature = "docker")]
    if let Some(name) = &args.compose {
        use faultscope_platform::docker::{DockerOptions, DockerPlatform};
        return match DockerPlatform::project(&DockerOptions::default(), name).await? {
            Ok(containers) => Ok(capture::from_containers(application, &containers)),
            Err(projects) => {
                let error = CommandError::usage(format!("no container of a project `{name}` runs"));
                Err(if projects.is_empty() {
                    error.hint("`docker compose up -d` starts one")
                } else {
                    error.hint(format!("projects that run: {}", projects.join(", ")))
                })
            }
        };
    }
    Err(CommandError::usage("say what to read: `--from-run`, `--from-trace` or `--compose`"))
}

/// Checks that the written file reads back as what was captured.
fn read_back(file: &Path, text: &str) -> Result<Application, CommandError> {
    let load = |base: &str, path: &str| {
        let next = Path::new(base).parent().unwrap_or(Path::new("")).join(path);
        let text = read_text_bounded(&next, MAX_APPLICATION_FILE).map_err(|e| e.to_string())?;
        Ok((text, next.to_string_lossy().into_owned()))
    };
    Application::read(text, &file.to_string_lossy(), &load)
        .map_err(|e| CommandError::new(Exit::Spec, "the written file would not be valid").because(e))
}

/// Replaces the file atomically: it is the user's own.
fn replace(file: &Path, text: &str) -> Result<(), CommandError> {
    let new = file.with_extension(format!("yaml.{}", std::process::id()));
    let written = std::fs::write(&new, text).and_then(|()| {
        if let Ok(meta) = std::fs::metadata(file) {
            std::fs::set_permissions(&new, meta.permissions())?;
        }
        std::fs::rename(&new, file)
    });
    written.map_err(|e| {
        let _ = std::fs::remove_file(&new);
        CommandError::new(Exit::Environment, format!("cannot write {}", file.display())).because(e)
    })
}
