//! `isolation: ports`: no networks, so every caller gets listeners of its own on the host's loopback, and
//! the addresses in commands and environments are rewritten to them.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, TcpListener};

use faultscope_model::InstanceId;
use faultscope_model::plan::{InstancePlan, Plan};
use faultscope_model::wiring::ListenerSpec;

/// The actual port for each declared one, for each caller of a plan.
#[derive(Debug, Default)]
pub(crate) struct Layout {
    instances: BTreeMap<InstanceId, Ports>,
}

#[derive(Debug, Default)]
struct Ports {
    /// The actual port for each port the instance declares.
    own: BTreeMap<u16, u16>,
    /// The actual port for each host and port it calls.
    others: BTreeMap<(String, u16), u16>,
}

impl Layout {
    /// Assigns ports to a plan, given the listeners that were opened for it. Ports that were assigned before stay.
    pub(crate) fn new(
        plan: &Plan,
        listeners: &[(ListenerSpec, u16)],
        before: Option<&Self>,
    ) -> Result<Self, String> {
        let mut layout = Self::default();
        let mut fixed: BTreeMap<u16, &InstanceId> = BTreeMap::new();
        for instance in &plan.instances {
            let ports = layout.instances.entry(instance.id.clone()).or_default();
            for declared in instance.ports.iter().map(|p| p.port) {
                let known = before.and_then(|b| b.instances.get(&instance.id)?.own.get(&declared).copied());
                let actual = match known {
                    Some(port) => port,
                    None if is_movable(instance, declared) => {
                        free_port().map_err(|e| format!("no free port: {e}"))?
                    }
                    None => declared,
                };
                if actual == declared
                    && let Some(other) = fixed.insert(declared, &instance.id)
                {
                    return Err(format!(
                        "{other} and {} would both listen on port {declared}; write `${{port}}` where the service is \
                         told its port, or use `isolation: netns`",
                        instance.id
                    ));
                }
                ports.own.insert(declared, actual);
            }
        }
        for (spec, port) in listeners {
            let Some(caller) = &spec.caller else { continue };
            let host = plan.externals.iter().find(|e| e.service == spec.callee).map(|e| e.host.clone());
            let name = host.unwrap_or_else(|| spec.callee.to_string());
            let others = &mut layout.instances.entry(caller.clone()).or_default().others;
            others.insert((name, spec.port), *port);
            let aliases = plan.aliases.iter().filter(|(_, service)| **service == spec.callee);
            others.extend(aliases.map(|(alias, _)| ((alias.clone(), spec.port), *port)));
        }
        Ok(layout)
    }

    /// Whether an instance has ports assigned.
    pub(crate) fn knows(&self, instance: &InstanceId) -> bool {
        self.instances.contains_key(instance)
    }

    /// The actual port for a declared one.
    pub(crate) fn actual(&self, instance: &InstanceId, port: u16) -> u16 {
        self.instances.get(instance).and_then(|p| p.own.get(&port).copied()).unwrap_or(port)
    }

    /// Rewrites a command and an environment for a caller.
    pub(crate) fn rewrite(
        &self,
        caller: &InstanceId,
        command: &mut [String],
        env: &mut BTreeMap<String, String>,
    ) {
        let Some(ports) = self.instances.get(caller) else {
            return;
        };
        for text in command.iter_mut().chain(env.values_mut()) {
            *text = ports.in_text(text);
        }
        if let Some((declared, actual)) = ports.own.first_key_value() {
            let given = env.entry("PORT".into()).or_insert_with(|| actual.to_string());
            if *given == declared.to_string() {
                *given = actual.to_string();
            }
        }
        for ((name, _), port) in ports.others.iter().rev() {
            let variable = format!("{}_URL", name.to_ascii_uppercase().replace(['-', '.'], "_"));
            env.entry(variable).or_insert_with(|| format!("http://127.0.0.1:{port}"));
        }
    }

