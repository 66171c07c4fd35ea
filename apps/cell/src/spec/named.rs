//! Maps and lists that say in their errors which entry is wrong.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;

use indexmap::IndexMap;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::step::Step;

/// What the entries of a [`Named`] map are called in messages.
pub trait Label {
    /// One word.
    const LABEL: &'static str;
}

/// Things by name, in the order of the file.
#[derive(Debug, Clone)]
pub struct Named<T>(IndexMap<String, T>);

/// Steps in order; cheap to share with concurrent branches.
#[derive(Debug, Clone)]
pub struct Steps(Arc<[Step]>);

// === impl Named ===

impl<T> Named<T> {
    /// Adds an entry.
    pub(super) fn insert(&mut self, name: String, entry: T) {
        self.0.insert(name, entry);
    }

    /// Takes one entry and forgets the others.
    pub fn take(mut self, name: &str) -> Option<T> {
        self.0.swap_remove(name)
    }
}

impl<T> Default for Named<T> {
    fn default() -> Self {
        Self(IndexMap::new())
    }
}

impl<T> Deref for Named<T> {
    type Target = IndexMap<String, T>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<'de, T: Deserialize<'de> + Label> Deserialize<'de> for Named<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(NamedVisitor(PhantomData))
    }
}

struct NamedVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de> + Label> Visitor<'de> for NamedVisitor<T> {
    type Value = Named<T>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "a map with a name for each {}", T::LABEL)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Named<T>, A::Error> {
        let mut entries = IndexMap::new();
        while let Some(name) = access.next_key::<String>()? {
            let place = |error| A::Error::custom(format!("{} `{name}`: {error}", T::LABEL));
            let entry = access.next_value().map_err(place)?;
            if entries.insert(name.clone(), entry).is_some() {
                return Err(A::Error::custom(format!("{} `{name}` is there twice", T::LABEL)));
            }
        }
        Ok(Named(entries))
    }

    fn visit_unit<E: Error>(self) -> Result<Named<T>, E> {
        Ok(Named::default())
    }
}

// === impl Steps ===

impl Default for Steps {
    fn default() -> Self {
        Self(Arc::new([]))
    }
}

impl Deref for Steps {
    type Target = [Step];

    fn deref(&self) -> &[Step] {
        &self.0
    }
}

impl<'de> Deserialize<'de> for Steps {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(StepsVisitor)
    }
}

struct StepsVisitor;

impl<'de> Visitor<'de> for StepsVisitor {
    type Value = Steps;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list of steps")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Steps, A::Error> {
        let mut steps = Vec::new();
        loop {
            let number = steps.len() + 1;
            match access.next_element() {
                Ok(Some(step)) => steps.push(step),
                Ok(None) => return Ok(Steps(steps.into())),
                Err(error) => return Err(A::Error::custom(format!("step {number}: {error}"))),
            }
        }
    }
}
