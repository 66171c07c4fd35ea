//! Answers that are written piece by piece, as fast as their reader reads.
//!
//! A blocking thread reads trace by trace and writes into [`Chunks`]. Short answers go out as a whole; for a longer
//! one the response begins with its first chunk, and the thread waits whenever a few chunks wait for the reader. A
//! reader that takes nothing for a while is given up.

use std::io;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::response::Response;
use hyper::body::Frame;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};

use super::Served;
use super::answer::{Failure, JSON, json, typed};
use crate::error::StoreError;
use crate::spans::{SpanReader, TraceMemory};

/// The bytes of a chunk. An answer that fits into one is sent with its length.
const CHUNK: usize = 64 << 10;

/// How many chunks may wait for the reader.
const WAITING: usize = 2;

/// How long a reader may take nothing.
const STALL: Duration = Duration::from_secs(10);

/// How long a query waits for its turn.
const TURN_TIME: Duration = Duration::from_secs(10);

impl Served {
    /// Answers with the JSON that `work` writes on a blocking thread. `copies` says how many copies of a trace it needs
    /// at the same time.
    pub(super) async fn stream(
        &self,
        copies: usize,
        work: impl FnOnce(&SpanReader, &mut TraceMemory, &mut Chunks) -> Result<(), StreamError> + Send + 'static,
    ) -> Result<Response, Failure> {
        let turn = tokio::time::timeout(TURN_TIME, Arc::clone(&self.readers).acquire_owned()).await;
        let Ok(Ok(turn)) = turn else {
            return Err(Failure::unavailable("too many queries are being answered; try again"));
        };
        let reader = Arc::clone(&self.reader);
        let mut memory = TraceMemory::new(&self.intake.budget, copies);
        let (head, begun) = oneshot::channel();
        tokio::task::spawn_blocking(move || {
            let _turn = turn;
            let mut chunks = Chunks { buffer: Vec::new(), to: To::Head(head), runtime: Handle::current() };
            let done = work(&reader, &mut memory, &mut chunks);
            chunks.finish(done);
        });
        match begun.await {
            Ok(Start::Whole(bytes)) => Ok(json(bytes)),
            Ok(Start::Chunks(chunks)) => Ok(typed(JSON, Body::new(ChunkedBody(Some(chunks))))),
            Ok(Start::Failed(failure)) => Err(failure),
            Err(_) => Err(Failure::internal("a query panicked")),
        }
    }
}

/// Why an answer ended early.
#[derive(Debug)]
pub(super) enum StreamError {
    /// There is none, or it could not be read.
    Failed(Failure),
    /// Its reader is gone.
    Gone,
}

impl From<StoreError> for StreamError {
    fn from(error: StoreError) -> Self {
        Self::Failed(error.into())
    }
}

impl From<Failure> for StreamError {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<io::Error> for StreamError {
    fn from(_: io::Error) -> Self {
        Self::Gone
    }
}

/// The beginning of an answer.
enum Start {
    Whole(Vec<u8>),
    Chunks(mpsc::Receiver<Piece>),
    Failed(Failure),
}

/// A piece of an answer. An answer without an end was broken off.
enum Piece {
    Data(Bytes),
    End,
}

/// Where an answer is written.
pub(super) struct Chunks {
    buffer: Vec<u8>,
    to: To,
    runtime: Handle,
}

enum To {
    /// Nothing was sent yet.
    Head(oneshot::Sender<Start>),
    Reader(mpsc::Sender<Piece>),
    /// The reader is gone.
    Nobody,
}

impl Chunks {
    fn send_buffer(&mut self) -> io::Result<()> {
        let chunk = Bytes::from(mem::replace(&mut self.buffer, Vec::with_capacity(CHUNK)));
        let sender = match mem::replace(&mut self.to, To::Nobody) {
            To::Head(head) => {
                let (sender, receiver) = mpsc::channel(WAITING);
                head.send(Start::Chunks(receiver)).map_err(|_| io::ErrorKind::BrokenPipe)?;
                sender
            }
            To::Reader(sender) => sender,
            To::Nobody => return Err(io::ErrorKind::BrokenPipe.into()),
        };
        self.runtime
            .block_on(sender.send_timeout(Piece::Data(chunk), STALL))
            .map_err(|_| io::ErrorKind::TimedOut)?;
        self.to = To::Reader(sender);
        Ok(())
    }

    fn finish(mut self, done: Result<(), StreamError>) {
        match (done, &self.to) {
            (Ok(()), To::Reader(_)) => {
                let ended = self.buffer.is_empty() || self.send_buffer().is_ok();
                if ended && let To::Reader(sender) = &self.to {
                    // If it times out, the missing end tells the reader.
                    let _ = self.runtime.block_on(sender.send_timeout(Piece::End, STALL));
                }
            }
            (done, To::Head(_)) => {
                let start = match done {
                    Ok(()) => Start::Whole(self.buffer),
                    Err(StreamError::Failed(failure)) => Start::Failed(failure),
                    Err(StreamError::Gone) => return,
                };
                if let To::Head(head) = self.to {
                    // Whoever asked may have gone.
                    let _ = head.send(start);
                }
            }
            // What was begun is broken off, so that nobody takes it for the whole.
            (_, To::Reader(_) | To::Nobody) => {}
        }
    }
}

impl io::Write for Chunks {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= CHUNK {
            self.send_buffer()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The body of an answer; none once it ended.
struct ChunkedBody(Option<mpsc::Receiver<Piece>>);

impl HttpBody for ChunkedBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let Some(chunks) = &mut self.0 else { return Poll::Ready(None) };
        let piece = std::task::ready!(chunks.poll_recv(context));
        Poll::Ready(match piece {
            Some(Piece::Data(bytes)) => Some(Ok(Frame::data(bytes))),
            Some(Piece::End) => {
                self.0 = None;
                None
            }
            None => {
                self.0 = None;
                Some(Err(io::ErrorKind::BrokenPipe.into()))
            }
        })
    }
}
