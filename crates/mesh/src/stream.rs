//! The byte streams that the proxy works on, as one type: sockets, in-process pipes, TLS over either.
//!
//! Each can be made to end with a reset instead of an orderly close, also by someone who does not own it.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::net::TcpStream;

/// A stream of either side of a proxied connection.
#[derive(Debug)]
pub(crate) enum Stream {
    Plain(Plain),
    Accepted(Box<tokio_rustls::server::TlsStream<Plain>>),
    Dialled(Box<tokio_rustls::client::TlsStream<Plain>>),
    /// Another stream, after bytes that were read ahead.
    Rewound(Box<(BytesMut, Self)>),
}

/// Bytes without TLS, after bytes that were read ahead.
#[derive(Debug)]
pub(crate) struct Plain {
    ahead: BytesMut,
    raw: Raw,
    fate: Fate,
}

#[derive(Debug)]
enum Raw {
    Tcp(TcpStream),
    Memory(DuplexStream),
}

/// Decides how a stream ends when it is dropped.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fate(Arc<AtomicBool>);

impl Fate {
    /// Lets the stream end with a reset.
    pub(crate) fn reset(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

// === impl Plain ===

impl Plain {
    /// Gives back bytes that were read to find out what is spoken.
    pub(crate) fn unread(&mut self, ahead: BytesMut) {
        debug_assert!(self.ahead.is_empty(), "bytes are read ahead once");
        self.ahead = ahead;
    }
}

impl From<TcpStream> for Plain {
    fn from(tcp: TcpStream) -> Self {
        // A proxy that waits for more bytes to send would add delays that the application does not have.
        let _ = tcp.set_nodelay(true);
        Self { ahead: BytesMut::new(), raw: Raw::Tcp(tcp), fate: Fate::default() }
    }
}

impl From<DuplexStream> for Plain {
    fn from(pipe: DuplexStream) -> Self {
        Self { ahead: BytesMut::new(), raw: Raw::Memory(pipe), fate: Fate::default() }
    }
}

impl Drop for Plain {
    fn drop(&mut self) {
        if let (Raw::Tcp(tcp), true) = (&self.raw, self.fate.0.load(Ordering::Relaxed)) {
            let _ = socket2::SockRef::from(tcp).set_linger(Some(Duration::ZERO));
        }
    }
}

impl AsyncRead for Plain {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.ahead.is_empty() {
            give(&mut self.ahead, buf);
            return Poll::Ready(Ok(()));
        }
        match &mut self.raw {
            Raw::Tcp(tcp) => Pin::new(tcp).poll_read(cx, buf),
            Raw::Memory(pipe) => Pin::new(pipe).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Plain {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.raw {
            Raw::Tcp(tcp) => Pin::new(tcp).poll_write(cx, buf),
            Raw::Memory(pipe) => Pin::new(pipe).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.raw {
            Raw::Tcp(tcp) => Pin::new(tcp).poll_write_vectored(cx, bufs),
            Raw::Memory(pipe) => Pin::new(pipe).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        matches!(self.raw, Raw::Tcp(_))
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Neither sockets nor pipes keep bytes back.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.raw {
            Raw::Tcp(tcp) => Pin::new(tcp).poll_shutdown(cx),
            Raw::Memory(pipe) => Pin::new(pipe).poll_shutdown(cx),
        }
    }
}

// === impl Stream ===

impl Stream {
    /// The handle that decides how this stream ends.
    pub(crate) fn fate(&self) -> Fate {
        match self {
            Self::Plain(plain) => plain.fate.clone(),
            Self::Accepted(tls) => tls.get_ref().0.fate.clone(),
            Self::Dialled(tls) => tls.get_ref().0.fate.clone(),
            Self::Rewound(inner) => inner.1.fate(),
        }
    }

    /// Gives back bytes that were read to find out what is spoken.
    pub(crate) fn unread(self, ahead: BytesMut) -> Self {
        Self::Rewound(Box::new((ahead, self)))
    }

    /// Ends the stream with a reset.
    pub(crate) fn reset(self) {
        self.fate().reset();
    }

    /// Whether written bytes may wait inside until they are flushed.
    fn keeps_bytes_back(&self) -> bool {
        !matches!(self, Self::Plain(_))
    }

    /// Writes what fits, and pushes it on where a TLS layer would keep it.
    pub(crate) fn poll_push(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = std::task::ready!(Pin::new(&mut *self).poll_write(cx, bytes))?;
        if self.keeps_bytes_back()
            && let Poll::Ready(Err(error)) = Pin::new(self).poll_flush(cx)
        {
            return Poll::Ready(Err(error));
        }
        Poll::Ready(Ok(written))
    }

    /// Reads more bytes behind those in `buffer`; zero is the end.
    pub(crate) fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut BytesMut,
    ) -> Poll<io::Result<usize>> {
        if buffer.capacity() - buffer.len() < SMALLEST_READ {
            buffer.reserve(READ_AT_ONCE);
        }
        tokio_util::io::poll_read_buf(Pin::new(self), cx, buffer)
    }
}

const SMALLEST_READ: usize = 2 * 1024;
const READ_AT_ONCE: usize = 16 * 1024;

macro_rules! each {
    ($self:ident, $stream:ident => $does:expr) => {
        match $self.get_mut() {
            Stream::Plain(inner) => {
                let $stream = Pin::new(inner);
                $does
            }
            Stream::Accepted(inner) => {
                let $stream = Pin::new(inner.as_mut());
                $does
            }
            Stream::Dialled(inner) => {
                let $stream = Pin::new(inner.as_mut());
                $does
            }
            Stream::Rewound(inner) => {
                let $stream = Pin::new(&mut inner.1);
                $does
            }
        }
    };
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Self::Rewound(inner) = &mut *self
            && !inner.0.is_empty()
        {
            give(&mut inner.0, buf);
            return Poll::Ready(Ok(()));
        }
        each!(self, stream => stream.poll_read(cx, buf))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        each!(self, stream => stream.poll_write(cx, buf))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        each!(self, stream => stream.poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(inner) => inner.is_write_vectored(),
            Self::Accepted(inner) => inner.is_write_vectored(),
            Self::Dialled(inner) => inner.is_write_vectored(),
            Self::Rewound(inner) => inner.1.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, stream => stream.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, stream => stream.poll_shutdown(cx))
    }
}

fn give(ahead: &mut BytesMut, buf: &mut ReadBuf<'_>) {
    let count = ahead.len().min(buf.remaining());
    buf.put_slice(&ahead[..count]);
    ahead.advance(count);
}
