//! Documents in Redis: one hash per collection, one JSON string per document.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{Command, StoreError, add, fits, merge, with_key};
use crate::resp::{Connection, Reply};

/// How often a change is tried again when another client changed the collection in between.
const MAXIMUM_CONFLICTS: usize = 64;

/// A store in a Redis server.
#[derive(Debug)]
pub(crate) struct RedisStore {
    connection: Connection,
    prefix: String,
}

impl RedisStore {
    /// Does not connect yet; the first command does.
    pub(crate) fn new(connection: Connection, prefix: String) -> Self {
        Self { connection, prefix }
    }

    /// Carries out a command.
    pub(super) async fn execute(&self, command: Command) -> Result<Value, StoreError> {
        match command {
            Command::Get { collection, key } => {
                let reply = self.command(&["HGET", &self.hash(&collection), &key]).await?;
                Ok(document(reply)?.unwrap_or_default())
            }
            Command::Find { collection, fields, limit } => {
                let reply = self.command(&["HGETALL", &self.hash(&collection)]).await?;
                let documents = all(reply)?;
                let found = documents.iter().filter(|(_, document)| fits(document, &fields));
                let found = found.map(|(key, document)| with_key(key, document));
                Ok(found.take(limit.unwrap_or(usize::MAX)).collect())
            }
            Command::Put { collection, key, value } => {
                self.command(&["HSET", &self.hash(&collection), &key, &value.to_string()]).await?;
                Ok(Value::Null)
            }
            Command::Create { collection, key, value } => {
                self.command(&["HSETNX", &self.hash(&collection), &key, &value.to_string()]).await?;
                Ok(Value::Null)
            }
            Command::Update { collection, key, fields, create } => {
                let change = |before: Option<Value>| match before {
                    None if !create => Ok(None),
                    before => {
                        let mut document = before.unwrap_or_else(|| Value::Object(Map::new()));
                        merge(&mut document, fields.clone())?;
                        Ok(Some((document.clone(), document)))
                    }
                };
                self.change(&collection, &key, change).await
            }
            Command::Increment { collection, key, field, by } => {
                let change = |before: Option<Value>| {
                    let mut document = before.unwrap_or_else(|| Value::Object(Map::new()));
                    let number = add(&mut document, &field, by)?;
                    Ok(Some((document, number)))
                };
                self.change(&collection, &key, change).await
            }
            Command::Delete { collection, key } => {
                let reply = self.command(&["HDEL", &self.hash(&collection), &key]).await?;
                Ok(Value::Bool(matches!(reply, Reply::Integer(1))))
            }
        }
    }

    /// Reads, changes and writes a document as one transaction; `change` yields the document and the answer.
    async fn change(
        &self,
        collection: &str,
        key: &str,
        change: impl Fn(Option<Value>) -> Result<Option<(Value, Value)>, StoreError>,
    ) -> Result<Value, StoreError> {
        let hash = self.hash(collection);
        for _ in 0..MAXIMUM_CONFLICTS {
            // One connection serves the whole cell, so it is kept for all of the transaction.
            let mut connection = self.connection.lock().await;
            connection.command(&["WATCH", &hash]).await.map_err(failed)?;
            let before = document(connection.command(&["HGET", &hash, key]).await.map_err(failed)?)?;
            let changed = change(before);
            let Ok(Some((after, answer))) = changed else {
                connection.command(&["UNWATCH"]).await.map_err(failed)?;
                return changed.map(|_| Value::Null);
            };
            connection.command(&["MULTI"]).await.map_err(failed)?;
            connection.command(&["HSET", &hash, key, &after.to_string()]).await.map_err(failed)?;
            if let Reply::Array(_) = connection.command(&["EXEC"]).await.map_err(failed)? {
                return Ok(answer);
            }
        }
        Err(StoreError(format!("collection `{collection}` is changed by others all the time")))
    }

    async fn command(&self, words: &[&str]) -> Result<Reply, StoreError> {
        self.connection.lock().await.command(words).await.map_err(failed)
    }

    fn hash(&self, collection: &str) -> String {
        format!("{}:{collection}", self.prefix)
    }
}

fn failed(error: crate::resp::RespError) -> StoreError {
    StoreError(format!("redis: {error}"))
}

fn document(reply: Reply) -> Result<Option<Value>, StoreError> {
    match reply {
        Reply::Nothing => Ok(None),
        Reply::Bulk(bytes) => {
            let value = serde_json::from_slice(&bytes);
            value.map(Some).map_err(|error| StoreError(format!("redis: a document is not JSON: {error}")))
        }
        other => Err(StoreError(format!("redis: unexpected reply {other:?}"))),
    }
}

fn all(reply: Reply) -> Result<BTreeMap<String, Value>, StoreError> {
    let Reply::Array(mut replies) = reply else {
        return Err(StoreError("redis: expected a list".to_owned()));
    };
    let mut documents = BTreeMap::new();
    while let (Some(value), Some(key)) = (replies.pop(), replies.pop()) {
        if let (Reply::Bulk(key), Some(value)) = (key, document(value)?) {
            documents.insert(String::from_utf8_lossy(&key).into_owned(), value);
        }
    }
    Ok(documents)
}
