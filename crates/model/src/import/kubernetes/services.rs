//! Services of a cluster: names and ports under which pods are called.

use std::collections::BTreeMap;

use super::objects::Object;
use super::pods::{ContainerPort, declared_ports, named_protocol};
use crate::import::compose::ports::parse_protocol;
use crate::import::node::{Map, Node};

/// A port of a Service and where it leads.
#[derive(Debug, Clone)]
pub(super) struct ServicePort {
    pub(super) port: u16,
    /// A number or the name of a port of the container.
    target: String,
    protocol: Option<crate::protocol::Protocol>,
}

impl ServicePort {
    /// The container's port that it leads to, where the container has it.
    pub(super) fn find_target(&self, container: &Node) -> Option<ContainerPort> {
        let declared = declared_ports(container);
        if let Ok(number) = self.target.parse::<u16>() {
            let known = declared.into_iter().find(|port| port.number == number);
            let port = known.unwrap_or(ContainerPort { name: None, number, protocol: None });
            return Some(ContainerPort { protocol: self.protocol.or(port.protocol), ..port });
        }
        let named = declared.into_iter().find(|port| port.name.as_deref() == Some(self.target.as_str()))?;
        Some(ContainerPort { protocol: self.protocol.or(named.protocol), ..named })
    }
}

/// Whether the Service selects the pod of a workload.
pub(super) fn selects(service: &Object, workload: &Object, pod: &Node) -> bool {
    if service.namespace != workload.namespace {
        return false;
    }
    let Some(selector) = service.spec().and_then(|spec| spec.get("selector")).and_then(Node::as_map) else {
        return false;
    };
    let labels = pod.get("metadata").and_then(|metadata| metadata.get("labels"));
    let has = |(key, value): (&String, &Node)| {
        labels.and_then(|labels| labels.get_text(key)).is_some_and(|label| Some(label) == value.as_text())
    };
    !selector.is_empty() && selector.iter().all(has)
}

/// The TCP ports of a Service.
pub(super) fn service_ports(service: &Object) -> Vec<ServicePort> {
    let entries = service.spec().and_then(|spec| spec.get("ports")).and_then(Node::as_list);
    let read = |entry: &Node| {
        if entry.get_text("protocol").is_some_and(|protocol| !protocol.eq_ignore_ascii_case("tcp")) {
            return None;
        }
        let port: u16 = entry.get_text("port")?.parse().ok().filter(|port| *port > 0)?;
        let target = entry.get_text("targetPort").map_or_else(|| port.to_string(), str::to_owned);
        let said = entry.get_text("appProtocol").and_then(|text| parse_protocol(text.rsplit('/').next()?));
        let protocol = said.or_else(|| entry.get_text("name").and_then(named_protocol));
        Some(ServicePort { port, target, protocol })
    };
    entries.unwrap_or_default().iter().filter_map(read).collect()
}

/// The host that a Service of type `ExternalName` stands for.
pub(super) fn external_name(service: &Object) -> Option<&str> {
    let spec = service.spec()?;
    (spec.get_text("type") == Some("ExternalName")).then(|| spec.get_text("externalName")).flatten()
}

/// Whether a cluster offers the Service to the outside.
pub(super) fn is_public(service: &Object) -> bool {
    let kind = service.spec().and_then(|spec| spec.get_text("type"));
    kind.is_some_and(|kind| matches!(kind, "LoadBalancer" | "NodePort"))
}

/// All names under which a Service can be called from anywhere in its cluster, the shortest first.
pub(super) fn qualified_names(name: &str, namespace: &str) -> [String; 3] {
    [
        format!("{name}.{namespace}"),
        format!("{name}.{namespace}.svc"),
        format!("{name}.{namespace}.svc.cluster.local"),
    ]
}

/// The kinds that are left out, each with how often it occurs.
pub(super) fn count_kinds<'o>(objects: impl Iterator<Item = &'o Object>) -> BTreeMap<&'o str, usize> {
    let mut counts = BTreeMap::new();
    for object in objects {
        *counts.entry(object.kind.as_str()).or_default() += 1;
    }
    counts
}

/// The annotations of a pod.
pub(super) fn annotations(node: &Node) -> Option<&Map> {
    node.get("metadata")?.get("annotations")?.as_map()
}
