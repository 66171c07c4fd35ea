//! Explores one test: neutral perturbations all at once, others one by one, then errors that a retry should get
//! past. Larger sets come last, when all tests have been through this.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use faultscope_model::application::TestCase;
use faultscope_model::event::{Event, Stage};
use faultscope_model::outcome::Unresolved;
use faultscope_model::perturbation::{Kind, Perturbation, TargetId};
use faultscope_model::run::{CallSeen, Missed};
use faultscope_model::units::count;
use faultscope_model::{Outcome, Run, TrialRole};
use faultscope_search::resilience::{
    Candidate, Grow, GrowOptions, RtDd, RtR, Screen, ScreenOptions, SizeCount, Targets,
};
use faultscope_search::{Cause, Proof, Search};
use tokio::time::Instant;

use super::baseline::{Based, Baseline, baseline};
use super::gather::gather;
use super::ground::{Ground, counts, nothing, seen_calls};
use super::notes::{ExercisedDeclarations, describe_repetition, honest, list_skipped};
use super::phase::{Phase, TestFindings};
use super::report::{Defect, Flaky, TestReport, Trials, UnresolvedTrials, Verdict};
use super::shown::{describe_failure, failing_run};
use super::tally::{SetsTried, SkipReason, Skipped, Tally};
use super::trace::{location_in, trace_of};
use super::{ResilienceOptions, Strategy};
use crate::drive::{Repetition, errors_of_test, failing_operations};
use crate::driver::{Driver, Ended, SearchAsks};
use crate::error::EngineError;
use crate::session::Session;

/// What all tests of a campaign share.
pub(super) struct Explorer<'a> {
    pub(super) session: &'a Arc<Session>,
    pub(super) driver: &'a mut Driver,
    pub(super) options: &'a ResilienceOptions,
    /// What the tests so far have shown about what the file declares.
    pub(super) known: ExercisedDeclarations,
}

/// What came of one search over perturbations.
#[derive(Debug, Default)]
pub(super) struct Searched {
    /// What sets showed, in order.
    pub(super) runs: Vec<Run>,
    /// Why it ended before the search was done; none when it is done.
    pub(super) stopped: Option<Ended>,
}

/// One test under exploration.
pub(super) struct Tested {
    /// The test, with the time that it is given when it is perturbed.
    pub(super) test: TestCase,
    pub(super) must_fail: u32,
    /// What callers see without perturbations, where that is always the same.
    pub(super) usual: Arc<HashMap<TargetId, String>>,
    /// Calls of the test itself that end in an error without perturbations, too.
    expected: BTreeSet<TargetId>,
    /// Operations of the test itself that do so.
    failing: BTreeSet<String>,
    /// What a second run of the test shows without perturbations.
    repetition: Repetition,
    pub(super) found: TestFindings,
    pub(super) report: TestReport,
    pub(super) stopped: Option<Ended>,
    /// The search over perturbations that may change an answer; larger sets may follow.
    grow: Option<Grow>,
    /// Sets of defects that are shown by a run with more perturbations than these.
    pub(super) shown_beside: BTreeSet<Vec<Perturbation>>,
}

