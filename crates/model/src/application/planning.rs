//! Computes the plan of an application under a circumstance.

use std::collections::BTreeMap;

use super::{Application, Service, nearest_hint, read_mounts};
use crate::circumstance::Circumstance;
use crate::ids::{InstanceId, NodeId, ServiceName, SlotId};
use crate::mount::{Mount, MountSource};
use crate::plan::{InstancePlan, Limits, Plan};
use crate::series::Gate;

/// Values of `${faultscope}` and `${slot}` in the application file.
#[derive(Debug, Clone)]
pub struct Expansion {
    /// The path of the running executable, which `${faultscope}` stands for.
    pub program: String,
    /// The slot of the trial.
    pub slot: SlotId,
}

/// A circumstance that cannot be deployed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{service}: {problem}")]
pub struct PlanError {
    /// The service that cannot have its settings.
    pub service: ServiceName,
    /// Why, as a fragment after the service's name.
    pub problem: String,
}

/// A URL of a test that leads to no service of the application.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct Unreachable {
    /// Why nothing is there.
    pub problem: String,
    /// A host or port that may have been meant.
    pub hint: Option<String>,
}

impl Application {
    /// Lists what must run under a circumstance, in start order.
    pub fn plan(&self, circumstance: &Circumstance, expansion: &Expansion) -> Result<Plan, PlanError> {
        let mut instances = Vec::new();
        for (index, name) in self.start_order().into_iter().enumerate() {
            for ordinal in 1..=circumstance.instances_of(name) {
                // Neighbours in the file land on different nodes, and so do the instances of one service.
                let node = (index + ordinal as usize - 1) % usize::from(circumstance.nodes.max(1));
                let node = NodeId(u16::try_from(node).unwrap_or_default());
                let id = InstanceId::new(name.clone(), ordinal);
                instances.push(self.instance(id, node, circumstance, expansion)?);
            }
        }
        let ports = self.services.iter().map(|(name, s)| (name.clone(), s.ports.clone())).collect();
        let aliases =
            self.services.iter().flat_map(|(name, s)| s.aliases.iter().map(|a| (a.clone(), name.clone())));
        Ok(Plan {
            circumstance: circumstance.clone(),
            instances,
            ports,
            aliases: aliases.collect(),
            published: self.published(),
            externals: self.externals.clone(),
        })
    }

    /// Ports that the application publishes on its host, each with the service and port behind it.
    pub fn published(&self) -> BTreeMap<u16, (ServiceName, u16)> {
        let ports = self.services.iter().flat_map(|(name, service)| {
            service.publish.iter().map(|(&own, &host)| (host, (name.clone(), own)))
        });
        ports.collect()
    }

    /// The service and port that a URL of a test means. On `localhost` that is a published port, or else the
    /// port of the first service that has it.
    pub fn callee(&self, host: &str, port: u16) -> Result<(ServiceName, u16), Unreachable> {
        let has_port = |service: &Service| service.ports.iter().any(|p| p.port == port);
        let named = self
            .services
            .iter()
            .find(|(name, s)| name.as_str() == host || s.aliases.iter().any(|a| a == host));
        let problem = match named {
            Some((name, service)) if has_port(service) => return Ok((name.clone(), port)),
            Some((name, service)) => {
                let ports: Vec<_> = service.ports.iter().map(|p| p.port.to_string()).collect();
                format!("`{name}` has no port {port}, only {}", ports.join(", "))
            }
            None if matches!(host, "localhost" | "127.0.0.1" | "[::1]") => {
                let owner = self.services.iter().find(|(_, service)| has_port(service));
                let owner = owner.map(|(name, _)| (name.clone(), port));
                match self.published().remove(&port).or(owner) {
                    Some(found) => return Ok(found),
                    None => format!("no service has or publishes port {port}"),
                }
            }
            None => {
                let problem = format!("there is no service `{host}`");
                let hint = nearest_hint(host, self.services.keys().map(ServiceName::as_str));
                return Err(Unreachable { problem, hint });
            }
        };
        Err(Unreachable { problem, hint: None })
    }

    /// The gates that impose the orders of a circumstance.
    pub fn gates(&self, circumstance: &Circumstance) -> Vec<Gate> {
        let gate = |(index, order): (usize, &crate::circumstance::Order)| Gate {
            id: u32::try_from(index + 1).unwrap_or(u32::MAX),
            from: order.from.clone(),
            handling: order.handling.clone(),
            order: order.order.clone(),
            wait: self.gate_wait,
        };
        circumstance.sequence.iter().enumerate().map(gate).collect()
    }

