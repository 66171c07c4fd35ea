//! Checks the services and external hosts of an application file.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use indexmap::IndexMap;

use super::raw::{self, RawCloneHook, RawMetrics, RawReadiness, RawService, Scalar};
use super::read::{Names, Reader, SpecError, one_line_regex};
use super::{CloneHook, MetricsEndpoint, Service, Version};
use crate::ids::ServiceName;
use crate::mount::MountSource;
use crate::plan::{PortPlan, Probe, Readiness};
use crate::protocol::Protocol;
use crate::units::show_duration;
use crate::wiring::{Balance, ExternalHost};

/// The longest name of a gRPC service whose health can be asked for; real ones are shorter.
const MAX_GRPC_NAME: usize = 127;

/// Writing a few hundred megabytes of memory to a disk takes seconds.
const DEFAULT_HOOK_WITHIN: Duration = Duration::from_secs(10);
/// A clone that waits longer shows another moment than the one it was asked for.
const MAX_HOOK_WITHIN: Duration = Duration::from_secs(600);

impl Reader<'_> {
    pub(super) fn externals(
        &self,
        raw: Vec<raw::RawExternal>,
        names: &Names,
    ) -> Result<Vec<ExternalHost>, SpecError> {
        let mut externals: Vec<ExternalHost> = Vec::new();
        for (index, external) in raw.into_iter().enumerate() {
            let at = index.to_string();
            let service: ServiceName =
                external.host.parse().map_err(|e| self.error(&["external", &at, "host"], format!("{e}")))?;
            if names.contains(&service) || externals.iter().any(|e| e.service == service) {
                return Err(self.error(&["external", &at, "host"], format!("`{service}` is named twice")));
            }
            let ports = if external.ports.is_empty() { vec![80, 443] } else { external.ports };
            externals.push(ExternalHost { host: external.host, service, allow: external.allow, ports });
        }
        Ok(externals)
    }

    pub(super) fn one_service(
        &self,
        name: &str,
        raw: &RawService,
        names: &Names,
        externals: &[ExternalHost],
    ) -> Result<Service, SpecError> {
        let here = |key| ["services", name, key];
        let has_program =
            !raw.command.is_empty() || raw.entrypoint.as_ref().is_some_and(|words| !words.is_empty());
        if !has_program && raw.image.is_none() && raw.build.is_none() {
            let error = self.error(&["services", name], "a service has a `command`, an `image` or a `build`");
            let hint = if self.extends() {
                "a service in a file that extends another takes the place of the whole service; \
                 to change a setting of it use `simplest: { config: ... }` or `--set`"
            } else {
                "command: [\"python3\", \"order.py\"]"
            };
            return Err(SpecError { hint: Some(hint.into()), ..error });
        }
        let mut ports: Vec<PortPlan> = Vec::new();
        for port in &raw.ports {
            if port.port == 0 || ports.iter().any(|p| p.port == port.port) {
                return Err(self.error(&here("ports"), format!("port {} is zero or there twice", port.port)));
            }
            let protocol =
                port.protocol.or(raw.protocol).unwrap_or_else(|| Protocol::guess_from_port(port.port));
            ports.push(PortPlan { port: port.port, protocol });
        }
        let calls = match &raw.calls {
            None => names.iter().chain(externals.iter().map(|e| &e.service)).cloned().collect(),
            Some(list) => {
                let all: Names = names.iter().chain(externals.iter().map(|e| &e.service)).cloned().collect();
                let find = |other: &String| self.service(&["services", name, "calls"], other, &all);
                list.iter().map(find).collect::<Result<_, _>>()?
            }
        };
        let version_folders = raw.versions.values().filter_map(|v| v.directory.as_ref());
        for directory in raw.durable.folders.iter().chain(&raw.directory).chain(version_folders) {
            if directory.starts_with('/') || directory.split('/').any(|part| part == "..") {
                let problem = format!("`{directory}` must lie below the folder of the file");
                return Err(self.error(&["services", name], problem));
            }
        }
        if let Some(path) = &raw.working_dir
            && (!path.starts_with('/') || path.contains('\0'))
        {
            let problem = format!("`{path}` is not an absolute path in the container");
            let hint = "for processes, `directory` names a folder of the application";
            return Err(SpecError { hint: Some(hint.into()), ..self.error(&here("working_dir"), problem) });
        }
        for alias in &raw.aliases {
            if alias.parse::<ServiceName>().is_err() || names.contains(alias.as_str()) {
                return Err(
                    self.error(&here("aliases"), format!("`{alias}` is no host name or names a service"))
                );
            }
        }
        for &own in raw.publish.keys() {
            if !ports.iter().any(|p| p.port == own) {
                return Err(self.error(&here("publish"), format!("{own} is none of its ports")));
            }
        }
        let text = |env: &IndexMap<String, raw::Scalar>| -> BTreeMap<String, String> {
            env.iter().map(|(key, value)| (key.clone(), value.0.clone())).collect()
        };
        let mut versions = BTreeMap::new();
        for (version, v) in &raw.versions {
            let ready = v.ready.clone().map(|ready| self.readiness(name, Some(ready), &ports)).transpose()?;
            let version_of = Version {
                entrypoint: v.entrypoint.clone(),
                command: v.command.clone(),
                image: v.image.clone(),
                directory: v.directory.clone(),
                env: text(&v.env),
                ready,
            };
            versions.insert(version.clone(), version_of);
        }
        let mounts = self.mounts(name, &raw.mounts)?;
        // Like `durable`, a volume outlives the instance's process.
        let has_volume = mounts.iter().any(|mount| matches!(mount.source, MountSource::Volume(_)));
        let after = raw.after.iter().map(|other| self.service(&here("after"), other, names));
        let after = after.collect::<Result<Vec<_>, _>>()?;
        Ok(Service {
            entrypoint: raw.entrypoint.clone(),
            command: raw.command.clone(),
            image: raw.image.clone(),
            build: raw.build.clone(),
            directory: raw.directory.clone().unwrap_or_default(),
            working_dir: raw.working_dir.clone(),
            user: raw.user.as_ref().map(|user| user.0.clone()),
            ready: self.readiness(name, raw.ready.clone(), &ports)?,
            metrics: raw.metrics.as_ref().map(|raw| self.metrics(name, raw, &ports)).transpose()?,
            ports,
            env: text(&raw.env),
            after,
            calls,
            persistent: raw.durable.keeps.unwrap_or(!raw.durable.folders.is_empty() || has_volume),
            delivery: self.delivery(name, &raw.delivery)?,
            durable: raw.durable.folders.clone(),
            aliases: raw.aliases.clone(),
            publish: raw.publish.iter().map(|(&own, &host)| (own, host)).collect(),
            balance: raw.balance.clone().unwrap_or(Balance::RoundRobin),
            versions,
            stop_within: raw.stop_within.unwrap_or(Duration::from_secs(5)),
            mounts,
            reset: raw.reset,
            privileged: raw.privileged.unwrap_or_default(),
            before_clone: raw.clone.as_ref().map(|raw| self.clone_hook(name, raw)).transpose()?,
        })
    }

    fn clone_hook(&self, name: &str, raw: &RawCloneHook) -> Result<CloneHook, SpecError> {
        if raw.before.is_empty() {
            return Err(self.error(&["services", name, "clone"], "`before` needs a command"));
        }
        let within = raw.within.unwrap_or(DEFAULT_HOOK_WITHIN);
        if within.is_zero() || within > MAX_HOOK_WITHIN {
            let problem =
                format!("`within` must be more than zero and at most {}", show_duration(MAX_HOOK_WITHIN));
            return Err(self.error(&["services", name, "clone"], problem));
        }
        Ok(CloneHook { command: raw.before.clone(), within })
    }

    fn metrics(
        &self,
        name: &str,
        raw: &RawMetrics,
        ports: &[PortPlan],
    ) -> Result<MetricsEndpoint, SpecError> {
        let here = ["services", name, "metrics"];
        let port = raw.port.or_else(|| ports.first().map(|p| p.port));
        let port =
            port.filter(|port| ports.iter().any(|p| p.port == *port)).ok_or_else(|| match raw.port {
                Some(port) => self.error(&here, format!("{port} is none of its ports")),
                None => self.error(&here, "it has no port to look at"),
            })?;
        let path = raw.path.clone().unwrap_or_else(|| "/metrics".to_owned());
        if !path.starts_with('/') || path.contains(|c: char| c.is_control() || c == ' ') {
            return Err(self.error(&here, format!("the path `{path}` starts with `/` and has no spaces")));
        }
        Ok(MetricsEndpoint { port, path })
    }

    fn readiness(
        &self,
        name: &str,
        raw: Option<RawReadiness>,
        ports: &[PortPlan],
    ) -> Result<Readiness, SpecError> {
        let raw = raw.unwrap_or_default();
        let here = ["services", name, "ready"];
        let first = ports.first().map(|p| p.port);
        let own = |port: Option<u16>| match port.or(first) {
            Some(port) if ports.iter().any(|p| p.port == port) => Ok(port),
            Some(port) => Err(self.error(&here, format!("{port} is none of its ports"))),
            None => Err(self.error(&here, "it has no port to look at")),
        };
        let given = [
            raw.http.is_some(),
            raw.tcp.is_some(),
            raw.grpc.is_some(),
            raw.log.is_some(),
            raw.command.is_some(),
        ];
        if given.iter().filter(|is_given| **is_given).count() > 1 {
            return Err(
                self.error(&here, "a service has just one of `http`, `tcp`, `grpc`, `log`, `command`")
            );
        }
        let probe = match raw {
            RawReadiness { http: Some(path), port, .. } => {
                if !path.starts_with('/') {
                    return Err(self.error(&here, format!("the path `{path}` starts with `/`")));
                }
                Probe::Http { path, port: own(port)? }
            }
            RawReadiness { tcp: Some(port), .. } => Probe::Tcp { port: own(Some(port))? },
            RawReadiness { grpc: Some(Scalar(service)), port, .. } => {
                let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/');
                let service = if service == "true" { String::new() } else { service };
                if service == "false" || service.len() > MAX_GRPC_NAME || !service.chars().all(is_name) {
                    let problem = "`grpc` is `true` or the name of a service, such as `shop.Stock`";
                    return Err(self.error(&here, problem));
                }
                Probe::Grpc { service, port: own(port)? }
            }
            RawReadiness { log: Some(pattern), .. } => {
                regex::Regex::new(&pattern).map_err(|e| self.error(&here, one_line_regex(&e)))?;
                Probe::Log { pattern }
            }
            RawReadiness { command: Some(command), .. } if !command.is_empty() => Probe::Command { command },
            RawReadiness { command: Some(_), .. } => return Err(self.error(&here, "the command is empty")),
            _ => first.map_or(Probe::Started, |port| Probe::Tcp { port }),
        };
        Ok(Readiness { probe, within: raw.within.unwrap_or(Duration::from_secs(30)) })
    }

    pub(super) fn no_circle(&self, services: &IndexMap<ServiceName, Service>) -> Result<(), SpecError> {
        let mut settled: BTreeSet<&ServiceName> = BTreeSet::new();
        while settled.len() < services.len() {
            let next: Vec<_> = services
                .iter()
                .filter(|(name, s)| !settled.contains(name) && s.after.iter().all(|a| settled.contains(a)))
                .map(|(name, _)| name)
                .collect();
            if next.is_empty() {
                let stuck: Vec<_> =
                    services.keys().filter(|n| !settled.contains(n)).map(ServiceName::as_str).collect();
                let first = stuck.first().copied().unwrap_or_default();
                let problem = format!("these wait for one another to start: {}", stuck.join(", "));
                return Err(self.error(&["services", first, "after"], problem));
            }
            settled.extend(next);
        }
        Ok(())
    }
}
