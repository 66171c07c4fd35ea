//! The application: services, how each is started, its tests and its dimensions.
//!
//! [`Application::read`] turns the text of an application file into a checked value; nothing else sees
//! the file's own form. [`Application::plan`] says what must run under a circumstance.

mod blanks;
mod fixed;
mod locate;
mod planning;
mod raw;
mod raw_record;
mod read;
mod read_circumstance;
mod read_services;
mod read_tests;
mod resilience;

pub use blanks::{blanks, fill_blanks};
pub use fixed::FixedName;
pub(crate) use locate::Tree;
pub use planning::{Expansion, PlanError, Unreachable};
pub(crate) use read::nearest_hint;
pub use read::{Loader, SpecError, nearest};
pub use resilience::{Delivery, Resilience};

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use crate::circumstance::Circumstance;
use crate::ids::ServiceName;
use crate::input::InputFormat;
use crate::operation::OperationPattern;
use crate::plan::{PortPlan, Readiness, Reset};
use crate::record::Record;
use crate::wiring::{Balance, ExternalHost, Link};

/// A checked application file.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Application {
    /// Its name.
    pub name: String,
    /// Its services, in the order of the file.
    pub services: IndexMap<ServiceName, Service>,
    /// Run once; what it writes is the template every trial starts from.
    pub setup: Option<Vec<String>>,
    /// What happens between two trials.
    pub reset: Reset,
    /// How processes are kept apart.
    pub isolation: IsolationChoice,
    /// Hosts outside.
    pub externals: Vec<ExternalHost>,
    /// Its tests, in the order of the file.
    pub tests: Vec<TestCase>,
    /// What must hold after every trial of a resilience test.
    pub invariants: Vec<TestCase>,
    /// What can be chosen about resilience tests.
    pub resilience: Resilience,
    /// The test that fails, where the file names one.
    pub failing_test: Option<String>,
    /// The simplest circumstance.
    pub simplest: Circumstance,
    /// The failing circumstance.
    pub failing: Circumstance,
    /// What the ways between nodes add.
    pub links: Vec<Link>,
    /// What must hold among deltas.
    pub constraints: Vec<Constraint>,
    /// What is recorded.
    pub record: Record,
    /// How long a gate waits for its calls.
    #[serde(with = "crate::units::duration")]
    pub gate_wait: Duration,
}

/// How processes are kept apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IsolationChoice {
    /// Namespaces where the kernel allows them, otherwise ports.
    #[default]
    Auto,
    /// Namespaces.
    Netns,
    /// Ports of the host's loopback.
    Ports,
}

/// A service.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Service {
    /// Program and arguments; empty when only an image is known.
    pub command: Vec<String>,
    /// The image, for platforms that run images.
    pub image: Option<String>,
    /// Folder from which the image is built.
    pub build: Option<String>,
    /// Working directory, relative to the file.
    pub directory: String,
    /// Ports as the service itself has them.
    pub ports: Vec<PortPlan>,
    /// Environment.
    pub env: BTreeMap<String, String>,
    /// When it is ready.
    pub ready: Readiness,
    /// Services that must be ready before it starts.
    pub after: Vec<ServiceName>,
    /// Services and external hosts it calls; all when the file does not say.
    pub calls: Vec<ServiceName>,
    /// Directories that survive a restart inside a trial.
    pub durable: Vec<String>,
    /// Whether its state outlives a restart.
    pub persistent: bool,
    /// How often requests of its operations may arrive, where the file says it.
    pub delivery: Vec<(OperationPattern, Delivery)>,
    /// Further host names under which it is known.
    pub aliases: Vec<String>,
    /// Its ports on the host while `up` runs.
    pub publish: BTreeMap<u16, u16>,
    /// How callers choose among its instances.
    pub balance: Balance,
    /// Other versions of it, by name.
    pub versions: BTreeMap<String, Version>,
    /// Where it tells its own metrics, in Prometheus' text format.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics: Option<MetricsEndpoint>,
    /// How long it may take to end by itself.
    #[serde(with = "crate::units::duration")]
    pub stop_within: Duration,
}

/// Where a service tells its own metrics.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MetricsEndpoint {
    /// One of its ports.
    pub port: u16,
    /// The path.
    pub path: String,
}

/// What another version of a service has different.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Version {
    /// Program and arguments.
    pub command: Option<Vec<String>>,
    /// Image.
    pub image: Option<String>,
    /// Working directory.
    pub directory: Option<String>,
    /// Environment laid over the service's own.
    pub env: BTreeMap<String, String>,
    /// When it is ready.
    pub ready: Option<Readiness>,
}

