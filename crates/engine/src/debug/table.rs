//! The course of a campaign as tables: what became of the tasks of each round (the paper's Figure 4 and
//! Table 4), and which trial ran when in which slot.

use std::collections::BTreeMap;
use std::fmt;

use faultscope_model::event::Event;
use faultscope_model::{Outcome, SlotId, TrialId};
use faultscope_search::{Round, TaskEnd, TaskKind};
use faultscope_store::LoggedEvent;
use serde::{Deserialize, Serialize};

/// One round of a search: between two of them the failing set has become smaller.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RoundCounts {
    /// Deltas that were still in question when it began.
    pub deltas: usize,
    /// Tasks that were created.
    pub created: usize,
    /// Tasks that were given to a slot.
    pub scheduled: usize,
    /// Tasks that ran to their end.
    pub finished: usize,
    /// Tasks that were stopped while they ran.
    pub cancelled: usize,
    /// Tasks that were taken from the queue.
    pub removed: usize,
    /// Tasks that earlier trials had answered.
    pub reused: usize,
    /// The tasks in the order of their creation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tasks: Vec<RoundTask>,
}

/// A task of a round, as Figure 4 shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoundTask {
    /// Which part of the round's deltas: `1/2`, or `1\2/4` for all but the second quarter.
    pub part: String,
    /// How many deltas it has.
    pub deltas: usize,
    /// How it ended.
    pub end: TrialEnding,
}

/// How a trial or a task of a round ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrialEnding {
    /// It passed.
    Pass,
    /// It failed as was wanted.
    Fail,
    /// It could not be judged.
    Unresolved,
    /// It was given up while it ran.
    Cancelled,
    /// It was given up before it began.
    Removed,
    /// An earlier trial had answered it.
    Reused,
    /// It goes on in a later round.
    Kept,
    /// It has not ended.
    Running,
}

impl TrialEnding {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Pass,
        Self::Fail,
        Self::Unresolved,
        Self::Cancelled,
        Self::Removed,
        Self::Reused,
        Self::Kept,
        Self::Running,
    ];

    /// Its word in reports.
    pub fn word(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::Unresolved => "unresolved",
            Self::Cancelled => "cancelled",
            Self::Removed => "removed",
            Self::Reused => "reused",
            Self::Kept => "kept",
            Self::Running => "running",
        }
    }
}

impl fmt::Display for TrialEnding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

impl From<&Outcome> for TrialEnding {
    fn from(outcome: &Outcome) -> Self {
        match outcome {
            Outcome::Pass => Self::Pass,
            Outcome::Fail { .. } => Self::Fail,
            Outcome::Unresolved { .. } => Self::Unresolved,
        }
    }
}

/// A trial in its slot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bar {
    /// The slot.
    pub slot: SlotId,
    /// The trial.
    pub trial: TrialId,
    /// How many deltas it had.
    pub deltas: usize,
    /// Microseconds after the campaign began.
    pub from_us: u64,
    /// Microseconds after the campaign began.
    pub to_us: u64,
    /// How it ended.
    pub end: TrialEnding,
}

/// What happened in a campaign, and when.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Course {
    /// Its rounds.
    pub rounds: Vec<RoundCounts>,
    /// Its trials by slot and time.
    pub bars: Vec<Bar>,
    /// Microseconds from its first to its last event.
    pub took_us: u64,
}

impl RoundCounts {
    /// What is counted, in the order of [`Self::counts`].
    pub const NAMES: [&str; 7] =
        ["deltas", "created", "scheduled", "finished", "cancelled", "removed", "reused"];

    /// The counts as a row of Table 4.
    pub fn counts(&self) -> [usize; 7] {
        let Self { deltas, created, scheduled, finished, cancelled, removed, reused, .. } = *self;
        [deltas, created, scheduled, finished, cancelled, removed, reused]
    }

