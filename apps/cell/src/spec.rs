//! The spec format: one file that says how every service of an application behaves.
//!
//! `SPEC.md` beside this crate is the reference for people who write specs. The types here are what the file
//! becomes once it is read: templates and expressions are already parsed, so a cell never meets a syntax error
//! while it serves. What needs the whole service to judge (does this pool exist?) is left to `check`.

mod access;
mod check;
mod cut;
mod excerpt;
mod named;
mod short;
mod step;

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::{DeserializeSeed, IgnoredAny};
use serde_json::Value;

use crate::template::{Size, Time};

use excerpt::Excerpt;

pub use access::{CacheAccess, Delete, Find, Get, Increment, Put, Update};
pub use check::check;
pub use named::{Label, Named, Steps};
pub use step::{
    Branches, Call, Count, Crash, Disk, Each, Fail, Hold, InPool, Join, Lock, Memory, OnError, Repeat,
    Respond, Set, Sleep, Step, Try, When,
};

/// Largest spec text that is read; the biggest sample has about 200 KiB.
pub const MAXIMUM_SPEC_BYTES: usize = 4 << 20;

/// Deepest nesting of YAML nodes in a spec.
const MAXIMUM_DEPTH: usize = 128;

/// Why a spec cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SpecError {
    /// The text is larger than [`MAXIMUM_SPEC_BYTES`].
    #[error("the spec has {0} bytes, more than {MAXIMUM_SPEC_BYTES}")]
    TooLarge(usize),
    /// The text is not YAML of this shape; the message names line, service, operation and step.
    #[error("{0}")]
    Syntax(String),
    /// The file speaks of something that does not exist, or says it twice.
    #[error("{place}: {message}")]
    Meaning {
        /// Service, operation and step.
        place: String,
        /// What is wrong there.
        message: String,
    },
}

/// All services of an application.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// Format version; 1 is the only one.
    pub version: u32,
    /// Seed of everything random; `FAULTSCOPE_SEED` overrides it.
    #[serde(default)]
    pub seed: u64,
    /// Ignored: a place for YAML anchors.
    #[serde(default, rename = "common")]
    _common: IgnoredAny,
    /// The services by name.
    pub services: Named<Service>,
}

/// One service.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Service {
    /// For readers of the file.
    #[serde(default)]
    pub description: String,
    /// The port it listens on; `--port` and `PORT` override it.
    pub port: u16,
    /// What happens before it answers requests.
    #[serde(default)]
    pub startup: Startup,
    /// Configuration with defaults; `CACHE_TTL` in the environment overrides `cache_ttl`.
    #[serde(default)]
    pub settings: BTreeMap<String, Value>,
    /// Bounded thread pools by name.
    #[serde(default)]
    pub pools: BTreeMap<String, Pool>,
    /// Where documents live.
    #[serde(default)]
    pub store: Store,
    /// Where cached values live.
    #[serde(default)]
    pub cache: Cache,
    /// Initial documents: collection, key, document.
    #[serde(default)]
    pub data: BTreeMap<String, BTreeMap<String, Value>>,
    /// Shared variables of an instance with their values at start.
    #[serde(default)]
    pub variables: BTreeMap<String, Value>,
    /// Whether trace headers are copied from a request to the calls it causes.
    #[serde(default = "yes")]
    pub propagate: bool,
    /// How many threads burn processor time, touch memory and write files.
    #[serde(default = "four")]
    pub threads: usize,
    /// Largest request or response body.
    #[serde(default = "one_mebibyte")]
    pub body_limit: Size,
    /// What it does, by `METHOD /path/{parameter}`.
    #[serde(default)]
    pub operations: Named<Operation>,
}

/// What happens before a service answers requests; `/health` is refused until then.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Startup {
    /// How long starting takes.
    pub delay: Option<Time>,
    /// Memory that is allocated, touched and kept.
    pub memory: Option<Size>,
    /// Steps to run once, for example to fill the cache.
    pub steps: Steps,
}

/// A bounded thread pool.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pool {
    /// How many may work at once.
    pub threads: Size,
    /// How many may wait; one more is rejected.
    #[serde(default = "unbounded")]
    pub queue: Size,
    /// How long one may wait; without it, for ever.
    #[serde(default)]
    pub wait: Option<Time>,
}

