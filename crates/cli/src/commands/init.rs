//! `faultscope init`

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use faultscope_model::Application;
use faultscope_model::import::{
    ComposeInput, ImportError, Imported, ImportedApplication, ImportedService, ImportedSource, ManifestInput,
    PathKind, from_compose, from_manifests, from_procfile, looks_like_manifest,
};
use faultscope_model::units::count;
use serde::Serialize;

use faultscope_engine::read_text_bounded;

use crate::args::InitArgs;
use crate::error::CommandError;
use crate::exit::Exit;
use crate::printer::Printer;

/// File names that Compose looks for, each with its override.
const COMPOSE_NAMES: [(&str, &str); 4] = [
    ("compose.yaml", "compose.override.yaml"),
    ("compose.yml", "compose.override.yml"),
    ("docker-compose.yaml", "docker-compose.override.yaml"),
    ("docker-compose.yml", "docker-compose.override.yml"),
];

/// The most bytes of a file that is read; a rendered chart of a large system has a tenth of it.
const MAX_BYTES: u64 = 16 << 20;

#[derive(Debug, Serialize)]
struct Written {
    file: String,
    services: usize,
    warnings: Vec<String>,
}

pub(crate) fn run(args: &InitArgs, printer: &Printer) -> Result<Exit, CommandError> {
    let files = if args.files.is_empty() { find_files(Path::new(""))? } else { args.files.clone() };
    let choices =
        Choices { profiles: &args.profile, env_files: &args.env_file, keep_tracing: args.keep_tracing };
    let mut imported = import(&files, &choices)?;
    imported.application.directory = find_directory(&files, &args.output, &imported.application);
    let text = imported.application.to_yaml();
    // The written file must be readable again.
    let usable = imported
        .application
        .services
        .values()
        .all(|s| s.words().next().is_some() || s.image.is_some() || s.build.is_some());
    if usable {
        Application::read_alone(&text, "faultscope.yaml")
            .map_err(|e| CommandError::internal("the written file would not be valid").because(e))?;
    }
    for warning in &imported.warnings {
        printer.warn(warning);
    }
    if args.output == Path::new("-") {
        printer.line(text.trim_end());
        return Ok(Exit::Done);
    }
    write_new(&args.output, &text, args.force)?;
    let written = Written {
        file: args.output.display().to_string(),
        services: imported.application.services.len(),
        warnings: imported.warnings,
    };
    if printer.json {
        printer.result(&written)?;
    } else {
        printer.line(format!("wrote {} with {}", written.file, count(written.services, "service")));
        printer.line(format!("next: add tests to it, then `faultscope check {}`", written.file));
    }
    Ok(Exit::Done)
}

/// The folder that paths of the application are relative to, seen from the written file; none if it lies there.
fn find_directory(files: &[PathBuf], output: &Path, application: &ImportedApplication) -> Option<String> {
    let has_source = |service: &ImportedService| {
        service.mounts.iter().any(|mount| matches!(mount.source, ImportedSource::From(_)))
    };
    // Images need no folder of this machine.
    let uses_folder = |service: &ImportedService| {
        service.image.is_none()
            || service.build.is_some()
            || service.directory.is_some()
            || has_source(service)
    };
    if !application.services.values().any(uses_folder) {
        return None;
    }
    let first = files.first().filter(|file| *file != Path::new("-"))?;
    let project = if first.is_dir() { first.as_path() } else { folder_of(first) };
    let written = if output == Path::new("-") { Path::new(".") } else { folder_of(output) };
    let above = application.directory.as_deref().unwrap_or_default();
    let project = std::fs::canonicalize(project.join(above)).ok()?;
    let written = std::fs::canonicalize(written).ok()?;
    let n_common = project.components().zip(written.components()).take_while(|(a, b)| a == b).count();
    let ups = written.components().skip(n_common).map(|_| Path::new(".."));
    let downs = project.components().skip(n_common).map(|part| Path::new(part.as_os_str()));
    let path: PathBuf = ups.chain(downs.collect::<Vec<_>>()).collect();
    Some(path.to_string_lossy().into_owned()).filter(|path| !path.is_empty())
}

