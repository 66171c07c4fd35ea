//! Parallel delta debugging: ddminPar of Zhou et al. 2019, section 4.4.
//!
//! Each round creates the subset, complement and finer-granularity tasks together, and also the
//! complements of doubled granularity that Figure 4 shows. They are ordered by type, sum of ranks and
//! cost. The first failing task in that order among those that have an answer ends the round, and the
//! cancel and remove rules of the section say what of the rest goes on.

use std::collections::HashSet;
use std::time::Duration;

use crate::Ticket;
use faultscope_model::{DeltaSet, Outcome};

use crate::ddmin::{partition, proof};
use crate::ledger::{Ledger, Verdict};
use crate::standing::{Cause, Round, Standing, Task, TaskEnd, TaskKind};
use crate::{Moves, Problem, Search, SlotView, Start};

/// ddminPar.
///
/// ```
/// use faultscope_search::{DdminPar, Problem, Search};
/// use faultscope_bench::simulate::{Durations, Oracle, Slots, read, simulate};
/// let instance = &read(r#"{"id":"a-0","n":8,"k":2,"family":"mono","failing":[2,6]}"#).unwrap()[0];
/// let mut search = DdminPar::new(Problem::new(8));
/// let run = simulate(&mut search, &Oracle::new(instance), &Slots::new(4, Durations::Unit), 1000);
/// assert_eq!(run.answer(), &instance.critical());
/// assert!(search.rounds().len() > 1);
/// ```
#[derive(Debug)]
pub struct DdminPar {
    problem: Problem,
    ledger: Ledger,
    left: Vec<usize>,
    granularity: usize,
    rounds: Vec<Round>,
    /// Running trials that no round needs any more.
    stale: Vec<Ticket>,
    done: bool,
    best: DeltaSet,
    unresolved: bool,
}

impl DdminPar {
    /// Searches all deltas of a problem; the node delta, when there is one, is tried first.
    pub fn new(problem: Problem) -> Self {
        let left: Vec<usize> = problem.full().iter().collect();
        let best = problem.full();
        let mut ledger = Ledger::default();
        ledger.learn(DeltaSet::new(), Verdict::Pass);
        ledger.learn(best.clone(), Verdict::Fail);
        let mut search = Self {
            problem,
            ledger,
            left,
            granularity: 2,
            rounds: Vec::new(),
            stale: Vec::new(),
            done: false,
            best,
            unresolved: false,
        };
        match search.problem.node {
            Some(node) if search.left.len() > 1 => search.open_node(node),
            _ => search.open(),
        }
        search.settle();
        search
    }

    fn whole(&self) -> DeltaSet {
        self.left.iter().copied().collect()
    }

    /// The round that tries the node delta: everything without it, and it alone. When only the first
    /// passes, the node delta is needed together with others and is searched like them.
    fn open_node(&mut self, node: usize) {
        let alone: DeltaSet = [node].into_iter().collect();
        let without = self.whole().difference(&alone);
        let task = |set, place| Task {
            kind: TaskKind::Node,
            part: (place, 2),
            set,
            end: TaskEnd::Waiting,
            trial: None,
            failed: None,
        };
        let tasks = vec![task(without, 1), task(alone, 2)];
        self.rounds.push(Round { from: self.whole(), granularity: 1, tasks, hit: None });
    }

    /// Creates the tasks of the next round.
    fn open(&mut self) {
        let whole = self.whole();
        if self.left.len() < 2 {
            self.done = true;
            return;
        }
        let parts = partition(&self.left, self.granularity);
        let finer: Vec<&[usize]> = if parts.len() < self.left.len() {
            parts.iter().flat_map(|part| partition(part, 2)).collect()
        } else {
            Vec::new()
        };
        let mut tasks: Vec<Task> = Vec::new();
        let mut seen = HashSet::new();
        let kinds = [
            (TaskKind::Subset, &parts, false),
            (TaskKind::Complement, &parts, true),
            (TaskKind::FinerSubset, &finer, false),
            (TaskKind::FinerComplement, &finer, true),
        ];
        for (kind, parts, complement) in kinds {
            let mut same_kind: Vec<Task> = Vec::new();
            for (index, part) in parts.iter().enumerate() {
                let part: DeltaSet = part.iter().copied().collect();
                let set = if complement { whole.difference(&part) } else { part };
                // With two parts each is the other's complement; a part of one delta has no finer parts.
                if !seen.insert(set.clone()) {
                    continue;
                }
                let part = (index + 1, parts.len());
                same_kind.push(Task { kind, part, set, end: TaskEnd::Waiting, trial: None, failed: None });
            }
            same_kind.sort_by_cached_key(|task| {
                (self.problem.rank_of(&task.set), self.problem.cost_of(&task.set))
            });
            tasks.extend(same_kind);
        }
        self.rounds.push(Round { from: whole, granularity: self.granularity, tasks, hit: None });
    }

    /// Answers tasks from the record and ends rounds as long as that is possible.
    fn settle(&mut self) {
        while !self.done {
            let whole = self.whole();
            let Some(round) = self.rounds.last_mut() else {
                return;
            };
            for task in round.tasks.iter_mut().filter(|task| task.failed.is_none()) {
                let verdict = match self.problem.close(&task.set) {
                    None => Some(Verdict::Pass),
                    Some(closed) if closed == whole => Some(Verdict::Pass),
                    Some(closed) => self.ledger.get(&closed),
                };
                if let Some(verdict) = verdict {
                    task.failed = Some(verdict == Verdict::Fail);
                    task.end = match task.end {
                        TaskEnd::Running => TaskEnd::Finished,
                        _ => TaskEnd::Reused,
                    };
                }
            }
            if let Some(hit) = round.tasks.iter().position(|task| task.failed == Some(true)) {
                self.close_round(hit);
            } else if round.tasks.iter().all(|task| task.failed.is_some()) {
                if round.granularity == 1 {
                    self.open();
                } else if self.granularity < self.left.len() {
                    self.granularity = self.left.len().min(2 * self.granularity);
                    self.open();
                } else {
                    self.done = true;
                }
            } else {
                return;
            }
        }
    }

