//! Spans, runs, logs and events on disk: the `.faultscope` folder beside an application file.
//!
//! ```text
//! .faultscope/campaigns/<id>/campaign.json   what it is, its format version
//!                            events.jsonl    what happened, one object per line
//!                            store.sqlite    spans, runs, logs
//!                            metrics.sqlite  what instances used
//!                            report.json     what was found
//!                            writer.lock     held while it is being written
//! ```
//!
//! Secrets are taken out before anything is written, see [`secrets`].
//!
//! This crate owns the format. Each campaign has one writer; any number of processes may read it
//! meanwhile. Recording a span never blocks: what the disk cannot keep up with is dropped and counted.
//! Readers block on the disk, so async callers read on a blocking thread.

mod campaign;
mod campaigns;
mod codec;
mod error;
mod events;
mod exposition;
mod files;
mod folder;
mod format;
mod meta;
mod migrate;
mod names;
mod queue;
mod reader;
mod reports;
mod retention;
mod samples;
mod schema;
mod writer;

pub mod interop;
pub mod secrets;
pub mod serve;
pub mod slices;

pub use campaign::{Campaign, CampaignOptions, RunRecord, SpanSink};
pub use campaigns::joined;
pub use error::{StoreError, StoreErrorKind};
pub use events::{EventLog, Events, LoggedEvent};
pub use exposition::{Asked, read_exposition};
pub use folder::{Store, StoredCampaign};
pub use meta::{CampaignMeta, new_campaign_id};
pub use reader::{Edge, Reader, StoredLog, StoredRun};
pub use reports::StoredReport;
pub use retention::Retention;
pub use samples::SampleWriter;

/// The old path of what is now in `faultscope_model::metrics`.
pub use faultscope_model::metrics::PointsBySeries as SeriesPoints;

/// The version of every file this crate writes.
pub const FORMAT: u32 = 2;
