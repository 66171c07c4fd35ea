//! An application of closures in a folder of its own, and campaigns on it.

use std::sync::Arc;

use bytes::Bytes;
use faultscope_engine::debug::{self, DebugOptions, DebugReport};
use faultscope_engine::resilience::{self, ResilienceOptions, ResilienceReport};
use faultscope_engine::testing::{TrialsDone, run_trials};
use faultscope_engine::{EngineError, Session, SessionOptions, Tests, TrialRequest};
use faultscope_model::event::Event;
use faultscope_model::outcome::TestResult;
use faultscope_model::{Application, CampaignId, CampaignKind, DeltaSet, Outcome, Run, Span};
use faultscope_platform::loopback::Loopback;
use faultscope_store::Store;
use tempfile::TempDir;
use tokio::sync::broadcast::Receiver;
use tokio_util::sync::CancellationToken;

/// An application, the closures that are its services, and the folder that its campaigns share.
pub(crate) struct Bed {
    pub(crate) folder: TempDir,
    pub(crate) platform: Arc<Loopback>,
    pub(crate) file: String,
    change: fn(&mut SessionOptions),
}

/// A run with its calls.
#[derive(Debug)]
pub(crate) struct Tested {
    pub(crate) run: Run,
    pub(crate) spans: Vec<Span>,
}

impl Bed {
    pub(crate) fn new(file: &str, platform: Loopback) -> Self {
        // Waiting for exporters would take longer than most trials, and a key belongs to a user.
        let usual = "record: { tracing: off, metrics: off, secrets: drop }\n";
        let file = if file.contains("\nrecord:") { file.to_owned() } else { format!("{file}{usual}") };
        let folder = TempDir::new().unwrap();
        Self { folder, platform: Arc::new(platform), file, change: |_| {} }
    }

    /// The same, with other options for its sessions.
    pub(crate) fn with(self, change: fn(&mut SessionOptions)) -> Self {
        Self { change, ..self }
    }

    pub(crate) fn application(&self) -> Application {
        let mut application = Application::read_alone(&self.file, "faultscope.yaml").unwrap();
        faultscope_engine::load_protos(&mut application, self.folder.path()).unwrap();
        application
    }

    pub(crate) fn store(&self) -> Store {
        Store::open(self.folder.path().join(".faultscope")).unwrap()
    }

    pub(crate) async fn open(&self) -> Arc<Session> {
        self.open_for(self.application(), CampaignKind::Test, None).await
    }

    pub(crate) async fn open_for(
        &self,
        application: Application,
        purpose: CampaignKind,
        resume: Option<CampaignId>,
    ) -> Arc<Session> {
        let mut options = SessionOptions::new(purpose, self.folder.path().to_owned(), "faultscope".into());
        options.resume = resume;
        (self.change)(&mut options);
        Arc::new(Session::open(application, self.platform.clone(), options).await.unwrap())
    }

    /// One trial of all tests with these deltas, in a campaign of its own.
    pub(crate) async fn test(&self, deltas: &[&str]) -> Tested {
        let session = self.open().await;
        let done = run(&session, vec![request(&session, deltas)], &CancellationToken::new()).await;
        let run = done.runs.into_iter().next().expect("nobody stopped it");
        let spans = session.spans_of(run.trial).await.unwrap();
        close(session).await;
        Tested { run, spans }
    }

    pub(crate) async fn debug(&self, options: DebugOptions) -> DebugReport {
        self.try_debug(&options, false, &CancellationToken::new()).await.unwrap()
    }

    /// A debug campaign, or the rest of one.
    pub(crate) async fn try_debug(
        &self,
        options: &DebugOptions,
        resume: bool,
        stop: &CancellationToken,
    ) -> Result<DebugReport, EngineError> {
        let application = self.application();
        let id = if resume { Some(debug::unfinished(&self.store(), &application, None)?) } else { None };
        let session = self.open_for(application, CampaignKind::Debug, id).await;
        let report = debug::debug(&session, options, stop).await;
        if let Ok(report) = &report {
            session.campaign().put_report(report).unwrap();
        }
        close(session).await;
        report
    }

    pub(crate) async fn resilience(&self, options: ResilienceOptions) -> ResilienceReport {
        self.try_resilience(&options, false, &CancellationToken::new()).await.unwrap()
    }

    /// A resilience campaign, or the rest of one.
    pub(crate) async fn try_resilience(
        &self,
        options: &ResilienceOptions,
        resume: bool,
        stop: &CancellationToken,
    ) -> Result<ResilienceReport, EngineError> {
        let application = self.application();
        let id = if resume { Some(resilience::unfinished(&self.store(), &application, None)?) } else { None };
        let session = self.open_for(application, CampaignKind::Resilience, id).await;
        let report = resilience::resilience(&session, options, stop).await;
        if let Ok(report) = &report {
            session.campaign().put_report(report).unwrap();
        }
        close(session).await;
        report
    }

