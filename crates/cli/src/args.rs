//! The command line: subcommands, options and their help texts.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use faultscope_bench::{BenchArgs, BenchPartArgs};
use faultscope_model::circumstance::Order;
use faultscope_model::units::ByteSize;

use crate::commands::beside::BesideArgs;
use crate::commands::{
    capture::CaptureArgs, causal_args::CausalArgs, debug_args::DebugArgs, deps::DepsArgs,
    metrics::MetricsArgs, report::ReportArgs, repro::ReproArgs, resilience_args::ResilienceArgs,
    serve::ServeArgs, services::ServicesArgs, traces::TracesArgs, watch::WatchArgs,
};
use crate::comparison::Comparison;
use crate::exit;
use crate::folder::{FileArg, FolderArg};

/// Finds out why a microservice system fails.
///
/// Faultscope deploys an application under a chosen circumstance, runs its tests through a mesh that
/// records and steers every call, and stores what happened as runs.
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
    /// Hide progress.
    #[arg(long, short, global = true)]
    pub(crate) quiet: bool,
    /// Log more; repeat for even more.
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
    ///
    /// Example: faultscope check --good v1/compose.yaml --bad v2/compose.yaml
    Check(CheckArgs),
    /// Writes an application file from Compose files, Kubernetes manifests or a Procfile.
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
    /// Records the calls to services that are already running, through proxies in front of them, until Ctrl-C.
    ///
    /// Nothing of the system is changed but the address that its callers use. Callers reach the proxies from this
    /// machine only, unless an address of `--listen` says otherwise.
    ///
    /// Example: faultscope record --listen 8080 --to http://staging:9000 --as order
    /// Example: faultscope record --service order=8080:http://a:80 --service stock=8081:http://b:80
    Record(Box<crate::commands::record::RecordArgs>),
    /// Copies the data, commands and settings of a running application, without stopping it for long.
    ///
    /// `faultscope up` must run in this folder. `faultscope replay --on CLONE` sends requests to services that start from
    /// the copy.
    ///
    /// Example: faultscope clone --name before-the-fix
    Clone(Box<crate::commands::clone::CloneArgs>),
    /// Sends recorded requests to fresh copies of the same services, and compares the answers.
    ///
    /// The services run in the circumstance that was recorded. Exit code 1 means that an answer differs, 5 that not
    /// all answers could be compared, 9 that a call to a mocked service had no recorded answer.
    ///
    /// Example: faultscope replay 4f2a91
    ///
    /// Example: faultscope replay --run last --speed max --as-test replay.yaml
    Replay(Box<crate::commands::replay::ReplayArgs>),
    /// Reduces a failing circumstance to the smallest set of deltas that makes the test fail.
    ///
    /// Example: faultscope debug cases/dd-f1.yaml --slots 4
    ///
    /// Example: faultscope debug --good before.yaml --bad after.yaml
    Debug(DebugArgs),
    /// Perturbs passing tests (repeats requests, restarts services, loses responses) and finds every defect.
    ///
    /// Each test first runs as it is, then with perturbations of the calls it makes, or of the messages
    /// of its actors. Whatever makes it fail is reduced to the smallest set. Exit code 1 means that defects were
    /// found, 8 that a test fails without any perturbation.
    ///
    /// Example: faultscope resilience shop/faultscope.yaml "pay twice" --slots 2
    ///
    /// Example: faultscope resilience --command 'cargo test -q accounts' --kinds duplicate,restart
    Resilience(Box<ResilienceArgs>),
    /// Runs the tests of an application in a fresh deployment.
    ///
    /// Example: faultscope test --test "pay twice" --set config.order.memory=64MiB --repeat 4 --slots 2
    Test(TestArgs),
    /// Lists and shows stored runs.
    Runs(RunsArgs),
    /// Shows what a debug or resilience campaign found, or writes it as a file.
    ///
    /// Example: faultscope report last --format html --output report.html
    Report(ReportArgs),
    /// Reproduces the failure of a bundle on this machine.
    ///
    /// A bundle runs commands of its application: only use bundles of people you trust. Exit code 1 means that
    /// the failure was reproduced, 0 that the failing circumstance passes now.
    ///
    /// Example: faultscope repro repro.tar.gz
    Repro(ReproArgs),
    /// Stores what tracers send and answers trace viewers, as Zipkin, Jaeger and an OTLP collector do.
    ///
    /// Example: faultscope serve --listen 127.0.0.1:9411
    Serve(ServeArgs),
    /// Lists, shows, imports and exports traces that services reported, with the services they called.
    Traces(TracesArgs),
    /// Lists services that reported spans or were called by one that did.
    Services(ServicesArgs),
    /// Shows which services call each other, how often and with how many errors, from reported spans.
    Deps(DepsArgs),
    /// Lists and draws metrics of instances and services over time.
    Metrics(MetricsArgs),
    /// Sends requests to a service as many users do, and measures the answers.
    ///
    /// Without --scenario and --request it sends `GET /`. Exit code 1 means that a threshold was broken, 6 that the
    /// figures are invalid because the generator or the machine was too busy.
    ///
    /// Example: faultscope load http://localhost:8080 --users 50 --spawn-rate 10 --threshold 'p95<200ms'
    ///
    /// Example: faultscope load http://localhost:8080 --rate 200 --poisson --scenario shop.yaml
    Load(Box<crate::commands::load::LoadArgs>),
    /// Finds causes in tables of measurements, and predicts what happens if a column is set.
    ///
    /// Example: faultscope causal discover runs.csv --exogenous users,load --svg graph.svg
    Causal(Box<CausalArgs>),
    /// Finds anomalies in latency, errors, CPU, memory and network of services, and the traces that led to them.
    ///
    /// Exit code 1 means that there is an anomaly.
    ///
    /// Example: faultscope watch --run last --baseline 7f3a
    /// Example: faultscope watch --follow --webhook http://127.0.0.1:8080/alarms
    Watch(Box<WatchArgs>),
    /// Removes what a killed faultscope left behind, and old campaigns.
    Clean(CleanArgs),
    /// Checks and repairs what is stored.
    ///
    /// `check` exits with 1 if something is damaged. `repair` migrates what an older version wrote, saves what can be
    /// read of damaged files, and moves those to `.faultscope/damaged`; it deletes nothing.
    ///
    /// Example: faultscope store check
    Store(crate::commands::store::StoreArgs),
    /// Makes services faulty on purpose: lists, shows, applies and scores mutants.
    ///
    /// Example: faultscope mutate ls --operator M1
    #[cfg(feature = "mutate")]
    Mutate(crate::commands::mutate::MutateArgs),
    /// Lists and shows known faults of microservice systems, and the operators that imitate them.
    #[cfg(feature = "mutate")]
    Faults(crate::commands::faults::FaultsArgs),
    /// Measures the tool against named peers and goals.
    ///
    /// Every figure with a goal has a verdict: met, tie (missed by no more than the stated tolerance), missed, or not
    /// compared if its peer was left out. Exit code 1 means that a goal is missed, 4 that a peer is missing, 6 that
    /// other processes used the machine so much that the figures are invalid.
    ///
    /// Example: faultscope bench mesh --json
    Bench(BenchArgs),
    /// Sends one HTTP request and prints the response; fails if the status is 400 or above.
    Fetch(FetchArgs),
    /// Prints a completion script for a shell.
    ///
    /// Example: faultscope completions bash > /etc/bash_completion.d/faultscope
    Completions(CompletionsArgs),
    /// A process that a benchmark measures from outside.
    #[command(hide = true)]
    BenchPart(BenchPartArgs),
}

