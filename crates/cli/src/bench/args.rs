//! What can be typed after `bench`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// What to measure.
    #[arg(value_enum)]
    pub(crate) name: BenchName,
    /// Decides every random choice.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Seconds for each measurement.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=600))]
    pub(crate) seconds: u64,
    /// Only for `ingest`: send spans for so long, and watch the memory of the server: `10m`.
    #[arg(long, value_name = "DURATION", conflicts_with = "kills")]
    pub(crate) soak: Option<String>,
    /// Spans for each second while it soaks.
    #[arg(long, default_value_t = 10_000, requires = "soak", value_parser = clap::value_parser!(u64).range(1600..=1_000_000))]
    pub(crate) rate: u64,
    /// Only for `ingest`: kill the server so often while spans come in, and look for what it acknowledged.
    #[arg(long, value_name = "TIMES")]
    pub(crate) kills: Option<u32>,
    /// The Envoy program to compare with; looked for on the PATH and in FAULTSCOPE_ENVOY otherwise.
    #[arg(long, env = "FAULTSCOPE_ENVOY", value_name = "PROGRAM")]
    pub(crate) envoy: Option<PathBuf>,
    /// debug: instances with known causes, one JSON object in a line, instead of drawing them from the seed.
    #[arg(long, value_name = "FILE")]
    pub(crate) instances: Option<PathBuf>,
    /// debug: recorded results of other algorithms on the same instances, as CSV, to compare with.
    #[arg(long, value_name = "FILE", requires = "instances")]
    pub(crate) anchors: Option<PathBuf>,
    /// debug: all instances of every cell, not a sample that is done in minutes.
    #[arg(long)]
    pub(crate) full: bool,
    /// debug and resilience: also the seeded cases of the sample system, with real processes.
    #[arg(long)]
    pub(crate) live: bool,
    /// resilience: systems of actors, as a JSON list, instead of drawing them from the seed.
    #[arg(long, value_name = "FILE")]
    pub(crate) topologies: Option<PathBuf>,
    /// resilience: searches for each place of a defect.
    #[arg(long, default_value_t = 10, value_name = "TIMES", value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub(crate) repeats: u64,
    /// resilience: simulated actors instead of real ones.
    #[arg(long)]
    pub(crate) simulated: bool,
    /// resilience: the program with real actors; looked for beside this one and on the PATH otherwise.
    #[arg(long, env = "FAULTSCOPE_ACTORS", value_name = "PROGRAM", conflicts_with = "simulated")]
    pub(crate) actors: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum BenchName {
    /// The mesh against Envoy: requests for each CPU second, added latency.
    Mesh,
    /// How fast applications come up, and what the tool needs for it.
    Platform,
    /// How many spans the store takes over HTTP, and what they cost.
    Ingest,
    /// How fast traces are found among a million spans.
    Query,
    /// The searches of `debug` against one another on instances with known causes, in virtual time.
    Debug,
    /// The strategies of `resilience` on actors with known defects: the paper's Table 1 and harder ones.
    Resilience,
}

#[derive(Debug, Args)]
pub(crate) struct BenchPartArgs {
    /// Which part, as JSON.
    pub(crate) part: String,
}
