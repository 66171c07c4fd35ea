//! Reads Zipkin v2 JSON: lists of spans, lists of traces, and one span or list per line.

use std::borrow::Cow;
use std::fmt;

use faultscope_model::trace::{Endpoint, ReportedSpan};
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::endpoint::EndpointSeed;
use super::{V1_JSON, V2_JSON, too_many};
use crate::interop::draft::Draft;
use crate::interop::json::{Number, Text, each_element, each_raw, plain};
use crate::interop::{DecodeError, Decoded, Limits};

/// Reads a list of spans.
///
/// Spans that look like v1 are rejected; when nothing else is there, the whole body is.
pub fn v2_json(body: &[u8], limits: &Limits) -> Result<Decoded, DecodeError> {
    let mut reading = Reading::default();
    each_element(body, SpanSeed(limits), V2_JSON, |index, span| reading.take(index, span, limits))?;
    reading.finish()
}

/// Reads a list of lists of spans, as Zipkin answers searches; the spans come one after the other.
pub fn v2_traces(body: &[u8], limits: &Limits) -> Result<Decoded, DecodeError> {
    let mut reading = Reading::default();
    let mut count = 0;
    if body.iter().all(u8::is_ascii_whitespace) {
        return Ok(Decoded::default());
    }
    let body =
        std::str::from_utf8(body).map_err(|error| DecodeError::malformed(V2_JSON, error.to_string()))?;
    each_raw(body, V2_JSON, |_, trace| {
        each_element(trace.get().as_bytes(), SpanSeed(limits), V2_JSON, |_, span| {
            let index = count;
            count += 1;
            reading.take(index, span, limits)
        })
    })?;
    reading.finish()
}

/// Reads lines with a span, or a list of spans, each.
pub fn v2_lines(body: &[u8], limits: &Limits) -> Result<Decoded, DecodeError> {
    let mut reading = Reading::default();
    let mut count = 0;
    for line in body.split(|byte| *byte == b'\n') {
        let line = line.trim_ascii();
        if line.first() == Some(&b'[') {
            each_element(line, SpanSeed(limits), V2_JSON, |_, span| {
                let index = count;
                count += 1;
                reading.take(index, span, limits)
            })?;
        } else if !line.is_empty() {
            let mut deserializer = serde_json::Deserializer::from_slice(line);
            let span = SpanSeed(limits).deserialize(&mut deserializer);
            let span = span.and_then(|span| deserializer.end().map(|()| span));
            reading.take(count, span.map_err(|error| plain(&error)), limits)?;
            count += 1;
        }
    }
    reading.finish()
}

#[derive(Default)]
struct Reading {
    out: Decoded,
    n_v1: usize,
}

impl Reading {
    fn take(
        &mut self,
        index: usize,
        span: Result<SpanRead, String>,
        limits: &Limits,
    ) -> Result<(), DecodeError> {
        if index >= limits.items {
            return Err(too_many(limits));
        }
        match span {
            Ok(SpanRead { is_v1: true, .. }) => {
                self.n_v1 += 1;
                self.out.reject(index, "it is a Zipkin v1 span");
            }
            Ok(SpanRead { span, .. }) => self.out.add(index, span, limits)?,
            Err(reason) => self.out.reject(index, reason),
        }
        Ok(())
    }

    fn finish(self) -> Result<Decoded, DecodeError> {
        if self.out.items.is_empty() && self.n_v1 > 0 {
            return Err(DecodeError::WrongFormat { expected: V2_JSON, found: V1_JSON });
        }
        Ok(self.out)
    }
}

struct SpanRead {
    span: Result<ReportedSpan, String>,
    is_v1: bool,
}

#[derive(Clone, Copy)]
struct SpanSeed<'l>(&'l Limits);

