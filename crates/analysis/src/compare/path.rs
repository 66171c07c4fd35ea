//! Paths of fields: `$.items[3].id`, and patterns of them: `$.items[*].id`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// One step of a path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Segment {
    Key(String),
    Index(usize),
}

/// The place of a field in a JSON value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FieldPath(Vec<Segment>);

/// Places of fields; `[*]` is any element of a list, and `*` any key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathPattern(Vec<Step>);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Step {
    Key(String),
    AnyKey,
    Index(usize),
    AnyIndex,
}

/// Why a text is no path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathError(String);

impl fmt::Display for PathError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is no path of a field; write it as `$.items[*].id`", self.0)
    }
}

impl std::error::Error for PathError {}

impl FieldPath {
    pub(super) fn root() -> Self {
        Self(Vec::new())
    }

    /// Does something one step further down.
    pub(super) fn within(&mut self, segment: Segment, act: impl FnOnce(&mut Self)) {
        self.0.push(segment);
        act(self);
        self.0.pop();
    }

    /// The name of the field: the last key.
    pub fn name(&self) -> Option<&str> {
        self.0.iter().rev().find_map(|segment| match segment {
            Segment::Key(key) => Some(key.as_str()),
            Segment::Index(_) => None,
        })
    }

    /// The same place in any element of the lists around it.
    pub fn pattern(&self) -> PathPattern {
        let step = |segment: &Segment| match segment {
            Segment::Key(key) => Step::Key(key.clone()),
            Segment::Index(_) => Step::AnyIndex,
        };
        PathPattern(self.0.iter().map(step).collect())
    }
}

impl PathPattern {
    /// Whether a path is this, or below it.
    pub(super) fn covers(&self, path: &FieldPath) -> bool {
        let matches = |(step, segment): (&Step, &Segment)| match (step, segment) {
            (Step::Key(wanted), Segment::Key(key)) => wanted == key,
            (Step::Index(wanted), Segment::Index(index)) => wanted == index,
            (Step::AnyKey, Segment::Key(_)) | (Step::AnyIndex, Segment::Index(_)) => true,
            _ => false,
        };
        self.0.len() <= path.0.len() && self.0.iter().zip(&path.0).all(matches)
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("$")?;
        self.0.iter().try_for_each(|segment| match segment {
            Segment::Key(key) => write_key(f, key),
            Segment::Index(index) => write!(f, "[{index}]"),
        })
    }
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("$")?;
        self.0.iter().try_for_each(|step| match step {
            Step::Key(key) => write_key(f, key),
            Step::AnyKey => f.write_str(".*"),
            Step::Index(index) => write!(f, "[{index}]"),
            Step::AnyIndex => f.write_str("[*]"),
        })
    }
}

fn write_key(f: &mut fmt::Formatter<'_>, key: &str) -> fmt::Result {
    let is_plain = !key.is_empty() && !key.contains(['.', '[', ']', '\'', '*', ' ']);
    if is_plain {
        write!(f, ".{key}")
    } else {
        write!(f, "['{}']", key.replace('\\', "\\\\").replace('\'', "\\'"))
    }
}

impl FromStr for PathPattern {
    type Err = PathError;

    fn from_str(text: &str) -> Result<Self, PathError> {
        let error = || PathError(text.to_owned());
        let mut steps = Vec::new();
        // `items.id` is short for `$.items.id`.
        let mut rest = match text.strip_prefix('$') {
            Some(rest) => rest.to_owned(),
            None if text.is_empty() => return Err(error()),
            None => format!(".{text}"),
        };
        while !rest.is_empty() {
            let (step, behind) = read_step(&rest).ok_or_else(error)?;
            steps.push(step);
            rest = behind;
        }
        Ok(Self(steps))
    }
}

fn read_step(text: &str) -> Option<(Step, String)> {
    if let Some(rest) = text.strip_prefix("['") {
        let mut key = String::new();
        let mut letters = rest.char_indices();
        while let Some((at, letter)) = letters.next() {
            match letter {
                '\\' => key.push(letters.next()?.1),
                '\'' => {
                    let behind = rest[at + 1..].strip_prefix(']')?;
                    return Some((Step::Key(key), behind.to_owned()));
                }
                letter => key.push(letter),
            }
        }
        return None;
    }
    if let Some(rest) = text.strip_prefix('[') {
        let (index, behind) = rest.split_once(']')?;
        let step =
            if index == "*" || index.is_empty() { Step::AnyIndex } else { Step::Index(index.parse().ok()?) };
        return Some((step, behind.to_owned()));
    }
    let rest = text.strip_prefix('.')?;
    let end = rest.find(['.', '[']).unwrap_or(rest.len());
    let (key, behind) = rest.split_at(end);
    match key {
        "" => None,
        "*" => Some((Step::AnyKey, behind.to_owned())),
        key => Some((Step::Key(key.to_owned()), behind.to_owned())),
    }
}

impl Serialize for FieldPath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for FieldPath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let pattern: PathPattern =
            String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)?;
        let segment = |step| match step {
            Step::Key(key) => Ok(Segment::Key(key)),
            Step::Index(index) => Ok(Segment::Index(index)),
            Step::AnyKey | Step::AnyIndex => {
                Err(serde::de::Error::custom("a place, not a pattern, is needed"))
            }
        };
        Ok(Self(pattern.0.into_iter().map(segment).collect::<Result<_, _>>()?))
    }
}

impl Serialize for PathPattern {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_path_comes_back_from_its_text(
            steps in prop::collection::vec(prop_oneof!["[a-z.'\\[\\]* \\\\ü]{0,4}".prop_map(Segment::Key), (0usize..9).prop_map(Segment::Index)], 0..5),
        ) {
            let path = FieldPath(steps);
            let json = serde_json::to_string(&path).unwrap();
            prop_assert_eq!(serde_json::from_str::<FieldPath>(&json).unwrap(), path);
        }
    }

    #[test]
    fn patterns_cover_what_is_below_them() {
        let path: FieldPath = serde_json::from_str("\"$.items[3].id\"").unwrap();
        for pattern in ["$.items[*].id", "items[].id", "$.items", "$.*[3]", "$"] {
            assert!(pattern.parse::<PathPattern>().unwrap().covers(&path), "{pattern}");
        }
        for pattern in ["$.items[2].id", "$.item", "$.items[*].id.x", "$[*]"] {
            assert!(!pattern.parse::<PathPattern>().unwrap().covers(&path), "{pattern}");
        }
        for bad in ["", "$items", "$.a..b", "$[", "$['a", "$.a[x]"] {
            assert!(bad.parse::<PathPattern>().is_err(), "{bad}");
        }
    }
}
