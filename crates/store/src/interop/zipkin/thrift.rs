//! Decodes Zipkin v1 spans in Thrift's binary protocol: a list of structs, by hand and bounded.

use std::borrow::Cow;

use faultscope_model::trace::Endpoint;

use super::v1::{Annotation, BinaryAnnotation, V1Span};
use super::{V1_THRIFT, too_many};
use crate::interop::draft::{cut, set_ip_bytes, set_service};
use crate::interop::{DecodeError, Decoded, Limits};

/// The deepest nesting of unknown fields.
const DEPTH: usize = 32;

const STOP: u8 = 0;
const BOOL: u8 = 2;
const BYTE: u8 = 3;
const DOUBLE: u8 = 4;
const I16: u8 = 6;
const I32: u8 = 8;
const I64: u8 = 10;
const STRING: u8 = 11;
const STRUCT: u8 = 12;
const MAP: u8 = 13;
const SET: u8 = 14;
const LIST: u8 = 15;

/// Decodes a list of spans.
pub fn v1_thrift(body: &[u8], limits: &Limits) -> Result<Decoded, DecodeError> {
    let mut out = Decoded::default();
    if body.is_empty() {
        return Ok(out);
    }
    let malformed = |reason| DecodeError::malformed(V1_THRIFT, reason);
    let mut reader = Reader { rest: body, limits };
    let count = reader.list().map_err(malformed)?;
    if count > limits.items {
        return Err(too_many(limits));
    }
    for index in 0..count {
        // Structs have no length: after a broken one the next cannot be found.
        match reader.span().map_err(malformed)?.convert(limits) {
            Ok(spans) if out.items.len() + spans.len() > limits.items => return Err(too_many(limits)),
            Ok(spans) => spans.into_iter().try_for_each(|span| out.add(index, Ok(span), limits))?,
            Err(reason) => out.reject(index, reason),
        }
    }
    Ok(out)
}

type Read<T> = Result<T, &'static str>;

struct Reader<'a, 'l> {
    rest: &'a [u8],
    limits: &'l Limits,
}