impl Explorer<'_> {
    /// Finds out which single perturbations, and which neutral ones together, break a test.
    pub(super) async fn explore(&mut self, test: &TestCase) -> Result<Tested, EngineError> {
        let started = Instant::now();
        let mut tested = Tested {
            test: test.clone(),
            must_fail: 1,
            usual: Arc::default(),
            expected: BTreeSet::new(),
            failing: BTreeSet::new(),
            repetition: Repetition::default(),
            found: TestFindings::default(),
            report: empty(test),
            stopped: None,
            grow: None,
            shown_beside: BTreeSet::new(),
        };
        let count = &mut tested.report.trials.baseline;
        let repeats = self.options.kinds.contains(&Kind::Outage);
        let based = baseline(self.driver, test, repeats, count).await?;
        match based {
            Based::Fine(mut baseline) => {
                let within = self.options.limit(test, baseline.took);
                tested.test.within = within;
                if let Some(flaky) = self.search(&baseline, &mut tested).await? {
                    // Chance may have led the search astray: it is done once more, with more care.
                    let report = TestReport { trials: tested.report.trials, ..empty(test) };
                    tested = Tested {
                        report,
                        found: TestFindings::default(),
                        grow: None,
                        shown_beside: BTreeSet::new(),
                        ..tested
                    };
                    baseline.flaky = Some(flaky);
                    self.search(&baseline, &mut tested).await?;
                }
                tested.report.within = Some(within);
            }
            Based::Refused(verdict, signature) => {
                (tested.report.verdict, tested.report.signature) = (verdict, signature);
            }
            Based::Stopped => tested.report.verdict = self.driver.halted().into(),
        }
        tested.report.took = started.elapsed();
        Ok(tested)
    }

    /// Goes on with sets of up to `most` perturbations that may change an answer. Where they are only tried with what
    /// is left of a budget, the verdict stays when that is used up.
    pub(super) async fn explore_larger(
        &mut self,
        most: usize,
        is_extra: bool,
        tested: &mut Tested,
    ) -> Result<(), EngineError> {
        let Some(mut grow) = tested.grow.take() else { return Ok(()) };
        let started = Instant::now();
        grow.grow_to(most);
        let confirmed = std::mem::take(&mut tested.report.defects);
        let stage = Stage::Together(most);
        self.changing(&mut grow, stage, tested).await?;
        tested.grow = Some(grow);
        if tested.stopped.is_none() && self.confirm(tested).await?.is_some() {
            let found = std::mem::take(&mut tested.report.defects).len();
            let note = format!(
                "the test failed by itself while {} of several perturbations {} confirmed: not counted",
                count(found, "set"),
                if found == 1 { "was" } else { "were" },
            );
            tested.report.notes.push(note);
        }
        let found = std::mem::replace(&mut tested.report.defects, confirmed);
        tested.report.defects.extend(found);
        tested.report.defects = gather(std::mem::take(&mut tested.report.defects));
        let ended = tested.stopped.take();
        tested.report.verdict = match ended {
            Some(ended) if !is_extra || ended == Ended::Stopped => ended.into(),
            _ if tested.report.defects.is_empty() => tested.report.verdict.clone(),
            _ => Verdict::Defects,
        };
        tested.stopped = ended;
        tested.report.took += started.elapsed();
        Ok(())
    }

    /// The report of a test that nothing more is done to.
    pub(super) fn finish(&self, tested: Tested) -> TestReport {
        let Tested { mut report, found, stopped, grow, .. } = tested;
        if let Some(grow) = &grow {
            let sets = |(size, count): (usize, SizeCount)| {
                let SizeCount { tried, pruned, left } = count;
                SetsTried { size, tried, pruned, left }
            };
            report.sets = (1..).zip(grow.sizes()).map(sets).collect();
            report.trials.pruned = report.sets.iter().map(|sets| sets.pruned).sum();
        }
        let never =
            found.known.iter().filter(|p| !found.applied.contains(p) && !found.missed.contains_key(p));
        let number = never.count();
        if number > 0 {
            let why = match stopped {
                Some(Ended::Stopped) => SkipReason::Stopped,
                Some(Ended::OutOfBudget) => SkipReason::OutOfBudget,
                Some(Ended::Done) | None => SkipReason::Strategy,
            };
            report.skipped.push(Skipped { why, number, names: Vec::new(), unnamed: 0 });
        }
        let missed = found.missed.iter().filter(|(p, _)| !found.applied.contains(p));
        let missed = missed.map(|(p, why)| Missed { perturbation: p.clone(), why: why.clone() });
        report.missed = missed.collect();
        report.notes.extend(honest(found.honest));
        report.tally = Tally::new(&report, &found);
        report.findings = found.findings.into_values().collect();
        report.outages = found.outages.into_values().map(|(_, result)| result).collect();
        report
    }

    /// Searches everything; where the test turns out to fail by itself at times, says how often.
    async fn search(
        &mut self,
        baseline: &Baseline,
        tested: &mut Tested,
    ) -> Result<Option<Flaky>, EngineError> {
        let Baseline { first, second, calls, usual, flaky, .. } = baseline;
        (tested.usual, tested.expected) = (Arc::new(usual.clone()), errors_of_test(&first.spans));
        (tested.failing, tested.repetition) = (failing_operations(&first.spans), baseline.repetition);
        self.known.learn(self.session.application(), first);
        // Services may have described their methods since the file was read, and which of them may be repeated.
        let mut application = self.session.application().clone();
        application.descriptors = self.session.campaign.descriptors();
        let ground = Ground::new(&application, self.options, first, second);
        let report = &mut tested.report;
        (report.seen, report.unstable) = (ground.seen, ground.unstable);
        report.skipped = list_skipped(&application, self.options, first, ground.unstable);
        let known = ground.targets.candidates.iter().map(|candidate| candidate.perturbation.clone());
        tested.found.known.extend(known);
        (report.candidates, report.flaky) = (counts(&ground.targets), *flaky);
        if !ground.outages.is_empty() {
            *report.candidates.entry(Kind::Outage).or_default() += ground.outages.len();
            report.notes.extend(describe_repetition(baseline.repetition).map(str::to_owned));
        }
        tested.must_fail = flaky.map_or(1, |flaky| flaky.must_fail);
        let changing: Vec<Kind> = self.options.kinds.iter().copied().filter(|k| !k.is_neutral()).collect();
        let reaches = calls.iter().any(|call| call.target.cause().is_some());
        let options = GrowOptions { kinds: changing, most: 1, ..GrowOptions::default() };
        let mut grow = reaches.then(|| Grow::new(&seen_calls(calls), options));
        let possible = grow.iter().flat_map(Grow::candidates).cloned();
        tested.found.known.extend(possible);
        let grows = tested.found.known.len() > ground.targets.candidates.len();
        tested.found.known.extend(ground.outages.iter().cloned());
        if ground.targets.candidates.is_empty() && !grows && ground.outages.is_empty() {
            report.verdict = Verdict::NothingToPerturb;
            report.notes.extend(nothing(first, &self.options.kinds).map(str::to_owned));
            return Ok(None);
        }
        if !ground.targets.candidates.is_empty() {
            self.enter(Stage::Neutral, ground.targets.candidates.len(), tested);
            self.neutral(&ground.targets, tested).await?;
            if self.options.strategy == Strategy::Screen {
                self.missed_alone(&ground.targets, tested).await?;
            } else if tested.report.defects.is_empty() && tested.stopped.is_none() {
                let note = "all neutral perturbations at once passed, and this strategy looks no further: \
                            what one of them covers up of another is not excluded";
                tested.report.notes.push(note.into());
            }
        }
        if let Some(grow) = grow.as_mut().filter(|_| grows && tested.stopped.is_none()) {
            self.changing(grow, Stage::Single, tested).await?;
        }
        tested.grow = grow.filter(|_| grows);
        if !ground.outages.is_empty() && tested.stopped.is_none() {
            self.enter(Stage::Outages, ground.outages.len(), tested);
            self.outages_during(&ground.outages, tested).await?;
        }
        if tested.stopped.is_none() && self.options.kinds.contains(&Kind::ErrorFirst) {
            let targets = retried(&ground, &tested.found, calls);
            if !targets.candidates.is_empty() {
                let counts = counts(&targets);
                tested.report.candidates.extend(counts);
                self.enter(Stage::Retries, targets.candidates.len(), tested);
                self.neutral(&targets, tested).await?;
            }
        }
        if !tested.report.defects.is_empty() {
            self.enter(Stage::Confirming, tested.report.defects.len(), tested);
        }
        if let Some(flaky) = self.confirm(tested).await? {
            return Ok(Some(flaky));
        }
        if self.options.strategy == Strategy::Screen {
            self.siblings(&ground.targets, tested).await?;
        }
        tested.report.defects = gather(std::mem::take(&mut tested.report.defects));
        tested.report.verdict = match tested.stopped {
            Some(ended) => ended.into(),
            None if tested.report.defects.is_empty() => match tested.found.missed.iter().next() {
                Some((first, why)) if tested.found.applied.is_empty() => {
                    let (perturbation, why) = (first.clone(), why.clone());
                    Verdict::Unresolved { reason: Unresolved::NotApplied { perturbation, why, more: 0 } }
                }
                _ => Verdict::Clean,
            },
            None => Verdict::Defects,
        };
        Ok(None)
    }

    /// Perturbations that a correct system tolerates all at once. What a defect may have hidden is searched again:
    /// what other kinds do to the same calls, and other operations of the same receiver.
    async fn neutral(&mut self, all: &Targets, tested: &mut Tested) -> Result<(), EngineError> {
        let mut waiting = VecDeque::from([all.clone()]);
        while let Some(targets) = waiting.pop_front() {
            let (causes, finished) = self.neutral_search(&targets, tested).await?;
            tested.stopped = finished.stopped;
            for cause in &causes {
                let perturbations = targets.perturbations(&cause.witness);
                self.add(perturbations, cause, &finished.runs, tested).await?;
            }
            if self.options.strategy != Strategy::Screen || tested.stopped.is_some() {
                return Ok(());
            }
            waiting.extend(hidden(&targets, &causes));
        }
        Ok(())
    }

    async fn neutral_search(
        &mut self,
        targets: &Targets,
        tested: &mut Tested,
    ) -> Result<(Vec<Cause>, Searched), EngineError> {
        let seed = self.session.options.seed;
        let mut screen;
        let (mut walk, mut dd);
        let search: &mut dyn Search = match self.options.strategy {
            Strategy::Screen => {
                let each_kind = counts(targets).len() > 1;
                screen =
                    Screen::new(targets.clone(), ScreenOptions { each_kind, seed, ..Default::default() });
                &mut screen
            }
            Strategy::RtR => {
                walk = RtR::new(targets, seed);
                &mut walk
            }
            Strategy::RtDd | Strategy::RtDdO => {
                let optimised = self.options.strategy == Strategy::RtDdO;
                dd = RtDd::new(targets.clone(), optimised, seed);
                &mut dd
            }
        };
        let finished = self.run(Some(targets), false, search, tested).await?;
        tested.report.trials.neutral += finished.runs.len();
        let standing = search.standing();
        let full = targets.perturbations(&targets.full());
        let whole = finished.runs.iter().find(|run| run.treatment.perturbations() == full);
        if self.options.strategy == Strategy::RtDdO
            && whole.is_some_and(|run| run.perturbed.as_ref().is_some_and(|p| p.blamed.is_empty()))
        {
            let note = "no trial named a failing actor, so rt-dd-o went on as rt-dd";
            tested.report.notes.push(note.into());
        }
        Ok((standing.causes, finished))
    }

    /// Perturbations that may rightly change an answer.
    async fn changing(
        &mut self,
        search: &mut Grow,
        stage: Stage,
        tested: &mut Tested,
    ) -> Result<(), EngineError> {
        let n_known = search.standing().causes.len();
        self.enter(stage, search.standing().unproven, tested);
        let finished = self.run(None, true, search, tested).await?;
        tested.report.trials.changing += finished.runs.len();
        tested.stopped = finished.stopped;
        tested.found.known.extend(search.candidates().iter().cloned());
        for cause in search.standing().causes.into_iter().skip(n_known) {
            let perturbations = search.perturbations(&cause.witness);
            self.add(perturbations, &cause, &finished.runs, tested).await?;
        }
        Ok(())
    }

    /// Says what comes next, and of how many sets or perturbations.
    fn enter(&self, stage: Stage, n_to_try: usize, tested: &Tested) {
        let test = tested.test.name.clone();
        self.session.events().emit(Event::StageStarted { test, stage, n_to_try });
    }

    pub(super) async fn run(
        &mut self,
        targets: Option<&Targets>,
        tolerant: bool,
        search: &mut dyn Search,
        tested: &mut Tested,
    ) -> Result<Searched, EngineError> {
        let mut phase = Phase {
            session: self.session,
            test: &tested.test,
            targets,
            tolerant,
            must_fail: tested.must_fail,
            usual: &tested.usual,
            expected: &tested.expected,
            failing: &tested.failing,
            repetition: tested.repetition,
            found: &mut tested.found,
        };
        let mut asks = SearchAsks::new(search, &mut phase, TrialRole::Search);
        let ended = self.driver.run(&mut asks).await?;
        let n_earlier = asks.n_earlier;
        let runs: Vec<Run> = asks.runs.into_iter().map(|shown| shown.run).collect();
        for run in &runs {
            if let Outcome::Unresolved { reason } = &run.outcome {
                tested.report.trials.unresolved += 1;
                let known = tested.report.unresolved.iter_mut().find(|known| known.reason == *reason);
                match known {
                    Some(known) => known.trials += 1,
                    None => {
                        let reason = reason.clone();
                        tested.report.unresolved.push(UnresolvedTrials { reason, trials: 1 });
                    }
                }
            }
        }
        tested.report.trials.earlier += n_earlier;
        Ok(Searched { runs, stopped: (ended != Ended::Done).then_some(ended) })
    }

    /// Adds what a search found, with the run that shows it.
    pub(super) async fn add(
        &self,
        perturbations: Vec<Perturbation>,
        cause: &Cause,
        runs: &[Run],
        tested: &mut Tested,
    ) -> Result<(), EngineError> {
        let mut defect =
            Defect { perturbations, minimal: cause.proof == Proof::Minimal, ..Defect::default() };
        let is_exact = self.describe_defect(&mut defect, runs, tested).await?;
        if !is_exact {
            tested.shown_beside.insert(defect.perturbations.clone());
        }
        tested.report.defects.push(defect);
        Ok(())
    }

    /// Describes a defect by the best of some runs; says whether it has no other perturbations.
    pub(super) async fn describe_defect(
        &self,
        defect: &mut Defect,
        runs: &[Run],
        tested: &Tested,
    ) -> Result<bool, EngineError> {
        let run = failing_run(&defect.perturbations, runs);
        let is_exact =
            run.is_some_and(|(run, _)| run.treatment.perturbations().len() == defect.perturbations.len());
        if let Some((run, signature)) = run {
            defect.signature = Some(describe_failure(signature, tested.test.within));
            let perturbed = run.perturbed.as_deref();
            let invariants = perturbed.map(|p| p.invariants.as_slice()).unwrap_or_default();
            defect.invariant = invariants.iter().any(|result| result.failure.is_some());
            defect.blamed = perturbed.map(|p| p.blamed.clone()).unwrap_or_default();
            let results = run.evidence.tests.iter().chain(invariants);
            let texts = results.filter(|r| r.failure.is_some()).flat_map(|r| {
                [r.failure.as_ref().map_or("", |failure| failure.message.as_str()), r.output.as_str()]
            });
            defect.location = texts.into_iter().find_map(location_in);
            let exits = run.evidence.exits.iter();
            defect.exits = exits.map(|exit| format!("{} {}", exit.instance, exit.reason)).collect();
            defect.run = Some(run.id.clone());
            let spans = self.session.spans_of(run.trial).await?;
            let messages = tested.found.messages.get(&run.trial).map(Vec::as_slice).unwrap_or_default();
            defect.trace = trace_of(run, &spans, messages);
        }
        Ok(is_exact)
    }
}

