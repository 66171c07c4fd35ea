//! Spans and metrics that services report, in slices by arrival and size.
//!
//! ```text
//! .faultscope/spans/catalogue.json   which slices there are, with their bounds
//!                   000001.sqlite    spans and points, about a quarter of a million spans each
//!                   writer.lock      held by the one process that writes
//! ```
//!
//! A batch is acknowledged after the commit that it was part of, so that it survives a crash of the
//! process. Late and wrongly dated spans go where the others go: a trace is assembled from all slices,
//! and searches check the bounds of each. Retention removes whole files.

mod active;
mod catalogue;
mod hash;
mod intern;
mod migrate;
mod points;
mod reader;
mod row;
mod scan;
mod schema;
mod search;
mod seen;
mod segment;
mod slice;
mod slice_upkeep;
mod slice_writer;
mod store;
mod trace_memory;

pub use crate::writer::{Ack, Refused, WriterHealth};
pub(crate) use catalogue::CATALOGUE;
pub use catalogue::{SliceEntry, SpanRetention};
pub(crate) use migrate::seal_series;
pub use points::SeriesEntry;
pub use reader::SpanReader;
pub(crate) use reader::Visit;
pub(crate) use slice_upkeep::{
    check_catalogue, check_slice, finish_salvage, lock_spans, migrate_slice, salvage_slice, slice_files,
};
pub use store::{SpanCounts, SpanStore, SpanStoreOptions};
pub(crate) use trace_memory::TraceMemory;

pub use crate::series_table::{SeriesFound, SeriesQuery};

/// The folder within `.faultscope`.
pub(crate) const SPANS_FOLDER: &str = "spans";
const FOLDER: &str = SPANS_FOLDER;
