//! Accepts connections and bounds them: how many there are, and how long each may stay without doing anything.
//!
//! | connection | is closed |
//! |---|---|
//! | sent nothing yet, or only a part of a request's head | after [`ConnectionLimits::head`] |
//! | between two requests | after [`ConnectionLimits::idle`] |
//! | does not read its answer | after [`ConnectionLimits::stall`] |
//! | any, when there are too many | the one that was idle for longest, for a new one |
//!
//! Bodies have time limits of their own, and a request that is being answered is never closed for its age.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use hyper::body::Incoming;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// How long accepting pauses when the process has no file descriptor left.
const NO_FILES_PAUSE: Duration = Duration::from_millis(50);

/// How often connections are looked at.
const SWEEP: Duration = Duration::from_millis(500);

/// What a connection may buffer in each direction.
const BUFFER: usize = 64 << 10;

/// What an HTTP/2 connection may receive before it is read.
const WINDOW: u32 = 256 << 10;

/// Requests at the same time on one HTTP/2 connection.
const MAX_STREAMS: u32 = 64;

/// Limits of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// The most open connections; for one more, the one that was idle for longest is closed.
    pub open: usize,
    /// How long the head of a request may take to arrive.
    pub head: Duration,
    /// How long a connection may be idle between requests. Exporters of metrics send once a minute.
    pub idle: Duration,
    /// How long a client may not read its answer.
    pub stall: Duration,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self {
            // Well below the usual limit of 1024 open files.
            open: 512,
            head: Duration::from_secs(15),
            idle: Duration::from_secs(150),
            stall: Duration::from_secs(15),
        }
    }
}

/// All open connections, of one listener or several.
#[derive(Debug)]
pub struct Connections {
    limits: ConnectionLimits,
    started: Instant,
    next: AtomicU64,
    open: Mutex<HashMap<u64, Arc<Activity>>>,
}

/// Serves a listener until `stop`; then requests in flight are answered and connections end.
pub async fn serve(
    listener: TcpListener,
    routes: Router,
    connections: Arc<Connections>,
    stop: impl Future<Output = ()>,
) {
    let (stopping, stopped) = watch::channel(());
    let mut tasks = JoinSet::new();
    let mut sweep = tokio::time::interval(SWEEP);
    let mut stop = std::pin::pin!(stop);
    loop {
        tokio::select! {
            () = &mut stop => break,
            _ = sweep.tick() => connections.close_idle(),
            Some(_) = tasks.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => {
                    connections.make_room();
                    let open = connections.add();
                    tasks.spawn(serve_one(stream, peer, routes.clone(), open, stopped.clone()));
                }
                Err(error) => {
                    tracing::debug!(%error, "a connection could not be accepted");
                    // The client may have gone already; only a lack of file descriptors needs a pause.
                    if is_out_of_files(&error) {
                        connections.close_oldest();
                        tokio::time::sleep(NO_FILES_PAUSE).await;
                    }
                }
            },
        }
    }
    drop(listener);
    drop(stopped);
    drop(stopping);
    while !tasks.is_empty() {
        tokio::select! {
            _ = sweep.tick() => connections.close_idle(),
            _ = tasks.join_next() => {}
        }
    }
}

/// Whether the process or the system has no file descriptor left.
fn is_out_of_files(error: &io::Error) -> bool {
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    matches!(error.raw_os_error(), Some(ENFILE | EMFILE))
}

async fn serve_one(
    stream: TcpStream,
    peer: SocketAddr,
    routes: Router,
    open: Open,
    mut stopped: watch::Receiver<()>,
) {
    let _ = stream.set_nodelay(true);
    let activity = Arc::clone(&open.activity);
    let io = TokioIo::new(Watched { stream, activity: Arc::clone(&activity), begins: Vec::new() });
    let service = TowerToHyperService::new(routes);
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(ConnectInfo(peer));
        let busy = Busy::new(&activity);
        let answering = service.call(request);
        async move {
            let answer = answering.await;
            drop(busy);
            answer
        }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().max_buf_size(BUFFER);
    builder
        .http2()
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .max_concurrent_streams(MAX_STREAMS)
        .max_send_buf_size(BUFFER);
    let connection = builder.serve_connection(io, service);
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        // A connection that breaks is its client's business.
        _ = &mut connection => return,
        () = open.activity.closing.notified() => return,
        _ = stopped.changed() => {}
    }
    connection.as_mut().graceful_shutdown();
    tokio::select! {
        _ = connection => {}
        () = open.activity.closing.notified() => {}
    }
}

/// An entry of [`Connections`]; removed when it is dropped.
#[derive(Debug)]
struct Open {
    connections: Arc<Connections>,
    number: u64,
    activity: Arc<Activity>,
}

