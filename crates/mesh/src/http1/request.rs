//! From the bytes of a caller to a request that has been taken in.

use bytes::{Buf, BytesMut};
use faultscope_model::span::Wire;
use tokio::time::Instant;

use super::exchange::Asked;
use super::framing::Framing;
use super::head::{self, LONGEST_HEAD, MAX_HEADERS, Signs};
use crate::admit::{Head, admit};
use crate::call::Call;
use crate::rules::Headers;
use crate::slot::Origin;

/// A request whose head has been read; the head for its callee waits in the connection's buffer.
pub(super) struct Request {
    pub(super) call: Call,
    pub(super) framing: Framing,
    pub(super) asked: Asked,
    pub(super) close: bool,
    pub(super) expects_continue: bool,
    /// The head as it came, when it may be sent again.
    pub(super) copy: Option<Vec<u8>>,
}

/// What the bytes of a caller are.
pub(super) enum Reading {
    Whole(Box<Request>),
    Partial,
    TooLarge,
    Foreign,
}

/// Reads a request's head off the input, takes it in and writes the head for its callee.
pub(super) fn read(
    origin: &mut Origin,
    input: &mut BytesMut,
    out: &mut BytesMut,
    started: Instant,
) -> Reading {
    let mut storage = [const { std::mem::MaybeUninit::uninit() }; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut []);
    let length = match request.parse_with_uninit_headers(input, &mut storage) {
        Ok(httparse::Status::Complete(length)) if length <= LONGEST_HEAD => length,
        Ok(httparse::Status::Partial) if input.len() < LONGEST_HEAD => return Reading::Partial,
        Ok(_) | Err(httparse::Error::TooManyHeaders) => return Reading::TooLarge,
        Err(_) => return Reading::Foreign,
    };
    let signs = Signs::read(request.headers);
    let Ok(framing) = signs.request_framing() else {
        return Reading::Foreign;
    };
    let method = request.method.unwrap_or_default();
    let head = Head {
        wire: Wire::Http1,
        method,
        path: head::path_of(request.path.unwrap_or_default()),
        headers: Headers::Http1(request.headers),
        context: signs.context.finish(),
        started,
    };
    let slot = origin.slot.clone();
    let call = admit(&slot, origin.route(), &head);
    out.clear();
    head::pass_request(out, &input[..length], request.headers, &signs, &call.outgoing());
    // What is done to it may not be known yet.
    let may_repeat = call.effects.duplicate.is_some() || call.verdict.is_some();
    let copy = may_repeat.then(|| input[..length].to_vec());
    let asked = Asked { head_only: method == "HEAD", tunnel: method == "CONNECT" };
    let close = signs.closes(request.version.unwrap_or(1));
    input.advance(length);
    let expects_continue = signs.expects_continue;
    Reading::Whole(Box::new(Request { call, framing, asked, close, expects_continue, copy }))
}

/// Writes the head of a request once more, with the context of another call.
pub(super) fn write_again(raw: &[u8], out: &mut BytesMut, call: &Call) {
    let mut storage = [const { std::mem::MaybeUninit::uninit() }; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut []);
    if request.parse_with_uninit_headers(raw, &mut storage).is_ok() {
        let signs = Signs::read(request.headers);
        head::pass_request(out, raw, request.headers, &signs, &call.outgoing());
    }
}