    /// The sum of several rounds.
    pub fn total(rounds: &[Self]) -> Self {
        rounds.iter().fold(Self::default(), |sum, round| Self {
            deltas: sum.deltas.max(round.deltas),
            created: sum.created + round.created,
            scheduled: sum.scheduled + round.scheduled,
            finished: sum.finished + round.finished,
            cancelled: sum.cancelled + round.cancelled,
            removed: sum.removed + round.removed,
            reused: sum.reused + round.reused,
            tasks: Vec::new(),
        })
    }
}

/// The rounds that a search itself tells of; searches without rounds have none.
pub(super) fn rounds_of(rounds: &[Round]) -> Vec<RoundCounts> {
    let counts = |round: &Round| RoundCounts {
        deltas: round.from.len(),
        created: round.created(),
        scheduled: round.scheduled(),
        finished: round.count(TaskEnd::Finished),
        cancelled: round.count(TaskEnd::Cancelled),
        removed: round.count(TaskEnd::Removed),
        reused: round.count(TaskEnd::Reused),
        tasks: round.tasks.iter().map(task).collect(),
    };
    rounds.iter().map(counts).collect()
}

fn task(task: &faultscope_search::Task) -> RoundTask {
    let (part, of) = task.part;
    let part = match task.kind {
        TaskKind::Subset | TaskKind::FinerSubset => format!("{part}/{of}"),
        TaskKind::Complement | TaskKind::FinerComplement => format!("1\\{part}/{of}"),
        TaskKind::Node => "without node".into(),
    };
    let end = match (task.end, task.failed) {
        (TaskEnd::Finished, Some(true)) => TrialEnding::Fail,
        (TaskEnd::Finished, _) => TrialEnding::Pass,
        (TaskEnd::Cancelled, _) => TrialEnding::Cancelled,
        (TaskEnd::Removed, _) => TrialEnding::Removed,
        (TaskEnd::Reused, _) => TrialEnding::Reused,
        (TaskEnd::Kept, _) => TrialEnding::Kept,
        (TaskEnd::Running | TaskEnd::Waiting, _) => TrialEnding::Running,
    };
    RoundTask { part, deltas: task.set.len(), end }
}

