//! Captures the failing circumstance from a running or recorded system (Zhou et al. 2019, section 3).
//!
//! [`from_run`] and [`from_calls`] read it from recorded calls, [`from_containers`] from what a container engine
//! reports about a project; [`write()`] puts it into the text of an application file.

mod containers;
mod series;
mod write;

pub use containers::{Container, from_containers};
pub use series::{
    NestedCall, RecordedOrders, nested_calls_of_reports, nested_calls_of_spans, recorded_orders,
};
pub use write::{LayoutError, section, write};

use std::collections::BTreeMap;

use serde::Serialize;

use crate::application::Application;
use crate::circumstance::Circumstance;
use crate::ids::{InstanceId, ServiceName};
use crate::run::Run;
use crate::span::Span;

/// A circumstance that was observed, and what could not be made part of it.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Captured {
    /// The failing circumstance.
    pub failing: Circumstance,
    /// Images of versions that the failing circumstance names and the application file lacks.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub images: BTreeMap<ServiceName, CapturedImage>,
    /// What was observed but left out, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// A running version that the application file lacks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CapturedImage {
    /// The name given to it.
    pub version: String,
    /// The image it runs.
    pub image: String,
}

/// The circumstance of a recorded run: what it was deployed with, and what its calls show.
pub fn from_run(application: &Application, run: &Run, spans: &[Span]) -> Captured {
    let mut captured = from_calls(application, &nested_calls_of_spans(spans));
    let seen = instances(spans.iter().flat_map(|s| s.callee_instance.iter().chain([&s.caller])));
    let mut failing = run.circumstance.clone();
    for (service, count) in seen {
        let known = failing.instances_of(&service);
        if application.services.contains_key(&service) && count > known.max(1) {
            failing.instances.insert(service, count);
        }
    }
    failing.impose(std::mem::take(&mut captured.failing.sequence));
    Captured { failing, ..captured }
}

/// The circumstance that recorded calls show: the orders of overlapping calls.
pub fn from_calls(application: &Application, calls: &[NestedCall]) -> Captured {
    let mut captured = Captured::default();
    series::add(application, calls, &mut captured);
    captured
}

/// Merges an observed circumstance over the one in the file; what was observed wins.
pub fn over(seen: &Circumstance, before: &Circumstance) -> Circumstance {
    let mut merged = before.clone();
    if seen.nodes != 1 {
        merged.nodes = seen.nodes;
    }
    merged.instances.extend(seen.instances.clone());
    merged.versions.extend(seen.versions.clone());
    for (service, items) in &seen.config {
        merged.config.entry(service.clone()).or_default().extend(items.clone());
    }
    for order in &seen.sequence {
        merged.sequence.retain(|o| o.from != order.from || o.handling != order.handling);
        merged.sequence.push(order.clone());
    }
    merged
}

/// Counts the instances of each service.
fn instances<'a>(seen: impl Iterator<Item = &'a InstanceId>) -> BTreeMap<ServiceName, u32> {
    let mut counts: BTreeMap<ServiceName, u32> = BTreeMap::new();
    for instance in seen.filter(|i| i.service.as_str() != ServiceName::TEST) {
        let count = counts.entry(instance.service.clone()).or_default();
        *count = (*count).max(instance.ordinal);
    }
    counts
}

#[cfg(test)]
mod tests;
