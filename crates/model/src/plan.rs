//! A plan: what must run in a slot, and the fewest actions to get there.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::circumstance::Circumstance;
use crate::ids::{InstanceId, NodeId, ServiceName};
use crate::mount::Mount;
use crate::protocol::Protocol;
use crate::units::{self, ByteSize};
use crate::wiring::{ExternalHost, ListenerSpec};

/// What must run in a slot for one trial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The circumstance of the plan; only the memory platform, which simulates it, reads this.
    pub circumstance: Circumstance,
    /// All instances, in the order in which they are started.
    pub instances: Vec<InstancePlan>,
    /// Ports of every service, for the listeners of callers and of the test.
    pub ports: BTreeMap<ServiceName, Vec<PortPlan>>,
    /// Further host names of services, which hosts files must contain.
    #[serde(default)]
    pub aliases: BTreeMap<String, ServiceName>,
    /// Ports that the application publishes on its host, and the service's port behind each.
    #[serde(default)]
    pub published: BTreeMap<u16, (ServiceName, u16)>,
    /// Hosts outside the application.
    pub externals: Vec<ExternalHost>,
}

/// A port of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortPlan {
    /// The number on which the service itself listens.
    pub port: u16,
    /// What it speaks.
    pub protocol: Protocol,
}

/// One instance that must run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InstancePlan {
    /// The service and its ordinal.
    pub id: InstanceId,
    /// The node it is placed on.
    pub node: NodeId,
    /// What takes the place of the image's entry point; an empty one switches it off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entrypoint: Option<Vec<String>>,
    /// Program and arguments.
    pub command: Vec<String>,
    /// The image, for platforms that run images.
    pub image: Option<String>,
    /// Working directory of a process, relative to the application file.
    pub directory: String,
    /// Working directory in a container, where it is not the image's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working_dir: Option<String>,
    /// The user in a container, where it is not the image's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Environment variables, in addition to those that the platform sets.
    pub env: BTreeMap<String, String>,
    /// Ports it listens on.
    pub ports: Vec<PortPlan>,
    /// Services and external hosts that it may call.
    pub calls: Vec<ServiceName>,
    /// Services that must be ready before it starts.
    pub after: Vec<ServiceName>,
    /// Resource limits.
    pub limits: Limits,
    /// When it counts as ready.
    pub ready: Readiness,
    /// Directories, relative to its working directory, that survive a restart inside a trial.
    pub durable: Vec<String>,
    /// Time between SIGTERM and SIGKILL when it is stopped.
    #[serde(with = "units::duration")]
    pub stop_within: Duration,
    /// What it sees at paths of its own.
    #[serde(default)]
    pub mounts: Vec<Mount>,
    /// Whether it may go on, with its data, when the trial before had the same.
    #[serde(default)]
    pub reset: Reset,
    /// Whether it may do what whoever runs the tool may do, rather than what a container may do.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub privileged: bool,
}

impl InstancePlan {
    /// What a process executes: the entry point and the command after it.
    pub fn words(&self) -> Vec<String> {
        self.entrypoint.iter().flatten().chain(&self.command).cloned().collect()
    }
}

/// Resource limits of one instance; none means unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Limits {
    /// Bytes of memory.
    pub memory: Option<ByteSize>,
    /// CPU cores.
    pub cpu: Option<f64>,
    /// Processes and threads.
    pub pids: Option<u32>,
}

impl Limits {
    /// Whether there is no limit at all.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// When an instance counts as ready.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Readiness {
    /// The check that is repeated until it succeeds.
    pub probe: Probe,
    /// How long that may take; the start has failed afterwards.
    #[serde(with = "units::duration")]
    pub within: Duration,
}