/// The course of a campaign by its event log. Rounds that the search told of are taken as they are;
/// otherwise a round ends when a smaller set than all before has failed.
pub fn course(events: &[LoggedEvent<Event>], told: &[RoundCounts]) -> Course {
    let begin = events.first().map_or(0, |logged| logged.at_us);
    let end = events.last().map_or(begin, |logged| logged.at_us);
    let mut bars: Vec<Bar> = Vec::new();
    let mut running: BTreeMap<TrialId, (usize, usize)> = BTreeMap::new();
    let mut rounds: Vec<RoundCounts> = Vec::new();
    let mut smallest = None;
    for LoggedEvent { at_us, event } in events {
        let at = at_us.saturating_sub(begin);
        match event {
            Event::TrialStarted { trial, slot, treatment, .. } => {
                running.insert(*trial, (bars.len(), treatment.size()));
                bars.push(Bar {
                    slot: *slot,
                    trial: *trial,
                    deltas: treatment.size(),
                    from_us: at,
                    to_us: end.saturating_sub(begin),
                    end: TrialEnding::Running,
                });
                if trial.is_chosen() {
                    if rounds.is_empty() {
                        rounds.push(RoundCounts::default());
                    }
                    if let Some(round) = rounds.last_mut() {
                        round.created += 1;
                        round.scheduled += 1;
                    }
                }
            }
            Event::TrialFinished { trial, outcome, .. } => {
                let Some((place, deltas)) = running.remove(trial) else { continue };
                let end = TrialEnding::from(outcome);
                (bars[place].to_us, bars[place].end) = (at, end);
                // The failing circumstance itself says how many deltas there are to begin with.
                let smaller = smallest.is_none_or(|least| deltas < least);
                if !trial.is_chosen() {
                    if end == TrialEnding::Fail && smaller {
                        smallest = Some(deltas);
                    }
                    continue;
                }
                if let Some(round) = rounds.last_mut() {
                    round.finished += 1;
                    round.tasks.push(RoundTask { part: String::new(), deltas, end });
                }
                if end == TrialEnding::Fail && smaller {
                    smallest = Some(deltas);
                    rounds.push(RoundCounts { deltas, ..RoundCounts::default() });
                }
            }
            Event::TrialCancelled { trial } => {
                let Some((place, deltas)) = running.remove(trial) else { continue };
                (bars[place].to_us, bars[place].end) = (at, TrialEnding::Cancelled);
                if let (true, Some(round)) = (trial.is_chosen(), rounds.last_mut()) {
                    round.cancelled += 1;
                    let (part, end) = (String::new(), TrialEnding::Cancelled);
                    round.tasks.push(RoundTask { part, deltas, end });
                }
            }
            _ => {}
        }
    }
    let most = bars.iter().map(|bar| bar.deltas).max().unwrap_or_default();
    if let Some(first) = rounds.first_mut() {
        first.deltas = most;
    }
    rounds.retain(|round| round.created + round.finished + round.cancelled > 0);
    let rounds = if told.is_empty() { rounds } else { told.to_vec() };
    Course { rounds, bars, took_us: end.saturating_sub(begin) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use faultscope_model::Treatment;
    use faultscope_model::outcome::{Ending, Signature};

    use super::*;

    fn at(at_us: u64, event: Event) -> LoggedEvent<Event> {
        LoggedEvent { at_us, event }
    }

    fn starts(trial: u32, slot: u16, deltas: &[usize]) -> Event {
        let treatment =
            Treatment::of_deltas(deltas.iter().map(|delta| format!("instance s{delta}")).collect());
        Event::TrialStarted { trial: TrialId::chosen(trial), slot: SlotId(slot), treatment, tests: 1 }
    }

    fn ends(trial: u32, fails: bool) -> Event {
        let signature = Signature { test: "t".into(), ending: Ending::Code(1), message: String::new() };
        let outcome = if fails { Outcome::Fail { signature } } else { Outcome::Pass };
        let run = format!("a.{trial}").parse().unwrap();
        Event::TrialFinished { trial: TrialId::chosen(trial), run, outcome, took: Duration::ZERO }
    }

    #[test]
    fn endings_are_words_in_documents() {
        for end in TrialEnding::ALL {
            assert_eq!(serde_json::to_value(end).unwrap(), end.word());
        }
    }

    #[test]
    fn a_round_ends_when_a_smaller_set_fails() {
        let log = [
            at(1_000, starts(1, 0, &[0, 1])),
            at(1_000, starts(2, 1, &[2, 3, 4])),
            at(1_010, ends(1, true)),
            at(1_011, Event::TrialCancelled { trial: TrialId::chosen(2) }),
            at(1_012, starts(3, 0, &[0])),
            at(1_020, ends(3, false)),
        ];
        let course = course(&log, &[]);
        let counts: Vec<_> =
            course.rounds.iter().map(|r| (r.deltas, r.created, r.finished, r.cancelled)).collect();
        assert_eq!(counts, [(3, 2, 1, 0), (2, 1, 1, 1)]);
        assert_eq!(course.took_us, 20);
        let bars: Vec<_> = course.bars.iter().map(|b| (b.slot.0, b.from_us, b.to_us, b.end.word())).collect();
        assert_eq!(bars, [(0, 0, 10, "fail"), (1, 0, 11, "cancelled"), (0, 12, 20, "pass")]);
        assert_eq!(RoundCounts::total(&course.rounds).finished, 2);
    }

    #[test]
    fn a_log_that_breaks_off_shows_what_ran() {
        let course = course(&[at(5, starts(1, 0, &[])), at(9, Event::Note { text: String::new() })], &[]);
        assert_eq!((course.bars[0].to_us, course.bars[0].end.word()), (4, "running"));
    }
}
