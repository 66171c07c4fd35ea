//! Redacts spans, and restores them.

use std::io::Read;

use faultscope_model::Span;
use faultscope_model::grpc::{BodySide, Descriptors, is_grpc};
use faultscope_model::redis_commands::is_command;
use faultscope_model::trace::ReportedSpan;

use faultscope_model::secrets::{SecretNames, Suspicion, redact_bytes};

use super::seal::{Original, Place};
use super::values::SecretValues;
use super::{REDACTED, in_grpc, in_json, in_pairs};

/// How much of a compressed body is searched for secrets.
const MAX_INFLATED: u64 = 64 << 10;

pub(super) type OnSecret<'f> = &'f mut dyn FnMut(&[u8]);

const GRPC_BODIES: [(Place, BodySide); 2] =
    [(Place::RequestBody, BodySide::Request), (Place::ResponseBody, BodySide::Response)];

/// Redacts the secrets of a call that are found by name; their values are passed to `found`.
pub(super) fn redact_call(
    rules: &SecretNames,
    descriptors: &Descriptors,
    span: &mut Span,
    found: OnSecret<'_>,
) -> Vec<Original> {
    let mut originals = Vec::new();
    if span.wire.is_opaque() {
        drop_unread_bytes(span);
    }
    let mut keep = |place, index, bytes| originals.push(Original { place, index, bytes });
    if let Some(path) = plain(rules, &span.path, found) {
        keep(Place::Path, 0, std::mem::replace(&mut span.path, path).into_bytes());
    }
    let is_grpc = is_grpc(span);
    if is_grpc {
        for (place, side) in GRPC_BODIES {
            if let Some(redacted) = in_grpc::redact(span, side, descriptors, rules, found) {
                keep(place, 0, in_grpc::replace_body(span, side, redacted));
            }
        }
    }
    let Some(payload) = span.payload.as_deref_mut() else { return originals };
    for (place, headers) in [
        (Place::RequestHeader, &mut payload.request_headers),
        (Place::ResponseHeader, &mut payload.response_headers),
    ] {
        for (index, (name, value)) in headers.iter_mut().enumerate() {
            if let Some(redacted) = header(rules, name, value, found) {
                keep(place, index, std::mem::replace(value, redacted).into_bytes());
            }
        }
    }
    for (place, headers, bytes) in [
        (Place::RequestBody, &payload.request_headers, &mut payload.request_body),
        (Place::ResponseBody, &payload.response_headers, &mut payload.response_body),
    ] {
        if !is_grpc && let Some(redacted) = body(rules, headers, bytes, found) {
            keep(place, 0, std::mem::replace(bytes, redacted));
        }
    }
    originals
}

/// Drops the bytes of a connection that nobody has read: they begin with a log-in. The mesh records none; what an
/// earlier version has recorded is not kept either, not even sealed.
fn drop_unread_bytes(span: &mut Span) {
    let Some(payload) = span.payload.as_deref_mut() else { return };
    payload.response_body.clear();
    let names = std::str::from_utf8(&payload.request_body).unwrap_or_default();
    if !names.split(' ').all(is_command) {
        payload.request_body.clear();
    }
}

/// Redacts values that occurred in a secret place of this or another call.
pub(super) fn sweep(
    known: &mut SecretValues,
    descriptors: &Descriptors,
    span: &mut Span,
    originals: &mut Vec<Original>,
) {
    let mut keep = |place, index, bytes: Vec<u8>| {
        // What was redacted before has been kept as a whole.
        if !originals.iter().any(|o| o.place == place && o.index == index) {
            originals.push(Original { place, index, bytes });
        }
    };
    if let Some(path) = known.replace(span.path.as_bytes()) {
        keep(Place::Path, 0, std::mem::replace(&mut span.path, lossy(path)).into_bytes());
    }
    let is_grpc = is_grpc(span);
    if is_grpc {
        for (place, side) in GRPC_BODIES {
            if let Some(redacted) = in_grpc::sweep(span, side, descriptors, known) {
                keep(place, 0, in_grpc::replace_body(span, side, redacted));
            }
        }
    }
    let Some(payload) = span.payload.as_deref_mut() else { return };
    for (place, headers) in [
        (Place::RequestHeader, &mut payload.request_headers),
        (Place::ResponseHeader, &mut payload.response_headers),
    ] {
        for (index, (_, value)) in headers.iter_mut().enumerate() {
            if let Some(redacted) = known.replace(value.as_bytes()) {
                keep(place, index, std::mem::replace(value, lossy(redacted)).into_bytes());
            }
        }
    }
    for (place, bytes) in
        [(Place::RequestBody, &mut payload.request_body), (Place::ResponseBody, &mut payload.response_body)]
    {
        // Bytes of another length would make a message of gRPC unreadable.
        if !is_grpc && let Some(redacted) = known.replace(bytes) {
            keep(place, 0, std::mem::replace(bytes, redacted));
        }
    }
}

