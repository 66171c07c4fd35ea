//! The steps of an operation.
//!
//! Every step is a map with one key, the kind, so that a misspelt kind or field is reported at its place.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::access::{CacheAccess, Delete, Find, Get, Increment, Put, Update};
use super::named::Steps;
use crate::expression::Expression;
use crate::template::{Size, Template, Time};

/// One thing an operation does.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Waits.
    Sleep(Sleep),
    /// Burns processor time of one thread.
    Cpu(Time),
    /// Allocates memory.
    Memory(Memory),
    /// Writes a file.
    Disk(Disk),
    /// Reads a document.
    Get(Get),
    /// Reads the documents whose fields have given values.
    Find(Find),
    /// Writes a document.
    Put(Put),
    /// Changes fields of a document.
    Update(Update),
    /// Adds to a number in a document, atomically.
    Increment(Increment),
    /// Removes a document.
    Delete(Delete),
    /// Reads, writes or removes a cached value.
    Cache(CacheAccess),
    /// Changes a shared variable.
    Set(Set),
    /// Names values for later steps.
    Let(BTreeMap<String, Template>),
    /// Adds to a counter, atomically.
    Count(Count),
    /// Runs steps while it holds a named lock of the instance.
    Lock(Lock),
    /// Calls an operation of another service.
    Call(Box<Call>),
    /// Runs branches at the same time.
    Concurrently(Branches),
    /// Chooses between steps.
    When(When),
    /// Runs steps several times.
    Repeat(Repeat),
    /// Runs steps for every element of a list.
    Each(Each),
    /// Runs steps in a thread pool.
    In(InPool),
    /// Runs steps and handles their failure.
    Try(Try),
    /// Answers with an error.
    Fail(Fail),
    /// Ends the process.
    Crash(Crash),
    /// Answers, and ends the operation.
    Respond(Respond),
    /// Writes a line to standard error.
    Log(Template),
}

/// How long to wait.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "Value")]
pub enum Sleep {
    /// Always as long.
    Fixed(Time),
    /// Uniform around a mean.
    Around {
        /// The mean.
        mean: Time,
        /// The largest deviation from it.
        jitter: Time,
    },
    /// Uniform between two bounds.
    Uniform(Time, Time),
    /// Lognormal with a median and the deviation of its logarithm.
    Lognormal(Time, f64),
    /// Exponential with a mean.
    Exponential(Time),
}

/// Allocates memory.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Memory {
    /// How much.
    pub allocate: Size,
    /// How long it is kept.
    #[serde(default)]
    pub hold: Hold,
    /// Whether its pages are written, so that they count.
    #[serde(default = "yes")]
    pub touch: bool,
}

/// How long memory is kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hold {
    /// Until the request is answered.
    #[default]
    Request,
    /// As long as the process lives.
    Forever,
}

/// Writes a file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Disk {
    /// How much.
    pub write: Size,
    /// The file, relative to the working directory; overwritten each time.
    pub path: Template,
    /// Whether it waits for the disk.
    #[serde(default)]
    pub fsync: bool,
}

/// Changes a shared variable.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Set {
    /// Its name, as in `variables`.
    pub variable: String,
    /// Its new value.
    pub to: Template,
}

/// Adds to a counter; `count: hits` is short for `count: { name: hits }`.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "Value")]
pub struct Count {
    /// The counter.
    pub name: String,
    /// What to add.
    pub by: Template,
}

/// Runs steps while it holds a named lock of the instance.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lock {
    /// The name.
    pub name: Template,
    /// How long it may wait; without it, for ever.
    #[serde(default)]
    pub wait: Option<Time>,
    /// What to do with the lock.
    pub steps: Steps,
}

