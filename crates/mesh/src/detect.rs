//! Finds out from a client's first bytes what it speaks. Looks at bytes only: the waiting is done elsewhere.

/// What the first bytes show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spoken {
    /// An HTTP/1 request line.
    Http1,
    /// The preface of HTTP/2.
    Http2,
    /// A TLS client hello.
    Tls,
    /// Something else.
    Other,
    /// Too few bytes to tell.
    Unclear,
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const LONGEST_METHOD: usize = 20;

/// Looks at the first bytes of a connection.
pub(crate) fn spoken(bytes: &[u8]) -> Spoken {
    if bytes.is_empty() {
        return Spoken::Unclear;
    }
    if bytes[0] == 0x16 {
        return match bytes.get(1) {
            None => Spoken::Unclear,
            Some(3) => Spoken::Tls,
            Some(_) => Spoken::Other,
        };
    }
    let seen = bytes.len().min(PREFACE.len());
    if bytes[..seen] == PREFACE[..seen] {
        // "PRI" may not be a method of HTTP/1, so the first line decides.
        return if seen >= 16 { Spoken::Http2 } else { Spoken::Unclear };
    }
    // A method of upper-case letters, a space, then a path, a URL, `*` or an authority.
    let method = bytes.iter().take_while(|byte| byte.is_ascii_uppercase() || **byte == b'-').count();
    if method == 0 || method > LONGEST_METHOD {
        return Spoken::Other;
    }
    match (bytes.get(method), bytes.get(method + 1)) {
        (None, _) | (Some(b' '), None) => Spoken::Unclear,
        (Some(b' '), Some(b'/' | b'*' | b'h' | b'H')) => Spoken::Http1,
        (Some(b' '), Some(_)) if &bytes[..method] == b"CONNECT" => Spoken::Http1,
        _ => Spoken::Other,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn first_bytes() {
        let cases: &[(&[u8], Spoken)] = &[
            (b"", Spoken::Unclear),
            (b"GE", Spoken::Unclear),
            (b"GET ", Spoken::Unclear),
            (b"GET / HTTP/1.1\r\n", Spoken::Http1),
            (b"OPTIONS * HTTP/1.1", Spoken::Http1),
            (b"M-SEARCH * HTTP/1.1", Spoken::Http1),
            (b"CONNECT db:1 HTTP/1.1", Spoken::Http1),
            (b"GET http://a/ HTTP/1.1", Spoken::Http1),
            (b"PRI * HT", Spoken::Unclear),
            (PREFACE, Spoken::Http2),
            (b"PRINT /x HTTP/1.1", Spoken::Http1),
            (b"\x16\x03\x01", Spoken::Tls),
            (b"\x16\x04", Spoken::Other),
            (b"*1\r\n$4\r\nPING\r\n", Spoken::Other),
            (b"PING\r\n", Spoken::Other),
            (b"SET a b\r\n", Spoken::Other),
            (b"AMQP\x00\x00\x09\x01", Spoken::Other),
        ];
        for (bytes, expected) in cases {
            assert_eq!(spoken(bytes), *expected, "{:?}", String::from_utf8_lossy(bytes));
        }
    }

    proptest! {
        #[test]
        fn more_bytes_do_not_change_a_verdict(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let mut earlier = Spoken::Unclear;
            for end in 0..=bytes.len() {
                let now = spoken(&bytes[..end]);
                prop_assert!(earlier == Spoken::Unclear || earlier == now);
                earlier = now;
            }
        }
    }
}
