//! `faultscope bench`: runs one benchmark and reports its figures.

use std::io;
use std::path::{Path, PathBuf};

use tokio_util::sync::CancellationToken;

use crate::args::{BenchArgs, Yardstick};
use crate::error::BenchError;
use crate::figure::Figure;
use crate::load::LoadWatch;
use crate::report::{Environment, Report, Table};
use crate::{causal, debug, detect, ingest, mesh, platform, query, resilience};

/// What the running program provides to benchmarks.
pub struct Host<'a> {
    /// The built binary, which benchmarks start to measure it from outside.
    pub program: PathBuf,
    /// Writes the sample application of the demo into a folder.
    pub write_sample: fn(&Path) -> io::Result<()>,
    /// Prints progress.
    pub talk: &'a (dyn Fn(&str) + Sync),
    /// Cancelled when the user interrupts.
    pub stop: CancellationToken,
}

/// What a benchmark measured, before the machine's load is added.
#[derive(Debug, Default)]
pub(crate) struct Measured {
    pub(crate) figures: Vec<Figure>,
    pub(crate) tables: Vec<Table>,
    pub(crate) notes: Vec<String>,
}

impl Host<'_> {
    pub(crate) fn talk(&self, text: impl AsRef<str>) {
        (self.talk)(text.as_ref());
    }
}

/// Runs a benchmark.
pub async fn run(args: &BenchArgs, host: &Host<'_>) -> Result<Report, BenchError> {
    let seed = args.seed;
    let watch = LoadWatch::start().await;
    if watch.is_busy() {
        host.talk("other processes are using this machine: if that continues, the figures will be invalid");
    }
    let (bench, measured) = match &args.yardstick {
        Yardstick::Mesh(args) => ("mesh", mesh::run(args, host).await?),
        Yardstick::Platform => ("platform", platform::run(seed, host).await?),
        Yardstick::Ingest(args) => ("ingest", ingest::run(args, seed, host).await?),
        Yardstick::Query => ("query", query::run(seed, host).await?),
        Yardstick::Debug(args) => ("debug", debug::command::run(args, seed, host).await?),
        Yardstick::Causal(args) => ("causal", causal::command::run(args, seed, host).await?),
        Yardstick::Detect(args) => ("detect", detect::run(args, seed, host)?),
        Yardstick::Resilience(args) => ("resilience", resilience::command::run(args, seed, host).await?),
    };
    let load = watch.finish();
    let Measured { figures, tables, notes } = measured;
    let environment = Environment::here(seed, notes);
    Ok(Report { bench: bench.to_owned(), environment, load, figures, tables })
}
