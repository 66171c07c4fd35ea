//! One search over the perturbations of a test: what its sets stand for, and what came of it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use faultscope_model::application::{TestBody, TestCase};
use faultscope_model::perturbation::{Event, Kind, Perturbation, TargetId};
use faultscope_model::{DeltaSet, NotApplied, Outcome, Treatment, TrialId};
use faultscope_search::Search;
use faultscope_search::resilience::{Clues, Targets};

use super::answers::different_answers;
use super::confirm::tolerated;
use super::ground::{rules, seen_calls};
use super::tally::{Finding, OutageResult, Shown, ShownWith};
use crate::drive::{PerturbedTests, Repetition, Unperturbed};
use crate::driver::Meaning;
use crate::error::EngineError;
use crate::session::Session;
use crate::trial::{FinishedTrial, TrialRequest};

/// With more perturbations than this nobody reads the messages of a failing run, so they are not kept.
const FEW: usize = 4;

/// What the sets of one search stand for.
pub(super) struct Phase<'a> {
    pub(super) session: &'a Arc<Session>,
    pub(super) test: &'a TestCase,
    /// Where the perturbations of a set are looked up; in the search itself when none.
    pub(super) targets: Option<&'a Targets>,
    /// Whether a degraded answer is good enough.
    pub(super) tolerant: bool,
    /// How often in a row a set must fail.
    pub(super) must_fail: u32,
    /// What callers see without perturbations.
    pub(super) usual: &'a Arc<HashMap<TargetId, String>>,
    /// Calls of the test itself that end in an error without perturbations, too.
    pub(super) expected: &'a BTreeSet<TargetId>,
    /// Operations of the test itself that do so.
    pub(super) failing: &'a BTreeSet<String>,
    /// What a second run of the test shows without perturbations.
    pub(super) repetition: Repetition,
    pub(super) found: &'a mut TestFindings,
}

/// What all searches over one test found out beside their answers.
#[derive(Debug, Default)]
pub(super) struct TestFindings {
    /// What was not carried out, and why.
    pub(super) missed: BTreeMap<Perturbation, NotApplied>,
    /// What was carried out at some time.
    pub(super) applied: BTreeSet<Perturbation>,
    /// What a run had alone.
    pub(super) alone: BTreeSet<Perturbation>,
    /// What a run passed with.
    pub(super) tolerated: BTreeSet<Perturbation>,
    /// What the test showed with each, in the smallest trial.
    pub(super) shown: BTreeMap<Perturbation, ShownWith>,
    /// What each outage did, in the smallest trial.
    pub(super) outages: BTreeMap<Perturbation, (usize, OutageResult)>,
    /// Everything that a search could try.
    pub(super) known: BTreeSet<Perturbation>,
    /// What was noticed beside defects, by call.
    pub(super) findings: BTreeMap<TargetId, Finding>,
    /// Calls that were tried again after an error.
    pub(super) retried: BTreeSet<TargetId>,
    /// Trials that failed after the test itself got an error: an honest failure, and no defect.
    pub(super) honest: usize,
    /// Messages of failing runs.
    pub(super) messages: BTreeMap<TrialId, Vec<Event>>,
}

impl Phase<'_> {
    pub(super) fn perturbations(&self, search: &dyn Search, set: &DeltaSet) -> Vec<Perturbation> {
        self.targets.map_or_else(|| search.perturbations(set), |targets| targets.perturbations(set))
    }
}

