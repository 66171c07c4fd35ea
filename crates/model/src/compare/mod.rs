//! Two deployments of one application, a good and a bad one: every difference becomes a delta.
//!
//! [`compare`] merges them: what they share becomes the application, what differs becomes its simplest circumstance
//! (as in the good one) and its failing circumstance (as in the bad one). Whatever works on an application then
//! works on a comparison, too: listing deltas, reducing, trying one of them.

mod service;

use indexmap::IndexMap;

use crate::application::{Application, Constraint};
use crate::circumstance::Circumstance;
use crate::ids::ServiceName;

/// Two deployments merged into one application.
#[derive(Debug, Clone, PartialEq)]
pub struct Compared {
    /// The application whose simplest circumstance is the good one and whose failing one is the bad one.
    pub application: Application,
    /// Differences that cannot become deltas, each with the value that is used instead.
    pub notes: Vec<String>,
}

/// Two applications that cannot be merged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct CompareError {
    /// Why, as a fragment.
    pub problem: String,
    /// What to change.
    pub hint: String,
}

/// Merges two applications. Each is taken in its failing circumstance, which equals the simplest one where the file
/// says nothing: an imported file describes how it is deployed.
pub fn compare(good: &Application, bad: &Application) -> Result<Compared, CompareError> {
    let mut notes = Vec::new();
    let mut merged = Application {
        services: IndexMap::new(),
        simplest: Circumstance { nodes: good.failing.nodes, ..Circumstance::default() },
        failing: Circumstance { nodes: bad.failing.nodes, ..Circumstance::default() },
        constraints: Vec::new(),
        ..bad.clone()
    };
    merged.descriptors.merge(good.descriptors.clone());
    let names: Vec<ServiceName> = bad
        .services
        .keys()
        .chain(good.services.keys().filter(|n| !bad.services.contains_key(*n)))
        .cloned()
        .collect();
    if !bad.services.keys().any(|name| good.services.contains_key(name)) {
        return Err(CompareError {
            problem: "the two have no service in common".into(),
            hint: "compare two deployments of the same application".into(),
        });
    }
    for name in &names {
        service::lay_over(name, good, bad, &mut merged, &mut notes)?;
    }
    for external in &good.externals {
        match merged.externals.iter().find(|e| e.host == external.host) {
            None if names.contains(&external.service) => notes.push(format!(
                "`{}` is external in the good file and a service in the bad one; it is deployed as a service in both",
                external.host
            )),
            None => merged.externals.push(external.clone()),
            Some(own) if own != external => {
                notes.push(format!("the external host `{}` differs; the bad file's settings are used", external.host));
            }
            Some(_) => {}
        }
    }
    merged.externals.retain(|external| !merged.services.contains_key(&external.service));
    merged.simplest.sequence = good.failing.sequence.clone();
    merged.failing.sequence = bad.failing.sequence.clone();
    for order in &good.failing.sequence {
        if !bad.failing.sequence.iter().any(|o| o.from == order.from && o.handling == order.handling) {
            notes.push(format!(
                "only the good file orders the calls of {} {}; they stay in request order",
                order.from, order.handling
            ));
        }
    }
    note_common(good, bad, &mut notes);
    if merged.tests.is_empty() {
        merged.tests.clone_from(&good.tests);
        merged.failing_test.clone_from(&good.failing_test);
    }
    no_clash(&merged)?;
    merged.constraints = constraints(good, bad, &merged, &mut notes);
    Ok(Compared { application: merged, notes })
}

/// Notes differences of the application as a whole, which no circumstance can express.
fn note_common(good: &Application, bad: &Application, notes: &mut Vec<String>) {
    let differing = [
        ("`setup`", good.setup != bad.setup),
        ("`reset`", good.reset != bad.reset),
        ("`isolation`", good.isolation != bad.isolation),
        ("`links`", good.links != bad.links),
        ("`gate_wait`", good.gate_wait != bad.gate_wait),
        ("`record`", good.record != bad.record),
        ("`bundle`", good.bundle != bad.bundle),
    ];
    for (what, _) in differing.iter().filter(|(_, differs)| *differs) {
        notes.push(format!("{what} differs; the bad file's is used"));
    }
}

/// Checks that a host name means the same service in every circumstance.
fn no_clash(merged: &Application) -> Result<(), CompareError> {
    let mut owners: IndexMap<&str, &ServiceName> = IndexMap::new();
    for (name, service) in &merged.services {
        for host in service.aliases.iter().map(String::as_str).chain([name.as_str()]) {
            if let Some(other) = owners.insert(host, name).filter(|other| *other != name) {
                return Err(CompareError {
                    problem: format!(
                        "the host name `{host}` means `{other}` in one and `{name}` in the other"
                    ),
                    hint: "rename the alias in one of them".into(),
                });
            }
        }
    }
    Ok(())
}

/// Keeps the constraints whose deltas exist in the comparison, and notes the others.
fn constraints(
    good: &Application,
    bad: &Application,
    merged: &Application,
    notes: &mut Vec<String>,
) -> Vec<Constraint> {
    let mut kept: Vec<Constraint> = Vec::new();
    for constraint in bad.constraints.iter().chain(&good.constraints) {
        if kept.contains(constraint) {
            continue;
        }
        let mut with = Application { constraints: kept.clone(), ..merged.clone() };
        with.constraints.push(constraint.clone());
        match with.space() {
            Ok(_) => kept.push(constraint.clone()),
            Err(error) => notes.push(format!("a constraint is ignored: {error}")),
        }
    }
    kept
}

#[cfg(test)]
mod tests;
