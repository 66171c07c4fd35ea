//! Runs a search in virtual time: slots, durations and an oracle, but nothing real.
//!
//! The model of section 3 of the research note: a trial occupies a slot for the duration of its set, and outcomes
//! that are ready at the same moment are reported together. Cancelling is free and instant by default, as it was when
//! the goals were recorded; [`Slots::clearing`] lets it take time, as it does on real slots.

mod hold_out;
mod instances;
mod oracle;

pub use hold_out::{HOLD_OUT_FAMILIES, HOLD_OUT_SIZES, hold_out};
pub use instances::{Family, Instance, ReadError, generate, read};
pub use oracle::{Durations, Oracle};

use std::time::Duration;

use faultscope_model::{DeltaSet, SlotId};
use faultscope_search::Ticket;
use faultscope_search::{Search, SlotView, Standing};

/// The slots of a simulation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Slots {
    /// Number of slots.
    pub count: usize,
    /// How long trials take on them.
    pub durations: Durations,
    /// The time that cancelling takes, as a share of the cancelled trial's whole duration. The slot is busy meanwhile.
    pub cancel_share: f64,
}

impl Slots {
    /// Slots that are free as soon as a trial is cancelled.
    pub fn new(count: usize, durations: Durations) -> Self {
        Self { count, durations, cancel_share: 0.0 }
    }

    /// Makes a cancelled trial keep its slot for this share of its duration.
    pub fn clearing(self, cancel_share: f64) -> Self {
        Self { cancel_share, ..self }
    }
}

/// The cost and the result of a simulated search.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Run {
    /// Finished trials.
    pub finished: u32,
    /// Started trials.
    pub started: u32,
    /// Cancelled trials, including those that still ran when the search was done.
    pub cancelled: u32,
    /// The virtual time at which the search was done, in mean durations of a trial.
    pub makespan: f64,
    /// The time that slots were busy with trials and with clearing cancelled ones.
    pub busy: f64,
    /// The final state of the search.
    pub standing: Standing,
    /// The first violation of the search interface, if any.
    pub misconduct: Option<String>,
}

impl Run {
    /// The answer.
    pub fn answer(&self) -> &DeltaSet {
        &self.standing.best
    }
}

/// A trial on a slot. Its start lies in the future if it waits for the slot to be cleared.
struct Running {
    trial: Ticket,
    set: DeltaSet,
    slot: usize,
    began: f64,
    ends: f64,
}

/// A cancelled trial that still occupies its slot.
#[derive(Clone, Copy)]
struct Clearing {
    trial: Ticket,
    until: f64,
}

struct Simulation<'a> {
    slots: &'a Slots,
    now: f64,
    running: Vec<Running>,
    clearing: Vec<Option<Clearing>>,
    current: Vec<Option<DeltaSet>>,
    /// The highest number of a trial so far.
    used: u64,
    run: Run,
}

/// Runs a search until it is done or this many trials have finished.
pub fn simulate(search: &mut dyn Search, oracle: &Oracle, slots: &Slots, most: u32) -> Run {
    let mut simulation = Simulation {
        slots,
        now: 0.0,
        running: Vec::new(),
        clearing: vec![None; slots.count],
        current: vec![None; slots.count],
        used: 0,
        run: Run::default(),
    };
    while !search.is_done() && simulation.run.finished < most {
        let in_flight: Vec<Ticket> = simulation.running.iter().map(|r| r.trial).collect();
        let moves = search.plan(&simulation.views(), &in_flight);
        for &trial in &moves.cancel {
            simulation.cancel(trial);
        }
        for start in moves.start {
            simulation.start(start.trial, start.set, usize::from(start.slot.0), &moves.cancel);
        }
        if !simulation.advance() {
            if !search.is_done() {
                simulation.blame("has nothing to do and is not done".into());
            }
            break;
        }
        for done in simulation.take_finished() {
            let outcome = oracle.outcome(&done.set, done.trial);
            search.record(done.trial, &outcome, Duration::from_secs_f64(done.ends - done.began));
        }
    }
    simulation.end(search.standing())
}

