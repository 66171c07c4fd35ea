//! One container of a pod becomes one service.

use std::time::Duration;

use super::config::{Configs, expand, read_environment};
use super::objects::Object;
use crate::import::compose::health::{grpc_command, show_duration};
use crate::import::compose::limits::exact_size;
use crate::import::compose::ports::parse_protocol;
use crate::import::node::Node;
use crate::import::warnings::Warnings;
use crate::import::{
    ImportError, ImportedCircumstance, ImportedPort, ImportedReadiness, ImportedService, PortOrigin,
};
use crate::protocol::Protocol;
use crate::units::ByteSize;

/// Containers that meshes put beside others; the tool is the mesh here.
const SIDECARS: [&str; 4] = ["istio-proxy", "linkerd-proxy", "daprd", "envoy-sidecar"];

/// A port of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ContainerPort {
    pub(super) name: Option<String>,
    pub(super) number: u16,
    pub(super) protocol: Option<Protocol>,
}

/// The pod that a workload starts.
pub(super) fn pod_template(workload: &Object) -> Option<&Node> {
    match workload.kind.as_str() {
        "Pod" => Some(&workload.node),
        _ => workload.spec()?.get("template"),
    }
}

/// The containers of a pod that are services.
pub(super) fn containers(pod: &Node) -> Vec<&Node> {
    let all = pod.get("spec").and_then(|spec| spec.get("containers")).and_then(Node::as_list);
    let is_service = |container: &&Node| !SIDECARS.contains(&container.get_text("name").unwrap_or_default());
    all.unwrap_or_default().iter().filter(is_service).collect()
}

/// The TCP ports that a container declares.
pub(super) fn declared_ports(container: &Node) -> Vec<ContainerPort> {
    let entries = container.get("ports").and_then(Node::as_list).unwrap_or_default();
    let is_tcp = |entry: &&Node| {
        entry.get_text("protocol").is_none_or(|protocol| protocol.eq_ignore_ascii_case("tcp"))
    };
    entries
        .iter()
        .filter(is_tcp)
        .filter_map(|entry| {
            let number = entry.get_text("containerPort")?.parse().ok().filter(|port| *port > 0)?;
            let name = entry.get_text("name").map(str::to_owned);
            let protocol = name.as_deref().and_then(named_protocol);
            Some(ContainerPort { name, number, protocol })
        })
        .collect()
}

/// The protocol in the name of a port: `grpc`, `http-api`, `redis`.
pub(super) fn named_protocol(name: &str) -> Option<Protocol> {
    let first = name.split('-').next().unwrap_or(name);
    // `tcp` and `https` say less than what the mesh finds out by itself.
    parse_protocol(first).filter(|protocol| !matches!(protocol, Protocol::Tcp | Protocol::Tls))
}

/// Reads a container as a service called `name`.
pub(super) fn read_container(
    name: &str,
    workload: &Object,
    container: &Node,
    configs: &Configs,
    warnings: &mut Warnings,
) -> Result<ImportedService, ImportError> {
    let Some(image) = container.get_text("image") else {
        return Err(workload.error(container, format!("container of `{}` has no image", workload.name)));
    };
    let mut service = ImportedService { image: Some(image.to_owned()), ..ImportedService::default() };
    let (env, missing) = read_environment(container, workload, name, configs);
    if !missing.is_empty() {
        warnings.add(name, format!("not in the manifests, left out: {}", missing.join(", ")));
    }
    let words = |key: &str| -> Option<Vec<String>> {
        let words = container.get(key).and_then(Node::as_list)?;
        Some(words.iter().filter_map(Node::as_text).map(|word| expand(word, &env)).collect())
    };
    service.entrypoint = words("command").filter(|words| !words.is_empty());
    service.command = words("args").unwrap_or_default();
    service.working_dir =
        container.get_text("workingDir").filter(|path| path.starts_with('/')).map(str::to_owned);
    service.user = read_user(workload, container);
    service.env = env;
    for port in declared_ports(container) {
        put_port(&mut service, &port);
    }
    service.ready = read_readiness(container, &mut service)
        .map_err(|message| workload.error(container, format!("`{name}`: {message}")))?;
    let pod = pod_template(workload).and_then(|pod| pod.get("spec"));
    if let Some(grace) = pod.and_then(|spec| spec.get_text("terminationGracePeriodSeconds"))
        && let Ok(seconds) = grace.parse::<u32>()
    {
        service.stop_within = Some(show_duration(Duration::from_secs(seconds.into())));
    }
    Ok(service)
}

