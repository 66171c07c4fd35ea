//! The recorded answers that stand for services which a replay does not deploy.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use faultscope_mesh::{MockAnswer, MockReply, MockRequest, Mocks};
use faultscope_model::application::Application;
use faultscope_model::recording::{
    Answer, AskedCall, MatchedBy, MissReason, MockBook, MockMiss, RecordedCall, Recording,
};
use faultscope_model::wiring::{COLLECTOR, ExternalHost, RESOLVER};
use faultscope_model::{Circumstance, ServiceName, TraceId};
use serde::{Deserialize, Serialize};

use crate::drive::Pace;

/// The most misses that are listed; a service that asks in a circle must not fill memory.
const MAX_MISSES: usize = 1000;

/// The longest time that a mock takes, however long the recorded call took.
const MAX_DELAY: Duration = Duration::from_secs(60);

/// The status of the answer to a call for which there is no recorded one. Callers rarely repeat a call for it.
const NOT_IMPLEMENTED: u16 = 501;
const GRPC_UNIMPLEMENTED: &str = "12";

/// The recording from which mocks of each trial are made.
#[derive(Debug)]
pub struct MockPlan {
    services: BTreeSet<ServiceName>,
    calls: Vec<RecordedCall>,
    rooted: BTreeSet<TraceId>,
    pace: Pace,
}

impl MockPlan {
    /// Mocks of these services, of what a recording calls outside of the application, and of all hosts outside.
    pub fn new(
        recording: &Recording,
        application: &Application,
        mocked: &BTreeSet<ServiceName>,
        pace: Pace,
    ) -> Self {
        let externals = application.externals.iter().map(|external| &external.service);
        let called = recording.outgoing.iter().map(|call| &call.callee);
        Self {
            services: externals.chain(called).chain(mocked).cloned().collect(),
            calls: recording.outgoing.clone(),
            rooted: recording.requests.iter().map(|request| request.trace).collect(),
            pace,
        }
    }

    /// Mocks that have given no answer yet.
    pub(crate) fn begin(&self) -> Arc<ReplayMocks> {
        let book = MockBook::new(self.calls.iter().cloned(), self.rooted.clone());
        let state = Mutex::new(State { book, log: MockLog::default() });
        Arc::new(ReplayMocks { services: self.services.clone(), pace: self.pace, state })
    }
}

/// The application without services that are mocked, and with a host in the place of each: callers find it under the
/// same name, and nothing runs behind it.
pub fn mock_services(
    application: &mut Application,
    circumstance: &mut Circumstance,
    recording: &Recording,
    mocked: &BTreeSet<ServiceName>,
) {
    // In the ends of a search as well: what never runs needs no command.
    for one in [circumstance, &mut application.simplest, &mut application.failing] {
        one.instances.extend(mocked.iter().map(|name| (name.clone(), 0)));
    }
    // Nothing outside is reached during a replay, whatever the file allows.
    application.externals.iter_mut().for_each(|external| external.allow = false);
    let mut ports: BTreeMap<ServiceName, BTreeSet<u16>> = BTreeMap::new();
    for call in &recording.outgoing {
        ports.entry(call.callee.clone()).or_default().insert(call.port);
    }
    for (name, ports) in ports {
        if application.services.contains_key(&name) || [COLLECTOR, RESOLVER].contains(&name.as_str()) {
            continue;
        }
        match application.externals.iter_mut().find(|external| external.service == name) {
            Some(external) => {
                external.ports.extend(
                    ports.into_iter().filter(|port| !external.ports.contains(port)).collect::<Vec<_>>(),
                );
            }
            None => {
                let (host, ports) = (name.to_string(), ports.into_iter().collect());
                application.externals.push(ExternalHost { host, service: name.clone(), allow: false, ports });
            }
        }
        for service in application.services.values_mut() {
            if !service.calls.contains(&name) {
                service.calls.push(name.clone());
            }
        }
    }
}

/// What mocks did in one trial.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MockLog {
    /// By service, how many answers were given and how they were found.
    pub services: BTreeMap<ServiceName, MockedService>,
    /// Calls without a recorded answer, the first ones.
    pub misses: Vec<MockMiss>,
}

/// What was answered in the place of one service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MockedService {
    /// Answers that were given.
    pub answered: usize,
    /// Those of them that were not found by the trace of a request.
    pub without_trace: usize,
    /// Those of them whose request was not the same byte by byte.
    pub other_request: usize,
    /// Those of them that were given before.
    pub repeated: usize,
    /// Calls without a recorded answer.
    pub missed: usize,
    /// Recorded answers that nobody asked for.
    pub unused: usize,
}

