//! The samples on ractor.

use faultscope_bench::resilience::simulate::System;
use faultscope_journal::Journal;
use faultscope_probe::Probe;
use faultscope_ractor::Probed;
use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort, SpawnErr};

use crate::accumulator::{self, Accumulator, Delivering, NUMBERS};
use crate::counter::{self, Broken, Counter, Pair};
use crate::{Faults, actor_name};

enum Message {
    Update { from: String, id: u64, sender: Option<ActorRef<Self>> },
    Confirm { id: u64 },
    Read(RpcReplyPort<u64>),
}

struct Counting {
    name: String,
    broken: Broken,
    successors: Vec<ActorRef<Message>>,
}

impl Actor for Counting {
    type Msg = Message;
    type State = Counter;
    type Arguments = Journal<counter::Kept>;

    async fn pre_start(
        &self,
        _: ActorRef<Message>,
        journal: Self::Arguments,
    ) -> Result<Counter, ActorProcessingErr> {
        Ok(Counter::recover(&self.name, &journal, &self.broken, self.successors.len()))
    }

    async fn handle(
        &self,
        myself: ActorRef<Message>,
        message: Message,
        state: &mut Counter,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            Message::Update { from, id, sender } => {
                let deliveries = state.update(&from, id);
                for (successor, id) in self.successors.iter().zip(deliveries) {
                    let (from, sender) = (self.name.clone(), Some(myself.clone()));
                    successor.cast(Message::Update { from, id, sender })?;
                }
                if let Some(sender) = sender {
                    sender.cast(Message::Confirm { id })?;
                }
            }
            Message::Confirm { id } => state.confirm(id),
            Message::Read(port) => port.send(state.value())?,
        }
        Ok(())
    }
}

pub(crate) async fn count(probe: &Probe, system: &System, faults: &Faults) -> Vec<(String, u64)> {
    let journal = Journal::new();
    let pair = Pair::new(faults);
    let count = system.successors.len();
    let mut actors: Vec<Option<ActorRef<Message>>> = vec![None; count];
    let mut tasks = Vec::new();
    // Successors first: they have higher numbers.
    for number in (0..count).rev() {
        let successors = system.successors[number].iter().filter_map(|&to| actors[to].clone()).collect();
        let counting = Counting {
            name: actor_name(number),
            broken: Broken::new(system.kind, faults, number, pair.as_ref()),
            successors,
        };
        let probed = Probed::new(probe, actor_name(number), counting)
            .persistent()
            .named(|message| match message {
                Message::Update { .. } => "Update",
                Message::Confirm { .. } => "Confirm",
                Message::Read(_) => "Read",
            })
            .at_least_once(|message| match message {
                Message::Update { from, id, sender } => {
                    Some(Message::Update { from: from.clone(), id: *id, sender: sender.clone() })
                }
                _ => None,
            });
        if let Ok((actor, task)) = Actor::spawn(None, probed, journal.clone()).await {
            actors[number] = Some(actor);
            tasks.push(task);
        }
    }
    if let Some(first) = &actors[0] {
        let stimulus = Message::Update { from: "test".into(), id: 1, sender: None };
        let _ = probe.act(|| first.cast(stimulus));
    }
    probe.quiet().await;
    let mut counters = Vec::new();
    for (number, actor) in actors.iter().enumerate() {
        if let Some(actor) = actor {
            let value = ractor::call!(actor, Message::Read).unwrap_or(u64::MAX);
            counters.push((actor_name(number), value));
            actor.stop(None);
        }
    }
    for task in tasks {
        let _ = task.await;
    }
    counters.push(("pair".to_owned(), u64::from(pair.is_some_and(|pair| pair.is_broken()))));
    counters
}

enum Numbers {
    Plus(u64),
    Confirm { id: u64 },
}

enum Counts {
    Count { id: u64, amount: u64, sender: ActorRef<Numbers> },
    Result(RpcReplyPort<u64>),
}

struct GuaranteedDelivery {
    accumulator: ActorRef<Counts>,
}

impl Actor for GuaranteedDelivery {
    type Msg = Numbers;
    type State = Delivering;
    type Arguments = Journal<accumulator::Kept>;

    async fn pre_start(
        &self,
        myself: ActorRef<Numbers>,
        journal: Self::Arguments,
    ) -> Result<Delivering, ActorProcessingErr> {
        let state = Delivering::recover(&journal);
        for (id, amount) in state.unconfirmed() {
            self.accumulator.cast(Counts::Count { id, amount, sender: myself.clone() })?;
        }
        Ok(state)
    }

    async fn handle(
        &self,
        myself: ActorRef<Numbers>,
        message: Numbers,
        state: &mut Delivering,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            Numbers::Plus(amount) => {
                let id = state.plus(amount);
                self.accumulator.cast(Counts::Count { id, amount, sender: myself })?;
            }
            Numbers::Confirm { id } => state.confirm(id),
        }
        Ok(())
    }
}

struct Accumulating;

impl Actor for Accumulating {
    type Msg = Counts;
    type State = Accumulator;
    type Arguments = bool;

    async fn pre_start(
        &self,
        _: ActorRef<Counts>,
        repaired: bool,
    ) -> Result<Accumulator, ActorProcessingErr> {
        Ok(Accumulator::new(repaired))
    }

    async fn handle(
        &self,
        _: ActorRef<Counts>,
        message: Counts,
        state: &mut Accumulator,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            Counts::Count { id, amount, sender } => {
                state.count(id, amount);
                sender.cast(Numbers::Confirm { id })?;
            }
            Counts::Result(port) => port.send(state.sum)?,
        }
        Ok(())
    }
}

pub(crate) async fn sum(probe: &Probe, repaired: bool) -> Vec<(String, u64)> {
    let sum = accumulate(probe, repaired).await.unwrap_or(u64::MAX);
    vec![("accumulator".to_owned(), sum)]
}

async fn accumulate(probe: &Probe, repaired: bool) -> Result<u64, SpawnErr> {
    let accumulator = Probed::new(probe, "accumulator", Accumulating)
        .named(|message| match message {
            Counts::Count { .. } => "Count",
            Counts::Result(_) => "Result",
        })
        .at_least_once(|message| match message {
            Counts::Count { id, amount, sender } => {
                Some(Counts::Count { id: *id, amount: *amount, sender: sender.clone() })
            }
            Counts::Result(_) => None,
        });
    let (accumulator, summing) = Actor::spawn(None, accumulator, repaired).await?;
    let delivery = GuaranteedDelivery { accumulator: accumulator.clone() };
    let delivery = Probed::new(probe, "gda", delivery).persistent().named(|message| match message {
        Numbers::Plus(_) => "Plus",
        Numbers::Confirm { .. } => "Confirm",
    });
    let (delivery, delivering) = Actor::spawn(None, delivery, Journal::new()).await?;
    probe.act(|| {
        for number in 1..=NUMBERS {
            let _ = delivery.cast(Numbers::Plus(number));
        }
    });
    probe.quiet().await;
    let sum = ractor::call!(accumulator, Counts::Result).unwrap_or(u64::MAX);
    delivery.stop(None);
    accumulator.stop(None);
    let _ = delivering.await;
    let _ = summing.await;
    Ok(sum)
}