/// The check that shows whether an instance is ready.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Probe {
    /// A GET of this path is answered with a status below 400.
    Http {
        /// With its leading slash.
        path: String,
        /// One of the ports of the instance.
        port: u16,
    },
    /// The port accepts connections.
    Tcp {
        /// One of the ports of the instance.
        port: u16,
    },
    /// `grpc.health.v1.Health/Check` says that it serves. A server without this service is ready once it answers,
    /// unless a service is named.
    Grpc {
        /// The service that is asked for; empty for the whole server.
        service: String,
        /// One of the ports of the instance.
        port: u16,
    },
    /// A line of its output matches a pattern.
    Log {
        /// A regular expression.
        pattern: String,
    },
    /// A command that runs beside the instance exits with 0.
    Command {
        /// Program and arguments.
        command: Vec<String>,
    },
    /// It is ready as soon as it runs.
    Started,
}

/// What happens between two trials of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reset {
    /// New processes and a fresh copy of the data.
    #[default]
    Restart,
    /// Instances that need no change keep running, with their data.
    Keep,
}

/// The actions that turn what runs into what must run; instances are destroyed before others are created.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Actions {
    /// Instances to stop.
    pub destroy: Vec<InstanceId>,
    /// Instances to start, in order.
    pub create: Vec<InstancePlan>,
    /// Instances that keep running.
    pub keep: Vec<InstanceId>,
}

impl Plan {
    /// The fewest actions that lead from the running instances to this plan: only what differs is replaced.
    ///
    /// Instances with [`Reset::Restart`] are always made anew.
    pub fn actions_from(&self, running: &[InstancePlan]) -> Actions {
        let mut actions = Actions::default();
        let wanted: BTreeMap<&InstanceId, &InstancePlan> =
            self.instances.iter().map(|i| (&i.id, i)).collect();
        let mut kept = BTreeSet::new();
        for instance in running {
            // Whether it might have been kept before does not matter, nor how long its start might have taken.
            let same = |wanted: &InstancePlan| {
                let mut instance = InstancePlan { reset: wanted.reset, ..instance.clone() };
                instance.ready.within = wanted.ready.within;
                *wanted == instance
            };
            let stays = wanted.get(&instance.id).is_some_and(|w| w.reset == Reset::Keep && same(w));
            if stays {
                kept.insert(&instance.id);
                actions.keep.push(instance.id.clone());
            } else {
                actions.destroy.push(instance.id.clone());
            }
        }
        actions.create = self.instances.iter().filter(|i| !kept.contains(&i.id)).cloned().collect();
        actions
    }

    /// What tests reach on `localhost`, by port: published ports and, where these leave a gap, each port of the
    /// first service that has it.
    pub fn localhost(&self) -> BTreeMap<u16, (ServiceName, u16)> {
        let mut found = self.published.clone();
        let running = self.instances.iter().map(|i| (&i.id.service, &i.ports));
        for (service, ports) in running.chain(&self.ports) {
            for PortPlan { port, .. } in ports {
                found.entry(*port).or_insert_with(|| (service.clone(), *port));
            }
        }
        found
    }

