//! What an answer may be where a file names one value or a list of them.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{self, Deserializer, SeqAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};

/// One of the values that a file allows.
pub trait Alternative: fmt::Display + Sized {
    /// What an answer has.
    type Value;

    /// What a file may say, for the message about anything else.
    const EXPECTED: &'static str;

    /// Reads one from the text of a file, where a number is a text, too.
    fn parse(text: &str) -> Result<Self, String>;

    /// Whether an answer has this value.
    fn matches(&self, value: Self::Value) -> bool;

    /// Writes one as a file has it.
    fn write<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error>;
}

/// The values that a file allows; empty where it names none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alternatives<T>(Vec<T>);

impl<T> Default for Alternatives<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Alternative> Alternatives<T> {
    /// Whether the file names none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a value is one of them.
    pub fn contains(&self, value: T::Value) -> bool
    where
        T::Value: Copy,
    {
        self.0.iter().any(|alternative| alternative.matches(value))
    }
}

impl<T: fmt::Display> fmt::Display for Alternatives<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&all.join(" or "))
    }
}

/// One value is written without a list: digests of questions contain it since before there were lists.
impl<T: Alternative> Serialize for Alternatives<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        struct One<'a, T>(&'a T);
        impl<T: Alternative> Serialize for One<'_, T> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                self.0.write(serializer)
            }
        }
        match self.0.as_slice() {
            [only] => only.write(serializer),
            all => serializer.collect_seq(all.iter().map(One)),
        }
    }
}

impl<'de, T: Alternative> Deserialize<'de> for Alternatives<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OneOrMore(PhantomData))
    }
}

struct OneOrMore<T>(PhantomData<T>);

impl<'de, T: Alternative> Visitor<'de> for OneOrMore<T> {
    type Value = Alternatives<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::EXPECTED)
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Self::Value, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Self::Value, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Alternatives(vec![T::parse(text).map_err(E::custom)?]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut all = Vec::new();
        while let Some(Alternatives(some)) = list.next_element()? {
            all.extend(some);
        }
        if all.is_empty() {
            return Err(de::Error::custom("the list is empty"));
        }
        Ok(Alternatives(all))
    }
}
