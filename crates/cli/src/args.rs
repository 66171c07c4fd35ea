//! What can be typed.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use faultscope_bench::{BenchArgs, BenchPartArgs};
use faultscope_model::units::ByteSize;

use crate::commands::beside::BesideArgs;
use crate::commands::{
    capture::CaptureArgs, debug_args::DebugArgs, deps::DepsArgs, metrics::MetricsArgs, report::ReportArgs,
    repro::ReproArgs, resilience_args::ResilienceArgs, serve::ServeArgs, services::ServicesArgs,
    traces::TracesArgs,
};
use crate::comparison::Comparison;
use crate::exit;
use crate::folder::{FileArg, FolderArg};

/// Finds out why a microservice system fails.
///
/// Faultscope deploys an application under a chosen circumstance, drives its tests through a mesh that
/// sees and steers every call, and keeps what happened as runs.
#[derive(Debug, Parser)]
#[command(name = "faultscope", version, after_help = exit::TABLE)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Global {
    /// Print results as JSON.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// When to use colours; NO_COLOR works too.
    #[arg(long, global = true, value_enum, default_value_t = Color::Auto, value_name = "WHEN")]
    pub(crate) color: Color,
    /// Show no progress.
    #[arg(long, short, global = true)]
    pub(crate) quiet: bool,
    /// Say more about what happens inside; repeat for more.
    #[arg(long, short, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    Auto,
    Always,
    Never,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Starts a sample system of 45 services and finds out why one of its tests fails.
    Demo(DemoArgs),
    /// Checks an application file and lists every delta.
    ///
    /// Example: faultscope check shop/faultscope.yaml --probe
    /// Example: faultscope check --good v1/compose.yaml --bad v2/compose.yaml
    Check(CheckArgs),
    /// Writes an application file from Compose files or a Procfile.
    ///
    /// Example: faultscope init -f compose.yaml -f compose.override.yaml --profile dev
    Init(InitArgs),
    /// Fills the failing circumstance from a running or recorded system.
    ///
    /// It reads replicas, limits, settings, versions, and the orders of overlapping calls.
    ///
    /// Example: faultscope capture --from-run last --write
    Capture(CaptureArgs),
    /// Starts an application and keeps it running, recording every call, until Ctrl-C.
    ///
    /// Example: faultscope up --set instances.order=3
    Up(UpArgs),
    /// Reduces a failing circumstance to the smallest set of deltas that makes the test fail.
    ///
    /// Example: faultscope debug cases/dd-f1.yaml --slots 4
    /// Example: faultscope debug --good before.yaml --bad after.yaml
    Debug(DebugArgs),
    /// Perturbs tests that pass: repeats requests, restarts services, loses answers, and finds every defect.
    ///
    /// Each test is run as it is, then with perturbations of the calls it was seen to make, or of the messages
    /// of its actors. What makes it fail is reduced to the smallest set. Exit code 1 means that defects were
    /// found, 8 that a test fails without any perturbation.
    ///
    /// Example: faultscope resilience shop/faultscope.yaml "pay twice" --slots 2
    /// Example: faultscope resilience --command 'cargo test -q accounts' --kinds duplicate,restart
    Resilience(Box<ResilienceArgs>),
    /// Runs the tests of an application in a fresh deployment.
    ///
    /// Example: faultscope test --test "pay twice" --set config.order.memory=64MiB --repeat 4 --slots 2
    Test(TestArgs),
    /// Lists and shows stored runs.
    Runs(RunsArgs),
    /// Shows what a debug or resilience campaign found and how it went, or writes it as a file.
    ///
    /// Example: faultscope report last --format html --output report.html
    Report(ReportArgs),
    /// Shows the failure of a reproduction bundle again, here and now.
    ///
    /// A bundle runs commands of its application: use only those of people you trust. Exit code 1 means that
    /// the failure came again, 0 that the failing circumstance passes now.
    ///
    /// Example: faultscope repro repro.tar.gz
    Repro(ReproArgs),
    /// Keeps what tracers send and answers trace viewers, like Zipkin, Jaeger and an OTLP collector.
    ///
    /// Example: faultscope serve --listen 127.0.0.1:9411
    Serve(ServeArgs),
    /// Lists, shows, imports and exports traces that services reported.
    Traces(TracesArgs),
    /// Lists services that reported spans.
    Services(ServicesArgs),
    /// Shows who called whom, how often and with how many errors, by reported spans.
    Deps(DepsArgs),
    /// Lists and draws metrics of instances and services over time.
    Metrics(MetricsArgs),
    /// Removes what a killed tool left behind, and old campaigns.
    Clean(CleanArgs),
    /// Measures the tool against named peers and goals.
    ///
    /// Every figure with a goal has a verdict: met, tie (missed by no more than the stated tolerance), missed, or not
    /// compared when its peer was left out. Exit code 1 means that a goal is missed, 4 that a peer is not there, 6 that
    /// others used the machine so much that the figures are invalid.
    ///
    /// Example: faultscope bench mesh --json
    Bench(BenchArgs),
    /// Sends one HTTP request and prints the answer; fails when the status is 400 or above.
    Fetch(FetchArgs),
    /// Prints a completion script for a shell.
    ///
    /// Example: faultscope completions bash > /etc/bash_completion.d/faultscope
    Completions(CompletionsArgs),
    /// A process that a bench measures from outside.
    #[command(hide = true)]
    BenchPart(BenchPartArgs),
}

