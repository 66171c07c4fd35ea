//! What names mean while one request is handled.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use http::{HeaderMap, Method};
use serde_json::Value;

use crate::cell::Cell;
use crate::expression::{Found, Names, number_value};
use crate::random::Random;

/// Most accesses that are reported of one request.
const MAXIMUM_ACCESSES: usize = 256;

/// Headers that carry a trace from a request to the calls it causes.
const TRACE_HEADERS: [&str; 10] = [
    "traceparent",
    "tracestate",
    "b3",
    "x-b3-traceid",
    "x-b3-spanid",
    "x-b3-parentspanid",
    "x-b3-sampled",
    "x-b3-flags",
    "x-request-id",
    "baggage",
];

/// A request, as steps see it; shared by concurrent branches.
#[derive(Debug, Default)]
pub(crate) struct Incoming {
    pub(crate) operation: String,
    pub(crate) method: Method,
    pub(crate) path: BTreeMap<String, String>,
    pub(crate) query: BTreeMap<String, String>,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
    /// Whether the answer says what was accessed.
    pub(crate) report: bool,
    pub(crate) accesses: Mutex<Vec<String>>,
    pub(crate) held: Mutex<Vec<Vec<u8>>>,
}

/// Names and randomness of one line of execution.
#[derive(Debug)]
pub(crate) struct Scope {
    pub(crate) cell: Arc<Cell>,
    pub(crate) incoming: Arc<Incoming>,
    pub(crate) locals: BTreeMap<String, Value>,
    pub(crate) random: Random,
}

impl Incoming {
    /// Notes an access once, in order of first use.
    pub(crate) fn note(&self, kind: char, name: &str) {
        if !self.report {
            return;
        }
        let entry = format!("{kind}:{name}");
        let mut accesses = self.accesses.lock().unwrap_or_else(PoisonError::into_inner);
        if accesses.len() < MAXIMUM_ACCESSES && !accesses.contains(&entry) {
            accesses.push(entry);
        }
    }

    /// The accesses so far, as in the header.
    pub(crate) fn accesses(&self) -> String {
        self.accesses.lock().unwrap_or_else(PoisonError::into_inner).join(",")
    }

    /// Keeps memory until the request and all its branches are done.
    pub(crate) fn hold(&self, memory: Vec<u8>) {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).push(memory);
    }

    /// The headers that every call of this request carries on.
    pub(crate) fn trace_headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for name in TRACE_HEADERS {
            if let Some(value) = self.headers.get(name) {
                headers.insert(name, value.clone());
            }
        }
        headers
    }
}

impl Scope {
    /// The scope at the start of an operation.
    pub(crate) fn new(cell: Arc<Cell>, incoming: Incoming, seed: u64) -> Self {
        let random = Random::new(seed);
        Self { cell, incoming: Arc::new(incoming), locals: BTreeMap::new(), random }
    }

    /// The scope of a concurrent branch: it sees the names so far, and binds its own.
    pub(crate) fn branch(&self, number: usize) -> Self {
        Self {
            cell: Arc::clone(&self.cell),
            incoming: Arc::clone(&self.incoming),
            locals: self.locals.clone(),
            random: self.random.fork(number as u64),
        }
    }

    /// Binds a name if one is wanted.
    pub(crate) fn bind(&mut self, name: Option<&String>, value: Value) {
        if let Some(name) = name {
            self.locals.insert(name.clone(), value);
        }
    }
}

impl Names for Scope {
    fn find(&self, root: &str, field: Option<&str>) -> Found<'_> {
        let text =
            |text: Option<&String>| Cow::Owned(text.map_or(Value::Null, |text| Value::from(text.as_str())));
        if let Some(value) = self.locals.get(root) {
            return Found::Root(Cow::Borrowed(value));
        }
        match (root, field) {
            ("body", _) => Found::Root(Cow::Borrowed(&self.incoming.body)),
            ("path", Some(field)) => Found::Field(text(self.incoming.path.get(field))),
            ("query", Some(field)) => Found::Field(text(self.incoming.query.get(field))),
            ("header", Some(field)) => {
                let value = self.incoming.headers.get(field.replace('_', "-").to_lowercase());
                let value = value.and_then(|value| value.to_str().ok()).map_or(Value::Null, Value::from);
                Found::Field(Cow::Owned(value))
            }
            ("setting", Some(field)) => Found::Field(match self.cell.settings.get(field) {
                Some(value) => Cow::Borrowed(value),
                None => Cow::Owned(Value::Null),
            }),
            ("variable", Some(field)) => {
                self.incoming.note('v', field);
                Found::Field(Cow::Owned(self.cell.variable(field)))
            }
            ("counter", Some(field)) => Found::Field(Cow::Owned(Value::from(self.cell.counter(field)))),
            _ => Found::Root(Cow::Owned(self.whole(root))),
        }
    }

    fn random(&self) -> u64 {
        self.random.next()
    }
}

impl Scope {
    /// A root that is a value of its own.
    fn whole(&self, root: &str) -> Value {
        let texts = |map: &BTreeMap<String, String>| {
            map.iter().map(|(name, value)| (name.clone(), Value::from(value.as_str()))).collect()
        };
        match root {
            "path" => texts(&self.incoming.path),
            "query" => texts(&self.incoming.query),
            "method" => Value::from(self.incoming.method.as_str()),
            "setting" => {
                self.cell.settings.iter().map(|(name, value)| (name.clone(), value.clone())).collect()
            }
            "instance" => Value::from(self.cell.instance.as_str()),
            "service" => Value::from(self.cell.name.as_str()),
            "random" => number_value(self.random.fraction()),
            "now" => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                Value::from(u64::try_from(now.as_millis()).unwrap_or_default())
            }
            _ => Value::Null,
        }
    }
}
