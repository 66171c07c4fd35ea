//! What happens in a campaign, as it happens: one stream for the terminal, the event log and pages.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::exit_reason::ExitReason;
use crate::ids::{CampaignId, InstanceId, RunId, SlotId};
use crate::outcome::Outcome;
use crate::space::DeltaSet;
use crate::trial_id::{CampaignKind, TrialId};

/// Something that happened in a campaign.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Event {
    /// A campaign began.
    CampaignStarted {
        /// Which.
        campaign: CampaignId,
        /// What it is.
        purpose: CampaignKind,
        /// How many slots it has.
        slots: u16,
        /// Decides every random choice in it.
        seed: u64,
    },
    /// What all trials of the campaign rest on; it can go on later only while all of it is the same.
    CampaignRests {
        /// What each part is, or a digest of it.
        on: BTreeMap<String, String>,
    },
    /// A campaign that had ended before its answer was there goes on.
    CampaignResumed {
        /// How many slots it has now.
        slots: u16,
    },
    /// The start-up checks have shown how often the failure comes.
    Calibrated {
        /// How often it failed in the failing circumstance.
        failed: u32,
        /// How often that was tried.
        tried: u32,
        /// How often a failing circumstance is taken to fail.
        rate: f64,
    },
    /// Where the search stands.
    SearchStands(SearchStands),
    /// A trial was given to a slot.
    TrialStarted {
        /// Which.
        trial: TrialId,
        /// Where.
        slot: SlotId,
        /// Its deltas.
        #[serde(default, skip_serializing_if = "DeltaSet::is_empty")]
        deltas: DeltaSet,
        /// How many tests it will run.
        tests: usize,
    },
    /// An instance is ready.
    InstanceReady {
        /// The trial.
        trial: TrialId,
        /// Which.
        instance: InstanceId,
        /// How many are ready.
        ready: usize,
        /// How many there will be.
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
    /// Everything is ready, the tests begin.
    TrialDeployed {
        /// Which.
        trial: TrialId,
        /// How long it took.
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
        /// How long it took.
        #[serde(with = "crate::units::duration")]
        took: Duration,
    },
    /// A trial was judged and stored.
    TrialFinished {
        /// Which.
        trial: TrialId,
        /// Its run.
        run: RunId,
        /// What it showed.
        outcome: Outcome,
        /// What it took.
        #[serde(with = "crate::units::duration")]
        took: Duration,
    },
    /// A trial is no longer needed; everything of it is gone.
    TrialCancelled {
        /// Which.
        trial: TrialId,
    },
    /// The infrastructure spoiled a trial; it is tried again.
    TrialInvalid {
        /// Which.
        trial: TrialId,
        /// How.
        reason: String,
        /// The number of the attempt that begins, from 2.
        next_try: u32,
    },
    /// A known circumstance was repeated to see whether the environment is still the same.
    SentinelChecked {
        /// The trial.
        trial: TrialId,
        /// Whether it showed what it had shown before.
        agrees: bool,
    },
    /// Something people should know.
    Note {
        /// What.
        text: String,
    },
    /// The campaign ended.
    CampaignFinished {
        /// In a few words.
        summary: String,
    },
}

/// Where a search stands.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SearchStands {
    /// In which round it is; where there are no rounds, how often the failing set has become smaller.
    pub round: usize,
    /// How many deltas may still belong to the cause.
    pub left: usize,
    /// How many one-smaller sets are yet to be tried.
    pub unproven: usize,
    /// How many causes are found.
    pub causes: usize,
    /// Trials that have finished.
    pub finished: usize,
    /// Trials that were cancelled.
    pub cancelled: usize,
    /// Questions that were answered by earlier trials.
    pub reused: usize,
    /// Slots in which a trial runs.
    pub busy: usize,
    /// All slots.
    pub slots: usize,
    /// Trials that are estimated to be left.
    pub remaining: f64,
    /// How probable the answer is, in the eyes of the search.
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
