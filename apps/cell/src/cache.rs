//! Cached values: per instance, or in Redis for all instances.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use serde_json::Value;
use tokio::time::{Duration, Instant};

use crate::resp::{Connection, Reply};
use crate::store::StoreError;

/// A cache in memory or in Redis.
#[derive(Debug)]
pub(crate) enum Cache {
    Memory(Mutex<Entries>),
    Redis { connection: Connection, prefix: String },
}

/// The entries of one instance; the oldest is evicted.
#[derive(Debug)]
pub(crate) struct Entries {
    capacity: usize,
    n_written: u64,
    by_key: BTreeMap<String, Entry>,
}

#[derive(Debug)]
struct Entry {
    value: Value,
    written: u64,
    expires: Option<Instant>,
}

impl Cache {
    /// A cache of the instance.
    pub(crate) fn memory(capacity: usize) -> Self {
        Self::Memory(Mutex::new(Entries { capacity, n_written: 0, by_key: BTreeMap::new() }))
    }

    /// The value, or null.
    pub(crate) async fn get(&self, key: &str) -> Result<Value, StoreError> {
        match self {
            Self::Memory(entries) => Ok(entries.lock().unwrap_or_else(PoisonError::into_inner).get(key)),
            Self::Redis { connection, prefix } => {
                match command(connection, &["GET", &format!("{prefix}:cache:{key}")]).await? {
                    Reply::Bulk(bytes) => serde_json::from_slice(&bytes)
                        .map_err(|error| StoreError(format!("redis: a cached value is not JSON: {error}"))),
                    _ => Ok(Value::Null),
                }
            }
        }
    }

    /// Stores a value for a time, or until it is removed.
    pub(crate) async fn put(&self, key: &str, value: Value, ttl: Option<Duration>) -> Result<(), StoreError> {
        match self {
            Self::Memory(entries) => {
                entries.lock().unwrap_or_else(PoisonError::into_inner).put(key, value, ttl);
            }
            Self::Redis { connection, prefix } => {
                let (key, value) = (format!("{prefix}:cache:{key}"), value.to_string());
                // Redis rejects a TTL of zero.
                let life = ttl.map(|ttl| ttl.as_millis().max(1).to_string());
                match &life {
                    Some(life) => command(connection, &["SET", &key, &value, "PX", life]).await?,
                    None => command(connection, &["SET", &key, &value]).await?,
                };
            }
        }
        Ok(())
    }

    /// Removes a value.
    pub(crate) async fn delete(&self, key: &str) -> Result<(), StoreError> {
        match self {
            Self::Memory(entries) => {
                entries.lock().unwrap_or_else(PoisonError::into_inner).by_key.remove(key);
            }
            Self::Redis { connection, prefix } => {
                command(connection, &["DEL", &format!("{prefix}:cache:{key}")]).await?;
            }
        }
        Ok(())
    }
}

impl Entries {
    fn get(&mut self, key: &str) -> Value {
        let Some(entry) = self.by_key.get(key) else {
            return Value::Null;
        };
        if entry.expires.is_some_and(|expires| expires <= Instant::now()) {
            self.by_key.remove(key);
            return Value::Null;
        }
        entry.value.clone()
    }

    fn put(&mut self, key: &str, value: Value, ttl: Option<Duration>) {
        self.n_written += 1;
        let expires = ttl.and_then(|ttl| Instant::now().checked_add(ttl));
        self.by_key.insert(key.to_owned(), Entry { value, written: self.n_written, expires });
        if self.by_key.len() > self.capacity {
            let oldest = self.by_key.iter().min_by_key(|(_, entry)| entry.written);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                self.by_key.remove(&oldest);
            }
        }
    }
}

async fn command(connection: &Connection, words: &[&str]) -> Result<Reply, StoreError> {
    let reply = connection.lock().await.command(words).await;
    reply.map_err(|error| StoreError(format!("redis: {error}")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::time::{Duration, advance};

    use super::Cache;

    #[tokio::test(start_paused = true)]
    async fn values_expire_and_make_room() {
        let cache = Cache::memory(2);
        cache.put("a", json!(1), Some(Duration::from_millis(300))).await.unwrap();
        cache.put("b", json!(2), None).await.unwrap();
        assert_eq!(cache.get("a").await.unwrap(), json!(1));
        advance(Duration::from_millis(300)).await;
        assert_eq!(cache.get("a").await.unwrap(), json!(null));
        cache.put("c", json!(3), None).await.unwrap();
        cache.put("d", json!(4), None).await.unwrap();
        assert_eq!(cache.get("b").await.unwrap(), json!(null));
        cache.delete("d").await.unwrap();
        assert_eq!(cache.get("d").await.unwrap(), json!(null));
        assert_eq!(cache.get("c").await.unwrap(), json!(3));
    }
}
