//! Makes sure of what was found: failures that were chance, perturbations that were never carried out, and
//! others at the same receiver that a defect hid.

use std::collections::BTreeSet;

use faultscope_model::perturbation::{Kind, Perturbation};
use faultscope_model::{DeltaSet, Outcome, Run};
use faultscope_search::resilience::{Candidate, Targets};
use faultscope_search::{Cause, Fixed, Proof};

use super::baseline::{FLAKY_TRIES, must_fail};
use super::explore::{Explorer, Searched, Tested};
use super::report::Flaky;
use crate::error::EngineError;

/// How often a test with defects is run without perturbations once more.
const ALONE: u32 = 3;

/// How often in a row a defect must fail again.
const AGAIN: u32 = 2;

/// The most perturbations that are tried alone because no trial carried them out.
const MAX_MISSED: usize = 32;

/// The most others at a receiver that are tried alone for each defect.
const MAX_SIBLINGS: usize = 8;

impl Explorer<'_> {
    /// Runs the test without perturbations and each defect again. When the test fails by itself it is flaky:
    /// says how often it did. What failed once and then passed is no defect.
    pub(super) async fn confirm(&mut self, tested: &mut Tested) -> Result<Option<Flaky>, EngineError> {
        if tested.report.defects.is_empty() || tested.stopped.is_some() {
            return Ok(None);
        }
        let known_flaky = tested.report.flaky.is_some();
        if !known_flaky && let Some(flaky) = self.alone(ALONE, tested).await? {
            return Ok(Some(flaky));
        }
        let mut doubtful = Vec::new();
        for tolerant in [false, true] {
            let of = |defect: &super::Defect| {
                defect.perturbations.iter().all(Perturbation::is_neutral) != tolerant
            };
            let defects = tested.report.defects.iter().filter(|defect| of(defect));
            let sets: Vec<Vec<Perturbation>> = defects.map(|defect| defect.perturbations.clone()).collect();
            let repeats = tested.must_fail.max(AGAIN);
            let finished = self.try_each(&sets, tolerant, repeats, tested).await?;
            let passed = finished.runs.iter().filter(|run| run.outcome == Outcome::Pass);
            doubtful.extend(passed.map(|run| (run.treatment.perturbations().to_vec(), run.id.clone())));
            self.show_alone(&finished.runs, tested).await?;
            if tested.stopped.is_some() {
                return Ok(None);
            }
        }
        if doubtful.is_empty() {
            return Ok(None);
        }
        let more = FLAKY_TRIES.saturating_sub(tested.report.trials.baseline as u32);
        if !known_flaky && let Some(flaky) = self.alone(more, tested).await? {
            return Ok(Some(flaky));
        }
        for (perturbations, run) in doubtful {
            tested.report.defects.retain(|defect| defect.perturbations != perturbations);
            let names: Vec<String> = perturbations.iter().map(ToString::to_string).collect();
            let note = format!("{} failed once and passed again ({run}): not counted", names.join(" and "));
            tested.report.notes.push(note);
        }
        Ok(None)
    }

    /// Lets repetitions show the defects that so far only a run with more perturbations shows: what else was done in
    /// that run would be taken for a part of them.
    async fn show_alone(&self, runs: &[Run], tested: &mut Tested) -> Result<(), EngineError> {
        let mut defects = std::mem::take(&mut tested.report.defects);
        for defect in &mut defects {
            if tested.shown_beside.contains(&defect.perturbations)
                && self.describe_defect(defect, runs, tested).await?
            {
                tested.shown_beside.remove(&defect.perturbations);
            }
        }
        tested.report.defects = defects;
        Ok(())
    }

    /// Runs a test without perturbations; says how often it failed, if it did.
    async fn alone(&mut self, times: u32, tested: &mut Tested) -> Result<Option<Flaky>, EngineError> {
        let nothing = vec![Vec::new(); times as usize];
        let finished = self.try_each(&nothing, false, 1, tested).await?;
        let trials = &mut tested.report.trials;
        trials.confirming -= finished.runs.len();
        trials.baseline += finished.runs.len();
        let fails = |outcome: &Outcome| matches!(outcome, Outcome::Fail { .. });
        let failed = finished.runs.iter().filter(|run| fails(&run.outcome)).count() as u32;
        let tried = trials.baseline as u32;
        Ok((failed > 0).then(|| Flaky { failed, tried, must_fail: must_fail(failed, tried) }))
    }

    /// Tries alone what no trial carried out: beside others it may have had no chance.
    pub(super) async fn missed_alone(
        &mut self,
        targets: &Targets,
        tested: &mut Tested,
    ) -> Result<(), EngineError> {
        let found = &tested.found;
        let never = |p: &&Perturbation| {
            let is_missed = found.missed.contains_key(p) && !found.applied.contains(p);
            // Services that restart together may miss what each alone would do to the other.
            (is_missed || p.target.is_whole()) && !found.alone.contains(p)
        };
        let all = targets.candidates.iter().map(|candidate| &candidate.perturbation);
        let sets: Vec<_> = all.filter(never).take(MAX_MISSED).map(|p| vec![p.clone()]).collect();
        let finished = self.try_each(&sets, false, tested.must_fail, tested).await?;
        for run in finished.runs.iter().filter(|run| matches!(run.outcome, Outcome::Fail { .. })) {
            let cause = Cause { proof: Proof::Minimal, ..Cause::default() };
            self.add(run.treatment.perturbations().to_vec(), &cause, &finished.runs, tested).await?;
        }
        Ok(())
    }

    /// Tries outages that begin during the test, one by one: two at once say no more about either.
    pub(super) async fn outages_during(
        &mut self,
        outages: &[Perturbation],
        tested: &mut Tested,
    ) -> Result<(), EngineError> {
        let sets: Vec<_> = outages.iter().map(|outage| vec![outage.clone()]).collect();
        let finished = self.try_each(&sets, true, tested.must_fail, tested).await?;
        let trials = &mut tested.report.trials;
        trials.confirming -= finished.runs.len();
        trials.changing += finished.runs.len();
        let mut is_known = BTreeSet::new();
        for run in finished.runs.iter().filter(|run| matches!(run.outcome, Outcome::Fail { .. })) {
            let perturbations = run.treatment.perturbations().to_vec();
            // A flaky test has several runs of one set.
            if is_known.insert(perturbations.clone()) {
                let cause = Cause { proof: Proof::Minimal, ..Cause::default() };
                self.add(perturbations, &cause, &finished.runs, tested).await?;
            }
        }
        Ok(())
    }

    /// A defect hides others of its kind at the same receiver, as none of them can be tried together with it:
    /// each is tried alone, and what breaks the test stands with the defect.
    pub(super) async fn siblings(
        &mut self,
        targets: &Targets,
        tested: &mut Tested,
    ) -> Result<(), EngineError> {
        let known = |p: &Perturbation| targets.candidates.iter().find(|c| c.perturbation == *p);
        let class = |c: &Candidate| (c.actor, c.perturbation.kind);
        let mut asked: Vec<(usize, Perturbation)> = Vec::new();
        let mut n_left = 0;
        for (place, defect) in tested.report.defects.iter().enumerate() {
            let [only] = defect.perturbations.as_slice() else { continue };
            let Some(found) = known(only) else { continue };
            let is_open = |p: &Perturbation| {
                let reported = tested.report.defects.iter().any(|defect| defect.perturbations.contains(p));
                let known = tested.found.tolerated.contains(p) || tested.found.alone.contains(p);
                !reported && !known && asked.iter().all(|(_, other)| other != p)
            };
            let same = targets.candidates.iter().filter(|c| class(c) == class(found));
            let open: Vec<_> = same.map(|c| c.perturbation.clone()).filter(is_open).collect();
            n_left += open.len().saturating_sub(MAX_SIBLINGS);
            asked.extend(open.into_iter().take(MAX_SIBLINGS).map(|p| (place, p)));
        }
        let sets: Vec<_> = asked.iter().map(|(_, p)| vec![p.clone()]).collect();
        let repeats = tested.must_fail.max(AGAIN);
        let finished = self.try_each(&sets, false, repeats, tested).await?;
        for run in finished.runs.iter().filter(|run| matches!(run.outcome, Outcome::Fail { .. })) {
            let failing = run.treatment.perturbations().to_vec();
            let place = asked.iter().find(|(_, p)| failing.contains(p)).map(|(place, _)| *place);
            if let Some(defect) = place.and_then(|place| tested.report.defects.get_mut(place)) {
                defect.also.push(failing);
            }
        }
        tested.report.defects.iter_mut().for_each(|defect| defect.also.sort());
        if n_left > 0 {
            let note =
                format!("{n_left} more perturbations at the receivers of these defects were not tried alone");
            tested.report.notes.push(note);
        }
        Ok(())
    }

    /// Tries each of some sets of perturbations; those that fail are repeated until they have failed `repeats` times in a row.
    async fn try_each(
        &mut self,
        sets: &[Vec<Perturbation>],
        tolerant: bool,
        repeats: u32,
        tested: &mut Tested,
    ) -> Result<Searched, EngineError> {
        let mut book = Targets::default();
        let mut all: Vec<&Perturbation> = sets.iter().flatten().collect();
        all.sort_unstable();
        all.dedup();
        book.candidates = all.into_iter().map(listed).collect();
        let sets: Vec<DeltaSet> = sets.iter().map(|set| book.set_of(set)).collect();
        if sets.is_empty() || tested.stopped.is_some() {
            return Ok(Searched::default());
        }
        let before = std::mem::replace(&mut tested.must_fail, repeats);
        let finished = self.run(Some(&book), tolerant, &mut Fixed::new(sets), tested).await;
        tested.must_fail = before;
        let finished = finished?;
        tested.report.trials.confirming += finished.runs.len();
        tested.stopped = finished.stopped;
        Ok(finished)
    }
}

/// A candidate that stands only for its perturbation.
fn listed(perturbation: &Perturbation) -> Candidate {
    let (from, message) = (String::new(), String::new());
    Candidate { perturbation: perturbation.clone(), from, message, actor: 0, turn: 0 }
}

/// What a passing run with only these says: each of them is tolerated. Of several kinds one may cover up for another.
pub(super) fn tolerated(asked: &[Perturbation]) -> &[Perturbation] {
    let kinds = |kind: Kind| asked.iter().all(|p| p.kind == kind);
    if asked.first().is_some_and(|first| kinds(first.kind)) { asked } else { &[] }
}
