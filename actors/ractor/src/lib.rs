//! Perturbs [ractor] actors: a message is handled twice, an actor is restarted after a message.
//!
//! The actor itself stays as it is; only the line that spawns it changes:
//!
//! ```
//! use faultscope_probe::Probe;
//! use faultscope_ractor::Probed;
//! use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};
//!
//! struct Counter;
//! enum Message { Add(u32), Read(RpcReplyPort<u32>) }
//!
//! impl Actor for Counter {
//!     type Msg = Message;
//!     type State = u32;
//!     type Arguments = u32;
//!     async fn pre_start(&self, _: ActorRef<Message>, start: u32) -> Result<u32, ActorProcessingErr> { Ok(start) }
//!     async fn handle(&self, _: ActorRef<Message>, message: Message, sum: &mut u32) -> Result<(), ActorProcessingErr> {
//!         match message {
//!             Message::Add(more) => *sum += more,
//!             Message::Read(port) => port.send(*sum)?,
//!         }
//!         Ok(())
//!     }
//! }
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let probe = Probe::from_env("ractor").unwrap();
//! // Before: Actor::spawn(None, Counter, 0)
//! let counter = Probed::new(&probe, "counter", Counter)
//!     .named(|message| match message { Message::Add(_) => "Add", Message::Read(_) => "Read" })
//!     .at_least_once(|message| match message { Message::Add(more) => Some(Message::Add(*more)), _ => None });
//! let (counter, _) = Actor::spawn(None, counter, 0).await.unwrap();
//! probe.act(|| counter.cast(Message::Add(2)).unwrap());
//! probe.quiet().await;
//! assert_eq!(ractor::call!(counter, Message::Read).unwrap(), 2);
//! # });
//! ```
//!
//! [ractor]: https://docs.rs/ractor

mod supervisors;

use std::fmt;

use faultscope_probe::Probe;
use faultscope_probe_format::Kind;
use ractor::{Actor, ActorProcessingErr, ActorRef, SupervisionEvent};
use supervisors::Listed;
use tracing::{Instrument, Span};

/// An actor whose messages are recorded and perturbed.
pub struct Probed<A: Actor> {
    actor: A,
    probe: Probe,
    name: String,
    persistent: bool,
    hard: bool,
    message_name: fn(&A::Msg) -> &'static str,
    copy: fn(&A::Msg) -> Option<A::Msg>,
}

impl<A: Actor> fmt::Debug for Probed<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Probed").field("name", &self.name).finish_non_exhaustive()
    }
}

impl<A: Actor> Probed<A> {
    /// An actor under a name that is the same in every run.
    pub fn new(probe: &Probe, name: impl Into<String>, actor: A) -> Self {
        Self {
            actor,
            probe: probe.clone(),
            name: name.into(),
            persistent: false,
            hard: false,
            message_name: |_| "Message",
            copy: |_| None,
        }
    }

    /// Sets the names of its messages, which distinguish them in reports.
    pub fn named(mut self, message_name: fn(&A::Msg) -> &'static str) -> Self {
        self.message_name = message_name;
        self
    }

    /// Copies messages that may be delivered more than once; those with a reply port cannot be copied.
    pub fn at_least_once(mut self, copy: fn(&A::Msg) -> Option<A::Msg>) -> Self {
        self.copy = copy;
        self
    }

    /// Declares that its state survives a restart: it is restored in `pre_start`.
    pub fn persistent(mut self) -> Self {
        self.persistent = true;
        self
    }

    /// Makes a restart kill it, as a crash does: its reference and its mailbox are gone, and its
    /// supervisor has to spawn it again. The supervisor must be probed too, so that [`Probe::quiet`] waits for
    /// it. Without this a restart rebuilds the state behind the same reference, as Akka does.
    pub fn hard(mut self) -> Self {
        self.hard = true;
        self
    }
}

/// The state of a [`Probed`] actor: that of the actor, and what it was started with.
pub struct ProbedState<A: Actor> {
    state: A::State,
    arguments: A::Arguments,
    /// While it lives, restarts of its children wait for it.
    _listed: Listed,
}

impl<A: Actor> fmt::Debug for ProbedState<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProbedState").finish_non_exhaustive()
    }
}

impl<A: Actor> Actor for Probed<A>
where
    A::Arguments: Clone,
{
    type Msg = A::Msg;
    type State = ProbedState<A>;
    type Arguments = A::Arguments;

    async fn pre_start(
        &self,
        myself: ActorRef<A::Msg>,
        arguments: A::Arguments,
    ) -> Result<Self::State, ActorProcessingErr> {
        self.probe.created(&self.name, self.persistent);
        let listed = Listed::new(myself.get_id());
        let state = self.actor.pre_start(myself, arguments.clone()).await?;
        Ok(ProbedState { state, arguments, _listed: listed })
    }

    async fn post_start(
        &self,
        myself: ActorRef<A::Msg>,
        state: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        self.actor.post_start(myself, &mut state.state).await
    }

    async fn post_stop(
        &self,
        myself: ActorRef<A::Msg>,
        state: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        self.actor.post_stop(myself, &mut state.state).await
    }

    async fn handle(
        &self,
        myself: ActorRef<A::Msg>,
        message: A::Msg,
        state: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        let copy = (self.copy)(&message);
        // ractor handles a message in the span in which it was sent.
        let name = (self.message_name)(&message);
        let turn = self.probe.received(&Span::current(), &self.name, name, copy.is_some());
        let span = turn.span().clone();
        self.actor.handle(myself.clone(), message, &mut state.state).instrument(span).await?;
        if let Some(copy) = copy.filter(|_| turn.is_wanted(Kind::Duplicate)) {
            let again = turn.again();
            let span = again.span().clone();
            self.actor.handle(myself.clone(), copy, &mut state.state).instrument(span).await?;
        }
        if turn.is_wanted(Kind::Restart) {
            let span = turn.restarted();
            if self.hard {
                supervisors::hold(&myself.get_cell(), span);
                myself.kill();
                return Ok(());
            }
            let start = self.actor.pre_start(myself.clone(), state.arguments.clone());
            state.state = start.instrument(span.clone()).await?;
            self.actor.post_start(myself, &mut state.state).instrument(span).await?;
        }
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<A::Msg>,
        message: SupervisionEvent,
        state: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        let gone = match &message {
            SupervisionEvent::ActorTerminated(who, ..) | SupervisionEvent::ActorFailed(who, _) => Some(who),
            _ => None,
        };
        let span = gone.and_then(|who| supervisors::release(myself.get_id(), who.get_id()));
        let handle = self.actor.handle_supervisor_evt(myself, message, &mut state.state);
        handle.instrument(span.unwrap_or_else(Span::none)).await
    }
}