/// What mocks did in all replays together.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct MockReport {
    /// What was answered in the place of each service.
    pub services: BTreeMap<ServiceName, MockedService>,
    /// Calls without a recorded answer; the same one is listed once.
    pub misses: Vec<MockMiss>,
    /// Calls without a recorded answer, in all replays.
    pub missed: usize,
}

impl MockReport {
    /// Adds up what the mocks of each replay did; `show` hides secrets in what is asked.
    pub(super) fn collect<'l>(
        logs: impl Iterator<Item = &'l MockLog>,
        show: impl Fn(&str) -> String,
    ) -> Self {
        let mut report = Self::default();
        for log in logs {
            for (name, one) in &log.services {
                let all = report.services.entry(name.clone()).or_default();
                all.answered += one.answered;
                all.without_trace += one.without_trace;
                all.other_request += one.other_request;
                all.repeated += one.repeated;
                all.missed += one.missed;
                all.unused += one.unused;
                report.missed += one.missed;
            }
            for miss in &log.misses {
                let mut miss = miss.clone();
                miss.operation = show(&miss.operation);
                if let Some(nearest) = &mut miss.nearest {
                    nearest.operation = show(&nearest.operation);
                }
                if report.misses.len() < MAX_MISSES && !report.misses.contains(&miss) {
                    report.misses.push(miss);
                }
            }
        }
        report
    }
}

/// The mocks of one trial.
#[derive(Debug)]
pub struct ReplayMocks {
    services: BTreeSet<ServiceName>,
    pace: Pace,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    book: MockBook,
    log: MockLog,
}

impl ReplayMocks {
    /// Says that a trace of the replay stands for a recorded one.
    pub(crate) fn expect_trace(&self, replayed: TraceId, recorded: TraceId) {
        self.lock().book.expect_trace(replayed, recorded);
    }

    /// What was done so far.
    pub(crate) fn log(&self) -> MockLog {
        let state = self.lock();
        let mut log = state.log.clone();
        for (service, (_, unused)) in state.book.count_unused() {
            log.services.entry(service).or_default().unused = unused;
        }
        log
    }

