//! A cell as a process: reads the spec, listens, ends with a signal.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::cell::Cell;
use crate::server::serve;
use crate::spec::{MAXIMUM_SPEC_BYTES, Spec, SpecError};
use crate::{CellError, mubench};

/// Stack size of threads for blocking work, which has no deep recursion.
const STACK: usize = 256 << 10;

/// Threads in addition to the workers: host name look-ups also block.
const SPARE_THREADS: usize = 2;

/// Which cell to run.
#[derive(Debug, Clone)]
pub struct CellOptions {
    /// The spec, or a muBench work model.
    pub spec: PathBuf,
    /// The service of it.
    pub service: String,
    /// The port to listen on instead of `PORT` and the spec's.
    pub port: Option<u16>,
}

/// Runs a cell until it gets a signal.
pub fn run(options: CellOptions) -> Result<(), CellError> {
    let environment: BTreeMap<String, String> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    let cell = Arc::new(Cell::new(load(&options)?, &options.service, &environment)?);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(cell.threads() + SPARE_THREADS)
        .thread_stack_size(STACK)
        .build()
        .map_err(CellError::Runtime)?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate()).map_err(CellError::Runtime)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(CellError::Runtime)?;
        cell.start().await?;
        let port = options.port.unwrap_or_else(|| cell.port());
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))
            .await
            .map_err(|source| CellError::Listen { port, source })?;
        crate::trim::give_back_code();
        serve(Arc::clone(&cell), listener, async {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        })
        .await;
        Ok(())
    })
}

/// Reads a spec of either kind.
pub fn parse(text: &str) -> Result<Spec, SpecError> {
    if mubench::is_workmodel(text) { mubench::from_mubench(text) } else { Spec::parse(text) }
}

fn load(options: &CellOptions) -> Result<Spec, CellError> {
    let read = |source| CellError::Read { path: options.spec.clone(), source };
    let size = std::fs::metadata(&options.spec).map_err(read)?.len();
    if size > MAXIMUM_SPEC_BYTES as u64 {
        let source = SpecError::TooLarge(usize::try_from(size).unwrap_or(usize::MAX));
        return Err(CellError::Spec { path: options.spec.clone(), source });
    }
    let text = std::fs::read_to_string(&options.spec).map_err(read)?;
    let spec = if mubench::is_workmodel(&text) {
        mubench::from_mubench(&text)
    } else {
        Spec::parse_for(&text, &options.service)
    };
    spec.map_err(|source| CellError::Spec { path: options.spec.clone(), source })
}