    /// Ends a round by the failure of a task, applies the cancel and remove rules, and opens the next.
    fn close_round(&mut self, hit: usize) {
        let Some(round) = self.rounds.last_mut() else {
            return;
        };
        round.hit = Some(hit);
        let Task { kind, set: found, part: (place, _), .. } = round.tasks[hit].clone();
        for task in round.tasks.iter_mut().filter(|task| task.failed.is_none()) {
            let keep = match kind {
                TaskKind::Subset => task.kind == TaskKind::FinerSubset && task.set.is_subset(&found),
                TaskKind::Complement => task.kind == TaskKind::Subset && task.set.is_subset(&found),
                _ => false,
            };
            match task.end {
                TaskEnd::Running if keep => task.end = TaskEnd::Kept,
                TaskEnd::Running => {
                    task.end = TaskEnd::Cancelled;
                    self.stale.extend(task.trial);
                }
                TaskEnd::Waiting => task.end = TaskEnd::Removed,
                _ => {}
            }
        }
        self.granularity = match kind {
            TaskKind::Subset | TaskKind::FinerSubset | TaskKind::Node => 2,
            TaskKind::Complement => (self.granularity - 1).max(2),
            TaskKind::FinerComplement => (round.tasks[hit].part.1 - 1).max(2),
        };
        self.best = self.problem.close(&found).unwrap_or_else(|| found.clone());
        self.left.retain(|&delta| found.contains(delta));
        if kind == TaskKind::Node && place == 2 {
            self.done = true;
            return;
        }
        self.open();
    }
}

impl Search for DdminPar {
    fn plan(&mut self, slots: &[SlotView], in_flight: &[Ticket]) -> Moves {
        let mut moves = Moves::default();
        self.settle();
        if self.done {
            moves.cancel = in_flight.to_vec();
            return moves;
        }
        let mut free: Vec<_> =
            slots.iter().filter(|slot| slot.busy.is_none()).map(|slot| slot.slot).collect();
        // What the new round asks for again is not stopped.
        let stale = std::mem::take(&mut self.stale);
        let wanted: HashSet<DeltaSet> = match self.rounds.last() {
            Some(round) if !stale.is_empty() => {
                round.tasks.iter().filter_map(|task| self.problem.close(&task.set)).collect()
            }
            _ => HashSet::new(),
        };
        for trial in stale {
            let Some(set) = self.ledger.running().get(&trial) else {
                continue;
            };
            if wanted.contains(set) {
                continue;
            }
            self.ledger.drop(trial);
            moves.cancel.push(trial);
            free.extend(slots.iter().filter(|slot| slot.busy == Some(trial)).map(|slot| slot.slot));
        }
        free.sort();
        let mut free = free.into_iter();
        let Some(round) = self.rounds.last_mut() else {
            return moves;
        };
        for task in round.tasks.iter_mut().filter(|task| task.end == TaskEnd::Waiting) {
            let Some(set) = self.problem.close(&task.set) else {
                continue;
            };
            if let Some(trial) = self.ledger.running_as(&set) {
                (task.end, task.trial) = (TaskEnd::Running, Some(trial));
                continue;
            }
            let Some(slot) = free.next() else {
                break;
            };
            let trial = self.ledger.start(set.clone());
            (task.end, task.trial) = (TaskEnd::Running, Some(trial));
            moves.start.push(Start { trial, set, slot });
        }
        moves
    }

    fn record(&mut self, trial: Ticket, outcome: &Outcome, _cost: Duration) {
        self.unresolved |= matches!(outcome, Outcome::Unresolved { .. });
        self.ledger.finish(trial, outcome.into());
        // With others running, those that finish at the same moment are heard before a round is ended,
        // so that its winner depends on the order of the tasks and not on chance.
        if self.ledger.running().is_empty() {
            self.settle();
        }
    }

    fn is_done(&self) -> bool {
        self.done
    }

    fn recall(&mut self, set: &DeltaSet, outcome: &Outcome) {
        self.ledger.learn(set.clone(), outcome.into());
        self.settle();
    }

    fn lose(&mut self, trial: Ticket) {
        self.ledger.drop(trial);
        for task in self.rounds.last_mut().into_iter().flat_map(|round| &mut round.tasks) {
            if task.trial == Some(trial) && task.end == TaskEnd::Running {
                (task.end, task.trial) = (TaskEnd::Waiting, None);
            }
        }
    }

    fn standing(&self) -> Standing {
        let proof = proof(self.done, self.unresolved);
        let cause = Cause { witness: self.best.clone(), core: self.best.clone(), proof, confirmations: 1 };
        Standing {
            best: self.best.clone(),
            proof,
            causes: if self.done { vec![cause] } else { Vec::new() },
            left: self.left.len(),
            unproven: if self.done { 0 } else { self.left.len() },
            belief: if self.done { 1.0 } else { 0.0 },
            finished: self.ledger.finished(),
            round: self.rounds.len() as u32,
            // What this round still has, as long as it goes on.
            remaining: self
                .rounds
                .last()
                .filter(|_| !self.done)
                .map_or(0.0, |round| (round.count(TaskEnd::Waiting) + round.count(TaskEnd::Running)) as f64),
            none_left: false,
        }
    }

    fn rounds(&self) -> &[Round] {
        &self.rounds
    }
}