/// A test.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TestCase {
    /// Its name, unique.
    pub name: String,
    /// What it does.
    pub body: TestBody,
    /// A regular expression; what it matches in the output is the failure's message.
    pub failure: Option<String>,
    /// A regular expression; a failure whose message or answer it matches is a degraded answer, which is
    /// good enough when something was broken on purpose.
    pub degraded: Option<String>,
    /// How long it may take.
    #[serde(with = "crate::units::duration")]
    pub within: Duration,
    /// The file that it reads, when it can be made smaller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<TestInput>,
}

/// The file that a test's command reads; `{input}` in its words stands for the path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TestInput {
    /// The file, relative to the application file.
    pub file: String,
    /// How it is written.
    pub format: InputFormat,
    /// What the command reads instead of the file, while smaller inputs are tried.
    #[serde(skip)]
    pub instead: Option<Arc<str>>,
}

/// What a test does.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TestBody {
    /// A command; it passes when it ends with 0.
    Command(TestCommand),
    /// HTTP requests, one after the other.
    Steps(Vec<Step>),
    /// A command that tells which test cases there are.
    Discover {
        /// How it tells them.
        format: ReportFormat,
        /// The command; it runs all cases, or only lists them when there is a command for each.
        command: TestCommand,
        /// The command that runs one case alone, `{case}` being its name.
        #[serde(skip_serializing_if = "Option::is_none")]
        each: Option<Vec<String>>,
        /// The only case that counts, where one command runs all of them.
        #[serde(skip_serializing_if = "Option::is_none")]
        case: Option<String>,
    },
}

/// The test of this name: one of these, or a case of one that runs all its cases by one command. Such a case
/// has just its own name where there is one such test; where there are several, `TEST: CASE`.
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
    /// Whether one command runs all its cases, whose names are known only then.
    pub fn runs_all_cases(&self) -> bool {
        matches!(self.body, TestBody::Discover { each: None, .. })
    }
}

/// A test's command.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TestCommand {
    /// Program and arguments.
    pub run: Vec<String>,
    /// Environment.
    pub env: BTreeMap<String, String>,
    /// Working directory, relative to the file.
    pub directory: String,
}

impl TestCommand {
    /// Whether `{input}` is in it, which stands for the path of the test's input.
    pub fn names_input(&self) -> bool {
        self.run.iter().chain(self.env.values()).any(|text| text.contains("{input}"))
    }
}

/// How a command tells its test cases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ReportFormat {
    /// A report as JUnit XML, in the file that `{out}` stands for.
    Junit,
    /// What `cargo test -- --list` prints.
    Cargo,
    /// What `pytest --collect-only -q` prints.
    Pytest,
    /// One case in a line.
    Lines,
}

/// One HTTP request of a test.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Step {
    /// Its number in the file, from 1, under which its failure is told also when other steps are left out.
    #[serde(skip)]
    pub number: u32,
    /// Method and URL as the file has them, for the same reason.
    #[serde(skip)]
    pub name: String,
    /// Method, upper case.
    pub method: String,
    /// Absolute URL; may hold `${name}`.
    pub url: String,
    /// Headers; values may hold `${name}`.
    pub headers: BTreeMap<String, String>,
    /// Body; may hold `${name}`.
    pub body: Option<StepBody>,
    /// What the answer must be.
    pub expect: Expectation,
    /// Values of the answer to keep under a name, by dotted path into its JSON.
    pub save: BTreeMap<String, String>,
}

/// The body of a step.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum StepBody {
    /// Text as it is.
    Text(String),
    /// JSON.
    Json(serde_json::Value),
}

/// What an answer must be. Without a status, any below 400 will do.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expectation {
    /// The status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// A regular expression found in the body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// Regular expressions that the texts at dotted paths of the JSON body match as a whole.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub json: BTreeMap<String, String>,
    /// Regular expressions that header values match as a whole.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
}

/// What must hold among deltas; each is named as `faultscope check` lists it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Constraint {
    /// The first needs the second.
    Needs {
        /// This delta ...
        delta: String,
        /// ... makes no sense without this one.
        needs: String,
    },
    /// Never all of these at once.
    Excludes(Vec<String>),
}

#[cfg(test)]
mod mistakes;
#[cfg(test)]
mod tests;