/// The user that the container or its pod asks for.
fn read_user(workload: &Object, container: &Node) -> Option<String> {
    let of_pod =
        pod_template(workload).and_then(|pod| pod.get("spec")).and_then(|spec| spec.get("securityContext"));
    let of_container = container.get("securityContext");
    let get = |key: &str| {
        [of_container, of_pod]
            .into_iter()
            .flatten()
            .find_map(|context| context.get_text(key))
            .map(str::to_owned)
    };
    let user = get("runAsUser")?;
    Some(get("runAsGroup").map_or(user.clone(), |group| format!("{user}:{group}")))
}

/// Adds a port to a service unless it is there.
pub(super) fn put_port(service: &mut ImportedService, port: &ContainerPort) {
    let explicit = port.protocol.filter(|protocol| *protocol != Protocol::guess_from_port(port.number));
    let entry = match explicit {
        Some(protocol) => ImportedPort::Speaking { port: port.number, protocol },
        None => ImportedPort::Plain(port.number),
    };
    match service.ports.iter_mut().find(|known| known.number() == port.number) {
        Some(known) if explicit.is_some() => *known = entry,
        Some(_) => {}
        None => service.ports.push(entry),
    }
}

/// Notes replicas and limits, which make the failing circumstance.
pub(super) fn note_limits(
    name: &str,
    replicas: Option<&str>,
    container: &Node,
    failing: &mut ImportedCircumstance,
    warnings: &mut Warnings,
) {
    if let Some(count) = replicas.and_then(|text| text.parse::<u32>().ok()).filter(|n| (2..=1000).contains(n))
    {
        failing.instances.insert(name.to_owned(), count);
    }
    let limits = container.get("resources").and_then(|resources| resources.get("limits"));
    let limit = |key: &str| limits.and_then(|limits| limits.get_text(key));
    let mut put = |key: &str, value: String| {
        failing.config.entry(name.to_owned()).or_default().insert(key.to_owned(), value);
    };
    if let Some(text) = limit("memory") {
        match read_quantity(text).filter(|bytes| *bytes >= 1.0 && *bytes < 1e18) {
            // Far below 2^63, so that nothing is lost.
            Some(bytes) if !ByteSize(bytes as u64).is_tiny() => put("memory", exact_size(bytes as u64)),
            _ => warnings.add(name, format!("the memory limit `{text}` is not carried over")),
        }
    }
    if let Some(text) = limit("cpu") {
        match read_quantity(text).filter(|cores| *cores > 0.0 && *cores <= 4096.0) {
            Some(cores) => put("cpu", cores.to_string()),
            None => warnings.add(name, format!("the CPU limit `{text}` is not carried over")),
        }
    }
}

/// A quantity of Kubernetes: `128Mi`, `500m`, `0.5`, `1G`, `1e3`.
pub(super) fn read_quantity(text: &str) -> Option<f64> {
    const UNITS: [(&str, f64); 11] = [
        ("Ki", 1024.0),
        ("Mi", 1_048_576.0),
        ("Gi", 1_073_741_824.0),
        ("Ti", 1_099_511_627_776.0),
        ("m", 1e-3),
        ("k", 1e3),
        ("K", 1e3),
        ("M", 1e6),
        ("G", 1e9),
        ("T", 1e12),
        ("", 1.0),
    ];
    let text = text.trim();
    let (unit, factor) = UNITS.iter().find(|(unit, _)| text.ends_with(unit))?;
    let number: f64 = text.strip_suffix(unit)?.parse().ok()?;
    Some(number * factor).filter(|value| value.is_finite() && *value >= 0.0)
}

