//! Reads and checks an application file. Every complaint names file, line, key and what would be valid.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use indexmap::IndexMap;

use super::locate::Tree;
use super::raw::{self, RawApplication, RawCircumstance, RawReadiness, RawService, RawStep, RawTest};
use super::{
    Application, Constraint, Expectation, ReportFormat, Service, Step, StepBody, TestBody, TestCase,
};
use super::{TestCommand, Version};
use crate::circumstance::{Circumstance, Order};
use crate::ids::ServiceName;
use crate::plan::{PortPlan, Probe, Readiness};
use crate::protocol::Protocol;
use crate::wiring::{Balance, ExternalHost};

/// The largest file that is read.
const MOST_BYTES: usize = 4 << 20;
/// Files that extend one another in a longer chain than this are a mistake.
const MOST_EXTENDS: usize = 8;
/// More instances of one service, or nodes, than this are a typing error.
const MOST_INSTANCES: u32 = 1000;

/// A mistake in an application file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}{}: {key}{}{problem}", line.map(|l| format!(":{l}")).unwrap_or_default(), if key.is_empty() { "" } else { ": " })]
pub struct SpecError {
    /// The file as it was named.
    pub file: String,
    /// The line, where it is known.
    pub line: Option<u64>,
    /// The key, as a dotted path.
    pub key: String,
    /// What is wrong.
    pub problem: String,
    /// What would be right.
    pub hint: Option<String>,
}

/// Gives the text of a file that another one names, relative to that one, and the name to show for it.
pub type Loader<'a> = &'a dyn Fn(&str, &str) -> Result<(String, String), String>;

impl Application {
    /// Reads and checks an application file; `load(base, path)` gives the texts of files it extends.
    pub fn read(text: &str, file: &str, load: Loader<'_>) -> Result<Self, SpecError> {
        let mut sources = Vec::new();
        let mut raw = parse(text, file)?;
        sources.push(Source { file: file.to_owned(), tree: Tree::read(text) });
        while let Some(path) = raw.extends.take() {
            let from = sources.last().map(|s| s.file.clone()).unwrap_or_default();
            let complain = |problem: String| Reader { sources: &sources }.error(&["extends"], problem);
            if sources.len() > MOST_EXTENDS {
                return Err(complain("files extend one another in a circle".into()));
            }
            let (text, name) =
                load(&from, &path).map_err(|e| complain(format!("cannot read `{path}`: {e}")))?;
            let base = parse(&text, &name)?;
            sources.push(Source { file: name, tree: Tree::read(&text) });
            let next = base.extends.clone();
            raw = raw.over(base);
            raw.extends = next;
        }
        Reader { sources: &sources }.application(raw)
    }

    /// Reads a file that extends no other.
    pub fn read_alone(text: &str, file: &str) -> Result<Self, SpecError> {
        Self::read(text, file, &|_, _| Err("no other file can be read here".into()))
    }
}

fn parse(text: &str, file: &str) -> Result<RawApplication, SpecError> {
    let error =
        |line, key: String, problem, hint| SpecError { file: file.to_owned(), line, key, problem, hint };
    if text.len() > MOST_BYTES {
        return Err(error(None, String::new(), "the file is larger than 4 MiB".into(), None));
    }
    if text.trim().is_empty() {
        let hint = "`faultscope init` writes one from a Compose file or a Procfile".to_owned();
        return Err(error(None, String::new(), "the file is empty".into(), Some(hint)));
    }
    serde_saphyr::from_str(text).map_err(|e| {
        let e = e.without_snippet();
        let line = e.location().map(|l| l.line()).filter(|&l| l > 0);
        match e {
            serde_saphyr::Error::SerdeUnknownField { field, expected, .. } => error(
                line,
                field.clone(),
                "unknown key".into(),
                nearest_hint(field, expected.iter().copied()),
            ),
            serde_saphyr::Error::SerdeUnknownVariant { variant, expected, .. } => error(
                line,
                variant.clone(),
                "unknown value".into(),
                nearest_hint(variant, expected.iter().copied()),
            ),
            serde_saphyr::Error::SerdeMissingField { field, .. } => {
                error(line, (*field).to_owned(), "this key is missing".into(), None)
            }
            other => {
                let key = other
                    .location()
                    .map_or_else(String::new, |place| Tree::read(text).key_at(place.line(), place.column()));
                error(line, key, without_place(&one_line(&other.to_string())).to_owned(), None)
            }
        }
    })
}

