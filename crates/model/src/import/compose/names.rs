//! Other names under which services are called, and networks that keep services apart.

use std::collections::{BTreeMap, BTreeSet};

use indexmap::IndexMap;

use crate::import::node::{Map, Node};
use crate::import::warnings::Warnings;
use crate::import::{ImportedService, is_host_name};

/// Names wanted for services, in the order they were found.
#[derive(Debug, Default)]
pub(super) struct Names {
    wanted: Vec<(String, String)>,
}

impl Names {
    /// Notes all names a service asks for.
    pub(super) fn note_names(&mut self, name: &str, service: &Node) {
        let mut want = |service: &str, alias: &str| self.wanted.push((service.to_owned(), alias.to_owned()));
        for key in ["hostname", "container_name"] {
            if let Some(alias) = service.get_text(key) {
                want(name, alias);
            }
        }
        for network in service.get("networks").and_then(Node::as_map).into_iter().flat_map(Map::values) {
            let aliases = network.get("aliases").and_then(Node::as_list).unwrap_or_default();
            aliases.iter().filter_map(Node::as_text).for_each(|alias| want(name, alias));
        }
        // A link is one service's name for another; here every service may use it.
        for link in service.get("links").and_then(Node::as_list).unwrap_or_default() {
            if let Some((target, alias)) = link.as_text().and_then(|text| text.split_once(':')) {
                want(target, alias);
            }
        }
    }

    /// Gives the names to the services; a name belongs to one service only.
    pub(super) fn assign(self, services: &mut IndexMap<String, ImportedService>, warnings: &mut Warnings) {
        let mut owner: BTreeMap<String, String> =
            services.keys().map(|name| (name.clone(), name.clone())).collect();
        for (service, alias) in self.wanted {
            if let Some(other) = owner.get(&alias) {
                if *other != service {
                    warnings.add(&service, format!("the name `{alias}` already means `{other}`"));
                }
                continue;
            }
            if !is_host_name(&alias) {
                warnings.add(&service, format!("the name `{alias}` cannot be a host name"));
                continue;
            }
            if let Some(found) = services.get_mut(&service) {
                found.aliases.push(alias.clone());
                owner.insert(alias, service);
            }
        }
    }
}

/// Says when networks keep two services apart, which they are not here.
pub(super) fn warn_about_networks(services: &Map, warnings: &mut Warnings) {
    let networks_of = |service: &Node| -> Option<BTreeSet<String>> {
        if service.get("network_mode").is_some() {
            return None;
        }
        let names = service.get("networks").and_then(Node::as_map).map(|map| map.keys().cloned().collect());
        Some(names.unwrap_or_else(|| BTreeSet::from(["default".to_owned()])))
    };
    // Few different sets exist even among many services, so comparing sets is enough.
    let mut known: Vec<(BTreeSet<String>, &String)> = Vec::new();
    for (name, service) in services {
        let Some(networks) = networks_of(service) else {
            continue;
        };
        if let Some((_, other)) = known.iter().find(|(set, _)| set.is_disjoint(&networks)) {
            warnings.add_general(format!(
                "networks keep services apart (`{other}` and `{name}` share none); here each can call each"
            ));
            return;
        }
        if known.len() < 64 && !known.iter().any(|(set, _)| *set == networks) {
            known.push((networks, name));
        }
    }
}
