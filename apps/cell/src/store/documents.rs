//! Documents in memory, and what each command does to them.

use serde_json::{Map, Value};

use super::{Collections, Command, StoreError, add, fits, merge, with_key};

/// Documents of all collections.
#[derive(Debug, Default)]
pub(crate) struct Documents(pub(super) Collections);

/// The collection and key of a document that was changed.
pub(super) type Change = Option<(String, String)>;

impl Documents {
    /// Carries out a command; says what it changed.
    pub(super) fn apply(&mut self, command: Command) -> Result<(Value, Change), StoreError> {
        Ok(match command {
            Command::Get { collection, key } => {
                let found = self.0.get(&collection).and_then(|documents| documents.get(&key));
                (found.cloned().unwrap_or_default(), None)
            }
            Command::Find { collection, fields, limit } => {
                let documents = self.0.get(&collection).into_iter().flatten();
                let found = documents
                    .filter(|(_, document)| fits(document, &fields))
                    .map(|(key, document)| with_key(key, document));
                (found.take(limit.unwrap_or(usize::MAX)).collect(), None)
            }
            Command::Put { collection, key, value } => {
                self.0.entry(collection.clone()).or_default().insert(key.clone(), value);
                (Value::Null, Some((collection, key)))
            }
            Command::Create { collection, key, value } => {
                let documents = self.0.entry(collection.clone()).or_default();
                if documents.contains_key(&key) {
                    return Ok((Value::Null, None));
                }
                documents.insert(key.clone(), value);
                (Value::Null, Some((collection, key)))
            }
            Command::Update { collection, key, fields, create } => {
                let documents = self.0.entry(collection.clone()).or_default();
                if !create && !documents.contains_key(&key) {
                    return Ok((Value::Null, None));
                }
                let document = documents.entry(key.clone()).or_insert_with(|| Value::Object(Map::new()));
                merge(document, fields)?;
                (document.clone(), Some((collection, key)))
            }
            Command::Increment { collection, key, field, by } => {
                let documents = self.0.entry(collection.clone()).or_default();
                let document = documents.entry(key.clone()).or_insert_with(|| Value::Object(Map::new()));
                (add(document, &field, by)?, Some((collection, key)))
            }
            Command::Delete { collection, key } => {
                let removed = self.0.get_mut(&collection).and_then(|documents| documents.remove(&key));
                (Value::Bool(removed.is_some()), removed.map(|_| (collection, key)))
            }
        })
    }
}
