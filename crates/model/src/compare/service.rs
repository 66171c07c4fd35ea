//! Merges one service of two applications.

use std::collections::{BTreeMap, BTreeSet};

use super::CompareError;
use crate::application::{Application, Service, Version};
use crate::circumstance::Circumstance;
use crate::ids::ServiceName;
use crate::protocol::Protocol;

/// Longer commands are cut before they become the name of a version, which must fit into one line of a report.
const MAX_NAME: usize = 60;

/// A service as deployed: with its chosen version and complete environment.
struct Effective<'a> {
    service: &'a Service,
    program: Version,
    /// Configuration items, the environment among them.
    items: BTreeMap<String, String>,
    /// The name of its version, where it has a chosen one.
    version: Option<&'a String>,
}

impl<'a> Effective<'a> {
    fn deployed(name: &ServiceName, application: &'a Application) -> Option<Self> {
        let service = application.services.get(name)?;
        let chosen = application.failing.versions.get(name);
        let version = chosen.and_then(|v| service.versions.get(v));
        let own_env = service.env.iter().chain(version.iter().flat_map(|v| &v.env));
        let mut items: BTreeMap<String, String> =
            own_env.map(|(key, value)| (format!("env.{key}"), value.clone())).collect();
        items.extend(application.failing.config.get(name).cloned().unwrap_or_default());
        let program = Version {
            entrypoint: version.and_then(|v| v.entrypoint.clone()).or_else(|| service.entrypoint.clone()),
            command: Some(version.and_then(|v| v.command.clone()).unwrap_or_else(|| service.command.clone())),
            image: version.and_then(|v| v.image.clone()).or_else(|| service.image.clone()),
            directory: Some(
                version.and_then(|v| v.directory.clone()).unwrap_or_else(|| service.directory.clone()),
            ),
            env: BTreeMap::new(),
            ready: Some(version.and_then(|v| v.ready.clone()).unwrap_or_else(|| service.ready.clone())),
        };
        Some(Self { service, program, items, version: chosen })
    }
}

pub(super) fn lay_over(
    name: &ServiceName,
    good: &Application,
    bad: &Application,
    merged: &mut Application,
    notes: &mut Vec<String>,
) -> Result<(), CompareError> {
    let (was, is) = (Effective::deployed(name, good), Effective::deployed(name, bad));
    let present = |effective: &Option<Effective<'_>>, circumstance: &Circumstance| {
        if effective.is_some() { circumstance.instances_of(name) } else { 0 }
    };
    let counts = (present(&was, &good.failing), present(&is, &bad.failing));
    let service = match (was, is) {
        (Some(was), Some(is)) => both(name, &was, &is, merged, notes)?,
        // A service that one of them lacks is configured as in the other, wherever it runs.
        (Some(only), None) | (None, Some(only)) => {
            let (env, limits) = split(only.items);
            if !limits.is_empty() {
                merged.simplest.config.insert(name.clone(), limits.clone());
                merged.failing.config.insert(name.clone(), limits);
            }
            let program = only.program;
            Service {
                entrypoint: program.entrypoint,
                command: program.command.unwrap_or_default(),
                image: program.image,
                directory: program.directory.unwrap_or_default(),
                ready: program.ready.unwrap_or_else(|| only.service.ready.clone()),
                env,
                versions: BTreeMap::new(),
                ..only.service.clone()
            }
        }
        (None, None) => return Ok(()),
    };
    for (circumstance, count) in [(&mut merged.simplest, counts.0), (&mut merged.failing, counts.1)] {
        if count != 1 {
            circumstance.instances.insert(name.clone(), count);
        }
    }
    merged.services.insert(name.clone(), service);
    Ok(())
}

