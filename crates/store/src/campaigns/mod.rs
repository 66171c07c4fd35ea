//! Campaigns: each a folder with its own database, event log and report.
//!
//! ```text
//! .faultscope/campaigns/<id>/campaign.json   what it is, its format version
//!                            events.jsonl    what happened, one object per line
//!                            store.sqlite    spans, runs, logs
//!                            metrics.sqlite  what instances used
//!                            report.json     what was found
//!                            descriptors.bin what is known of gRPC messages
//!                            writer.lock     held while it is being written
//! ```
//!
//! What comes from the system under test is sealed in all of them.
//!
//! Each campaign has one writer; any number of processes may read it meanwhile. Recording a span never
//! blocks: what the disk cannot keep up with is dropped and counted.

mod attachment;
mod call_row;
mod campaign;
mod campaign_upkeep;
mod campaign_writer;
mod descriptors_file;
mod event_log;
mod facts;
mod folder;
mod log_text;
mod meta;
mod metrics_database;
mod migrate;
mod reader;
mod reported_spans;
mod retention;
mod schema;
mod traces;
mod upgrade;

pub use campaign::{Campaign, CampaignOptions, RunRecord, SpanSink};
pub(crate) use campaign_upkeep::{check_campaign, migrate_campaign, repair_campaign};
pub use event_log::{EventLog, Events, LoggedEvent};
pub use folder::{Store, StoredCampaign};
pub use meta::{CampaignMeta, new_campaign_id};
pub use metrics_database::SampleWriter;
pub use reader::{Edge, Reader, StoredRun};
pub use reported_spans::StoredReport;
pub use retention::Retention;
pub(crate) use traces::CampaignTraces;
pub use traces::joined;
