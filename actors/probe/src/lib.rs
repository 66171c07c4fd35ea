//! Records and perturbs the messages of a test's actors: the part that all adapters share.
//!
//! A [`Probe`] belongs to one run of a test. It knows which message caused which by a span that travels
//! with every message, which actor frameworks already carry from sender to receiver. As long as a message
//! is in flight it holds its sender's span, so that the number of open spans is the number of messages in
//! flight: [`Probe::quiet`] waits until there are none, without sleeping.
//!
//! Environment variables tell a test process which perturbations to apply and where to write
//! its trace; `docs/guide/actors.md` describes the files.

mod layer;

pub use layer::layer;

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use faultscope_probe_format::{
    Configuration, Event, FORMAT, FormatError, Kind, PERTURBATION_FILE, Perturbation, TRACE_FILE, TargetId,
    TraceHead,
};
use layer::Origin;
use tokio::sync::watch;
use tracing::{Instrument, Span};

/// Why a probe cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The file with the perturbations cannot be read.
    #[error("cannot read the perturbations in `{0}`")]
    Read(String, #[source] io::Error),
    /// The file does not have the expected format.
    #[error("`{0}` is not a perturbation file")]
    Format(String, #[source] FormatError),
    /// The trace cannot be written.
    #[error("cannot write the trace to `{0}`")]
    Write(String, #[source] io::Error),
    /// Another tracing subscriber is installed that does not have the probe's layer.
    #[error("another tracing subscriber is installed: add `faultscope_probe::layer()` to it")]
    Subscriber,
}

/// One run of a test.
#[derive(Clone)]
pub struct Probe(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    /// The number of messages and turns in flight.
    open: watch::Sender<usize>,
}

#[derive(Default)]
struct State {
    events: Vec<Event>,
    /// The requested perturbations, and whether each was applied.
    wanted: HashMap<Perturbation, bool>,
    ordinals: HashMap<(TargetId, String, String), u32>,
    sends: u64,
    turns: u64,
    file: Option<File>,
    lost: Option<io::Error>,
}

impl fmt::Debug for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Probe").field("open", &*self.0.open.borrow()).finish_non_exhaustive()
    }
}

impl Probe {
    /// Starts a run with these perturbations in this process.
    pub fn start(configuration: Configuration) -> Result<Self, ProbeError> {
        layer::install()?;
        let wanted = configuration.perturbations.into_iter().map(|p| (p, false)).collect();
        let state = Mutex::new(State { wanted, ..State::default() });
        Ok(Self(Arc::new(Shared { state, open: watch::Sender::new(0) })))
    }

    /// Starts a run as configured by the environment: without it, nothing is perturbed and no trace is written.
    pub fn from_env(adapter: &str) -> Result<Self, ProbeError> {
        let mut configuration = Configuration::new(Vec::new());
        if let Ok(path) = std::env::var(PERTURBATION_FILE) {
            let text = std::fs::read_to_string(&path).map_err(|e| ProbeError::Read(path.clone(), e))?;
            configuration = Configuration::read(&text).map_err(|e| ProbeError::Format(path, e))?;
        }
        let probe = Self::start(configuration)?;
        if let Ok(path) = std::env::var(TRACE_FILE) {
            probe.write_to(Path::new(&path), adapter).map_err(|e| ProbeError::Write(path, e))?;
        }
        Ok(probe)
    }

    /// Writes every event to a file from now on, unbuffered, so that a killed test leaves its trace.
    pub fn write_to(&self, path: &Path, adapter: &str) -> io::Result<()> {
        let mut file = File::create(path)?;
        let head = TraceHead { faultscope_trace: FORMAT, adapter: adapter.to_owned() };
        writeln!(file, "{}", serde_json::to_string(&head)?)?;
        self.lock().file = Some(file);
        Ok(())
    }

    /// Runs something on behalf of the test: messages it sends have the test as their cause.
    pub fn act<T>(&self, act: impl FnOnce() -> T) -> T {
        self.root().in_scope(act)
    }

    /// As [`Self::act`], for futures.
    pub async fn run<F: Future>(&self, run: F) -> F::Output {
        run.instrument(self.root()).await
    }

    /// The message that is being handled by the caller, followed by `+` in a second handling or in a
    /// restart; none outside of actors. For samples and tests that are broken on purpose.
    pub fn handling() -> Option<TargetId> {
        layer::origin(Span::current().id().as_ref()).map(|origin| origin.target)
    }

    fn root(&self) -> Span {
        layer::open(Origin {
            probe: Arc::downgrade(&self.0),
            turn: None,
            target: TargetId::root(),
            actor: None,
        })
    }

    /// Waits until no message is in flight and no actor works. Not inside [`Self::run`], which counts.
    pub async fn quiet(&self) {
        // The sender lives as long as this probe, so waiting cannot fail.
        let _ = self.0.open.subscribe().wait_for(|open| *open == 0).await;
    }

