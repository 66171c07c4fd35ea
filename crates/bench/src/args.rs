//! The options of `bench`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

/// The benchmark to run, and how its figures are judged.
#[derive(Debug, Args)]
pub struct BenchArgs {
    #[command(subcommand)]
    pub(crate) yardstick: Yardstick,
    /// Exit with 0 even if a goal is missed or the machine was too busy; verdicts are still printed.
    #[arg(long, global = true)]
    pub(crate) report_only: bool,
    /// Seed of every random choice.
    #[arg(long, global = true, default_value_t = 1, value_name = "NUMBER")]
    pub(crate) seed: u64,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Yardstick {
    /// The mesh against Envoy: requests per CPU second, added latency.
    ///
    /// Example: faultscope bench mesh --envoy /usr/bin/envoy --seconds 10
    /// Example: faultscope bench mesh --without envoy
    Mesh(MeshArgs),
    /// How fast applications start, and what the tool needs for it.
    ///
    /// Example: faultscope bench platform
    Platform,
    /// How many spans the store accepts over HTTP, and what they cost.
    ///
    /// Example: faultscope bench ingest --soak 10m --rate 10000
    /// Example: faultscope bench ingest --kills 100
    Ingest(IngestArgs),
    /// How fast traces are found among a million spans.
    ///
    /// Example: faultscope bench query --json
    Query,
    /// The searches of `debug` against one another on instances with known causes, in virtual time.
    ///
    /// Example: faultscope bench debug --hold-out
    /// Example: faultscope bench debug --live
    Debug(DebugArgs),
    /// The strategies of `resilience` on actors with known defects: the paper's Table 1 and harder ones.
    ///
    /// Example: faultscope bench resilience --simulated --repeats 3
    Resilience(ResilienceArgs),
    /// Causal discovery: edges, CPU seconds and scores against those of the reference packages.
    ///
    /// Example: faultscope bench causal --data data/causal --anchors data/causal-anchor.csv
    Causal(CausalArgs),
    /// Anomaly detectors on labelled series, by the rules of the Numenta Anomaly Benchmark, and their speed.
    ///
    /// Example: faultscope bench detect --data NAB
    Detect(DetectArgs),
}

#[derive(Debug, Args)]
pub(crate) struct MeshArgs {
    /// Seconds per measurement.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=600))]
    pub(crate) seconds: u64,
    /// Path of Envoy; by default FAULTSCOPE_ENVOY, then the PATH.
    #[arg(long, env = "FAULTSCOPE_ENVOY", value_name = "PROGRAM")]
    pub(crate) envoy: Option<PathBuf>,
    /// Leave this peer out: its figures are printed as not compared.
    #[arg(long, value_enum, value_name = "PEER")]
    pub(crate) without: Vec<Peer>,
}

/// A program that the tool is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Peer {
    /// The Envoy proxy.
    Envoy,
}

#[derive(Debug, Args)]
pub(crate) struct IngestArgs {
    /// Seconds per measurement.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=600))]
    pub(crate) seconds: u64,
    /// Send spans for this long and watch the memory of the server: `10m`.
    #[arg(long, value_name = "DURATION", conflicts_with = "kills")]
    pub(crate) soak: Option<String>,
    /// Spans per second while it soaks.
    #[arg(long, default_value_t = 10_000, requires = "soak", value_parser = clap::value_parser!(u64).range(1600..=1_000_000))]
    pub(crate) rate: u64,
    /// Kill the server this many times while spans are sent, and check that all acknowledged spans are stored.
    #[arg(long, value_name = "TIMES")]
    pub(crate) kills: Option<u32>,
}