    /// Services sorted so that each comes after those it waits for, otherwise as in the file.
    fn start_order(&self) -> Vec<&ServiceName> {
        let mut ordered: Vec<&ServiceName> = Vec::new();
        while ordered.len() < self.services.len() {
            let before = ordered.len();
            for (name, service) in &self.services {
                if !ordered.contains(&name) && service.after.iter().all(|a| ordered.contains(&a)) {
                    ordered.push(name);
                }
            }
            if ordered.len() == before {
                // Reading rejects cycles, so this is unreachable; a wrong order is better than an endless loop.
                return self.services.keys().collect();
            }
        }
        ordered
    }

    fn instance(
        &self,
        id: InstanceId,
        node: NodeId,
        circumstance: &Circumstance,
        expansion: &Expansion,
    ) -> Result<InstancePlan, PlanError> {
        let problem = |problem: String| PlanError { service: id.service.clone(), problem };
        let service: &Service =
            self.services.get(&id.service).ok_or_else(|| problem("there is no such service".into()))?;
        let version = match circumstance.versions.get(&id.service) {
            None => None,
            Some(name) => Some(
                service.versions.get(name).ok_or_else(|| problem(format!("it has no version `{name}`")))?,
            ),
        };
        let mut env = service.env.clone();
        env.extend(version.iter().flat_map(|v| v.env.clone()));
        let mut limits = Limits::default();
        for (key, value) in circumstance.config.get(&id.service).into_iter().flatten() {
            let bad = |_| problem(format!("`{value}` cannot be its {key}"));
            match key.as_str() {
                "memory" => {
                    limits.memory =
                        Some(value.parse().map_err(|e: crate::units::InvalidUnit| bad(e.to_string()))?)
                }
                "cpu" => {
                    limits.cpu =
                        Some(value.parse().map_err(|e: std::num::ParseFloatError| bad(e.to_string()))?)
                }
                "pids" => {
                    limits.pids =
                        Some(value.parse().map_err(|e: std::num::ParseIntError| bad(e.to_string()))?)
                }
                _ => {
                    let name =
                        key.strip_prefix("env.").ok_or_else(|| problem(format!("unknown item `{key}`")))?;
                    env.insert(name.to_owned(), value.clone());
                }
            }
        }
        let expand = |text: &str| expand(text, expansion, &id);
        let command = version.and_then(|v| v.command.as_ref()).unwrap_or(&service.command);
        let entrypoint = version.and_then(|v| v.entrypoint.as_ref()).or(service.entrypoint.as_ref());
        Ok(InstancePlan {
            entrypoint: entrypoint.map(|words| words.iter().map(|word| expand(word)).collect()),
            command: command.iter().map(|arg| expand(arg)).collect(),
            image: version.and_then(|v| v.image.clone()).or_else(|| service.image.clone()),
            directory: version.and_then(|v| v.directory.clone()).unwrap_or_else(|| service.directory.clone()),
            working_dir: service.working_dir.clone(),
            user: service.user.clone(),
            env: env.into_iter().map(|(key, value)| (key, expand(&value))).collect::<BTreeMap<_, _>>(),
            ports: service.ports.clone(),
            calls: service.calls.clone(),
            after: service.after.clone(),
            limits,
            ready: version.and_then(|v| v.ready.clone()).unwrap_or_else(|| service.ready.clone()),
            durable: service.durable.clone(),
            stop_within: service.stop_within,
            mounts: service.mounts.iter().map(|mount| name_volume(mount, &id)).collect(),
            reset: service.reset.unwrap_or(self.reset),
            privileged: service.privileged,
            node,
            id,
        })
    }
}

impl Expansion {
    /// The names that [`Self::value`] knows.
    pub(super) const NAMES: [&'static str; 2] = ["faultscope", "slot"];

    /// Fills in `${faultscope}` and `${slot}`.
    pub fn expand(&self, text: &str) -> String {
        text.replace("${faultscope}", &self.program).replace("${slot}", &self.slot.0.to_string())
    }

    /// The value of a placeholder; none if the name is unknown.
    pub fn value(&self, name: &str) -> Option<String> {
        match name {
            "faultscope" => Some(self.program.clone()),
            "slot" => Some(self.slot.0.to_string()),
            _ => None,
        }
    }
}

/// The mount of one instance, whose volume may have the instance's name in its own.
fn name_volume(mount: &Mount, id: &InstanceId) -> Mount {
    let mut mount = mount.clone();
    if let MountSource::Volume(name) = &mut mount.source {
        *name = name.replace(read_mounts::INSTANCE, &id.to_string());
    }
    mount
}

fn expand(text: &str, expansion: &Expansion, id: &InstanceId) -> String {
    expansion.expand(text).replace("${instance}", &id.to_string())
}
