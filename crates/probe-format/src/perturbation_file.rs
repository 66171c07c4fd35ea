//! The file with the perturbations that an adapter applies.

use serde::{Deserialize, Serialize};

use crate::{FORMAT, FormatError, Perturbation, check_version};

/// The file with the perturbations of a run.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Configuration {
    /// The version of the format.
    pub faultscope_perturb: u32,
    /// The perturbations to apply, all of them.
    #[serde(serialize_with = "crate::perturbation::as_text::list::serialize")]
    pub perturbations: Vec<Perturbation>,
}

impl Configuration {
    /// A file with these perturbations.
    pub fn new(perturbations: Vec<Perturbation>) -> Self {
        Self { faultscope_perturb: FORMAT, perturbations }
    }

    /// Parses the file.
    pub fn read(text: &str) -> Result<Self, FormatError> {
        let read: Self =
            serde_json::from_str(text).map_err(|e| FormatError { line: e.line(), problem: e.to_string() })?;
        check_version(read.faultscope_perturb)?;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Kind;

    proptest! {
        #[test]
        fn reading_never_panics(text in "(?s).{0,300}") {
            let _ = Configuration::read(&text);
        }

        #[test]
        fn configurations_survive_writing(names in proptest::collection::vec("[a-z/.#+]{1,40}", 0..20)) {
            let perturbation = |name: &String| Perturbation { kind: Kind::Restart, target: name.as_str().into() };
            let written = Configuration::new(names.iter().map(perturbation).collect());
            let text = serde_json::to_string(&written).unwrap();
            prop_assert!(names.iter().all(|name| text.contains(name.as_str())), "adapters find their own names");
            prop_assert_eq!(Configuration::read(&text).unwrap(), written);
        }
    }
}
