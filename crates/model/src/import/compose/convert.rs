//! One merged Compose service becomes one of ours.

use std::collections::{BTreeMap, BTreeSet};

use super::load::{Model, Project};
use super::names::Names;
use super::ports::Ports;
use super::{clues, health, keys, limits, show_folder, volumes};
use crate::import::dotenv::Reading;
use crate::import::finish::describe_missing_command;
use crate::import::infer::{Clues, PortOrigin};
use crate::import::node::{Kind, Map, Node};
use crate::import::shell::split_words;
use crate::import::{ImportError, ImportedCircumstance, ImportedService, is_host_name, is_service_name};

/// Converts services, one after the other.
pub(super) struct Converter<'p, 'a> {
    project: &'p mut Project<'a>,
    model: &'p Model,
    known: BTreeSet<String>,
    /// Hosts outside the project.
    pub(super) external: Vec<String>,
    /// Other names of services.
    pub(super) names: Names,
    /// What helps to infer ports, by service.
    pub(super) clues: BTreeMap<String, Clues>,
}

impl<'p, 'a> Converter<'p, 'a> {
    pub(super) fn new(project: &'p mut Project<'a>, model: &'p Model) -> Self {
        let known = model.services.keys().cloned().collect();
        Self { project, model, known, external: Vec::new(), names: Names::default(), clues: BTreeMap::new() }
    }

    /// Converts one service and notes its replicas and limits.
    pub(super) fn convert_service(
        &mut self,
        name: &str,
        node: &Node,
        failing: &mut ImportedCircumstance,
    ) -> Result<ImportedService, ImportError> {
        if !is_service_name(name) {
            let message =
                format!("service `{name}` needs another name: a host name, but not `test` or `localhost`");
            return Err(self.project.error(node, message));
        }
        self.names.note_names(name, node);
        limits::note_limits(name, node, failing)
            .map_err(|(place, message)| self.project.error(place, message))?;

        let mut service =
            ImportedService { image: node.get_text("image").map(str::to_owned), ..Default::default() };
        service.build = node
            .get("build")
            .map(|build| build.get_text("context").unwrap_or("."))
            .map(|context| show_folder(context.to_owned()));
        service.mounts = volumes::find_mounts(self.project, self.model, name, node);
        match volumes::find_directory(self.project, node) {
            Ok(directory) => service.directory = directory,
            Err(outside) => {
                let message = format!(
                    "directory `{outside}` is outside of the project; move the file or set `directory`"
                );
                self.warn(name, &message);
            }
        }
        service.working_dir = node.get_text("working_dir").filter(|d| d.starts_with('/')).map(str::to_owned);
        service.user = node.get_text("user").filter(|user| !user.is_empty()).map(str::to_owned);
        if node.get("entrypoint").is_some() {
            service.entrypoint = Some(self.read_words(node, "entrypoint")?);
        }
        service.command = self.read_words(node, "command")?;
        if service.words().next().is_none() && service.image.is_none() && service.build.is_none() {
            let error = self.project.error(node, format!("service `{name}` has no image, build or command"));
            return Err(match self.project.find_base_file() {
                Some(base) => error.with_hint(format!(
                    "this looks like an override file: name the file below it first, `-f {base} -f {}`",
                    self.project.input.files.first().map_or("FILE", |(name, _)| name)
                )),
                None => error.with_hint(
                    "if this is an override file, name the file below it first, `-f compose.yaml -f FILE`"
                        .to_owned(),
                ),
            });
        }
        service.env = self.read_environment(name, node)?;
        self.put_ports_and_readiness(name, node, &mut service)?;
        service.after = self.find_dependencies(name, node)?;
        if let Some(grace) = node.get("stop_grace_period") {
            let text = grace.as_text().unwrap_or_default();
            let grace = health::parse_duration(text).map_err(|message| self.project.error(grace, message))?;
            service.stop_within = Some(health::show_duration(grace));
        }
        self.note_hosts(node);
        self.clues.insert(name.to_owned(), clues::gather_clues(self.project, node, &service));
        self.warn_about_losses(name, node, &service);
        Ok(service)
    }

    fn warn(&mut self, name: &str, message: &str) {
        self.project.warnings.add(name, message);
    }

    /// A command as words; a text is split as a shell does.
    fn read_words(&self, node: &Node, key: &str) -> Result<Vec<String>, ImportError> {
        let Some(value) = node.get(key) else {
            return Ok(Vec::new());
        };
        match &value.kind {
            Kind::Scalar(text) => {
                split_words(text).map_err(|m| self.project.error(value, format!("`{key}`: {m}")))
            }
            Kind::List(items) => items
                .iter()
                .map(|item| match item.as_text() {
                    Some(text) => Ok(text.to_owned()),
                    None => Err(self.project.error(item, format!("`{key}` holds {}", item.what()))),
                })
                .collect(),
            Kind::Null => Ok(Vec::new()),
            Kind::Map(_) => Err(self.project.error(value, format!("`{key}` is a mapping"))),
        }
    }

