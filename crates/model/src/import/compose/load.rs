//! From texts to one merged set of services: variables, `include`, `extends`, several files.

use std::collections::BTreeMap;

use super::merge::{drop_resets, extend, merge_maps, normalise, normalise_definition};
use super::{ComposeInput, paths};
use crate::import::dotenv::Reading;
use crate::import::interpolate::Interpolation;
use crate::import::node::{Kind, Map, Node};
use crate::import::warnings::Warnings;
use crate::import::{ImportError, dotenv};

/// How many files an import may read; more means that files name each other.
const MAX_FILES: usize = 200;

/// How deep `include` and `extends` may go.
const MAX_DEPTH: usize = 16;

/// The variable that holds the project's name.
pub(super) const PROJECT_NAME: &str = "COMPOSE_PROJECT_NAME";

/// The state of one import.
pub(super) struct Project<'a> {
    pub(super) input: &'a ComposeInput<'a>,
    pub(super) interpolation: Interpolation,
    pub(super) warnings: Warnings,
    /// The project's name, which files may refer to.
    name: String,
    dotenv: BTreeMap<String, String>,
    /// Names of the files read so far; nodes carry an index into it.
    files: Vec<String>,
    /// Files that were extended from: a common one is named by many services.
    bases: BTreeMap<String, (usize, Map)>,
}

/// The part of a Compose model that matters here.
#[derive(Default)]
pub(super) struct Model {
    pub(super) name: Option<String>,
    pub(super) services: Map,
    pub(super) volumes: Map,
    pub(super) configs: Map,
    pub(super) secrets: Map,
}

impl<'a> Project<'a> {
    pub(super) fn new(input: &'a ComposeInput<'a>) -> Result<Self, ImportError> {
        let interpolation = Interpolation::default();
        let mut dotenv: BTreeMap<String, String> = BTreeMap::new();
        for (file, text) in input.env_files {
            let lookup = |name: &str| input.environment.get(name).or_else(|| dotenv.get(name)).cloned();
            let entries = dotenv::parse(text, Reading::Expanding, &interpolation, &lookup)
                .map_err(|(line, message)| ImportError::at(file, line, message))?;
            dotenv.extend(entries.into_iter().filter_map(|(name, value)| Some((name, value?))));
        }
        Ok(Self {
            input,
            interpolation,
            warnings: Warnings::default(),
            name: project_name(input.name),
            dotenv,
            files: Vec::new(),
            bases: BTreeMap::new(),
        })
    }

    /// The value of a variable: the process first, then `.env`. The project's name is always known.
    pub(super) fn lookup(&self, name: &str) -> Option<String> {
        let set = self.input.environment.get(name).or_else(|| self.dotenv.get(name)).cloned();
        set.or_else(|| (name == PROJECT_NAME).then(|| self.name.clone()))
    }

    /// Whether a variable is set by an environment file.
    pub(super) fn is_in_env_files(&self, name: &str) -> bool {
        self.dotenv.contains_key(name)
    }

    /// A path seen from the project, if it lies in the project or in a folder above that belongs to it.
    pub(super) fn find_in_project(&self, path: &str) -> Option<String> {
        let below = path.strip_prefix(self.input.folder).filter(|_| !self.input.folder.is_empty());
        let path = match below {
            Some("") => ".".to_owned(),
            Some(rest) if rest.starts_with('/') => paths::join("", rest.trim_start_matches('/')),
            _ if paths::is_elsewhere(path) => return None,
            _ => paths::join("", path),
        };
        (paths::count_ups(&path) <= self.input.parents.len()).then_some(path)
    }

    /// The text of a file that may be there, for clues.
    pub(super) fn load_if_there(&self, path: &str) -> Option<String> {
        (self.input.load)(path).ok()
    }