fn folder_of(file: &Path) -> &Path {
    file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Names of the folders from the root of the repository down to a project; none outside of a repository.
fn find_parents(project: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for folder in project.ancestors() {
        if folder.join(".git").exists() {
            names.reverse();
            return names;
        }
        let Some(name) = folder.file_name() else { break };
        names.push(name.to_string_lossy().into_owned());
    }
    Vec::new()
}

/// What stands at a path. A link that leads out of the application cannot be mounted.
fn look_at(path: &Path, application: &Path) -> PathKind {
    let Ok(real) = path.canonicalize() else { return PathKind::Missing };
    match std::fs::metadata(&real) {
        Err(_) => PathKind::Missing,
        Ok(_) if !real.starts_with(application) => PathKind::Other,
        Ok(about) if about.is_dir() => PathKind::Folder,
        Ok(about) if about.is_file() => PathKind::File,
        Ok(_) => PathKind::Other,
    }
}

/// What can be chosen about an import.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Choices<'a> {
    pub(crate) profiles: &'a [String],
    pub(crate) env_files: &'a [PathBuf],
    pub(crate) keep_tracing: bool,
}

/// The files of a folder that Compose would read, its Procfile, or its manifests.
pub(crate) fn find_files(folder: &Path) -> Result<Vec<PathBuf>, CommandError> {
    for (name, over) in COMPOSE_NAMES {
        if folder.join(name).is_file() {
            return Ok([name, over].into_iter().map(|n| folder.join(n)).filter(|p| p.is_file()).collect());
        }
    }
    if folder.join("Procfile").is_file() {
        return Ok(vec![folder.join("Procfile")]);
    }
    if folder.as_os_str().is_empty() {
        let message = "there is no Compose file and no Procfile here";
        return Err(CommandError::usage(message)
            .hint("name one with `-f FILE`, or Kubernetes manifests with `-f FOLDER`"));
    }
    let manifests = find_manifests(folder)?;
    if !manifests.is_empty() {
        return Ok(manifests);
    }
    let message =
        format!("there is no application file, Compose file, manifest or Procfile in {}", folder.display());
    Err(CommandError::usage(message).hint("name the file itself"))
}

