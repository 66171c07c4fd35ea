//! HTTP/2, gRPC included: streams are carried one by one, each in a task that ends with the connection.
//!
//! Connections to callees belong to the caller's connection, as with HTTP/1. A stream that is reset is
//! reset on the other side with the same reason; a connection that is lost is lost on the other side when
//! no other callee is connected through it.

mod again;
mod mocked;
mod pump;
mod stream;
mod ups;

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use faultscope_model::span::Wire;
use h2::RecvStream;
use h2::server::SendResponse;
use tokio::task::JoinSet;
use tokio::time::Instant;

use self::stream::End;
use self::ups::Ups;
use crate::admit::{Head, admit};
use crate::call::Call;
use crate::context::Collector;
use crate::dial::Dialling;
use crate::rules::Headers;
use crate::slot::Origin;
use crate::stream::Stream;

/// Streams of one connection at a time.
const MAX_STREAMS: u32 = 256;
/// What a sender may have under way on one stream and on one connection.
pub(super) const STREAM_WINDOW: u32 = 256 * 1024;
pub(super) const CONNECTION_WINDOW: u32 = 1024 * 1024;
pub(super) const LONGEST_HEAD: u32 = 64 * 1024;

/// Serves a connection to its end.
pub(crate) async fn serve(mut origin: Origin, stream: Stream, input: BytesMut, dialling: Dialling) {
    let fate = stream.fate();
    let handshake = h2::server::Builder::new()
        .max_concurrent_streams(MAX_STREAMS)
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_header_list_size(LONGEST_HEAD)
        .enable_connect_protocol()
        .handshake::<_, Bytes>(stream.unread(input))
        .await;
    let Ok(mut connection) = handshake else { return };
    let ups = Arc::new(Ups::new(dialling));
    let mut streams: JoinSet<End> = JoinSet::new();
    let mut is_ending = false;
    loop {
        let event = tokio::select! {
            // Ends first: a lost callee decides about the connection before more is read from it.
            biased;
            Some(ended) = streams.join_next() => Event::Ended(ended.unwrap_or(End::Carried)),
            is_reset = ups.lost(), if streams.is_empty() && !is_ending => Event::Lost { is_reset },
            accepted = connection.accept() => Event::Accepted(accepted.map(|accepted| accepted.map(Box::new))),
        };
        match event {
            Event::Accepted(Some(Ok(accepted))) => {
                let (request, respond) = *accepted;
                let call = take_in(&mut origin, &request);
                streams.spawn(stream::carry(call, request, respond, Arc::clone(&ups)));
            }
            Event::Accepted(_) => break,
            Event::Ended(End::Carried) => {}
            // The stream's handle is still held here: it goes down with the connection, not before it.
            Event::Ended(End::Lost(_respond)) => {
                fate.reset();
                break;
            }
            Event::Lost { is_reset: true } => {
                fate.reset();
                break;
            }
            Event::Lost { is_reset: false } => {
                connection.graceful_shutdown();
                is_ending = true;
            }
        }
    }
}

type Accepted = (http::Request<RecvStream>, SendResponse<Bytes>);

enum Event {
    Accepted(Option<Result<Box<Accepted>, h2::Error>>),
    Ended(End),
    Lost { is_reset: bool },
}

/// Takes in a request in the order of arrival, before its task begins.
fn take_in(origin: &mut Origin, request: &http::Request<RecvStream>) -> Call {
    let mut context = Collector::default();
    for (name, value) in request.headers() {
        context.see(name.as_str(), value.as_bytes());
    }
    let head = Head {
        wire: Wire::Http2,
        method: request.method().as_str(),
        path: request.uri().path_and_query().map_or("", |path| path.as_str()),
        headers: Headers::Http2(request.headers()),
        context: context.finish(),
        started: Instant::now(),
    };
    let slot = origin.slot.clone();
    admit(&slot, origin.route(), &head)
}