/// Restores the secrets of a call.
pub(crate) fn restore(span: &mut Span, originals: Vec<Original>) {
    for Original { place, index, bytes } in originals {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        if place == Place::Path {
            span.path = text(bytes);
            continue;
        }
        let Some(payload) = span.payload.as_deref_mut() else { continue };
        let headers = match place {
            Place::RequestHeader => &mut payload.request_headers,
            Place::ResponseHeader => &mut payload.response_headers,
            Place::RequestBody => {
                payload.request_body = bytes;
                continue;
            }
            Place::ResponseBody => {
                payload.response_body = bytes;
                continue;
            }
            _ => continue,
        };
        if let Some((_, value)) = headers.get_mut(index) {
            *value = text(bytes);
        }
    }
}

/// Redacts a reported span and returns it with the originals; none if it has no secrets.
pub(super) fn reported(rules: &SecretNames, span: &ReportedSpan) -> Option<(ReportedSpan, Vec<Original>)> {
    let mut known = SecretValues::default();
    let mut found = |value: &[u8]| known.add(value);
    let mut replaced: Vec<(Place, usize, String)> = Vec::new();
    if let Some(name) = plain(rules, &span.name, &mut found) {
        replaced.push((Place::Name, 0, name));
    }
    for (index, (key, value)) in span.tags.iter().enumerate() {
        if let Some(redacted) = tag(rules, key, value, &mut found) {
            replaced.push((Place::Tag, index, redacted));
        }
    }
    for (index, (_, text)) in span.annotations.iter().enumerate() {
        if let Some(redacted) = plain(rules, text, &mut found) {
            replaced.push((Place::Annotation, index, redacted));
        }
    }
    if replaced.is_empty() {
        return None;
    }
    let mut span = span.clone();
    let mut originals = Vec::new();
    for (place, index, redacted) in replaced {
        if let Some(text) = place_of(&mut span, place, index) {
            let bytes = std::mem::replace(text, redacted).into_bytes();
            originals.push(Original { place, index, bytes });
        }
    }
    // The value of a secret tag may also occur in a tag with a harmless name.
    for index in 0..span.tags.len() {
        let value = &mut span.tags[index].1;
        if let Some(redacted) = known.replace(value.as_bytes()) {
            let bytes =
                std::mem::replace(value, String::from_utf8_lossy(&redacted).into_owned()).into_bytes();
            if !originals.iter().any(|o| o.place == Place::Tag && o.index == index) {
                originals.push(Original { place: Place::Tag, index, bytes });
            }
        }
    }
    Some((span, originals))
}

/// Restores the secrets of a reported span.
pub(crate) fn restore_reported(span: &mut ReportedSpan, originals: Vec<Original>) {
    for Original { place, index, bytes } in originals {
        if let Some(text) = place_of(span, place, index) {
            *text = String::from_utf8_lossy(&bytes).into_owned();
        }
    }
}

fn place_of(span: &mut ReportedSpan, place: Place, index: usize) -> Option<&mut String> {
    match place {
        Place::Name => Some(&mut span.name),
        Place::Tag => span.tags.get_mut(index).map(|(_, value)| value),
        Place::Annotation => span.annotations.get_mut(index).map(|(_, text)| text),
        _ => None,
    }
}

fn header(rules: &SecretNames, name: &str, value: &str, found: OnSecret<'_>) -> Option<String> {
    if rules.is_secret_header(name, value.as_bytes()) {
        credential_parts(value, found);
        return Some(REDACTED.to_owned());
    }
    plain(rules, value, found)
}

/// Passes on the parts of a secret header that may occur elsewhere: all of it, the credential after its scheme,
/// the value of each cookie.
fn credential_parts(value: &str, found: OnSecret<'_>) {
    found(value.as_bytes());
    if let Some((_, credential)) = value.split_once(' ') {
        found(credential.trim().as_bytes());
    }
    for cookie in value.split(';') {
        if let Some((name, value)) = cookie.split_once('=') {
            let is_attribute = ["path", "domain", "expires", "max-age", "samesite"]
                .iter()
                .any(|a| name.trim().eq_ignore_ascii_case(a));
            if !is_attribute {
                found(value.trim().as_bytes());
            }
        }
    }
}