impl Simulation<'_> {
    fn views(&self) -> Vec<SlotView> {
        (0..self.slots.count)
            .map(|slot| SlotView {
                slot: SlotId(slot as u16),
                current: self.current[slot].clone(),
                busy: self.trial_on(slot).or(self.clearing[slot].map(|clearing| clearing.trial)),
            })
            .collect()
    }

    fn trial_on(&self, slot: usize) -> Option<Ticket> {
        self.running.iter().find(|r| r.slot == slot).map(|r| r.trial)
    }

    fn cancel(&mut self, trial: Ticket) {
        let Some(place) = self.running.iter().position(|r| r.trial == trial) else {
            return self.blame(format!("cancels {trial}, which does not run"));
        };
        let stopped = self.running.remove(place);
        if stopped.began > self.now {
            // It still waited for its slot: as if it had never been requested.
            self.run.started -= 1;
            return;
        }
        self.run.busy += self.now - stopped.began;
        self.run.cancelled += 1;
        let takes = self.slots.cancel_share * (stopped.ends - stopped.began);
        if takes > 0.0 {
            self.run.busy += takes;
            self.clearing[stopped.slot] = Some(Clearing { trial, until: self.now + takes });
        }
    }

    fn start(&mut self, trial: Ticket, set: DeltaSet, slot: usize, cancelled: &[Ticket]) {
        let clearing = self.clearing.get(slot).copied().flatten();
        // Only the one who cancels a trial may use its slot before it is clear: others see it as busy.
        let is_busy = clearing.is_some_and(|clearing| !cancelled.contains(&clearing.trial));
        if slot >= self.slots.count || is_busy || self.trial_on(slot).is_some() {
            return self.blame(format!("starts {trial} on a busy slot"));
        }
        if trial.0 <= self.used {
            self.blame(format!("uses the number of {trial} again"));
        }
        self.used = self.used.max(trial.0);
        self.current[slot] = Some(set.clone());
        let began = clearing.map_or(self.now, |clearing| clearing.until);
        let ends = began + self.slots.durations.of(&set);
        self.running.push(Running { trial, set, slot, began, ends });
        self.run.started += 1;
    }

    /// Advances to the moment when a trial ends or a slot becomes free; false if nothing will happen.
    fn advance(&mut self) -> bool {
        let free = |slot: &usize| self.trial_on(*slot).is_none();
        let clear = (0..self.slots.count).filter(free).filter_map(|slot| self.clearing[slot]);
        let moments = self.running.iter().map(|r| r.ends).chain(clear.map(|clearing| clearing.until));
        let Some(next) = moments.min_by(f64::total_cmp) else {
            return false;
        };
        self.now = next;
        for clearing in &mut self.clearing {
            *clearing = clearing.filter(|clearing| clearing.until > next);
        }
        true
    }

    fn take_finished(&mut self) -> Vec<Running> {
        let now = self.now;
        let (mut ready, still): (Vec<_>, Vec<_>) = self.running.drain(..).partition(|r| r.ends <= now);
        self.running = still;
        ready.sort_by_key(|r| r.trial);
        for done in &ready {
            self.run.finished += 1;
            self.run.busy += done.ends - done.began;
        }
        ready
    }

    fn blame(&mut self, misconduct: String) {
        self.run.misconduct.get_or_insert(misconduct);
    }

    fn end(mut self, standing: Standing) -> Run {
        self.run.cancelled += self.running.len() as u32;
        self.run.busy += self.running.iter().map(|r| (self.now - r.began).max(0.0)).sum::<f64>();
        Run { makespan: self.now, standing, ..self.run }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultscope_model::Outcome;
    use faultscope_search::{Moves, Start};

    const DURATIONS: Durations = Durations::Lognormal(1);

    /// Does what a script says, one entry for each call of `plan`, and notes how it was shown slot 0.
    struct Scripted {
        script: Vec<Moves>,
        last: u64,
        seen: Vec<Option<Ticket>>,
        finished: Vec<Ticket>,
    }

    impl Search for Scripted {
        fn plan(&mut self, slots: &[SlotView], _in_flight: &[Ticket]) -> Moves {
            self.seen.push(slots[0].busy);
            if self.script.is_empty() { Moves::default() } else { self.script.remove(0) }
        }

        fn record(&mut self, trial: Ticket, _outcome: &Outcome, _cost: Duration) {
            self.finished.push(trial);
        }

        fn is_done(&self) -> bool {
            self.finished.contains(&Ticket(self.last))
        }
    }

    /// A set whose trials are short, and one whose trials take longer, with their durations.
    fn sets() -> [(DeltaSet, f64); 2] {
        let mut sets: Vec<(DeltaSet, f64)> = (0..2)
            .map(|delta| DeltaSet::from_iter([delta]))
            .map(|set| (set.clone(), DURATIONS.of(&set)))
            .collect();
        sets.sort_by(|a, b| a.1.total_cmp(&b.1));
        sets.try_into().unwrap()
    }

    fn start(trial: u64, set: &DeltaSet, slot: u16) -> Start {
        Start { trial: Ticket(trial), set: set.clone(), slot: SlotId(slot) }
    }

    fn moves(start: Vec<Start>, cancel: &[u64]) -> Moves {
        Moves { start, cancel: cancel.iter().copied().map(Ticket).collect() }
    }

    fn run(script: Vec<Moves>, last: u64, share: f64) -> (Scripted, Run) {
        let instance = Instance::new("scripted-0".into(), Family::Mono, 3, vec![vec![2]], 1);
        let mut search = Scripted { script, last, seen: Vec::new(), finished: Vec::new() };
        let slots = Slots::new(2, DURATIONS).clearing(share);
        let run = simulate(&mut search, &Oracle::new(&instance), &slots, 10);
        (search, run)
    }

    #[test]
    fn a_trial_that_wants_the_slot_of_a_cancelled_one_waits_until_that_is_cleared() {
        let [(short, takes), (long, longer)] = sets();
        for share in [0.0, 0.5, 2.0] {
            let script = vec![
                moves(vec![start(1, &long, 0), start(2, &short, 1)], &[]),
                moves(vec![start(3, &short, 0)], &[1]),
            ];
            let (_, run) = run(script, 3, share);
            assert_eq!(run.misconduct, None);
            assert!(
                (run.makespan - (2.0 * takes + share * longer)).abs() < 1e-9,
                "{share}: {}",
                run.makespan
            );
            assert_eq!((run.started, run.finished, run.cancelled), (3, 2, 1));
        }
    }

    #[test]
    fn a_slot_is_shown_as_busy_until_it_is_cleared() {
        let [(short, takes), (long, longer)] = sets();
        let script = || {
            vec![
                moves(vec![start(1, &long, 0), start(2, &short, 1)], &[]),
                moves(vec![], &[1]),
                moves(vec![start(3, &short, 0)], &[]),
            ]
        };
        let (search, cleared) = run(script(), 3, 0.5);
        assert_eq!(search.seen, [None, Some(Ticket(1)), None]);
        assert!((cleared.makespan - (2.0 * takes + 0.5 * longer)).abs() < 1e-9, "{}", cleared.makespan);
        // Another trial ends while the slot is being cleared: that is no time to start on it.
        let mut early = script();
        early[1].start.push(start(3, &short, 1));
        early[2].start = vec![start(4, &short, 0)];
        let (search, early) = run(early, 4, 100.0);
        assert_eq!(search.seen[2], Some(Ticket(1)));
        assert_eq!(early.misconduct.as_deref(), Some("starts ticket 4 on a busy slot"));
    }

    #[test]
    fn a_trial_that_waits_for_its_slot_can_be_taken_back_at_no_cost() {
        let [(short, takes), (long, _)] = sets();
        let script = vec![
            moves(vec![start(1, &long, 0), start(2, &short, 1)], &[]),
            moves(vec![start(3, &long, 0), start(4, &short, 1)], &[1]),
            moves(vec![start(5, &short, 1)], &[3]),
        ];
        let (_, run) = run(script, 5, 100.0);
        assert_eq!((run.started, run.finished, run.cancelled), (4, 3, 1));
        assert!((run.makespan - 3.0 * takes).abs() < 1e-9);
    }
}
