//! What happens in a campaign, as it happens: one stream for the terminal, the event log and pages.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::exit_reason::ExitReason;
use crate::ids::{CampaignId, InstanceId, RunId, SlotId};
use crate::outcome::Outcome;
use crate::spoiled::Spoiled;
use crate::treatment::Treatment;
use crate::trial_id::{CampaignKind, TrialId};

/// Something that happened in a campaign.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Event {
    /// A campaign began.
    CampaignStarted {
        /// Also the name of its folder in the store.
        campaign: CampaignId,
        /// The command that started it.
        purpose: CampaignKind,
        /// The number of slots that run trials at the same time.
        slots: u16,
        /// The source of every random choice in the campaign.
        seed: u64,
    },
    /// What all trials of the campaign depend on; it can be resumed only while all of it is unchanged.
    CampaignRests {
        /// Digests or values by name, such as the application file's.
        on: BTreeMap<String, String>,
    },
    /// An interrupted campaign goes on.
    CampaignResumed {
        /// The number of slots it has now.
        slots: u16,
    },
    /// The start-up checks have estimated the failure rate.
    Calibrated {
        /// Failing checks.
        failed: u32,
        /// All checks of the failing circumstance.
        tried: u32,
        /// The assumed probability that a failing circumstance fails, 0 to 1.
        rate: f64,
    },
    /// A resilience campaign began with another kind of trials of a test.
    StageStarted {
        /// The test.
        test: String,
        /// What is tried.
        stage: Stage,
        /// How many perturbations or sets of them there are, as far as is known.
        n_to_try: usize,
    },
    /// Every perturbation of every test has been tried.
    SinglesDone {
        /// The trials that took.
        trials: usize,
        /// How many are tried together from now on; 1 where that was all.
        most: usize,
    },
    /// Where the search stands.
    SearchStands(SearchStands),
    /// How far the confirmation of what the search found is.
    Confirming {
        /// Trials that have finished.
        done: usize,
        /// Trials that it takes.
        planned: usize,
    },
    /// A trial got a slot.
    TrialStarted {
        /// The trial.
        trial: TrialId,
        /// The slot that it holds until it has ended.
        slot: SlotId,
        /// What it is given.
        treatment: Treatment,
        /// The number of tests it will run.
        tests: usize,
    },
    /// An instance is ready.
    InstanceReady {
        /// The trial.
        trial: TrialId,
        /// The instance.
        instance: InstanceId,
        /// Instances of the trial that are ready.
        ready: usize,
        /// All instances of the trial.
        all: usize,
    },
    /// An instance ended by itself.
    InstanceExited {
        /// The trial.
        trial: TrialId,
        /// The instance.
        instance: InstanceId,
        /// How it ended.
        reason: ExitReason,
    },
    /// All instances are ready and the tests begin.
    TrialDeployed {
        /// The trial.
        trial: TrialId,
        /// Time since the trial started.
        #[serde(with = "crate::units::duration")]
        took: Duration,
    },
    /// A test began.
    TestStarted {
        /// The trial.
        trial: TrialId,
        /// The test.
        test: String,
    },
    /// A test ended.
    TestFinished {
        /// The trial.
        trial: TrialId,
        /// The test.
        test: String,
        /// Whether it passed.
        passed: bool,
        /// From its start to its end.
        #[serde(with = "crate::units::duration")]
        took: Duration,
    },
    /// A trial was judged and stored.
    TrialFinished {
        /// The trial.
        trial: TrialId,
        /// The id of the stored run.
        run: RunId,
        /// How its evidence was judged.
        outcome: Outcome,
        /// Total time, including clearing the slot.
        #[serde(with = "crate::units::duration")]
        took: Duration,
    },
    /// A trial was cancelled because its answer is no longer needed; its slot is clear.
    TrialCancelled {
        /// The trial.
        trial: TrialId,
    },
    /// The infrastructure spoiled a trial; it is repeated.
    TrialInvalid {
        /// The trial.
        trial: TrialId,
        /// How.
        reason: Spoiled,
        /// The number of the next attempt, from 2.
        next_try: u32,
    },
    /// A known circumstance was repeated to notice changes of the environment.
    SentinelChecked {
        /// The trial.
        trial: TrialId,
        /// Whether it gave the same outcome as before.
        agrees: bool,
    },
    /// A message for people, such as a warning.
    Note {
        /// One line.
        text: String,
    },
    /// What a campaign found, before it is reported in full.
    Summary {
        /// One line.
        text: String,
    },
    /// The campaign ended.
    CampaignFinished {
        /// The result in a few words.
        summary: String,
    },
}

/// What a resilience campaign tries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Perturbations that must not change what the test sees, many at once.
    Neutral,
    /// Perturbations that may change an answer, one by one.
    Single,
    /// The same, with at most this number of perturbations together.
    Together(usize),
    /// Services that go away during the test and come back, one by one.
    Outages,
    /// Errors that a retry should get past.
    Retries,
    /// What was found is tried again.
    Confirming,
}

/// Where a search stands.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SearchStands {
    /// The current round; in searches without rounds, how often the failing set has shrunk.
    pub round: usize,
    /// Deltas that may still belong to the cause.
    pub left: usize,
    /// Sets that are one delta smaller than the answer and have not been tried.
    pub unproven: usize,
    /// Causes found so far.
    pub causes: usize,
    /// Finished trials.
    pub finished: usize,
    /// Cancelled trials.
    pub cancelled: usize,
    /// Questions answered by earlier trials.
    pub reused: usize,
    /// Slots in which a trial runs.
    pub busy: usize,
    /// All slots.
    pub slots: usize,
    /// The expected number of trials still to come.
    pub remaining: f64,
    /// The probability that the search assigns to its answer, 0 to 1.
    pub belief: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_a_search_stands_is_flat_in_the_log() {
        let line = r#"{"kind":"search_stands","round":2,"left":12,"unproven":1,"causes":0,"finished":3,"cancelled":1,"reused":0,"busy":2,"slots":4,"remaining":8.0,"belief":0.5}"#;
        let event: Event = serde_json::from_str(line).unwrap();
        assert!(matches!(&event, Event::SearchStands(stands) if stands.left == 12));
        assert_eq!(serde_json::to_string(&event).unwrap(), line);
    }
}
