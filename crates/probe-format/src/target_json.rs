//! The JSON of a target: a structure, or the text that earlier versions and adapters write.

use std::borrow::Cow;
use std::fmt;

use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};

use crate::target::{MAX_RECEIVER, Origin, PathDigest, Sent, Step, TargetId, bounded};

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenPath<'a> {
    /// The service that began it by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    service: Option<Cow<'a, str>>,
    /// The digest of steps that were cut off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cut: Option<String>,
    /// Whether these steps belong to a duplicate, or to what a service did by itself.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    aside: bool,
    #[serde(default)]
    steps: Vec<WrittenStep<'a>>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenStep<'a> {
    to: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    call: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    message: Option<Cow<'a, str>>,
    /// Whether it is the n-th of all calls, whatever is asked.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    any: bool,
    #[serde(default = "first", skip_serializing_if = "is_first")]
    nth: u32,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    again: bool,
}

fn first() -> u32 {
    1
}

fn is_first(nth: &u32) -> bool {
    *nth == 1
}

impl Serialize for TargetId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (origin, steps) = self.parts();
        let steps = steps.into_iter().map(WrittenStep::new).collect();
        let mut path = WrittenPath { service: None, cut: None, aside: false, steps };
        match origin {
            Origin::Test => {}
            Origin::Service(service) => path.service = Some((&**service).into()),
            Origin::Cut { digest, is_of_test } => {
                (path.cut, path.aside) = (Some(digest.to_string()), !is_of_test);
            }
        }
        path.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for TargetId {
    /// Reads the structure, and the text that earlier versions and adapters write.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = TargetId;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a target: its text, or its steps")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<TargetId, E> {
                Ok(text.into())
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<TargetId, A::Error> {
                let path = WrittenPath::deserialize(de::value::MapAccessDeserializer::new(map))?;
                path.assemble().map_err(de::Error::custom)
            }
        }

        deserializer.deserialize_any(Either)
    }
}

impl<'a> WrittenStep<'a> {
    fn new(step: &'a Step) -> Self {
        let (call, message) = match &step.sent {
            Sent::Call(operation) => (Some((&**operation).into()), None),
            Sent::Message(message) => (None, Some((&**message).into())),
            Sent::Whole | Sent::AnyCall => (None, None),
        };
        let any = step.sent == Sent::AnyCall;
        Self { to: (&*step.receiver).into(), call, message, any, nth: step.ordinal, again: step.is_again }
    }
}

impl WrittenPath<'_> {
    fn assemble(self) -> Result<TargetId, String> {
        let origin = match (&self.service, &self.cut) {
            (Some(service), None) => Origin::Service(bounded(service, MAX_RECEIVER)),
            (None, Some(cut)) => {
                let digest =
                    PathDigest::parse(cut).ok_or("`cut` is not a digest of 32 hexadecimal digits")?;
                Origin::Cut { digest, is_of_test: !self.aside }
            }
            (None, None) => Origin::Test,
            (Some(_), Some(_)) => return Err("a target has `service` or `cut`, not both".into()),
        };
        let mut path = match origin {
            Origin::Test => TargetId::root(),
            other => TargetId::new(other),
        };
        for step in self.steps {
            let read = match (&step.call, &step.message, step.any) {
                (Some(operation), None, false) => Step::call(&step.to, operation, step.nth),
                (None, Some(message), false) => Step::message(&step.to, message, step.nth),
                (None, None, false) => Step::new(&step.to, Sent::Whole, step.nth),
                (None, None, true) => Step::new(&step.to, Sent::AnyCall, step.nth),
                _ => return Err("a step has one of `call`, `message` and `any`".into()),
            };
            path = path.push(Step { is_again: step.again, ..read });
        }
        Ok(path)
    }
}

/// Writes a target as text, the form of the files that adapters read and write.
pub(crate) mod as_text {
    use serde::Serializer;

    use super::TargetId;

    pub(crate) fn serialize<S: Serializer>(target: &TargetId, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(target)
    }

    pub(crate) mod option {
        use super::{Serializer, TargetId};

        #[expect(clippy::ref_option, reason = "serde passes a reference to the field")]
        pub(crate) fn serialize<S: Serializer>(
            target: &Option<TargetId>,
            serializer: S,
        ) -> Result<S::Ok, S::Error> {
            match target {
                Some(target) => super::serialize(target, serializer),
                None => serializer.serialize_none(),
            }
        }
    }
}
