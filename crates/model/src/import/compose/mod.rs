//! Compose files: several of them merged, with overrides, profiles, `include`, `extends`, environment
//! files and variables, turned into an application.
//!
//! Follows the Compose specification where it says what a service *is*; what it says about containers
//! (users, capabilities, mounts) is warned about.

mod clues;
mod convert;
pub(super) mod health;
mod keys;
pub(super) mod limits;
mod load;
mod merge;
mod names;
mod paths;
pub(super) mod ports;
mod volumes;

use std::collections::{BTreeMap, BTreeSet};

use indexmap::IndexMap;

use super::finish::{FinishOptions, finish};
use super::node::{Map, Node};
use super::warnings::list_names;
use super::{ImportError, Imported, ImportedApplication, ImportedExternal, ImportedService, Load};
use convert::Converter;
use load::{PROJECT_NAME, Project};

/// What an import of Compose files starts from.
pub struct ComposeInput<'a> {
    /// The name of the application where the files give none; usually the directory's.
    pub name: &'a str,
    /// Names and texts of the files; later ones override earlier ones. Paths in them are relative to the
    /// directory of the first one, the project.
    pub files: &'a [(String, String)],
    /// The environment of the process; it wins over `.env`.
    pub environment: &'a BTreeMap<String, String>,
    /// Names and texts of the environment files for variables: `.env`, or what was asked for. Later ones win.
    pub env_files: &'a [(String, String)],
    /// Keep services that collect traces, instead of using the built-in collector.
    pub keep_tracing: bool,
    /// The profiles to import; `*` means all. Without any, `COMPOSE_PROFILES` counts.
    pub profiles: &'a [String],
    /// Asks for files that `env_file`, `extends` and `include` name, relative to the project.
    pub load: Load<'a>,
}

impl std::fmt::Debug for ComposeInput<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Texts and environment may hold secrets.
        let files: Vec<&str> = self.files.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("ComposeInput")
            .field("files", &files)
            .field("profiles", &self.profiles)
            .finish_non_exhaustive()
    }
}

/// Reads Compose files as an application.
pub fn from_compose(input: &ComposeInput<'_>) -> Result<Imported, ImportError> {
    let mut project = Project::new(input)?;
    let model = project.load_all(input.files)?;
    let mut services = model.services;
    if services.is_empty() {
        let file = input.files.first().map_or("compose.yaml", |(name, _)| name);
        return Err(ImportError::at(file, 0, "no `services` are given"));
    }
    keep_profiles(&mut services, &mut project)?;

    let given = input.environment.contains_key(PROJECT_NAME) || project.is_in_env_files(PROJECT_NAME);
    let mut application = ImportedApplication {
        name: model
            .name
            .or_else(|| given.then(|| project.lookup(PROJECT_NAME)).flatten())
            .unwrap_or_else(|| input.name.to_owned()),
        ..ImportedApplication::default()
    };
    let mut converter = Converter::new(&mut project, &services);
    let mut converted = IndexMap::new();
    for (name, service) in &services {
        converted.insert(name.clone(), converter.service(name, service, &mut application.failing)?);
    }
    let Converter { external, names, clues, .. } = converter;
    names.give(&mut converted, &mut project.warnings);
    names::warn_about_networks(&services, &mut project.warnings);
    refuse_circles(&services, &converted, &project)?;
    let is_alias = |host: &String| converted.values().any(|service| service.aliases.contains(host));
    let hosts = external.into_iter().filter(|host| !is_alias(host));
    application.external = hosts.map(|host| ImportedExternal { host, allow: false }).collect();
    application.services = converted;

    warn_about_variables(&mut project);
    application.header = header(input, &application);
    let options = FinishOptions { keep_tracing: input.keep_tracing };
    Ok(finish(application, clues, &options, project.warnings))
}

