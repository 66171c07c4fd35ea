//! Captures the circumstance of a running Compose project.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{Captured, CapturedImage};
use crate::application::{Application, Service};
use crate::circumstance::Circumstance;
use crate::ids::ServiceName;
use crate::units::ByteSize;

/// The name given to a version that the application file lacks.
const VERSION: &str = "captured";

/// A running container, as the container engine describes it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Container {
    /// The service of the project.
    pub service: String,
    /// The image as it was named at creation.
    pub image: String,
    /// The environment without the variables of the image.
    pub env: BTreeMap<String, String>,
    /// Memory limit in bytes.
    pub memory: Option<u64>,
    /// CPU limit in cores.
    pub cpu: Option<f64>,
    /// Limit of processes and threads.
    pub pids: Option<u32>,
}

/// The differences between running containers and the simplest circumstance.
pub fn from_containers(application: &Application, containers: &[Container]) -> Captured {
    let mut captured = Captured { failing: Circumstance::default(), ..Captured::default() };
    let mut by_service: BTreeMap<&str, Vec<&Container>> = BTreeMap::new();
    for container in containers {
        by_service.entry(&container.service).or_default().push(container);
    }
    for name in by_service.keys().filter(|name| !application.services.contains_key(**name)) {
        captured.notes.push(format!("`{name}` runs and is not in the application file"));
    }
    for (name, service) in &application.services {
        match by_service.get(name.as_str()) {
            None => captured.notes.push(format!("`{name}` does not run")),
            Some(all) => one_service(application, name, service, all, &mut captured),
        }
    }
    captured
}

fn one_service(
    application: &Application,
    name: &ServiceName,
    service: &Service,
    all: &[&Container],
    captured: &mut Captured,
) {
    let count = u32::try_from(all.len()).unwrap_or(u32::MAX);
    if count != application.simplest.instances_of(name) {
        captured.failing.instances.insert(name.clone(), count);
    }
    let Some(first) = all.first() else { return };
    if all
        .iter()
        .any(|c| (&c.image, &c.env, c.memory, c.cpu) != (&first.image, &first.env, first.memory, first.cpu))
    {
        captured.notes.push(format!("the containers of `{name}` differ: the first one is taken"));
    }
    let mut items: BTreeMap<String, String> = BTreeMap::new();
    items.extend(first.memory.map(|bytes| ("memory".to_owned(), ByteSize(bytes).to_string())));
    items.extend(first.cpu.map(|cores| ("cpu".to_owned(), cores.to_string())));
    items.extend(first.pids.map(|count| ("pids".to_owned(), count.to_string())));
    let simplest = application.simplest.config.get(name);
    let simple = |key: &str| {
        simplest
            .and_then(|items| items.get(key))
            .or_else(|| key.strip_prefix("env.").and_then(|env| service.env.get(env)))
    };
    for (key, value) in &first.env {
        items.insert(format!("env.{key}"), value.clone());
    }
    items.retain(|key, value| simple(key) != Some(value));
    let hidden: BTreeSet<String> = items.keys().filter(|key| is_secret(key)).cloned().collect();
    if !hidden.is_empty() {
        let names: Vec<_> = hidden.iter().map(|key| key.trim_start_matches("env.")).collect();
        captured.notes.push(format!(
            "`{name}` has its own {}: left out, since secrets stay out of files",
            names.join(", ")
        ));
        items.retain(|key, _| !hidden.contains(key));
    }
    for key in service.env.keys().filter(|key| !first.env.contains_key(*key)) {
        captured.notes.push(format!("`{name}` runs without {key}, which the application file sets"));
    }
    if !items.is_empty() {
        captured.failing.config.insert(name.clone(), items);
    }
    let own = application.simplest.versions.get(name).and_then(|v| service.versions.get(v)?.image.as_ref());
    if own.or(service.image.as_ref()) == Some(&first.image) || first.image.is_empty() {
        return;
    }
    match service.versions.iter().find(|(_, version)| version.image.as_ref() == Some(&first.image)) {
        Some((version, _)) => {
            captured.failing.versions.insert(name.clone(), version.clone());
        }
        None if service.image.is_some() => {
            let image = CapturedImage { version: VERSION.to_owned(), image: first.image.clone() };
            captured.failing.versions.insert(name.clone(), VERSION.to_owned());
            captured.images.insert(name.clone(), image);
        }
        // Where the file runs its own command, the image does not identify a version.
        None => {}
    }
}

/// Whether a variable is probably a secret, judged by its name.
fn is_secret(key: &str) -> bool {
    let key = key.to_ascii_uppercase();
    ["PASSWORD", "PASSWD", "SECRET", "TOKEN", "CREDENTIAL", "API_KEY", "PRIVATE_KEY"]
        .iter()
        .any(|word| key.contains(word))
}
