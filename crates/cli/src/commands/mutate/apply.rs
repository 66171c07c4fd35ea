//! `mutate apply` and `mutate revert`

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use faultscope_engine::read_text_bounded;
use serde::Serialize;

use super::args::{ApplyArgs, RevertArgs};
use super::journal::{Journal, JournalError, Reverted};
use super::listing::{ListedMutant, Listing};
use super::sources::READ_LIMIT;
use crate::error::CommandError;
use crate::exit::Exit;
use crate::printer::Printer;
use crate::project::Project;

/// Files of a copy; more means that the folder is not that of one application.
const MAX_COPIED_FILES: usize = 200_000;

/// The JSON output of `mutate apply`.
#[derive(Debug, Serialize)]
struct Applied<'a> {
    mutant: &'a str,
    folder: &'a Path,
    path: &'a str,
    line: usize,
}

/// The JSON output of `mutate revert`.
#[derive(Debug, Serialize)]
struct Undone {
    mutant: String,
    path: String,
    result: Reverted,
}

pub(super) fn apply(args: &ApplyArgs, printer: &Printer) -> Result<Exit, CommandError> {
    let project = Project::read(&args.file)?;
    let listed = Listing::read(&project, printer).find(&args.mutant)?;
    let folder = match (&args.into, args.in_place) {
        (_, true) => {
            refuse_uncommitted(&project.root, &listed.mutant.path)?;
            project.root.clone()
        }
        (Some(into), false) => copy_to(&project.root, into)?,
        (None, false) => {
            let into = project.root.join(".faultscope").join("mutants").join(listed.mutant.id.as_str());
            copy_to(&project.root, &into)?
        }
    };
    apply_to(&folder, &listed)?;
    let mutant = &listed.mutant;
    if printer.json {
        let (id, path) = (mutant.id.as_str(), mutant.path.as_str());
        printer.result(&Applied { mutant: id, folder: &folder, path, line: mutant.line })?;
        return Ok(Exit::Done);
    }
    let folder = crate::shell::at(&folder);
    printer.line(format!("applied {} to {}:{}", mutant.id, mutant.path, mutant.line));
    printer.line(printer.dim(&format!("run its tests with `faultscope test{folder}`")));
    printer.line(printer.dim(&format!("take it back with `faultscope mutate revert{folder}`")));
    Ok(Exit::Done)
}

pub(super) fn revert(args: &RevertArgs, printer: &Printer) -> Result<Exit, CommandError> {
    let folder = folder_of(&args.file)?;
    let journal = Journal::read(&folder)?.ok_or(JournalError::NotApplied)?;
    let (mutant, path) = (journal.mutant.clone(), journal.path.clone());
    let result = journal.revert(&folder, args.force)?;
    if printer.json {
        printer.result(&Undone { mutant, path, result })?;
        return Ok(Exit::Done);
    }
    match result {
        Reverted::Restored => printer.line(format!("took {mutant} back: {path} is as it was")),
        Reverted::WasOriginal => printer.line(format!("{path} was as before already; {mutant} is forgotten")),
    }
    Ok(Exit::Done)
}

/// Applies a mutant to the application in a folder, or to a copy of it.
pub(super) fn apply_to(folder: &Path, listed: &ListedMutant) -> Result<(), CommandError> {
    if let Some(applied) = Journal::read(folder)? {
        let message = format!("{} is applied here already", applied.mutant);
        return Err(CommandError::usage(message).hint("take it back with `faultscope mutate revert`"));
    }
    let mutant = &listed.mutant;
    let file = folder.join(&mutant.path);
    let original = read_text_bounded(&file, READ_LIMIT)
        .map_err(|e| CommandError::usage(format!("cannot read {}", file.display())).because(e))?;
    let changed = mutant.patch.apply(&original).map_err(|e| CommandError::usage(e.to_string()))?;
    Journal::apply(folder, mutant.id.as_str(), &mutant.path, &original, &changed)?;
    Ok(())
}

