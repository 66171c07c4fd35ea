//! Ports that a file does not declare: from what services are called at, what they are started with, the
//! Dockerfile they are built from, and the public image they run.
//!
//! Half of the services of public Compose files declare no port, because containers of one network need
//! none. Here a port is what makes a service callable, so each one that is inferred carries its origin,
//! and services that are needed but have none are reported.

mod address;
mod dockerfile;
mod image;
mod own;
mod unknown;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use indexmap::IndexMap;

pub(super) use address::{Address, Style, find_addresses};
pub(super) use dockerfile::Dockerfile;
pub(super) use image::trace_backend;
pub(super) use own::find_port_beside;
pub(super) use unknown::{UnknownHost, find_unknown_hosts};

use super::{ImportedPort, ImportedService};

/// The most ports that are inferred for one service; the mesh listens on each of them.
const MAX_PORTS: usize = 16;

/// Where an inferred port comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PortOrigin {
    /// Another service calls it there.
    Caller {
        /// The caller.
        service: String,
        /// A variable, a key or a file.
        place: String,
    },
    /// A variable of its own.
    Variable(String),
    /// A label of its own.
    Label(String),
    /// Its command.
    Command,
    /// Its health check.
    HealthCheck,
    /// The Dockerfile it is built from.
    Dockerfile(String),
    /// The image it runs or is built from.
    Image(String),
}

impl fmt::Display for PortOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Caller { service, place } => write!(f, "called by {service} ({place})"),
            Self::Variable(name) => write!(f, "its variable {name}"),
            Self::Label(name) => write!(f, "its label {name}"),
            Self::Command => f.write_str("its command"),
            Self::HealthCheck => f.write_str("its health check"),
            Self::Dockerfile(path) => write!(f, "EXPOSE in {path}"),
            Self::Image(image) => write!(f, "usual for image {image}"),
        }
    }
}

/// A text in which addresses of other services may stand.
#[derive(Debug, Clone)]
pub(super) struct Text {
    /// Where it stands: `command`, a label, a file.
    pub(super) place: String,
    pub(super) text: String,
    pub(super) style: Style,
}

/// What is known of a service besides the keys that are carried over.
#[derive(Debug, Default)]
pub(super) struct Clues {
    pub(super) texts: Vec<Text>,
    pub(super) labels: BTreeMap<String, String>,
    /// The Dockerfile that it is built from, with its path.
    pub(super) dockerfile: Option<(String, Dockerfile)>,
    /// Services that it needs to be called: `depends_on`, `links`.
    pub(super) needs: BTreeSet<String>,
}

/// A service that others need and that has no port.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unreachable {
    pub(super) service: String,
    pub(super) needed_by: Vec<String>,
}

/// Adds the ports that services have without declaring them; returns the services that stay unreachable.
pub(super) fn infer_ports(
    services: &mut IndexMap<String, ImportedService>,
    clues: &BTreeMap<String, Clues>,
) -> Vec<Unreachable> {
    let hosts: BTreeMap<String, String> = services
        .iter()
        .flat_map(|(name, service)| {
            std::iter::once(name).chain(&service.aliases).map(|host| (host.clone(), name.clone()))
        })
        .collect();
    let mut needed: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    // Those that somebody names as a host, rather than only waiting for them.
    let mut addressed: BTreeSet<String> = BTreeSet::new();
    let mut called: Vec<(String, u16, PortOrigin)> = Vec::new();
    for (caller, service) in services.iter() {
        for call in find_calls(service, clues.get(caller), &hosts) {
            if call.callee == *caller {
                continue;
            }
            needed.entry(call.callee.clone()).or_default().insert(caller.clone());
            addressed.insert(call.callee.clone());
            if let Some(port) = call.port {
                let origin = PortOrigin::Caller { service: caller.clone(), place: call.place };
                called.push((call.callee, port, origin));
            }
        }
        for target in clues.get(caller).map(|clues| &clues.needs).into_iter().flatten() {
            if let Some(callee) = hosts.get(target).filter(|callee| *callee != caller) {
                needed.entry(callee.clone()).or_default().insert(caller.clone());
            }
        }
    }

    let none = Clues::default();
    for (name, service) in services.iter_mut() {
        let clues = clues.get(name).unwrap_or(&none);
        if service.ports.is_empty() {
            for (port, origin) in own::find_own_ports(name, service, clues) {
                add_port(service, port, origin);
            }
        }
    }
    for (callee, port, origin) in called {
        if let Some(service) = services.get_mut(&callee) {
            add_port(service, port, origin);
        }
    }
    for (name, service) in services.iter_mut() {
        let clues = clues.get(name).unwrap_or(&none);
        add_image_ports(service, clues);
    }

    let unreachable = services.iter().filter(|(_, service)| service.ports.is_empty());
    let unreachable =
        unreachable.filter(|(name, service)| addressed.contains(*name) || !only_works(name, service));
    unreachable
        .filter_map(|(name, _)| {
            let needed_by = needed.get(name)?.iter().cloned().collect();
            Some(Unreachable { service: name.clone(), needed_by })
        })
        .collect()
}