/// Calls an operation of another service.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Call {
    /// The service.
    pub service: String,
    /// The method; GET if it is left out.
    #[serde(default)]
    pub method: Option<String>,
    /// The path.
    pub path: Template,
    /// Query parameters; null ones are left out.
    #[serde(default)]
    pub query: BTreeMap<String, Template>,
    /// More headers; null ones are left out.
    #[serde(default)]
    pub headers: BTreeMap<String, Template>,
    /// The body, sent as JSON.
    #[serde(default)]
    pub body: Option<Template>,
    /// The name of the answer's body.
    #[serde(default)]
    pub r#as: Option<String>,
    /// The name of the answer's status.
    #[serde(default)]
    pub status_as: Option<String>,
    /// Statuses from 400 on that are not errors.
    #[serde(default)]
    pub accept: Vec<u16>,
    /// How long one attempt may take; 30 s if it is left out.
    #[serde(default)]
    pub timeout: Option<Time>,
    /// How many further attempts follow a failed one.
    #[serde(default)]
    pub retries: Option<Size>,
    /// The pause before each further attempt.
    #[serde(default)]
    pub backoff: Option<Time>,
    /// What a failure means.
    #[serde(default)]
    pub on_error: OnError,
}

/// What a failed call means for the caller.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnError {
    /// The step fails: 504 after a time-out, else 502.
    #[default]
    Fail,
    /// The result is null.
    Ignore,
    /// The result is this.
    Default(Template),
    /// The step fails with this status.
    Status(u16),
}

/// Runs branches at the same time; a plain list of branches joins all.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "Value")]
pub struct Branches {
    /// The steps of each branch.
    pub branches: Vec<Steps>,
    /// Whether to wait for them.
    pub join: Join,
}

/// Whether to wait for concurrent steps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Join {
    /// Waits for all; the first failure in their order is the step's.
    #[default]
    All,
    /// Goes on at once; failures are logged.
    None,
}

/// Chooses between steps.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct When {
    /// The condition.
    pub r#if: Expression,
    /// If it holds.
    #[serde(default)]
    pub then: Steps,
    /// If it does not.
    #[serde(default)]
    pub r#else: Steps,
}

/// Runs steps several times.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Repeat {
    /// How often.
    pub times: Size,
    /// The name of the index, from 0.
    #[serde(default)]
    pub r#as: Option<String>,
    /// What to do.
    pub steps: Steps,
}

/// Runs steps for every element of a list.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Each {
    /// The list.
    pub r#in: Expression,
    /// The name of the element.
    pub r#as: String,
    /// What to do.
    pub steps: Steps,
    /// Whether all run at the same time.
    #[serde(default)]
    pub concurrently: bool,
}

/// Runs steps in a thread pool.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InPool {
    /// The pool.
    pub pool: String,
    /// How long it may wait for a thread; the pool's `wait` if it is left out.
    #[serde(default)]
    pub wait: Option<Time>,
    /// What to do there.
    pub steps: Steps,
}

/// Runs steps and handles their failure.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Try {
    /// What may fail.
    pub steps: Steps,
    /// What to do then.
    #[serde(default)]
    pub catch: Steps,
    /// The name of the failure: `kind`, `status`, `message`.
    #[serde(default)]
    pub r#as: Option<String>,
}

/// Answers with an error.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fail {
    /// The condition; always if it is left out.
    #[serde(default)]
    pub r#if: Option<Expression>,
    /// The status; 500 if it is left out.
    #[serde(default)]
    pub status: Option<Size>,
    /// What went wrong.
    #[serde(default)]
    pub message: Option<Template>,
}

/// Ends the process.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Crash {
    /// The condition; always if it is left out.
    #[serde(default)]
    pub r#if: Option<Expression>,
    /// The exit code; 1 if it is left out.
    #[serde(default)]
    pub code: Option<u8>,
}

/// Answers, and ends the operation.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Respond {
    /// The status; 200 if it is left out.
    #[serde(default)]
    pub status: Option<Size>,
    /// The body, sent as JSON.
    #[serde(default)]
    pub body: Option<Template>,
    /// More headers; null ones are left out.
    #[serde(default)]
    pub headers: BTreeMap<String, Template>,
}

fn yes() -> bool {
    true
}
