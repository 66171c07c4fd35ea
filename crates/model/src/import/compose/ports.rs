//! Ports of a service: `ports` in its short and long forms, and `expose`.

use std::collections::BTreeMap;

use crate::import::ImportedPort;
use crate::import::node::Node;
use crate::protocol::Protocol;

/// The most ports one range may have; the mesh listens on each of them.
const MAX_RANGE: u16 = 256;

/// What was found of a service's ports.
#[derive(Debug, Default)]
pub(super) struct Ports {
    /// The service's own ports, in the order of the file.
    pub(super) own: Vec<ImportedPort>,
    /// Ports on the host, by the service's own.
    pub(super) publish: BTreeMap<u16, u16>,
    /// Ports that are not carried over.
    pub(super) skipped: Vec<String>,
}

impl Ports {
    /// Adds an entry of `ports`.
    pub(super) fn add(&mut self, entry: &Node) -> Result<(), String> {
        match entry.as_text() {
            Some(text) => self.add_short(text),
            None => self.add_long(entry),
        }
    }

    /// Adds an entry of `expose`: a port or a range, maybe with `/tcp`.
    pub(super) fn expose(&mut self, entry: &Node) -> Result<(), String> {
        let text = entry.as_text().ok_or("an exposed port is a number or a range")?;
        let (numbers, protocol) = text.split_once('/').unwrap_or((text, "tcp"));
        if self.is_skipped(protocol, text) {
            return Ok(());
        }
        // `8080:8080` is a common mistake, which Compose takes.
        let (first, last) = parse_range(numbers.rsplit(':').next().unwrap_or(numbers))?;
        refuse_zero(first)?;
        (first..=last).for_each(|port| self.put(port, None));
        Ok(())
    }

    /// Adds the port of a health check; true if nothing else names it.
    pub(super) fn add_probed(&mut self, port: u16) -> Result<bool, String> {
        refuse_zero(port)?;
        let is_new = !self.own.iter().any(|known| known.number() == port);
        self.put(port, None);
        Ok(is_new)
    }

    /// `[[address:]host:]own[/protocol]`, each of the two a number or a range.
    fn add_short(&mut self, text: &str) -> Result<(), String> {
        let (numbers, protocol) = text.split_once('/').unwrap_or((text, "tcp"));
        if self.is_skipped(protocol, text) {
            return Ok(());
        }
        let (rest, own) = match numbers.rsplit_once(':') {
            Some((rest, own)) => (Some(rest), own),
            None => (None, numbers),
        };
        // What stands before the host's port is an address, in brackets when it has colons itself.
        let host = rest.map(|rest| rest.rsplit_once(':').map_or(rest, |(_, host)| host));
        let host = host.filter(|host| !host.is_empty()).map(parse_range).transpose()?;
        self.pair(parse_range(own)?, host)
    }

    fn add_long(&mut self, entry: &Node) -> Result<(), String> {
        let target = entry.get_text("target").ok_or("a port in long form has a `target`")?;
        if self.is_skipped(entry.get_text("protocol").unwrap_or("tcp"), target) {
            return Ok(());
        }
        let host =
            entry.get_text("published").filter(|text| !text.is_empty()).map(parse_range).transpose()?;
        self.pair(parse_range(target)?, host)?;
        if let Some(protocol) = entry.get_text("app_protocol").and_then(parse_protocol)
            && let Ok((first, last)) = parse_range(target)
        {
            (first..=last).for_each(|port| self.put(port, Some(protocol)));
        }
        Ok(())
    }

    /// Notes the service's ports and where the host has them.
    fn pair(&mut self, own: (u16, u16), host: Option<(u16, u16)>) -> Result<(), String> {
        let (first, last) = own;
        refuse_zero(first)?;
        let host_first = match host {
            // A range on the host for one port means any of the range.
            Some((host, _)) if first == last => Some(host),
            Some((host, host_last)) if host_last - host == last - first => Some(host),
            Some(_) => return Err("the two port ranges differ in length".to_owned()),
            None => None,
        };
        for port in first..=last {
            self.put(port, None);
            // Port 0 asks the host for any free one.
            if let Some(host) = host_first.filter(|host| *host != 0) {
                self.publish.insert(port, host + (port - first));
            }
        }
        Ok(())
    }