fn warn_about_variables(project: &mut Project<'_>) {
    let missing = project.interpolation.missing();
    if missing.is_empty() {
        return;
    }
    let noun = if missing.len() == 1 { "variable is" } else { "variables are" };
    let mut message =
        format!("{} {noun} not set and empty in the result: {}", missing.len(), list_names(&missing));
    if project.input.env_files.is_empty()
        && let Some(example) = project.find_example(".env")
    {
        message.push_str(&format!(
            "; `{example}` may have values: copy it to `.env`, or add `--env-file {example}`"
        ));
    }
    project.warnings.add_general(message);
}

/// Takes away the services whose profiles are not chosen.
fn keep_profiles(services: &mut Map, project: &mut Project<'_>) -> Result<(), ImportError> {
    let mut chosen: Vec<String> = project.input.profiles.to_vec();
    if chosen.is_empty() {
        let variable = project.lookup("COMPOSE_PROFILES").unwrap_or_default();
        chosen = variable.split(',').map(|p| p.trim().to_owned()).filter(|p| !p.is_empty()).collect();
    }
    let all = chosen.iter().any(|profile| profile == "*");
    let is_chosen = |service: &Node| {
        let Some(profiles) = service.get("profiles").and_then(Node::as_list) else {
            return true;
        };
        let mut names = profiles.iter().filter_map(Node::as_text);
        profiles.is_empty() || all || names.any(|name| chosen.iter().any(|c| c == name))
    };
    let is_left_out = |entry: &(&String, &Node)| !is_chosen(entry.1);
    let left_out: Vec<String> = services.iter().filter(is_left_out).map(|(name, _)| name.clone()).collect();
    if left_out.is_empty() {
        return Ok(());
    }
    let profiles: BTreeSet<String> = services
        .iter()
        .filter(is_left_out)
        .filter_map(|(_, service)| service.get("profiles").and_then(Node::as_list))
        .flat_map(|profiles| profiles.iter().filter_map(Node::as_text).map(str::to_owned))
        .collect();
    let profiles: Vec<String> = profiles.into_iter().collect();
    if left_out.len() == services.len() {
        let file = project.input.files.first().map_or("compose.yaml", |(name, _)| name);
        let message = format!("every service is behind a profile: {}", list_names(&profiles));
        let first = profiles.first().map_or("NAME", String::as_str);
        let hint = format!("choose some with `--profile {first}`, or all with `--profile '*'`");
        return Err(ImportError::at(file, 0, message).with_hint(hint));
    }
    services.retain(|_, service| is_chosen(service));
    let (names, first) = (list_names(&left_out), profiles.first().map_or("*", String::as_str));
    project.warnings.add_general(format!(
        "left out because their profiles are not chosen: {names} (`--profile {first}` adds them)"
    ));
    Ok(())
}

/// Services that wait for one another would never start.
fn refuse_circles(
    nodes: &Map,
    services: &IndexMap<String, ImportedService>,
    project: &Project<'_>,
) -> Result<(), ImportError> {
    let mut waiting: Vec<&String> = services.keys().collect();
    loop {
        let before = waiting.len();
        let still: BTreeSet<&String> = waiting.iter().copied().collect();
        waiting.retain(|name| services[*name].after.iter().any(|after| still.contains(after)));
        match (waiting.first(), waiting.len() == before) {
            (None, _) => return Ok(()),
            (Some(_), false) => {}
            (Some(first), true) => {
                let names: Vec<&str> = waiting.iter().map(|name| name.as_str()).collect();
                let message = format!("these services depend on one another: {}", names.join(", "));
                return Err(project.error(&nodes[*first], message));
            }
        }
    }
}

fn header(input: &ComposeInput<'_>, application: &ImportedApplication) -> Vec<String> {
    let files: Vec<&str> = input.files.iter().map(|(name, _)| name.as_str()).collect();
    let mut header = vec![format!("Made by `faultscope init` from {}.", files.join(", "))];
    if !application.failing.is_empty() {
        header.push(
            "Replicas and limits of the running system are under `failing`: the simplest circumstance"
                .to_owned(),
        );
        header.push("has one instance of each service, without limits.".to_owned());
    }
    header
}
