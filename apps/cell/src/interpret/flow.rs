//! Steps that contain steps.

use serde_json::Value;
use tokio::task::{JoinHandle, consume_budget};

use super::{Answer, Failure, Outcome, log, run};
use crate::scope::Scope;
use crate::spec::{Branches, Each, InPool, Join, Lock, Repeat, Steps, Try};

/// The most concurrent branches of one `each`.
const MAXIMUM_BRANCHES: usize = 1024;

pub(super) async fn lock(lock: &Lock, scope: &mut Scope) -> Outcome {
    let name = lock.name.evaluate_text(scope)?;
    let wait = lock.wait.as_ref().map(|wait| wait.evaluate(scope)).transpose()?;
    let what = format!("lock `{name}`");
    let _held =
        scope.cell.locks.lock(name, wait).await.map_err(|refusal| Failure::refused(refusal, &what))?;
    run(lock.steps.clone(), scope).await
}

pub(super) async fn in_pool(step: &InPool, scope: &mut Scope) -> Outcome {
    let wait = step.wait.as_ref().map(|wait| wait.evaluate(scope)).transpose()?;
    let cell = std::sync::Arc::clone(&scope.cell);
    let what = format!("pool `{}`", step.pool);
    let pool = cell
        .pools
        .get(&step.pool)
        .ok_or_else(|| Failure::new("rejected", 503, format!("{what}: missing")))?;
    let _thread = pool.enter(wait).await.map_err(|refusal| Failure::refused(refusal, &what))?;
    run(step.steps.clone(), scope).await
}

pub(super) async fn repeat(repeat: &Repeat, scope: &mut Scope) -> Outcome {
    for index in 0..repeat.times.evaluate(scope)? {
        scope.bind(repeat.r#as.as_ref(), Value::from(index));
        if let Some(answer) = run(repeat.steps.clone(), scope).await? {
            return Ok(Some(answer));
        }
        // Steps that never wait must not starve other requests.
        consume_budget().await;
    }
    Ok(None)
}

pub(super) async fn each(each: &Each, scope: &mut Scope) -> Outcome {
    let elements = match each.r#in.evaluate(scope)? {
        Value::Array(elements) => elements,
        Value::Null => Vec::new(),
        other => return Err(Failure::new("expression", 500, format!("{other} is not a list"))),
    };
    if !each.concurrently {
        for element in elements {
            scope.locals.insert(each.r#as.clone(), element);
            if let Some(answer) = run(each.steps.clone(), scope).await? {
                return Ok(Some(answer));
            }
            consume_budget().await;
        }
        return Ok(None);
    }
    if elements.len() > MAXIMUM_BRANCHES {
        let message = format!("{} elements are more than {MAXIMUM_BRANCHES}", elements.len());
        return Err(Failure::new("expression", 500, message));
    }
    let mut branches = Vec::with_capacity(elements.len());
    for (number, element) in elements.into_iter().enumerate() {
        let mut branch = scope.branch(number);
        branch.locals.insert(each.r#as.clone(), element);
        branches.push(spawn(each.steps.clone(), branch, Join::All));
    }
    join(branches, scope).await?;
    Ok(None)
}

pub(super) async fn concurrently(step: &Branches, scope: &mut Scope) -> Result<(), Failure> {
    let branches = step.branches.iter().enumerate();
    let branches =
        branches.map(|(number, steps)| spawn(steps.clone(), scope.branch(number), step.join)).collect();
    match step.join {
        Join::All => join(branches, scope).await,
        Join::None => Ok(()),
    }
}

pub(super) async fn attempt(attempt: &Try, scope: &mut Scope) -> Outcome {
    match run(attempt.steps.clone(), scope).await {
        Err(failure) => {
            scope.bind(attempt.r#as.as_ref(), failure.to_value());
            run(attempt.catch.clone(), scope).await
        }
        outcome => outcome,
    }
}

type Branch = JoinHandle<(Result<Option<Answer>, Failure>, Scope)>;

fn spawn(steps: Steps, mut scope: Scope, join: Join) -> Branch {
    let running = scope.cell.begin();
    tokio::spawn(async move {
        let _running = running;
        let outcome = run(steps, &mut scope).await;
        // Failures of joined branches are reported by whoever joins them.
        if let (Err(failure), Join::None) = (&outcome, join) {
            log(&scope, &format!("a branch failed: {}", failure.message));
        }
        (outcome, scope)
    })
}

/// Waits for all, so that no branch outlives the response; the first failure in their order counts.
async fn join(branches: Vec<Branch>, scope: &mut Scope) -> Result<(), Failure> {
    let before = scope.locals.clone();
    let mut result = Ok(());
    for branch in branches {
        match branch.await {
            Ok((Ok(_), branch)) => {
                // A variable that a branch did not change must not overwrite what an earlier one bound.
                let bound = branch.locals.into_iter().filter(|(name, value)| before.get(name) != Some(value));
                scope.locals.extend(bound);
            }
            Ok((Err(failure), _)) => result = result.and(Err(failure)),
            Err(_) => {
                let stopped = Failure::new("failed", 500, "a branch was stopped".to_owned());
                result = result.and(Err(stopped));
            }
        }
    }
    result
}
