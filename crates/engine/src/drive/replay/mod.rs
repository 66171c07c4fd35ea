//! Sends recorded requests again, at the recorded times or faster.
//!
//! A request is due at its recorded distance from the first one. It also waits for every answer that had arrived before
//! it was sent in the recording, since it may have been made of them: values that differ this time, such as the id of
//! a new order, take the place of the recorded ones.

mod hook;
mod pacer;
mod send;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use faultscope_model::digest::Digest;
use faultscope_model::recording::{Answer, RecordedRequest, ValueMap};
use faultscope_model::{CallError, InstanceId, ServiceName, TraceId};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::clone::StartPoint;
use crate::error::EngineError;
use crate::replay::{MockPlan, ReplayMocks};
use crate::trial::{Drive, Driven, Live};
use hook::Hook;
pub use hook::HookError;
use pacer::Pacer;

/// The time between two requests, compared with the recording.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Pace {
    /// The recorded distances divided by this factor.
    Factor(f64),
    /// Each request as soon as the answers are there that it may have been made of.
    AsFastAsPossible,
}

/// The answer to a request that was sent again.
#[derive(Debug, Clone, PartialEq)]
pub struct ReplayedAnswer {
    /// The answer.
    pub answer: Answer,
    /// Until all of it was there.
    pub duration_us: u64,
    /// How much later than intended the request was sent, without the time that it waited for answers.
    pub lag_us: u64,
    /// How long it waited for earlier answers beyond its time.
    pub waited_us: u64,
}

/// The drive of a replay.
#[derive(Debug)]
pub struct Replay {
    requests: Arc<[RecordedRequest]>,
    /// For each request the number of answers, in the order in which they had come, that it waits for.
    awaited: Vec<usize>,
    /// The requests in the order in which their answers had come.
    by_end: Vec<usize>,
    pace: Pace,
    within: Duration,
    hook: Option<Vec<String>>,
    mocks: Option<MockPlan>,
    start: Option<StartPoint>,
}

impl Replay {
    /// Requests in the order of their start; each answer may take up to `within`.
    pub fn new(requests: Vec<RecordedRequest>, pace: Pace, within: Duration) -> Self {
        let mut by_end: Vec<usize> = (0..requests.len()).collect();
        by_end.sort_by_key(|&index| (requests[index].end_us(), index));
        // An answer that took no time ended when its own request began; a request never waits for itself.
        let awaited = requests
            .iter()
            .map(|request| by_end.partition_point(|&index| requests[index].end_us() < request.start_us));
        Self {
            awaited: awaited.collect(),
            by_end,
            requests: requests.into(),
            pace,
            within,
            hook: None,
            mocks: None,
            start: None,
        }
    }

    /// The same with a program that changes requests before they are sent.
    pub fn with_hook(self, hook: Option<Vec<String>>) -> Self {
        Self { hook, ..self }
    }

    /// The same, with recorded answers in the place of services that are not deployed.
    pub fn with_mocks(self, mocks: MockPlan) -> Self {
        Self { mocks: Some(mocks), ..self }
    }

    /// Sends them to a deployment that starts from a clone, or with other commands.
    pub fn starting_from(self, start: Option<StartPoint>) -> Self {
        Self { start, ..self }
    }

    /// The caller in the spans of a request, so that its calls are found in the run.
    pub(crate) fn caller_of(index: usize) -> InstanceId {
        let ordinal = u32::try_from(index).unwrap_or(u32::MAX).saturating_add(1);
        InstanceId::new(ServiceName::test(), ordinal)
    }

    /// The intended times after the start.
    fn schedule(&self) -> Vec<Duration> {
        let first = self.requests.first().map_or(0, |request| request.start_us);
        let distance = |request: &RecordedRequest| match self.pace {
            Pace::AsFastAsPossible => Duration::ZERO,
            Pace::Factor(factor) => {
                Duration::from_micros((request.start_us.saturating_sub(first) as f64 / factor) as u64)
            }
        };
        self.requests.iter().map(distance).collect()
    }
}

/// Which answers of this execution are there.
#[derive(Debug)]
struct Progress {
    ended: Mutex<Vec<bool>>,
    /// The length of the part of `by_end` that is complete.
    complete: watch::Sender<usize>,
}

impl Progress {
    fn finish(&self, index: usize, by_end: &[usize]) {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        ended[index] = true;
        self.complete.send_modify(|complete| {
            while by_end.get(*complete).is_some_and(|&next| ended[next]) {
                *complete += 1;
            }
        });
    }

    async fn wait_for(&self, answers: usize) {
        // The sender lives as long as this, so the channel never closes.
        let _ = self.complete.subscribe().wait_for(|complete| *complete >= answers).await;
    }
}

