//! A span while it is decoded: every decoder fills one, so that all normalise in the same way.
//!
//! The rules are those of Zipkin's span builder: ids of 1 to 16 or 32 hexadecimal digits, a parent of zeros
//! or the span's own id is none, names in lower case, no `shared` on the client's side, annotations in
//! order and once, the last of equal tags.

use std::borrow::Cow;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use faultscope_model::trace::{Endpoint, ReportedSpan, SpanKind};
use faultscope_model::{SpanId, TraceId};

use super::Limits;

/// With more tags than this, equal keys are found by a map instead of a linear search.
const LOOK_AT_EACH: usize = 16;

/// A span that is being read.
#[derive(Debug)]
pub(super) struct Draft<'l> {
    pub(super) span: ReportedSpan,
    limits: &'l Limits,
    /// The first problem.
    problem: Option<String>,
    keys: HashMap<String, usize>,
}

impl<'l> Draft<'l> {
    pub(super) fn new(limits: &'l Limits) -> Self {
        // Zero means "not read yet": no valid id is zero.
        let span = ReportedSpan::new(TraceId(0), SpanId(0));
        Self { span, limits, problem: None, keys: HashMap::new() }
    }

    pub(super) fn wrong(&mut self, reason: impl Into<String>) {
        if self.problem.is_none() {
            self.problem = Some(reason.into());
        }
    }

    pub(super) fn trace(&mut self, text: &str) {
        match read_trace_id(text) {
            Ok(id) => self.span.trace = id,
            Err(reason) => self.wrong(format!("traceId {reason}")),
        }
    }

    pub(super) fn id(&mut self, text: &str) {
        match read_span_id(text) {
            Ok(Some(id)) => self.span.id = id,
            Ok(None) => self.wrong("id is all zeros"),
            Err(reason) => self.wrong(format!("id {reason}")),
        }
    }

    pub(super) fn parent(&mut self, text: &str) {
        match read_span_id(text) {
            Ok(parent) => self.span.parent = parent,
            Err(reason) => self.wrong(format!("parentId {reason}")),
        }
    }

    pub(super) fn kind(&mut self, text: &str) {
        match text {
            "CLIENT" => self.span.kind = Some(SpanKind::Client),
            "SERVER" => self.span.kind = Some(SpanKind::Server),
            "PRODUCER" => self.span.kind = Some(SpanKind::Producer),
            "CONSUMER" => self.span.kind = Some(SpanKind::Consumer),
            _ => self.wrong("kind is none of CLIENT, SERVER, PRODUCER, CONSUMER"),
        }
    }

    pub(super) fn name(&mut self, text: Cow<'_, str>) {
        self.span.name = lower(cut(text, self.limits));
    }

    /// Zero and below mean unknown.
    pub(super) fn start(&mut self, us: i64) {
        self.span.start_us = u64::try_from(us).ok().filter(|us| *us > 0);
    }

    /// Zero and below mean unknown.
    pub(super) fn duration(&mut self, us: i64) {
        self.span.duration_us = u64::try_from(us).ok().filter(|us| *us > 0);
    }

    pub(super) fn annotation(&mut self, us: i64, value: Cow<'_, str>) {
        if self.span.annotations.len() >= self.limits.annotations {
            self.wrong(format!("it has more than {} annotations", self.limits.annotations));
            return;
        }
        let us = u64::try_from(us).unwrap_or_default();
        self.span.annotations.push((us, cut(value, self.limits).into_owned()));
    }

    /// Sets a tag; of equal keys the last one counts.
    pub(super) fn tag(&mut self, key: Cow<'_, str>, value: Cow<'_, str>) {
        self.put_tag(key, value, true);
    }

    /// Sets a tag unless it exists.
    pub(super) fn tag_if_new(&mut self, key: Cow<'_, str>, value: Cow<'_, str>) {
        self.put_tag(key, value, false);
    }

    fn put_tag(&mut self, key: Cow<'_, str>, value: Cow<'_, str>, replace: bool) {
        let (key, value) = (cut(key, self.limits).into_owned(), cut(value, self.limits).into_owned());
        let tags = &mut self.span.tags;
        let known = if tags.len() < LOOK_AT_EACH {
            tags.iter().position(|(known, _)| *known == key)
        } else {
            if self.keys.is_empty() {
                self.keys.extend(tags.iter().enumerate().map(|(at, (key, _))| (key.clone(), at)));
            }
            self.keys.get(&key).copied()
        };
        if let Some((_, earlier)) = known.and_then(|at| tags.get_mut(at)) {
            if replace {
                *earlier = value;
            }
        } else if tags.len() >= self.limits.tags {
            self.wrong(format!("it has more than {} tags", self.limits.tags));
        } else {
            if !self.keys.is_empty() {
                self.keys.insert(key.clone(), tags.len());
            }
            tags.push((key, value));
        }
    }

    /// The span, if there was no problem.
    pub(super) fn finish(mut self) -> Result<ReportedSpan, String> {
        if let Some(problem) = self.problem {
            return Err(problem);
        }
        if self.span.trace.0 == 0 {
            return Err("traceId is missing".to_owned());
        }
        if self.span.id.0 == 0 {
            return Err("id is missing".to_owned());
        }
        self.span.normalize();
        Ok(self.span)
    }
}