/// The application and the platform it runs on.
#[derive(Debug, Clone, Args)]
pub(crate) struct Target {
    #[command(flatten)]
    pub(crate) file: FileArg,
    /// The platform that runs the application.
    #[arg(long, value_enum, default_value_t = PlatformChoice::Process)]
    pub(crate) platform: PlatformChoice,
    /// How processes are isolated; by default as in the file.
    #[arg(long, value_enum)]
    pub(crate) isolation: Option<IsolationArg>,
    #[command(flatten)]
    pub(crate) comparison: Comparison,
}

impl Target {
    /// One application file.
    pub(crate) fn for_file(file: PathBuf, platform: PlatformChoice, isolation: Option<IsolationArg>) -> Self {
        Self { file: file.into(), platform, isolation, comparison: Comparison::default() }
    }

    /// The arguments that select the same application on the same platform again.
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
    /// Containers of a Docker engine on this machine; uses `DOCKER_HOST` if it is set.
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

/// The circumstance of a trial.
#[derive(Debug, Clone, Args)]
pub(crate) struct Under {
    /// Use the failing circumstance of the file instead of the simplest.
    #[arg(long)]
    pub(crate) failing: bool,
    /// Add one delta, named as `faultscope check` lists it.
    #[arg(long = "delta", value_name = "NAME", conflicts_with = "failing")]
    pub(crate) deltas: Vec<String>,
    /// Change one setting: nodes=3, instances.order=2, config.order.memory=64MiB,
    /// config.order.env.TTL=5, versions.order=v2.
    #[arg(long = "set", value_name = "SETTING")]
    pub(crate) settings: Vec<String>,
    /// Impose this order on concurrent calls, unless a delta changes it: "order POST /pay: price GET /p, stock PUT /s".
    #[arg(long = "order", value_name = "ORDER")]
    pub(crate) orders: Vec<Order>,
    /// How much of each call is recorded.
    #[arg(long, value_enum)]
    pub(crate) record: Option<RecordArg>,
    /// Seed of every random choice.
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
    /// Folder for the sample; by default one in the temporary folder.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) into: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    pub(crate) target: Target,
    /// Start the application once, run its tests and report services that do not propagate trace context.
    #[arg(long)]
    pub(crate) probe: bool,
}

#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    /// Compose files, later ones merged over earlier ones; Kubernetes manifests or folders of them; or one
    /// Procfile. `-` reads manifests from standard input: `kustomize build | faultscope init -f -`. Without any,
    /// looks for compose.yaml, compose.yml, docker-compose.yaml, docker-compose.yml and their overrides, Procfile.
    #[arg(long = "file", short = 'f', value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Take variables of Compose files from this file instead of `.env`; repeatable, later ones win.
    #[arg(long, value_name = "FILE")]
    pub(crate) env_file: Vec<PathBuf>,
    /// Keep Zipkin, Jaeger and OpenTelemetry collectors, instead of using the built-in collector.
    #[arg(long)]
    pub(crate) keep_tracing: bool,
    /// Profiles to include.
    #[arg(long, value_name = "NAME")]
    pub(crate) profile: Vec<String>,
    /// File to write; `-` prints it.
    #[arg(long, short, default_value = "faultscope.yaml", value_name = "FILE")]
    pub(crate) output: PathBuf,
    /// Overwrite an existing file.
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, Args)]
pub(crate) struct UpArgs {
    #[command(flatten)]
    pub(crate) target: Target,
    #[command(flatten)]
    pub(crate) under: Under,
    /// Publish the first port of each service on the loopback interface, from this port on.
    #[arg(long, value_name = "PORT")]
    pub(crate) publish_from: Option<u16>,
    /// Stop after this time.
    #[arg(long = "for", value_name = "DURATION")]
    pub(crate) duration: Option<String>,
    /// Take a clone this often: `10m`.
    #[arg(long, value_name = "DURATION")]
    pub(crate) clone_every: Option<String>,
    /// Take a clone when this happens.
    #[arg(long, value_enum, value_name = "EVENT")]
    pub(crate) clone_on: Option<CloneOn>,
    /// The most clones without a name to keep; older ones are removed.
    #[arg(long, default_value_t = 10, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) keep: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CloneOn {
    /// An instance ends by itself, as one does that is about to be restarted.
    #[value(alias = "restart")]
    Exit,
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
    /// Number of trials, each in a fresh deployment.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) repeat: u32,
    /// Number of trials at the same time.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) slots: u16,
    /// Stop at the first failing trial.
    #[arg(long)]
    pub(crate) fail_fast: bool,
    /// Repeat a known trial after this many others, to notice changes of the environment.
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
    /// Pins a run and its whole campaign, so that `clean` keeps it, or unpins it.
    Keep(RunsKeepArgs),
}

