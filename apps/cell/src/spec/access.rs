//! The steps that use documents and cached values.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::template::{Size, Template, Time};

/// Reads a document.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Get {
    /// The collection.
    pub from: String,
    /// The document's key.
    pub key: Template,
    /// The name of the result.
    pub r#as: String,
    /// The status to fail with if there is none; otherwise the result is null.
    #[serde(default)]
    pub missing: Option<u16>,
}

/// Reads the documents whose fields have given values.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Find {
    /// The collection.
    pub from: String,
    /// Fields and the values they must have; all documents if empty.
    #[serde(default)]
    pub r#where: BTreeMap<String, Template>,
    /// At most so many, in the order of their keys.
    #[serde(default)]
    pub limit: Option<Size>,
    /// The name of the list of documents, each with its key in `_key`.
    pub r#as: String,
}

/// Writes a document.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Put {
    /// The collection.
    pub into: String,
    /// The document's key.
    pub key: Template,
    /// The document.
    pub value: Template,
}

/// Changes fields of a document.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Update {
    /// The collection.
    pub into: String,
    /// The document's key.
    pub key: Template,
    /// The fields and their new values; the others stay.
    pub set: BTreeMap<String, Template>,
    /// The status to fail with if there is none; otherwise it is created.
    #[serde(default)]
    pub missing: Option<u16>,
    /// The name of the changed document.
    #[serde(default)]
    pub r#as: Option<String>,
}

/// Adds to a number in a document, atomically.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Increment {
    /// The collection.
    pub into: String,
    /// The document's key.
    pub key: Template,
    /// The field; a missing one counts as 0.
    pub field: String,
    /// What to add; 1 if it is left out.
    #[serde(default)]
    pub by: Option<Template>,
    /// The name of the new number.
    #[serde(default)]
    pub r#as: Option<String>,
}

/// Removes a document.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Delete {
    /// The collection.
    pub from: String,
    /// The document's key.
    pub key: Template,
    /// The status to fail with if there is none.
    #[serde(default)]
    pub missing: Option<u16>,
}

/// Reads, writes or removes a cached value; exactly one of `get`, `put`, `delete`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheAccess {
    /// The key to read.
    #[serde(default)]
    pub get: Option<Template>,
    /// The key to write.
    #[serde(default)]
    pub put: Option<Template>,
    /// The key to remove.
    #[serde(default)]
    pub delete: Option<Template>,
    /// With `get`: the name of the result, null if there is none.
    #[serde(default)]
    pub r#as: Option<String>,
    /// With `put`: the value.
    #[serde(default)]
    pub value: Option<Template>,
    /// With `put`: how long it lives; without it, for ever.
    #[serde(default)]
    pub ttl: Option<Time>,
}
