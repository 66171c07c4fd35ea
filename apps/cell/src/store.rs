//! The database of a cell: collections of JSON documents behind six commands.
//!
//! Commands are data, so that another cell can send them over HTTP and the file store can log their effects.

mod documents;
mod file;
mod redis;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::PoisonError;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::expression::equal;
use documents::Documents;
use file::FileLog;

pub(crate) use redis::RedisStore;

/// Documents by collection and key.
pub(crate) type Collections = BTreeMap<String, BTreeMap<String, Value>>;

/// Something to do with documents.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Command {
    /// Answers the document or null.
    Get { collection: String, key: String },
    /// Answers the documents whose fields are equal to these, each with its `_key`.
    Find { collection: String, fields: Map<String, Value>, limit: Option<usize> },
    /// Writes the document; answers null.
    Put { collection: String, key: String, value: Value },
    /// Writes the document unless there is one; answers null.
    Create { collection: String, key: String, value: Value },
    /// Changes fields; answers the new document, or null if there is none and none shall be created.
    Update { collection: String, key: String, fields: Map<String, Value>, create: bool },
    /// Adds to a field; answers the new number.
    Increment { collection: String, key: String, field: String, by: f64 },
    /// Removes the document; answers whether there was one.
    Delete { collection: String, key: String },
}

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct StoreError(pub(crate) String);

/// A place for documents; the store of another cell is reached through the HTTP client instead.
#[derive(Debug)]
pub(crate) enum Store {
    Memory(Mutex<Documents>),
    File(Mutex<(Documents, FileLog)>),
    Redis(RedisStore),
}

impl Command {
    /// The name, as in the path of a remote access.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Get { .. } => "get",
            Self::Find { .. } => "find",
            Self::Put { .. } => "put",
            Self::Create { .. } => "create",
            Self::Update { .. } => "update",
            Self::Increment { .. } => "increment",
            Self::Delete { .. } => "delete",
        }
    }
}

impl Store {
    /// An empty store in memory.
    pub(crate) fn memory() -> Self {
        Self::Memory(Mutex::default())
    }

    /// A store in a file, with what the file holds.
    pub(crate) fn file(path: &str) -> Result<Self, StoreError> {
        let (collections, log) = FileLog::open(path.as_ref())?;
        Ok(Self::File(Mutex::new((Documents(collections), log))))
    }

    /// A number that differs from start to start where documents survive, so that seeded keys do not collide.
    pub(crate) fn salt(&self) -> u64 {
        match self {
            Self::File(file) => file.lock().unwrap_or_else(PoisonError::into_inner).1.n_lines(),
            Self::Memory(_) | Self::Redis(_) => 0,
        }
    }

    /// Carries out a command.
    pub(crate) async fn execute(&self, command: Command) -> Result<Value, StoreError> {
        match self {
            Self::Memory(documents) => {
                let mut documents = documents.lock().unwrap_or_else(PoisonError::into_inner);
                documents.apply(command).map(|(value, _)| value)
            }
            Self::File(file) => {
                let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
                let (documents, log) = &mut *file;
                let (value, change) = documents.apply(command)?;
                if let Some((collection, key)) = change {
                    let document = documents.0.get(&collection).and_then(|documents| documents.get(&key));
                    log.append(&collection, &key, document)?;
                    log.compact_if_long(&documents.0)?;
                }
                Ok(value)
            }
            Self::Redis(redis) => redis.execute(command).await,
        }
    }
}

/// Whether all given fields of a document have the given values.
fn fits(document: &Value, fields: &Map<String, Value>) -> bool {
    fields.iter().all(|(field, wanted)| equal(document.get(field).unwrap_or(&Value::Null), wanted))
}

/// The document with its key in it, as `find` answers it.
fn with_key(key: &str, document: &Value) -> Value {
    match document {
        Value::Object(map) => {
            let mut map = map.clone();
            map.insert("_key".to_owned(), Value::from(key));
            Value::Object(map)
        }
        other => serde_json::json!({ "_key": key, "value": other }),
    }
}

/// Changes fields of a document.
fn merge(document: &mut Value, fields: Map<String, Value>) -> Result<(), StoreError> {
    match document {
        Value::Object(map) => {
            map.extend(fields);
            Ok(())
        }
        _ => Err(StoreError("the document is not a map".to_owned())),
    }
}