    fn read_environment(&mut self, name: &str, node: &Node) -> Result<BTreeMap<String, String>, ImportError> {
        let mut env = BTreeMap::new();
        let mut unset = Vec::new();
        let mut put = |project: &Project<'_>, key: String, value: Option<String>| match value
            .or_else(|| project.lookup(&key))
        {
            Some(value) => {
                env.insert(key, value);
            }
            None => unset.push(format!("`{key}`")),
        };
        for file in node.get("env_file").and_then(Node::as_list).unwrap_or_default() {
            let Some(path) = file.get_text("path") else {
                return Err(self.project.error(file, "an environment file has a `path`"));
            };
            let text = match self.project.load(path, file) {
                Ok(text) => text,
                Err(_) if file.get_text("required") == Some("false") => continue,
                Err(error) => {
                    return Err(match self.project.find_example(path) {
                        Some(example) => error.with_hint(format!("copy `{example}` to `{path}` first")),
                        None => error,
                    });
                }
            };
            let raw = file.get_text("format") == Some("raw");
            let reading = if raw { Reading::Raw } else { Reading::Expanding };
            for (key, value) in self.project.read_environment_file(path, &text, reading)? {
                put(self.project, key, value);
            }
        }
        if let Some(entries) = node.get("environment") {
            let Kind::Map(map) = &entries.kind else {
                return Err(self.project.error(entries, "`environment` is a list or a mapping"));
            };
            for (key, value) in map {
                match &value.kind {
                    Kind::Null => put(self.project, key.clone(), None),
                    Kind::Scalar(text) => put(self.project, key.clone(), Some(text.clone())),
                    _ => {
                        return Err(self
                            .project
                            .error(value, format!("variable `{key}` is {}", value.what())));
                    }
                }
            }
        }
        if !unset.is_empty() {
            self.warn(name, &format!("not set in the environment, left out: {}", unset.join(", ")));
        }
        Ok(env)
    }

    fn put_ports_and_readiness(
        &mut self,
        name: &str,
        node: &Node,
        service: &mut ImportedService,
    ) -> Result<(), ImportError> {
        let mut ports = Ports::default();
        for key in ["ports", "expose"] {
            for entry in node.get(key).and_then(Node::as_list).unwrap_or_default() {
                let added = if key == "ports" { ports.add(entry) } else { ports.expose(entry) };
                added.map_err(|message| self.project.error(entry, message))?;
            }
        }
        if let Some(check) = node.get("healthcheck") {
            let refuse = |message: String| self.project.error(check, message);
            let names = [Some(name), node.get_text("hostname"), node.get_text("container_name")];
            let names: Vec<&str> = names.into_iter().flatten().collect();
            let first = ports.own.first().map(|port| port.number());
            service.ready = health::read_readiness(check, &names, first).map_err(refuse)?;
            if let Some(port) = service.ready.as_ref().and_then(health::find_checked_port)
                && ports.add_probed(port).map_err(refuse)?
            {
                service.port_origins.push((port, PortOrigin::HealthCheck));
            }
        }
        if !ports.skipped.is_empty() {
            self.warn(name, &format!("only TCP is carried: {} left out", ports.skipped.join(", ")));
        }
        (service.ports, service.publish) = (ports.own, ports.publish);
        Ok(())
    }

    fn find_dependencies(&mut self, name: &str, node: &Node) -> Result<Vec<String>, ImportError> {
        let mut after: Vec<String> = Vec::new();
        let links =
            node.get("links").and_then(Node::as_list).unwrap_or_default().iter().filter_map(Node::as_text);
        let links: Vec<String> =
            links.map(|link| link.split(':').next().unwrap_or(link).to_owned()).collect();
        let none = Map::new();
        let depends = node.get("depends_on").and_then(Node::as_map).unwrap_or(&none);
        for target in depends.keys().chain(&links) {
            if target == name {
                return Err(self.project.error(node, format!("service `{name}` depends on itself")));
            }
            let how = depends.get(target);
            if !self.known.contains(target) {
                if how.and_then(|how| how.get_text("required")) != Some("false") {
                    self.warn(
                        name,
                        &format!("`depends_on` names `{target}`, which is not among the services"),
                    );
                }
                continue;
            }
            if how.and_then(|how| how.get_text("condition")) == Some("service_completed_successfully") {
                let message =
                    format!("waits until `{target}` has ended; make that the `setup` of the application");
                self.warn(name, &message);
                continue;
            }
            if !after.contains(target) {
                after.push(target.clone());
            }
        }
        Ok(after)
    }

    fn note_hosts(&mut self, node: &Node) {
        for host in node.get("extra_hosts").and_then(Node::as_map).into_iter().flat_map(Map::keys) {
            if is_host_name(host) && !self.known.contains(host) && !self.external.contains(host) {
                self.external.push(host.clone());
                let message = format!(
                    "host `{host}` is outside: calls to it are refused unless `external` allows them"
                );
                self.project.warnings.add_general(message);
            }
        }
    }

    fn warn_about_losses(&mut self, name: &str, node: &Node, service: &ImportedService) {
        if service.words().next().is_none() {
            self.warn(name, describe_missing_command(service));
        }
        match node.get_text("network_mode") {
            None | Some("bridge" | "none") => {}
            Some(mode) => {
                self.warn(name, &format!("network mode `{mode}` is not kept: it gets a host name of its own"))
            }
        }
        if let Some(signal) =
            node.get_text("stop_signal").filter(|s| !matches!(*s, "SIGTERM" | "TERM" | "15"))
        {
            self.warn(name, &format!("it is stopped by SIGTERM, not {signal}"));
        }
        let (lost, unknown) = keys::find_losses(node);
        if !lost.is_empty() {
            self.warn(name, &format!("not carried over: {}", lost.join(", ")));
        }
        if !unknown.is_empty() {
            self.warn(name, &format!("not keys of Compose: {}", unknown.join(", ")));
        }
    }
}