/// Where the application is and what it runs on.
#[derive(Debug, Clone, Args)]
pub(crate) struct Target {
    #[command(flatten)]
    pub(crate) file: FileArg,
    /// What runs the application.
    #[arg(long, value_enum, default_value_t = PlatformChoice::Process)]
    pub(crate) platform: PlatformChoice,
    /// How processes are kept apart; as the file says by default.
    #[arg(long, value_enum)]
    pub(crate) isolation: Option<IsolationArg>,
    #[command(flatten)]
    pub(crate) comparison: Comparison,
}

impl Target {
    /// One application file.
    pub(crate) fn of(file: PathBuf, platform: PlatformChoice, isolation: Option<IsolationArg>) -> Self {
        Self { file: file.into(), platform, isolation, comparison: Comparison::default() }
    }

    /// The words that name the same application on the same platform again.
    pub(crate) fn words(&self) -> Vec<String> {
        let mut words = match self.comparison.is_asked_for() {
            true => self.comparison.words(),
            false => vec![self.file.to_string_lossy().into_owned()],
        };
        let mut add = |flag: &str, value: Option<clap::builder::PossibleValue>| {
            words.extend(
                value.map(|value| [flag.to_owned(), value.get_name().to_owned()]).into_iter().flatten(),
            );
        };
        let platform = (self.platform != PlatformChoice::Process).then_some(self.platform);
        add("--platform", platform.and_then(|platform| platform.to_possible_value()));
        add("--isolation", self.isolation.and_then(|isolation| isolation.to_possible_value()));
        words
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PlatformChoice {
    /// Processes on this machine.
    Process,
    /// Containers of a Docker engine on this machine; `DOCKER_HOST` says which.
    #[cfg(feature = "docker")]
    Docker,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum IsolationArg {
    /// Namespaces where possible, otherwise ports.
    Auto,
    /// Network, mount and process namespaces.
    Netns,
    /// Ports of the loopback interface.
    Ports,
}

/// Under which circumstance.
#[derive(Debug, Clone, Args)]
pub(crate) struct Under {
    /// Use the failing circumstance of the file instead of the simplest.
    #[arg(long)]
    pub(crate) failing: bool,
    /// Add one delta, by its name in `faultscope check`.
    #[arg(long = "delta", value_name = "NAME", conflicts_with = "failing")]
    pub(crate) deltas: Vec<String>,
    /// Change one setting: nodes=3, instances.order=2, config.order.memory=64MiB,
    /// config.order.env.TTL=5, versions.order=v2.
    #[arg(long = "set", value_name = "SETTING")]
    pub(crate) settings: Vec<String>,
    /// How much of each call is recorded.
    #[arg(long, value_enum)]
    pub(crate) record: Option<RecordArg>,
    /// Decides every random choice.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum RecordArg {
    /// Names, times, sizes, status.
    Timing,
    /// Also headers.
    Headers,
    /// Also the first KiB of each body.
    Bodies,
}

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Where to put the sample; a folder of its own under the temporary folder by default.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) into: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    pub(crate) target: Target,
    /// Start the application once, run its tests and name services that do not hand on trace context.
    #[arg(long)]
    pub(crate) probe: bool,
}

#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    /// Compose files, later ones laid over earlier ones, or one Procfile. Without any, looks for
    /// compose.yaml, compose.yml, docker-compose.yaml, docker-compose.yml and their overrides, Procfile.
    #[arg(long = "file", short = 'f', value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Profiles to include.
    #[arg(long, value_name = "NAME")]
    pub(crate) profile: Vec<String>,
    /// Where to write; `-` prints it.
    #[arg(long, short, default_value = "faultscope.yaml", value_name = "FILE")]
    pub(crate) output: PathBuf,
    /// Write over an existing file.
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, Args)]
pub(crate) struct UpArgs {
    #[command(flatten)]
    pub(crate) target: Target,
    #[command(flatten)]
    pub(crate) under: Under,
    /// Offer each service's first port on this machine's loopback, from this port on.
    #[arg(long, value_name = "PORT")]
    pub(crate) publish_from: Option<u16>,
    /// End by itself after this time.
    #[arg(long = "for", value_name = "DURATION")]
    pub(crate) duration: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct TestArgs {
    #[command(flatten)]
    pub(crate) target: Target,
    #[command(flatten)]
    pub(crate) under: Under,
    /// Run only this test; repeat for several.
    #[arg(long = "test", value_name = "NAME")]
    pub(crate) tests: Vec<String>,
    /// How many trials, each in a fresh deployment.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) repeat: u32,
    /// How many trials at the same time.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) slots: u16,
    /// Stop at the first failing trial.
    #[arg(long)]
    pub(crate) fail_fast: bool,
    /// After how many trials a known one is repeated to see whether the environment is still the same.
    #[arg(long, default_value_t = 0, value_name = "TRIALS")]
    pub(crate) sentinel_every: u32,
}

#[derive(Debug, Args)]
pub(crate) struct RunsArgs {
    #[command(subcommand)]
    pub(crate) command: RunsCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RunsCommand {
    /// Lists campaigns and their runs, newest first.
    Ls(RunsLsArgs),
    /// Shows one run: tests, evidence, service map and call trees.
    Show(RunsShowArgs),
    /// Keeps a run and its whole campaign from `clean`, or gives it free.
    Keep(RunsKeepArgs),
}

#[derive(Debug, Args)]
pub(crate) struct RunsKeepArgs {
    /// A run or a campaign, or the first letters of one.
    pub(crate) run: String,
    /// The application's folder or file.
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    pub(crate) folder: PathBuf,
    /// Give it free again.
    #[arg(long)]
    pub(crate) off: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RunsLsArgs {
    #[command(flatten)]
    pub(crate) folder: FolderArg,
    /// How many campaigns.
    #[arg(long, default_value_t = 20)]
    pub(crate) limit: usize,
}

#[derive(Debug, Args)]
pub(crate) struct RunsShowArgs {
    /// A run or a campaign, or the first letters of one; `last` for the newest.
    #[arg(default_value = "last")]
    pub(crate) run: String,
    /// The application's folder or file.
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    pub(crate) folder: PathBuf,
    /// Show the call tree of this trace, or the first letters of its id.
    #[arg(long, value_name = "TRACE")]
    pub(crate) trace: Option<String>,
    /// How many call trees to show.
    #[arg(long, default_value_t = 3)]
    pub(crate) traces: usize,
    #[command(flatten)]
    pub(crate) beside: BesideArgs,
}

#[derive(Debug, Args)]
pub(crate) struct CleanArgs {
    #[command(flatten)]
    pub(crate) folder: FolderArg,
    /// Also remove stored campaigns, all but this many of the newest.
    #[arg(long, value_name = "COUNT")]
    pub(crate) keep: Option<usize>,
    /// Also remove stored campaigns that began longer ago: `168h`.
    #[arg(long, value_name = "DURATION")]
    pub(crate) keep_for: Option<String>,
    /// Also remove the oldest stored campaigns beyond this size.
    #[arg(long, value_name = "SIZE")]
    pub(crate) keep_bytes: Option<ByteSize>,
}

#[derive(Debug, Args)]
pub(crate) struct FetchArgs {
    /// The URL, with http.
    pub(crate) url: String,
    /// The method.
    #[arg(long, short = 'X', default_value = "GET")]
    pub(crate) method: String,
    /// A header, `name: value`.
    #[arg(long = "header", short = 'H', value_name = "HEADER")]
    pub(crate) headers: Vec<String>,
    /// The body.
    #[arg(long, short = 'd')]
    pub(crate) data: Option<String>,
    /// How long it may take.
    #[arg(long, default_value = "30s")]
    pub(crate) within: String,
}

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell.
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}
