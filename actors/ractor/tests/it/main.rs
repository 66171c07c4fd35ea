//! Hard restarts: the actor is killed, and its supervisor spawns it anew, or does not.

use std::sync::{Arc, Mutex};

use faultscope_probe::Probe;
use faultscope_probe_format::{Configuration, Event, Kind, Perturbation};
use faultscope_ractor::Probed;
use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort, SupervisionEvent, call};

/// What a counter keeps beyond its life.
type Kept = Arc<Mutex<u32>>;

enum Message {
    Add(u32),
    Read(RpcReplyPort<u32>),
}

fn named(message: &Message) -> &'static str {
    match message {
        Message::Add(_) => "Add",
        Message::Read(_) => "Read",
    }
}

struct Counter;

impl Actor for Counter {
    type Msg = Message;
    type State = u32;
    type Arguments = Kept;

    async fn pre_start(&self, _: ActorRef<Message>, kept: Kept) -> Result<u32, ActorProcessingErr> {
        Ok(*kept.lock().unwrap())
    }

    async fn handle(
        &self,
        _: ActorRef<Message>,
        message: Message,
        sum: &mut u32,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            Message::Add(more) => *sum += more,
            Message::Read(port) => port.send(*sum)?,
        }
        Ok(())
    }
}

/// Keeps what it passes on, and spawns its counter anew with it, or with nothing.
struct Supervisor {
    probe: Probe,
    forgets: bool,
}

impl Supervisor {
    async fn spawn(
        &self,
        myself: &ActorRef<Message>,
        kept: Kept,
    ) -> Result<ActorRef<Message>, ActorProcessingErr> {
        let counter = Probed::new(&self.probe, "counter", Counter).persistent().hard().named(named);
        Ok(Actor::spawn_linked(None, counter, kept, myself.get_cell()).await?.0)
    }
}

impl Actor for Supervisor {
    type Msg = Message;
    type State = (ActorRef<Message>, Kept);
    type Arguments = ();

    async fn pre_start(&self, myself: ActorRef<Message>, (): ()) -> Result<Self::State, ActorProcessingErr> {
        Ok((self.spawn(&myself, Kept::default()).await?, Kept::default()))
    }

    async fn handle(
        &self,
        _: ActorRef<Message>,
        message: Message,
        (counter, kept): &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        if let Message::Add(more) = message {
            *kept.lock().unwrap() += more;
        }
        Ok(counter.cast(message)?)
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<Message>,
        event: SupervisionEvent,
        (counter, kept): &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        if let SupervisionEvent::ActorTerminated(..) = event {
            let back = if self.forgets { Kept::default() } else { Arc::clone(kept) };
            *counter = self.spawn(&myself, back).await?;
        }
        Ok(())
    }
}

async fn sum_after_a_restart(forgets: bool) -> (u32, Probe) {
    let target = "supervisor.Add#2/counter.Add".into();
    let restart = Perturbation { kind: Kind::Restart, target };
    let probe = Probe::start(Configuration::new(vec![restart])).unwrap();
    let supervisor = Supervisor { probe: probe.clone(), forgets };
    let supervisor = Probed::new(&probe, "supervisor", supervisor).named(named);
    let (supervisor, ending) = Actor::spawn(None, supervisor, ()).await.unwrap();
    for number in 1..=3 {
        probe.act(|| supervisor.cast(Message::Add(number)).unwrap());
        probe.quiet().await;
    }
    let sum = call!(supervisor, Message::Read).unwrap();
    supervisor.stop(None);
    ending.await.unwrap();
    (sum, probe)
}

#[tokio::test]
async fn a_killed_actor_is_back_before_it_is_quiet() {
    let (sum, probe) = sum_after_a_restart(false).await;
    assert_eq!((sum, probe.missed()), (6, vec![]));
    let created =
        |event: &&Event| matches!(event, Event::Create { child, .. } if child.as_str() == "counter");
    assert_eq!(probe.events().iter().filter(created).count(), 2, "spawned twice");
}

#[tokio::test]
async fn a_supervisor_that_forgets_is_found() {
    assert_eq!(sum_after_a_restart(true).await.0, 3, "what came before the restart is lost");
}

#[tokio::test]
async fn nobody_waits_for_an_actor_that_has_no_supervisor() {
    let restart = Perturbation { kind: Kind::Restart, target: "counter.Add".into() };
    let probe = Probe::start(Configuration::new(vec![restart])).unwrap();
    let counter = Probed::new(&probe, "counter", Counter).persistent().hard().named(named);
    let (counter, ending) = Actor::spawn(None, counter, Kept::default()).await.unwrap();
    probe.act(|| counter.cast(Message::Add(1)).unwrap());
    probe.quiet().await;
    let _ = ending.await;
    assert!(counter.cast(Message::Add(2)).is_err(), "it is gone");
    assert_eq!(probe.missed(), []);
}