/// The readiness of a container: its readiness probe, otherwise one of the other two.
fn read_readiness(
    container: &Node,
    service: &mut ImportedService,
) -> Result<Option<ImportedReadiness>, String> {
    let probes = ["readinessProbe", "startupProbe", "livenessProbe"];
    let Some(probe) = probes.iter().find_map(|key| container.get(key)) else { return Ok(None) };
    let ports = declared_ports(container);
    let resolve = |node: &Node| -> Result<u16, String> {
        let text = node.get_text("port").unwrap_or_default();
        let named = ports.iter().find(|port| port.name.as_deref() == Some(text)).map(|port| port.number);
        let number = named.or_else(|| text.parse().ok()).filter(|port| *port > 0);
        number.ok_or_else(|| format!("the probe's port `{text}` is no port of the container"))
    };
    let mut ready = ImportedReadiness::default();
    let mut probed = None;
    if let Some(get) = probe.get("httpGet") {
        let port = resolve(get)?;
        probed = Some(port);
        if get.get_text("scheme").is_some_and(|scheme| scheme.eq_ignore_ascii_case("https")) {
            ready.tcp = Some(port);
        } else {
            let path = get.get_text("path").filter(|path| !path.is_empty()).unwrap_or("/");
            ready.http = Some(if path.starts_with('/') { path.to_owned() } else { format!("/{path}") });
            let first = service.ports.first().map(|port| port.number());
            ready.port = (first != Some(port)).then_some(port);
        }
    } else if let Some(grpc) = probe.get("grpc") {
        let port = resolve(grpc)?;
        probed = Some(port);
        ready.grpc = Some(grpc.get_text("service").unwrap_or_default().to_owned());
        let first = service.ports.first().map(|port| port.number());
        ready.port = (first != Some(port)).then_some(port);
    } else if let Some(socket) = probe.get("tcpSocket") {
        let port = resolve(socket)?;
        probed = Some(port);
        ready.tcp = Some(port);
    } else if let Some(words) = probe.get("exec").and_then(|exec| exec.get("command")).and_then(Node::as_list)
    {
        let first = service.ports.first().map(|port| port.number());
        let command: Vec<String> = words.iter().filter_map(Node::as_text).map(str::to_owned).collect();
        ready = match grpc_command(&command, &[], first) {
            Some(asked) => asked,
            None => ImportedReadiness { command, ..ready },
        };
        probed = ready.port;
    }
    if let Some(number) = probed
        && !service.ports.iter().any(|known| known.number() == number)
    {
        let protocol = ready.grpc.is_some().then_some(Protocol::Grpc);
        put_port(service, &ContainerPort { name: None, number, protocol });
        service.port_origins.push((number, PortOrigin::HealthCheck));
    }
    if ready == ImportedReadiness::default() {
        return Ok(None);
    }
    let number = |key: &str, default: f64| {
        probe.get_text(key).and_then(|text| text.parse::<f64>().ok()).unwrap_or(default)
    };
    let within =
        number("initialDelaySeconds", 0.0) + number("periodSeconds", 10.0) * number("failureThreshold", 3.0);
    // As for Compose: below ten seconds a busy machine would spoil trials, above ten minutes nobody waits.
    ready.within = Some(show_duration(Duration::from_secs(within.clamp(10.0, 600.0) as u64)));
    Ok(Some(ready))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities() {
        for (text, expected) in [
            ("128Mi", Some(134_217_728.0)),
            ("500m", Some(0.5)),
            ("2", Some(2.0)),
            ("1G", Some(1e9)),
            ("1e3", Some(1e3)),
            ("x", None),
            ("-1", None),
        ] {
            assert_eq!(read_quantity(text), expected, "{text}");
        }
    }
}
