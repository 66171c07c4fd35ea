//! Addresses in texts: `db:5432`, `redis://cache`, `root:pw@tcp(db:3306)/shop`, `nc -z db 5432`.

use std::ops::Range;

/// The longest text that is searched; values of real files have a thousandth of it.
const MAX_TEXT: usize = 1 << 20;

/// A host that somebody asked for, found in a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::import) struct Address {
    /// Where the host's name stands.
    pub(in crate::import) host: Range<usize>,
    /// The port that the text gives, and where it stands.
    pub(in crate::import) port: Option<(u16, Range<usize>)>,
    /// The port that the scheme of a URL implies.
    pub(in crate::import) implied: Option<u16>,
}

impl Address {
    /// The port that is called, where the text tells it.
    pub(in crate::import) fn called_port(&self) -> Option<u16> {
        self.port.as_ref().map(|(port, _)| *port).or(self.implied)
    }
}

/// How hosts and ports are written in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::import) enum Style {
    /// `host:port` and URLs only.
    Value,
    /// Also two words, as in `nc -z db 5432`.
    Command,
}

/// Finds the hosts of a text that `is_host` knows.
pub(in crate::import) fn find_addresses(
    text: &str,
    style: Style,
    is_host: &dyn Fn(&str) -> bool,
) -> Vec<Address> {
    let mut found = Vec::new();
    if text.len() > MAX_TEXT {
        return found;
    }
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        if !is_host_byte(bytes[at]) {
            at += 1;
            continue;
        }
        let start = at;
        while at < bytes.len() && is_host_byte(bytes[at]) {
            at += 1;
        }
        // A sentence may end with a dot, and so may a fully qualified name.
        let end = start + text[start..at].trim_end_matches(['.', '-']).len();
        if end == start || !is_host(&text[start..end]) {
            continue;
        }
        if let Some(address) = read_address(text, start..end, style) {
            found.push(address);
        }
    }
    found
}

/// The port that is meant when a URL of this scheme names none.
pub(super) fn implied_port(scheme: &str) -> Option<u16> {
    // `jdbc:mysql` and `postgresql+psycopg2` are mysql and postgresql.
    let scheme = scheme.rsplit(':').next().unwrap_or(scheme);
    let scheme = scheme.split('+').next().unwrap_or(scheme);
    Some(match scheme.to_ascii_lowercase().as_str() {
        "http" | "ws" | "h2c" => 80,
        "https" | "wss" => 443,
        "redis" | "rediss" => 6379,
        "amqp" => 5672,
        "amqps" => 5671,
        "postgres" | "postgresql" => 5432,
        "mysql" | "mysql2" | "mariadb" => 3306,
        "mongodb" | "mongo" => 27017,
        "nats" => 4222,
        "kafka" => 9092,
        "memcached" => 11211,
        "mqtt" => 1883,
        "mqtts" => 8883,
        "ldap" => 389,
        "ldaps" => 636,
        "smtp" => 25,
        "ftp" => 21,
        "ssh" | "sftp" => 22,
        "bolt" | "neo4j" => 7687,
        "cassandra" => 9042,
        "clickhouse" => 9000,
        "zookeeper" | "zk" => 2181,
        "etcd" => 2379,
        "consul" => 8500,
        "sqlserver" | "mssql" => 1433,
        "pulsar" => 6650,
        "stomp" => 61613,
        _ => return None,
    })
}

