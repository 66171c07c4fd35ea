//! The failing circumstance as a running or recorded system shows it (Zhou et al. 2019, section 3).
//!
//! [`from_run`] and [`from_calls`] read it from recorded calls, [`from_containers`] from what an engine
//! says about the containers of a project; [`write()`] puts it into the text of an application file.

mod containers;
mod series;
mod write;

pub use containers::{Container, from_containers};
pub use series::{SeenCall, calls_of_reports, calls_of_spans};
pub use write::{CannotWrite, section, write};

use std::collections::BTreeMap;

use serde::Serialize;

use crate::application::Application;
use crate::circumstance::Circumstance;
use crate::ids::{InstanceId, ServiceName};
use crate::run::Run;
use crate::span::Span;

/// What was seen.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Captured {
    /// The failing circumstance.
    pub failing: Circumstance,
    /// Versions that the failing circumstance names and the application file does not have: their images.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub images: BTreeMap<ServiceName, CapturedImage>,
    /// What was seen and is not in it, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// A version that runs and that the application file does not know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CapturedImage {
    /// The name it gets.
    pub version: String,
    /// Its image.
    pub image: String,
}

/// The circumstance of a recorded run: what it was deployed with, and what its calls showed.
pub fn from_run(application: &Application, run: &Run, spans: &[Span]) -> Captured {
    let mut captured = from_calls(application, &calls_of_spans(spans));
    let seen = instances(spans.iter().flat_map(|s| s.callee_instance.iter().chain([&s.caller])));
    let mut failing = run.circumstance.clone();
    for (service, count) in seen {
        let known = failing.instances_of(&service);
        if application.services.contains_key(&service) && count > known.max(1) {
            failing.instances.insert(service, count);
        }
    }
    // An order that was imposed is known better than one that was seen.
    for order in std::mem::take(&mut captured.failing.sequence) {
        if !failing.sequence.iter().any(|o| o.from == order.from && o.handling == order.handling) {
            failing.sequence.push(order);
        }
    }
    Captured { failing, ..captured }
}

/// The orders of overlapping calls.
pub fn from_calls(application: &Application, calls: &[SeenCall]) -> Captured {
    let mut captured = Captured::default();
    series::add(application, calls, &mut captured);
    captured
}

/// Lays what was seen over what a file says already: what was seen wins.
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

/// How many instances of each service took part.
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