    fn delay(&self, duration_us: u64) -> Duration {
        let recorded = Duration::from_micros(duration_us);
        match self.pace {
            Pace::AsFastAsPossible => Duration::ZERO,
            Pace::Factor(factor) => recorded.div_f64(factor.max(0.001)).min(MAX_DELAY),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MockLog {
    fn note_answer(&mut self, callee: &ServiceName, by: MatchedBy) {
        let service = self.services.entry(callee.clone()).or_default();
        service.answered += 1;
        service.without_trace += usize::from(!by.trace);
        service.other_request += usize::from(!by.same_request);
        service.repeated += usize::from(by.repeated);
    }

    fn note_miss(&mut self, miss: MockMiss) {
        self.services.entry(miss.callee.clone()).or_default().missed += 1;
        if self.misses.len() < MAX_MISSES {
            self.misses.push(miss);
        }
    }
}

impl Mocks for ReplayMocks {
    fn stands_for(&self, callee: &ServiceName) -> bool {
        self.services.contains(callee)
    }

    fn reply(&self, request: &MockRequest<'_>) -> MockReply {
        // Exporters report whenever they like, and that was never recorded: it is no call of the application.
        if request.is_export {
            return MockReply::Miss(explain_miss(request, "reports are not collected during a replay"));
        }
        let mut state = self.lock();
        let asked = AskedCall {
            trace: request.trace,
            callee: request.callee,
            method: request.method,
            path: request.path,
            body: request.body,
        };
        match state.book.take_answer(&asked) {
            Ok(found) => {
                state.log.note_answer(request.callee, found.by);
                if found.answer.error.is_some() {
                    return MockReply::Reset;
                }
                MockReply::Answer(answer_of(found.answer, self.delay(found.duration_us)))
            }
            Err(miss) => {
                let answer = explain_miss(request, &miss.reason.to_string());
                state.log.note_miss(*miss);
                MockReply::Miss(answer)
            }
        }
    }

    fn refuse_connection(&self, callee: &ServiceName) {
        let (operation, reason) = ("connection".to_owned(), MissReason::NotHttp);
        let miss = MockMiss { callee: callee.clone(), operation, trace: None, reason, nearest: None };
        self.lock().log.note_miss(miss);
    }
}

/// A recorded answer as it is sent. Trailers were recorded behind the headers and begin with the status of gRPC; without
/// a body the status is in the head itself.
fn answer_of(answer: Answer, after: Duration) -> MockAnswer {
    let (mut headers, mut trailers) = (answer.headers, Vec::new());
    let status = headers.iter().position(|(name, _)| name.eq_ignore_ascii_case("grpc-status"));
    if let Some(place) = status.filter(|_| !answer.body.is_empty()) {
        trailers = headers.split_off(place);
    }
    let body = answer.body.into();
    MockAnswer { after, status: answer.status.unwrap_or(200), headers, body, trailers }
}

/// The error that a caller gets in the place of an answer.
fn explain_miss(request: &MockRequest<'_>, reason: &str) -> MockAnswer {
    let operation = format!("{} {}", request.method, request.path.split('?').next().unwrap_or_default());
    let text = format!("faultscope: no recorded answer to {operation} of {}: {reason}", request.callee);
    let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    if request.is_grpc {
        let printable: String =
            text.chars().filter(|c| c.is_ascii_graphic() || *c == ' ').filter(|c| *c != '%').collect();
        let headers = vec![
            header("content-type", "application/grpc"),
            header("grpc-status", GRPC_UNIMPLEMENTED),
            header("grpc-message", &printable),
        ];
        return MockAnswer { status: 200, headers, ..MockAnswer::default() };
    }
    let headers =
        vec![header("content-type", "text/plain; charset=utf-8"), header("x-faultscope", "mock-miss")];
    MockAnswer { status: NOT_IMPLEMENTED, headers, body: text.into_bytes().into(), ..MockAnswer::default() }
}

#[cfg(test)]
mod tests {
    use faultscope_model::span::Wire;

    use super::*;

    fn answer(headers: &[(&str, &str)], body: &str) -> Answer {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Answer {
            status: Some(200),
            headers,
            body: body.into(),
            bytes: body.len() as u64,
            ..Answer::default()
        }
    }

    #[test]
    fn trailers_begin_with_the_status_of_grpc() {
        let names =
            |pairs: &[(String, String)]| pairs.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
        let headers =
            [("content-type", "application/grpc"), ("x-a", "1"), ("grpc-status", "0"), ("x-late", "2")];
        let whole = answer_of(answer(&headers, "message"), Duration::ZERO);
        assert_eq!(names(&whole.headers), ["content-type", "x-a"]);
        assert_eq!(names(&whole.trailers), ["grpc-status", "x-late"]);
        let only_trailers = answer_of(answer(&headers, ""), Duration::ZERO);
        assert_eq!((only_trailers.headers.len(), only_trailers.trailers.len()), (4, 0));
    }

    #[test]
    fn a_miss_is_an_error_in_the_words_of_the_protocol() {
        let callee: ServiceName = "pay".parse().unwrap();
        let request = MockRequest {
            trace: TraceId(1),
            callee: &callee,
            wire: Wire::Http1,
            is_grpc: false,
            is_export: false,
            method: "GET",
            path: "/cards?number=4111",
            body: b"",
        };
        let mocks = MockPlan {
            services: [callee.clone()].into(),
            calls: vec![],
            rooted: [].into(),
            pace: Pace::Factor(1.0),
        };
        let mocks = mocks.begin();
        let MockReply::Miss(answer) = mocks.reply(&request) else { panic!("there is no answer") };
        assert_eq!(answer.status, 501);
        let text = String::from_utf8(answer.body.to_vec()).unwrap();
        assert_eq!(
            text,
            "faultscope: no recorded answer to GET /cards of pay: no call to this service was recorded"
        );
        let MockReply::Miss(answer) = mocks.reply(&MockRequest { is_grpc: true, ..request }) else {
            panic!()
        };
        assert_eq!((answer.status, answer.headers[1].1.as_str()), (200, "12"));
        // Reports of exporters are refused, but they are no calls.
        assert!(matches!(mocks.reply(&MockRequest { is_export: true, ..request }), MockReply::Miss(_)));
        let log = mocks.log();
        assert_eq!((log.misses.len(), log.services[&callee].missed), (2, 2));
    }

    #[test]
    fn mocks_are_as_slow_as_what_they_stand_for() {
        let delay = |pace| {
            let plan = MockPlan { services: [].into(), calls: vec![], rooted: [].into(), pace };
            plan.begin().delay(8_000)
        };
        assert_eq!(delay(Pace::Factor(1.0)), Duration::from_millis(8));
        assert_eq!(delay(Pace::Factor(4.0)), Duration::from_millis(2));
        assert_eq!(delay(Pace::AsFastAsPossible), Duration::ZERO);
    }
}