/// The folder of an application whose file may itself be the mutated one, and so may not be valid.
fn folder_of(file: &Path) -> Result<PathBuf, CommandError> {
    let folder = if file.is_dir() { file } else { file.parent().unwrap_or(Path::new(".")) };
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let folder = fs::canonicalize(folder)
        .map_err(|e| CommandError::usage(format!("cannot open {}", folder.display())).because(e))?;
    match Journal::read(&folder) {
        Ok(None) => Ok(Project::read(file).map_or(folder, |project| project.root)),
        _ => Ok(folder),
    }
}

/// Refuses a file with changes that are not committed. Outside of git the journal alone protects it.
fn refuse_uncommitted(root: &Path, path: &str) -> Result<(), CommandError> {
    let output = Command::new("git")
        .arg("-C")
        .arg(root)
        .args(["status", "--porcelain", "--ignored", "--", path])
        .stdin(Stdio::null())
        .output();
    let Ok(output) = output else { return Ok(()) };
    if !output.status.success() || output.stdout.is_empty() {
        return Ok(());
    }
    Err(CommandError::usage(format!("{path} has changes that are not committed"))
        .hint("commit it first, or leave `--in-place` out to work on a copy"))
}

/// Copies the application, without the data of git and of this tool.
pub(super) fn copy_to(root: &Path, into: &Path) -> Result<PathBuf, CommandError> {
    let failed = |error: io::Error| {
        CommandError::new(Exit::Environment, format!("cannot copy the application to {}", into.display()))
            .because(error)
    };
    fs::create_dir_all(into).map_err(failed)?;
    let into = fs::canonicalize(into).map_err(failed)?;
    let is_state = into.starts_with(root.join(".faultscope"));
    if into.starts_with(root) && !is_state {
        return Err(CommandError::usage("the copy would lie within what is copied")
            .hint("name a folder outside of the application with `--into`"));
    }
    if fs::read_dir(&into).map_err(failed)?.next().is_some() {
        return Err(CommandError::usage(format!("{} is not empty", into.display()))
            .hint("remove it, or name another folder with `--into`"));
    }
    let mut n_copied = 0;
    copy_folder(root, &into, &mut n_copied).map_err(failed)?;
    Ok(into)
}

fn copy_folder(from: &Path, into: &Path, n_copied: &mut usize) -> io::Result<()> {
    let mut pending = vec![(from.to_owned(), into.to_owned())];
    while let Some((from, into)) = pending.pop() {
        fs::create_dir_all(&into)?;
        for entry in fs::read_dir(&from)? {
            let entry = entry?;
            let name = entry.file_name();
            if name == ".git" || name == ".faultscope" {
                continue;
            }
            *n_copied += 1;
            if *n_copied > MAX_COPIED_FILES {
                return Err(io::Error::other(format!("it has more than {MAX_COPIED_FILES} files")));
            }
            let target = into.join(&name);
            let kind = entry.file_type()?;
            if kind.is_dir() {
                pending.push((entry.path(), target));
            } else if kind.is_symlink() {
                std::os::unix::fs::symlink(fs::read_link(entry.path())?, target)?;
            } else if kind.is_file() {
                fs::copy(entry.path(), target)?;
            }
        }
    }
    Ok(())
}

impl From<JournalError> for CommandError {
    fn from(error: JournalError) -> Self {
        let (exit, hint) = match &error {
            JournalError::NotApplied => (Exit::Usage, Some("name the folder that the mutant was applied to")),
            JournalError::ChangedSince(_) => {
                (Exit::Usage, Some("`--force` restores the original; what was changed since is lost"))
            }
            JournalError::Unreadable(_) => (Exit::Usage, None),
            JournalError::File { .. } => (Exit::Environment, None),
        };
        let message = error.to_string();
        let failed = Self::new(exit, message);
        let failed = match error {
            JournalError::File { source, .. } => failed.because(source),
            _ => failed,
        };
        match hint {
            Some(hint) => failed.hint(hint),
            None => failed,
        }
    }
}
