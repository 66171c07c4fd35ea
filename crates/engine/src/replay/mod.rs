//! Replays recorded requests and compares the answers.
//!
//! The same requests are sent to several fresh deployments. What differs between these is noise; what then still differs
//! from the recording is a difference.

mod as_test;
mod calls;
mod decode;
mod mocks;
mod report;
mod resources;

pub use as_test::write_test;
pub use calls::{CallsSideBySide, TimedCall};
pub use mocks::{MockLog, MockPlan, MockReport, MockedService, ReplayMocks, mock_services};
pub use report::{
    Lag, NoisyPlaces, ReplayReport, ReplayVerdict, RequestReport, RequestVerdict, ResourceRow, Usage,
    UsagePoint,
};

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use faultscope_analysis::compare::{FieldRules, Noise, compare_answers, judge_differences};
use faultscope_model::recording::{Answer, Recording};
use faultscope_model::{Circumstance, Run, ServiceName, Span, Treatment, TrialRole};
use faultscope_store::Reader;
use tokio_util::sync::CancellationToken;

use crate::clone::StartPoint;
use crate::drive::{Pace, Replay, ReplayedAnswer};
use crate::driver::{Budget, Driver, Ended, TrialList};
use crate::error::EngineError;
use crate::session::Session;
use crate::trial::{FinishedTrial, TrialRequest};
use report::{Compared, ReportBuilder};

/// How a recording is replayed.
#[derive(Debug)]
pub struct ReplayOptions {
    /// The time between requests.
    pub pace: Pace,
    /// How long an answer may take.
    pub within: Duration,
    /// How many deployments the requests are sent to; from two on noise is known.
    pub times: u32,
    /// What the user says about fields.
    pub rules: FieldRules,
    /// A program that changes requests before they are sent.
    pub hook: Option<Vec<String>>,
    /// Services of the application that are answered for from the recording; see [`mock_services`].
    pub mocked: BTreeSet<ServiceName>,
    /// What the deployments start from; fresh data if none.
    pub start: Option<StartPoint>,
}

/// The origin of a recording.
#[derive(Debug)]
pub struct Original<'a> {
    /// The run in which it was recorded.
    pub run: &'a Run,
    /// The reader of its campaign.
    pub reader: &'a Reader,
    /// All recorded calls, those between services included.
    pub calls: &'a [Span],
}

/// The result of a replay.
#[derive(Debug)]
pub struct ReplayDone {
    /// The report.
    pub report: ReplayReport,
    /// All answers, by replay and request.
    pub answers: Vec<Vec<Answer>>,
}

/// Replays a recording under a circumstance; none if it was stopped before all requests had been sent once.
pub async fn replay(
    session: &Arc<Session>,
    recording: &Recording,
    original: &Original<'_>,
    (treatment, circumstance): (Treatment, Circumstance),
    options: &ReplayOptions,
    stop: &CancellationToken,
) -> Result<Option<ReplayDone>, EngineError> {
    let mocks = MockPlan::new(recording, session.application(), &options.mocked, options.pace);
    let drive = Replay::new(recording.requests.clone(), options.pace, options.within)
        .with_hook(options.hook.clone())
        .with_mocks(mocks)
        .starting_from(options.start.clone());
    let drive = Arc::new(drive);
    let request = TrialRequest { treatment, circumstance, drive, wanted: None };
    let trials = (0..options.times.max(1)).map(|_| (TrialRole::Search, request.clone()));
    let mut list = TrialList::new(trials);
    let ended = Driver::new(session, Budget::default(), stop).run(&mut list).await?;
    let finished = list.into_finished();
    if ended != Ended::Done || finished.is_empty() {
        return Ok(None);
    }
    let replayed_calls = match finished.first() {
        Some(trial) => session.spans_of(trial.run.trial).await?,
        None => Vec::new(),
    };
    let mut report =
        compare(session, recording, &finished, &options.rules, (original.calls, &replayed_calls));
    report.resources = resources::side_by_side(session, recording, original, &finished).await?;
    session.campaign().put_report(&report)?;
    let answers = |trial: FinishedTrial| trial.replayed.into_iter().map(|replayed| replayed.answer).collect();
    Ok(Some(ReplayDone { report, answers: finished.into_iter().map(answers).collect() }))
}

fn compare(
    session: &Session,
    recording: &Recording,
    finished: &[FinishedTrial],
    rules: &FieldRules,
    (recorded_calls, replayed_calls): (&[Span], &[Span]),
) -> ReplayReport {
    let descriptors = session.campaign().descriptors();
    let mut report = ReportBuilder::new(session, recording, finished);
    let mut noise = Noise::default();
    let replays: Vec<Vec<(Answer, &ReplayedAnswer)>> = finished
        .iter()
        .map(|trial| {
            let pairs = recording.requests.iter().zip(&trial.replayed);
            pairs
                .map(|(request, replayed)| {
                    (decode::readable(request, &replayed.answer, &descriptors), replayed)
                })
                .collect()
        })
        .collect();
    for (index, request) in recording.requests.iter().enumerate() {
        let answers: Vec<&Answer> = replays.iter().filter_map(|replay| Some(&replay.get(index)?.0)).collect();
        for (place, one) in answers.iter().enumerate() {
            for other in &answers[place + 1..] {
                noise.learn(&request.operation(), one, other);
            }
        }
    }
    for (index, request) in recording.requests.iter().enumerate() {
        let replayed: Vec<&(Answer, &ReplayedAnswer)> =
            replays.iter().filter_map(|replay| replay.get(index)).collect();
        let Some((answer, _)) = replayed.first() else {
            report.add_unanswered(request);
            continue;
        };
        let recorded = decode::readable(request, &request.answer, &descriptors);
        let comparison = compare_answers(&recorded, answer);
        let judged = judge_differences(&comparison, &request.operation(), &noise, rules);
        let times = replayed.iter().map(|(_, replayed)| *replayed).collect();
        report.add(Compared { request, comparison, judged, replayed: times });
    }
    report.add_calls(recording, recorded_calls, replayed_calls);
    report.finish(&noise)
}
