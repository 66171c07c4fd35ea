//! From the result of a search to the report.

use std::sync::Arc;

use faultscope_model::space::Dimension;
use faultscope_model::{DeltaSet, Outcome, Space};
use faultscope_search::{Cause, Problem, Search, Standing, TaskEnd};

use super::{Confirmation, DebugReport, FoundCause, NamedDelta, Otherwise, Rest, table};
use crate::driver::SetRun;

/// Puts what a search has found into the report.
pub(super) fn fill(
    report: &mut DebugReport,
    space: &Arc<Space>,
    search: &dyn Search,
    (runs, seen): (&[SetRun], &[SetRun]),
) {
    let problem = Problem::from_space(space);
    let standing = search.standing();
    let named = |set: &DeltaSet| -> Vec<NamedDelta> {
        let mut deltas: Vec<_> = set.iter().map(|d| NamedDelta::from_delta(&space.deltas[d])).collect();
        deltas.sort_by(|a, b| (a.dimension, &a.name).cmp(&(b.dimension, &b.name)));
        deltas
    };
    // What fails only at times passes at times.
    let failed = |run: &&SetRun| matches!(run.outcome, Outcome::Fail { .. });
    // The first that failed, or the first that waited for its services as long as it may.
    let run_of = |set: &DeltaSet| {
        let own = seen.iter().filter(failed).filter(|run| run.set == *set);
        own.min_by_key(|run| run.run.evidence.is_cut()).map(|run| run.run.id.clone())
    };
    let cause = |cause: &Cause| FoundCause {
        deltas: named(if cause.core.is_empty() { &cause.witness } else { &cause.core }),
        witness: named(&cause.witness),
        minimal: matches!(
            cause.proof,
            faultscope_search::Proof::Minimal | faultscope_search::Proof::MinimalDespiteUnresolved
        ),
        not_reduced: is_unreduced(&problem, &cause.witness, seen),
        tied: tied(&problem, space, &cause.witness),
        confirmation: Confirmation::default(),
        run: run_of(&cause.witness),
        otherwise: otherwise(space, &cause.witness, seen),
        reproduce: None,
    };
    report.causes = found(search).iter().map(cause).collect();
    report.best = named(&standing.best);
    report.none_left = standing.none_left;
    report.rounds = table::rounds_of(search.rounds());
    (report.proof, report.unproven, report.belief) = (standing.proof, standing.unproven, standing.belief);
    report.trials.finished = runs.len();
    report.trials.reused = search.rounds().iter().map(|round| round.count(TaskEnd::Reused)).sum();
    report.trials.unresolved =
        runs.iter().filter(|shown| matches!(shown.run.outcome, Outcome::Unresolved { .. })).count();
}

/// The causes that a search has found. A search for one cause answers with the smallest set that failed.
fn found(search: &dyn Search) -> Vec<Cause> {
    let Standing { causes, best, proof, .. } = search.standing();
    if causes.is_empty() && search.is_done() {
        return vec![Cause { witness: best, proof, ..Cause::default() }];
    }
    causes
}

/// The failing sets of those causes.
pub(super) fn causes(search: &dyn Search) -> Vec<DeltaSet> {
    found(search).into_iter().map(|cause| cause.witness).collect()
}

/// Whether no smaller set of several deltas was seen to pass, because something else happened in all of them.
fn is_unreduced(problem: &Problem, witness: &DeltaSet, runs: &[SetRun]) -> bool {
    let neighbours = problem.neighbours(witness);
    let unresolved = |set: &DeltaSet| {
        let mut own = runs.iter().filter(|run| run.set == *set).peekable();
        own.peek().is_some() && own.all(|run| matches!(run.outcome, Outcome::Unresolved { .. }))
    };
    neighbours.len() > 1 && neighbours.iter().all(unresolved)
}

/// The deltas that cannot be left out alone, since others bring them back. Pairs of calls are told apart by the core.
fn tied(problem: &Problem, space: &Space, witness: &DeltaSet) -> Vec<String> {
    let is_tied = |delta: &usize| problem.one_less(witness, *delta).is_none();
    let named = witness.iter().filter(is_tied).filter_map(|delta| space.deltas.get(delta));
    named.filter(|delta| delta.dimension != Dimension::Sequence).map(|delta| delta.name.clone()).collect()
}

/// What else was seen where one delta of a failing set was left out.
fn otherwise(space: &Space, witness: &DeltaSet, runs: &[SetRun]) -> Vec<Otherwise> {
    let one = |delta: usize| {
        let mut less = witness.clone();
        less.remove(delta);
        runs.iter().filter(|shown| shown.set == less).find_map(|SetRun { run, .. }| match &run.outcome {
            Outcome::Unresolved { reason } => {
                let without = space.deltas.get(delta)?.name.clone();
                Some(Otherwise { without, reason: reason.clone(), run: run.id.clone() })
            }
            _ => None,
        })
    };
    witness.iter().filter_map(one).collect()
}

/// All deltas that no cause needs, as they are deployed together; none where they cannot be or where there are none.
pub(super) fn rest_of(space: &Space, causes: &[DeltaSet]) -> Option<DeltaSet> {
    let found = causes.iter().fold(DeltaSet::new(), |all, cause| all.union(cause));
    space.close(&space.full().difference(&found)).ok().filter(|rest| !rest.is_empty())
}

/// Why the deltas that no cause needs do not show that no further cause is left.
pub(super) fn rest(space: &Space, causes: &[Cause], runs: &[SetRun]) -> Option<Rest> {
    let found = causes.iter().fold(DeltaSet::new(), |all, cause| all.union(&cause.witness));
    let others = space.full().difference(&found);
    if causes.is_empty() || others.is_empty() {
        return None;
    }
    let Ok(rest) = space.close(&others) else { return Some(Rest::Bound) };
    if causes.iter().any(|cause| cause.witness.is_subset(&rest)) {
        return Some(Rest::Bound);
    }
    let unresolved = |SetRun { set, run }: &SetRun| match &run.outcome {
        Outcome::Unresolved { reason } if *set == rest => {
            Some(Rest::Unresolved { reason: reason.clone(), run: run.id.clone() })
        }
        _ => None,
    };
    runs.iter().rev().find_map(unresolved)
}
