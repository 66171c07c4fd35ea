//! What handlers of the loopback platform receive and return.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use faultscope_model::InstanceId;
use faultscope_model::SlotId;
use faultscope_model::plan::InstancePlan;
use futures_util::future::BoxFuture;
use http::{Request, Response};
use tokio::net::TcpStream;

use super::client::Client;
use super::life::Life;
use super::lock;

pub(super) type Serve = Arc<dyn Fn(Instance, TcpStream) -> BoxFuture<'static, ()> + Send + Sync>;
pub(super) type Start = Arc<dyn Fn(Instance) -> BoxFuture<'static, Result<(), Ending>> + Send + Sync>;
pub(super) type Program = Arc<dyn Fn(Test) -> BoxFuture<'static, ExitCode> + Send + Sync>;
pub(super) type Clear = Arc<dyn Fn(SlotId) -> BoxFuture<'static, ()> + Send + Sync>;

/// All registered handlers.
#[derive(Default)]
pub(super) struct Handlers {
    pub(super) services: BTreeMap<String, Serve>,
    pub(super) starts: BTreeMap<String, Start>,
    pub(super) programs: BTreeMap<String, Program>,
    pub(super) clear: Option<Clear>,
}

/// How an instance ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// Exits with this code.
    Exit(i32),
    /// Is killed by this signal.
    Signal(i32),
    /// Is killed by the kernel because memory ran out.
    OutOfMemory,
}

/// Key-value data of an instance.
#[derive(Debug, Default)]
pub struct Data(Mutex<BTreeMap<String, String>>);

/// The instance that a handler runs in; clones are the same one.
#[derive(Debug, Clone)]
pub struct Instance {
    pub(super) life: Arc<Life>,
}

/// A request, and the instance that handles it.
#[derive(Debug)]
pub struct Call {
    /// The request with its whole body.
    pub request: Request<Bytes>,
    /// The instance that handles it.
    pub instance: Instance,
}

/// The response of a handler.
#[derive(Debug)]
pub struct Reply(pub(super) Response<Bytes>);

/// A running test command.
#[derive(Debug)]
pub struct Test {
    pub(super) args: Vec<String>,
    pub(super) env: BTreeMap<String, String>,
    pub(super) client: Client,
    pub(super) output: Arc<Output>,
}

/// The output of a test command.
#[derive(Debug, Default)]
pub(super) struct Output {
    pub(super) stdout: Mutex<String>,
    pub(super) stderr: Mutex<String>,
}

/// How a test command ends: 0, or 1 with the reason on stderr.
#[derive(Debug)]
pub struct ExitCode {
    pub(super) code: i32,
    pub(super) complaint: Option<String>,
}

// === impl Handlers ===

impl Handlers {
    /// The handler of an instance: by the first word of its command, else by its service.
    pub(super) fn find<'a, T>(of: &'a BTreeMap<String, T>, plan: &InstancePlan) -> Option<&'a T> {
        let by_command = plan.words().first().and_then(|program| of.get(program));
        by_command.or_else(|| of.get(plan.id.service.as_str()))
    }
}

// === impl Data ===

impl Data {
    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<String> {
        lock(&self.0).get(key).cloned()
    }

    /// Sets the value of a key.
    pub fn set(&self, key: &str, value: impl fmt::Display) {
        lock(&self.0).insert(key.to_owned(), value.to_string());
    }

    /// Adds to a number, which starts at 0, and returns the sum.
    pub fn add(&self, key: &str, by: i64) -> i64 {
        let mut data = lock(&self.0);
        let sum = data.get(key).and_then(|value| value.parse().ok()).unwrap_or(0) + by;
        data.insert(key.to_owned(), sum.to_string());
        sum
    }

    pub(super) fn copy(&self) -> Self {
        Self::from_values(self.values())
    }

    pub(super) fn values(&self) -> BTreeMap<String, String> {
        lock(&self.0).clone()
    }

    pub(super) fn from_values(values: BTreeMap<String, String>) -> Self {
        Self(Mutex::new(values))
    }

