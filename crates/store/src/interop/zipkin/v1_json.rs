//! Decodes Zipkin v1 JSON.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::endpoint::EndpointSeed;
use super::v1::{Annotation, BinaryAnnotation, V1Span};
use super::{V1_JSON, V2_JSON, too_many};
use crate::interop::draft::{cut, read_span_id, read_trace_id};
use crate::interop::json::{Number, Text, each_element};
use crate::interop::{DecodeError, Decoded, Limits};

/// Decodes a list of spans.
///
/// Spans that look like v2 are rejected; if there are no others, the whole body is.
pub fn v1_json(body: &[u8], limits: &Limits) -> Result<Decoded, DecodeError> {
    let mut out = Decoded::default();
    let mut n_v2 = 0;
    each_element(body, SpanSeed(limits), V1_JSON, |index, span: Result<SpanRead, String>| {
        if index >= limits.items || out.items.len() >= limits.items {
            return Err(too_many(limits));
        }
        match span {
            Ok(SpanRead { is_v2: true, .. }) => {
                n_v2 += 1;
                out.reject(index, "it is a Zipkin v2 span");
            }
            Ok(SpanRead { span, .. }) => match span.convert(limits) {
                Ok(spans) => spans.into_iter().try_for_each(|span| out.add(index, Ok(span), limits))?,
                Err(reason) => out.reject(index, reason),
            },
            Err(reason) => out.reject(index, reason),
        }
        Ok(())
    })?;
    if out.items.is_empty() && n_v2 > 0 {
        return Err(DecodeError::WrongFormat { expected: V1_JSON, found: V2_JSON });
    }
    Ok(out)
}

struct SpanRead {
    span: V1Span,
    is_v2: bool,
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
        let mut span = V1Span::default();
        let mut is_v2 = false;
        while let Some(key) = map.next_key::<Text<'de>>()? {
            match key.0.as_ref() {
                "traceId" => {
                    match map.next_value::<Option<Text<'de>>>()?.map(|text| read_trace_id(&text.0)) {
                        Some(Ok(id)) => {
                            // The two halves.
                            span.trace_high = (id.0 >> 64) as u64;
                            span.trace_low = id.0 as u64;
                        }
                        Some(Err(reason)) => span.problem = Some(format!("traceId {reason}")),
                        None => {}
                    }
                }
                "id" => id(&mut map, &mut span.id, &mut span.problem, "id")?,
                "parentId" => id(&mut map, &mut span.parent, &mut span.problem, "parentId")?,
                "name" => {
                    if let Some(Text(name)) = map.next_value()? {
                        span.name = cut(name, self.0).into_owned();
                    }
                }
                "timestamp" => {
                    span.start_us = map.next_value::<Option<Number>>()?.map_or(0, Number::micros).max(0);
                }
                "duration" => {
                    let number = map.next_value::<Option<Number>>()?;
                    span.duration_us = number.map_or(0, Number::micros_at_least_one).max(0);
                }
                "debug" => span.debug = map.next_value::<Option<bool>>()?.unwrap_or_default(),
                "annotations" => map.next_value_seed(Annotations(&mut span, self.0))?,
                "binaryAnnotations" => map.next_value_seed(BinaryAnnotations(&mut span, self.0))?,
                "localEndpoint" | "remoteEndpoint" | "tags" | "kind" => {
                    is_v2 = true;
                    map.next_value::<IgnoredAny>()?;
                }
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(SpanRead { span, is_v2 })
    }
}

fn id<'de, A: MapAccess<'de>>(
    map: &mut A,
    slot: &mut u64,
    problem: &mut Option<String>,
    what: &str,
) -> Result<(), A::Error> {
    match map.next_value::<Option<Text<'de>>>()?.map(|text| read_span_id(&text.0)) {
        Some(Ok(id)) => *slot = id.map_or(0, |id| id.0),
        Some(Err(reason)) => *problem = Some(format!("{what} {reason}")),
        None => {}
    }
    Ok(())
}

struct Annotations<'s, 'l>(&'s mut V1Span, &'l Limits);

impl<'de> DeserializeSeed<'de> for Annotations<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Annotations<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of annotations")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<(), A::Error> {
        while let Some(fields) = sequence.next_element_seed(FieldsSeed(self.1))? {
            self.0.problem = fields.problem.or(self.0.problem.take());
            match (fields.timestamp, fields.value) {
                (Some(us), Some(Value::Text(value))) => {
                    let annotation = Annotation { us: us.micros(), value, endpoint: fields.endpoint };
                    self.0.annotate(annotation, self.1);
                }
                _ => self.0.problem = Some("an annotation has no timestamp or no value".to_owned()),
            }
        }
        Ok(())
    }
}

struct BinaryAnnotations<'s, 'l>(&'s mut V1Span, &'l Limits);

impl<'de> DeserializeSeed<'de> for BinaryAnnotations<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for BinaryAnnotations<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of binary annotations")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<(), A::Error> {
        while let Some(fields) = sequence.next_element_seed(FieldsSeed(self.1))? {
            self.0.problem = fields.problem.or(self.0.problem.take());
            let Some(key) = fields.key else {
                self.0.problem = Some("a binary annotation has no key".to_owned());
                continue;
            };
            let value = match fields.value {
                Some(Value::Text(value)) => Some(value),
                // `true` with an endpoint is an address; other truths say nothing.
                Some(Value::True) if fields.endpoint.is_some() => None,
                _ => continue,
            };
            let annotation = BinaryAnnotation { key, value, endpoint: fields.endpoint };
            self.0.annotate_binary(annotation, self.1);
        }
        Ok(())
    }
}

/// The fields of both kinds of annotations.
#[derive(Default)]
struct Fields {
    key: Option<String>,
    timestamp: Option<Number>,
    value: Option<Value>,
    endpoint: Option<faultscope_model::trace::Endpoint>,
    problem: Option<String>,
}

enum Value {
    Text(String),
    True,
    Other,
}

#[derive(Clone, Copy)]
struct FieldsSeed<'l>(&'l Limits);

impl<'de> DeserializeSeed<'de> for FieldsSeed<'_> {
    type Value = Fields;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Fields, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for FieldsSeed<'_> {
    type Value = Fields;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an annotation")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
        let mut fields = Fields::default();
        while let Some(key) = map.next_key::<Text<'de>>()? {
            match key.0.as_ref() {
                "key" => {
                    let text = map.next_value::<Option<Text<'de>>>()?;
                    fields.key = text.map(|text| cut(text.0, self.0).into_owned());
                }
                "timestamp" => fields.timestamp = map.next_value()?,
                "value" => fields.value = Some(map.next_value_seed(ValueSeed(self.0))?),
                "endpoint" => {
                    let (endpoint, wrong) = map.next_value_seed(EndpointSeed(self.0))?;
                    fields.endpoint = endpoint;
                    fields.problem = wrong.map(|port| format!("{port} is not a port"));
                }
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(fields)
    }
}

/// Texts and numbers as texts, `true`, and anything else.
struct ValueSeed<'l>(&'l Limits);

impl<'de> DeserializeSeed<'de> for ValueSeed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueSeed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::Text(cut(text.into(), self.0).into_owned()))
    }

    fn visit_bool<E>(self, truth: bool) -> Result<Value, E> {
        Ok(if truth { Value::True } else { Value::Other })
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(Value::Text(number.to_string()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(Value::Text(number.to_string()))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Value, E> {
        Ok(Value::Text(number.to_string()))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Other)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Value, A::Error> {
        while sequence.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Value::Other)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Value::Other)
    }
}
