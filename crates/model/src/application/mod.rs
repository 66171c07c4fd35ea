//! The application: services, how each is started, its tests and its dimensions.
//!
//! [`Application::read`] turns the text of an application file into a checked value; nothing else sees
//! the file's own form. [`Application::plan`] computes what must run under a circumstance.

mod alternatives;
mod expectation;
mod grpc_steps;
mod hardcoded_hosts;
mod locate;
mod placeholders;
mod planning;
mod protos;
mod raw;
mod raw_record;
mod read;
mod read_bundle;
mod read_circumstance;
mod read_mounts;
mod read_services;
mod read_tests;
mod resilience;
mod watch;

pub use alternatives::{Alternative, Alternatives};
pub use expectation::{Codes, Exclusion, Expectation, StatusPattern, Statuses};
pub use grpc_steps::encode_messages;
pub use hardcoded_hosts::HardcodedHost;
pub(crate) use locate::Tree;
pub(crate) use placeholders::{Part, parts};
pub use placeholders::{fill_path, fill_placeholders, placeholders};
pub use planning::{Expansion, PlanError, Unreachable};
pub use protos::{OpenProtoPath, ProtoPath, ProtoPathContent, Protos};
pub(crate) use read::nearest_hint;
pub use read::{FilePlace, Loader, SpecError, nearest};
pub use resilience::{Delivery, Outage, Resilience};
pub use watch::{DetectorChoice, DetectorLimits, MARGIN, Quantity, WatchRule, WatchedMetric};

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use crate::circumstance::Circumstance;
use crate::grpc::Descriptors;
use crate::ids::ServiceName;
use crate::input::InputFormat;
use crate::mount::Mount;
use crate::operation::OperationPattern;
use crate::plan::{PortPlan, Readiness, Reset};
use crate::record::Record;
use crate::wiring::{Balance, ExternalHost, Link};

/// A checked application file.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Application {
    /// `application` unless the file names it.
    pub name: String,
    /// The folder that all paths are relative to, named as the files were: that of the outermost file, or
    /// its `directory`.
    #[serde(skip)]
    pub folder: String,
    /// Its services, in the order of the file.
    pub services: IndexMap<ServiceName, Service>,
    /// A command that runs once; every trial starts from a copy of the files it writes.
    pub setup: Option<Vec<String>>,
    /// Whether instances and data survive between two trials of a slot.
    pub reset: Reset,
    /// How instances of the process platform are isolated from one another.
    pub isolation: IsolationChoice,
    /// Hosts outside the application that services call.
    pub externals: Vec<ExternalHost>,
    /// Its tests, in the order of the file.
    pub tests: Vec<TestCase>,
    /// Tests that must pass after every trial of `resilience`.
    pub invariants: Vec<TestCase>,
    /// Options of `resilience`.
    pub resilience: Resilience,
    /// The test that `debug` reproduces, where the file names one.
    pub failing_test: Option<String>,
    /// The simplest circumstance.
    pub simplest: Circumstance,
    /// The failing circumstance.
    pub failing: Circumstance,
    /// Latency and loss between nodes.
    pub links: Vec<Link>,
    /// Which deltas need or exclude one another.
    pub constraints: Vec<Constraint>,
    /// What is recorded of calls and instances.
    pub record: Record,
    /// What a reproduction bundle leaves out. Not a part of what trials depend on, so digests leave it out, too.
    #[serde(skip)]
    pub bundle: BundleOptions,
    /// Files that describe the messages of its gRPC services.
    #[serde(skip_serializing_if = "Protos::is_empty")]
    pub protos: Protos,
    /// What these files say, once someone has loaded them; see [`Application::load_protos`].
    #[serde(skip)]
    pub descriptors: Descriptors,
    /// Paths of this machine that services and tests see as they are, and may change: absolute, or below `~`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub shared: Vec<String>,
    /// How series are watched for anomalies. Trials do not depend on it, so digests leave it out.
    #[serde(skip)]
    pub watch: Vec<WatchRule>,
    /// How long a gate waits for all calls of its series.
    #[serde(with = "crate::units::duration")]
    pub gate_wait: Duration,
}

/// What a reproduction bundle leaves out, and how that is restored elsewhere.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BundleOptions {
    /// Patterns as in a `.gitignore` in the application's folder; they outweigh those of `.gitignore` files.
    pub exclude: Vec<String>,
    /// A command that runs in the application's folder before the first trial of `repro`.
    pub restore: Option<Vec<String>>,
}

