//! Runs the steps of an operation.
//!
//! A line of execution is one `Scope` that runs steps in order; branches get their own scope and task.

mod calls;
mod documents;
mod failure;
mod flow;

use std::path::PathBuf;
use std::pin::Pin;

use http::StatusCode;
use serde_json::{Map, Value};
use tokio::time::Duration;

use crate::expression::{EvaluationError, Expression, truthy};
use crate::scope::Scope;
use crate::spec::{Crash, Disk, Fail, Hold, Memory, Respond, Sleep, Step, Steps};
use crate::work;

pub(crate) use documents::execute;
pub(crate) use failure::{Answer, Failure};

/// The result of steps: a response, none to continue, or a failure.
type Outcome = Result<Option<Answer>, Failure>;

type BoxedOutcome<'scope> = Pin<Box<dyn Future<Output = Outcome> + Send + 'scope>>;

/// The exit code of a process that the kernel killed because memory ran out.
const OUT_OF_MEMORY: u8 = 137;

/// Runs steps until one responds or fails.
pub(crate) fn run(steps: Steps, scope: &mut Scope) -> BoxedOutcome<'_> {
    // Boxed because steps contain steps.
    Box::pin(async move {
        for step in steps.iter() {
            if let Some(answer) = run_step(step, scope).await? {
                return Ok(Some(answer));
            }
        }
        Ok(None)
    })
}

async fn run_step(step: &Step, scope: &mut Scope) -> Outcome {
    match step {
        Step::Sleep(sleep) => tokio::time::sleep(sleep_time(sleep, scope)?).await,
        Step::Cpu(time) => {
            let time = time.evaluate(scope)?;
            blocking(scope, move || work::burn(time)).await?;
        }
        Step::Memory(memory) => allocate(memory, scope).await?,
        Step::Disk(disk) => write_file(disk, scope).await?,
        Step::Get(get) => documents::get(get, scope).await?,
        Step::Find(find) => documents::find(find, scope).await?,
        Step::Put(put) => documents::put(put, scope).await?,
        Step::Update(update) => documents::update(update, scope).await?,
        Step::Increment(increment) => documents::increment(increment, scope).await?,
        Step::Delete(delete) => documents::delete(delete, scope).await?,
        Step::Cache(cache) => documents::cache(cache, scope).await?,
        Step::Set(set) => {
            let value = set.to.evaluate(scope)?;
            scope.incoming.note('v', &set.variable);
            scope.cell.set_variable(&set.variable, value);
        }
        Step::Let(values) => {
            let values = values.iter().map(|(name, value)| Ok((name.clone(), value.evaluate(scope)?)));
            let values = values.collect::<Result<Vec<_>, EvaluationError>>()?;
            scope.locals.extend(values);
        }
        Step::Count(count) => {
            let by = count.by.evaluate(scope)?;
            let by = by.as_f64().ok_or_else(|| EvaluationError(format!("{by} is not a number")))?;
            scope.cell.count(&count.name, by as i64);
        }
        Step::Call(call) => calls::call(call, scope).await?,
        Step::Lock(lock) => return flow::lock(lock, scope).await,
        Step::Concurrently(branches) => flow::concurrently(branches, scope).await?,
        Step::When(when) => {
            let chosen = if holds(&when.r#if, scope)? { &when.then } else { &when.r#else };
            return run(chosen.clone(), scope).await;
        }
        Step::Repeat(repeat) => return flow::repeat(repeat, scope).await,
        Step::Each(each) => return flow::each(each, scope).await,
        Step::In(pool) => return flow::in_pool(pool, scope).await,
        Step::Try(attempt) => return flow::attempt(attempt, scope).await,
        Step::Fail(fail) => return fail_if(fail, scope),
        Step::Crash(crash) => return crash_if(crash, scope),
        Step::Respond(respond) => return answer(respond, scope).map(Some),
        Step::Log(text) => {
            let text = text.evaluate_text(scope)?;
            log(scope, &text);
        }
    }
    Ok(None)
}

/// Writes a line to standard error: a cell's log is its standard error, like that of any service in a container.
pub(crate) fn log(scope: &Scope, text: &str) {
    use std::io::Write;
    // A closed standard error must not stop a service.
    let _ = writeln!(std::io::stderr(), "{} {}: {text}", scope.cell.instance, scope.incoming.operation);
}

fn holds(condition: &Expression, scope: &Scope) -> Result<bool, Failure> {
    Ok(truthy(&condition.evaluate(scope)?))
}

fn sleep_time(sleep: &Sleep, scope: &Scope) -> Result<Duration, Failure> {
    let random = &scope.random;
    let seconds = match sleep {
        Sleep::Fixed(time) => return Ok(time.evaluate(scope)?),
        Sleep::Around { mean, jitter } => {
            let jitter = jitter.evaluate(scope)?.as_secs_f64();
            mean.evaluate(scope)?.as_secs_f64() + (2.0 * random.fraction() - 1.0) * jitter
        }
        Sleep::Uniform(low, high) => {
            let (low, high) = (low.evaluate(scope)?.as_secs_f64(), high.evaluate(scope)?.as_secs_f64());
            low + random.fraction() * (high - low)
        }
        Sleep::Lognormal(median, sigma) => {
            median.evaluate(scope)?.as_secs_f64() * (sigma * random.normal()).exp()
        }
        Sleep::Exponential(mean) => mean.evaluate(scope)?.as_secs_f64() * random.exponential(),
    };
    // A wide lognormal can exceed what a timer takes.
    Ok(Duration::from_secs_f64(seconds.clamp(0.0, 1e9)))
}

async fn allocate(memory: &Memory, scope: &Scope) -> Result<(), Failure> {
    let size = memory.allocate.evaluate(scope)?;
    let touch = memory.touch;
    let Some(allocated) = blocking(scope, move || work::allocate(size, touch)).await? else {
        // If a limit makes allocation fail instead of killing, the process ends nevertheless.
        log(scope, "out of memory");
        (scope.cell.exit)(OUT_OF_MEMORY);
        return Err(Failure::new("memory", 500, format!("cannot allocate {size} bytes")));
    };
    match memory.hold {
        Hold::Request => scope.incoming.hold(allocated),
        Hold::Forever => scope.cell.keep(allocated),
    }
    Ok(())
}

async fn write_file(disk: &Disk, scope: &Scope) -> Result<(), Failure> {
    let size = disk.write.evaluate(scope)?;
    let path = PathBuf::from(disk.path.evaluate_text(scope)?);
    let fsync = disk.fsync;
    let shown = path.display().to_string();
    let written = blocking(scope, move || work::write_file(&path, size, fsync)).await?;
    written.map_err(|error| Failure::new("disk", 500, format!("{shown}: {error}")))
}

/// Runs work on one of the cell's threads; the runtime's own limit is higher, so that looking up a host name does
/// not wait behind it.
async fn blocking<T: Send + 'static>(
    scope: &Scope,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    let stopped = || Failure::new("failed", 500, "the work was stopped".to_owned());
    let _worker = scope.cell.workers.acquire().await.map_err(|_| stopped())?;
    tokio::task::spawn_blocking(work).await.map_err(|_| stopped())
}

