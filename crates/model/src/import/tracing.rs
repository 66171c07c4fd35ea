//! Zipkin, Jaeger and OpenTelemetry collectors of a file give way to the collector that every slot has.
//!
//! Spans that services report then belong to the trial that caused them. The service is only left out
//! when every address of it can be changed; otherwise the file keeps it and a warning says what to do.

use std::collections::BTreeMap;

use super::ImportedApplication;
use super::infer::{Address, Clues, Style, find_addresses, find_variable_addresses, trace_backend};
use super::warnings::{Warnings, list_names};
use crate::wiring::{COLLECTOR, COLLECTOR_PORTS};

/// Leaves out the services that the built-in collector can stand for, and changes their addresses.
pub(super) fn use_own_collector(
    application: &mut ImportedApplication,
    clues: &mut BTreeMap<String, Clues>,
    warnings: &mut Warnings,
) {
    let mut left_out: Vec<String> = Vec::new();
    let mut kept: BTreeMap<String, Vec<String>> = BTreeMap::new();
    // One collector often exports to another one, which is free to go once the first is gone.
    loop {
        let before = left_out.len();
        let candidates: Vec<String> = application
            .services
            .iter()
            .filter(|(_, service)| service.image.as_deref().and_then(trace_backend).is_some())
            .map(|(name, _)| name.clone())
            .collect();
        kept.clear();
        for name in candidates {
            let uses = find_uses(&name, application, clues);
            if !uses.blockers.is_empty() {
                kept.insert(name, uses.blockers);
            } else if uses.n_changeable > 0 || !left_out.is_empty() {
                leave_out(&name, application, clues);
                warnings.forget(&name);
                left_out.push(name);
            }
        }
        if left_out.len() == before {
            break;
        }
    }
    if !left_out.is_empty() {
        let names = list_names(&left_out);
        let verb = if left_out.len() == 1 { "is" } else { "are" };
        warnings.add_general(format!(
            "{names} {verb} left out: services report to the built-in collector, `{COLLECTOR}`; `--keep-tracing` keeps them"
        ));
        application.header.push(format!(
            "{} {verb} left out: services report to the built-in collector, {COLLECTOR}.",
            left_out.join(", ")
        ));
    }
    for (name, callers) in kept {
        let backend =
            application.services.get(&name).and_then(|s| s.image.as_deref()).and_then(trace_backend);
        let label = backend.map_or("a collector", |backend| backend.label());
        warnings.add(
            &name,
            format!(
                "{label} could be replaced by the built-in collector, but {} {} it in another way; \
                 let them report to `http://{COLLECTOR}:4318` (OTLP) or `:9411` (Zipkin) and remove it",
                list_names(&callers),
                if callers.len() == 1 { "uses" } else { "use" }
            ),
        );
    }
}

#[derive(Debug, Default)]
struct Uses {
    /// Addresses that can be changed.
    n_changeable: usize,
    /// Services that use it in a way that the built-in collector does not offer, or from where it cannot be seen.
    blockers: Vec<String>,
}

fn find_uses(name: &str, application: &ImportedApplication, clues: &BTreeMap<String, Clues>) -> Uses {
    let hosts = find_hosts(name, application);
    let is_host = |host: &str| hosts.contains_key(host);
    let mut uses = Uses::default();
    for (caller, service) in &application.services {
        if caller == name {
            continue;
        }
        let mut blocked = false;
        let ports = service.env.iter().filter_map(|(key, value)| Some((key, value.parse::<u16>().ok()?)));
        let ports: Vec<(&String, u16)> = ports.collect();
        for (key, text) in &service.env {
            for (_, address) in find_variable_addresses(key, text, &hosts) {
                // `JAEGER_AGENT_HOST=jaeger` beside `JAEGER_AGENT_PORT=6831` is no address of ours.
                let stem = key.trim_end_matches("HOSTNAME").trim_end_matches("HOST");
                let beside = ports
                    .iter()
                    .filter(|(other, _)| other.strip_prefix(stem).is_some_and(|rest| rest.ends_with("PORT")));
                let port = address.called_port();
                let bare = port.is_none() && !beside.clone().all(|(_, port)| COLLECTOR_PORTS.contains(port));
                if bare || port.is_some_and(|port| !COLLECTOR_PORTS.contains(&port)) {
                    blocked = true;
                } else {
                    uses.n_changeable += 1;
                }
            }
        }
        for word in service.words().skip(1) {
            for address in find_addresses(word, Style::Value, &is_host) {
                match address.called_port() {
                    Some(port) if COLLECTOR_PORTS.contains(&port) => uses.n_changeable += 1,
                    Some(_) => blocked = true,
                    None => {}
                }
            }
        }
        let texts = clues.get(caller).map(|clues| clues.texts.as_slice()).unwrap_or_default();
        blocked |= texts.iter().any(|text| {
            find_addresses(&text.text, text.style, &is_host).iter().any(|a| a.called_port().is_some())
        });
        if blocked {
            uses.blockers.push(caller.clone());
        }
    }
    uses
}

fn leave_out(name: &str, application: &mut ImportedApplication, clues: &mut BTreeMap<String, Clues>) {
    let hosts = find_hosts(name, application);
    let is_host = |host: &str| hosts.contains_key(host);
    application.services.shift_remove(name);
    application.failing.instances.remove(name);
    application.failing.config.remove(name);
    clues.remove(name);
    for service in application.services.values_mut() {
        service.after.retain(|other| other != name);
        for (key, text) in &mut service.env {
            let addresses = find_variable_addresses(key, text, &hosts);
            replace_hosts(text, &addresses.into_iter().map(|(_, address)| address).collect::<Vec<_>>());
        }
        for text in service.words_mut().skip(1) {
            let addresses = find_addresses(text, Style::Value, &is_host);
            let with_port: Vec<Address> =
                addresses.into_iter().filter(|a| a.called_port().is_some()).collect();
            replace_hosts(text, &with_port);
        }
    }
    for clues in clues.values_mut() {
        clues.needs.remove(name);
    }
}

fn find_hosts(name: &str, application: &ImportedApplication) -> BTreeMap<String, String> {
    let aliases = application.services.get(name).map(|service| service.aliases.clone()).unwrap_or_default();
    std::iter::once(name.to_owned()).chain(aliases).map(|host| (host, name.to_owned())).collect()
}

fn replace_hosts(text: &mut String, addresses: &[Address]) {
    // From the end, so that earlier places stay where they are.
    for address in addresses.iter().rev() {
        text.replace_range(address.host.clone(), COLLECTOR);
    }
}