/// A text, which may be a URL with a query.
fn plain(rules: &SecretNames, value: &str, found: OnSecret<'_>) -> Option<String> {
    // Pairs of a query are decoded, which a text is not.
    let is_address = value.bytes().any(|byte| byte == b'?' || byte == b'#');
    let address = if is_address { in_pairs::address(value, rules, found) } else { None };
    let shown = address.as_deref().unwrap_or(value);
    redact_bytes(shown.as_bytes(), rules, found).map(lossy).or(address)
}

fn lossy(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

fn tag(rules: &SecretNames, key: &str, value: &str, found: OnSecret<'_>) -> Option<String> {
    if value.is_empty() || value == REDACTED {
        return None;
    }
    // OpenTelemetry's keys for headers end in the header's name.
    let name = ["http.request.header.", "http.response.header.", "rpc.grpc.request.metadata."]
        .iter()
        .find_map(|before| key.strip_prefix(before));
    let suspicion = match name {
        Some(name) => rules.header_suspicion(name),
        None => rules.field_suspicion(key),
    };
    if suspicion != Suspicion::None {
        let bare = value.trim_start_matches(['[', '"']).trim_end_matches([']', '"']);
        if suspicion.hides(bare.as_bytes()) {
            credential_parts(bare, found);
            return Some(REDACTED.to_owned());
        }
    }
    match value.as_bytes().first() {
        Some(b'{' | b'[') => structured(rules, value, found),
        _ if key.ends_with("query") || key == "req" || key == "res" || key.ends_with("body") => {
            uncompressed(rules, value.as_bytes(), found).map(lossy)
        }
        _ => plain(rules, value, found),
    }
}

/// JSON in a tag: a body, or headers as pairs or as an object.
fn structured(rules: &SecretNames, value: &str, found: OnSecret<'_>) -> Option<String> {
    if value.starts_with("[[")
        && let Ok(mut headers) = serde_json::from_str::<Vec<(String, String)>>(value)
    {
        let mut any = false;
        for (name, value) in &mut headers {
            if let Some(redacted) = header(rules, name, value, found) {
                *value = redacted;
                any = true;
            }
        }
        return any.then(|| serde_json::to_string(&headers).unwrap_or_default());
    }
    uncompressed(rules, value.as_bytes(), found).map(lossy)
}

/// A body without its secrets; none if it has none.
fn body(
    rules: &SecretNames,
    headers: &[(String, String)],
    bytes: &[u8],
    found: OnSecret<'_>,
) -> Option<Vec<u8>> {
    if bytes.is_empty() || bytes == REDACTED.as_bytes() {
        return None;
    }
    let encoding = headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("content-encoding"));
    match encoding.map(|(_, value)| value.trim().to_ascii_lowercase()).as_deref() {
        None | Some("identity" | "") => uncompressed(rules, bytes, found),
        Some(encoding) => {
            let plain = inflated(bytes, encoding);
            // Part of a compressed body cannot be replaced, so all of it is. Nobody can tell what one holds that cannot
            // be decompressed here.
            let is_secret = plain.is_empty() || uncompressed(rules, &plain, found).is_some();
            is_secret.then(|| REDACTED.as_bytes().to_vec())
        }
    }
}

/// A body or a text without its secrets; none if it has none.
pub(super) fn uncompressed(rules: &SecretNames, bytes: &[u8], found: OnSecret<'_>) -> Option<Vec<u8>> {
    if let Some(text) = utf16_text(bytes) {
        // As UTF-8: those who read it see the same.
        return uncompressed(rules, text.as_bytes(), found);
    }
    let structured = if in_json::is_json(bytes) {
        in_json::redact(bytes, rules, found)
    } else if bytes.trim_ascii_start().starts_with(b"--") {
        in_pairs::multipart(bytes, rules, found)
    } else {
        form_text(bytes).and_then(|form| in_pairs::form(form, rules, found)).map(String::into_bytes)
    };
    // Texts in it may hold anything: statements, messages, other bodies.
    redact_bytes(structured.as_deref().unwrap_or(bytes), rules, found).or(structured)
}

