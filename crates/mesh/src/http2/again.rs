//! Sends a request a second time and drops the answer.

use std::sync::Mutex;

use bytes::Bytes;
use faultscope_model::{CallError, NotApplied};
use h2::SendStream;
use h2::client::ResponseFuture;
use http::HeaderMap;

use super::stream::{grpc_status, head_for, lock};
use super::ups::Ups;
use crate::call::Call;
use crate::dial;
use crate::rules::Headers;

/// A request body that is kept to be sent twice.
pub(super) const MAX_COPIED: usize = 1024 * 1024;

/// What is needed to send a request a second time.
#[derive(Default)]
pub(super) struct Copy {
    pub(super) body: Vec<Bytes>,
    pub(super) size: usize,
    pub(super) trailers: Option<HeaderMap>,
    /// The request has gone out to its end.
    pub(super) is_sent: bool,
}

/// Sends it, and ends when it is answered.
pub(super) async fn send(rule: usize, mut twin: Call, parts: &http::request::Parts, copy: Copy, ups: &Ups) {
    if twin.must_wait() {
        twin.wait().await;
    }
    let error = match ups.sender(&mut twin).await {
        Err(error) => {
            let why = dial::why_not_dialled(&error);
            twin.missed(rule, NotApplied::SecondSendingFailed { error: why.clone() });
            Some(why)
        }
        Ok(mut sender) => {
            twin.begin_handling().await;
            twin.applied(rule);
            let sent = sender.send_request(head_for(parts, &twin), copy.size == 0 && copy.trailers.is_none());
            let twin = Mutex::new(&mut twin);
            match sent {
                Ok((answering, to_up)) => match carry(answering, to_up, copy, &twin).await {
                    Ok(()) => None,
                    Err(_) => Some(CallError::ResetByCallee),
                },
                Err(_) => Some(CallError::ResetByCallee),
            }
        }
    };
    twin.finish(error);
}

async fn carry(
    answering: ResponseFuture,
    mut to_up: SendStream<Bytes>,
    copy: Copy,
    twin: &Mutex<&mut Call>,
) -> Result<(), h2::Error> {
    let n_pieces = copy.body.len();
    for (number, piece) in copy.body.into_iter().enumerate() {
        // At most what a rule may copy, so the stream may buffer it.
        to_up.send_data(piece, number + 1 == n_pieces && copy.trailers.is_none())?;
    }
    if let Some(trailers) = copy.trailers {
        to_up.send_trailers(trailers)?;
    }
    let mut answer = answering.await?;
    {
        let mut twin = lock(twin);
        twin.first_byte();
        twin.recording.edit(|span| {
            span.status = Some(answer.status().as_u16());
            span.grpc_status = grpc_status(answer.headers());
        });
    }
    while let Some(piece) = answer.body_mut().data().await {
        let piece = piece?;
        lock(twin).received(&piece);
        let _ = answer.body_mut().flow_control().release_capacity(piece.len());
    }
    if let Some(trailers) = answer.body_mut().trailers().await? {
        let mut twin = lock(twin);
        twin.recording.edit(|span| span.grpc_status = grpc_status(&trailers).or(span.grpc_status));
        twin.response_trailers(Headers::Http2(&trailers));
    }
    Ok(())
}