/// Parses a trace id of 1 to 32 hexadecimal digits.
///
/// 16 and 32 digits are equivalent if the high half is zero. Zipkin itself
/// rejects upper case; here it is accepted, because it cannot mean anything else.
pub fn read_trace_id(text: &str) -> Result<TraceId, &'static str> {
    match hex(text, 32)? {
        0 => Err("is all zeros"),
        id => Ok(TraceId(id)),
    }
}

/// Parses a span id of 1 to 16 hexadecimal digits; zero means none.
pub fn read_span_id(text: &str) -> Result<Option<SpanId>, &'static str> {
    // At most 16 digits were read, so the value fits.
    Ok(Some(hex(text, 16)? as u64).filter(|id| *id != 0).map(SpanId))
}

/// A trace id as Zipkin writes it: 16 digits when its high half is zero, else 32.
pub fn zipkin_trace_id(id: TraceId) -> String {
    if id.0 >> 64 == 0 { format!("{:016x}", id.0) } else { format!("{:032x}", id.0) }
}

fn hex(text: &str, most: usize) -> Result<u128, &'static str> {
    if text.is_empty() {
        return Err("is empty");
    }
    if text.len() > most {
        return Err("is too long");
    }
    let mut value = 0u128;
    for byte in text.bytes() {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            b'A'..=b'F' => byte - b'A' + 10,
            _ => return Err("is not hexadecimal"),
        };
        value = value << 4 | u128::from(digit);
    }
    Ok(value)
}

/// The text in lower case.
pub(super) fn lower(text: Cow<'_, str>) -> String {
    if text.bytes().all(|b| b.is_ascii() && !b.is_ascii_uppercase()) {
        text.into_owned()
    } else if text.is_ascii() {
        text.to_ascii_lowercase()
    } else {
        text.to_lowercase()
    }
}

/// Cuts a text to the limit.
pub(super) fn cut<'a>(text: Cow<'a, str>, limits: &Limits) -> Cow<'a, str> {
    if text.len() <= limits.text_bytes {
        return text;
    }
    let mut end = limits.text_bytes;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    match text {
        Cow::Borrowed(text) => Cow::Borrowed(text.get(..end).unwrap_or_default()),
        Cow::Owned(mut text) => {
            text.truncate(end);
            Cow::Owned(text)
        }
    }
}

/// Sets the service of an endpoint; an empty name means none.
pub(super) fn set_service(endpoint: &mut Endpoint, name: Cow<'_, str>, limits: &Limits) {
    endpoint.service = if name.is_empty() { None } else { Some(lower(cut(name, limits))) };
}

/// Sets the address of an endpoint from text; invalid addresses are ignored.
pub(super) fn set_ip_text(endpoint: &mut Endpoint, text: &str) {
    match text.parse() {
        Ok(IpAddr::V4(ip)) => endpoint.ipv4 = Some(IpAddr::V4(ip)),
        // `::1.2.3.4` and `::ffff:1.2.3.4` mean the IPv4 address.
        Ok(IpAddr::V6(ip)) if text.contains('.') => set_embedded(endpoint, ip),
        Ok(IpAddr::V6(ip)) => set_ipv6(endpoint, ip),
        Err(_) => endpoint.ipv4 = padded_ipv4(text).map(IpAddr::V4).or(endpoint.ipv4),
    }
}

/// An IPv4 address with leading zeros, which Zipkin parses as decimal.
fn padded_ipv4(text: &str) -> Option<Ipv4Addr> {
    let mut octets = [0; 4];
    let mut parts = text.split('.');
    for octet in &mut octets {
        let part = parts.next()?;
        let is_number = (1..=3).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit());
        *octet = part.parse().ok().filter(|_| is_number)?;
    }
    parts.next().is_none().then(|| Ipv4Addr::from(octets))
}

/// Sets the address of an endpoint from 4 or 16 bytes; other lengths are ignored.
pub(super) fn set_ip_bytes(endpoint: &mut Endpoint, bytes: &[u8]) {
    if let Ok(ip) = <[u8; 4]>::try_from(bytes) {
        endpoint.ipv4 = Some(IpAddr::V4(Ipv4Addr::from(ip)));
    } else if let Ok(ip) = <[u8; 16]>::try_from(bytes) {
        let ip = Ipv6Addr::from(ip);
        match ip.segments() {
            [0, 0, 0, 0, 0, 0, high, low] if (high, low) != (0, 1) && (high, low) != (0, 0) => {
                set_embedded(endpoint, ip);
            }
            _ => set_ipv6(endpoint, ip),
        }
    }
}

fn set_ipv6(endpoint: &mut Endpoint, ip: Ipv6Addr) {
    match ip.to_ipv4_mapped() {
        Some(ip) => endpoint.ipv4 = Some(IpAddr::V4(ip)),
        None => endpoint.ipv6 = Some(IpAddr::V6(ip)),
    }
}

fn set_embedded(endpoint: &mut Endpoint, ip: Ipv6Addr) {
    let [.., a, b, c, d] = ip.octets();
    endpoint.ipv4 = Some(IpAddr::V4(Ipv4Addr::new(a, b, c, d)));
}