/// How instances of the process platform are isolated from one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IsolationChoice {
    /// Namespaces where the kernel allows them, ports otherwise.
    #[default]
    Auto,
    /// A network namespace for each instance.
    Netns,
    /// Ports on the loopback interface of the host.
    Ports,
}

/// How a service is started, reached and stopped.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Service {
    /// What takes the place of the image's entry point; an empty one switches it off. Processes run it before
    /// the command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entrypoint: Option<Vec<String>>,
    /// Program and arguments; empty when only an image is known.
    pub command: Vec<String>,
    /// The image, for platforms that run images.
    pub image: Option<String>,
    /// The folder whose Dockerfile builds the image.
    pub build: Option<String>,
    /// Working directory of processes, relative to the file.
    pub directory: String,
    /// Working directory in a container, where it is not the image's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub working_dir: Option<String>,
    /// The user in a container, where it is not the image's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Ports on which the service itself listens.
    pub ports: Vec<PortPlan>,
    /// Environment variables.
    pub env: BTreeMap<String, String>,
    /// When an instance counts as ready.
    pub ready: Readiness,
    /// Services that must be ready before it starts.
    pub after: Vec<ServiceName>,
    /// Services and external hosts it calls; all when the file does not say.
    pub calls: Vec<ServiceName>,
    /// Directories that survive a restart inside a trial.
    pub durable: Vec<String>,
    /// Whether its state survives a restart, so that `resilience` may restart it.
    pub persistent: bool,
    /// How often requests of its operations may be delivered, for those that the file lists.
    pub delivery: Vec<(OperationPattern, Delivery)>,
    /// Further host names of the service.
    pub aliases: Vec<String>,
    /// Its ports on the host while `up` runs: from host port to service port.
    pub publish: BTreeMap<u16, u16>,
    /// How callers choose among its instances.
    pub balance: Balance,
    /// Versions other than the default, by name.
    pub versions: BTreeMap<String, Version>,
    /// Where it exposes its own metrics in Prometheus' text format.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics: Option<MetricsEndpoint>,
    /// How long it may take to stop after SIGTERM.
    #[serde(with = "crate::units::duration")]
    pub stop_within: Duration,
    /// What it sees at paths of its own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<Mount>,
    /// What happens to it between two trials, where that is not as for the whole application.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reset: Option<Reset>,
    /// Whether it may do what whoever runs the tool may do, rather than what a container may do.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub privileged: bool,
    /// What it does before it is cloned. Trials do not depend on it, so digests leave it out.
    #[serde(skip)]
    pub before_clone: Option<CloneHook>,
}

/// A command that makes a service write what it has in memory to its data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CloneHook {
    /// Program and arguments; runs in each instance.
    pub command: Vec<String>,
    /// The command is killed if it takes longer.
    pub within: Duration,
}

/// Where a service exposes its own metrics.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MetricsEndpoint {
    /// One of the ports of the service.
    pub port: u16,
    /// The path, with its leading slash.
    pub path: String,
}

/// What another version of a service overrides.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Version {
    /// What takes the place of the image's entry point.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entrypoint: Option<Vec<String>>,
    /// Program and arguments.
    pub command: Option<Vec<String>>,
    /// The image, for platforms that run images.
    pub image: Option<String>,
    /// Working directory, relative to the file.
    pub directory: Option<String>,
    /// Environment variables, added to those of the service.
    pub env: BTreeMap<String, String>,
    /// When an instance of this version counts as ready.
    pub ready: Option<Readiness>,
}

/// One test of the application.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TestCase {
    /// Unique among the tests of the application.
    pub name: String,
    /// What the test executes.
    pub body: TestBody,
    /// A regular expression; what it matches in the output is the failure's message.
    pub failure: Option<String>,
    /// A regular expression. A failure whose message or response it matches is a degraded response, which is
    /// acceptable while something is broken on purpose.
    pub degraded: Option<String>,
    /// The test has failed if it takes longer.
    #[serde(with = "crate::units::duration")]
    pub within: Duration,
    /// The file that the test reads, where `debug` may reduce it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<TestInput>,
}

/// The file that a test's command reads; `{input}` in the command stands for its path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TestInput {
    /// Relative to the application file.
    pub file: String,
    /// Decides how the file is split into parts.
    pub format: InputFormat,
    /// The reduced text that the command reads in place of the file.
    #[serde(skip)]
    pub instead: Option<Arc<str>>,
}