    /// A Compose file beside the only one that was given.
    pub(super) fn find_base_file(&self) -> Option<&'static str> {
        let [(only, _)] = self.input.files else { return None };
        let names = ["compose.yaml", "compose.yml", "docker-compose.yaml", "docker-compose.yml"];
        let own = only.rsplit('/').next().unwrap_or(only);
        names.into_iter().find(|name| *name != own && self.load_if_there(name).is_some())
    }

    /// The example beside an environment file that is missing.
    pub(super) fn find_example(&self, path: &str) -> Option<String> {
        let endings = ["example", "sample", "dist", "template", "default"];
        let stem = path.strip_suffix(".env").filter(|stem| !stem.is_empty() && !stem.ends_with('/'));
        let named = endings.iter().map(|ending| format!("{path}.{ending}"));
        let before = endings.iter().filter_map(|ending| stem.map(|stem| format!("{stem}.{ending}.env")));
        let folder = paths::parent(path);
        let bare = ["example.env", "sample.env", "env.example"].map(|name| paths::join(folder, name));
        named.chain(before).chain(bare).find(|candidate| self.load_if_there(candidate).is_some())
    }

    /// An error that names the node's place.
    pub(super) fn error(&self, node: &Node, message: impl Into<String>) -> ImportError {
        let file = self.files.get(usize::from(node.file)).map_or("", String::as_str);
        ImportError::at(file, node.line, message)
    }

    /// Reads and merges the files the caller gave.
    pub(super) fn load_all(&mut self, files: &[(String, String)]) -> Result<Model, ImportError> {
        let mut model = Model::default();
        for (name, text) in files {
            // Paths of all files are relative to the first one's directory, which is the project.
            self.add_file(&mut model, name, text, "", &BTreeMap::new(), 0)?;
        }
        model.services.retain(|_, service| service.tag.as_deref() != Some("!reset"));
        model.services.values_mut().for_each(drop_resets);
        Ok(model)
    }

    /// Asks the caller for a file.
    pub(super) fn load(&mut self, path: &str, asked_by: &Node) -> Result<String, ImportError> {
        if self.files.len() >= MAX_FILES {
            return Err(self.error(asked_by, format!("more than {MAX_FILES} files are read")));
        }
        (self.input.load)(path)
            .map_err(|cause| self.error(asked_by, format!("cannot read `{path}`: {cause}")))
    }

    fn add_file(
        &mut self,
        model: &mut Model,
        name: &str,
        text: &str,
        directory: &str,
        extra: &BTreeMap<String, String>,
        depth: usize,
    ) -> Result<(), ImportError> {
        let root = self.read(name, text, extra)?;
        if let Some(name) = root.get_text("name") {
            model.name = Some(name.to_owned());
        }
        if let Some(include) = root.get("include") {
            self.add_included(model, include, directory, depth)?;
        }
        let services = self.read_services(&root, directory)?;
        self.add_definitions(model, &root, directory);
        for (name, service) in &services {
            let mut chain = vec![(self.files.len(), name.clone())];
            let service = self.lay_over_base(service, &services, &mut chain)?;
            let tagged = service.tag.as_deref() == Some("!reset");
            if tagged {
                model.services.shift_remove(name);
            } else {
                merge_maps(&mut model.services, Map::from([(name.clone(), service)]), "services");
            }
        }
        Ok(())
    }

    /// Adds the volumes, configs and secrets of a file.
    fn add_definitions(&self, model: &mut Model, root: &Node, directory: &str) {
        let lists = [
            ("volumes", &mut model.volumes),
            ("configs", &mut model.configs),
            ("secrets", &mut model.secrets),
        ];
        for (key, known) in lists {
            let mut map = root.get(key).and_then(Node::as_map).cloned().unwrap_or_default();
            map.values_mut().for_each(|definition| normalise_definition(definition, directory));
            merge_maps(known, map, key);
        }
    }

    /// Parses a file and replaces its variables.
    fn read(
        &mut self,
        name: &str,
        text: &str,
        extra: &BTreeMap<String, String>,
    ) -> Result<Node, ImportError> {
        let mut root = Node::parse(name, text)?;
        let index = u16::try_from(self.files.len()).unwrap_or(u16::MAX);
        self.files.push(name.to_owned());
        let Kind::Map(map) = &mut root.kind else {
            return match root.kind {
                Kind::Null => Ok(Node::made(Kind::Map(Map::new()))),
                _ => Err(ImportError::at(name, root.line, "a Compose file is a mapping with `services`")),
            };
        };
        // Extensions are only there to be referred to, and references are already followed.
        map.retain(|key, _| !key.starts_with("x-"));
        if let Some(name) = map.get("name").and_then(Node::as_text).filter(|name| !name.contains('$')) {
            self.name = project_name(name);
        }
        let lookup = |variable: &str| {
            let own = || extra.get(variable).cloned();
            self.input.environment.get(variable).cloned().or_else(own).or_else(|| self.lookup(variable))
        };
        root.for_each(&mut |node: &mut Node| {
            node.file = index;
            if let Kind::Scalar(text) = &mut node.kind
                && text.contains('$')
            {
                *text = self
                    .interpolation
                    .expand(text, &lookup)
                    .map_err(|m| ImportError::at(name, node.line, m))?;
            }
            Ok::<(), ImportError>(())
        })?;
        Ok(root)
    }

    fn read_services(&self, root: &Node, directory: &str) -> Result<Map, ImportError> {
        let Some(services) = root.get("services") else {
            return Ok(Map::new());
        };
        let Kind::Map(services) = &services.kind else {
            return Err(self.error(services, format!("`services` is {}, not a mapping", services.what())));
        };
        let mut services = services.clone();
        for (name, service) in &mut services {
            let reset = service.tag.as_deref() == Some("!reset");
            if service.as_map().is_none() && !reset {
                return Err(
                    self.error(service, format!("service `{name}` is {}, not a mapping", service.what()))
                );
            }
            normalise(service, directory);
        }
        Ok(services)
    }

    /// The service with everything it extends laid below it. `chain` holds what extends it.
    fn lay_over_base(
        &mut self,
        service: &Node,
        siblings: &Map,
        chain: &mut Vec<(usize, String)>,
    ) -> Result<Node, ImportError> {
        let mut own = service.clone();
        let extends = match &mut own.kind {
            Kind::Map(map) => map.shift_remove("extends").filter(|extends| !extends.is_null()),
            _ => None,
        };
        let Some(extends) = extends else { return Ok(own) };
        let Some(name) = extends.get_text("service") else {
            return Err(self.error(&extends, "`extends` names no service"));
        };
        if chain.len() > MAX_DEPTH {
            return Err(self.error(&extends, format!("`extends` goes deeper than {MAX_DEPTH}")));
        }
        let missing =
            |project: &Self| project.error(&extends, format!("there is no service `{name}` to extend"));
        let mut base = if let Some(file) = extends.get_text("file") {
            let (index, others) = self.read_base(file, &extends)?;
            let base = others.get(name).ok_or_else(|| missing(self))?;
            chain.push((index, name.to_owned()));
            self.lay_over_base(base, &others, chain)?
        } else {
            let file = chain.last().map_or(0, |(file, _)| *file);
            if chain.iter().any(|known| *known == (file, name.to_owned())) {
                return Err(self.error(&extends, format!("`{name}` extends itself")));
            }
            let base = siblings.get(name).ok_or_else(|| missing(self))?;
            chain.push((file, name.to_owned()));
            self.lay_over_base(base, siblings, chain)?
        };
        chain.pop();
        extend(&mut base, own);
        Ok(base)
    }

    /// The services of a file that others extend, and the file's number.
    fn read_base(&mut self, file: &str, extends: &Node) -> Result<(usize, Map), ImportError> {
        if let Some(known) = self.bases.get(file) {
            return Ok(known.clone());
        }
        let text = self.load(file, extends)?;
        let root = self.read(file, &text, &BTreeMap::new())?;
        let base = (self.files.len(), self.read_services(&root, paths::parent(file))?);
        self.bases.insert(file.to_owned(), base.clone());
        Ok(base)
    }

    /// Adds the projects a file includes; each has its own directory and environment files.
    fn add_included(
        &mut self,
        model: &mut Model,
        include: &Node,
        directory: &str,
        depth: usize,
    ) -> Result<(), ImportError> {
        if depth >= MAX_DEPTH {
            return Err(self.error(include, format!("`include` goes deeper than {MAX_DEPTH}")));
        }
        for entry in texts_or_nodes(include) {
            let entry_paths: Vec<&Node> = match entry.get("path") {
                Some(path) => texts_or_nodes(path),
                None => vec![entry],
            };
            let files: Vec<String> = entry_paths
                .iter()
                .filter_map(|path| path.as_text())
                .map(|path| paths::join(directory, path))
                .collect();
            let Some(first) = files.first() else {
                return Err(self.error(entry, "`include` names no path"));
            };
            let inner = match entry.get_text("project_directory") {
                Some(inner) => paths::join(directory, inner),
                None => paths::parent(first).to_owned(),
            };
            let extra = self.read_include_environment(entry, directory)?;
            let mut included = Model::default();
            for file in &files {
                let text = self.load(file, entry)?;
                self.add_file(&mut included, file, &text, &inner, &extra, depth + 1)?;
            }
            model.volumes.extend(included.volumes);
            model.configs.extend(included.configs);
            model.secrets.extend(included.secrets);
            for (name, service) in included.services {
                if model.services.contains_key(&name) {
                    return Err(self.error(entry, format!("the included service `{name}` is there already")));
                }
                model.services.insert(name, service);
            }
        }
        Ok(())
    }

    fn read_include_environment(
        &mut self,
        entry: &Node,
        directory: &str,
    ) -> Result<BTreeMap<String, String>, ImportError> {
        let mut extra = BTreeMap::new();
        for node in entry.get("env_file").map(texts_or_nodes).unwrap_or_default() {
            let Some(path) = node.as_text() else { continue };
            let path = paths::join(directory, path);
            let text = self.load(&path, node)?;
            extra.extend(
                self.read_environment_file(&path, &text, Reading::Expanding)?
                    .into_iter()
                    .filter_map(|(n, v)| Some((n, v?))),
            );
        }
        Ok(extra)
    }

    /// The entries of an environment file.
    pub(super) fn read_environment_file(
        &self,
        path: &str,
        text: &str,
        reading: Reading,
    ) -> Result<dotenv::Entries, ImportError> {
        dotenv::parse(text, reading, &self.interpolation, &|name| self.lookup(name))
            .map_err(|(line, message)| ImportError::at(path, line, message))
    }
}

/// A name as Compose gives it to a project: lower case, without what no container name may have.
fn project_name(text: &str) -> String {
    let plain = |c: &char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_');
    let name: String = text.to_lowercase().chars().filter(plain).collect();
    name.trim_start_matches(['-', '_']).to_owned()
}

/// The items of a list, or the one node that stands in its place.
fn texts_or_nodes(node: &Node) -> Vec<&Node> {
    match &node.kind {
        Kind::List(items) => items.iter().collect(),
        _ => vec![node],
    }
}
