//! Sends a request a second time, over a connection of its own, and drops the answer.

use std::future::poll_fn;

use bytes::BytesMut;
use faultscope_model::NotApplied;

use super::exchange::{Asked, Exchange, Goal};
use super::framing::Framing;
use super::request;
use crate::call::Call;
use crate::dial::{self, Dialling};
use crate::stream::{Plain, Stream};
use crate::tunnel::Side;

/// Sends it, and ends when it is answered.
pub(super) async fn send(
    dialling: &Dialling,
    rule: usize,
    head: &[u8],
    body: &[u8],
    mut twin: Call,
    asked: Asked,
) {
    if twin.must_wait() {
        twin.wait().await;
    }
    let stream = match dial::dial(&mut twin, dialling).await {
        Ok(stream) => stream,
        Err(error) => {
            let why = dial::why_not_dialled(&error);
            twin.missed(rule, NotApplied::SecondSendingFailed { error: why.clone() });
            return twin.finish(Some(why));
        }
    };
    let (mut to_up, mut to_down) = (BytesMut::new(), BytesMut::new());
    request::write_again(head, &mut to_up, &twin);
    to_up.extend_from_slice(body);
    twin.begin_handling().await;
    twin.applied(rule);
    // The caller has no part in it.
    let (nobody, _) = tokio::io::duplex(1);
    let mut down = Side { stream: Stream::Plain(Plain::from(nobody)), input: BytesMut::new() };
    let mut up = Side { stream, input: BytesMut::new() };
    let buffers = (&mut to_up, &mut to_down);
    let mut exchange = Exchange::new(&mut down, &mut up, buffers, &mut twin, Framing::Done, asked);
    (exchange.shape.discard, exchange.shape.is_alone) = (true, true);
    let driven = poll_fn(|cx| exchange.poll_to(cx, Goal::Both)).await;
    match driven {
        Ok(()) => twin.finish(None),
        Err(broken) => twin.finish(Some(broken.why())),
    }
}
