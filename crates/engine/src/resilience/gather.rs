//! Brings what is one defect together: the same calls, perturbed in other ways, that break a test at the same place.

use std::collections::BTreeSet;

use faultscope_model::perturbation::{Perturbation, TargetId};

use super::Defect;

/// Puts a defect below an earlier one that concerns the same calls and breaks the test at the same place. A consumer
/// that is not idempotent fails for a duplicate and for a lost answer: nobody mends that twice.
pub(super) fn gather(defects: Vec<Defect>) -> Vec<Defect> {
    let mut gathered: Vec<Defect> = Vec::new();
    for defect in defects {
        match gathered.iter_mut().find(|earlier| is_one(earlier, &defect)) {
            Some(earlier) => {
                earlier.also.push(defect.perturbations);
                earlier.also.extend(defect.also);
            }
            None => gathered.push(defect),
        }
    }
    gathered
}

fn is_one(earlier: &Defect, later: &Defect) -> bool {
    let place = |defect: &Defect| defect.signature.as_ref().map(|s| (s.test.clone(), s.ending));
    let wanted = targets(&later.perturbations);
    let sets = std::iter::once(&earlier.perturbations).chain(&earlier.also);
    place(earlier) == place(later) && sets.into_iter().any(|set| targets(set) == wanted)
}

fn targets(set: &[Perturbation]) -> BTreeSet<&TargetId> {
    set.iter().map(|perturbation| &perturbation.target).collect()
}

#[cfg(test)]
mod tests {
    use faultscope_model::outcome::{Ending, Signature};

    use super::*;

    fn defect(perturbations: &[&str], step: u32) -> Defect {
        let perturbations = perturbations.iter().map(|text| text.parse().unwrap()).collect();
        let message = format!("step {step} of {perturbations:?}");
        let signature = Some(Signature { test: "t".into(), message, ending: Ending::Step(step) });
        Defect { perturbations, signature, ..Defect::default() }
    }

    #[test]
    fn the_same_calls_that_break_the_same_place_are_one_defect() {
        let mut first = defect(&["duplicate a GET /x"], 1);
        first.also = vec![vec!["duplicate a GET /y".parse().unwrap()]];
        let found = vec![
            first,
            defect(&["lost_answer a GET /y"], 1),
            defect(&["lost_answer a GET /x"], 2),
            defect(&["error a GET /x", "error b GET /z"], 1),
            defect(&["error b GET /z", "lost_answer a GET /x"], 1),
        ];
        let gathered = gather(found);
        let also: Vec<usize> = gathered.iter().map(|defect| defect.also.len()).collect();
        assert_eq!(also, [2, 0, 1], "another place and another set of calls are other defects");
    }
}
