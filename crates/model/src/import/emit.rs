//! The application file as text: short things on one line, in the order in which people think of them.

use std::fmt::Write;

use super::compose::limits::exact_size;
use super::{
    ImportedApplication, ImportedMount, ImportedPort, ImportedReadiness, ImportedService, ImportedSource,
};

impl ImportedApplication {
    /// The text of the application file; the same application always gives the same text.
    pub fn to_yaml(&self) -> String {
        let mut out = String::new();
        for line in &self.header {
            put(&mut out, 0, format_args!("# {}", comment_text(line)));
        }
        put(&mut out, 0, format_args!("name: {}", scalar(&self.name)));
        if let Some(directory) = &self.directory {
            put(&mut out, 0, format_args!("directory: {}", quote(directory)));
        }
        if self.services.is_empty() {
            put(&mut out, 0, format_args!("services: {{}}"));
        } else {
            put(&mut out, 0, format_args!("services:"));
        }
        for (name, service) in &self.services {
            put_service(&mut out, name, service);
        }
        if self.external.is_empty() {
            put(&mut out, 0, format_args!("external: []"));
        } else {
            put(&mut out, 0, format_args!("external:"));
            for external in &self.external {
                let host = scalar(&external.host);
                put(&mut out, 1, format_args!("- {{ host: {host}, allow: {} }}", external.allow));
            }
        }
        put(&mut out, 0, format_args!("tests: []"));
        self.put_failing(&mut out);
        out
    }

    fn put_failing(&self, out: &mut String) {
        if self.failing.is_empty() {
            return;
        }
        put(out, 0, format_args!("failing:"));
        if !self.failing.instances.is_empty() {
            let instances =
                self.failing.instances.iter().map(|(name, count)| format!("{}: {count}", scalar(name)));
            put(out, 1, format_args!("instances: {{ {} }}", join(instances)));
        }
        if !self.failing.config.is_empty() {
            put(out, 1, format_args!("config:"));
            for (name, settings) in &self.failing.config {
                let settings =
                    settings.iter().map(|(key, value)| format!("{}: {}", scalar(key), limit_text(value)));
                put(out, 2, format_args!("{}: {{ {} }}", scalar(name), join(settings)));
            }
        }
    }
}

fn put_service(out: &mut String, name: &str, service: &ImportedService) {
    if *service == ImportedService::default() {
        return put(out, 1, format_args!("{}: {{}}", scalar(name)));
    }
    put(out, 1, format_args!("{}:", scalar(name)));
    if let Some(entrypoint) = &service.entrypoint {
        put(out, 2, format_args!("entrypoint: {}", quoted_list(entrypoint)));
    }
    if !service.command.is_empty() {
        put(out, 2, format_args!("command: {}", quoted_list(&service.command)));
    }
    let texts = [
        ("image", &service.image),
        ("build", &service.build),
        ("directory", &service.directory),
        ("working_dir", &service.working_dir),
        ("user", &service.user),
    ];
    for (key, value) in texts {
        if let Some(value) = value {
            put(out, 2, format_args!("{key}: {}", quote(value)));
        }
    }
    if !service.aliases.is_empty() {
        put(out, 2, format_args!("aliases: [{}]", join(service.aliases.iter().map(|a| scalar(a)))));
    }
    if !service.ports.is_empty() {
        let origins = service.port_origins.iter().map(|(port, origin)| format!("{port}: {origin}"));
        let origins = comment_text(&origins.collect::<Vec<_>>().join("; "));
        let origins = if origins.is_empty() { origins } else { format!(" # {origins}") };
        put(out, 2, format_args!("ports: [{}]{origins}", join(service.ports.iter().map(port_text))));
    }
    if !service.publish.is_empty() {
        let publish = service.publish.iter().map(|(own, host)| format!("{own}: {host}"));
        put(out, 2, format_args!("publish: {{ {} }}", join(publish)));
    }
    if !service.env.is_empty() {
        put(out, 2, format_args!("env:"));
        for (key, value) in &service.env {
            put(out, 3, format_args!("{}: {}", scalar(key), quote(value)));
        }
    }
    if let Some(ready) = &service.ready {
        put(out, 2, format_args!("ready: {}", readiness_line(ready)));
    }
    if !service.after.is_empty() {
        put(out, 2, format_args!("after: [{}]", join(service.after.iter().map(|a| scalar(a)))));
    }
    if !service.mounts.is_empty() {
        put(out, 2, format_args!("mounts:"));
        for mount in &service.mounts {
            put(out, 3, format_args!("- {}", mount_line(mount)));
        }
    }
    if let Some(within) = &service.stop_within {
        put(out, 2, format_args!("stop_within: {within}"));
    }
}