fn read_address(text: &str, host: Range<usize>, style: Style) -> Option<Address> {
    let before = &text[..host.start];
    let after = &text[host.end..];
    // The words before, up to a character that no URL has.
    let word = after_last(before, |c| c.is_whitespace() || "\"'`<>=".contains(c));
    let scheme = word.rfind("://").filter(|at| {
        // Between the scheme and the host there are at most a user and a password, or further hosts.
        let between = &word[at + 3..];
        !between.contains('/') && (between.is_empty() || between.ends_with(['@', ',', '(']))
    });
    // A name after a slash is a part of a path or of an image: `library/redis:7`.
    if scheme.is_none() && before.ends_with('/') && !before.ends_with("//") {
        return None;
    }
    let scheme_name =
        scheme.map(|at| after_last(&word[..at], |c| !(c.is_ascii_alphanumeric() || "+:.-".contains(c))));
    let port = match after.strip_prefix(':') {
        Some(digits) => read_port(digits, host.end + 1),
        None if style == Style::Command && after.starts_with(' ') => {
            let blanks = after.len() - after.trim_start_matches(' ').len();
            read_port(&after[blanks..], host.end + blanks)
        }
        None => None,
    };
    let marked = scheme_name.is_some() || before.ends_with(['@', '(']);
    let port = port.filter(|(port, _)| marked || !is_version(*port));
    if after.starts_with(':') && port.is_none() && !marked {
        // `nginx:1.27` or `redis:7` is an image, and `name: text` in a file is a key.
        return None;
    }
    Some(Address { host, port, implied: scheme_name.and_then(implied_port) })
}

/// What follows the last character of a kind.
fn after_last(text: &str, is_end: impl Fn(char) -> bool) -> &str {
    let length: usize = text.chars().rev().take_while(|c| !is_end(*c)).map(char::len_utf8).sum();
    &text[text.len() - length..]
}

/// Whether `name:7` is rather an image than an address.
fn is_version(port: u16) -> bool {
    port < 80 && !matches!(port, 22 | 25 | 53)
}

fn read_port(text: &str, start: usize) -> Option<(u16, Range<usize>)> {
    let length = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let ends = !text[length..].starts_with(|c: char| c.is_alphanumeric() || "._-".contains(c))
        || text[length..].starts_with(". ");
    let port: u16 = text[..length].parse().ok().filter(|port| *port > 0)?;
    ends.then_some((port, start..start + length))
}

fn is_host_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn found(text: &str, style: Style) -> String {
        let addresses = find_addresses(text, style, &|host| ["db", "cache", "a.b"].contains(&host));
        let shown = addresses.iter().map(|a| {
            let port = a.called_port().map_or("-".to_owned(), |port| port.to_string());
            format!("{} {port}", &text[a.host.clone()])
        });
        shown.collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn forms() {
        for (text, expected) in [
            ("db:5432", "db 5432"),
            ("db", "db -"),
            ("http://db", "db 80"),
            ("http://db/path:1", "db 80"),
            ("https://db:8443/x", "db 8443"),
            ("jdbc:mysql://db/shop", "db 3306"),
            ("postgresql+psycopg2://u:p@db/x", "db 5432"),
            ("postgres://u:p@db:6000/x", "db 6000"),
            ("mongodb://db:1,cache:27018/x", "db 1, cache 27018"),
            ("amqp://guest:guest@cache", "cache 5672"),
            ("root:pw@tcp(db:3306)/shop", "db 3306"),
            ("PLAINTEXT://cache:9092,db:29092", "cache 9092, db 29092"),
            ("redis:7 db:7", ""),
            ("db:1.27", ""),
            ("library/db:5432", ""),
            ("mydb:5432 db2:1 x.db:2", ""),
            ("a.b:81, a.b.", "a.b 81, a.b -"),
            ("['db:9090']", "db 9090"),
            ("db: 5", ""),
            ("nats://db", "db 4222"),
            ("tcp://db", "db -"),
            ("--addr=db:99999", ""),
            ("é db:5432 é", "db 5432"),
        ] {
            assert_eq!(found(text, Style::Value), expected, "{text}");
        }
        assert_eq!(found("nc -z db 5432 && x", Style::Command), "db 5432");
        assert_eq!(found("wait db 5432", Style::Value), "db -");
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,60}", dense in "[db:/@,( .0-9é]{0,40}") {
            for text in [text, dense] {
                for address in find_addresses(&text, Style::Command, &|_| true) {
                    prop_assert!(text.get(address.host.clone()).is_some());
                    prop_assert!(address.port.is_none_or(|(_, range)| text.get(range).is_some()));
                }
            }
        }
    }
}