    /// Rejects ports that are in use on this machine.
    pub(crate) fn check_free(&self, instance: &InstanceId) -> Result<(), String> {
        for port in self.instances.get(instance).into_iter().flat_map(|p| p.own.values()) {
            match TcpListener::bind((Ipv4Addr::UNSPECIFIED, *port)) {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                    let who =
                        if is_listened_on(*port) { "another process listens on it" } else { "it is in use" };
                    return Err(format!(
                        "port {port} of {} is taken: {who}; stop it, or use `isolation: netns`",
                        instance.service
                    ));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Fills in `${port}` where instances listen on the ports they declare.
pub(crate) fn name_own(plan: &InstancePlan, command: &mut [String], env: &mut BTreeMap<String, String>) {
    let own = plan.ports.iter().map(|p| (p.port, p.port)).collect();
    let ports = Ports { own, others: BTreeMap::new() };
    // The first declared, not the lowest: the order in the application file matters.
    let first = plan.ports.first().map(|p| p.port.to_string()).unwrap_or_default();
    for text in command.iter_mut().chain(env.values_mut()) {
        *text = ports.in_text(&text.replace("${port}", &first));
    }
}

impl Ports {
    fn in_text(&self, text: &str) -> String {
        let mut text = text.to_owned();
        if text.contains("${port") {
            for (declared, actual) in &self.own {
                text = text.replace(&format!("${{port:{declared}}}"), &actual.to_string());
            }
            if let Some(first) = self.own.values().next() {
                text = text.replace("${port}", &first.to_string());
            }
        }
        for ((name, port), actual) in &self.others {
            text = replace_host(&text, &format!("{name}:{port}"), &format!("127.0.0.1:{actual}"));
            if *port == 80 {
                text = replace_host(&text, &format!("//{name}"), &format!("//127.0.0.1:{actual}"));
            }
        }
        text
    }
}

/// Whether the instance can be started on another port.
fn is_movable(instance: &InstancePlan, declared: u16) -> bool {
    let named = [format!("${{port:{declared}}}"), "${port}".to_owned()];
    let is_first = instance.ports.first().is_some_and(|p| p.port == declared);
    let says = |text: &String| text.contains(&named[0]) || (is_first && text.contains(&named[1]));
    let by_env = is_first && instance.env.get("PORT").is_some_and(|v| *v == declared.to_string());
    by_env || instance.words().iter().chain(instance.env.values()).any(says)
}

/// Replaces `what` where it is a whole host and port, not the end of a longer name or the start of a longer port.
fn replace_host(text: &str, what: &str, with: &str) -> String {
    let in_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(what) {
        let (before, found) = rest.split_at(at);
        let after = &found[what.len()..];
        result.push_str(before);
        let starts = !result.ends_with(in_name) || what.starts_with('/');
        let ends = !after.starts_with(|c: char| in_name(c) || c == ':');
        // A port may end a sentence, a name may not continue.
        let ends = ends || (what.contains(':') && after.starts_with('.'));
        result.push_str(if starts && ends { with } else { what });
        rest = after;
    }
    result.push_str(rest);
    result
}

fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// Whether the kernel's table of sockets shows a listener on this port.
fn is_listened_on(port: u16) -> bool {
    let suffix = format!(":{port:04X}");
    ["/proc/net/tcp", "/proc/net/tcp6"].iter().any(|table| {
        fs::read_to_string(table).unwrap_or_default().lines().skip(1).any(|line| {
            let mut words = line.split_whitespace().skip(1);
            let local = words.next().unwrap_or_default();
            local.ends_with(&suffix) && words.nth(1) == Some("0A")
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_replaced_whole() {
        for (text, expected) in [
            ("http://stock:80/x", "http://H/x"),
            ("stock:80", "H"),
            ("a=stock:80,my-stock:80,stock:8080,stock:80", "a=H,my-stock:80,stock:8080,H"),
            ("see stock:80.", "see H."),
        ] {
            assert_eq!(replace_host(text, "stock:80", "H"), expected, "{text}");
        }
        assert_eq!(
            replace_host("http://stock/x http://stocks/ http://stock:81", "//stock", "//H"),
            "http://H/x http://stocks/ http://stock:81"
        );
    }
}