fn readiness_line(ready: &ImportedReadiness) -> String {
    let mut parts = Vec::new();
    if let Some(path) = &ready.http {
        parts.push(format!("http: {}", quote(path)));
    }
    if let Some(port) = ready.tcp {
        parts.push(format!("tcp: {port}"));
    }
    match ready.grpc.as_deref() {
        None => {}
        Some("") => parts.push("grpc: true".to_owned()),
        Some(service) => parts.push(format!("grpc: {}", quote(service))),
    }
    if !ready.command.is_empty() {
        parts.push(format!("command: {}", quoted_list(&ready.command)));
    }
    if let Some(port) = ready.port {
        parts.push(format!("port: {port}"));
    }
    if let Some(within) = &ready.within {
        parts.push(format!("within: {within}"));
    }
    format!("{{ {} }}", parts.join(", "))
}

fn mount_line(mount: &ImportedMount) -> String {
    let (key, value) = match &mount.source {
        ImportedSource::From(path) if path == "." => ("from", quote(".")),
        ImportedSource::From(path) => ("from", quote(&format!("./{path}"))),
        ImportedSource::Volume(name) => ("volume", scalar(name)),
        ImportedSource::Tmpfs(_) => ("tmpfs", quote(&mount.to)),
        ImportedSource::Content(text) => ("content", quote(text)),
    };
    let mut parts = vec![format!("{key}: {value}")];
    match &mount.source {
        ImportedSource::Tmpfs(size) => parts.extend(size.map(|size| format!("size: {}", exact_size(size)))),
        _ => parts.push(format!("to: {}", quote(&mount.to))),
    }
    if mount.readonly {
        parts.push("readonly: true".to_owned());
    }
    parts.extend(mount.mode.map(|mode| format!("mode: \"{mode:04o}\"")));
    format!("{{ {} }}", parts.join(", "))
}

fn port_text(port: &ImportedPort) -> String {
    match port {
        ImportedPort::Plain(port) => port.to_string(),
        ImportedPort::Speaking { port, protocol } => {
            let protocol = serde_json::to_value(protocol).ok();
            let protocol = protocol.as_ref().and_then(|p| p.as_str()).unwrap_or("detect");
            format!("{{ port: {port}, protocol: {protocol} }}")
        }
    }
}

/// A text that stays within its comment: no line break ends it, and YAML allows every character of it.
fn comment_text(text: &str) -> String {
    let is_odd = |c: char| {
        c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}')
    };
    text.replace(is_odd, " ")
}

fn put(out: &mut String, depth: usize, line: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    let _ = writeln!(out, "{:width$}{line}", "", width = depth * 2);
}

fn join(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join(", ")
}

fn quoted_list(items: &[String]) -> String {
    format!("[{}]", join(items.iter().map(|item| quote(item))))
}

/// A limit is written by us: a number or a number with a unit, which needs no quotes.
fn limit_text(text: &str) -> String {
    let plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'.');
    if plain { text.to_owned() } else { quote(text) }
}

/// A name: plain where YAML reads it back as the same text, quoted otherwise.
pub(crate) fn scalar(text: &str) -> String {
    let plain_start = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let plain = text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'));
    const WORDS: [&str; 9] = ["null", "true", "false", "yes", "no", "on", "off", "y", "n"];
    let word = WORDS.contains(&text.to_ascii_lowercase().as_str());
    if plain_start && plain && !word { text.to_owned() } else { quote(text) }
}

/// A double-quoted scalar; everything that YAML does not count as printable is escaped.
pub(crate) fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c.is_control()
                || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}') =>
            {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