fn both(
    name: &ServiceName,
    was: &Effective<'_>,
    is: &Effective<'_>,
    merged: &mut Application,
    notes: &mut Vec<String>,
) -> Result<Service, CompareError> {
    let mut service = is.service.clone();
    let same = |key: &String| was.items.get(key) == is.items.get(key);
    let (mut common, mut first, mut second) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    for key in was.items.keys().chain(is.items.keys()).collect::<BTreeSet<_>>() {
        if same(key) && key.starts_with("env.") {
            common.extend(is.items.get_key_value(key).map(|(k, v)| (k.clone(), v.clone())));
            continue;
        }
        first.extend(was.items.get_key_value(key).map(|(k, v)| (k.clone(), v.clone())));
        second.extend(is.items.get_key_value(key).map(|(k, v)| (k.clone(), v.clone())));
    }
    service.env = split(common).0;
    for (circumstance, items) in [(&mut merged.simplest, first), (&mut merged.failing, second)] {
        if !items.is_empty() {
            circumstance.config.insert(name.clone(), items);
        }
    }
    join_ports(name, was.service, &mut service)?;
    add_all(&mut service.aliases, &was.service.aliases);
    add_all(&mut service.calls, &was.service.calls);
    add_all(&mut service.durable, &was.service.durable);
    service.versions = BTreeMap::new();
    if was.program == is.program {
        let program = is.program.clone();
        service.entrypoint = program.entrypoint;
        service.command = program.command.unwrap_or_default();
        service.image = program.image;
        service.directory = program.directory.unwrap_or_default();
        service.ready = program.ready.unwrap_or(service.ready);
    } else {
        // Only what both share may stay in the service: a version without an image must not inherit one.
        if was.program.image != is.program.image {
            service.image = None;
        }
        if was.program.entrypoint != is.program.entrypoint {
            service.entrypoint = None;
        }
        let (from, to) = version_names(was, is);
        merged.simplest.versions.insert(name.clone(), from.clone());
        merged.failing.versions.insert(name.clone(), to.clone());
        service.versions.insert(from, was.program.clone());
        service.versions.insert(to, is.program.clone());
    }
    let differing = [
        ("`after`", was.service.after != is.service.after),
        ("`balance`", was.service.balance != is.service.balance),
        ("`stop_within`", was.service.stop_within != is.service.stop_within),
        ("`build`", was.service.build != is.service.build),
        ("`working_dir`", was.service.working_dir != is.service.working_dir),
        ("`user`", was.service.user != is.service.user),
        ("`mounts`", was.service.mounts != is.service.mounts),
        ("`privileged`", was.service.privileged != is.service.privileged),
    ];
    for (what, _) in differing.iter().filter(|(_, differs)| *differs) {
        notes.push(format!("{what} of `{name}` differs; the bad file's is used"));
    }
    Ok(service)
}

/// Names two versions by what distinguishes them: their names, images, commands or folders.
fn version_names(was: &Effective<'_>, is: &Effective<'_>) -> (String, String) {
    let short = |text: String| -> String {
        if text.chars().count() <= MAX_NAME {
            return text;
        }
        text.chars().take(MAX_NAME).chain(['…']).collect()
    };
    let command = |e: &Effective<'_>| {
        let words = e.program.entrypoint.iter().chain(&e.program.command).flatten();
        short(words.map(String::as_str).collect::<Vec<_>>().join(" "))
    };
    let folder = |e: &Effective<'_>| match e.program.directory.as_deref() {
        None | Some("") => "./".to_owned(),
        Some(folder) => format!("{}/", folder.trim_end_matches('/')),
    };
    let named = |e: &Effective<'_>| e.version.cloned();
    let image = |e: &Effective<'_>| e.program.image.clone();
    let pairs = [
        named(was).zip(named(is)),
        image(was).zip(image(is)),
        Some((command(was), command(is))),
        Some((folder(was), folder(is))),
    ];
    let told = pairs.into_iter().flatten().find(|(a, b)| a != b && !a.is_empty() && !b.is_empty());
    told.unwrap_or_else(|| ("good".into(), "bad".into()))
}

/// Merges the ports of both: a port that only one of them has does no harm in the other, where nobody calls it.
fn join_ports(name: &ServiceName, was: &Service, service: &mut Service) -> Result<(), CompareError> {
    for port in &was.ports {
        match service.ports.iter().find(|p| p.port == port.port) {
            None => service.ports.push(*port),
            Some(own) if own.protocol == port.protocol => {}
            Some(own) => {
                let speaks = |p: Protocol| format!("{p:?}").to_lowercase();
                return Err(CompareError {
                    problem: format!(
                        "port {} of `{name}` speaks {} in the good one and {} in the bad one",
                        port.port,
                        speaks(port.protocol),
                        speaks(own.protocol)
                    ),
                    hint: "the mesh reads a port in one way: write the same protocol in both".into(),
                });
            }
        }
    }
    Ok(())
}

fn add_all<T: Clone + PartialEq>(to: &mut Vec<T>, from: &[T]) {
    let missing: Vec<T> = from.iter().filter(|item| !to.contains(item)).cloned().collect();
    to.extend(missing);
}

/// Environment by name, and the other items.
fn split(items: BTreeMap<String, String>) -> (BTreeMap<String, String>, BTreeMap<String, String>) {
    let mut env = BTreeMap::new();
    let mut others = BTreeMap::new();
    for (key, value) in items {
        match key.strip_prefix("env.") {
            Some(name) => env.insert(name.to_owned(), value),
            None => others.insert(key, value),
        };
    }
    (env, others)
}
