//! Walks a JSON body in one pass, as long as it has the form that exporters send.
//!
//! Anything unusual ends the walk: a list before its resource, or a value of the wrong
//! type. The careful walk in [`super::containers`] then starts from the beginning.

use std::fmt;

use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use serde_json::value::RawValue;

use super::containers::{Item, Sink};
use super::messages::{Resource, Scope};
use crate::interop::json::Text;
use crate::interop::{DecodeError, Limits};

/// Why a walk ended early.
pub(super) enum Ended {
    /// The body is not of the usual form.
    Unusual,
    /// A limit was reached.
    Stopped(DecodeError),
}

/// Walks a body of metrics or traces.
pub(super) fn stream_json(
    body: &str,
    metrics: bool,
    limits: &Limits,
    sink: &mut impl Sink,
) -> Result<(), Ended> {
    let mut stop = None;
    let mut deserializer = serde_json::Deserializer::from_str(body);
    let walk = Walk { level: Level::Body, metrics, limits, sink, stop: &mut stop };
    let walked = walk.deserialize(&mut deserializer).and_then(|()| deserializer.end());
    match (stop, walked) {
        (Some(stop), _) => Err(Ended::Stopped(stop)),
        (None, Err(_)) => Err(Ended::Unusual),
        (None, Ok(())) => Ok(()),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Body,
    Resource,
    Scope,
    Item,
}

/// One object of a level.
struct Walk<'w, S> {
    level: Level,
    metrics: bool,
    limits: &'w Limits,
    sink: &'w mut S,
    stop: &'w mut Option<DecodeError>,
}

impl<S: Sink> Walk<'_, S> {
    /// The key of a level's description, the key of its list, and the level below.
    fn keys(&self) -> (&'static str, &'static str, Level) {
        match (self.level, self.metrics) {
            (Level::Body, false) => ("", "resourceSpans", Level::Resource),
            (Level::Body, true) => ("", "resourceMetrics", Level::Resource),
            (Level::Resource, false) => ("resource", "scopeSpans", Level::Scope),
            (Level::Resource, true) => ("resource", "scopeMetrics", Level::Scope),
            (Level::Scope, false) => ("scope", "spans", Level::Item),
            (Level::Scope | Level::Item, _) => ("scope", "metrics", Level::Item),
        }
    }

    fn describe<E: Error>(&mut self, raw: &RawValue) -> Result<(), E> {
        fn read<T: DeserializeOwned, E: Error>(raw: &RawValue, limits: &Limits) -> Result<T, E> {
            if raw.get().len() > limits.item_bytes || !raw.get().starts_with('{') {
                return Err(E::custom("unusual"));
            }
            serde_json::from_str(raw.get()).map_err(E::custom)
        }
        match self.level {
            Level::Resource => self.sink.resource(read(raw, self.limits)?),
            _ => self.sink.scope(read(raw, self.limits)?),
        }
        Ok(())
    }
}

impl<'de, S: Sink> DeserializeSeed<'de> for Walk<'_, S> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        if self.level != Level::Item {
            return deserializer.deserialize_map(self);
        }
        let raw: &RawValue = serde::Deserialize::deserialize(deserializer)?;
        self.sink.item(Item::Json(raw.get())).map_err(|stop| {
            *self.stop = Some(stop);
            D::Error::custom("stopped")
        })
    }
}

impl<'de, S: Sink> Visitor<'de> for Walk<'_, S> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        match self.level {
            Level::Resource => self.sink.resource(Resource::default()),
            Level::Scope => self.sink.scope(Scope::default()),
            Level::Body | Level::Item => {}
        }
        let (description, list, below) = self.keys();
        let mut listed = false;
        while let Some(Text(key)) = map.next_key::<Text<'de>>()? {
            if key == list {
                listed = true;
                let Walk { metrics, limits, .. } = self;
                let (sink, stop) = (&mut *self.sink, &mut *self.stop);
                map.next_value_seed(List(Walk { level: below, metrics, limits, sink, stop }))?;
            } else if key == description {
                if listed {
                    return Err(A::Error::custom("unusual"));
                }
                if let Some(raw) = map.next_value::<Option<&'de RawValue>>()? {
                    self.describe(raw)?;
                }
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

/// The objects of a level, one after the other.
struct List<'w, S>(Walk<'w, S>);

impl<'de, S: Sink> DeserializeSeed<'de> for List<'_, S> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, S: Sink> Visitor<'de> for List<'_, S> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<(), A::Error> {
        let Walk { level, metrics, limits, sink, stop } = self.0;
        loop {
            let walk = Walk { level, metrics, limits, sink: &mut *sink, stop: &mut *stop };
            if sequence.next_element_seed(walk)?.is_none() {
                return Ok(());
            }
        }
    }
}