/// A message without the place, which we name ourselves, and without advice to those who call the parser.
fn without_place(message: &str) -> &str {
    [" at line ", ", set DuplicateKeyPolicy"]
        .iter()
        .fold(message, |text, cut| text.split_once(cut).map_or(text, |(before, _)| before))
}

fn one_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().chars().take(300).collect()
}

/// The valid word that is nearest to a wrong one, or all of them when none is near.
pub(crate) fn nearest_hint<'a>(wrong: &str, valid: impl Iterator<Item = &'a str> + Clone) -> Option<String> {
    let near = valid
        .clone()
        .map(|word| (strsim::damerau_levenshtein(wrong, word), word))
        .filter(|(distance, word)| *distance <= 1 + word.len().max(wrong.len()) / 3)
        .min();
    if let Some((_, word)) = near {
        return Some(format!("did you mean `{word}`?"));
    }
    let all: Vec<_> = valid.take(24).map(|w| format!("`{w}`")).collect();
    (!all.is_empty()).then(|| format!("valid here: {}", all.join(", ")))
}

struct Source {
    file: String,
    tree: Tree,
}

struct Reader<'a> {
    sources: &'a [Source],
}

type Names = BTreeSet<ServiceName>;

impl Reader<'_> {
    fn error(&self, path: &[&str], problem: impl Into<String>) -> SpecError {
        // The file in which most of the path is found is the one to mend; the first wins among equals.
        let mut best: Option<(usize, &str, Option<u64>)> = None;
        for source in self.sources {
            let (found, line) = source.tree.line(path);
            if best.is_none_or(|(most, ..)| found > most) {
                best = Some((found, &source.file, line));
            }
        }
        let (_, file, line) = best.unwrap_or_default();
        SpecError { file: file.to_owned(), line, key: path.join("."), problem: problem.into(), hint: None }
    }

    fn service(&self, path: &[&str], name: &str, known: &Names) -> Result<ServiceName, SpecError> {
        if let Some(found) = known.get(name) {
            return Ok(found.clone());
        }
        let hint = nearest_hint(name, known.iter().map(ServiceName::as_str));
        Err(SpecError { hint, ..self.error(path, format!("there is no service `{name}`")) })
    }

    fn application(&self, raw: RawApplication) -> Result<Application, SpecError> {
        if raw.services.is_empty() {
            return Err(self.error(&["services"], "an application has at least one service"));
        }
        let mut names = Names::new();
        for name in raw.services.keys() {
            let parsed: ServiceName =
                name.parse().map_err(|e| self.error(&["services", name], format!("{e}")))?;
            if name == ServiceName::TEST || name == "localhost" {
                return Err(self.error(&["services", name], "this name stands for the test itself"));
            }
            names.insert(parsed);
        }
        let externals = self.externals(raw.external.unwrap_or_default(), &names)?;
        let mut services = IndexMap::new();
        for (name, service) in &raw.services {
            let service = self.one_service(name, service, &names, &externals)?;
            services.insert(self.service(&["services", name], name, &names)?, service);
        }
        self.no_circle(&services)?;
        let mut tests: Vec<TestCase> = Vec::new();
        for (index, test) in raw.tests.unwrap_or_default().into_iter().enumerate() {
            let test = self.test(index, test)?;
            if tests.iter().any(|t| t.name == test.name) {
                let at = index.to_string();
                return Err(
                    self.error(&["tests", &at, "name"], format!("two tests are called `{}`", test.name))
                );
            }
            tests.push(test);
        }
        if let Some(name) = &raw.test
            && !tests.iter().any(|t| &t.name == name)
            && !tests.iter().any(|t| matches!(t.body, TestBody::Discover { .. }))
        {
            let hint = nearest_hint(name, tests.iter().map(|t| t.name.as_str()));
            return Err(SpecError { hint, ..self.error(&["test"], format!("there is no test `{name}`")) });
        }
        let simplest = self.circumstance("simplest", raw.simplest.unwrap_or_default(), &services, &names)?;
        let failing = match raw.failing {
            Some(failing) => self.circumstance("failing", failing, &services, &names)?,
            None => simplest.clone(),
        };
        let application = Application {
            name: raw.name.unwrap_or_else(|| "application".into()),
            services,
            setup: raw.setup.filter(|s| !s.is_empty()),
            reset: raw.reset.unwrap_or_default(),
            isolation: raw.isolation.unwrap_or_default(),
            externals,
            tests,
            failing_test: raw.test,
            simplest,
            failing,
            links: raw.links.unwrap_or_default(),
            constraints: self.constraints(raw.constraints.unwrap_or_default())?,
            record: raw.record.unwrap_or_default(),
            gate_wait: raw.gate_wait.unwrap_or(Duration::from_secs(2)),
        };
        for (index, link) in application.links.iter().enumerate() {
            if !(0.0..=1.0).contains(&link.loss) {
                return Err(
                    self.error(&["links", &index.to_string(), "loss"], "a share lies between 0 and 1")
                );
            }
        }
        // Constraints name deltas, which exist only once the circumstances are known.
        if let Err(problem) = application.space() {
            return Err(SpecError {
                hint: problem.hint,
                ..self.error(&["constraints", &problem.index.to_string()], problem.problem)
            });
        }
        Ok(application)
    }

    fn externals(&self, raw: Vec<raw::RawExternal>, names: &Names) -> Result<Vec<ExternalHost>, SpecError> {
        let mut externals: Vec<ExternalHost> = Vec::new();
        for (index, external) in raw.into_iter().enumerate() {
            let at = index.to_string();
            let service: ServiceName =
                external.host.parse().map_err(|e| self.error(&["external", &at, "host"], format!("{e}")))?;
            if names.contains(&service) || externals.iter().any(|e| e.service == service) {
                return Err(self.error(&["external", &at, "host"], format!("`{service}` is named twice")));
            }
            let ports = if external.ports.is_empty() { vec![80, 443] } else { external.ports };
            externals.push(ExternalHost { host: external.host, service, allow: external.allow, ports });
        }
        Ok(externals)
    }

    fn one_service(
        &self,
        name: &str,
        raw: &RawService,
        names: &Names,
        externals: &[ExternalHost],
    ) -> Result<Service, SpecError> {
        let here = |key| ["services", name, key];
        if raw.command.is_empty() && raw.image.is_none() && raw.build.is_none() {
            let error = self.error(&["services", name], "a service has a `command`, an `image` or a `build`");
            return Err(SpecError { hint: Some("command: [\"python3\", \"order.py\"]".into()), ..error });
        }
        let mut ports: Vec<PortPlan> = Vec::new();
        for port in &raw.ports {
            if port.port == 0 || ports.iter().any(|p| p.port == port.port) {
                return Err(self.error(&here("ports"), format!("port {} is zero or there twice", port.port)));
            }
            let protocol = port.protocol.or(raw.protocol).unwrap_or_else(|| Protocol::of_port(port.port));
            ports.push(PortPlan { port: port.port, protocol });
        }
        let calls = match &raw.calls {
            None => names.iter().chain(externals.iter().map(|e| &e.service)).cloned().collect(),
            Some(list) => {
                let all: Names = names.iter().chain(externals.iter().map(|e| &e.service)).cloned().collect();
                let find = |other: &String| self.service(&["services", name, "calls"], other, &all);
                list.iter().map(find).collect::<Result<_, _>>()?
            }
        };
        for directory in raw.durable.iter().chain(&raw.directory) {
            if directory.starts_with('/') || directory.split('/').any(|part| part == "..") {
                let problem = format!("`{directory}` must lie below the folder of the file");
                return Err(self.error(&["services", name], problem));
            }
        }
        for alias in &raw.aliases {
            if alias.parse::<ServiceName>().is_err() || names.contains(alias.as_str()) {
                return Err(
                    self.error(&here("aliases"), format!("`{alias}` is no host name or names a service"))
                );
            }
        }
        for &own in raw.publish.keys() {
            if !ports.iter().any(|p| p.port == own) {
                return Err(self.error(&here("publish"), format!("{own} is none of its ports")));
            }
        }
        let text = |env: &IndexMap<String, raw::Scalar>| -> BTreeMap<String, String> {
            env.iter().map(|(key, value)| (key.clone(), value.0.clone())).collect()
        };
        let versions = raw.versions.iter().map(|(version, v)| {
            let version_of = Version {
                command: v.command.clone(),
                image: v.image.clone(),
                directory: v.directory.clone(),
                env: text(&v.env),
            };
            (version.clone(), version_of)
        });
        let after = raw.after.iter().map(|other| self.service(&here("after"), other, names));
        let after = after.collect::<Result<Vec<_>, _>>()?;
        Ok(Service {
            command: raw.command.clone(),
            image: raw.image.clone(),
            build: raw.build.clone(),
            directory: raw.directory.clone().unwrap_or_default(),
            ready: self.readiness(name, raw.ready.clone(), &ports)?,
            ports,
            env: text(&raw.env),
            after,
            calls,
            durable: raw.durable.clone(),
            aliases: raw.aliases.clone(),
            publish: raw.publish.iter().map(|(&own, &host)| (own, host)).collect(),
            balance: raw.balance.clone().unwrap_or(Balance::RoundRobin),
            versions: versions.collect(),
            stop_within: raw.stop_within.unwrap_or(Duration::from_secs(5)),
        })
    }

    fn readiness(
        &self,
        name: &str,
        raw: Option<RawReadiness>,
        ports: &[PortPlan],
    ) -> Result<Readiness, SpecError> {
        let raw = raw.unwrap_or_default();
        let here = ["services", name, "ready"];
        let first = ports.first().map(|p| p.port);
        let own = |port: Option<u16>| match port.or(first) {
            Some(port) if ports.iter().any(|p| p.port == port) => Ok(port),
            Some(port) => Err(self.error(&here, format!("{port} is none of its ports"))),
            None => Err(self.error(&here, "it has no port to look at")),
        };
        let ways = [raw.http.is_some(), raw.tcp.is_some(), raw.log.is_some(), raw.command.is_some()];
        if ways.iter().filter(|way| **way).count() > 1 {
            return Err(self.error(&here, "say one of `http`, `tcp`, `log`, `command`"));
        }
        let probe = match raw {
            RawReadiness { http: Some(path), port, .. } => {
                if !path.starts_with('/') {
                    return Err(self.error(&here, format!("the path `{path}` starts with `/`")));
                }
                Probe::Http { path, port: own(port)? }
            }
            RawReadiness { tcp: Some(port), .. } => Probe::Tcp { port: own(Some(port))? },
            RawReadiness { log: Some(pattern), .. } => {
                regex::Regex::new(&pattern).map_err(|e| self.error(&here, one_line_regex(&e)))?;
                Probe::Log { pattern }
            }
            RawReadiness { command: Some(command), .. } if !command.is_empty() => Probe::Command { command },
            RawReadiness { command: Some(_), .. } => return Err(self.error(&here, "the command is empty")),
            _ => first.map_or(Probe::Started, |port| Probe::Tcp { port }),
        };
        Ok(Readiness { probe, within: raw.within.unwrap_or(Duration::from_secs(30)) })
    }

    fn no_circle(&self, services: &IndexMap<ServiceName, Service>) -> Result<(), SpecError> {
        let mut settled: BTreeSet<&ServiceName> = BTreeSet::new();
        while settled.len() < services.len() {
            let next: Vec<_> = services
                .iter()
                .filter(|(name, s)| !settled.contains(name) && s.after.iter().all(|a| settled.contains(a)))
                .map(|(name, _)| name)
                .collect();
            if next.is_empty() {
                let stuck: Vec<_> =
                    services.keys().filter(|n| !settled.contains(n)).map(ServiceName::as_str).collect();
                let first = stuck.first().copied().unwrap_or_default();
                let problem = format!("these wait for one another to start: {}", stuck.join(", "));
                return Err(self.error(&["services", first, "after"], problem));
            }
            settled.extend(next);
        }
        Ok(())
    }

    fn test(&self, index: usize, raw: RawTest) -> Result<TestCase, SpecError> {
        let at = index.to_string();
        let here = |problem: &str| self.error(&["tests", &at], problem);
        let command = |run: Vec<String>| TestCommand {
            run,
            env: raw.env.iter().map(|(key, value)| (key.clone(), value.0.clone())).collect(),
            directory: raw.directory.clone().unwrap_or_default(),
        };
        let body = match (raw.discover.as_deref(), raw.run.clone(), raw.http.clone(), raw.steps.clone()) {
            (Some("junit"), Some(run), None, None) if !run.is_empty() => {
                if !run.iter().any(|arg| arg.contains("{out}")) {
                    return Err(here("`discover: junit` needs `{out}` in `run`, the file of the report"));
                }
                TestBody::Discover { format: ReportFormat::Junit, command: command(run) }
            }
            (Some(other), ..) if other != "junit" => {
                return Err(here("the only form to discover is `junit`"));
            }
            (None, Some(run), None, None) if !run.is_empty() => TestBody::Command(command(run)),
            (None, None, Some(step), None) => {
                TestBody::Steps(vec![self.step(&["tests", &at, "http"], step)?])
            }
            (None, None, None, Some(steps)) if !steps.is_empty() => {
                let parse = |(n, step)| self.step(&["tests", &at, "steps", &usize::to_string(&n)], step);
                TestBody::Steps(steps.into_iter().enumerate().map(parse).collect::<Result<_, _>>()?)
            }
            _ => {
                return Err(here("a test has just one of `run`, `http`, `steps`, or `discover` with `run`"));
            }
        };
        if let Some(pattern) = &raw.failure {
            regex::Regex::new(pattern)
                .map_err(|e| self.error(&["tests", &at, "failure"], one_line_regex(&e)))?;
        }
        let name = match (raw.name, &body) {
            (Some(name), _) => name,
            (None, TestBody::Discover { .. }) => format!("discovered-{}", index + 1),
            (None, _) => return Err(here("a test has a `name`")),
        };
        Ok(TestCase {
            name,
            body,
            failure: raw.failure,
            within: raw.within.unwrap_or(Duration::from_secs(60)),
        })
    }

    fn step(&self, path: &[&str], raw: RawStep) -> Result<Step, SpecError> {
        let methods = [
            ("GET", raw.get),
            ("POST", raw.post),
            ("PUT", raw.put),
            ("DELETE", raw.delete),
            ("PATCH", raw.patch),
            ("HEAD", raw.head),
        ];
        let mut given = methods.into_iter().filter_map(|(method, url)| Some((method, url?)));
        let (Some((method, url)), None) = (given.next(), given.next()) else {
            return Err(self.error(path, "a step has one of `get`, `post`, `put`, `delete`, `patch`, `head`"));
        };
        if !url.starts_with("http://") {
            return Err(self.error(path, format!("`{url}` starts with `http://`")));
        }
        let body = match (raw.json, raw.body) {
            (Some(_), Some(_)) => return Err(self.error(path, "a step has `json` or `body`, not both")),
            (Some(json), None) => Some(StepBody::Json(json)),
            (None, body) => body.map(StepBody::Text),
        };
        let expect: Expectation = raw.expect.unwrap_or_default();
        for pattern in expect.body.iter().chain(expect.json.values()).chain(expect.headers.values()) {
            regex::Regex::new(pattern).map_err(|e| self.error(path, one_line_regex(&e)))?;
        }
        Ok(Step {
            method: method.to_owned(),
            url,
            headers: raw.headers.into_iter().map(|(key, value)| (key, value.0)).collect(),
            body,
            expect,
            save: raw.save.into_iter().collect(),
        })
    }

    fn circumstance(
        &self,
        which: &str,
        raw: RawCircumstance,
        services: &IndexMap<ServiceName, Service>,
        names: &Names,
    ) -> Result<Circumstance, SpecError> {
        let mut circumstance = Circumstance { nodes: raw.nodes.unwrap_or(1), ..Circumstance::default() };
        if circumstance.nodes == 0 || u32::from(circumstance.nodes) > MOST_INSTANCES {
            return Err(self.error(&[which, "nodes"], "there are 1 to 1000 nodes"));
        }
        for (name, count) in raw.instances {
            let path = [which, "instances", &name];
            let service = self.service(&path, &name, names)?;
            if !(1..=MOST_INSTANCES).contains(&count) {
                return Err(self.error(&path, "a service has 1 to 1000 instances"));
            }
            circumstance.instances.insert(service, count);
        }
        for (name, items) in raw.config {
            let service = self.service(&[which, "config", &name], &name, names)?;
            let mut config = BTreeMap::new();
            for (key, value) in items {
                check_config(&key, &value.0).map_err(|(problem, hint)| SpecError {
                    hint,
                    ..self.error(&[which, "config", &name, &key], problem)
                })?;
                config.insert(key, value.0);
            }
            circumstance.config.insert(service, config);
        }
        for (name, version) in raw.versions {
            let path = [which, "versions", &name];
            let service = self.service(&path, &name, names)?;
            let known = &services[&service].versions;
            if !known.contains_key(&version) {
                let hint = nearest_hint(&version, known.keys().map(String::as_str));
                return Err(SpecError {
                    hint,
                    ..self.error(&path, format!("`{name}` has no version `{version}`"))
                });
            }
            circumstance.versions.insert(service, version);
        }
        for (index, raw) in raw.sequence.into_iter().enumerate() {
            let at = index.to_string();
            let path = [which, "sequence", at.as_str()];
            let from = self.service(&[which, "sequence", &at, "from"], &raw.from, names)?;
            let handling = raw
                .handling
                .parse()
                .map_err(|e| self.error(&[which, "sequence", &at, "in"], format!("{e}")))?;
            let mut order = Vec::new();
            for call in &raw.order {
                let call: crate::series::CallName = call
                    .parse()
                    .map_err(|e| self.error(&[which, "sequence", &at, "order"], format!("{e}")))?;
                self.service(&[which, "sequence", &at, "order"], call.callee.as_str(), names)?;
                if order.contains(&call) {
                    let problem = format!("`{call}` is there twice; name the second one `{call}#2`");
                    return Err(self.error(&path, problem));
                }
                order.push(call);
            }
            if order.len() < 2 {
                return Err(self.error(&path, "an order has at least two calls"));
            }
            if circumstance.sequence.iter().any(|o: &Order| o.from == from && o.handling == handling) {
                return Err(self.error(&path, "this series has an order already"));
            }
            circumstance.sequence.push(Order { from, handling, order });
        }
        Ok(circumstance)
    }

    fn constraints(&self, raw: Vec<raw::RawConstraint>) -> Result<Vec<Constraint>, SpecError> {
        let convert = |(index, raw): (usize, raw::RawConstraint)| match raw {
            raw::RawConstraint { when: Some(delta), then: Some(needs), not: None } => {
                Ok(Constraint::Needs { delta, needs })
            }
            raw::RawConstraint { when: None, then: None, not: Some(deltas) } if deltas.len() > 1 => {
                Ok(Constraint::Excludes(deltas))
            }
            _ => Err(self.error(
                &["constraints", &index.to_string()],
                "a constraint reads `{ if: A, then: B }` or `{ not: [A, B] }`",
            )),
        };
        raw.into_iter().enumerate().map(convert).collect()
    }
}

fn one_line_regex(error: &regex::Error) -> String {
    let text = error.to_string();
    format!("not a regular expression: {}", text.lines().last().unwrap_or_default().trim())
}

type Complaint = (String, Option<String>);

fn check_config(key: &str, value: &str) -> Result<(), Complaint> {
    let positive = |text: &str| text.parse::<f64>().is_ok_and(|n| n.is_finite() && n > 0.0);
    match key {
        "memory" if !raw::is_size(value) => {
            Err((format!("`{value}` is not a size"), Some("memory: 64MiB".into())))
        }
        "cpu" if !positive(value) => {
            Err((format!("`{value}` is not a number of cores"), Some("cpu: 0.5".into())))
        }
        "pids" if value.parse::<u32>().is_ok_and(|n| n > 0) => Ok(()),
        "pids" => Err((format!("`{value}` is not a number of processes"), Some("pids: 100".into()))),
        "memory" | "cpu" => Ok(()),
        _ if key.strip_prefix("env.").is_some_and(|name| !name.is_empty() && !name.contains('=')) => Ok(()),
        _ => {
            let hint = nearest_hint(key, ["memory", "cpu", "pids", "env.NAME"].into_iter());
            Err(("unknown configuration item".into(), hint))
        }
    }
}
