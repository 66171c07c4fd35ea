//! Heads of HTTP/1: what they say about their message, and how they are passed on.
//!
//! A head goes on byte by byte as it came, but for options that end at this hop and for trace context.

use bytes::BytesMut;

use super::framing::Framing;
use crate::context::{self, Collector, Outgoing};

/// Bounds of a head.
pub(super) const MAX_HEADERS: usize = 128;
pub(super) const LONGEST_HEAD: usize = 64 * 1024;

/// What the headers of a message say about it.
#[derive(Debug, Default)]
pub(super) struct Signs {
    length: Option<u64>,
    lengths_differ: bool,
    is_chunked: bool,
    has_coding: bool,
    pub(super) close: bool,
    keep_alive: bool,
    pub(super) upgrade: bool,
    pub(super) expects_continue: bool,
    /// Some option of `Connection` names a header that must not go on.
    has_private_options: bool,
    has_settings: bool,
    pub(super) context: Collector,
}

/// Headers cannot be followed: the message has no clear end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ambiguous;

impl Signs {
    pub(super) fn read(headers: &[httparse::Header<'_>]) -> Self {
        let mut signs = Self::default();
        for header in headers {
            signs.see(header.name, header.value);
        }
        signs
    }

    fn see(&mut self, name: &str, value: &[u8]) {
        match name.len() {
            6 if name.eq_ignore_ascii_case("expect") => {
                self.expects_continue = value.trim_ascii().eq_ignore_ascii_case(b"100-continue");
            }
            10 if name.eq_ignore_ascii_case("connection") => {
                for option in options(value) {
                    match option {
                        _ if option.eq_ignore_ascii_case(b"close") => self.close = true,
                        _ if option.eq_ignore_ascii_case(b"keep-alive") => self.keep_alive = true,
                        _ if option.eq_ignore_ascii_case(b"upgrade") => self.upgrade = true,
                        _ => self.has_private_options = true,
                    }
                }
            }
            14 if name.eq_ignore_ascii_case("content-length") => self.see_length(value),
            14 if name.eq_ignore_ascii_case("http2-settings") => self.has_settings = true,
            17 if name.eq_ignore_ascii_case("transfer-encoding") => {
                self.has_coding = true;
                self.is_chunked =
                    options(value).last().is_some_and(|last| last.eq_ignore_ascii_case(b"chunked"));
            }
            _ => self.context.see(name, value),
        }
    }

    fn see_length(&mut self, value: &[u8]) {
        for part in options(value) {
            let length =
                std::str::from_utf8(part).ok().filter(|text| text.bytes().all(|b| b.is_ascii_digit()));
            let length = length.and_then(|text| text.parse().ok());
            self.lengths_differ |= length.is_none() || self.length.is_some_and(|known| Some(known) != length);
            self.length = self.length.or(length);
        }
    }

    /// The framing of a request's body.
    pub(super) fn request_framing(&self) -> Result<Framing, Ambiguous> {
        match (self.has_coding, self.length) {
            (true, _) if self.is_chunked => Ok(Framing::chunked()),
            (true, _) => Err(Ambiguous),
            (false, _) if self.lengths_differ => Err(Ambiguous),
            (false, length) => Ok(Framing::length(length.unwrap_or(0))),
        }
    }

    /// The framing of an answer's body, when it has one.
    pub(super) fn answer_framing(&self) -> Result<Framing, Ambiguous> {
        match (self.has_coding, self.length) {
            (true, _) if self.is_chunked => Ok(Framing::chunked()),
            (true, _) | (false, None) if !self.lengths_differ => Ok(Framing::UntilClose),
            (false, Some(length)) if !self.lengths_differ => Ok(Framing::length(length)),
            _ => Err(Ambiguous),
        }
    }

    /// Whether the sender closes after this message.
    pub(super) fn closes(&self, version: u8) -> bool {
        self.close || (version == 0 && !self.keep_alive)
    }

    /// Whether the head may go on as it is, trace context aside.
    fn is_verbatim(&self) -> bool {
        let contradicts_itself = self.has_coding && self.length.is_some();
        !(self.has_private_options || self.has_settings || contradicts_itself)
    }
}

/// Writes a request's head for its callee: its own trace context in place of the old.
pub(super) fn pass_request(
    out: &mut BytesMut,
    raw: &[u8],
    headers: &[httparse::Header<'_>],
    signs: &Signs,
    outgoing: &Outgoing,
) {
    let end = copy_without(out, raw, headers, |name, value| {
        context::is_context_header(name) || is_private(headers, signs, name, value)
    });
    outgoing.write(|name, value| put(out, name.as_bytes(), value));
    put_options(out, headers, signs);
    out.extend_from_slice(&raw[end..]);
}

/// Writes an answer's head for its caller.
pub(super) fn pass_answer(out: &mut BytesMut, raw: &[u8], headers: &[httparse::Header<'_>], signs: &Signs) {
    if signs.is_verbatim() {
        return out.extend_from_slice(raw);
    }
    let end = copy_without(out, raw, headers, |name, value| is_private(headers, signs, name, value));
    put_options(out, headers, signs);
    out.extend_from_slice(&raw[end..]);
}

/// Writes a head of the mesh's own, for rules that answer in the callee's place.
pub(super) fn write_answer(out: &mut BytesMut, status: u16, close: bool) {
    let length = (status >= 200 && status != 204).then_some("0");
    write_head(out, status, &[], length, close);
}

/// Writes a head of these headers, with the length of what follows.
pub(super) fn write_head(
    out: &mut BytesMut,
    status: u16,
    headers: &[httparse::Header<'_>],
    length: Option<&str>,
    close: bool,
) {
    let reason = http::StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason());
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(status.to_string().as_bytes());
    out.extend_from_slice(b" ");
    out.extend_from_slice(reason.unwrap_or("Unknown").as_bytes());
    out.extend_from_slice(b"\r\n");
    for header in headers {
        put(out, header.name.as_bytes(), header.value);
    }
    if let Some(length) = length {
        put(out, b"content-length", length.as_bytes());
    }
    if close {
        put(out, b"connection", b"close");
    }
    out.extend_from_slice(b"\r\n");
}

/// Copies a head but for some headers, up to the empty line; gives where that begins.
fn copy_without(
    out: &mut BytesMut,
    raw: &[u8],
    headers: &[httparse::Header<'_>],
    unwanted: impl Fn(&str, &[u8]) -> bool,
) -> usize {
    // The head ends with an empty line, of two bytes or of one.
    let end = raw.len() - if raw.ends_with(b"\r\n") { 2 } else { 1 };
    let mut copied = 0;
    for header in headers {
        if !unwanted(header.name, header.value) {
            continue;
        }
        let begin = header.name.as_ptr() as usize - raw.as_ptr() as usize;
        let value_end = if header.value.is_empty() {
            begin + header.name.len()
        } else {
            header.value.as_ptr() as usize - raw.as_ptr() as usize + header.value.len()
        };
        let line_end =
            raw[value_end..].iter().position(|byte| *byte == b'\n').map_or(end, |at| value_end + at + 1);
        out.extend_from_slice(&raw[copied..begin]);
        copied = line_end;
    }
    out.extend_from_slice(&raw[copied..end]);
    end
}

/// Whether a header ends at this hop. `Connection` itself is written anew when some of its options do.
fn is_private(headers: &[httparse::Header<'_>], signs: &Signs, name: &str, value: &[u8]) -> bool {
    if signs.is_verbatim() {
        return false;
    }
    match name.len() {
        4 if name.eq_ignore_ascii_case("host") => false,
        10 if name.eq_ignore_ascii_case("connection") => true,
        // The caller would speak HTTP/2 from here on, unseen; without the offer it stays with HTTP/1.
        7 if name.eq_ignore_ascii_case("upgrade") => signs.has_settings && value.eq_ignore_ascii_case(b"h2c"),
        14 if name.eq_ignore_ascii_case("http2-settings") => true,
        // Chunks win over a length that says otherwise.
        14 if name.eq_ignore_ascii_case("content-length") => signs.has_coding,
        17 if name.eq_ignore_ascii_case("transfer-encoding") => false,
        _ => connection_options(headers).any(|option| option.eq_ignore_ascii_case(name.as_bytes())),
    }
}

fn put_options(out: &mut BytesMut, headers: &[httparse::Header<'_>], signs: &Signs) {
    if signs.is_verbatim() {
        return;
    }
    for option in connection_options(headers) {
        let is_public = [&b"close"[..], b"keep-alive", b"upgrade"]
            .iter()
            .any(|public| option.eq_ignore_ascii_case(public));
        if is_public && !(signs.has_settings && option.eq_ignore_ascii_case(b"upgrade")) {
            put(out, b"connection", option);
        }
    }
}

fn connection_options<'a>(headers: &'a [httparse::Header<'a>]) -> impl Iterator<Item = &'a [u8]> {
    headers
        .iter()
        .filter(|header| header.name.eq_ignore_ascii_case("connection"))
        .flat_map(|header| options(header.value))
}

fn options(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).filter(|option| !option.is_empty())
}

fn put(out: &mut BytesMut, name: &[u8], value: &[u8]) {
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// The path and query of a request target, without scheme and authority.
pub(super) fn path_of(target: &str) -> &str {
    if target.starts_with('/') {
        return target;
    }
    match target.split_once("://") {
        Some((_, rest)) => rest.find('/').map_or("/", |at| &rest[at..]),
        None => target,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_request<T>(text: &str, check: impl FnOnce(&[httparse::Header<'_>], &Signs) -> T) -> T {
        let mut storage = [httparse::EMPTY_HEADER; 16];
        let mut request = httparse::Request::new(&mut storage);
        assert!(request.parse(text.as_bytes()).unwrap().is_complete());
        let signs = Signs::read(request.headers);
        check(request.headers, &signs)
    }

    fn passed(text: &str) -> String {
        let mut out = BytesMut::new();
        with_request(text, |headers, signs| pass_answer(&mut out, text.as_bytes(), headers, signs));
        String::from_utf8(out.to_vec()).unwrap()
    }

    #[test]
    fn what_has_no_options_goes_on_as_it_is() {
        let head = "GET / HTTP/1.1\r\nHOST: a\r\nConnection: keep-alive\r\nKeep-Alive: timeout=5\r\n\r\n";
        assert_eq!(passed(head), head);
    }

    #[test]
    fn options_end_here() {
        let head = "GET / HTTP/1.1\r\nHost: a\r\nConnection: X-Hop, close\r\nX-Hop: 1\r\nX-Stays: 2\r\n\r\n";
        assert_eq!(passed(head), "GET / HTTP/1.1\r\nHost: a\r\nX-Stays: 2\r\nconnection: close\r\n\r\n");
    }

    #[test]
    fn offers_of_clear_http2_are_declined() {
        let head = "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAM\r\n\r\n";
        assert_eq!(passed(head), "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    }

    #[test]
    fn framings() {
        let request = |headers: &str| {
            with_request(&format!("POST / HTTP/1.1\r\n{headers}\r\n"), |_, signs| signs.request_framing())
        };
        assert_eq!(request(""), Ok(Framing::Done));
        assert_eq!(request("Content-Length: 5\r\n"), Ok(Framing::Length(5)));
        assert_eq!(request("Content-Length: 5, 5\r\n"), Ok(Framing::Length(5)));
        assert_eq!(request("Content-Length: 5\r\nContent-Length: 6\r\n"), Err(Ambiguous));
        assert_eq!(request("Content-Length: +5\r\n"), Err(Ambiguous));
        assert_eq!(request("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"), Ok(Framing::chunked()));
        assert_eq!(request("Transfer-Encoding: gzip\r\n"), Err(Ambiguous));
        let answer = |headers: &str| {
            with_request(&format!("POST / HTTP/1.1\r\n{headers}\r\n"), |_, signs| signs.answer_framing())
        };
        assert_eq!(answer(""), Ok(Framing::UntilClose));
        assert_eq!(answer("Transfer-Encoding: gzip\r\n"), Ok(Framing::UntilClose));
    }

    #[test]
    fn paths() {
        assert_eq!(path_of("/a?b"), "/a?b");
        assert_eq!(path_of("http://host:1/a?b"), "/a?b");
        assert_eq!(path_of("http://host"), "/");
        assert_eq!(path_of("*"), "*");
    }
}
