//! What a trial was given that others of its campaign were not.
//!
//! Searches work on numbers. What is stored and told names things, since numbers mean something only to the search
//! that gave them out.

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::perturbation::Perturbation;
use crate::space::DeltaSet;

/// The longest input that is kept as it is. The log of events has one for each trial, and longer ones are known by
/// their digest.
const MAX_TEXT: usize = 4 << 10;

/// What a trial was given, in terms that hold without the search that chose it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Treatment {
    /// Nothing: the simplest circumstance, or that of the file, and the tests as they are.
    #[default]
    Nothing,
    /// Deltas.
    Deltas {
        /// Their names.
        deltas: BTreeSet<String>,
    },
    /// Deltas, one of them with another value than in the failing circumstance.
    Value {
        /// The names of all deltas.
        deltas: BTreeSet<String>,
        /// Which has another value.
        delta: String,
        /// That value.
        value: String,
    },
    /// Deltas, and a smaller input of a test.
    Input {
        /// The names of the deltas; none where the test fails without any.
        #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
        deltas: BTreeSet<String>,
        /// The test.
        test: String,
        /// The input.
        input: GivenInput,
    },
    /// Perturbations of calls and messages.
    Perturbations {
        /// What was to be done.
        perturbations: Vec<Perturbation>,
    },
    /// Deltas of a run that format 3 stored: numbers into a list that was not stored.
    Numbered {
        /// Their numbers.
        numbers: DeltaSet,
    },
}

/// An input that a test was given.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct GivenInput {
    /// Its size.
    pub bytes: usize,
    /// The digest of its text.
    pub digest: Digest,
    /// The text itself, where it is short.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

impl GivenInput {
    /// An input of this text.
    pub fn of(text: String) -> Self {
        let (bytes, digest) = (text.len(), Digest::hash_bytes(text.as_bytes()));
        Self { bytes, digest, text: (bytes <= MAX_TEXT).then_some(text) }
    }
}

impl Treatment {
    /// Deltas of these names.
    pub fn of_deltas(deltas: BTreeSet<String>) -> Self {
        if deltas.is_empty() { Self::Nothing } else { Self::Deltas { deltas } }
    }

    /// These perturbations.
    pub fn of_perturbations(perturbations: Vec<Perturbation>) -> Self {
        if perturbations.is_empty() { Self::Nothing } else { Self::Perturbations { perturbations } }
    }

    /// Its deltas, so that runs of one campaign can be compared: by name, and by number where no name is known.
    pub fn deltas(&self) -> BTreeSet<Cow<'_, str>> {
        match self {
            Self::Deltas { deltas } | Self::Value { deltas, .. } | Self::Input { deltas, .. } => {
                deltas.iter().map(|name| Cow::Borrowed(name.as_str())).collect()
            }
            Self::Numbered { numbers } => numbers.iter().map(|number| format!("#{number}").into()).collect(),
            Self::Nothing | Self::Perturbations { .. } => BTreeSet::new(),
        }
    }

    /// What was to be done to calls and messages.
    pub fn perturbations(&self) -> &[Perturbation] {
        match self {
            Self::Perturbations { perturbations } => perturbations,
            _ => &[],
        }
    }

    /// How many deltas or perturbations it has.
    pub fn size(&self) -> usize {
        match self {
            Self::Nothing => 0,
            Self::Deltas { deltas } | Self::Value { deltas, .. } | Self::Input { deltas, .. } => deltas.len(),
            Self::Perturbations { perturbations } => perturbations.len(),
            Self::Numbered { numbers } => numbers.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perturbation::{Kind, TargetId};

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn it_says_by_itself_what_was_given() {
        let given = [
            (Treatment::of_deltas(names(&[])), r#"{"kind":"nothing"}"#),
            (
                Treatment::of_deltas(names(&["instance order", "config a.env.B"])),
                r#"{"kind":"deltas","deltas":["config a.env.B","instance order"]}"#,
            ),
            (
                Treatment::Value {
                    deltas: names(&["config a.memory"]),
                    delta: "config a.memory".into(),
                    value: "64MiB".into(),
                },
                r#"{"kind":"value","deltas":["config a.memory"],"delta":"config a.memory","value":"64MiB"}"#,
            ),
            (
                Treatment::Numbered { numbers: [1, 4].into_iter().collect() },
                r#"{"kind":"numbered","numbers":[1,4]}"#,
            ),
        ];
        for (treatment, json) in given {
            assert_eq!(serde_json::to_string(&treatment).unwrap(), json);
            assert_eq!(serde_json::from_str::<Treatment>(json).unwrap(), treatment);
        }
        let target = TargetId::root().call("shop", "POST", "/pay", 1);
        let restart = Perturbation { kind: Kind::Restart, target };
        let treatment = Treatment::of_perturbations(vec![restart.clone()]);
        let json = serde_json::to_value(&treatment).unwrap();
        assert_eq!(json["kind"], "perturbations");
        let read: Treatment = serde_json::from_value(json).unwrap();
        assert_eq!((read.perturbations(), &read), ([restart].as_slice(), &treatment));
    }

    #[test]
    fn long_inputs_are_known_by_their_digest() {
        let short = GivenInput::of("a=1".into());
        assert_eq!((short.bytes, short.text.as_deref()), (3, Some("a=1")));
        let long = GivenInput::of("x".repeat(MAX_TEXT + 1));
        assert_eq!((long.bytes, long.text), (MAX_TEXT + 1, None));
        assert_ne!(long.digest, short.digest);
    }

    #[test]
    fn runs_are_compared_by_names_and_old_ones_by_numbers() {
        let few = Treatment::of_deltas(names(&["a", "b"]));
        let more = Treatment::Input {
            deltas: names(&["a", "b", "c"]),
            test: "pay".into(),
            input: GivenInput::of(String::new()),
        };
        assert!(few.deltas().is_subset(&more.deltas()));
        let old = |numbers: &[usize]| Treatment::Numbered { numbers: numbers.iter().copied().collect() };
        assert!(old(&[3]).deltas().is_subset(&old(&[3, 4]).deltas()));
        assert_eq!((few.size(), more.size(), old(&[3, 4]).size()), (2, 3, 2));
    }
}
