//! The samples on kameo.

use faultscope_bench::resilience::simulate::System;
use faultscope_journal::Journal;
use faultscope_kameo::Probed;
use faultscope_probe::Probe;
use kameo::prelude::*;

use crate::accumulator::{self, Accumulator, Delivering, NUMBERS};
use crate::counter::{self, Broken, Counter, Pair};
use crate::{Faults, actor_name};

#[derive(Clone)]
struct Settings {
    name: String,
    broken: Broken,
    successors: Vec<ActorRef<Counting>>,
    journal: Journal<counter::Kept>,
}

struct Counting {
    settings: Settings,
    counter: Counter,
}

impl Actor for Counting {
    type Args = Settings;
    type Error = std::convert::Infallible;

    async fn on_start(settings: Settings, _: ActorRef<Self>) -> Result<Self, Self::Error> {
        let Settings { name, broken, successors, journal } = &settings;
        let counter = Counter::recover(name, journal, broken, successors.len());
        Ok(Self { settings, counter })
    }
}

#[derive(Clone)]
struct Update {
    from: String,
    id: u64,
    sender: Option<ActorRef<Counting>>,
}

struct Confirm {
    id: u64,
}

struct Read;

impl Message<Update> for Counting {
    type Reply = ();

    async fn handle(&mut self, message: Update, context: &mut Context<Self, ()>) {
        let deliveries = self.counter.update(&message.from, message.id);
        for (successor, id) in self.settings.successors.iter().zip(deliveries) {
            let (from, sender) = (self.settings.name.clone(), Some(context.actor_ref().clone()));
            // A receiver that is gone shows in its counter.
            let _ = successor.tell(Update { from, id, sender }).await;
        }
        if let Some(sender) = message.sender {
            let _ = sender.tell(Confirm { id: message.id }).await;
        }
    }
}

impl Message<Confirm> for Counting {
    type Reply = ();

    async fn handle(&mut self, message: Confirm, _: &mut Context<Self, ()>) {
        self.counter.confirm(message.id);
    }
}

impl Message<Read> for Counting {
    type Reply = u64;

    async fn handle(&mut self, _: Read, _: &mut Context<Self, u64>) -> u64 {
        self.counter.value()
    }
}

pub(crate) async fn count(probe: &Probe, system: &System, faults: &Faults) -> Vec<(String, u64)> {
    let journal = Journal::new();
    let pair = Pair::new(faults);
    let count = system.successors.len();
    let mut actors: Vec<Option<ActorRef<Counting>>> = vec![None; count];
    // Successors first: they have higher numbers.
    for number in (0..count).rev() {
        let settings = Settings {
            name: actor_name(number),
            broken: Broken::new(system.kind, faults, number, pair.as_ref()),
            successors: system.successors[number].iter().filter_map(|&to| actors[to].clone()).collect(),
            journal: journal.clone(),
        };
        let probed = Probed::new(probe, actor_name(number)).persistent().at_least_once::<Update>();
        actors[number] = Some(probed.spawn(settings));
    }
    if let Some(first) = &actors[0] {
        let stimulus = Update { from: "test".into(), id: 1, sender: None };
        let _ = probe.run(async { first.tell(stimulus).await }).await;
    }
    probe.quiet().await;
    let mut counters = Vec::new();
    for (number, actor) in actors.iter().enumerate() {
        if let Some(actor) = actor {
            counters.push((actor_name(number), actor.ask(Read).await.unwrap_or(u64::MAX)));
        }
    }
    for actor in actors.iter().flatten() {
        actor.kill();
        actor.wait_for_shutdown().await;
    }
    counters.push(("pair".to_owned(), u64::from(pair.is_some_and(|pair| pair.is_broken()))));
    counters
}

#[derive(Clone)]
struct DeliverySettings {
    accumulator: ActorRef<Accumulating>,
    journal: Journal<accumulator::Kept>,
}

struct GuaranteedDelivery {
    accumulator: ActorRef<Accumulating>,
    delivering: Delivering,
}

impl Actor for GuaranteedDelivery {
    type Args = DeliverySettings;
    type Error = std::convert::Infallible;

    async fn on_start(settings: DeliverySettings, myself: ActorRef<Self>) -> Result<Self, Self::Error> {
        let delivering = Delivering::recover(&settings.journal);
        for (id, amount) in delivering.unconfirmed() {
            let _ = settings.accumulator.tell(Count { id, amount, sender: myself.clone() }).await;
        }
        Ok(Self { accumulator: settings.accumulator, delivering })
    }
}

struct Plus(u64);

struct Confirmed {
    id: u64,
}

impl Message<Plus> for GuaranteedDelivery {
    type Reply = ();

    async fn handle(&mut self, Plus(amount): Plus, context: &mut Context<Self, ()>) {
        let id = self.delivering.plus(amount);
        let sender = context.actor_ref().clone();
        let _ = self.accumulator.tell(Count { id, amount, sender }).await;
    }
}

impl Message<Confirmed> for GuaranteedDelivery {
    type Reply = ();

    async fn handle(&mut self, message: Confirmed, _: &mut Context<Self, ()>) {
        self.delivering.confirm(message.id);
    }
}

struct Accumulating(Accumulator);

impl Actor for Accumulating {
    type Args = bool;
    type Error = std::convert::Infallible;

    async fn on_start(repaired: bool, _: ActorRef<Self>) -> Result<Self, Self::Error> {
        Ok(Self(Accumulator::new(repaired)))
    }
}

#[derive(Clone)]
struct Count {
    id: u64,
    amount: u64,
    sender: ActorRef<GuaranteedDelivery>,
}

struct Total;

impl Message<Count> for Accumulating {
    type Reply = ();

    async fn handle(&mut self, message: Count, _: &mut Context<Self, ()>) {
        self.0.count(message.id, message.amount);
        let _ = message.sender.tell(Confirmed { id: message.id }).await;
    }
}

impl Message<Total> for Accumulating {
    type Reply = u64;

    async fn handle(&mut self, _: Total, _: &mut Context<Self, u64>) -> u64 {
        self.0.sum
    }
}

pub(crate) async fn sum(probe: &Probe, repaired: bool) -> Vec<(String, u64)> {
    let accumulator: ActorRef<Accumulating> =
        Probed::new(probe, "accumulator").at_least_once::<Count>().spawn(repaired);
    let settings = DeliverySettings { accumulator: accumulator.clone(), journal: Journal::new() };
    let delivery: ActorRef<GuaranteedDelivery> = Probed::new(probe, "gda").persistent().spawn(settings);
    probe
        .run(async {
            for number in 1..=NUMBERS {
                let _ = delivery.tell(Plus(number)).await;
            }
        })
        .await;
    probe.quiet().await;
    let sum = accumulator.ask(Total).await.unwrap_or(u64::MAX);
    delivery.kill();
    accumulator.kill();
    delivery.wait_for_shutdown().await;
    accumulator.wait_for_shutdown().await;
    vec![("accumulator".to_owned(), sum)]
}
