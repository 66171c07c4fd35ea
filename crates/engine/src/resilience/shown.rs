//! The run that shows a defect.

use std::collections::BTreeSet;
use std::time::Duration;

use faultscope_model::outcome::{Ending, Signature};
use faultscope_model::perturbation::Perturbation;
use faultscope_model::units::show_duration;
use faultscope_model::{Outcome, Run};

/// The failing run with the fewest perturbations that has all of these, and how it failed. What was asked for
/// and not carried out does not count: a test that dies of the first one never comes to the rest.
pub(super) fn failing_run<'r>(
    perturbations: &[Perturbation],
    runs: &'r [Run],
) -> Option<(&'r Run, &'r Signature)> {
    let wanted: BTreeSet<&Perturbation> = perturbations.iter().collect();
    let fits = |run: &'r Run| {
        let perturbed = run.perturbed.as_deref()?;
        let signature =
            [Some(&run.outcome), perturbed.shown.as_ref()].into_iter().flatten().find_map(|outcome| {
                match outcome {
                    Outcome::Fail { signature } => Some(signature),
                    _ => None,
                }
            })?;
        let missed: BTreeSet<&Perturbation> = perturbed.missed.iter().map(|m| &m.perturbation).collect();
        let carried: BTreeSet<&Perturbation> =
            run.treatment.perturbations().iter().filter(|asked| !missed.contains(asked)).collect();
        wanted.is_subset(&carried).then_some((carried.len(), missed.len(), run, signature))
    };
    let best = runs.iter().filter_map(fits).min_by_key(|(carried, missed, ..)| (*carried, *missed))?;
    Some((best.2, best.3))
}

/// How a run failed, as reports have it: one that took too long says how long it was given.
pub(super) fn describe_failure(signature: &Signature, within: Duration) -> Signature {
    let mut described = signature.clone();
    if described.ending == Ending::TimedOut {
        let said = format!("did not end within {}\n{}", show_duration(within), described.message);
        described.message = said.trim_end().to_owned();
    }
    described
}
