//! What a search can say at any time: its answer so far, what is proven, and what its trials became.

use crate::Ticket;
use faultscope_model::DeltaSet;
use serde::{Deserialize, Serialize};

/// The answer so far, and what is proven about it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Standing {
    /// The smallest set that a trial has shown to fail.
    pub best: DeltaSet,
    /// What is proven about it.
    pub proof: Proof,
    /// Causes that are found; more than one when all are searched for.
    pub causes: Vec<Cause>,
    /// Whether a passing trial without any of the causes showed that none is left.
    pub none_left: bool,
    /// How often trials were started, each time as many as there were slots for.
    pub round: u32,
    /// How many deltas may still belong to the cause.
    pub left: usize,
    /// How many one-smaller sets are yet to be tried.
    pub unproven: usize,
    /// How probable the answer is, in the eyes of the search; 1 when trials prove it.
    pub belief: f64,
    /// Trials that have finished.
    pub finished: u32,
    /// Trials that are estimated to be left.
    pub remaining: f64,
}

/// What is proven about a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Proof {
    /// Only that it was said to fail.
    #[default]
    Given,
    /// A trial of exactly this set failed.
    Fails,
    /// It fails, and no set with one delta less does.
    Minimal,
    /// As minimal, but some of the sets with one delta less were unresolved.
    MinimalDespiteUnresolved,
}

/// A cause.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cause {
    /// The set that fails and is minimal.
    pub witness: DeltaSet,
    /// The deltas of it that are really needed: others only came with them, as pairs of calls do.
    pub core: DeltaSet,
    /// What is proven.
    pub proof: Proof,
    /// How often the failure was seen with exactly the witness.
    pub confirmations: u32,
}

/// One round of parallel delta debugging (Figure 4).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Round {
    /// The set that is reduced.
    pub from: DeltaSet,
    /// Into how many subsets.
    pub granularity: usize,
    /// The tasks in the order of their creation.
    pub tasks: Vec<Task>,
    /// The task whose failure ended the round.
    pub hit: Option<usize>,
}

impl Round {
    /// How many tasks ended so.
    pub fn count(&self, end: TaskEnd) -> usize {
        self.tasks.iter().filter(|task| task.end == end).count()
    }

    /// How many tasks were created and not answered from the record.
    pub fn created(&self) -> usize {
        self.tasks.len() - self.count(TaskEnd::Reused)
    }

    /// How many tasks were started.
    pub fn scheduled(&self) -> usize {
        self.count(TaskEnd::Finished) + self.count(TaskEnd::Cancelled) + self.count(TaskEnd::Running)
    }
}

/// A task of a round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// Of which type.
    pub kind: TaskKind,
    /// Which subset, from 1, of how many.
    pub part: (usize, usize),
    /// What it tries.
    pub set: DeltaSet,
    /// What became of it.
    pub end: TaskEnd,
    /// The trial that answered it.
    pub trial: Option<Ticket>,
    /// Whether it failed, when it has an answer.
    pub failed: Option<bool>,
}

/// The type of a task (section 4.4), in the order of urgency.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TaskKind {
    /// Reduce to a subset.
    Subset,
    /// Reduce to a complement.
    Complement,
    /// Reduce to a subset of doubled granularity.
    FinerSubset,
    /// Reduce to a complement of doubled granularity.
    FinerComplement,
    /// Try without the node delta.
    Node,
}

/// What became of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskEnd {
    /// It waits for a slot.
    Waiting,
    /// It runs.
    Running,
    /// It was executed.
    Finished,
    /// It went on in the next round.
    Kept,
    /// It was stopped while it ran.
    Cancelled,
    /// It was taken from the queue.
    Removed,
    /// It was answered from the record, or without execution as an invalid circumstance.
    Reused,
}
