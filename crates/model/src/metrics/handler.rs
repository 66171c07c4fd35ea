//! Who handled a span, as spans and series name instances.

use crate::ids::InstanceId;
use crate::trace::ReportedSpan;

/// Labels and tags that name an instance, the surest first; dots are underscores where Prometheus was between.
pub(super) const NAMES: [&str; 7] =
    ["service.instance.id", "k8s.pod.uid", "k8s.pod.name", "container.id", "pod", "instance", "host.name"];

/// Tags by which the mesh and the collector of a slot name instances.
const OURS: [&str; 2] = ["faultscope.callee", "faultscope.instance"];

/// The instance that did the work of a span, by all that is known of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handler {
    /// Its service, in lower case: Zipkin's reporters know no other.
    pub service: String,
    /// Its names, the surest first.
    pub(super) names: Vec<(&'static str, String)>,
    /// Where it listens, which may be where it tells its metrics.
    pub(super) address: Option<String>,
}

impl Handler {
    /// Who handled a span: the called instance where the mesh tells of a call, else whoever reports it.
    pub fn of(span: &ReportedSpan) -> Option<Self> {
        if let Some(instance) = OURS.iter().find_map(|key| span.tag(key)?.parse::<InstanceId>().ok()) {
            return Some(Self::from(&instance));
        }
        if span.tag("faultscope.wire").is_some() {
            // The other side of a call that reached nobody, or somebody outside.
            return None;
        }
        let service = span.local.service.as_deref()?.to_lowercase();
        let name = |key: &&'static str| Some((*key, span.tag(key)?.to_owned()));
        let names = NAMES.iter().filter_map(name).collect();
        let ip = span.local.ipv4.or(span.local.ipv6);
        let address = ip.zip(span.local.port).map(|at| std::net::SocketAddr::from(at).to_string());
        Some(Self { service, names, address })
    }

    /// The instance under which a platform may have measured it.
    pub fn instance(&self) -> Option<InstanceId> {
        self.names.iter().find(|(key, _)| *key == NAMES[0])?.1.parse().ok()
    }

    /// Its surest name.
    pub(super) fn name(&self) -> Option<&str> {
        self.names.first().map(|(_, name)| name.as_str())
    }
}

impl From<&InstanceId> for Handler {
    fn from(instance: &InstanceId) -> Self {
        let names = vec![(NAMES[0], instance.to_string())];
        Self { service: instance.service.as_str().to_lowercase(), names, address: None }
    }
}

/// Whether two names are of one kind. Where nobody says a name, whoever scrapes gives the address that it asked,
/// which is no other instance than the one that calls itself `order-7f3a`.
pub(super) fn comparable(one: &str, other: &str) -> bool {
    is_address(one) == is_address(other)
}

fn is_address(name: &str) -> bool {
    name.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
}
