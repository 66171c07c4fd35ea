//! The tool's connection to an agent: concurrent requests, and notice of every process tree that ends.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::unix::AsyncFd;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use super::agent_protocol::{self, Envelope, Message, Request};

/// How a process tree ended, as its parent saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct TreeEnd {
    pub(crate) signal: Option<i32>,
    /// The agent itself is gone, and all trees with it.
    pub(crate) agent_lost: bool,
}

/// A connection to an agent.
#[derive(Debug)]
pub(crate) struct Link {
    socket: Arc<AsyncFd<OwnedFd>>,
    shared: Arc<Mutex<Waiting>>,
    next: AtomicU64,
    reader: AbortHandle,
}

#[derive(Debug, Default)]
struct Waiting {
    closed: bool,
    replies: HashMap<u64, oneshot::Sender<Result<Vec<OwnedFd>, String>>>,
    ends: HashMap<u64, oneshot::Sender<TreeEnd>>,
}

impl Link {
    /// Takes over a socket on which the agent has reported that it is ready.
    pub(crate) fn new(socket: AsyncFd<OwnedFd>) -> Self {
        let socket = Arc::new(socket);
        let shared = Arc::new(Mutex::new(Waiting::default()));
        let reader = tokio::spawn(read(Arc::clone(&socket), Arc::clone(&shared))).abort_handle();
        Self { socket, shared, next: AtomicU64::new(1), reader }
    }

    /// Sends a request to the agent and waits for its answer.
    pub(crate) async fn request(&self, request: Request, fds: &[BorrowedFd<'_>]) -> io::Result<Vec<OwnedFd>> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (reply, answer) = oneshot::channel();
        {
            let mut waiting = lock(&self.shared);
            if waiting.closed {
                return Err(gone());
            }
            waiting.replies.insert(id, reply);
        }
        let bytes = serde_json::to_vec(&Envelope { id, request })?;
        if bytes.len() > agent_protocol::MAX_BYTES {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a request to the agent is too long"));
        }
        loop {
            let mut guard = self.socket.writable().await?;
            match guard.try_io(|socket| Ok(agent_protocol::send(socket.as_fd(), &bytes, fds)?)) {
                Ok(sent) => break sent?,
                Err(_would_block) => {}
            }
        }
        match answer.await {
            Ok(Ok(fds)) => Ok(fds),
            Ok(Err(reason)) => Err(io::Error::other(reason)),
            Err(_) => Err(gone()),
        }
    }

    /// Resolves when the process tree with this key is gone. Call it before the tree is started.
    pub(crate) fn end_of(&self, key: u64) -> oneshot::Receiver<TreeEnd> {
        let (ended, end) = oneshot::channel();
        let mut waiting = lock(&self.shared);
        if !waiting.closed {
            waiting.ends.insert(key, ended);
        }
        end
    }

    /// Tells the agent that there will be no more requests.
    pub(crate) fn shut(&self) {
        let _ = rustix::net::shutdown(self.socket.get_ref(), rustix::net::Shutdown::Both);
    }

    /// Stops reading, so that the socket can close.
    pub(crate) fn close(&self) {
        self.reader.abort();
        close(&self.shared);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.close();
    }
}

async fn read(socket: Arc<AsyncFd<OwnedFd>>, shared: Arc<Mutex<Waiting>>) {
    let mut buffer = vec![0; agent_protocol::MAX_BYTES];
    while let Ok(Some((length, fds))) = receive(&socket, &mut buffer).await {
        let Ok(message) = serde_json::from_slice(&buffer[..length]) else {
            break;
        };
        let mut waiting = lock(&shared);
        match message {
            Message::Done { id } => {
                if let Some(reply) = waiting.replies.remove(&id) {
                    let _ = reply.send(Ok(fds));
                }
            }
            Message::Failed { id, reason } => {
                if let Some(reply) = waiting.replies.remove(&id) {
                    let _ = reply.send(Err(reason));
                }
            }
            Message::Gone { key, signal, .. } => {
                if let Some(ended) = waiting.ends.remove(&key) {
                    let _ = ended.send(TreeEnd { signal, agent_lost: false });
                }
            }
            Message::Hello { .. } | Message::Ready | Message::Refused { .. } => {}
        }
    }
    close(&shared);
}

/// Receives one packet.
pub(crate) async fn receive(
    socket: &AsyncFd<OwnedFd>,
    buffer: &mut [u8],
) -> io::Result<Option<(usize, Vec<OwnedFd>)>> {
    loop {
        let mut guard = socket.readable().await?;
        if let Ok(received) = guard.try_io(|socket| Ok(agent_protocol::receive(socket.as_fd(), buffer)?)) {
            return received;
        }
    }
}

fn close(shared: &Mutex<Waiting>) {
    let mut waiting = lock(shared);
    waiting.closed = true;
    waiting.replies.clear();
    for (_, ended) in waiting.ends.drain() {
        let _ = ended.send(TreeEnd { signal: None, agent_lost: true });
    }
}

fn gone() -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, "the slot's agent is gone")
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