/// Where documents live.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Store {
    /// In the instance; lost when it restarts.
    #[default]
    Memory,
    /// In a file of the instance; survives a restart.
    File {
        /// The file, relative to the working directory.
        path: String,
    },
    /// In a Redis server, shared by all instances.
    Redis {
        /// `redis://host:port`; `STORE_REDIS_URL` in the environment overrides it.
        url: String,
        /// Put before every key; the service's name if it is left out.
        #[serde(default)]
        prefix: Option<String>,
    },
    /// In the store of another cell, shared by all instances; each access is a call to it.
    Service {
        /// The name of that service.
        service: String,
        /// How long an access may take.
        #[serde(default)]
        timeout: Option<Time>,
    },
}

/// Where cached values live.
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Cache {
    /// In the instance; lost when it restarts, and different in every instance.
    Memory {
        /// How many values; the oldest makes room.
        #[serde(default = "thousand")]
        capacity: usize,
    },
    /// In a Redis server, shared by all instances.
    Redis {
        /// `redis://host:port`; `CACHE_REDIS_URL` in the environment overrides it.
        url: String,
        /// Put before every key; the service's name if it is left out.
        #[serde(default)]
        prefix: Option<String>,
    },
}

/// What a service does for one kind of request.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Operation {
    /// For readers of the file.
    #[serde(default)]
    pub description: String,
    /// What happens, in order; without a `respond` the answer is 200 and `{}`.
    #[serde(default)]
    pub steps: Steps,
}

impl Spec {
    /// Reads a spec and checks that it is sound.
    pub fn parse(text: &str) -> Result<Self, SpecError> {
        Self::read(text, |deserializer| Self::deserialize(deserializer))
    }

    /// Reads and checks one service of a spec, and only the ports of the others.
    pub fn parse_for(text: &str, service: &str) -> Result<Self, SpecError> {
        let read = |text: &str| Self::read(text, |deserializer| Excerpt(service).deserialize(deserializer));
        // A cut spec may lack an anchor that another service defines: then the whole text decides.
        cut::cut(text, service).and_then(|short| read(&short).ok()).map_or_else(|| read(text), Ok)
    }

    fn read(
        text: &str,
        deserialize: impl for<'de> FnOnce(
            serde_saphyr::Deserializer<'de, '_>,
        ) -> Result<Self, serde_saphyr::Error>,
    ) -> Result<Self, SpecError> {
        if text.len() > MAXIMUM_SPEC_BYTES {
            return Err(SpecError::TooLarge(text.len()));
        }
        let options = serde_saphyr::options! {
            with_snippet: false,
            strict_booleans: true,
            budget: serde_saphyr::budget! {
                max_depth: MAXIMUM_DEPTH,
                // Samples share step lists by alias; the replay limits still stop a bomb.
                enforce_alias_anchor_ratio: false,
            },
        };
        let spec = serde_saphyr::with_deserializer_from_str_with_options(text, options, deserialize)
            .map_err(|error| SpecError::Syntax(innermost(&error.to_string()).to_owned()))?;
        check(&spec)?;
        Ok(spec)
    }

    /// Reads a spec from a JSON value, as the muBench reader builds it.
    pub(crate) fn from_value(value: Value) -> Result<Self, SpecError> {
        let spec: Self =
            serde_json::from_value(value).map_err(|error| SpecError::Syntax(error.to_string()))?;
        check(&spec)?;
        Ok(spec)
    }
}

impl Service {
    /// A service of which nothing but the port is known.
    fn with_port(port: u16) -> Self {
        Self {
            description: String::new(),
            port,
            startup: Startup::default(),
            settings: BTreeMap::new(),
            pools: BTreeMap::new(),
            store: Store::default(),
            cache: Cache::default(),
            data: BTreeMap::new(),
            variables: BTreeMap::new(),
            propagate: yes(),
            threads: four(),
            body_limit: one_mebibyte(),
            operations: Named::default(),
        }
    }
}

impl Default for Cache {
    fn default() -> Self {
        Self::Memory { capacity: thousand() }
    }
}

impl Label for Service {
    const LABEL: &'static str = "service";
}

impl Label for Operation {
    const LABEL: &'static str = "operation";
}

/// The message with its first location only: every level that names its place adds its own line.
fn innermost(message: &str) -> &str {
    let mut text = message;
    while let Some((head, _)) = text.rsplit_once(" at line ") {
        let location =
            head.rsplit_once(" at line ").and_then(|(_, location)| location.split_once(", column "));
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !location.is_some_and(|(line, column)| is_number(line) && is_number(column)) {
            break;
        }
        text = head;
    }
    text
}

fn yes() -> bool {
    true
}

fn four() -> usize {
    4
}

fn thousand() -> usize {
    1000
}

fn one_mebibyte() -> Size {
    Size::fixed(1 << 20)
}

fn unbounded() -> Size {
    Size::fixed(u32::MAX.into())
}

#[cfg(test)]
mod tests;
