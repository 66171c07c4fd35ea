//! Host names of services where no port can be put in their stead.
//!
//! Without networks of their own (`isolation: ports`) instances find each other at ports of the host, and addresses
//! like `stock:8081` in commands and environments are rewritten. A host without its port, or one that is written in
//! a program, stays as it is and leads nowhere.

use super::{Application, Service};
use crate::ids::ServiceName;

/// Variables that hold a host, by a part of their name.
const HOSTS: [&str; 6] = ["HOST", "ADDR", "SERVER", "ENDPOINT", "BROKER", "URL"];

/// A host name that stays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FixedName {
    /// Whose.
    pub service: ServiceName,
    /// The name, with the port where it has one.
    pub host: String,
    /// The variable or file it stands in.
    pub place: String,
}

impl Application {
    /// Host names of other services that would stay, the first of each service. The text of a file, given relative
    /// to the application's folder, is asked for; there may be none.
    pub fn fixed_names(&self, read: impl Fn(&str) -> Option<String>) -> Vec<FixedName> {
        let first = |(name, service): (&ServiceName, &Service)| {
            let found = self.fixed_in(name, service, &read)?;
            Some(FixedName { service: name.clone(), host: found.0, place: found.1 })
        };
        self.services.iter().filter_map(first).collect()
    }

    fn fixed_in(
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
            let key_names_host = HOSTS.iter().any(|part| key.to_ascii_uppercase().contains(part));
            let alone = |name: &str| key_names_host && value == name;
            let (name, _) = hosts.iter().find(|(name, _)| alone(name))?;
            Some(((*name).to_owned(), key.clone()))
        });
        by_env.or_else(|| {
            service.command.iter().find_map(|word| {
                let folder = service.directory.trim_end_matches('/');
                let path = if matches!(folder, "" | ".") { word.clone() } else { format!("{folder}/{word}") };
                let text = read(&path)?;
                let here = |name: &str, other: &Service| {
                    let ports = other.ports.iter().map(|port| format!("{name}:{}", port.port));
                    ports.chain([format!("//{name}")]).find(|host| stands_in(&text, host))
                };
                let host = hosts.iter().find_map(|(name, other)| here(name, other))?;
                Some((host.trim_start_matches('/').to_owned(), path))
            })
        })
    }
}

/// Whether a host stands in a text, not as a part of a longer name.
fn stands_in(text: &str, host: &str) -> bool {
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
        let fixed = application(order).fixed_names(read);
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
        // With its port it is rewritten; what is no host is none.
        let rewritten = order(", env: { STOCK_URL: \"http://stock:8081\", QUEUE: stock, HOST: order }");
        assert_eq!(found(&rewritten, ""), [] as [&str; 0]);
    }
}