#[async_trait]
impl Drive for Replay {
    fn question(&self) -> serde_json::Value {
        let spans: Vec<String> = self.requests.iter().map(|request| request.span.to_string()).collect();
        let start = self.start.as_ref().map(StartPoint::question);
        serde_json::json!({
            "replay": spans,
            "pace": format!("{:?}", self.pace),
            "hook": self.hook,
            "start": start,
        })
    }

    fn starts_from(&self) -> Option<&StartPoint> {
        self.start.as_ref()
    }

    fn n_tests(&self) -> usize {
        self.requests.len()
    }

    fn mocks(&self) -> Option<Arc<ReplayMocks>> {
        self.mocks.as_ref().map(MockPlan::begin)
    }

    async fn drive(&self, live: &Live<'_>, cancel: &CancellationToken) -> Result<Driven, EngineError> {
        let mesh = live
            .mesh()
            .ok_or_else(|| EngineError::Internal("a replay needs a mesh in this process".into()))?;
        let hook = self.hook.as_deref().map(Hook::start).transpose()?;
        let values = Mutex::new(ValueMap::default());
        let progress =
            Progress { ended: Mutex::new(vec![false; self.requests.len()]), complete: watch::Sender::new(0) };
        let (pacer, mut due) = Pacer::start(self.schedule());
        let mut replayed: Vec<Option<ReplayedAnswer>> = vec![None; self.requests.len()];
        let mut flying = FuturesUnordered::new();
        let mut is_all_due = false;
        while !(is_all_due && flying.is_empty()) {
            tokio::select! {
                biased;
                () = cancel.cancelled() => return Ok(Driven::default()),
                next = due.recv(), if !is_all_due => match next {
                    None => is_all_due = true,
                    Some(index) => {
                        let (values, progress, hook) = (&values, &progress, hook.as_ref());
                        let late = pacer.intended(index).elapsed();
                        flying.push(async move {
                            let due = Instant::now();
                            progress.wait_for(self.awaited[index]).await;
                            let waited = due.elapsed();
                            let mut answer = self.send_again((mesh, live), index, (values, hook), late).await?;
                            answer.waited_us = waited.as_micros() as u64;
                            progress.finish(index, &self.by_end);
                            Ok::<_, HookError>((index, answer))
                        });
                    }
                },
                Some(answered) = flying.next(), if !flying.is_empty() => {
                    let (index, answer) = answered?;
                    replayed[index] = Some(answer);
                }
            }
        }
        Ok(Driven { replayed: replayed.into_iter().flatten().collect(), ..Driven::default() })
    }
}

impl Replay {
    async fn send_again(
        &self,
        (mesh, live): (&faultscope_mesh::MeshSlot, &Live<'_>),
        index: usize,
        (values, hook): (&Mutex<ValueMap>, Option<&Hook>),
        late: Duration,
    ) -> Result<ReplayedAnswer, HookError> {
        let recorded = &self.requests[index];
        let began = Instant::now();
        let mut request = lock(values).apply(recorded);
        if let Some(hook) = hook {
            request = hook.change(request).await?;
        }
        begin_trace(live, index, &mut request);
        let sent = Instant::now();
        let lag_us = (late + sent.duration_since(began)).as_micros() as u64;
        let sending = send::send(mesh, Self::caller_of(index), &request);
        let answer = match tokio::time::timeout(self.within, sending).await {
            Ok(answer) => answer,
            Err(_) => Answer { error: Some(CallError::TimedOut), ..Answer::default() },
        };
        let duration_us = sent.elapsed().as_micros() as u64;
        lock(values).learn(&recorded.answer, &answer);
        Ok(ReplayedAnswer { answer, duration_us, lag_us, waited_us: 0 })
    }
}

/// Begins a trace that the mocks know, so that calls which are made for this request get its recorded answers.
fn begin_trace(live: &Live<'_>, index: usize, request: &mut RecordedRequest) {
    let Some(mocks) = &live.mocks else { return };
    let place = format!("{}.{}.{index}", live.session.id(), live.trial.name());
    let draw = |part: &str| Digest::hash_bytes(format!("{place}.{part}").as_bytes()).number().max(1);
    let trace = TraceId(u128::from(draw("high")) << 64 | u128::from(draw("low")));
    mocks.expect_trace(trace, request.trace);
    let (trace, span) = (format!("{:032x}", trace.0), format!("{:016x}", draw("span")));
    // In the forms in which the mesh begins traces itself, so that services see nothing new.
    let headers = [
        ("traceparent", format!("00-{trace}-{span}-01")),
        ("x-b3-traceid", trace),
        ("x-b3-spanid", span),
        ("x-b3-sampled", "1".to_owned()),
    ];
    request.headers.extend(headers.map(|(name, value)| (name.to_owned(), value)));
}

fn lock(values: &Mutex<ValueMap>) -> std::sync::MutexGuard<'_, ValueMap> {
    values.lock().unwrap_or_else(PoisonError::into_inner)
}
