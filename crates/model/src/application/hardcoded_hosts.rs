//! Host names of services that `isolation: ports` cannot rewrite.
//!
//! Without networks of their own (`isolation: ports`) instances find each other at ports of the host, and addresses
//! like `stock:8081` in commands and environments are rewritten. A host without its port, or one that is hard-coded
//! in a program, stays as it is and resolves to nothing.

use super::{Application, Service};
use crate::ids::ServiceName;

/// Variables that usually hold a host name contain one of these.
const HOST_VARIABLES: [&str; 6] = ["HOST", "ADDR", "SERVER", "ENDPOINT", "BROKER", "URL"];

/// A host name that cannot be rewritten.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HardcodedHost {
    /// The service that uses it.
    pub service: ServiceName,
    /// The host, with its port where it has one.
    pub host: String,
    /// The variable or file that contains it.
    pub place: String,
}

impl Application {
    /// Host names of other services that cannot be rewritten, the first in each service. `read` gives the text of a
    /// file, named relative to the application's folder, if there is one.
    pub fn hardcoded_hosts(&self, read: impl Fn(&str) -> Option<String>) -> Vec<HardcodedHost> {
        let first = |(name, service): (&ServiceName, &Service)| {
            let found = self.hardcoded_host_in(name, service, &read)?;
            Some(HardcodedHost { service: name.clone(), host: found.0, place: found.1 })
        };
        self.services.iter().filter_map(first).collect()
    }

    fn hardcoded_host_in(
        &self,
        own: &ServiceName,
        service: &Service,
        read: &dyn Fn(&str) -> Option<String>,
    ) -> Option<(String, String)> {
        let others = self.services.iter().filter(|(name, _)| *name != own);
        let hosts: Vec<(&str, &Service)> = others
            .flat_map(|(name, other)| {
                let names = std::iter::once(name.as_str()).chain(other.aliases.iter().map(String::as_str));
                names.map(move |name| (name, other))
            })
            .collect();
        let by_env = service.env.iter().find_map(|(key, value)| {
            let key_names_host = HOST_VARIABLES.iter().any(|part| key.to_ascii_uppercase().contains(part));
            let alone = |name: &str| key_names_host && value == name;
            let (name, _) = hosts.iter().find(|(name, _)| alone(name))?;
            Some(((*name).to_owned(), key.clone()))
        });
        by_env.or_else(|| {
            service.entrypoint.iter().flatten().chain(&service.command).find_map(|word| {
                let folder = service.directory.trim_end_matches('/');
                let path = if matches!(folder, "" | ".") { word.clone() } else { format!("{folder}/{word}") };
                let text = read(&path)?;
                let here = |name: &str, other: &Service| {
                    let ports = other.ports.iter().map(|port| format!("{name}:{}", port.port));
                    ports.chain([format!("//{name}")]).find(|host| contains_host(&text, host))
                };
                let host = hosts.iter().find_map(|(name, other)| here(name, other))?;
                Some((host.trim_start_matches('/').to_owned(), path))
            })
        })
    }
}

/// Whether a text contains a host name that is not part of a longer name.
fn contains_host(text: &str, host: &str) -> bool {
    let in_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    text.match_indices(host).any(|(at, found)| {
        let (before, after) = (&text[..at], &text[at + found.len()..]);
        (host.starts_with('/') || !before.ends_with(in_name)) && !after.starts_with(in_name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn application(order: &str) -> Application {
        let text = format!(
            "name: shop\nservices:\n  order: {order}\n  stock: {{ command: [stock], ports: [8081], aliases: [store] }}\n\
             tests:\n  - {{ name: t, http: {{ get: \"http://order:8080/\" }} }}\n"
        );
        Application::read_alone(&text, "faultscope.yaml").unwrap()
    }

    fn found(order: &str, file: &str) -> Vec<String> {
        let read = |path: &str| (path == "src/order.py").then(|| file.to_owned());
        let fixed = application(order).hardcoded_hosts(read);
        fixed
            .into_iter()
            .map(|fixed| format!("{} {} in {}", fixed.service, fixed.host, fixed.place))
            .collect()
    }

    #[test]
    fn names_that_no_port_can_replace() {
        let order =
            |more: &str| format!("{{ command: [python3, order.py], directory: src, ports: [8080]{more} }}");
        let plain = order("");
        assert_eq!(found(&plain, "get('http://stock:8081/x')"), ["order stock:8081 in src/order.py"]);
        assert_eq!(found(&plain, "get('http://store/x')"), ["order store in src/order.py"]);
        for fine in ["my-stock:8081 stock:80811 stock", "http://stock.example/", "order:8080", ""] {
            assert_eq!(found(&plain, fine), [] as [&str; 0], "{fine}");
        }
        let by_env = order(", env: { STOCK_HOST: stock, NAME: stock }");
        assert_eq!(found(&by_env, ""), ["order stock in STOCK_HOST"]);
        // With its port it is rewritten, and `QUEUE` is no variable that usually holds a host.
        let rewritten = order(", env: { STOCK_URL: \"http://stock:8081\", QUEUE: stock, HOST: order }");
        assert_eq!(found(&rewritten, ""), [] as [&str; 0]);
    }
}