/// What a connection does. Times are milliseconds since [`Connections::new`], and 0 means never.
#[derive(Debug)]
struct Activity {
    started: Instant,
    /// When bytes came or went last.
    last_ms: AtomicU64,
    /// Since when a request's head has been arriving.
    head_ms: AtomicU64,
    /// Since when the client has not read.
    stall_ms: AtomicU64,
    /// Requests that are being answered.
    in_flight: AtomicUsize,
    /// Whether a request has come.
    has_served: AtomicBool,
    /// Whether it speaks HTTP/2, where bytes between requests are no part of a head.
    is_http2: AtomicBool,
    closing: Notify,
}

impl Connections {
    /// No connections yet.
    pub fn new(limits: ConnectionLimits) -> Arc<Self> {
        let next = AtomicU64::new(1);
        Arc::new(Self { limits, started: Instant::now(), next, open: Mutex::default() })
    }

    fn add(self: &Arc<Self>) -> Open {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let activity = Arc::new(Activity {
            started: self.started,
            last_ms: AtomicU64::new(0),
            head_ms: AtomicU64::new(0),
            stall_ms: AtomicU64::new(0),
            in_flight: AtomicUsize::new(0),
            has_served: AtomicBool::new(false),
            is_http2: AtomicBool::new(false),
            closing: Notify::new(),
        });
        activity.touch();
        self.lock().insert(number, Arc::clone(&activity));
        Open { connections: Arc::clone(self), number, activity }
    }

    fn make_room(&self) {
        if self.lock().len() >= self.limits.open {
            self.close_oldest();
        }
    }

    /// Closes the connection that was idle for longest. One with a request in flight goes only if there is no other.
    fn close_oldest(&self) {
        let mut open = self.lock();
        let idle = |activity: &Activity| {
            (activity.in_flight.load(Ordering::Relaxed) > 0, activity.last_ms.load(Ordering::Relaxed))
        };
        let oldest = open.iter().min_by_key(|(_, activity)| idle(activity)).map(|(number, _)| *number);
        // Out of the list at once: it must not be chosen again while it ends.
        if let Some(activity) = oldest.and_then(|number| open.remove(&number)) {
            activity.closing.notify_one();
        }
    }

    fn close_idle(&self) {
        let now = self.started.elapsed();
        for activity in self.lock().values().filter(|activity| activity.is_overdue(now, &self.limits)) {
            activity.closing.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Arc<Activity>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.connections.lock().remove(&self.number);
    }
}

impl Activity {
    fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX).max(1)
    }

    fn touch(&self) {
        self.last_ms.store(self.now_ms(), Ordering::Relaxed);
    }

    /// Notes that bytes came.
    fn note_read(&self) {
        self.touch();
        if self.in_flight.load(Ordering::Relaxed) == 0 && !self.is_http2.load(Ordering::Relaxed) {
            let now = self.now_ms();
            let _ = self.head_ms.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Notes whether bytes went, or the client has to read first.
    fn note_write(&self, written: bool) {
        if written {
            self.touch();
            self.stall_ms.store(0, Ordering::Relaxed);
        } else {
            let now = self.now_ms();
            let _ = self.stall_ms.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    fn is_overdue(&self, now: Duration, limits: &ConnectionLimits) -> bool {
        let since = |then: &AtomicU64| match then.load(Ordering::Relaxed) {
            0 => Duration::ZERO,
            ms => now.saturating_sub(Duration::from_millis(ms)),
        };
        if since(&self.stall_ms) > limits.stall {
            return true;
        }
        if self.in_flight.load(Ordering::Relaxed) > 0 {
            return false;
        }
        let idle = if self.has_served.load(Ordering::Relaxed) { limits.idle } else { limits.head };
        since(&self.head_ms) > limits.head || since(&self.last_ms) > idle
    }
}

/// Counts a request while it is answered.
struct Busy(Arc<Activity>);

impl Busy {
    fn new(activity: &Arc<Activity>) -> Self {
        activity.in_flight.fetch_add(1, Ordering::Relaxed);
        activity.has_served.store(true, Ordering::Relaxed);
        activity.head_ms.store(0, Ordering::Relaxed);
        Self(Arc::clone(activity))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.touch();
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A stream that notes what happens on it.
struct Watched {
    stream: TcpStream,
    activity: Arc<Activity>,
    /// The first bytes, until it is clear which protocol is spoken.
    begins: Vec<u8>,
}

/// What every HTTP/2 connection begins with.
const HTTP2: &[u8] = b"PRI * HTTP/2";

impl Watched {
    fn note_protocol(&mut self, bytes: &[u8]) {
        if self.begins.len() < HTTP2.len() {
            self.begins.extend(bytes.iter().take(HTTP2.len() - self.begins.len()));
            self.activity.is_http2.store(self.begins == HTTP2, Ordering::Relaxed);
        }
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if let Some(came) = buffer.filled().get(before..).filter(|came| !came.is_empty()) {
            self.note_protocol(came);
            self.activity.note_read();
        }
        read
    }
}

impl AsyncWrite for Watched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.activity.note_write(written.is_ready());
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.activity.note_write(written.is_ready());
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
