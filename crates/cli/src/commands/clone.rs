//! `faultscope clone`

use std::path::PathBuf;

use clap::{Args, Subcommand};
use faultscope_engine::clone::{
    CloneError, CloneReport, CloneShelf, StoredClone, ask_for_clone, export_clone, import_clone,
};
use faultscope_model::secrets::SecretNames;
use faultscope_model::units::{ByteSize, count};
#[cfg(feature = "docker")]
use faultscope_platform::{DataForm, DockerOptions, DockerPlatform, Platform};
use faultscope_store::secrets::SecretOptions;

use super::clone_shell::ShellArgs;
use crate::args::Global;
use crate::error::CommandError;
use crate::exit::Exit;
use crate::folder::FolderArg;
use crate::printer::Printer;
use crate::project::{self, Project};
use crate::render;
use crate::shell;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct CloneArgs {
    #[command(subcommand)]
    command: Option<CloneCommand>,
    #[command(flatten)]
    take: TakeArgs,
}

#[derive(Debug, Args)]
struct TakeArgs {
    #[command(flatten)]
    folder: FolderArg,
    /// A name for the clone; clones with a name are kept until they are removed.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// The campaign of the `up` to ask, if several run in this folder.
    #[arg(long, value_name = "CAMPAIGN")]
    campaign: Option<String>,
}

#[derive(Debug, Subcommand)]
enum CloneCommand {
    /// Lists clones, newest first.
    Ls {
        #[command(flatten)]
        folder: FolderArg,
    },
    /// Shows what a clone has: data, pauses, and what became of state in memory.
    Show(OneArgs),
    /// Removes clones.
    Rm {
        /// Ids, their beginnings, names, or `last`.
        #[arg(value_name = "CLONE", required = true)]
        clones: Vec<String>,
        /// The application's folder or file.
        #[arg(long, value_name = "FOLDER", default_value = ".")]
        folder: PathBuf,
    },
    /// Writes a clone as one file, to be imported elsewhere.
    ///
    /// The data of services is in it as it is.
    Export {
        /// Its id, the beginning of it, its name, or `last`.
        clone: String,
        /// The file to write.
        file: PathBuf,
        /// Also write the values of variables that look like secrets.
        #[arg(long)]
        with_secrets: bool,
        /// The application's folder or file.
        #[arg(long, value_name = "FOLDER", default_value = ".")]
        folder: PathBuf,
    },
    /// Reads a clone from a file.
    Import {
        /// The file.
        file: PathBuf,
        /// The application's folder or file.
        #[arg(long, value_name = "FOLDER", default_value = ".")]
        folder: PathBuf,
    },
    /// Starts a copy of a clone and opens a shell in one of its services.
    ///
    /// The clone itself never changes. `--save-as` keeps the edited copy as another clone, for `replay --on`.
    ///
    /// Example: faultscope clone shell last order --save-as fixed
    Shell(Box<ShellArgs>),
}

#[derive(Debug, Args)]
struct OneArgs {
    /// Its id, the beginning of it, its name, or `last`.
    #[arg(default_value = "last")]
    clone: String,
    /// The application's folder or file.
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    folder: PathBuf,
}

pub(crate) async fn run(args: CloneArgs, global: &Global, printer: &Printer) -> Result<Exit, CommandError> {
    match args.command {
        None => take(args.take, printer).await,
        Some(CloneCommand::Ls { folder }) => list(&open_shelf(&folder), printer),
        Some(CloneCommand::Show(OneArgs { clone, folder })) => {
            let clone = open_shelf(&folder).find(&clone)?;
            if printer.json {
                printer.result(&render::clone::without_values(&clone.manifest))?;
            } else {
                render::clone::show(&clone.manifest, printer);
            }
            Ok(Exit::Done)
        }
        Some(CloneCommand::Rm { clones, folder }) => remove(&clones, &folder, printer).await,
        Some(CloneCommand::Export { clone, file, with_secrets, folder }) => {
            export(&open_shelf(&folder).find(&clone)?, &file, with_secrets, &folder, printer).await
        }
        Some(CloneCommand::Import { file, folder }) => {
            let clone = import_clone(&open_shelf(&folder), &file)?;
            report(&CloneReport { manifest: clone.manifest, removed: Vec::new() }, printer)
        }
        Some(CloneCommand::Shell(args)) => super::clone_shell::run(*args, global, printer).await,
    }
}

/// The clones of an application, also if its file cannot be read.
pub(crate) fn open_shelf(folder: &std::path::Path) -> CloneShelf {
    // The file only says whether what is written is sealed, and reading works for both.
    let record = Project::read(folder).map(|project| project.application.record).ok();
    let plain = record.is_some_and(|record| record.plain);
    let secrets = SecretOptions { plain, ..SecretOptions::default() };
    CloneShelf::open(&project::state_folder(folder), secrets)
}