/// Adds to a field of a document and answers the new number.
fn add(document: &mut Value, field: &str, by: f64) -> Result<Value, StoreError> {
    let Value::Object(map) = document else {
        return Err(StoreError("the document is not a map".to_owned()));
    };
    let before = match map.get(field) {
        None | Some(Value::Null) => 0.0,
        Some(value) => {
            value.as_f64().ok_or_else(|| StoreError(format!("field `{field}` is not a number")))?
        }
    };
    let after = crate::expression::number_value(before + by);
    map.insert(field.to_owned(), after.clone());
    Ok(after)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Command, Store};

    async fn execute(store: &Store, command: Value) -> Value {
        store.execute(serde_json::from_value(command).unwrap()).await.unwrap()
    }

    /// What every store does.
    async fn contract(store: &Store) {
        let put = |key: &str, value: Value| json!({"command": "put", "collection": "orders", "key": key, "value": value});
        let get = json!({"command": "get", "collection": "orders", "key": "a"});
        assert_eq!(execute(store, get.clone()).await, json!(null));
        execute(store, put("a", json!({"status": "paid", "n": 1}))).await;
        execute(store, put("b", json!({"status": "open", "n": 2}))).await;
        execute(store, put("c", json!({"status": "paid", "n": 3}))).await;
        assert_eq!(execute(store, get.clone()).await, json!({"status": "paid", "n": 1}));
        let create = json!({"command": "create", "collection": "orders", "key": "a", "value": {}});
        execute(store, create).await;
        assert_eq!(execute(store, get).await["n"], 1);
        let find = |limit: Value| {
            json!({
                "command": "find", "collection": "orders", "fields": {"status": "paid"}, "limit": limit
            })
        };
        let found = execute(store, find(json!(null))).await;
        assert_eq!(
            found,
            json!([{"_key": "a", "status": "paid", "n": 1}, {"_key": "c", "status": "paid", "n": 3}])
        );
        assert_eq!(execute(store, find(json!(1))).await.as_array().unwrap().len(), 1);
        let update = |key: &str, create: bool| {
            json!({
                "command": "update", "collection": "orders", "key": key, "fields": {"status": "gone"}, "create": create
            })
        };
        assert_eq!(execute(store, update("a", false)).await, json!({"status": "gone", "n": 1}));
        assert_eq!(execute(store, update("x", false)).await, json!(null));
        assert_eq!(execute(store, update("x", true)).await, json!({"status": "gone"}));
        let increment = json!({
            "command": "increment", "collection": "orders", "key": "a", "field": "n", "by": 2.0
        });
        assert_eq!(execute(store, increment).await, json!(3));
        let delete = json!({"command": "delete", "collection": "orders", "key": "a"});
        assert_eq!(execute(store, delete.clone()).await, json!(true));
        assert_eq!(execute(store, delete).await, json!(false));
    }

    #[tokio::test]
    async fn memory_keeps_the_contract() {
        contract(&Store::memory()).await;
    }

    /// A real server on a port of its own, gone with the test.
    struct Redis(std::process::Child, u16);

    impl Redis {
        async fn start() -> Self {
            let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let child = std::process::Command::new("redis-server")
                .args([
                    "--port",
                    &port.to_string(),
                    "--bind",
                    "127.0.0.1",
                    "--save",
                    "",
                    "--appendonly",
                    "no",
                ])
                .stdout(std::process::Stdio::null())
                .spawn()
                .expect("redis-server must be installed: `./test.sh packages`");
            let server = Self(child, port);
            while tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_err() {
                tokio::task::yield_now().await;
            }
            server
        }
    }

    impl Drop for Redis {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[tokio::test]
    async fn redis_keeps_the_contract() {
        let server = Redis::start().await;
        let connection = crate::resp::Connection::new(&format!("redis://127.0.0.1:{}", server.1)).unwrap();
        contract(&Store::Redis(super::RedisStore::new(connection, "contract".to_owned()))).await;
    }

    #[tokio::test]
    async fn a_file_keeps_the_contract_and_survives() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data/orders.json");
        let path = path.to_str().unwrap();
        contract(&Store::file(path).unwrap()).await;
        let reopened = Store::file(path).unwrap();
        let get = |key: &str| json!({"command": "get", "collection": "orders", "key": key});
        assert_eq!(execute(&reopened, get("b")).await["n"], 2);
        assert_eq!(execute(&reopened, get("a")).await, json!(null));
    }

    #[tokio::test]
    async fn senseless_commands_fail() {
        let store = Store::memory();
        execute(&store, json!({"command": "put", "collection": "o", "key": "a", "value": {"n": "x"}})).await;
        execute(&store, json!({"command": "put", "collection": "o", "key": "b", "value": 7})).await;
        for key in ["a", "b"] {
            let command =
                Command::Increment { collection: "o".into(), key: key.into(), field: "n".into(), by: 1.0 };
            assert!(store.execute(command).await.is_err());
        }
    }
}