impl<'a> Reader<'a, '_> {
    fn take(&mut self, n: usize) -> Read<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(n).ok_or("it ends too early")?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Read<[u8; N]> {
        let (taken, rest) = self.rest.split_first_chunk::<N>().ok_or("it ends too early")?;
        self.rest = rest;
        Ok(*taken)
    }

    fn byte(&mut self) -> Read<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn i32(&mut self) -> Read<i32> {
        self.array().map(i32::from_be_bytes)
    }

    fn i64(&mut self) -> Read<i64> {
        self.array().map(i64::from_be_bytes)
    }

    fn id(&mut self) -> Read<u64> {
        self.array().map(u64::from_be_bytes)
    }

    fn bytes(&mut self) -> Read<&'a [u8]> {
        let length = usize::try_from(self.i32()?).map_err(|_| "a length is negative")?;
        self.take(length)
    }

    /// Invalid UTF-8 is replaced, as Zipkin does.
    fn text(&mut self) -> Read<Cow<'a, str>> {
        Ok(cut(String::from_utf8_lossy(self.bytes()?), self.limits))
    }

    /// The type and number of the next field; none at the end of a struct.
    fn field(&mut self) -> Read<Option<(u8, i16)>> {
        match self.byte()? {
            STOP => Ok(None),
            kind => Ok(Some((kind, self.array().map(i16::from_be_bytes)?))),
        }
    }

    /// The length of a list of structs, each of which takes at least a byte.
    fn list(&mut self) -> Read<usize> {
        // Some reporters wrote the type of texts (zipkin-reporter-java issue 133).
        if !matches!(self.byte()?, STRUCT | STRING) {
            return Err("it is no list of structs");
        }
        let length = usize::try_from(self.i32()?).map_err(|_| "a length is negative")?;
        if length > self.rest.len() { Err("it ends too early") } else { Ok(length) }
    }

    fn span(&mut self) -> Read<V1Span> {
        let mut span = V1Span::default();
        while let Some((kind, number)) = self.field()? {
            match (number, kind) {
                (1, I64) => span.trace_low = self.id()?,
                (12, I64) => span.trace_high = self.id()?,
                (3, STRING) => span.name = self.text()?.into_owned(),
                (4, I64) => span.id = self.id()?,
                (5, I64) => span.parent = self.id()?,
                (6, LIST) => {
                    for _ in 0..self.list()? {
                        if let Some(annotation) = self.annotation()? {
                            span.annotate(annotation, self.limits);
                        }
                    }
                }
                (8, LIST) => {
                    for _ in 0..self.list()? {
                        if let Some(annotation) = self.binary_annotation()? {
                            span.annotate_binary(annotation, self.limits);
                        }
                    }
                }
                (9, BOOL) => span.debug = self.byte()? == 1,
                (10, I64) => span.start_us = self.i64()?,
                (11, I64) => span.duration_us = self.i64()?,
                _ => self.skip(kind, DEPTH)?,
            }
        }
        Ok(span)
    }

    fn annotation(&mut self) -> Read<Option<Annotation>> {
        let (mut us, mut value, mut endpoint) = (0, None, None);
        while let Some((kind, number)) = self.field()? {
            match (number, kind) {
                (1, I64) => us = self.i64()?,
                (2, STRING) => value = Some(self.text()?.into_owned()),
                (3, STRUCT) => endpoint = Some(self.endpoint()?),
                _ => self.skip(kind, DEPTH)?,
            }
        }
        Ok(value.filter(|_| us != 0).map(|value| Annotation { us, value, endpoint }))
    }

    fn binary_annotation(&mut self) -> Read<Option<BinaryAnnotation>> {
        let (mut key, mut value, mut kind_of_value, mut endpoint) = (None, None, -1, None);
        while let Some((kind, number)) = self.field()? {
            match (number, kind) {
                (1, STRING) => key = Some(self.text()?.into_owned()),
                (2, STRING) => value = Some(self.bytes()?),
                (3, I32) => kind_of_value = self.i32()?,
                (4, STRUCT) => endpoint = Some(self.endpoint()?),
                _ => self.skip(kind, DEPTH)?,
            }
        }
        let (Some(key), Some(value)) = (key, value) else { return Ok(None) };
        let value = match kind_of_value {
            0 if value == [1] && endpoint.is_some() => None,
            6 => Some(cut(String::from_utf8_lossy(value), self.limits).into_owned()),
            // Zipkin drops numbers; as text they stay readable.
            other => match number_text(other, value) {
                Some(text) => Some(text),
                None => return Ok(None),
            },
        };
        Ok(Some(BinaryAnnotation { key, value, endpoint }))
    }

    fn endpoint(&mut self) -> Read<Endpoint> {
        let mut endpoint = Endpoint::default();
        while let Some((kind, number)) = self.field()? {
            match (number, kind) {
                (1, I32) => match self.array::<4>()? {
                    [0, 0, 0, 0] => {}
                    ip => set_ip_bytes(&mut endpoint, &ip),
                },
                (2, I16) => {
                    endpoint.port = Some(self.array().map(u16::from_be_bytes)?).filter(|port| *port != 0)
                }
                (3, STRING) => set_service(&mut endpoint, self.text()?, self.limits),
                (4, STRING) => set_ip_bytes(&mut endpoint, self.bytes()?),
                _ => self.skip(kind, DEPTH)?,
            }
        }
        Ok(endpoint)
    }

    fn skip(&mut self, kind: u8, depth: usize) -> Read<()> {
        let depth = depth.checked_sub(1).ok_or("it is nested too deeply")?;
        match kind {
            BOOL | BYTE => drop(self.take(1)?),
            I16 => drop(self.take(2)?),
            I32 => drop(self.take(4)?),
            DOUBLE | I64 => drop(self.take(8)?),
            STRING => drop(self.bytes()?),
            STRUCT => {
                while let Some((kind, _)) = self.field()? {
                    self.skip(kind, depth)?;
                }
            }
            LIST | SET | MAP => {
                let key = self.byte()?;
                let value = if kind == MAP { Some(self.byte()?) } else { None };
                let length = usize::try_from(self.i32()?).map_err(|_| "a length is negative")?;
                if length > self.rest.len() {
                    return Err("it ends too early");
                }
                for _ in 0..length {
                    self.skip(key, depth)?;
                    if let Some(value) = value {
                        self.skip(value, depth)?;
                    }
                }
            }
            _ => return Err("a field has an unknown type"),
        }
        Ok(())
    }
}

/// The text of a number of one of Zipkin's annotation types: I16, I32, I64, DOUBLE.
fn number_text(kind: i32, bytes: &[u8]) -> Option<String> {
    Some(match kind {
        2 => i16::from_be_bytes(bytes.try_into().ok()?).to_string(),
        3 => i32::from_be_bytes(bytes.try_into().ok()?).to_string(),
        4 => i64::from_be_bytes(bytes.try_into().ok()?).to_string(),
        5 => f64::from_be_bytes(bytes.try_into().ok()?).to_string(),
        _ => return None,
    })
}
