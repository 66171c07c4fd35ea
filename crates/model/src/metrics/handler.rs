//! Which instance handled a span, as spans and time series name instances.

use crate::ids::InstanceId;
use crate::trace::ReportedSpan;

/// Labels and tags that name an instance, most specific first; Prometheus replaces their dots by underscores.
pub(super) const INSTANCE_LABELS: [&str; 7] =
    ["service.instance.id", "k8s.pod.uid", "k8s.pod.name", "container.id", "pod", "instance", "host.name"];

/// Tags with which the mesh and the built-in collector name instances.
const MESH_TAGS: [&str; 2] = ["faultscope.callee", "faultscope.instance"];

/// The instance that handled a span, with everything that identifies it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handler {
    /// The service in lower case, since Zipkin's reporters send nothing else.
    pub service: String,
    /// The names of the instance, most specific first.
    pub(super) names: Vec<(&'static str, String)>,
    /// The address it listens on, under which Prometheus may have scraped it.
    pub(super) address: Option<String>,
}

impl Handler {
    /// The handler of a span: the called instance if the mesh recorded it, otherwise the instance that reported it.
    pub fn from_span(span: &ReportedSpan) -> Option<Self> {
        if let Some(instance) = MESH_TAGS.iter().find_map(|key| span.tag(key)?.parse::<InstanceId>().ok()) {
            return Some(Self::from(&instance));
        }
        if span.tag("faultscope.wire").is_some() {
            // The callee of a call that reached nobody, or somebody outside.
            return None;
        }
        let service = span.local.service.as_deref()?.to_lowercase();
        let name = |key: &&'static str| Some((*key, span.tag(key)?.to_owned()));
        let names = INSTANCE_LABELS.iter().filter_map(name).collect();
        let ip = span.local.ipv4.or(span.local.ipv6);
        let address = ip.zip(span.local.port).map(|at| std::net::SocketAddr::from(at).to_string());
        Some(Self { service, names, address })
    }

    /// The instance id, if a platform may have measured it under that id.
    pub fn instance(&self) -> Option<InstanceId> {
        self.names.iter().find(|(key, _)| *key == INSTANCE_LABELS[0])?.1.parse().ok()
    }

    /// The most specific name.
    pub(super) fn name(&self) -> Option<&str> {
        self.names.first().map(|(_, name)| name.as_str())
    }
}

impl From<&InstanceId> for Handler {
    fn from(instance: &InstanceId) -> Self {
        let names = vec![(INSTANCE_LABELS[0], instance.to_string())];
        Self { service: instance.service.as_str().to_lowercase(), names, address: None }
    }
}

/// Whether two names can be compared. A scraper fills in the address for an instance that reports no name; that
/// does not make it another instance than the one that calls itself `order-7f3a`.
pub(super) fn comparable(one: &str, other: &str) -> bool {
    is_address(one) == is_address(other)
}

fn is_address(name: &str) -> bool {
    name.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
}
