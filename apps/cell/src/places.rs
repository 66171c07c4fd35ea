//! Where a cell stores its documents and cached values.

use std::collections::BTreeMap;

use crate::cache::Cache;
use crate::resp::Connection;
use crate::store::{RedisStore, Store, StoreError};
use crate::template::Time;
use crate::{CellError, spec};

/// Where the documents are.
#[derive(Debug)]
pub(crate) enum DocumentPlace {
    /// In this cell, or a Redis server it talks to.
    Here(Store),
    /// In the store of another cell.
    There { service: String, timeout: Option<Time> },
}

/// Opens the store of a service.
pub(crate) fn document_place(
    store: spec::Store,
    name: &str,
    environment: &BTreeMap<String, String>,
) -> Result<DocumentPlace, CellError> {
    Ok(DocumentPlace::Here(match store {
        spec::Store::Memory => Store::memory(),
        spec::Store::File { path } => {
            let failed =
                |error: StoreError| CellError::Startup { service: name.to_owned(), message: error.0 };
            Store::file(&path).map_err(failed)?
        }
        spec::Store::Redis { url, prefix } => {
            let connection = redis("STORE_REDIS_URL", url, environment)?;
            Store::Redis(RedisStore::new(connection, prefix.unwrap_or_else(|| name.to_owned())))
        }
        spec::Store::Service { service, timeout } => return Ok(DocumentPlace::There { service, timeout }),
    }))
}

/// Opens the cache of a service.
pub(crate) fn cache_place(
    cache: spec::Cache,
    name: &str,
    environment: &BTreeMap<String, String>,
) -> Result<Cache, CellError> {
    Ok(match cache {
        spec::Cache::Memory { capacity } => Cache::memory(capacity),
        spec::Cache::Redis { url, prefix } => Cache::Redis {
            connection: redis("CACHE_REDIS_URL", url, environment)?,
            prefix: prefix.unwrap_or_else(|| name.to_owned()),
        },
    })
}

fn redis(
    variable: &str,
    url: String,
    environment: &BTreeMap<String, String>,
) -> Result<Connection, CellError> {
    let url = environment.get(variable).cloned().unwrap_or(url);
    Connection::new(&url).map_err(|message| CellError::Environment { variable: variable.to_owned(), message })
}
