//! Carries the body and the trailers of one direction of a stream.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::Poll;

use bytes::Bytes;
use h2::{Reason, RecvStream, SendStream};
use http::HeaderMap;
use tokio::time::Instant;

use crate::tunnel::Pace;

/// Why a direction ended early.
#[derive(Debug)]
pub(super) enum PumpEnd {
    /// Its sender broke it.
    From(h2::Error),
    /// Its receiver does not want it.
    To(Option<Reason>),
}

/// What is done to the bytes on the way.
#[derive(Default)]
pub(super) struct Shape {
    /// Bytes that still pass.
    pub(super) cut: Option<u64>,
    pub(super) pace: Option<Pace>,
    /// Bytes that are kept back until the rest may go.
    pub(super) hold: usize,
    /// Until when they are; a body that has not ended by then goes on as it comes.
    pub(super) hold_until: Option<Instant>,
}

/// A body that is read in pieces and written in order.
pub(super) struct Pump<'a> {
    pub(super) from: &'a mut RecvStream,
    pub(super) to: &'a mut SendStream<Bytes>,
    pub(super) shape: Shape,
    held: VecDeque<Bytes>,
    n_held: usize,
    /// What was held back was let go, since the body did not end.
    pub(super) was_released: bool,
}

/// The end of a body that has been read.
pub(super) struct Rest {
    pub(super) trailers: Option<HeaderMap>,
    pub(super) was_cut: bool,
}

impl<'a> Pump<'a> {
    pub(super) fn new(from: &'a mut RecvStream, to: &'a mut SendStream<Bytes>, shape: Shape) -> Self {
        Self { from, to, shape, held: VecDeque::new(), n_held: 0, was_released: false }
    }

    /// Carries the body, but for what is held back and the end of the stream.
    pub(super) async fn body(&mut self, mut seen: impl FnMut(&Bytes)) -> Result<Rest, PumpEnd> {
        while let Some(mut piece) = self.next_in_time().await? {
            let length = piece.len();
            let was_cut = match &mut self.shape.cut {
                None => false,
                Some(left) => {
                    let passing = usize::try_from(*left).unwrap_or(usize::MAX).min(length);
                    piece.truncate(passing);
                    *left -= passing as u64;
                    passing < length
                }
            };
            seen(&piece);
            self.n_held += piece.len();
            self.held.push_back(piece);
            self.send_down_to(self.shape.hold).await?;
            // Only now may the sender send more: what has not been passed on is bounded by the window.
            let _ = self.from.flow_control().release_capacity(length);
            if was_cut {
                return Ok(Rest { trailers: None, was_cut });
            }
        }
        let trailers = self.from.trailers().await.map_err(PumpEnd::From)?;
        Ok(Rest { trailers, was_cut: false })
    }

    /// Sends what was held back, and ends the stream.
    pub(super) async fn finish(&mut self, trailers: Option<HeaderMap>) -> Result<(), PumpEnd> {
        self.send_down_to(0).await?;
        let ended = match trailers {
            Some(trailers) => self.to.send_trailers(trailers),
            None => self.to.send_data(Bytes::new(), true),
        };
        ended.map_err(|error| PumpEnd::To(error.reason()))
    }

    /// The next piece; when there is none in time, nothing is held back any longer.
    async fn next_in_time(&mut self) -> Result<Option<Bytes>, PumpEnd> {
        if let Some(until) = self.shape.hold_until {
            if let Ok(next) = tokio::time::timeout_at(until, self.next()).await {
                return next;
            }
            (self.shape.hold, self.shape.hold_until) = (0, None);
            self.was_released = true;
            self.send_down_to(0).await?;
        }
        self.next().await
    }

    /// The next piece; notices also when the receiver goes while there is none.
    async fn next(&mut self) -> Result<Option<Bytes>, PumpEnd> {
        poll_fn(|cx| {
            if let Poll::Ready(reason) = self.to.poll_reset(cx) {
                return Poll::Ready(Err(PumpEnd::To(reason.ok())));
            }
            match std::task::ready!(self.from.poll_data(cx)) {
                None => Poll::Ready(Ok(None)),
                Some(Ok(piece)) => Poll::Ready(Ok(Some(piece))),
                Some(Err(error)) => Poll::Ready(Err(PumpEnd::From(error))),
            }
        })
        .await
    }

    async fn send_down_to(&mut self, keep: usize) -> Result<(), PumpEnd> {
        while self.n_held > keep {
            let Some(mut piece) = self.held.pop_front() else {
                return Ok(());
            };
            self.n_held -= piece.len();
            while !piece.is_empty() {
                let mut wanted = piece.len();
                if let Some(pace) = &mut self.shape.pace {
                    wanted = wanted.min(poll_fn(|cx| pace.poll_allowed(cx)).await);
                    pace.spend(wanted);
                }
                let mut part = piece.split_to(wanted);
                while !part.is_empty() {
                    let room = self.room(part.len()).await?;
                    let sent = self.to.send_data(part.split_to(room.min(part.len())), false);
                    sent.map_err(|error| PumpEnd::To(error.reason()))?;
                }
            }
        }
        Ok(())
    }

    async fn room(&mut self, wanted: usize) -> Result<usize, PumpEnd> {
        self.to.reserve_capacity(wanted);
        loop {
            let room = poll_fn(|cx| {
                if let Poll::Ready(reason) = self.to.poll_reset(cx) {
                    return Poll::Ready(Err(PumpEnd::To(reason.ok())));
                }
                match std::task::ready!(self.to.poll_capacity(cx)) {
                    Some(Ok(room)) => Poll::Ready(Ok(room)),
                    Some(Err(error)) => Poll::Ready(Err(PumpEnd::To(error.reason()))),
                    None => Poll::Ready(Err(PumpEnd::To(None))),
                }
            })
            .await?;
            if room > 0 {
                return Ok(room);
            }
        }
    }
}