#[derive(Debug, Args)]
pub(crate) struct RunsKeepArgs {
    /// A run or a campaign, or the beginning of its id.
    pub(crate) run: String,
    /// The application's folder or file.
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    pub(crate) folder: PathBuf,
    /// Unpin it.
    #[arg(long)]
    pub(crate) off: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RunsLsArgs {
    #[command(flatten)]
    pub(crate) folder: FolderArg,
    /// Number of campaigns.
    #[arg(long, default_value_t = 20)]
    pub(crate) limit: usize,
}

#[derive(Debug, Args)]
pub(crate) struct RunsShowArgs {
    /// A run or a campaign, or the beginning of its id; `last` for the newest.
    #[arg(default_value = "last")]
    pub(crate) run: String,
    /// The application's folder or file.
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    pub(crate) folder: PathBuf,
    /// Show the call tree of this trace; the beginning of its id is enough.
    #[arg(long, value_name = "TRACE")]
    pub(crate) trace: Option<String>,
    /// Number of call trees to show.
    #[arg(long, default_value_t = 3)]
    pub(crate) traces: usize,
    /// Show everything that services printed, between the calls of the same time.
    #[arg(long)]
    pub(crate) logs: bool,
    /// Show what calls carried: the recorded beginning of each request (`>`) and answer (`<`).
    #[arg(long)]
    pub(crate) bodies: bool,
    #[command(flatten)]
    pub(crate) beside: BesideArgs,
}

#[derive(Debug, Args)]
pub(crate) struct CleanArgs {
    #[command(flatten)]
    pub(crate) folder: FolderArg,
    /// Also remove stored campaigns, except this many of the newest.
    #[arg(long, value_name = "COUNT")]
    pub(crate) keep: Option<usize>,
    /// Also remove stored campaigns that are older than this: `168h`.
    #[arg(long, value_name = "DURATION")]
    pub(crate) keep_for: Option<String>,
    /// Also remove the oldest stored campaigns until all fit into this size.
    #[arg(long, value_name = "SIZE")]
    pub(crate) keep_bytes: Option<ByteSize>,
}

#[derive(Debug, Args)]
pub(crate) struct FetchArgs {
    /// The URL, with http.
    pub(crate) url: String,
    /// HTTP method.
    #[arg(long, short = 'X', default_value = "GET")]
    pub(crate) method: String,
    /// A header, `name: value`; repeat for several.
    #[arg(long = "header", short = 'H', value_name = "HEADER")]
    pub(crate) headers: Vec<String>,
    /// Request body.
    #[arg(long, short = 'd')]
    pub(crate) data: Option<String>,
    /// Fail if it takes longer.
    #[arg(long, default_value = "30s")]
    pub(crate) within: String,
}

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell.
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}
