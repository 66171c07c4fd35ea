//! From what a search stands at to what people are told.

use faultscope_model::{DeltaSet, Outcome, Run, Space};
use faultscope_search::{Cause, Search, TaskEnd};

use super::{DebugReport, FoundCause, NamedDelta, Otherwise, Rest, table};

/// Puts what a search has found into the report.
pub(super) fn fill(report: &mut DebugReport, space: &Space, search: &dyn Search, runs: &[Run]) {
    let standing = search.standing();
    let named = |set: &DeltaSet| -> Vec<NamedDelta> {
        let mut deltas: Vec<_> = set.iter().map(|d| NamedDelta::of(&space.deltas[d])).collect();
        deltas.sort_by(|a, b| (a.dimension, &a.name).cmp(&(b.dimension, &b.name)));
        deltas
    };
    // What fails only at times passes at times.
    let failed = |run: &&Run| matches!(run.outcome, Outcome::Fail { .. });
    let run_of =
        |set: &DeltaSet| runs.iter().filter(failed).find(|run| &run.deltas == set).map(|run| run.id.clone());
    let cause = |cause: &Cause| FoundCause {
        deltas: named(if cause.core.is_empty() { &cause.witness } else { &cause.core }),
        witness: named(&cause.witness),
        minimal: matches!(
            cause.proof,
            faultscope_search::Proof::Minimal | faultscope_search::Proof::MinimalDespiteUnresolved
        ),
        confirmations: cause.confirmations.max(1),
        run: run_of(&cause.witness),
        otherwise: otherwise(space, &cause.witness, runs),
        reproduce: None,
    };
    report.causes = standing.causes.iter().map(cause).collect();
    if report.causes.is_empty() && search.is_done() {
        // A search for one cause answers with the smallest set that failed.
        let only = Cause { witness: standing.best.clone(), proof: standing.proof, ..Cause::default() };
        report.causes.push(cause(&only));
    }
    report.best = named(&standing.best);
    report.none_left = standing.none_left;
    report.rounds = table::rounds_of(search.rounds());
    (report.proof, report.unproven, report.belief) = (standing.proof, standing.unproven, standing.belief);
    report.trials.finished = runs.len();
    report.trials.reused = search.rounds().iter().map(|round| round.count(TaskEnd::Reused)).sum();
    report.trials.unresolved =
        runs.iter().filter(|r| matches!(r.outcome, Outcome::Unresolved { .. })).count();
}

/// What else was seen where one delta of a failing set was left out.
fn otherwise(space: &Space, witness: &DeltaSet, runs: &[Run]) -> Vec<Otherwise> {
    let one = |delta: usize| {
        let mut less = witness.clone();
        less.remove(delta);
        runs.iter().filter(|run| run.deltas == less).find_map(|run| match &run.outcome {
            Outcome::Unresolved { reason } => {
                let without = space.deltas.get(delta)?.name.clone();
                Some(Otherwise { without, reason: reason.clone(), run: run.id.clone() })
            }
            _ => None,
        })
    };
    witness.iter().filter_map(one).collect()
}

/// Why the deltas that no cause needs do not show that no further cause is left.
pub(super) fn rest(space: &Space, causes: &[Cause], runs: &[Run]) -> Option<Rest> {
    let found = causes.iter().fold(DeltaSet::new(), |all, cause| all.union(&cause.witness));
    let others = space.full().difference(&found);
    if causes.is_empty() || others.is_empty() {
        return None;
    }
    let Ok(rest) = space.close(&others) else { return Some(Rest::Bound) };
    if causes.iter().any(|cause| cause.witness.is_subset(&rest)) {
        return Some(Rest::Bound);
    }
    let unresolved = |run: &Run| match &run.outcome {
        Outcome::Unresolved { reason } if run.deltas == rest => {
            Some(Rest::Unresolved { reason: reason.clone(), run: run.id.clone() })
        }
        _ => None,
    };
    runs.iter().rev().find_map(unresolved)
}
