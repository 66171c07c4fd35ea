//! `faultscope init`

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use faultscope_model::Application;
use faultscope_model::import::{ComposeInput, ImportError, Imported, from_compose, from_procfile};
use faultscope_model::units::count;
use serde::Serialize;

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

#[derive(Debug, Serialize)]
struct Written {
    file: String,
    services: usize,
    warnings: Vec<String>,
}

pub(crate) fn run(args: &InitArgs, printer: &Printer) -> Result<Exit, CommandError> {
    let files = if args.files.is_empty() { find_files(Path::new(""))? } else { args.files.clone() };
    let imported = import(&files, &args.profile)?;
    let text = imported.application.to_yaml();
    // The written file must be readable again.
    let usable = imported
        .application
        .services
        .values()
        .all(|s| !s.command.is_empty() || s.image.is_some() || s.build.is_some());
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

/// The files of a folder that Compose would read, or its Procfile.
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
        return Err(CommandError::usage(message).hint("name one with `-f FILE`"));
    }
    let message = format!("there is no application file, Compose file or Procfile in {}", folder.display());
    Err(CommandError::usage(message).hint("name the file itself"))
}

/// Reads Compose files, later ones merged over earlier ones, or one Procfile.
pub(crate) fn import(files: &[PathBuf], profiles: &[String]) -> Result<Imported, CommandError> {
    let read = |path: &Path| {
        std::fs::read_to_string(path)
            .map_err(|e| CommandError::new(Exit::Spec, format!("cannot read {}", path.display())).because(e))
    };
    let folder = files.first().and_then(|f| f.parent()).unwrap_or(Path::new("")).to_owned();
    let dotenv = std::fs::read_to_string(folder.join(".env")).ok();
    let name = project_name(&folder);
    let is_procfile =
        |f: &PathBuf| f.file_name().is_some_and(|n| n.to_string_lossy().starts_with("Procfile"));
    let spec = |e: ImportError| CommandError::new(Exit::Spec, e.to_string());
    if let [only] = files
        && is_procfile(only)
    {
        return from_procfile(&name, &only.to_string_lossy(), &read(only)?, dotenv.as_deref()).map_err(spec);
    }
    if files.iter().any(is_procfile) {
        return Err(CommandError::usage("a Procfile cannot be combined with other files"));
    }
    let texts: Vec<(String, String)> = files
        .iter()
        .map(|f| Ok((f.to_string_lossy().into_owned(), read(f)?)))
        .collect::<Result<_, CommandError>>()?;
    let environment: BTreeMap<String, String> = std::env::vars_os()
        .filter_map(|(key, value)| Some((key.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    let load = |path: &str| std::fs::read_to_string(folder.join(path)).map_err(|e| e.to_string());
    let input = ComposeInput {
        name: &name,
        files: &texts,
        environment: &environment,
        dotenv: dotenv.as_deref(),
        profiles,
        load: &load,
    };
    from_compose(&input).map_err(spec)
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