/// What a test executes.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TestBody {
    /// A command; the test passes if its exit code is 0.
    Command(TestCommand),
    /// Requests, sent one after the other.
    Steps(Vec<Step>),
    /// A command that finds test cases.
    Discover {
        /// How the command reports its cases.
        format: ReportFormat,
        /// Runs all cases; only lists them where `each` is set.
        command: TestCommand,
        /// Runs one case; `{case}` stands for its name.
        #[serde(skip_serializing_if = "Option::is_none")]
        each: Option<Vec<String>>,
        /// The one case that counts, where one command runs all of them.
        #[serde(skip_serializing_if = "Option::is_none")]
        case: Option<String>,
    },
}

/// Finds a test by name: one of these, or a case of a test that runs all its cases with one command. Such a case
/// goes by its own name if there is only one such test, and by `TEST: CASE` otherwise.
pub fn test_named(tests: &[TestCase], name: &str) -> Option<TestCase> {
    if let Some(test) = tests.iter().find(|test| test.name == name) {
        return Some(test.clone());
    }
    let suites: Vec<&TestCase> = tests.iter().filter(|test| test.runs_all_cases()).collect();
    let (suite, case) = match suites.as_slice() {
        [only] => (*only, name),
        several => several.iter().find_map(|suite| {
            let case = name.strip_prefix(suite.name.as_str())?.strip_prefix(": ")?;
            Some((*suite, case))
        })?,
    };
    let mut test = TestCase { name: name.to_owned(), ..suite.clone() };
    if let TestBody::Discover { case: only, .. } = &mut test.body {
        *only = Some(case.to_owned());
    }
    Some(test)
}

impl TestCase {
    /// Whether one command runs all cases, so that their names are unknown until it has run.
    pub fn runs_all_cases(&self) -> bool {
        matches!(self.body, TestBody::Discover { each: None, .. })
    }
}

/// The command of a test.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TestCommand {
    /// Program and arguments.
    pub run: Vec<String>,
    /// Environment variables.
    pub env: BTreeMap<String, String>,
    /// Working directory, relative to the file.
    pub directory: String,
}

impl TestCommand {
    /// Whether the command contains `{input}`, the path of the test's input.
    pub fn names_input(&self) -> bool {
        self.run.iter().chain(self.env.values()).any(|text| text.contains("{input}"))
    }
}

/// How a command reports its test cases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ReportFormat {
    /// JUnit XML in the file that `{out}` stands for.
    Junit,
    /// The output of `cargo test -- --list`.
    Cargo,
    /// The output of `pytest --collect-only -q`.
    Pytest,
    /// One case per line.
    Lines,
}

/// One request of a test: HTTP, or a call of gRPC.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Step {
    /// Its number in the file, from 1. Failures name it, so it stays the same when other steps are left out.
    #[serde(skip)]
    pub number: u32,
    /// Method and URL as written in the file; kept for the same reason.
    #[serde(skip)]
    pub name: String,
    /// Method, upper case; `POST` for gRPC.
    pub method: String,
    /// Absolute URL; may contain `${name}`. That of a gRPC method ends with `/package.Service/Method`.
    pub url: String,
    /// What is called, if it is a call of gRPC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grpc: Option<GrpcCall>,
    /// How long the answer may take. Of gRPC this is the deadline that the callee sees.
    #[serde(with = "crate::units::duration::option", skip_serializing_if = "Option::is_none")]
    pub within: Option<Duration>,
    /// Headers; names and values may contain `${name}`.
    pub headers: BTreeMap<String, String>,
    /// Body; texts and keys of JSON may contain `${name}`.
    pub body: Option<StepBody>,
    /// What the response must look like.
    pub expect: Expectation,
    /// Values to save, by name: dotted paths into the JSON of the response, which may contain `${name}`.
    pub save: BTreeMap<String, String>,
}

/// The method that a step calls by gRPC.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GrpcCall {
    /// `package.Service/Method`.
    pub method: String,
    /// Where the step is written; a mistake in it may be found only once descriptors are known.
    #[serde(skip)]
    pub place: FilePlace,
}

/// The body of a step.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum StepBody {
    /// Sent as it is.
    Text(String),
    /// Sent as JSON, with the matching content type.
    Json(serde_json::Value),
}

/// A condition on deltas, which are named as `faultscope check` lists them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Constraint {
    /// The first delta makes no sense without the second.
    Needs {
        /// The dependent delta.
        delta: String,
        /// The delta it depends on.
        needs: String,
    },
    /// These deltas never occur all at once.
    Excludes(Vec<String>),
}

#[cfg(test)]
mod error_tests;
#[cfg(test)]
mod tests;
