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
use super::infer::{Style, find_addresses, find_variable_addresses};
use super::mounts::ImportedSource;
use super::node::{Kind, Map, Node};
use super::warnings::{Warnings, list_names};
use super::{
    ImportError, Imported, ImportedApplication, ImportedExternal, ImportedService, Load, Look,
    is_service_name,
};
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
    /// Asks what stands at a path, relative to the project.
    pub look: Look<'a>,
    /// The absolute path of the project, or an empty text if it has none.
    pub folder: &'a str,
    /// Names of the folders above the project that belong to it as well, such as those up to the root of its
    /// repository; the outermost first.
    pub parents: &'a [String],
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
    let mut model = project.load_all(input.files)?;
    if model.services.is_empty() {
        let file = input.files.first().map_or("compose.yaml", |(name, _)| name);
        return Err(ImportError::at(file, 0, "no `services` are given"));
    }
    keep_profiles(&mut model.services, &mut project)?;
    leave_out_providers(&mut model.services, &mut project.warnings);
    let renamed = rename_services(&mut model.services, &mut project.warnings);

    let given = input.environment.contains_key(PROJECT_NAME) || project.is_in_env_files(PROJECT_NAME);
    let mut application = ImportedApplication {
        name: model
            .name
            .clone()
            .or_else(|| given.then(|| project.lookup(PROJECT_NAME)).flatten())
            .unwrap_or_else(|| input.name.to_owned()),
        ..ImportedApplication::default()
    };
    let mut converter = Converter::new(&mut project, &model);
    let mut converted = IndexMap::new();
    for (name, service) in &model.services {
        converted.insert(name.clone(), converter.convert_service(name, service, &mut application.failing)?);
    }
    let Converter { external, names, clues, .. } = converter;
    names.assign(&mut converted, &mut project.warnings);
    names::warn_about_networks(&model.services, &mut project.warnings);
    refuse_circles(&model.services, &converted, &project)?;
    let is_alias = |host: &String| converted.values().any(|service| service.aliases.contains(host));
    let hosts = external.into_iter().filter(|host| !is_alias(host));
    application.external = hosts.map(|host| ImportedExternal { host, allow: false }).collect();
    application.services = converted;
    rename_hosts(&mut application, &renamed);

    warn_about_variables(&mut project);
    rebase(&mut application, input.parents);
    application.header = write_header(input, &application);
    let options = FinishOptions { keep_tracing: input.keep_tracing };
    Ok(finish(application, clues, &options, project.warnings))
}

/// Leaves out what a program on the machine provides instead of a container.
fn leave_out_providers(services: &mut Map, warnings: &mut Warnings) {
    let is_provided = |service: &Node| service.get("provider").is_some() && service.get("image").is_none();
    let names: Vec<String> =
        services.iter().filter(|(_, s)| is_provided(s)).map(|(name, _)| name.clone()).collect();
    if !names.is_empty() && names.len() < services.len() {
        services.retain(|_, service| !is_provided(service));
        warnings.add_general(format!(
            "left out, because a provider of the machine runs them: {}",
            list_names(&names)
        ));
    }
}

/// Gives other names to services that cannot have theirs here; `test` is the caller of all tests.
fn rename_services(services: &mut Map, warnings: &mut Warnings) -> BTreeMap<String, String> {
    let mut renamed = BTreeMap::new();
    for name in services.keys().filter(|name| !is_service_name(name)) {
        let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' };
        let plain: String = name.chars().map(plain).collect();
        let candidates = [plain.clone(), format!("{plain}-service")];
        let is_free = |name: &&String| is_service_name(name) && !services.contains_key(*name);
        if let Some(new) = candidates.iter().find(is_free) {
            warnings.add_general(format!(
                "service `{name}` is called `{new}` here, where its name means something else"
            ));
            renamed.insert(name.clone(), new.clone());
        }
    }
    if renamed.is_empty() {
        return renamed;
    }
    let new_name = |name: &str| renamed.get(name).cloned().unwrap_or_else(|| name.to_owned());
    *services = std::mem::take(services).into_iter().map(|(name, node)| (new_name(&name), node)).collect();
    for service in services.values_mut() {
        let Kind::Map(keys) = &mut service.kind else { continue };
        if let Some(Kind::Map(targets)) = keys.get_mut("depends_on").map(|node| &mut node.kind) {
            *targets =
                std::mem::take(targets).into_iter().map(|(name, node)| (new_name(&name), node)).collect();
        }
        if let Some(Kind::List(links)) = keys.get_mut("links").map(|node| &mut node.kind) {
            for link in links {
                let Some((target, alias)) =
                    link.as_text().map(|text| text.split_once(':').unwrap_or((text, "")))
                else {
                    continue;
                };
                let alias = if alias.is_empty() { String::new() } else { format!(":{alias}") };
                *link = link.with_text(format!("{}{alias}", new_name(target)));
            }
        }
    }
    renamed
}

/// Lets callers use the new names of services.
fn rename_hosts(application: &mut ImportedApplication, renamed: &BTreeMap<String, String>) {
    for service in application.services.values_mut() {
        for (key, text) in &mut service.env {
            for (new, address) in find_variable_addresses(key, text, renamed).into_iter().rev() {
                text.replace_range(address.host, &new);
            }
        }
        for text in service.words_mut().skip(1) {
            for address in
                find_addresses(text, Style::Value, &|host| renamed.contains_key(host)).into_iter().rev()
            {
                if let Some(new) =
                    renamed.get(&text[address.host.clone()]).filter(|_| address.called_port().is_some())
                {
                    text.replace_range(address.host, new);
                }
            }
        }
    }
}

/// Widens the application to the outermost folder that one of its paths leads to, because no path of an application
/// file may lead out of its folder.
fn rebase(application: &mut ImportedApplication, parents: &[String]) {
    let n_up =
        application.services.values_mut().flat_map(list_paths).map(|path| paths::count_ups(path)).max();
    let n_up = n_up.unwrap_or(0).min(parents.len());
    if n_up == 0 {
        return;
    }
    application.directory = Some(vec![".."; n_up].join("/"));
    let prefix = parents[parents.len() - n_up..].join("/");
    for service in application.services.values_mut() {
        if service.directory.is_none() && service.words().next().is_some() {
            service.directory = Some(".".to_owned());
        }
        for path in list_paths(service) {
            if !paths::is_elsewhere(path) {
                *path = paths::join(&prefix, path);
            }
        }
        service.directory = service.directory.take().filter(|directory| directory != ".");
        service.build = service.build.take().map(show_folder);
    }
}

/// A folder of the project as people write it: `./order`.
fn show_folder(path: String) -> String {
    if paths::is_elsewhere(&path) || path.starts_with('.') { path } else { format!("./{path}") }
}

/// All paths of a service that are relative to the project.
fn list_paths(service: &mut ImportedService) -> Vec<&mut String> {
    let sources = service.mounts.iter_mut().filter_map(|mount| match &mut mount.source {
        ImportedSource::From(path) => Some(path),
        _ => None,
    });
    service.directory.iter_mut().chain(&mut service.build).chain(sources).collect()
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

fn write_header(input: &ComposeInput<'_>, application: &ImportedApplication) -> Vec<String> {
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
