//! One instance of a service: its part of the spec, and everything that lives as long as the process.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use http::HeaderValue;
use serde_json::{Value, json};
use tokio::sync::{OnceCell, Semaphore};

use crate::cache::Cache;
use crate::client::{Callee, Client};
use crate::places::{DocumentPlace, cache_place, document_place};
use crate::pool::{Locks, Pool};
use crate::random::seed_of;
use crate::route::Route;
use crate::scope::{Incoming, Scope};
use crate::settings::{self, Settings};
use crate::spec::{self, Service, Spec, Steps};
use crate::store::Command;
use crate::{CellError, interpret, work};

/// The most threads of one cell.
const MAXIMUM_THREADS: usize = 256;

/// Ends the process; tests replace it.
pub type Exit = Arc<dyn Fn(u8) + Send + Sync>;

/// One instance of a service.
pub struct Cell {
    pub(crate) name: String,
    pub(crate) instance: String,
    pub(crate) instance_header: HeaderValue,
    pub(crate) settings: Settings,
    pub(crate) body_limit: usize,
    pub(crate) propagate: bool,
    pub(crate) pools: BTreeMap<String, Pool>,
    pub(crate) locks: Locks,
    pub(crate) workers: Semaphore,
    pub(crate) cache: Cache,
    pub(crate) documents: DocumentPlace,
    pub(crate) client: Client,
    pub(crate) exit: Exit,
    operations: Vec<(Route, String, Steps, AtomicU64)>,
    variables: Mutex<BTreeMap<String, Value>>,
    counters: Mutex<BTreeMap<String, i64>>,
    kept_memory: Mutex<Vec<Vec<u8>>>,
    port: u16,
    seed: u64,
    startup: spec::Startup,
    data: Mutex<crate::store::Collections>,
    started: OnceCell<()>,
    running: tokio::sync::watch::Sender<usize>,
}

/// Counts a running operation or branch until it is dropped.
pub(crate) struct Running(Arc<Cell>);

/// A request matched to an operation.
pub(crate) struct Matched {
    pub(crate) operation: String,
    pub(crate) parameters: BTreeMap<String, String>,
    pub(crate) steps: Steps,
    pub(crate) seed: u64,
}

impl Cell {
    /// Builds the instance of one service; of the other services of the spec only the addresses are kept.
    pub fn new(spec: Spec, name: &str, environment: &BTreeMap<String, String>) -> Result<Self, CellError> {
        let mut callees = BTreeMap::new();
        for (callee, service) in spec.services.iter() {
            let variable = format!("{}_URL", settings::variable_name(callee));
            let url = environment.get(&variable).cloned();
            let url = url.unwrap_or_else(|| format!("http://{callee}:{}", service.port));
            let parsed =
                Callee::parse(&url).map_err(|message| CellError::Environment { variable, message })?;
            callees.insert(callee.clone(), parsed);
        }
        let seed = match environment.get("FAULTSCOPE_SEED") {
            Some(text) => text.parse().map_err(|_| CellError::Environment {
                variable: "FAULTSCOPE_SEED".to_owned(),
                message: format!("`{text}` is not a whole number"),
            })?,
            None => spec.seed,
        };
        let service = spec.services.take(name).ok_or_else(|| CellError::NoService(name.to_owned()))?;
        Self::build(service, name, environment, callees, seed)
    }

    fn build(
        service: Service,
        name: &str,
        environment: &BTreeMap<String, String>,
        callees: BTreeMap<String, Callee>,
        seed: u64,
    ) -> Result<Self, CellError> {
        let settings = settings::read(&service.settings, environment)?;
        let limits = |error| CellError::Limits { service: name.to_owned(), source: error };
        let mut pools = BTreeMap::new();
        for (pool, spec) in &service.pools {
            let names = settings::SettingNames(&settings);
            let threads = spec.threads.evaluate(&names).map_err(limits)?;
            let queue = spec.queue.evaluate(&names).map_err(limits)?;
            let wait = spec.wait.as_ref().map(|wait| wait.evaluate(&names)).transpose().map_err(limits)?;
            pools.insert(pool.clone(), Pool::new(threads, queue, wait));
        }
        let body_limit = service.body_limit.evaluate(&settings::SettingNames(&settings)).map_err(limits)?;
        let instance = settings::instance(environment);
        let documents = document_place(service.store, name, environment)?;
        let salt = match &documents {
            DocumentPlace::Here(store) => store.salt(),
            DocumentPlace::There { .. } => 0,
        };
        let mut operations = Vec::new();
        for (key, operation) in service.operations.iter() {
            let route =
                Route::parse(key).map_err(|message| CellError::Route { route: key.clone(), message })?;
            operations.push((route, key.clone(), operation.steps.clone(), AtomicU64::new(0)));
        }
        operations.sort_by_key(|(route, ..)| route.specificity());
        Ok(Self {
            instance_header: HeaderValue::from_str(&instance).unwrap_or(HeaderValue::from_static("unknown")),
            seed: seed_of(&[name, &instance], &[seed, salt]),
            client: Client::new(callees, body_limit),
            cache: cache_place(service.cache, name, environment)?,
            exit: Arc::new(|code| std::process::exit(code.into())),
            name: name.to_owned(),
            port: settings::port(environment)?.unwrap_or(service.port),
            variables: Mutex::new(service.variables),
            data: Mutex::new(service.data),
            propagate: service.propagate,
            startup: service.startup,
            locks: Locks::default(),
            workers: Semaphore::new(service.threads.clamp(1, MAXIMUM_THREADS)),
            counters: Mutex::default(),
            kept_memory: Mutex::default(),
            started: OnceCell::new(),
            running: tokio::sync::watch::Sender::new(0),
            instance,
            settings,
            body_limit,
            pools,
            documents,
            operations,
        })
    }