    /// Everything that happened in the only campaign.
    pub(crate) fn events(&self) -> Vec<Event> {
        let campaigns = self.store().campaigns().unwrap();
        assert_eq!(campaigns.len(), 1, "there is one campaign");
        let events = campaigns[0].events::<Event>(0).unwrap();
        events.events.into_iter().map(|logged| logged.event).collect()
    }
}

/// A trial of all tests with these deltas.
pub(crate) fn request(session: &Session, deltas: &[&str]) -> TrialRequest {
    let space = session.application().space().unwrap();
    let place = |name: &&str| {
        let named = space.deltas.iter().position(|delta| delta.name == *name);
        named.unwrap_or_else(|| panic!("there is no delta `{name}`"))
    };
    let set: DeltaSet = deltas.iter().map(place).collect();
    TrialRequest {
        circumstance: space.circumstance(&set).unwrap(),
        treatment: space.treatment(&set),
        drive: Tests::new(session.application().tests.clone()),
        wanted: None,
    }
}

/// Trials on all slots.
pub(crate) async fn run(
    session: &Arc<Session>,
    requests: Vec<TrialRequest>,
    stop: &CancellationToken,
) -> TrialsDone {
    run_trials(session, requests, false, stop).await.unwrap()
}

pub(crate) async fn close(session: Arc<Session>) {
    let session = Arc::into_inner(session).expect("nothing of the campaign is left running");
    session.close("over").await.unwrap();
}

/// Waits for an event.
pub(crate) async fn wait_for(events: &mut Receiver<Arc<Event>>, is_it: impl Fn(&Event) -> bool) {
    while !is_it(&events.recv().await.expect("the campaign is open")) {}
}

/// The body of an answer as text.
pub(crate) fn text(answer: &http::Response<Bytes>) -> String {
    String::from_utf8_lossy(answer.body()).into_owned()
}

impl Tested {
    pub(crate) fn outcome(&self) -> &'static str {
        self.run.outcome.word()
    }

    /// Why it could not be judged.
    pub(crate) fn reason(&self) -> String {
        match &self.run.outcome {
            Outcome::Unresolved { reason } => reason.to_string(),
            other => panic!("it is {}", other.word()),
        }
    }

    /// How it failed.
    pub(crate) fn signature(&self) -> String {
        match &self.run.outcome {
            Outcome::Fail { signature } => signature.to_string(),
            other => panic!("it is {}", other.word()),
        }
    }

    /// Each test with how it failed; empty where it passed.
    pub(crate) fn results(&self) -> Vec<(&str, &str)> {
        fn told(result: &TestResult) -> &str {
            result.failure.as_ref().map_or("", |failure| failure.message.as_str())
        }
        self.run.evidence.tests.iter().map(|result| (result.test.as_str(), told(result))).collect()
    }

    /// Instances that ended, and why.
    pub(crate) fn exits(&self) -> Vec<String> {
        let exits = self.run.evidence.exits.iter();
        exits.map(|exit| format!("{} {}", exit.instance, exit.reason)).collect()
    }

    /// The calls in the order of their start: who called whom for what, how that ended, and how the cause of the
    /// call is known.
    pub(crate) fn calls(&self) -> Vec<String> {
        calls(&self.spans)
    }
}

pub(crate) fn calls(spans: &[Span]) -> Vec<String> {
    let mut spans: Vec<&Span> = spans.iter().collect();
    spans.sort_by_key(|span| (span.start_us, span.id));
    let call = |span: &&Span| {
        let callee = span.callee_instance.as_ref().map_or(span.callee.to_string(), ToString::to_string);
        let ending = match (&span.error, span.status) {
            (Some(error), _) => error.to_string(),
            (None, status) => status.map(|status| status.to_string()).unwrap_or_default(),
        };
        let parentage = format!("{:?}", span.parentage).to_lowercase();
        format!("{} -> {callee} {} {ending} {parentage}", span.caller, span.operation())
    };
    spans.iter().map(call).collect()
}

/// What a campaign found: the perturbations of each defect.
pub(crate) fn defects(report: &ResilienceReport) -> Vec<String> {
    let names = |set: &[faultscope_model::perturbation::Perturbation]| {
        let mut names: Vec<String> = set.iter().map(ToString::to_string).collect();
        names.sort();
        names.join(" + ")
    };
    let all = report.tests.iter().flat_map(|test| &test.defects);
    let mut found: Vec<String> = all.map(|defect| names(&defect.perturbations)).collect();
    found.sort();
    found
}

/// What a campaign found: the deltas of each cause.
pub(crate) fn causes(report: &DebugReport) -> Vec<Vec<&str>> {
    let mut causes: Vec<Vec<&str>> = Vec::new();
    for cause in &report.causes {
        let mut names: Vec<&str> = cause.deltas.iter().map(|delta| delta.name.as_str()).collect();
        names.sort_unstable();
        causes.push(names);
    }
    causes.sort();
    causes
}