    /// Records that an assertion about an actor failed.
    pub fn blame(&self, actor: &str, message: &str) {
        self.note(Event::Blame { actor: actor.to_owned(), message: message.to_owned() });
    }

    /// Asserts something about an actor: a failure is recorded with the actor, then the test panics with the
    /// actor's name in the message.
    #[track_caller]
    pub fn assert_eq<T: PartialEq + fmt::Debug>(&self, actor: &str, found: &T, expected: &T) {
        if found != expected {
            let message = format!("error@[{actor}] {found:?} != {expected:?}");
            self.blame(actor, &message);
            panic!("{message}");
        }
    }

    /// All events so far.
    pub fn events(&self) -> Vec<Event> {
        self.lock().events.clone()
    }

    /// The requested perturbations that have not been applied so far.
    pub fn missed(&self) -> Vec<Perturbation> {
        let state = self.lock();
        let mut missed: Vec<Perturbation> =
            state.wanted.iter().filter(|(_, done)| !**done).map(|(wanted, _)| wanted.clone()).collect();
        missed.sort();
        missed
    }

    /// The error because of which events are missing in the file, if any.
    pub fn lost(&self) -> Option<io::Error> {
        self.lock().lost.take()
    }

    /// For adapters: an actor was created.
    pub fn created(&self, child: &str, persistent: bool) {
        let parent = layer::origin(Span::current().id().as_ref()).and_then(|origin| origin.actor);
        self.note(Event::Create { parent, child: child.to_owned(), persistent });
    }

    /// For adapters: a message arrived at an actor; `sender` is the span that came with it.
    pub fn received(&self, sender: &Span, to: &str, message: &str, at_least_once: bool) -> Turn {
        let origin = layer::origin(sender.id().as_ref()).filter(|origin| origin.is_of(&self.0));
        let (cause, turn, from) = match origin {
            Some(origin) => (origin.target, origin.turn, origin.actor.unwrap_or_default()),
            None => (TargetId::root(), None, String::new()),
        };
        let mut state = self.lock();
        let ordinal = state.ordinals.entry((cause.clone(), to.to_owned(), message.to_owned())).or_default();
        *ordinal += 1;
        let target = cause.then(to, message, *ordinal);
        let send = state.sends;
        state.sends += 1;
        let (to, message) = (to.to_owned(), message.to_owned());
        let event = Event::Send {
            from,
            to: to.clone(),
            message,
            send,
            turn,
            at_least_once,
            target: Some(target.clone()),
        };
        state.note(event);
        drop(state);
        self.turn(to, send, target)
    }

    fn turn(&self, to: String, send: u64, target: TargetId) -> Turn {
        let mut state = self.lock();
        let turn = state.turns;
        state.turns += 1;
        state.note(Event::Turn { to: to.clone(), send, turn });
        drop(state);
        let probe = Arc::downgrade(&self.0);
        let span =
            layer::open(Origin { probe, turn: Some(turn), target: target.clone(), actor: Some(to.clone()) });
        Turn { probe: self.clone(), span, to, send, target }
    }

    fn note(&self, event: Event) {
        self.lock().note(event);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn note(&mut self, event: Event) {
        if let Some(file) = &mut self.file {
            let line = serde_json::to_string(&event).map_err(io::Error::from);
            let written = line.and_then(|line| file.write_all(format!("{line}\n").as_bytes()));
            if let Err(error) = written {
                self.file = None;
                self.lost = Some(error);
            }
        }
        self.events.push(event);
    }
}

/// For adapters: the handling of one message. It lasts as long as its span is held.
#[derive(Debug)]
pub struct Turn {
    probe: Probe,
    span: Span,
    to: String,
    send: u64,
    target: TargetId,
}

impl Turn {
    /// The span in which the actor handles the message.
    pub fn span(&self) -> &Span {
        &self.span
    }

    /// Whether this perturbation is requested for the message.
    pub fn is_wanted(&self, kind: Kind) -> bool {
        let wanted = Perturbation { kind, target: self.target.clone() };
        self.probe.lock().wanted.contains_key(&wanted)
    }

    /// Records that the message is handled a second time.
    pub fn again(&self) -> Self {
        self.applied(Kind::Duplicate);
        self.probe.turn(self.to.clone(), self.send, self.target.again())
    }

    /// Records that the actor is restarted after the message; returns the span for the restart.
    pub fn restarted(&self) -> Span {
        self.applied(Kind::Restart);
        let probe = Arc::downgrade(&self.probe.0);
        let (target, actor) = (self.target.again(), Some(self.to.clone()));
        layer::open(Origin { probe, turn: None, target, actor })
    }

    fn applied(&self, kind: Kind) {
        let perturbation = Perturbation { kind, target: self.target.clone() };
        let mut state = self.probe.lock();
        if let Some(done) = state.wanted.get_mut(&perturbation) {
            *done = true;
        }
        state.note(Event::Applied { perturbation });
    }
}
