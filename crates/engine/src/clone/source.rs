//! What wants clones: schedules, ends of instances, and later detectors of anomalies.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use faultscope_model::event::Event;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Instant, Interval, MissedTickBehavior};

use super::manifest::CloneTrigger;

/// Something that wants clones while an application is up.
#[async_trait]
pub trait CloneSource: Send {
    /// Waits until it wants one; none if it never will again.
    async fn next(&mut self) -> Option<CloneTrigger>;
}

/// Wants a clone at regular times.
#[derive(Debug)]
pub struct EveryInterval {
    ticks: Interval,
}

/// Wants a clone when an instance ends by itself.
#[derive(Debug)]
pub struct OnExit {
    events: broadcast::Receiver<Arc<Event>>,
}

impl EveryInterval {
    /// The first clone is wanted after one interval.
    pub fn new(every: Duration) -> Self {
        let mut ticks = tokio::time::interval_at(Instant::now() + every, every);
        // A clone that takes longer than the interval must not be followed by several at once.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { ticks }
    }
}

impl OnExit {
    /// Listens to the events of a session.
    pub fn new(events: broadcast::Receiver<Arc<Event>>) -> Self {
        Self { events }
    }
}

#[async_trait]
impl CloneSource for EveryInterval {
    async fn next(&mut self) -> Option<CloneTrigger> {
        self.ticks.tick().await;
        Some(CloneTrigger::Schedule { every: self.ticks.period() })
    }
}

#[async_trait]
impl CloneSource for OnExit {
    async fn next(&mut self) -> Option<CloneTrigger> {
        loop {
            match self.events.recv().await {
                Ok(event) => {
                    if let Event::InstanceExited { instance, .. } = &*event {
                        return Some(CloneTrigger::Exit { instance: instance.clone() });
                    }
                }
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use faultscope_model::{ExitReason, InstanceId, TrialId, TrialRole};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_schedule_wants_one_clone_in_each_interval() {
        let every = Duration::from_secs(60);
        let mut schedule = EveryInterval::new(every);
        let started = Instant::now();
        for n in 1..=3 {
            assert_eq!(schedule.next().await, Some(CloneTrigger::Schedule { every }));
            assert_eq!(started.elapsed(), every * n);
        }
    }

    #[tokio::test]
    async fn an_end_of_an_instance_wants_a_clone() {
        let (sender, events) = broadcast::channel(8);
        let mut exits = OnExit::new(events);
        let instance: InstanceId = "order-1".parse().unwrap();
        let trial = TrialId { role: TrialRole::Search, number: 1 };
        let reason = ExitReason::NotReady { detail: String::new() };
        sender.send(Arc::new(Event::Note { text: "x".into() })).unwrap();
        sender.send(Arc::new(Event::InstanceExited { trial, instance: instance.clone(), reason })).unwrap();
        assert_eq!(exits.next().await, Some(CloneTrigger::Exit { instance }));
        drop(sender);
        assert_eq!(exits.next().await, None);
    }
}
