//! Ports that a service names itself: in its variables, its labels and its command.

use super::{Clues, PortOrigin};
use crate::import::ImportedService;

/// Variables by which services learn the port they listen on.
const VARIABLES: &[&str] = &[
    "PORT",
    "SERVER_PORT",
    "HTTP_PORT",
    "APP_PORT",
    "SERVICE_PORT",
    "LISTEN_PORT",
    "GRPC_PORT",
    "VIRTUAL_PORT",
    "ASPNETCORE_HTTP_PORTS",
    "ASPNETCORE_URLS",
    "LISTEN_ADDR",
    "LISTEN_ADDRESS",
    "HTTP_ADDR",
    "BIND_ADDRESS",
];

/// Options by which programs learn it.
const OPTIONS: &[&str] = &[
    "port",
    "p",
    "http-port",
    "http.port",
    "server-port",
    "server.port",
    "Dserver.port",
    "listen-port",
    "grpc-port",
    "web.listen-address",
    "bind",
    "b",
    "listen",
    "addr",
    "address",
    "http",
];

/// Finds the ports that a service names itself, the surest first.
pub(super) fn find_own_ports(name: &str, service: &ImportedService, clues: &Clues) -> Vec<(u16, PortOrigin)> {
    let mut found = Vec::new();
    let built = clues.dockerfile.as_ref().map(|(_, dockerfile)| dockerfile);
    let words: Vec<String> = match built {
        Some(dockerfile) if service.words().next().is_none() => dockerfile.words(),
        _ => service.words().cloned().collect(),
    };
    found.extend(find_command_ports(&words).into_iter().map(|port| (port, PortOrigin::Command)));
    let own_name = format!("{}_PORT", name.to_ascii_uppercase().replace(['-', '.'], "_"));
    let built_env = built.into_iter().flat_map(|dockerfile| &dockerfile.env);
    for (key, value) in service.env.iter().chain(built_env) {
        if VARIABLES.contains(&key.as_str()) || *key == own_name {
            let ports = value.split([';', ',']).filter_map(listening_port);
            found.extend(ports.map(|port| (port, PortOrigin::Variable(key.clone()))));
        }
    }
    // Traefik reads from a label where the service listens.
    for (key, value) in &clues.labels {
        if key.ends_with("loadbalancer.server.port") || key == "traefik.port" {
            found.extend(listening_port(value).map(|port| (port, PortOrigin::Label(key.clone()))));
        }
    }
    found
}

/// Ports that options of a command give: `--port 8080`, `-b 0.0.0.0:8000`, `runserver 0.0.0.0:8000`.
pub(super) fn find_command_ports(words: &[String]) -> Vec<u16> {
    let words: Vec<&str> = words.iter().flat_map(|word| word.split([' ', '\n', '\t', '"', '\''])).collect();
    let mut found = Vec::new();
    for (place, word) in words.iter().enumerate().skip(1) {
        let port = match word.strip_prefix('-') {
            Some(option) => {
                let option = option.trim_start_matches('-');
                let (name, value) = match option.split_once('=') {
                    Some((name, value)) => (name, Some(value)),
                    None => (option, words.get(place + 1).copied()),
                };
                value.filter(|_| OPTIONS.contains(&name)).and_then(listening_port)
            }
            // A word of its own counts only when it says that it is an address to listen on.
            None => word.contains(':').then(|| listening_port(word)).flatten(),
        };
        found.extend(port.filter(|port| !found.contains(port)));
    }
    found
}

/// The port beside a variable that holds a host: `DB_PORT` beside `DB_HOST`.
pub(in crate::import) fn find_port_beside<'e>(
    key: &str,
    env: &[(&'e String, &String)],
) -> Option<(&'e str, u16)> {
    let key = key.to_ascii_lowercase();
    let stem = ["hostname", "host", "server", "address", "addr", "url", "name", "ip", "service"]
        .iter()
        .find_map(|end| key.strip_suffix(end))?;
    let stem = stem.trim_end_matches("_service");
    let wanted = [format!("{stem}port"), format!("{stem}_port"), format!("{stem}service_port")];
    env.iter().find_map(|(other, value)| {
        let lower = other.to_ascii_lowercase();
        let port = value.trim().parse::<u16>().ok().filter(|port| *port > 0)?;
        wanted.contains(&lower).then_some((other.as_str(), port))
    })
}

/// The port of `8080`, `:8080`, `0.0.0.0:8080`, `http://+:80`: an address to listen on, not to call.
fn listening_port(text: &str) -> Option<u16> {
    let text = text.trim().trim_end_matches('/');
    let text = text.split_once("://").map_or(text, |(_, rest)| rest);
    let port = match text.rsplit_once(':') {
        Some(("" | "0.0.0.0" | "*" | "+" | "[::]" | "localhost" | "127.0.0.1", port)) => port,
        Some(_) => return None,
        None => text,
    };
    port.parse().ok().filter(|port| *port > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_in_commands() {
        for (command, expected) in [
            ("python3 -m http.server --port 8080", vec![8080]),
            ("redis-server --port=6380", vec![6380]),
            ("gunicorn -b 0.0.0.0:8000 app", vec![8000]),
            ("python manage.py runserver 0.0.0.0:8000", vec![8000]),
            ("java -Dserver.port=9090 -jar a.jar", vec![9090]),
            ("server -addr :7000", vec![7000]),
            ("mkdir -p x", vec![]),
            ("app --db-port 5432 db:5432", vec![]),
            ("prometheus --web.listen-address=0.0.0.0:9091", vec![9091]),
        ] {
            let words: Vec<String> = command.split(' ').map(str::to_owned).collect();
            assert_eq!(find_command_ports(&words), expected, "{command}");
        }
        let script = ["sh".to_owned(), "-c".to_owned(), "sleep 1; uvicorn main:app --port 80".to_owned()];
        assert_eq!(find_command_ports(&script), [80]);
    }

    #[test]
    fn ports_beside_hosts() {
        for (host, port, found) in [
            ("DB_HOST", "DB_PORT", true),
            ("PGHOST", "PGPORT", true),
            ("spring.redis.host", "spring.redis.port", true),
            ("CART_SERVICE_HOST", "CART_SERVICE_PORT", true),
            ("MYSQL_SERVER", "MYSQL_PORT", true),
            ("DB_HOST", "CACHE_PORT", false),
            ("DB", "DB_PORT", false),
        ] {
            let (port, value) = (port.to_owned(), "77".to_owned());
            assert_eq!(find_port_beside(host, &[(&port, &value)]).is_some(), found, "{host}");
        }
    }
}