/// The manifests of a folder, in the order of their names. Like `kubectl apply -f`, it does not look below.
fn find_manifests(folder: &Path) -> Result<Vec<PathBuf>, CommandError> {
    let cannot = |e: std::io::Error| {
        CommandError::new(Exit::Spec, format!("cannot read {}", folder.display())).because(e)
    };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(cannot)? {
        let path = entry.map_err(cannot)?.path();
        let ending = path.extension().map(|e| e.to_string_lossy().to_lowercase()).unwrap_or_default();
        let is_manifest = matches!(ending.as_str(), "yaml" | "yml" | "json")
            && read_bounded(&path).is_ok_and(|text| looks_like_manifest(&text));
        let is_kustomization = path.file_stem().is_some_and(|stem| stem == "kustomization");
        if is_manifest && !is_kustomization {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Reads Compose files, later ones merged over earlier ones, or manifests, or one Procfile.
pub(crate) fn import(files: &[PathBuf], choices: &Choices<'_>) -> Result<Imported, CommandError> {
    let mut texts: Vec<(PathBuf, String)> = Vec::new();
    for path in files {
        let named = if path.is_dir() { find_files(path)? } else { vec![path.clone()] };
        for path in named {
            let text = read_bounded(&path).map_err(|e| {
                CommandError::new(Exit::Spec, format!("cannot read {}", path.display())).because(e)
            })?;
            texts.push((path, text));
        }
    }
    let first = texts.first().map(|(path, _)| path.clone()).unwrap_or_default();
    let folder = first.parent().unwrap_or(Path::new("")).to_owned();
    let name = project_name(&folder);
    let is_procfile =
        |path: &Path| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with("Procfile"));
    let spec = |e: ImportError| {
        let error = CommandError::new(Exit::Spec, e.to_string());
        match e.hint {
            Some(hint) => error.hint(hint),
            None => error,
        }
    };
    if let [(only, text)] = texts.as_slice()
        && is_procfile(only)
    {
        let dotenv = read_bounded(&folder.join(".env")).ok();
        return from_procfile(&name, &only.to_string_lossy(), text, dotenv.as_deref()).map_err(spec);
    }
    if texts.iter().any(|(path, _)| is_procfile(path)) {
        return Err(CommandError::usage("a Procfile cannot be combined with other files"));
    }
    let n_manifests = texts.iter().filter(|(_, text)| looks_like_manifest(text)).count();
    let all_manifests = n_manifests == texts.len() && n_manifests > 0;
    let files: Vec<(String, String)> = texts.into_iter().map(|(path, text)| (shown(&path), text)).collect();
    if all_manifests {
        let input = ManifestInput { name: &name, files: &files, keep_tracing: choices.keep_tracing };
        return from_manifests(&input).map_err(spec);
    }
    if n_manifests > 0 {
        return Err(CommandError::usage("Compose files and Kubernetes manifests cannot be mixed"));
    }
    let environment: BTreeMap<String, String> = std::env::vars_os()
        .filter_map(|(key, value)| Some((key.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    let env_files = read_env_files(&folder, choices.env_files)?;
    let load = |path: &str| read_bounded(&folder.join(path)).map_err(|e| e.to_string());
    let project = std::fs::canonicalize(folder_of(&first)).unwrap_or_default();
    let parents = find_parents(&project);
    let root = project.ancestors().nth(parents.len()).unwrap_or(&project);
    let look = |path: &str| look_at(&folder.join(path), root);
    let absolute = project.to_string_lossy();
    let input = ComposeInput {
        name: &name,
        files: &files,
        environment: &environment,
        env_files: &env_files,
        keep_tracing: choices.keep_tracing,
        profiles: choices.profiles,
        load: &load,
        look: &look,
        folder: &absolute,
        parents: &parents,
    };
    from_compose(&input).map_err(spec)
}

/// The environment files that were asked for, otherwise the project's `.env` if there is one.
fn read_env_files(folder: &Path, asked: &[PathBuf]) -> Result<Vec<(String, String)>, CommandError> {
    if asked.is_empty() {
        let text = read_bounded(&folder.join(".env")).ok();
        return Ok(text.map(|text| (".env".to_owned(), text)).into_iter().collect());
    }
    let read = |path: &PathBuf| -> Result<(String, String), CommandError> {
        let text = read_bounded(path).map_err(|e| {
            CommandError::new(Exit::Spec, format!("cannot read {}", path.display())).because(e)
        })?;
        Ok((path.display().to_string(), text))
    };
    asked.iter().map(read).collect()
}

/// The text of a file, or of standard input for `-`. Refuses what has no end, such as a device or a pipe that
/// a foreign file names.
fn read_bounded(path: &Path) -> std::io::Result<String> {
    if path != Path::new("-") {
        return read_text_bounded(path, MAX_BYTES);
    }
    let mut text = String::new();
    let read = std::io::stdin().lock().take(MAX_BYTES + 1).read_to_string(&mut text)?;
    if read as u64 > MAX_BYTES {
        let message = format!("it has more than {} MiB", MAX_BYTES >> 20);
        return Err(std::io::Error::new(std::io::ErrorKind::FileTooLarge, message));
    }
    Ok(text)
}

fn shown(path: &Path) -> String {
    if path == Path::new("-") { "standard input".to_owned() } else { path.to_string_lossy().into_owned() }
}

fn project_name(folder: &Path) -> String {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let full = std::fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
    full.file_name().map_or_else(|| "application".into(), |name| name.to_string_lossy().into_owned())
}

/// Writes a file; fails if it exists, unless forced.
fn write_new(path: &Path, text: &str, force: bool) -> Result<(), CommandError> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true);
    if force {
        options.create(true).truncate(true)
    } else {
        options.create_new(true)
    };
    let result = options.open(path).and_then(|mut file| file.write_all(text.as_bytes()));
    result.map_err(|e| {
        let exists = e.kind() == std::io::ErrorKind::AlreadyExists;
        let error = CommandError::usage(format!("cannot write {}", path.display())).because(e);
        if exists { error.hint("`--force` overwrites it, `-o FILE` writes to another one") } else { error }
    })
}
