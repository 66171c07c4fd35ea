//! Brings what is one defect together: the same calls, perturbed in a like way, that break a test at the same place.

use faultscope_model::perturbation::{Kind, Perturbation};

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
    let mut sets = std::iter::once(&earlier.perturbations).chain(&earlier.also);
    place(earlier) == place(later) && sets.any(|set| is_alike(set, &later.perturbations))
}

/// Whether two sets do the like to the same calls.
fn is_alike(one: &[Perturbation], other: &[Perturbation]) -> bool {
    let has = |set: &[Perturbation], wanted: &Perturbation| {
        let is_of_service = |p: &Perturbation| p.kind == Kind::Outage && wanted.kind == Kind::Outage;
        set.iter().any(|p| match is_of_service(p) {
            // The same service, at whatever moment.
            true => p.target.receiver() == wanted.target.receiver(),
            false => p.target == wanted.target && is_akin(p.kind, wanted.kind),
        })
    };
    one.len() == other.len() && one.iter().all(|p| has(other, p)) && other.iter().all(|p| has(one, p))
}

/// Whether two kinds put the same to the test: that a request may come twice, or that it may have no good answer. A
/// state that a restart loses has nothing to do with either.
fn is_akin(one: Kind, other: Kind) -> bool {
    const TWICE: [Kind; 2] = [Kind::Duplicate, Kind::LostAnswer];
    const NO_ANSWER: [Kind; 5] =
        [Kind::Error, Kind::ErrorFirst, Kind::LostAnswer, Kind::Timeout, Kind::Truncate];
    let both = |kinds: &[Kind]| kinds.contains(&one) && kinds.contains(&other);
    one == other || both(&TWICE) || both(&NO_ANSWER)
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
            defect(&["restart a GET /x"], 1),
            defect(&["error a GET /x", "error b GET /z"], 1),
            defect(&["error b GET /z", "lost_answer a GET /x"], 1),
            defect(&["outage redis"], 3),
            defect(&["outage redis at call 2"], 3),
            defect(&["outage stock at call 2"], 3),
        ];
        let gathered = gather(found);
        let also: Vec<usize> = gathered.iter().map(|defect| defect.also.len()).collect();
        assert_eq!(
            also,
            [2, 0, 0, 1, 1, 0],
            "another place, a lost state and another set of calls are other defects"
        );
    }
}