#[derive(Debug, Args)]
pub(crate) struct DebugArgs {
    /// Instances with known causes, one JSON object per line, instead of drawing them from the seed.
    #[arg(long, value_name = "FILE")]
    pub(crate) instances: Option<PathBuf>,
    /// Recorded results of other algorithms on the same instances, as CSV, to compare with.
    #[arg(long, value_name = "FILE", requires = "instances")]
    pub(crate) anchors: Option<PathBuf>,
    /// Run all instances of every cell instead of a sample that takes minutes.
    #[arg(long)]
    pub(crate) full: bool,
    /// Also run held-out families, sizes and ten fresh seeds, which were not used to choose constants.
    #[arg(long)]
    pub(crate) hold_out: bool,
    /// The time that cancelling a trial takes, as a share of its duration; the slot is busy meanwhile. Goals were
    /// recorded with 0.
    #[arg(long, default_value_t = 0.0, value_name = "SHARE", value_parser = parse_share)]
    pub(crate) cancel_share: f64,
    /// Also run the seeded cases of the sample system, with real processes.
    #[arg(long)]
    pub(crate) live: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ResilienceArgs {
    /// Systems of actors, as a JSON list, instead of drawing them from the seed.
    #[arg(long, value_name = "FILE")]
    pub(crate) topologies: Option<PathBuf>,
    /// Searches per position of a defect.
    #[arg(long, default_value_t = 10, value_name = "TIMES", value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub(crate) repeats: u64,
    /// Simulate actors instead of running real ones.
    #[arg(long)]
    pub(crate) simulated: bool,
    /// The program with real actors; by default beside this one or on the PATH.
    #[arg(long, env = "FAULTSCOPE_ACTORS", value_name = "PROGRAM", conflicts_with = "simulated")]
    pub(crate) actors: Option<PathBuf>,
    /// Also run the booking cases of the sample system, with real services.
    #[arg(long)]
    pub(crate) live: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CausalArgs {
    /// A folder with sets NAME.csv.gz, NAME.edges.csv and NAME.lingamN.csv, instead of systems drawn from the seed.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) data: Option<PathBuf>,
    /// Recorded scores and CPU seconds of DAGMA on the same sets, as CSV, to compare with.
    #[arg(long, value_name = "FILE", requires = "data")]
    pub(crate) anchors: Option<PathBuf>,
    /// Also run DAGMA-MLP and DAG-GNN, which take minutes.
    #[arg(long)]
    pub(crate) slow: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DetectArgs {
    /// Folder with `data/` or `data.tar.gz`, and `windows.json` or `labels/combined_windows.json`. Without it only the
    /// speed is measured.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) data: Option<PathBuf>,
}

/// A process that a benchmark measures from outside.
#[derive(Debug, Args)]
pub struct BenchPartArgs {
    /// The part as JSON.
    pub(crate) part: String,
}

impl BenchArgs {
    /// Whether the exit code ignores the figures.
    pub fn is_report_only(&self) -> bool {
        self.report_only
    }
}

fn parse_share(text: &str) -> Result<f64, String> {
    let share: f64 = text.parse().map_err(|_| format!("`{text}` is not a number"))?;
    if (0.0..=10.0).contains(&share) { Ok(share) } else { Err("a share is from 0 to 10".into()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        bench: BenchArgs,
    }

    fn parse(line: &str) -> Result<BenchArgs, String> {
        let words = std::iter::once("bench").chain(line.split_whitespace());
        Cli::try_parse_from(words).map(|cli| cli.bench).map_err(|error| error.to_string())
    }

    #[test]
    fn documented_commands_are_understood() {
        for line in [
            "mesh --seconds 2 --envoy /bin/envoy",
            "mesh --without envoy --report-only",
            "platform --seed 3",
            "ingest --soak 10m --rate 10000",
            "ingest --kills 100",
            "query",
            "debug --instances FILE --anchors FILE --full --seed 1",
            "debug --hold-out --cancel-share 0.25 --live",
            "resilience --topologies FILE --repeats 3 --simulated --live",
            "resilience --actors PROGRAM",
            "causal --data FOLDER --anchors FILE --slow",
            "detect --data FOLDER",
        ] {
            parse(line).unwrap();
        }
    }

    #[test]
    fn options_of_other_yardsticks_are_refused() {
        for line in
            ["mesh --live", "query --seconds 3", "debug --kills 3", "resilience --full", "platform --soak 1m"]
        {
            assert!(parse(line).unwrap_err().contains("unexpected argument"), "{line}");
        }
        assert!(parse("ingest --rate 2000").unwrap_err().contains("--soak"));
        assert!(parse("debug --cancel-share 20").unwrap_err().contains("from 0 to 10"));
        assert!(parse("mesh --without nginx").unwrap_err().contains("envoy"));
    }

    #[test]
    fn help_of_every_yardstick_has_an_example() {
        for yardstick in ["mesh", "platform", "ingest", "query", "debug", "resilience", "causal", "detect"] {
            let help = parse(&format!("{yardstick} --help")).unwrap_err();
            assert!(help.contains(&format!("Example: faultscope bench {yardstick}")), "{help}");
        }
    }
}
