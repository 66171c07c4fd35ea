//! Perturbs [kameo] actors: a message is handled twice, an actor is restarted after a message.
//!
//! The actor itself stays as it is; only the line that spawns it changes:
//!
//! ```
//! use faultscope_kameo::Probed;
//! use faultscope_probe::Probe;
//! use kameo::prelude::*;
//!
//! #[derive(Actor, Clone)]
//! struct Counter(u32);
//! #[derive(Clone)]
//! struct Add(u32);
//! struct Read;
//!
//! impl Message<Add> for Counter {
//!     type Reply = ();
//!     async fn handle(&mut self, Add(more): Add, _: &mut Context<Self, ()>) { self.0 += more; }
//! }
//! impl Message<Read> for Counter {
//!     type Reply = u32;
//!     async fn handle(&mut self, _: Read, _: &mut Context<Self, u32>) -> u32 { self.0 }
//! }
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let probe = Probe::from_env("kameo").unwrap();
//! // Before: Counter::spawn(Counter(0))
//! let counter = Probed::<Counter>::new(&probe, "counter").at_least_once::<Add>().spawn(Counter(0));
//! probe.run(async { counter.tell(Add(2)).await.unwrap() }).await;
//! probe.quiet().await;
//! assert_eq!(counter.ask(Read).await.unwrap(), 2);
//! # });
//! ```
//!
//! [kameo]: https://docs.rs/kameo

use std::collections::{HashMap, VecDeque};
use std::fmt;

use faultscope_probe::{Probe, Turn};
use faultscope_probe_format::Kind;
use futures_util::FutureExt;
use kameo::Actor;
use kameo::actor::{ActorRef, Spawn};
use kameo::mailbox::{self, MailboxReceiver, MailboxSender, Signal};
use kameo::message::{BoxMessage, Message};
use tracing::Instrument;

/// Copies a message; returns it with the copy.
type Copier<A> = fn(BoxMessage<A>) -> (Option<BoxMessage<A>>, Option<BoxMessage<A>>);

/// Spawns an actor whose messages are recorded and perturbed.
pub struct Probed<A: Actor> {
    probe: Probe,
    name: String,
    persistent: bool,
    copiers: HashMap<&'static str, Copier<A>>,
}

impl<A: Actor> fmt::Debug for Probed<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Probed").field("name", &self.name).finish_non_exhaustive()
    }
}

impl<A: Actor> Probed<A>
where
    A::Args: Clone + Sync + 'static,
{
    /// An actor under a name that is the same in every run.
    pub fn new(probe: &Probe, name: impl Into<String>) -> Self {
        Self { probe: probe.clone(), name: name.into(), persistent: false, copiers: HashMap::new() }
    }

    /// Declares that messages of this type may be delivered more than once.
    pub fn at_least_once<M: Clone + Send + 'static>(mut self) -> Self
    where
        A: Message<M>,
    {
        self.copiers.insert(<A as Message<M>>::name(), |message| match message.as_any().downcast::<M>() {
            Ok(message) => {
                let copy: BoxMessage<A> = message.clone();
                (Some(message), Some(copy))
            }
            // Another message type under the same name cannot be copied.
            Err(_) => (None, None),
        });
        self
    }

    /// Declares that its state survives a restart: it is restored in `on_start`.
    pub fn persistent(mut self) -> Self {
        self.persistent = true;
        self
    }

    /// Spawns the actor. Its mailbox is unbounded: what is held back must not block senders.
    pub fn spawn(self, args: A::Args) -> ActorRef<A> {
        self.probe.created(&self.name, self.persistent);
        // References send into the first mailbox, the actor reads from the second.
        let (front, arriving) = mailbox::unbounded();
        let (back, receiver) = mailbox::unbounded();
        let actor = A::spawn_with_mailbox(args.clone(), (front, receiver));
        tokio::spawn(self.pump(arriving, back, args));
        actor
    }

    async fn pump(self, mut arriving: MailboxReceiver<A>, back: MailboxSender<A>, args: A::Args) {
        // kameo holds back messages until the actor has started, but not after a restart: so they wait here.
        let mut early = Some(VecDeque::new());
        loop {
            let signal = tokio::select! {
                signal = arriving.recv() => signal,
                // The actor is gone: when the pump ends, the front mailbox closes, which informs all senders.
                () = back.closed() => return,
            };
            let Some(signal) = signal else {
                return;
            };
            let passed = match (signal, &mut early) {
                (signal @ Signal::Message { sent_within_actor: false, .. }, Some(early)) => {
                    early.push_back(signal);
                    true
                }
                (signal @ Signal::Message { .. }, _) => self.pass(signal, &back, &args).await,
                (signal, _) => {
                    let started = matches!(signal, Signal::StartupFinished);
                    let mut passed = back.send(signal).await.is_ok();
                    if started {
                        for signal in early.take().into_iter().flatten() {
                            passed = passed && self.pass(signal, &back, &args).await;
                        }
                    }
                    passed
                }
            };
            if !passed {
                return;
            }
        }
    }

    /// Forwards a message, twice if it is to be duplicated, followed by a restart if it is to be.
    async fn pass(&self, signal: Signal<A>, back: &MailboxSender<A>, args: &A::Args) -> bool {
        let Signal::Message { message, actor_ref, reply, sent_within_actor, message_name, caller_span } =
            signal
        else {
            return true;
        };
        let copier = self.copiers.get(message_name).filter(|_| reply.is_none());
        let short = message_name.rsplit("::").next().unwrap_or(message_name);
        let turn = self.probe.received(&caller_span, &self.name, short, copier.is_some());
        drop(caller_span);
        let (message, copy) = match copier.filter(|_| turn.is_wanted(Kind::Duplicate)) {
            Some(copy) => copy(message),
            None => (Some(message), None),
        };
        let Some(message) = message else {
            return true;
        };
        let pack = |message, reply, turn: &Turn| Signal::Message {
            message,
            actor_ref: actor_ref.clone(),
            reply,
            sent_within_actor,
            message_name,
            caller_span: turn.span().clone(),
        };
        if back.send(pack(message, reply, &turn)).await.is_err() {
            return false;
        }
        if let Some(copy) = copy
            && back.send(pack(copy, None, &turn.again())).await.is_err()
        {
            return false;
        }
        if turn.is_wanted(Kind::Restart) {
            let (span, args, myself) = (turn.restarted(), args.clone(), actor_ref.clone());
            let restart = Signal::Callback {
                actor_ref: actor_ref.clone(),
                callback: Box::new(move |state: &mut A, _| {
                    async move {
                        // An actor that cannot restart keeps its state; its test will show that.
                        if let Ok(fresh) = A::on_start(args, myself).await {
                            *state = fresh;
                        }
                    }
                    .instrument(span)
                    .boxed()
                }),
            };
            return back.send(restart).await.is_ok();
        }
        true
    }
}
