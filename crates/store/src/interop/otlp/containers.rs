//! The lists around spans and metrics: resources, their scopes, and the items in them.
//!
//! They are walked without building them, and each item is passed on undecoded. Both signals use the same field
//! numbers, so one walk serves both.

use prost::Message;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::messages::{Resource, Scope};
use super::stream::{Ended, stream_json};
use super::{JSON, PROTO};
use crate::interop::json::{each_raw, plain};
use crate::interop::protobuf::Fields;
use crate::interop::{DecodeError, Limits};

/// Receives the items of a walk.
pub(super) trait Sink {
    /// Forgets everything: the body is walked again from its beginning.
    fn restart(&mut self);
    /// Sets the resource of the next items.
    fn resource(&mut self, resource: Resource);
    /// Sets the scope of the next items.
    fn scope(&mut self, scope: Scope);
    /// Receives an item; an error ends the walk.
    fn item(&mut self, item: Item<'_>) -> Result<(), DecodeError>;
}

/// An item, not yet decoded.
#[derive(Debug, Clone, Copy)]
pub(super) enum Item<'a> {
    /// As protobuf.
    Proto(&'a [u8]),
    /// As JSON.
    Json(&'a str),
    /// Undecodable: what is wrong with it or with the list that contains it.
    Wrong(&'a str),
}

impl Item<'_> {
    /// Decodes it.
    pub(super) fn decode<T: Message + Default + DeserializeOwned>(self, most: usize) -> Result<T, String> {
        let size = match self {
            Self::Proto(bytes) => bytes.len(),
            Self::Json(text) => text.len(),
            Self::Wrong(_) => 0,
        };
        if size > most {
            return Err(format!("it is over the limit of {most} bytes"));
        }
        match self {
            Self::Proto(bytes) => T::decode(bytes).map_err(|error| error.to_string()),
            Self::Json(text) => read(text),
            Self::Wrong(reason) => Err(reason.to_owned()),
        }
    }
}

/// Walks a protobuf body.
pub(super) fn walk_proto(body: &[u8], limits: &Limits, sink: &mut impl Sink) -> Result<(), DecodeError> {
    for resource in messages(body, 1) {
        let resource = resource?;
        sink.resource(only(resource, limits)?);
        for scope in messages(resource, 2) {
            let scope = scope?;
            sink.scope(only(scope, limits)?);
            for item in messages(scope, 2) {
                sink.item(Item::Proto(item?))?;
            }
        }
    }
    Ok(())
}

fn malformed(reason: &'static str) -> DecodeError {
    DecodeError::malformed(PROTO, reason)
}

/// The messages in the field with this number.
fn messages(message: &[u8], number: u32) -> impl Iterator<Item = Result<&[u8], DecodeError>> {
    Fields::new(message).filter_map(move |field| match field {
        Ok(field) => (field.number == number && field.is_bytes).then_some(Ok(field.bytes)),
        Err(reason) => Some(Err(malformed(reason))),
    })
}

/// The message in field 1, which describes the others; it may come after them.
fn only<T: Message + Default>(message: &[u8], limits: &Limits) -> Result<T, DecodeError> {
    let Some(bytes) = messages(message, 1).last().transpose()? else { return Ok(T::default()) };
    if bytes.len() > limits.item_bytes {
        return Err(DecodeError::TooLarge { what: "a resource or scope", limit: limits.item_bytes });
    }
    T::decode(bytes).map_err(|error| DecodeError::malformed(PROTO, error.to_string()))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BodyJson<'a> {
    #[serde(borrow)]
    resource_spans: Option<&'a RawValue>,
    #[serde(borrow)]
    resource_metrics: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ResourceJson<'a> {
    #[serde(borrow)]
    resource: Option<&'a RawValue>,
    #[serde(borrow)]
    scope_spans: Option<&'a RawValue>,
    #[serde(borrow)]
    scope_metrics: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ScopeJson<'a> {
    #[serde(borrow)]
    scope: Option<&'a RawValue>,
    #[serde(borrow)]
    spans: Option<&'a RawValue>,
    #[serde(borrow)]
    metrics: Option<&'a RawValue>,
}

/// Walks a JSON body of metrics or traces.
pub(super) fn walk_json(
    body: &[u8],
    metrics: bool,
    limits: &Limits,
    sink: &mut impl Sink,
) -> Result<(), DecodeError> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Ok(());
    }
    if body.trim_ascii_start().first() != Some(&b'{') {
        return Err(DecodeError::malformed(JSON, "expected an object"));
    }
    let body = std::str::from_utf8(body).map_err(|error| DecodeError::malformed(JSON, error.to_string()))?;
    match stream_json(body, metrics, limits, sink) {
        Ok(()) => return Ok(()),
        Err(Ended::Stopped(stop)) => return Err(stop),
        Err(Ended::Unusual) => sink.restart(),
    }
    let body: BodyJson<'_> =
        serde_json::from_str(body).map_err(|error| DecodeError::malformed(JSON, plain(&error)))?;
    let pick = |spans, points| if metrics { points } else { spans };
    each(pick(body.resource_spans, body.resource_metrics), |resource| {
        let resource = match read::<ResourceJson<'_>>(resource) {
            Ok(resource) => resource,
            Err(reason) => return sink.item(Item::Wrong(&reason)),
        };
        match described(resource.resource, limits) {
            Ok(described) => sink.resource(described),
            Err(reason) => return sink.item(Item::Wrong(&reason)),
        }
        each(pick(resource.scope_spans, resource.scope_metrics), |scope| {
            let scope = match read::<ScopeJson<'_>>(scope) {
                Ok(scope) => scope,
                Err(reason) => return sink.item(Item::Wrong(&reason)),
            };
            match described(scope.scope, limits) {
                Ok(described) => sink.scope(described),
                Err(reason) => return sink.item(Item::Wrong(&reason)),
            }
            each(pick(scope.spans, scope.metrics), |item| sink.item(Item::Json(item)))
        })
    })
}

fn each<'a>(
    list: Option<&'a RawValue>,
    mut take: impl FnMut(&'a str) -> Result<(), DecodeError>,
) -> Result<(), DecodeError> {
    match list {
        Some(list) => each_raw(list.get(), JSON, |_, raw| take(raw.get())),
        None => Ok(()),
    }
}

/// Rejects arrays, which derived decoders would accept as objects by position.
fn read<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, String> {
    if !text.starts_with('{') {
        return Err("expected an object".to_owned());
    }
    serde_json::from_str(text).map_err(|error| plain(&error))
}

fn described<T: Default + DeserializeOwned>(raw: Option<&RawValue>, limits: &Limits) -> Result<T, String> {
    match raw {
        Some(raw) if raw.get().len() > limits.item_bytes => {
            Err(format!("its resource or scope is over the limit of {} bytes", limits.item_bytes))
        }
        Some(raw) => read(raw.get()),
        None => Ok(T::default()),
    }
}
