//! One search over the perturbations of a test: what its sets stand for, and what came of it.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use faultscope_model::application::TestCase;
use faultscope_model::perturbation::{Event, Kind, Perturbation, TargetId};
use faultscope_model::{DeltaSet, Outcome, Run, TrialId};
use faultscope_search::Search;
use faultscope_search::resilience::{Clues, Targets};

use super::ground::{rules, seen_calls};
use crate::campaign::Meaning;
use crate::error::EngineError;
use crate::perturbing::Perturbing;
use crate::session::Session;
use crate::trial::TrialRequest;

/// Up to so many perturbations the messages of a failing run are kept.
const FEW: usize = 4;

/// Trials from before an interruption, by test and by what was asked for.
pub(super) type Answers = HashMap<(String, BTreeSet<Perturbation>), VecDeque<Run>>;

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
    pub(super) answers: &'a mut Answers,
    pub(super) found: &'a mut Found,
}

/// What all searches over one test found out beside their answers.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// What was not carried out, and why.
    pub(super) missed: BTreeMap<Perturbation, String>,
    /// What was carried out at some time.
    pub(super) applied: BTreeSet<Perturbation>,
    /// Calls that were tried again after an error.
    pub(super) retried: BTreeSet<TargetId>,
    /// Messages of failing runs.
    pub(super) messages: BTreeMap<TrialId, Vec<Event>>,
}

impl Phase<'_> {
    pub(super) fn perturbations(&self, search: &dyn Search, set: &DeltaSet) -> Vec<Perturbation> {
        self.targets.map_or_else(|| search.perturbations(set), |targets| targets.perturbations(set))
    }
}

impl Meaning for Phase<'_> {
    fn request(
        &mut self,
        search: &dyn Search,
        trial: TrialId,
        set: &DeltaSet,
    ) -> Result<TrialRequest, EngineError> {
        let perturbations = self.perturbations(search, set);
        let mut request = request(self.session, self.test, trial, perturbations, self.tolerant);
        request.deltas = set.clone();
        Ok(request)
    }

    fn clues(&mut self, _search: &dyn Search, set: &DeltaSet, run: &Run) -> Option<Clues> {
        let perturbed = run.perturbed.as_ref()?;
        let seen = self.session.take_seen(run.trial).unwrap_or_default();
        let missed: Vec<Perturbation> = perturbed.missed.iter().map(|m| m.perturbation.clone()).collect();
        for missed in &perturbed.missed {
            self.found.missed.insert(missed.perturbation.clone(), missed.why.clone());
        }
        for asked in perturbed.asked.iter().filter(|asked| !missed.contains(asked)) {
            self.found.applied.insert(asked.clone());
            let attempts = perturbed.calls.iter().find(|call| call.target == asked.target);
            if asked.kind == Kind::Error && attempts.is_some_and(|call| call.attempts > 1) {
                self.found.retried.insert(asked.target.clone());
            }
        }
        if matches!(run.outcome, Outcome::Fail { .. }) && set.len() <= FEW && !seen.events.is_empty() {
            self.found.messages.insert(run.trial, seen.events);
        }
        Some(Clues {
            blamed: perturbed.blamed.clone(),
            missed: self.targets.map(|targets| targets.set_of(&missed)).unwrap_or_default(),
            shown: perturbed.shown.clone(),
            calls: seen_calls(&perturbed.calls),
        })
    }

    fn earlier(&mut self, search: &dyn Search, set: &DeltaSet) -> Option<Run> {
        let asked: BTreeSet<Perturbation> = self.perturbations(search, set).into_iter().collect();
        let mut run = self.answers.get_mut(&(self.test.name.clone(), asked))?.pop_front()?;
        run.deltas = set.clone();
        Some(run)
    }

    fn must_fail(&self) -> u32 {
        self.must_fail
    }
}

/// A trial of a test with perturbations.
pub(super) fn request(
    session: &Session,
    test: &TestCase,
    trial: TrialId,
    perturbations: Vec<Perturbation>,
    tolerant: bool,
) -> TrialRequest {
    let application = session.application();
    let mut circumstance = application.simplest.clone();
    circumstance.perturbations = rules(&perturbations, &application.resilience);
    let invariants = application.invariants.clone();
    TrialRequest {
        trial,
        deltas: DeltaSet::new(),
        circumstance,
        tests: vec![test.clone()],
        wanted: None,
        perturbing: Some(Arc::new(Perturbing { perturbations, invariants, tolerant })),
    }
}
