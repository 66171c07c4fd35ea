//! Spans, metrics, runs, logs and events on disk: the `.faultscope` folder beside an application file.
//!
//! | module | what it is for |
//! |---|---|
//! | [`campaigns`] | what the tool finds: a folder for each campaign with calls, runs, logs, samples, events, report |
//! | [`spans`] | what services send: slices of reported spans and metrics, by arrival and size |
//! | [`interop`] | wire formats of tracers and of Prometheus: bytes in, data out, and back |
//! | [`secrets`] | redacts before anything is written, and seals secrets for a replay |
//! | `sealed` | encrypts every value at rest, and finds values by keyed digests |
//! | [`serve`] | HTTP routes that accept spans and metrics and answer queries |
//! | `budget` | the memory of all bodies, queues and answers together |
//! | `upkeep` | checks and repairs what is stored |
//! | `writer` | the queue between many recorders and the one writer of a database |
//!
//! This crate owns the formats of these files. Readers block on the disk, so async callers read on a blocking
//! thread.

mod budget;
mod error;
mod files;
mod format;
mod lock;
mod numbered_names;
mod sealed;
mod sealed_file;
mod series_table;
mod sqlite;
mod upkeep;
mod weight;
mod writer;

pub mod campaigns;
pub mod interop;
pub mod recording_file;
pub mod secrets;
pub mod serve;
pub mod spans;

pub use budget::{Budget, Hold};
pub use campaigns::{
    Campaign, CampaignMeta, CampaignOptions, Edge, EventLog, Events, LoggedEvent, Reader, Retention,
    RunRecord, SampleWriter, SpanSink, Store, StoredCampaign, StoredReport, StoredRun, joined,
    new_campaign_id,
};
pub use error::{StoreError, StoreErrorKind};
pub use sealed_file::{read_sealed, write_sealed};
pub use upkeep::{PartKind, PartState, Repair, RepairAction, StorePart, check_store, repair_store};

/// The format version of every file of a campaign.
pub const FORMAT: u32 = 5;