impl<'de> DeserializeSeed<'de> for SpanSeed<'_> {
    type Value = SpanRead;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<SpanRead, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for SpanSeed<'_> {
    type Value = SpanRead;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a span")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<SpanRead, A::Error> {
        let mut draft = Draft::new(self.0);
        let mut is_v1 = false;
        while let Some(key) = map.next_key::<Text<'de>>()? {
            match key.0.as_ref() {
                "traceId" => text(&mut map, |text| draft.trace(&text))?,
                "id" => text(&mut map, |text| draft.id(&text))?,
                "parentId" => text(&mut map, |text| draft.parent(&text))?,
                "kind" => text(&mut map, |text| draft.kind(&text))?,
                "name" => text(&mut map, |text| draft.name(text))?,
                "timestamp" => {
                    draft.start(map.next_value::<Option<Number>>()?.map_or(0, Number::micros));
                }
                "duration" => {
                    let number = map.next_value::<Option<Number>>()?;
                    draft.duration(number.map_or(0, Number::micros_at_least_one));
                }
                "localEndpoint" => draft.span.local = endpoint(&mut map, &mut draft, self.0)?,
                "remoteEndpoint" => draft.span.remote = endpoint(&mut map, &mut draft, self.0)?,
                "tags" => map.next_value_seed(Tags(&mut draft))?,
                "annotations" => is_v1 |= map.next_value_seed(Annotations(&mut draft))?,
                "debug" => draft.span.debug = map.next_value::<Option<bool>>()?.unwrap_or_default(),
                "shared" => draft.span.shared = map.next_value::<Option<bool>>()?.unwrap_or_default(),
                "binaryAnnotations" => {
                    is_v1 = true;
                    map.next_value::<IgnoredAny>()?;
                }
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(SpanRead { span: draft.finish(), is_v1 })
    }
}

fn text<'de, A: MapAccess<'de>>(map: &mut A, set: impl FnOnce(Cow<'de, str>)) -> Result<(), A::Error> {
    if let Some(Text(text)) = map.next_value()? {
        set(text);
    }
    Ok(())
}

fn endpoint<'de, A: MapAccess<'de>>(
    map: &mut A,
    draft: &mut Draft<'_>,
    limits: &Limits,
) -> Result<Endpoint, A::Error> {
    let (endpoint, wrong) = map.next_value_seed(EndpointSeed(limits))?;
    if let Some(port) = wrong {
        draft.wrong(format!("{port} is not a port"));
    }
    Ok(endpoint.unwrap_or_default())
}

struct Tags<'d, 'l>(&'d mut Draft<'l>);

impl<'de> DeserializeSeed<'de> for Tags<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Tags<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("tags with texts as values")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(Text(key)) = map.next_key::<Text<'de>>()? {
            match map.next_value::<Option<Text<'de>>>()? {
                Some(Text(value)) => self.0.tag(key, value),
                None => {
                    self.0.wrong(format!("tag `{}` has no value", key.chars().take(80).collect::<String>()))
                }
            }
        }
        Ok(())
    }
}

/// Reads annotations; says whether one has an endpoint, which only v1 has.
struct Annotations<'d, 'l>(&'d mut Draft<'l>);

impl<'de> DeserializeSeed<'de> for Annotations<'_, '_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Annotations<'_, '_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of annotations")
    }

    fn visit_unit<E>(self) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<bool, A::Error> {
        let mut is_v1 = false;
        while let Some(annotation) = sequence.next_element::<Annotation<'de>>()? {
            is_v1 |= annotation.endpoint.is_some();
            match (annotation.timestamp, annotation.value) {
                (Some(us), Some(Text(value))) => self.0.annotation(us.micros(), value),
                _ => self.0.wrong("an annotation has no timestamp or no value"),
            }
        }
        Ok(is_v1)
    }
}

#[derive(serde::Deserialize)]
struct Annotation<'a> {
    timestamp: Option<Number>,
    #[serde(borrow)]
    value: Option<Text<'a>>,
    endpoint: Option<IgnoredAny>,
}