    /// Replaces what a `crash` step does.
    #[must_use]
    pub fn with_exit(mut self, exit: Exit) -> Self {
        self.exit = exit;
        self
    }

    /// The port to listen on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The number of threads for blocking work.
    pub fn threads(&self) -> usize {
        self.workers.available_permits()
    }

    /// Does what comes before the first request; once, however often it is called.
    pub async fn start(self: &Arc<Self>) -> Result<(), CellError> {
        self.started.get_or_try_init(|| self.start_once()).await.map(|_| ())
    }

    async fn start_once(self: &Arc<Self>) -> Result<(), CellError> {
        let failed = |message: String| CellError::Startup { service: self.name.clone(), message };
        let data = std::mem::take(&mut *self.data.lock().unwrap_or_else(PoisonError::into_inner));
        let incoming = Incoming { operation: "startup".to_owned(), ..Incoming::default() };
        let mut scope = Scope::new(Arc::clone(self), incoming, self.seed);
        for (collection, documents) in data {
            for (key, value) in documents {
                let command = Command::Create { collection: collection.clone(), key, value };
                interpret::execute(&scope, command).await.map_err(|failure| failed(failure.message))?;
            }
        }
        let startup = &self.startup;
        if let Some(delay) = &startup.delay {
            tokio::time::sleep(delay.evaluate(&scope).map_err(|error| failed(error.to_string()))?).await;
        }
        if let Some(memory) = &startup.memory {
            let size = memory.evaluate(&scope).map_err(|error| failed(error.to_string()))?;
            let memory = work::allocate(size, true).ok_or_else(|| failed("out of memory".to_owned()))?;
            self.keep(memory);
        }
        let result = interpret::run(startup.steps.clone(), &mut scope).await;
        result.map(|_| ()).map_err(|failure| failed(failure.message))
    }

    /// Counts an operation or branch as running until the guard is dropped.
    pub(crate) fn begin(self: &Arc<Self>) -> Running {
        self.running.send_modify(|n_running| *n_running += 1);
        Running(Arc::clone(self))
    }

    /// Waits until no operation or branch runs.
    pub(crate) async fn idle(&self) {
        // The sender belongs to this cell, so it cannot be gone.
        let _ = self.running.subscribe().wait_for(|n_running| *n_running == 0).await;
    }

    /// The operation a request is for.
    pub(crate) fn find_operation(&self, method: &http::Method, path: &str) -> Option<Matched> {
        self.operations.iter().find_map(|(route, operation, steps, n_requests)| {
            let parameters = route.matches(method, path)?;
            let ordinal = n_requests.fetch_add(1, Ordering::Relaxed);
            let seed = seed_of(&[operation], &[self.seed, ordinal]);
            Some(Matched { operation: operation.clone(), parameters, steps: steps.clone(), seed })
        })
    }

    /// The value of a shared variable.
    pub(crate) fn variable(&self, name: &str) -> Value {
        self.variables.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned().unwrap_or_default()
    }

    /// Changes a shared variable.
    pub(crate) fn set_variable(&self, name: &str, value: Value) {
        self.variables.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), value);
    }

    /// The value of a counter.
    pub(crate) fn counter(&self, name: &str) -> i64 {
        self.counters.lock().unwrap_or_else(PoisonError::into_inner).get(name).copied().unwrap_or_default()
    }

    /// Adds to a counter.
    pub(crate) fn count(&self, name: &str, by: i64) {
        let mut counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        let counter = counters.entry(name.to_owned()).or_default();
        *counter = counter.saturating_add(by);
    }

    /// Keeps memory allocated as long as the process lives.
    pub(crate) fn keep(&self, memory: Vec<u8>) {
        self.kept_memory.lock().unwrap_or_else(PoisonError::into_inner).push(memory);
    }

    /// What `/_cell` shows.
    pub(crate) fn describe(&self) -> Value {
        let kept = self
            .kept_memory
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
            .map(Vec::len)
            .sum::<usize>();
        json!({
            "service": self.name,
            "instance": self.instance,
            "settings": self.settings,
            "variables": *self.variables.lock().unwrap_or_else(PoisonError::into_inner),
            "counters": *self.counters.lock().unwrap_or_else(PoisonError::into_inner),
            "kept_memory": kept,
            "resident_memory": work::resident_memory(),
            "private_memory": work::private_memory(),
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.send_modify(|n_running| *n_running -= 1);
    }
}

impl fmt::Debug for Cell {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Cell").field("name", &self.name).field("instance", &self.instance).finish()
    }
}