/// What defects may have hidden: a search takes all candidates of their kind at their receivers out, and what
/// is left may cover up for one another, as a repeated write does for one that a restart lost. So each kind is
/// searched alone; where there is just one, only what was taken out, but for the operations of the defects.
fn hidden(targets: &Targets, causes: &[Cause]) -> Vec<Targets> {
    if causes.is_empty() {
        return Vec::new();
    }
    let found: Vec<&Candidate> = causes
        .iter()
        .flat_map(|cause| cause.witness.iter())
        .filter_map(|p| targets.candidates.get(p))
        .collect();
    let class = |c: &Candidate| (c.actor, c.perturbation.kind);
    // A state that a restart loses is lost after whatever message.
    let same = |f: &Candidate, c: &Candidate| f.perturbation.kind == Kind::Restart || f.message == c.message;
    let is_found = |c: &Candidate| found.iter().any(|f| class(f) == class(c) && same(f, c));
    let several = counts(targets).len() > 1;
    let mut kinds: BTreeMap<Kind, Vec<Candidate>> = BTreeMap::new();
    for candidate in targets.candidates.iter().filter(|c| !is_found(c)) {
        if several || found.iter().any(|f| class(f) == class(candidate)) {
            kinds.entry(candidate.perturbation.kind).or_default().push(candidate.clone());
        }
    }
    let alone = |candidates| {
        let mut alone = targets.clone();
        alone.candidates = candidates;
        alone
    };
    kinds.into_values().map(alone).collect()
}

/// Errors at the first attempt of calls that were seen to be tried again.
fn retried(ground: &Ground, found: &TestFindings, calls: &[CallSeen]) -> Targets {
    let mut out = ground.targets.clone();
    out.candidates.clear();
    for call in calls.iter().filter(|call| found.retried.contains(&call.target)) {
        let known = ground.places.iter().find(|c| c.perturbation.target == call.target);
        let perturbation = Perturbation { kind: Kind::ErrorFirst, target: call.target.clone() };
        if let Some(known) = known {
            out.candidates.push(Candidate { perturbation, ..known.clone() });
        }
    }
    out
}

fn empty(test: &TestCase) -> TestReport {
    TestReport {
        test: test.name.clone(),
        verdict: Verdict::Stopped,
        signature: None,
        within: None,
        seen: 0,
        unstable: 0,
        candidates: Default::default(),
        tally: Tally::default(),
        skipped: Vec::new(),
        sets: Vec::new(),
        outages: Vec::new(),
        defects: Vec::new(),
        findings: Vec::new(),
        unresolved: Vec::new(),
        missed: Vec::new(),
        flaky: None,
        trials: Trials::default(),
        notes: Vec::new(),
        took: Default::default(),
    }
}
