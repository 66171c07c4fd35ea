//! Requested perturbations that had no effect, and why.

use std::collections::{BTreeMap, BTreeSet};

use faultscope_mesh::MeshReports;
use faultscope_model::outcome::Unresolved;
use faultscope_model::perturbation::{Event, Kind, Perturbation};
use faultscope_model::run::Missed;
use faultscope_model::{Circumstance, NotApplied, Outcome};

use super::{PerturbedTests, TrialTrace};

/// A trial in which some perturbation had no effect shows nothing about the requested set.
pub(super) fn unresolved(trace: &TrialTrace, missed: &[Missed]) -> Option<Outcome> {
    let reason = match (&trace.unreadable, missed) {
        (Some(problem), _) => Unresolved::TraceUnreadable { problem: problem.clone() },
        (None, [first, rest @ ..]) => Unresolved::NotApplied {
            perturbation: first.perturbation.clone(),
            why: first.why.clone(),
            more: rest.len(),
        },
        (None, []) => return None,
    };
    Some(Outcome::Unresolved { reason })
}

/// The perturbations that neither the mesh nor the test's process carried out.
pub(super) fn missed(
    asked: &PerturbedTests,
    circumstance: &Circumstance,
    reports: &MeshReports,
    trace: &TrialTrace,
) -> Vec<Missed> {
    let mut applied: BTreeSet<&Perturbation> = BTreeSet::new();
    for event in &trace.messages {
        if let Event::Applied { perturbation } = event {
            applied.insert(perturbation);
        }
    }
    let rules: BTreeMap<u32, _> = reports.rules.iter().map(|hits| (hits.rule, hits)).collect();
    let mut missed = Vec::new();
    for (perturbation, rule) in asked.perturbations.iter().zip(&circumstance.perturbations) {
        if trace.disturbed.done.contains(perturbation) {
            continue;
        }
        if let Some(why) = trace.disturbed.missed.get(perturbation) {
            missed.push(Missed { perturbation: perturbation.clone(), why: why.clone() });
            continue;
        }
        let hits = rules.get(&rule.id);
        if applied.contains(perturbation) || hits.is_some_and(|hits| hits.applied > 0) {
            continue;
        }
        let why = match hits {
            Some(hits) if hits.matched > 0 => hits.note.clone().unwrap_or(NotApplied::CallEndedBefore),
            _ => reason_not_applied(perturbation, trace),
        };
        missed.push(Missed { perturbation: perturbation.clone(), why });
    }
    missed
}

/// The reason if the mesh has none.
fn reason_not_applied(perturbation: &Perturbation, trace: &TrialTrace) -> NotApplied {
    let is_it = |event: &Event| matches!(event, Event::Send { target: Some(target), .. } if *target == perturbation.target);
    let known = matches!(perturbation.kind, Kind::Duplicate | Kind::Restart);
    if let Some(problem) = &trace.unreadable {
        NotApplied::TraceUnreadable { problem: problem.clone() }
    } else if perturbation.target.is_message() && !known {
        NotApplied::UnknownToActors
    } else if trace.messages.iter().any(is_it) {
        NotApplied::AdapterSilent
    } else {
        NotApplied::NoSuchCall
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_applied_has_a_reason_that_helps() {
        let of = |text: &str| text.parse::<Perturbation>().unwrap();
        let event = Event::Send {
            from: String::new(),
            to: "b".into(),
            message: "Go".into(),
            send: 1,
            turn: None,
            at_least_once: true,
            target: Some(of("restart b.Go").target),
        };
        let seen = TrialTrace { messages: vec![event], ..TrialTrace::default() };
        assert_eq!(reason_not_applied(&of("restart b.Go"), &seen), NotApplied::AdapterSilent);
        assert_eq!(reason_not_applied(&of("lost_answer b.Go"), &seen), NotApplied::UnknownToActors);
        assert_eq!(reason_not_applied(&of("restart c.Go"), &seen), NotApplied::NoSuchCall);
        assert_eq!(reason_not_applied(&of("error shop GET /"), &seen), NotApplied::NoSuchCall);
        let broken = TrialTrace { unreadable: Some("line 1: x".into()), ..TrialTrace::default() };
        assert!(
            reason_not_applied(&of("restart b.Go"), &broken)
                .to_string()
                .ends_with("cannot be read: line 1: x")
        );
    }
}