/// Whether a service works for others without being called: a worker, a job, something that only sleeps.
fn only_works(name: &str, service: &ImportedService) -> bool {
    const JOBS: [&str; 17] = [
        "worker",
        "workers",
        "celery",
        "beat",
        "cron",
        "scheduler",
        "consumer",
        "sidekiq",
        "migrate",
        "migration",
        "migrations",
        "migrator",
        "init",
        "seed",
        "setup",
        "backup",
        "cleanup",
    ];
    const IDLE: [&str; 6] = ["sleep", "tail", "ping", "echo", "true", "top"];
    let is_job =
        |text: &str| text.split(|c: char| !c.is_ascii_alphanumeric()).any(|part| JOBS.contains(&part));
    let mut words = service.words().flat_map(|word| word.split_whitespace());
    let programs: Vec<&str> = words.by_ref().take(4).map(|w| w.rsplit('/').next().unwrap_or(w)).collect();
    let program =
        programs.iter().find(|word| !matches!(**word, "sh" | "bash" | "-c" | "exec" | "-ec" | "env"));
    is_job(name)
        || programs.iter().any(|word| is_job(word))
        || program.is_some_and(|word| IDLE.contains(word))
}

fn add_port(service: &mut ImportedService, port: u16, origin: PortOrigin) {
    let known = service.ports.iter().any(|known| known.number() == port);
    if port > 0 && !known && service.port_origins.len() < MAX_PORTS {
        service.ports.push(ImportedPort::Plain(port));
        service.port_origins.push((port, origin));
    }
}

/// Ports of the Dockerfile and of the image, which say less about this service than its own keys do.
fn add_image_ports(service: &mut ImportedService, clues: &Clues) {
    if let Some((path, dockerfile)) = &clues.dockerfile
        && service.ports.is_empty()
    {
        for port in &dockerfile.ports {
            add_port(service, *port, PortOrigin::Dockerfile(path.clone()));
        }
    }
    // An image that is also built has the name of what is built.
    let image = match &clues.dockerfile {
        Some((_, dockerfile)) => Some(dockerfile.base.clone()),
        None => service.image.clone(),
    };
    let Some(image) = image else { return };
    let Some((ports, always)) = image::known_ports(&image) else { return };
    let words: Vec<String> = service.words().cloned().collect();
    let moved = own::find_command_ports(&words).iter().any(|port| !ports.contains(port));
    if service.ports.is_empty() || (always && !moved) {
        for port in ports {
            add_port(service, *port, PortOrigin::Image(image.clone()));
        }
    }
}

/// A call that a text shows.
struct Call {
    callee: String,
    port: Option<u16>,
    place: String,
}

fn find_calls(
    service: &ImportedService,
    clues: Option<&Clues>,
    hosts: &BTreeMap<String, String>,
) -> Vec<Call> {
    let mut found = Vec::new();
    let built = clues.and_then(|clues| clues.dockerfile.as_ref());
    let built_env = built.into_iter().flat_map(|(_, dockerfile)| &dockerfile.env);
    let built_env = built_env.filter(|(key, _)| !service.env.contains_key(*key));
    let env: Vec<(&String, &String)> = service.env.iter().chain(built_env).collect();
    for (key, value) in &env {
        for (callee, address) in find_variable_addresses(key, value, hosts) {
            found.push(Call { callee, port: address.called_port(), place: (*key).clone() });
        }
    }
    let mut texts: Vec<(&str, String, Style)> = Vec::new();
    let words: Vec<&str> = service.words().map(String::as_str).collect();
    if words.is_empty() {
        if let Some((path, dockerfile)) = built {
            texts.push((path, dockerfile.words().join(" "), Style::Command));
        }
    } else {
        // The first word is the program, which may have the name of a service.
        texts.push(("command", words[1..].join(" "), Style::Command));
    }
    for text in clues.map(|clues| &clues.texts).into_iter().flatten() {
        texts.push((&text.place, text.text.clone(), text.style));
    }
    for (place, text, style) in texts {
        for address in find_addresses(&text, style, &|host| hosts.contains_key(host)) {
            // A name without a port is any word here.
            let (Some(callee), Some(port)) = (hosts.get(&text[address.host.clone()]), address.called_port())
            else {
                continue;
            };
            found.push(Call { callee: callee.clone(), port: Some(port), place: place.to_owned() });
        }
    }
    for (key, host) in &env {
        let Some(callee) = hosts.get(host.as_str()) else { continue };
        if let Some((port_key, port)) = own::find_port_beside(key, &env) {
            let place = format!("{key}, {port_key}");
            found.push(Call { callee: callee.clone(), port: Some(port), place });
        }
    }
    found
}

/// The addresses in a variable, with the services that `hosts` has for their names. A name alone counts
/// only where the variable is about a host: `MODE=db` is a word.
pub(super) fn find_variable_addresses(
    key: &str,
    text: &str,
    hosts: &BTreeMap<String, String>,
) -> Vec<(String, Address)> {
    let addresses = find_addresses(text, Style::Value, &|host| hosts.contains_key(host)).into_iter();
    let addresses = addresses.filter(|address| address.called_port().is_some() || names_host(key));
    addresses.filter_map(|a| Some((hosts.get(&text[a.host.clone()])?.clone(), a))).collect()
}

/// Whether a variable of this name holds a host.
fn names_host(key: &str) -> bool {
    let key = key.to_ascii_uppercase();
    if key.ends_with("NAME") && !key.ends_with("HOSTNAME") {
        return false;
    }
    [
        "HOST", "SERVER", "ADDR", "URL", "URI", "ENDPOINT", "SERVICE", "NODES", "BROKER", "UPSTREAM",
        "BACKEND", "PEER",
    ]
    .iter()
    .any(|word| key.contains(word))
}

#[cfg(test)]
mod tests;