fn fail_if(fail: &Fail, scope: &Scope) -> Outcome {
    if let Some(condition) = &fail.r#if
        && !holds(condition, scope)?
    {
        return Ok(None);
    }
    let status = fail.status.as_ref().map_or(Ok(500), |status| status.evaluate(scope))?;
    let message =
        fail.message.as_ref().map_or(Ok("failed".to_owned()), |message| message.evaluate_text(scope))?;
    Err(Failure::new("failed", status_code(status)?.as_u16(), message))
}

fn crash_if(crash: &Crash, scope: &Scope) -> Outcome {
    if let Some(condition) = &crash.r#if
        && !holds(condition, scope)?
    {
        return Ok(None);
    }
    log(scope, "crashed");
    (scope.cell.exit)(crash.code.unwrap_or(1));
    Err(Failure::new("failed", 500, "crashed".to_owned()))
}

fn answer(respond: &Respond, scope: &Scope) -> Result<Answer, Failure> {
    let status = respond.status.as_ref().map_or(Ok(200), |status| status.evaluate(scope))?;
    let body = match &respond.body {
        Some(body) => body.evaluate(scope)?,
        None => Value::Object(Map::new()),
    };
    let headers = calls::headers(&respond.headers, scope)?;
    Ok(Answer { status: status_code(status)?, headers, body })
}

fn status_code(status: usize) -> Result<StatusCode, Failure> {
    // An informational status is not a response, and hyper refuses to send one.
    let code = u16::try_from(status).ok().filter(|status| *status >= 200);
    code.and_then(|status| StatusCode::from_u16(status).ok())
        .ok_or_else(|| Failure::new("expression", 500, format!("{status} is not a status")))
}
