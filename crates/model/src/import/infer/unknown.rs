//! Hosts that services are given and that nobody answers for.

use std::collections::BTreeSet;

use super::{Style, find_addresses, names_host};
use crate::import::{ImportedApplication, is_host_name};
use crate::wiring::COLLECTOR;

/// A host that a service may call and that is neither a service nor `external`.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::import) struct UnknownHost {
    pub(in crate::import) host: String,
    /// The first service that names it.
    pub(in crate::import) called_by: String,
    /// The variable that names it.
    pub(in crate::import) place: String,
}

/// Finds the hosts of variables such as `CART_ADDR=cart:7070` that the application does not have.
///
/// Only names without a dot count: those are the names of services, while public addresses in variables
/// are mostly links for browsers.
pub(in crate::import) fn find_unknown_hosts(application: &ImportedApplication) -> Vec<UnknownHost> {
    let services = application.services.iter();
    let mut known: BTreeSet<&str> = services
        .flat_map(|(name, service)| std::iter::once(name).chain(&service.aliases))
        .map(String::as_str)
        .collect();
    known.extend(application.external.iter().map(|external| external.host.as_str()));
    known.extend(["localhost", COLLECTOR]);
    let mut found: Vec<UnknownHost> = Vec::new();
    for (service, imported) in &application.services {
        for (variable, value) in imported.env.iter().filter(|(variable, _)| names_host(variable)) {
            for host in find_hosts(value).filter(|host| !known.contains(host)) {
                if !found.iter().any(|earlier| earlier.host == host) {
                    let (host, called_by) = (host.to_owned(), service.clone());
                    found.push(UnknownHost { host, called_by, place: variable.clone() });
                }
            }
        }
    }
    found
}

/// The names without a dot that a value gives with a port: `cart:7070`, `http://cart/x`.
fn find_hosts(value: &str) -> impl Iterator<Item = &str> {
    let is_name = |host: &str| {
        is_host_name(host) && !host.contains('.') && host.contains(|c: char| c.is_ascii_alphabetic())
    };
    let addresses = find_addresses(value, Style::Value, &is_name).into_iter();
    // A name inside a text is any word, so the address must begin the value or follow a scheme.
    addresses.filter(|address| address.called_port().is_some()).filter_map(|address| {
        let (before, after) = (&value[..address.host.start], &value[address.host.end..]);
        // `shop` in `postgres://shop:secret@db/shop` is a user.
        let is_user = after.split(['/', ',', ' ']).next().is_some_and(|rest| rest.contains('@'));
        (!is_user && (before.is_empty() || before.ends_with("://") || before.ends_with(['@', ','])))
            .then(|| &value[address.host])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_of_values() {
        for (value, expected) in [
            ("cart:7070", "cart"),
            ("http://cart/x", "cart"),
            ("redis://u:p@store", "store"),
            ("postgres://shop:secret@db/shop?x=a:80", "db"),
            ("kafka1:9092,kafka2:9092", "kafka1 kafka2"),
            ("cart", ""),
            ("https://shop.example.com/x", ""),
            ("127.0.0.1:80", ""),
            ("http://0.0.0.0:80", ""),
            ("redis:7", ""),
            ("/run/x:80", ""),
            ("see cart:7070", ""),
            ("", ""),
        ] {
            assert_eq!(find_hosts(value).collect::<Vec<_>>().join(" "), expected, "{value}");
        }
    }
}
