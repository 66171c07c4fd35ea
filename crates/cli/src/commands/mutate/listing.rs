//! All mutants of an application, and how they are chosen.

use faultscope_engine::read_bounded;
use faultscope_model::application::nearest;
use faultscope_model::units::count;
use faultscope_mutate::{Language, MAX_MUTANTS, Mutant, Scope, Source, enumerate};
use serde::Serialize;

use super::args::Selection;
use super::check::Checked;
use super::sources::{READ_LIMIT, SkippedFile, SourceFile, find_sources, relative};
use crate::error::CommandError;
use crate::printer::Printer;
use crate::project::Project;

/// A mutant with the services that it makes faulty.
#[derive(Debug, Clone, Serialize)]
pub(super) struct ListedMutant {
    #[serde(flatten)]
    pub(super) mutant: Mutant,
    pub(super) services: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) check: Option<Checked>,
}

/// The mutants of an application, and files that have none because they cannot be read.
#[derive(Debug, Serialize)]
pub(super) struct Listing {
    pub(super) mutants: Vec<ListedMutant>,
    pub(super) skipped: Vec<SkippedFile>,
}

impl Listing {
    /// Enumerates every mutant. Files that cannot be mutated are reported, and the rest is done.
    pub(super) fn read(project: &Project, printer: &Printer) -> Self {
        let mut skipped = Vec::new();
        let mut files = find_sources(project, &mut skipped);
        let has_source =
            |name: &str| files.iter().any(|file| file.services.iter().any(|service| service == name));
        let names = project.application.services.keys().map(|name| name.as_str());
        let without: Vec<&str> = names.filter(|name| !has_source(name)).collect();
        if !without.is_empty() {
            printer.talk(format!("no source was found of {}", without.join(", ")));
        }
        for file in &project.files {
            let place = std::fs::canonicalize(file).ok().and_then(|file| relative(&project.root, &file));
            match place {
                Some(path) => files.push(SourceFile { path, language: Language::Yaml, services: Vec::new() }),
                None => skipped.push(SkippedFile {
                    path: file.display().to_string(),
                    reason: "it lies outside of the application's folder".into(),
                }),
            }
        }
        let mut mutants = Vec::new();
        for file in files {
            match read_mutants(project, &file) {
                Ok(found) => {
                    if found.len() >= MAX_MUTANTS {
                        printer.warn(format!(
                            "only the first {MAX_MUTANTS} mutants of {} are listed",
                            file.path
                        ));
                    }
                    mutants.extend(found);
                }
                Err(reason) => skipped.push(SkippedFile { path: file.path, reason }),
            }
        }
        for file in &skipped {
            printer.warn(format!("{} has no mutants: {}", file.path, file.reason));
        }
        Self { mutants, skipped }
    }

    /// Keeps the selected ones.
    pub(super) fn select(&mut self, selection: &Selection) -> Result<(), CommandError> {
        let Selection { all, operators, services, files } = selection;
        for service in services {
            if !self.mutants.iter().any(|listed| listed.services.contains(service)) {
                let known = self.mutants.iter().flat_map(|listed| listed.services.iter().map(String::as_str));
                let hint = nearest(service, known).map_or_else(
                    || "services whose source is not there have none".to_owned(),
                    |near| format!("did you mean `{near}`?"),
                );
                return Err(
                    CommandError::usage(format!("there is no mutant of a service `{service}`")).hint(hint)
                );
            }
        }
        self.mutants.retain(|listed| {
            let mutant = &listed.mutant;
            (*all || mutant.scope == Scope::Responding)
                && (operators.is_empty() || operators.contains(&mutant.operator))
                && (services.is_empty() || services.iter().any(|service| listed.services.contains(service)))
                && (files.is_empty() || files.iter().any(|file| mutant.path.ends_with(file.as_str())))
        });
        Ok(())
    }

    /// The one mutant whose id begins with a text.
    pub(super) fn find(self, id: &str) -> Result<ListedMutant, CommandError> {
        let wanted = id.to_lowercase();
        let mut matching =
            self.mutants.into_iter().filter(|listed| listed.mutant.id.as_str().starts_with(&wanted));
        let hint = "`faultscope mutate ls --all` lists them";
        match (matching.next(), matching.count()) {
            (Some(listed), 0) => Ok(listed),
            (None, _) => Err(CommandError::usage(format!("there is no mutant `{id}`")).hint(hint)),
            (Some(_), more) => {
                let several = count(more + 1, "mutant");
                Err(CommandError::usage(format!("{several} begin with `{id}`")).hint(hint))
            }
        }
    }
}

fn read_mutants(project: &Project, file: &SourceFile) -> Result<Vec<ListedMutant>, String> {
    let bytes = read_bounded(&project.root.join(&file.path), READ_LIMIT).map_err(|e| e.to_string())?;
    let source = Source::parse(&file.path, &bytes, file.language).map_err(|e| e.to_string())?;
    let listed = |mutant: Mutant| {
        let services = mutant.service.clone().map_or_else(|| file.services.clone(), |service| vec![service]);
        ListedMutant { mutant, services, check: None }
    };
    Ok(enumerate(&source).into_iter().map(listed).collect())
}
