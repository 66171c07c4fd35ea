//! A mutant: one operator at one place, as a patch.

use std::collections::BTreeMap;
use std::fmt;

use faultscope_model::digest::Digest;
use serde::Serialize;

use crate::edit::{self, Edit};
use crate::operator::Operator;
use crate::patch::Patch;
use crate::source::Source;

/// Hexadecimal digits of an id: 40 bits, so among 10,000 mutants two share one with a probability of 0.005 %.
const DIGITS: usize = 10;

/// The name of a mutant. It stays the same while the function it changes keeps its name and the changed code its
/// text, whatever happens elsewhere in the file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct MutantId(String);

impl MutantId {
    /// The text, such as `m1-0f3a9c21bd`.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for MutantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Where in a service a mutant is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// In a function that answers requests, in a response, or in the application file.
    Responding,
    /// In any other function.
    Elsewhere,
}

/// One change that makes a service faulty.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Mutant {
    /// Its stable name.
    pub id: MutantId,
    /// What was done.
    pub operator: Operator,
    /// Which form of the operator, where it has several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub variant: Option<&'static str>,
    /// The changed file.
    pub path: String,
    /// The line of the place, from 1.
    pub line: usize,
    /// The function or the key it is in.
    pub within: String,
    /// The service whose configuration changes; none for source, which several services may share.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    /// Where in a service it is.
    pub scope: Scope,
    /// The difference.
    pub patch: Patch,
}

/// A mutant before it has a name.
#[derive(Debug)]
pub(crate) struct Draft {
    pub(crate) operator: Operator,
    pub(crate) variant: Option<&'static str>,
    /// The byte that the line number and the order come from.
    pub(crate) at: usize,
    pub(crate) within: String,
    pub(crate) service: Option<String>,
    /// The code at the place, which makes the id recognize it again.
    pub(crate) anchor: String,
    pub(crate) scope: Scope,
    pub(crate) edits: Vec<Edit>,
}

/// Names drafts in the order of the file, and leaves out those that would break the syntax.
pub(crate) fn name_drafts(source: &Source<'_>, mut drafts: Vec<Draft>) -> Vec<Mutant> {
    drafts.sort_by(|a, b| (a.at, a.operator, a.variant).cmp(&(b.at, b.operator, b.variant)));
    let mut seen: BTreeMap<Digest, u32> = BTreeMap::new();
    let mut mutants = Vec::new();
    for draft in drafts {
        let key = (draft.operator.id(), draft.variant, source.path, &draft.within, &draft.anchor);
        let digest = Digest::hash_json(&key);
        let nth = seen.entry(digest).or_default();
        *nth += 1;
        let name = Digest::hash_json(&(digest.to_string(), *nth)).to_string();
        let Some(edits) = edit::in_order(source.text, draft.edits) else { continue };
        if !source.accepts(&edits) {
            continue;
        }
        mutants.push(Mutant {
            id: MutantId(format!("{}-{}", draft.operator.id().to_lowercase(), &name[..DIGITS])),
            operator: draft.operator,
            variant: draft.variant,
            path: source.path.to_owned(),
            line: source.text[..draft.at].bytes().filter(|&byte| byte == b'\n').count() + 1,
            within: draft.within,
            service: draft.service,
            scope: draft.scope,
            patch: Patch::from_edits(source.path, source.text, &edits),
        });
    }
    mutants
}