impl Meaning for Phase<'_> {
    fn request(&mut self, search: &dyn Search, set: &DeltaSet) -> Result<TrialRequest, EngineError> {
        let perturbations = self.perturbations(search, set);
        let known = Unperturbed {
            usual: self.usual.clone(),
            expected: self.expected.clone(),
            failing: self.failing.clone(),
            repetition: self.repetition,
        };
        Ok(request(self.session, self.test, perturbations, self.tolerant, known))
    }

    fn clues(&mut self, set: &DeltaSet, trial: &mut FinishedTrial) -> Option<Clues> {
        let trace = trial.trace.take().map(|trace| *trace).unwrap_or_default();
        let run = &trial.run;
        let perturbed = run.perturbed.as_ref()?;
        let missed: Vec<Perturbation> = perturbed.missed.iter().map(|m| m.perturbation.clone()).collect();
        for missed in &perturbed.missed {
            self.found.missed.insert(missed.perturbation.clone(), missed.why.clone());
        }
        let all = run.treatment.perturbations();
        for asked in all.iter().filter(|asked| !missed.contains(asked)) {
            self.found.applied.insert(asked.clone());
            let attempts = perturbed.calls.iter().find(|call| call.target == asked.target);
            if asked.kind == Kind::Error && attempts.is_some_and(|call| call.attempts > 1) {
                self.found.retried.insert(asked.target.clone());
            }
        }
        if let Some(shown) = Shown::of_run(&run.outcome, perturbed) {
            let carried: Vec<&Perturbation> = all.iter().filter(|asked| !missed.contains(asked)).collect();
            for perturbation in &carried {
                self.found.note_shown(perturbation, carried.len(), shown);
            }
        }
        for finding in different_answers(all, &trace.spans, &run.id) {
            self.found.findings.entry(finding.target().clone()).or_insert(finding);
        }
        if let (Some(signature), [only]) = (&perturbed.left_behind, all) {
            let (perturbation, message) = (only.clone(), signature.to_string());
            let finding = Finding::FailsAfterOutage { perturbation, message, run: run.id.clone() };
            self.found.findings.entry(only.target.clone()).or_insert(finding);
        }
        if let Some(shown) = Shown::of_run(&run.outcome, perturbed) {
            for outage in &perturbed.outages {
                self.found.note_outage(outage, all.len(), shown, &run.id);
            }
        }
        if let [only] = all {
            self.found.alone.insert(only.clone());
        }
        if run.outcome == Outcome::Pass {
            self.found.tolerated.extend(tolerated(all).iter().cloned());
        }
        let is_command = !matches!(self.test.body, TestBody::Steps(_));
        if perturbed.degraded && is_command && self.test.degraded.is_none() {
            self.found.honest += 1;
        }
        let blamed = match perturbed.diverged.as_slice() {
            [] => perturbed.blamed.clone(),
            diverged => diverged.to_vec(),
        };
        if matches!(run.outcome, Outcome::Fail { .. }) && set.len() <= FEW && !trace.messages.is_empty() {
            self.found.messages.insert(run.trial, trace.messages);
        }
        Some(Clues {
            blamed,
            missed: self.targets.map(|targets| targets.set_of(&missed)).unwrap_or_default(),
            shown: perturbed.shown.clone(),
            calls: seen_calls(&perturbed.calls),
        })
    }

    fn must_fail(&self) -> u32 {
        self.must_fail
    }
}

/// A trial of a test with perturbations.
pub(super) fn request(
    session: &Session,
    test: &TestCase,
    perturbations: Vec<Perturbation>,
    tolerant: bool,
    unperturbed: Unperturbed,
) -> TrialRequest {
    let application = session.application();
    let mut circumstance = application.simplest.clone();
    circumstance.perturbations = rules(&perturbations, &application.resilience);
    let treatment = Treatment::of_perturbations(perturbations.clone());
    let drive = PerturbedTests {
        test: test.clone(),
        perturbations,
        invariants: application.invariants.clone(),
        tolerant,
        unperturbed,
        repeats: false,
    };
    TrialRequest { treatment, circumstance, drive: Arc::new(drive), wanted: None }
}

/// A trial of a test without perturbations, with a second run in the same deployment if that is wanted.
pub(super) fn request_alone(session: &Session, test: &TestCase, repeats: bool) -> TrialRequest {
    let application = session.application();
    let drive = PerturbedTests {
        test: test.clone(),
        perturbations: Vec::new(),
        invariants: application.invariants.clone(),
        tolerant: false,
        unperturbed: Unperturbed::default(),
        repeats,
    };
    TrialRequest {
        treatment: Treatment::of_perturbations(Vec::new()),
        circumstance: application.simplest.clone(),
        drive: Arc::new(drive),
        wanted: None,
    }
}