    /// The listeners that callers need: one for each port of each callee. With `per_caller` each calling instance
    /// (and the test) gets its own, for platforms where source addresses do not identify the caller.
    pub fn listeners(&self, per_caller: bool) -> Vec<ListenerSpec> {
        let externals = self.externals.iter().map(|e| {
            let ports = e
                .ports
                .iter()
                .map(|&port| PortPlan { port, protocol: Protocol::guess_from_port(port) })
                .collect();
            (e.service.clone(), ports)
        });
        let ports: BTreeMap<ServiceName, Vec<PortPlan>> =
            self.ports.clone().into_iter().chain(externals).collect();
        let specs = |callee: &ServiceName, caller: Option<&InstanceId>| -> Vec<ListenerSpec> {
            let make = |p: &PortPlan| ListenerSpec {
                callee: callee.clone(),
                port: p.port,
                protocol: p.protocol,
                caller: caller.cloned(),
            };
            ports.get(callee).into_iter().flatten().map(make).collect()
        };
        if !per_caller {
            return ports.keys().flat_map(|callee| specs(callee, None)).collect();
        }
        let test = InstanceId::test();
        let from_instances =
            self.instances.iter().flat_map(|i| i.calls.iter().flat_map(|callee| specs(callee, Some(&i.id))));
        from_instances.chain(ports.keys().flat_map(|callee| specs(callee, Some(&test)))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instance(ordinal: u32, memory: Option<u64>) -> InstancePlan {
        InstancePlan {
            id: InstanceId::new("order".parse().unwrap(), ordinal),
            node: NodeId(0),
            entrypoint: None,
            command: vec!["order".into()],
            image: None,
            directory: String::new(),
            working_dir: None,
            user: None,
            env: BTreeMap::new(),
            ports: vec![PortPlan { port: 8080, protocol: Protocol::Http }],
            calls: Vec::new(),
            after: Vec::new(),
            limits: Limits { memory: memory.map(ByteSize), ..Limits::default() },
            ready: Readiness { probe: Probe::Started, within: Duration::from_secs(1) },
            durable: Vec::new(),
            stop_within: Duration::from_secs(1),
            mounts: Vec::new(),
            reset: Reset::default(),
            privileged: false,
        }
    }

    fn plan(instances: Vec<InstancePlan>, reset: Reset) -> Plan {
        let instances: Vec<_> = instances.into_iter().map(|i| InstancePlan { reset, ..i }).collect();
        let ports = instances.iter().map(|i| (i.id.service.clone(), i.ports.clone())).collect();
        Plan {
            circumstance: Circumstance::default(),
            instances,
            ports,
            aliases: BTreeMap::new(),
            published: BTreeMap::new(),
            externals: Vec::new(),
        }
    }

    #[test]
    fn published_ports_come_first_on_localhost() {
        let mut wanted = plan(vec![instance(1, None)], Reset::Restart);
        let (service, port) = (wanted.instances[0].id.service.clone(), wanted.instances[0].ports[0].port);
        assert_eq!(wanted.localhost(), BTreeMap::from([(port, (service.clone(), port))]));
        let other: ServiceName = "other".parse().unwrap();
        wanted.published = BTreeMap::from([(port, (other.clone(), 1)), (9, (service.clone(), port))]);
        assert_eq!(wanted.localhost(), BTreeMap::from([(port, (other, 1)), (9, (service, port))]));
    }

    #[test]
    fn keeping_counts_only_differences() {
        let running = vec![instance(1, None)];
        let wanted = plan((1..=6).map(|n| instance(n, Some(64 << 20))).collect(), Reset::Keep);
        let actions = wanted.actions_from(&running);
        assert_eq!((actions.destroy.len(), actions.create.len(), actions.keep.len()), (1, 6, 0));

        let more = plan((1..=3).map(|n| instance(n, None)).collect(), Reset::Keep);
        let actions = more.actions_from(&running);
        assert_eq!((actions.destroy.len(), actions.create.len(), actions.keep.len()), (0, 2, 1));
    }

    #[test]
    fn a_service_may_be_kept_where_others_are_not() {
        let running = vec![instance(1, None), instance(2, None), instance(3, None)];
        let mut wanted =
            plan(vec![instance(1, None), instance(2, None), instance(3, Some(9 << 20))], Reset::Keep);
        wanted.instances[1].reset = Reset::Restart;
        let actions = wanted.actions_from(&running);
        assert_eq!(actions.keep, [running[0].id.clone()], "3 has another limit");
        assert_eq!((actions.destroy.len(), actions.create.len()), (2, 2));
    }

    #[test]
    fn restarting_makes_everything_anew() {
        let running = vec![instance(1, None)];
        let actions = plan(running.clone(), Reset::Restart).actions_from(&running);
        assert_eq!((actions.destroy.len(), actions.create.len()), (1, 1));
    }

    #[test]
    fn listeners_are_shared_or_per_caller() {
        let mut caller = instance(1, None);
        caller.calls = vec!["order".parse().unwrap()];
        let plan = plan(vec![caller], Reset::Restart);
        assert_eq!(plan.listeners(false).len(), 1);
        let callers: Vec<_> =
            plan.listeners(true).into_iter().map(|l| l.caller.unwrap().to_string()).collect();
        assert_eq!(callers, ["order-1", "test-1"]);
    }
}
