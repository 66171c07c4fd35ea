//! Reads what `record` is to listen on and where calls go on to.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;

use faultscope_engine::record::OUTSIDE;
use faultscope_model::ServiceName;

use crate::error::CommandError;

/// One service of the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RecordTarget {
    pub(crate) name: ServiceName,
    pub(crate) listen: SocketAddr,
    pub(crate) host: String,
    pub(crate) port: u16,
}

/// The value of `--service`: `order=8080:http://host:port`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServiceArg(pub(crate) RecordTarget);

impl FromStr for ServiceArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not NAME=PORT:http://HOST:PORT");
        let (name, rest) = text.split_once('=').ok_or_else(wrong)?;
        let scheme = rest.find("http://").or_else(|| rest.find("https://")).ok_or_else(wrong)?;
        let listen = rest[..scheme].strip_suffix(':').ok_or_else(wrong)?;
        let (host, port) = read_target(&rest[scheme..])?;
        Ok(Self(RecordTarget { name: read_name(name)?, listen: read_listen(listen)?, host, port }))
    }
}

/// Reads a port of the loopback interface, or a whole address.
pub(crate) fn read_listen(text: &str) -> Result<SocketAddr, String> {
    if let Ok(port) = text.parse::<u16>() {
        return Ok((Ipv4Addr::LOCALHOST, port).into());
    }
    text.parse()
        .map_err(|_| format!("`{text}` is neither a port nor an address; write `8080` or `0.0.0.0:8080`"))
}

/// Reads `http://host:port`.
pub(crate) fn read_target(url: &str) -> Result<(String, u16), String> {
    if url.starts_with("https://") {
        return Err(format!("`{url}`: only http:// can be recorded, because TLS hides what is said"));
    }
    let wrong = || format!("`{url}` is not http://HOST:PORT");
    let rest = url.strip_prefix("http://").ok_or_else(wrong)?;
    let authority = rest.strip_suffix('/').unwrap_or(rest);
    if authority.is_empty() || authority.contains(['/', '?', '#', '@']) {
        return Err(format!("{}, without a path or a user", wrong()));
    }
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !host.ends_with(':') && !port.ends_with(']') => {
            (host, port.parse().map_err(|_| wrong())?)
        }
        _ => (authority, 80),
    };
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    if host.is_empty() || port == 0 {
        return Err(wrong());
    }
    Ok((host.to_owned(), port))
}

/// Reads the name of a service; not one that callers from outside have.
pub(crate) fn read_name(text: &str) -> Result<ServiceName, String> {
    let name: ServiceName = text.parse().map_err(|e| format!("{e}"))?;
    if [OUTSIDE, ServiceName::TEST].contains(&name.as_str()) {
        return Err(format!("`{name}` is the name of callers from outside"));
    }
    Ok(name)
}

/// The name of a target that was given none: the first part of its host, if that is a name.
pub(crate) fn default_name(host: &str) -> Result<ServiceName, String> {
    let label = host.split('.').next().unwrap_or_default();
    let is_name = host.parse::<IpAddr>().is_err() && label != "localhost";
    let named = is_name.then(|| read_name(label).ok()).flatten();
    named.map_or_else(|| read_name("service"), Ok)
}

/// Finds services that would be recorded over one another, or that would call the recording itself.
pub(crate) fn check_targets(targets: &[RecordTarget]) -> Result<(), CommandError> {
    for (place, target) in targets.iter().enumerate() {
        if targets[..place].iter().any(|other| other.name == target.name) {
            return Err(CommandError::usage(format!("two services are named `{}`", target.name))
                .hint("--service order=8080:http://HOST:PORT gives each a name"));
        }
        let is_here = target.host == "localhost"
            || target.host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback() || ip.is_unspecified());
        if is_here && targets.iter().any(|other| other.listen.port() == target.port) {
            return Err(CommandError::usage(format!(
                "{}:{} is where this recording listens, so calls would go round in a circle",
                target.host, target.port
            ))
            .hint("listen on another port than the service does, and let callers use that one"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_are_read() {
        let read = |text: &str| text.parse::<ServiceArg>().map(|service| service.0);
        let order = read("order=8080:http://staging.local:9000").unwrap();
        assert_eq!((order.name.as_str(), order.host.as_str(), order.port), ("order", "staging.local", 9000));
        assert_eq!(order.listen, "127.0.0.1:8080".parse().unwrap());
        let open = read("order=0.0.0.0:8080:http://[::1]:9000/").unwrap();
        assert_eq!((open.listen.to_string().as_str(), open.host.as_str()), ("0.0.0.0:8080", "::1"));
        assert_eq!(read("order=8080:http://shop").unwrap().port, 80);
        for wrong in [
            "order",
            "order=8080",
            "order=8080:ftp://a:1",
            "order=http://a:1",
            "order=8080:http://a:0",
            "order=8080:http://a:1/path",
            "order=8080:http://me@a:1",
            "order=8080:https://a:1",
            "user=8080:http://a:1",
            "=8080:http://a:1",
            "order=x:http://a:1",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn names_come_from_hosts() {
        let name = |host: &str| default_name(host).unwrap().to_string();
        assert_eq!(name("order.staging.local"), "order");
        assert_eq!(name("localhost"), "service");
        assert_eq!(name("10.0.0.1"), "service");
        assert_eq!(name("::1"), "service");
    }

    #[test]
    fn circles_and_twins_are_found() {
        let target = |name: &str, listen: &str, port| RecordTarget {
            name: name.parse().unwrap(),
            listen: read_listen(listen).unwrap(),
            host: "127.0.0.1".into(),
            port,
        };
        assert!(check_targets(&[target("a", "8080", 9000), target("b", "8081", 9001)]).is_ok());
        assert!(check_targets(&[target("a", "8080", 9000), target("a", "8081", 9001)]).is_err());
        assert!(check_targets(&[target("a", "8080", 9000), target("b", "8081", 8080)]).is_err());
    }
}