async fn take(args: TakeArgs, printer: &Printer) -> Result<Exit, CommandError> {
    let state = project::state_folder(&args.folder);
    let taken = ask_for_clone(&state, args.campaign.as_deref(), args.name).await?;
    report(&taken, printer)
}

fn report(report: &CloneReport, printer: &Printer) -> Result<Exit, CommandError> {
    if printer.json {
        printer.result(&render::clone::without_values(&report.manifest))?;
    } else {
        render::clone::show(&report.manifest, printer);
        for id in &report.removed {
            printer.talk(format!("removed {id}, an older one"));
        }
        printer.talk(format!("replay on it with `faultscope replay TRACE --on {}`", report.manifest.id));
    }
    Ok(Exit::Done)
}

fn list(shelf: &CloneShelf, printer: &Printer) -> Result<Exit, CommandError> {
    let (clones, unreadable) = shelf.list()?;
    for clone in &unreadable {
        printer.warn(format!("{} cannot be read: {}", clone.id, clone.error));
    }
    if printer.json {
        let all: Vec<_> = clones.iter().map(|clone| render::clone::without_values(&clone.manifest)).collect();
        printer.result(&all)?;
    } else if clones.is_empty() {
        printer.line("there is no clone yet; `faultscope clone` takes one of what `faultscope up` runs");
    } else {
        printer.line(render::clone::table(clones.iter().map(|clone| &clone.manifest)));
    }
    Ok(Exit::Done)
}

async fn remove(
    wanted: &[String],
    folder: &std::path::Path,
    printer: &Printer,
) -> Result<Exit, CommandError> {
    let shelf = open_shelf(folder);
    for wanted in wanted {
        match shelf.find(wanted) {
            Ok(clone) => {
                #[cfg(feature = "docker")]
                if let Some(engine) = find_engine(&clone).await? {
                    engine.forget_snapshot(&clone.manifest.snapshot).await?;
                }
                shelf.remove(&clone.manifest.id)?;
                printer.line(format!("removed {}", clone.manifest.id));
            }
            // One that cannot be read can still be removed, if it is meant exactly.
            Err(error) => match wanted.parse() {
                Ok(id) if !matches!(error, CloneError::NotFound { .. }) => {
                    shelf.remove(&id)?;
                    printer.line(format!("removed {id}"));
                }
                _ => return Err(error.into()),
            },
        }
    }
    Ok(Exit::Done)
}

/// The engine that has the images of a clone; none if it has no images.
#[cfg(feature = "docker")]
async fn find_engine(clone: &StoredClone) -> Result<Option<DockerPlatform>, CommandError> {
    match clone.manifest.snapshot.form {
        DataForm::Images => Ok(Some(DockerPlatform::connect(DockerOptions::default()).await?)),
        _ => Ok(None),
    }
}

async fn export(
    clone: &StoredClone,
    file: &std::path::Path,
    with_secrets: bool,
    folder: &std::path::Path,
    printer: &Printer,
) -> Result<Exit, CommandError> {
    #[cfg(feature = "docker")]
    if let Some(engine) = find_engine(clone).await? {
        engine.pack_snapshot(&clone.data, &clone.manifest.snapshot).await?;
    }
    let rules = Project::read(folder).map(|project| project.application.record.secrets).unwrap_or_default();
    let names = SecretNames::new(&rules);
    let exported = export_clone(clone, file, (!with_secrets).then_some(&names))?;
    if !exported.left_out.is_empty() {
        printer.warn(format!(
            "values of {} are left out and come from the application file where it is imported: {}",
            count(exported.left_out.len(), "variable"),
            exported.left_out.join(", ")
        ));
    }
    printer.line(format!("written: {} ({})", file.display(), ByteSize(exported.bytes)));
    printer.talk(format!(
        "the data of services is in it as it is; elsewhere `faultscope clone import {}`",
        shell::quote(&file.to_string_lossy())
    ));
    Ok(Exit::Done)
}

impl From<CloneError> for CommandError {
    fn from(error: CloneError) -> Self {
        let text = error.to_string();
        match error {
            CloneError::Store(error) => error.into(),
            CloneError::Platform(error) => (*error).into(),
            CloneError::Engine(error) => error.into(),
            CloneError::NotFound { .. } | CloneError::Ambiguous { .. } => {
                Self::usage(text).hint("`faultscope clone ls` lists them")
            }
            CloneError::Name { .. } => Self::usage(text),
            CloneError::NotUp => Self::usage(text)
                .hint("start the application with `faultscope up`, and clone it from another terminal"),
            CloneError::SeveralUp { .. } => Self::usage(text).hint("choose one with `--campaign`"),
            CloneError::File { source, .. } => Self::new(Exit::Environment, text).because(source),
            CloneError::Damaged { .. } | CloneError::Newer { .. } | CloneError::Refused { .. } => {
                Self::new(Exit::Environment, text)
            }
        }
    }
}