    fn put(&mut self, port: u16, protocol: Option<Protocol>) {
        let explicit = protocol.filter(|protocol| *protocol != Protocol::guess_from_port(port));
        let entry = match explicit {
            Some(protocol) => ImportedPort::Speaking { port, protocol },
            None => ImportedPort::Plain(port),
        };
        match self.own.iter_mut().find(|known| known.number() == port) {
            Some(known) if explicit.is_some() => *known = entry,
            Some(_) => {}
            None => self.own.push(entry),
        }
    }

    fn is_skipped(&mut self, protocol: &str, text: &str) -> bool {
        let skipped = !protocol.eq_ignore_ascii_case("tcp");
        if skipped {
            self.skipped.push(text.to_owned());
        }
        skipped
    }
}

fn refuse_zero(port: u16) -> Result<(), String> {
    if port == 0 { Err("a service's own port is not 0".to_owned()) } else { Ok(()) }
}

fn parse_range(text: &str) -> Result<(u16, u16), String> {
    let number = |text: &str| {
        text.trim()
            .parse::<u16>()
            .map_err(|_| format!("`{}` is not a port", text.chars().take(30).collect::<String>()))
    };
    let (first, last) = match text.split_once('-') {
        Some((first, last)) => (number(first)?, number(last)?),
        None => (number(text)?, number(text)?),
    };
    if last < first {
        return Err(format!("the port range `{text}` runs backwards"));
    }
    if last - first >= MAX_RANGE {
        return Err(format!("the port range `{text}` has more than {MAX_RANGE} ports"));
    }
    Ok((first, last))
}

pub(in crate::import) fn parse_protocol(text: &str) -> Option<Protocol> {
    match text.to_ascii_lowercase().as_str() {
        "http" | "http2" | "h2c" | "ws" => Some(Protocol::Http),
        "grpc" => Some(Protocol::Grpc),
        "https" | "tls" => Some(Protocol::Tls),
        "tcp" => Some(Protocol::Tcp),
        "redis" => Some(Protocol::Redis),
        "mysql" => Some(Protocol::Mysql),
        "postgres" | "postgresql" => Some(Protocol::Postgres),
        "amqp" => Some(Protocol::Amqp),
        "kafka" => Some(Protocol::Kafka),
        "nats" => Some(Protocol::Nats),
        "mongo" | "mongodb" => Some(Protocol::Mongo),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The service's ports and the host's, written shortly.
    fn read(yaml: &str) -> Result<String, String> {
        let mut ports = Ports::default();
        let node = Node::parse("f", yaml).unwrap();
        for entry in node.as_list().unwrap() {
            ports.add(entry)?;
        }
        let own: Vec<String> = ports
            .own
            .iter()
            .map(|port| match port {
                ImportedPort::Plain(port) => port.to_string(),
                ImportedPort::Speaking { port, protocol } => format!("{port} {protocol:?}"),
            })
            .collect();
        let publish: Vec<String> = ports.publish.iter().map(|(own, host)| format!("{own}<{host}")).collect();
        Ok([own, publish, ports.skipped].concat().join(" "))
    }

    #[test]
    fn forms() {
        for (yaml, expected) in [
            ("[8080]", "8080"),
            ("['8080']", "8080"),
            ("['80:8080']", "8080 8080<80"),
            ("['127.0.0.1:80:8080/tcp']", "8080 8080<80"),
            ("['127.0.0.1::8080']", "8080"),
            ("['[::1]:80:8080']", "8080 8080<80"),
            ("['3000-3002']", "3000 3001 3002"),
            ("['9090-9091:8080-8081']", "8080 8081 8080<9090 8081<9091"),
            ("['8000-9000:80']", "bad"),
            ("['8000-8010:80']", "80 80<8000"),
            ("['53:53/udp', 80]", "80 53:53/udp"),
            ("['80:80', '81:80', 80]", "80 80<81"),
            ("[{target: 80, published: '8080', protocol: tcp, mode: host}]", "80 80<8080"),
            ("[{target: 7000, app_protocol: grpc}]", "7000 Grpc"),
            ("[{target: 80, app_protocol: http}]", "80"),
            ("[{target: 53, protocol: udp}]", "53"),
            ("['0:80']", "80"),
            ("['80:0']", "bad"),
            ("['x:80']", "bad"),
            ("[70000]", "bad"),
            ("['5-1']", "bad"),
            ("['1-2:5-9']", "bad"),
            ("[{published: 80}]", "bad"),
            ("['80:60000-65535']", "bad"),
            ("['65535:65535']", "65535 65535<65535"),
        ] {
            let got = read(yaml).unwrap_or_else(|_| "bad".to_owned());
            assert_eq!(got, expected, "{yaml}");
        }
    }
}
