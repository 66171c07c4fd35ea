//! Runs a search in virtual time: slots, durations and an oracle, but nothing real.
//!
//! The model of section 3 of the research note: a trial occupies a slot for the duration of its set,
//! cancelling is free and instant, and outcomes that are ready at the same moment are told together.

mod instances;
mod oracle;

pub use instances::{Family, Instance, ReadError, generate, read};
pub use oracle::{Durations, Oracle};

use std::time::Duration;

use faultscope_model::{DeltaSet, SlotId, TrialId};

use crate::{Search, SlotView, Standing};

/// What a simulated search cost and found.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Run {
    /// Trials that ran to their end.
    pub finished: u32,
    /// Trials that were started.
    pub started: u32,
    /// Trials that were cancelled, those among them that still ran when the search was done.
    pub cancelled: u32,
    /// The virtual time at which the search was done, in mean durations of a trial.
    pub makespan: f64,
    /// The time slots were busy with trials.
    pub busy: f64,
    /// What the search says at its end.
    pub standing: Standing,
    /// Whether the search did what it must not; the first such thing.
    pub misconduct: Option<String>,
}

impl Run {
    /// The answer.
    pub fn answer(&self) -> &DeltaSet {
        &self.standing.best
    }
}

struct Running {
    trial: TrialId,
    set: DeltaSet,
    slot: usize,
    began: f64,
    ends: f64,
}

/// Runs a search on so many slots until it is done or so many trials have finished.
pub fn simulate(
    search: &mut dyn Search,
    oracle: &Oracle,
    durations: Durations,
    slots: usize,
    most: u32,
) -> Run {
    let mut run = Run::default();
    let mut now = 0.0;
    let mut running: Vec<Running> = Vec::new();
    let mut current: Vec<Option<DeltaSet>> = vec![None; slots];
    let mut used = 0;
    while !search.is_done() && run.finished < most {
        let views: Vec<SlotView> = (0..slots)
            .map(|slot| SlotView {
                slot: SlotId(slot as u16),
                current: current[slot].clone(),
                busy: running.iter().find(|r| r.slot == slot).map(|r| r.trial),
            })
            .collect();
        let in_flight: Vec<TrialId> = running.iter().map(|r| r.trial).collect();
        let moves = search.plan(&views, &in_flight);
        for trial in moves.cancel {
            let Some(place) = running.iter().position(|r| r.trial == trial) else {
                run.misconduct.get_or_insert(format!("cancels {trial}, which does not run"));
                continue;
            };
            let stopped = running.remove(place);
            run.busy += now - stopped.began;
            run.cancelled += 1;
        }
        for start in moves.start {
            let slot = usize::from(start.slot.0);
            if slot >= slots || running.iter().any(|r| r.slot == slot) {
                run.misconduct.get_or_insert(format!("starts {} on a busy slot", start.trial));
                continue;
            }
            if start.trial.0 <= used {
                run.misconduct.get_or_insert(format!("uses the number of {} again", start.trial));
            }
            used = used.max(start.trial.0);
            current[slot] = Some(start.set.clone());
            let ends = now + durations.of(&start.set);
            running.push(Running { trial: start.trial, set: start.set, slot, began: now, ends });
            run.started += 1;
        }
        let Some(next) = running.iter().map(|r| r.ends).min_by(f64::total_cmp) else {
            if !search.is_done() {
                run.misconduct.get_or_insert("has nothing to do and is not done".into());
            }
            break;
        };
        now = next;
        let (mut ready, still): (Vec<_>, Vec<_>) = running.into_iter().partition(|r| r.ends <= now);
        running = still;
        ready.sort_by_key(|r| r.trial);
        for done in ready {
            run.finished += 1;
            run.busy += done.ends - done.began;
            let outcome = oracle.outcome(&done.set, done.trial);
            search.record(done.trial, &outcome, Duration::from_secs_f64(done.ends - done.began));
        }
    }
    run.cancelled += running.len() as u32;
    run.busy += running.iter().map(|r| now - r.began).sum::<f64>();
    run.makespan = now;
    run.standing = search.standing();
    run
}