    pub(super) fn size(&self) -> usize {
        lock(&self.0).iter().map(|(key, value)| key.len() + value.len()).sum()
    }
}

// === impl Instance ===

impl Instance {
    /// The instance id.
    pub fn id(&self) -> &InstanceId {
        &self.life.plan.id
    }

    /// The plan it was started from.
    pub fn plan(&self) -> &InstancePlan {
        &self.life.plan
    }

    /// An environment variable.
    pub fn env(&self, name: &str) -> Option<&str> {
        self.life.plan.env.get(name).map(String::as_str)
    }

    /// Data that is lost when the instance ends.
    pub fn memory(&self) -> &Data {
        &self.life.memory
    }

    /// Data that survives restarts until the trial ends.
    pub fn durable(&self) -> &Data {
        &self.life.durable
    }

    /// A client for calls without the context of a request.
    pub fn client(&self) -> Client {
        Client::new(self.id().clone(), Arc::clone(&self.life.ways))
    }

    /// Prints a line.
    pub fn print(&self, line: impl fmt::Display) {
        self.life.log.push(format!("{line}\n").as_bytes());
    }

    /// Adds to the used memory, and ends the instance if that exceeds its limit.
    pub async fn allocate(&self, bytes: u64) {
        if self.life.allocate(bytes) {
            return;
        }
        self.life.end(Ending::OutOfMemory);
        std::future::pending().await
    }

    /// Ends the instance, including the task that awaits this.
    pub async fn exit(&self, code: i32) -> ! {
        self.life.end(Ending::Exit(code));
        std::future::pending().await
    }
}

// === impl Call ===

impl Call {
    /// The path of the request, without its query.
    pub fn path(&self) -> &str {
        self.request.uri().path()
    }

    /// A client for calls on behalf of this request: its trace context is propagated.
    pub fn client(&self) -> Client {
        self.instance.client().within(self.request.headers())
    }
}

// === impl Test ===

impl Test {
    /// The arguments of the command.
    pub fn args(&self) -> &[String] {
        &self.args
    }

    /// An environment variable.
    pub fn env(&self, name: &str) -> Option<&str> {
        self.env.get(name).map(String::as_str)
    }

    /// A client for the calls of the test.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Prints a line.
    pub fn print(&self, line: impl fmt::Display) {
        lock(&self.output.stdout).push_str(&format!("{line}\n"));
    }
}

impl From<i32> for ExitCode {
    fn from(code: i32) -> Self {
        Self { code, complaint: None }
    }
}

impl<E: fmt::Display> From<Result<(), E>> for ExitCode {
    fn from(result: Result<(), E>) -> Self {
        match result {
            Ok(()) => Self { code: 0, complaint: None },
            Err(error) => Self { code: 1, complaint: Some(error.to_string()) },
        }
    }
}

// === impl Reply ===

impl From<Response<Bytes>> for Reply {
    fn from(response: Response<Bytes>) -> Self {
        Self(response)
    }
}

impl From<String> for Reply {
    fn from(body: String) -> Self {
        Self(Response::new(Bytes::from(body)))
    }
}

impl From<&str> for Reply {
    fn from(body: &str) -> Self {
        body.to_owned().into()
    }
}

impl<Body: Into<Self>> From<(u16, Body)> for Reply {
    /// An invalid status is a mistake of the handler and becomes 500.
    fn from((status, body): (u16, Body)) -> Self {
        let mut reply = body.into();
        let status = http::StatusCode::from_u16(status);
        *reply.0.status_mut() = status.unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
        reply
    }
}

/// An error becomes 502 with its reason, as of a service that could not reach another one.
impl<Body: Into<Self>> From<std::io::Result<Body>> for Reply {
    fn from(result: std::io::Result<Body>) -> Self {
        match result {
            Ok(body) => body.into(),
            Err(error) => (502, error.to_string()).into(),
        }
    }
}

pub(super) fn boxed<T>(future: impl Future<Output = T> + Send + 'static) -> BoxFuture<'static, T> {
    Box::pin(future)
}
