//! Steps that use documents and cached values.

use http::{HeaderValue, Method, header};
use serde_json::{Map, Value};
use tokio::time::Duration;

use super::Failure;
use crate::client::{CallError, Outgoing};
use crate::expression::EvaluationError;
use crate::places::DocumentPlace;
use crate::scope::Scope;
use crate::spec::{CacheAccess, Delete, Find, Get, Increment, Put, Update};
use crate::store::Command;
use crate::template::Template;

/// The default time limit of requests to the store of another cell.
const PATIENCE: Duration = Duration::from_secs(30);

/// Executes a command where the documents of this cell are.
pub(crate) async fn execute(scope: &Scope, command: Command) -> Result<Value, Failure> {
    match &scope.cell.documents {
        DocumentPlace::Here(store) => Ok(store.execute(command).await?),
        DocumentPlace::There { service, timeout } => {
            let patience = timeout.as_ref().map_or(Ok(PATIENCE), |timeout| timeout.evaluate(scope))?;
            remote(scope, service, patience, command).await
        }
    }
}

async fn remote(
    scope: &Scope,
    service: &str,
    patience: Duration,
    command: Command,
) -> Result<Value, Failure> {
    let failed = |message: String| Failure::new("store", 500, format!("store `{service}`: {message}"));
    let mut headers = scope.outgoing_headers();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let outgoing = Outgoing {
        method: Method::POST,
        path: format!("/_store/{}", command.name()),
        headers,
        body: serde_json::to_vec(&command).map_err(|error| failed(error.to_string()))?.into(),
    };
    let (status, body) =
        scope.cell.client.send(service, outgoing, patience).await.map_err(|error| match error {
            CallError::TimedOut(_) => Failure::new("timeout", 504, format!("store `{service}`: {error}")),
            other => failed(other.to_string()),
        })?;
    let value: Value = serde_json::from_slice(&body).map_err(|error| failed(error.to_string()))?;
    if status.is_success() { Ok(value) } else { Err(failed(super::calls::error_text(&value, status))) }
}

pub(super) async fn get(get: &Get, scope: &mut Scope) -> Result<(), Failure> {
    scope.incoming.note('d', &get.from);
    let key = get.key.evaluate_text(scope)?;
    let command = Command::Get { collection: get.from.clone(), key: key.clone() };
    let document = execute(scope, command).await?;
    if document.is_null() {
        missing(get.missing, &get.from, &key)?;
    }
    scope.bind(Some(&get.r#as), document);
    Ok(())
}

pub(super) async fn find(find: &Find, scope: &mut Scope) -> Result<(), Failure> {
    scope.incoming.note('d', &find.from);
    let fields = fields(&find.r#where, scope)?;
    let limit = find.limit.as_ref().map(|limit| limit.evaluate(scope)).transpose()?;
    let command = Command::Find { collection: find.from.clone(), fields, limit };
    let documents = execute(scope, command).await?;
    scope.bind(Some(&find.r#as), documents);
    Ok(())
}

pub(super) async fn put(put: &Put, scope: &mut Scope) -> Result<(), Failure> {
    scope.incoming.note('d', &put.into);
    let key = put.key.evaluate_text(scope)?;
    let value = put.value.evaluate(scope)?;
    execute(scope, Command::Put { collection: put.into.clone(), key, value }).await?;
    Ok(())
}

pub(super) async fn update(update: &Update, scope: &mut Scope) -> Result<(), Failure> {
    scope.incoming.note('d', &update.into);
    let key = update.key.evaluate_text(scope)?;
    let fields = fields(&update.set, scope)?;
    let create = update.missing.is_none();
    let command = Command::Update { collection: update.into.clone(), key: key.clone(), fields, create };
    let document = execute(scope, command).await?;
    if document.is_null() {
        missing(update.missing, &update.into, &key)?;
    }
    scope.bind(update.r#as.as_ref(), document);
    Ok(())
}

pub(super) async fn increment(increment: &Increment, scope: &mut Scope) -> Result<(), Failure> {
    scope.incoming.note('d', &increment.into);
    let key = increment.key.evaluate_text(scope)?;
    let by = match &increment.by {
        Some(by) => {
            let by = by.evaluate(scope)?;
            by.as_f64().ok_or_else(|| EvaluationError(format!("{by} is not a number")))?
        }
        None => 1.0,
    };
    let (collection, field) = (increment.into.clone(), increment.field.clone());
    let number = execute(scope, Command::Increment { collection, key, field, by }).await?;
    scope.bind(increment.r#as.as_ref(), number);
    Ok(())
}

pub(super) async fn delete(delete: &Delete, scope: &mut Scope) -> Result<(), Failure> {
    scope.incoming.note('d', &delete.from);
    let key = delete.key.evaluate_text(scope)?;
    let command = Command::Delete { collection: delete.from.clone(), key: key.clone() };
    if execute(scope, command).await? == Value::Bool(false) {
        missing(delete.missing, &delete.from, &key)?;
    }
    Ok(())
}

pub(super) async fn cache(step: &CacheAccess, scope: &mut Scope) -> Result<(), Failure> {
    let cell = std::sync::Arc::clone(&scope.cell);
    let key = |template: &Template| -> Result<String, Failure> {
        let key = template.evaluate_text(scope)?;
        scope.incoming.note('c', &key);
        Ok(key)
    };
    if let Some(template) = &step.get {
        let value = cell.cache.get(&key(template)?).await?;
        scope.bind(step.r#as.as_ref(), value);
    } else if let (Some(template), Some(value)) = (&step.put, &step.value) {
        let ttl = step.ttl.as_ref().map(|ttl| ttl.evaluate(scope)).transpose()?;
        cell.cache.put(&key(template)?, value.evaluate(scope)?, ttl).await?;
    } else if let Some(template) = &step.delete {
        cell.cache.delete(&key(template)?).await?;
    }
    Ok(())
}

fn fields(
    templates: &std::collections::BTreeMap<String, Template>,
    scope: &Scope,
) -> Result<Map<String, Value>, Failure> {
    let mut fields = Map::new();
    for (name, template) in templates {
        fields.insert(name.clone(), template.evaluate(scope)?);
    }
    Ok(fields)
}

fn missing(status: Option<u16>, collection: &str, key: &str) -> Result<(), Failure> {
    match status {
        Some(status) => Err(Failure::new("missing", status, format!("there is no `{key}` in {collection}"))),
        None => Ok(()),
    }
}