/// A body that looks like a form. Its last letter may be cut.
fn form_text(bytes: &[u8]) -> Option<&str> {
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) if error.valid_up_to() + 4 > bytes.len() => {
            std::str::from_utf8(&bytes[..error.valid_up_to()]).ok()?
        }
        Err(_) => return None,
    };
    in_pairs::is_form(text).then_some(text)
}

/// The text of a body that begins with the byte order mark of UTF-16.
fn utf16_text(bytes: &[u8]) -> Option<String> {
    let read: fn([u8; 2]) -> u16 = match bytes.first_chunk()? {
        [0xff, 0xfe] => u16::from_le_bytes,
        [0xfe, 0xff] => u16::from_be_bytes,
        _ => return None,
    };
    let units = bytes[2..].chunks_exact(2).map(|pair| read([pair[0], pair[1]]));
    Some(char::decode_utf16(units).map(|letter| letter.unwrap_or(char::REPLACEMENT_CHARACTER)).collect())
}

/// The beginning of a compressed body, as far as it can be decompressed.
fn inflated(bytes: &[u8], encoding: &str) -> Vec<u8> {
    let mut plain = Vec::new();
    let mut read = |reader: &mut dyn Read| drop(reader.take(MAX_INFLATED).read_to_end(&mut plain));
    match encoding {
        "gzip" | "x-gzip" => read(&mut flate2::read::GzDecoder::new(bytes)),
        "deflate" => read(&mut flate2::read::ZlibDecoder::new(bytes)),
        _ => {}
    }
    plain
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use faultscope_model::{SecretRules, SpanId, TraceId};

    use super::*;

    #[test]
    fn tags_of_tracers_lose_their_secrets_and_get_them_back() {
        let rules = SecretNames::new(&SecretRules::default());
        let mut span = ReportedSpan::new(TraceId(1), SpanId(1));
        span.name = "get /x?token=QQQQQQQQ1".into();
        for (key, value) in [
            ("http.request.header.authorization", r#"["Bearer QQQQQQQQ2"]"#),
            ("http.request.header.accept", "text/html"),
            ("url.full", "http://u:QQQQQQQQ3@front/x?a=1&api_key=QQQQQQQQ4"),
            ("url.query", "a=1&token=QQQQQQQQ5"),
            ("req_headers", r#"[["accept","*/*"],["Cookie","sid=QQQQQQQQ6"]]"#),
            ("req", r#"{"user":"ann","password":"QQQQQQQQ7"}"#),
            ("res", "password=QQQQQQQQ8&x=1"),
            ("db.connection_string", "postgres://app:QQQQQQQQ9@db/x"),
            ("note", "the cookie was QQQQQQQQ6"),
            ("user.password", "QQQQQQQQ0"),
        ] {
            span.tags.push((key.into(), value.into()));
        }
        span.annotations.push((1, "sent Bearer QQQQQQQQa".into()));
        let (redacted, originals) = reported(&rules, &span).unwrap();
        let shown = serde_json::to_string(&redacted).unwrap();
        assert!(!shown.contains("QQQQ"), "{shown}");
        assert_eq!(redacted.tags[2].1, "http://[redacted]@front/x?a=1&api_key=[redacted]");
        assert_eq!(redacted.tags[4].1, r#"[["accept","*/*"],["Cookie","[redacted]"]]"#);
        assert_eq!(redacted.tags[1], span.tags[1]);
        assert_eq!(reported(&rules, &redacted), None, "once is enough");
        let mut back = redacted;
        restore_reported(&mut back, originals);
        assert_eq!(back, span);
    }

    #[test]
    fn compressed_bodies_are_hidden_as_a_whole() {
        let rules = SecretNames::new(&SecretRules::default());
        let packed = |text: &str| {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(text.as_bytes()).unwrap();
            encoder.finish().unwrap()
        };
        let headers = [("Content-Encoding".to_owned(), "gzip".to_owned())];
        let with = |text: &str| body(&rules, &headers, &packed(text), &mut |_| {});
        assert_eq!(with(r#"{"password":"x"}"#).unwrap(), REDACTED.as_bytes());
        assert_eq!(with(r#"{"a":"x"}"#), None);
        assert_eq!(body(&rules, &headers, b"not compressed", &mut |_| {}).unwrap(), REDACTED.as_bytes());
        let brotli = [("content-encoding".to_owned(), "br".to_owned())];
        assert_eq!(body(&rules, &brotli, b"\x0b\x02\x80{}\x03", &mut |_| {}).unwrap(), REDACTED.as_bytes());
    }
}
