//! The input of a test and how it is reduced: hierarchical delta debugging (Misherghi and Su 2006).
//!
//! An input is reduced stage by stage, coarse parts first: HTTP requests, their headers and parameters,
//! JSON by depth, values, lines, words, characters. At each stage [`Input::units`] lists what can be
//! removed, and [`Input::keep`] builds the input with only some of it. A part exists only where the parts around
//! it were kept, so a child is never kept without its parent.

mod body;
mod http;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::application::{Step, StepBody};
use crate::space::DeltaSet;
use body::Body;
pub use http::Request;

/// The largest input that is reduced; every trial writes a copy of it.
pub const MAX_BYTES: usize = 4 << 20;
/// The deepest JSON that is reduced; it bounds recursion and the number of stages.
pub const MAX_DEPTH: usize = 64;
/// With more units than this, neighbours are removed in groups first, so that a search stays in memory.
pub const MAX_UNITS: usize = 2048;

/// The format of an input file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InputFormat {
    /// JSON.
    Json,
    /// Lines of text.
    Text,
    /// HTTP requests, one after the other, with a line of `###` between two.
    Http,
}

impl InputFormat {
    /// Guesses the format of a file by its name.
    pub fn from_file_name(name: &str) -> Self {
        match name.rsplit_once('.').map(|(_, end)| end.to_ascii_lowercase()).as_deref() {
            Some("json") => Self::Json,
            Some("http" | "rest") => Self::Http,
            _ => Self::Text,
        }
    }
}

/// An input that can be reduced.
#[derive(Debug, Clone, PartialEq)]
pub struct Input {
    kind: Kind,
}

#[derive(Debug, Clone, PartialEq)]
enum Kind {
    Document(Body),
    Http(Vec<Request>),
    Steps(Vec<Step>),
}

/// An input that cannot be reduced, with the reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidInput(String);

/// A stage of the reduction: the kind of part that is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// Whole requests.
    Requests,
    /// Headers, query parameters and bodies of requests.
    Parts,
    /// Members and elements of JSON at this depth, from 1.
    Depth(u16),
    /// Values of JSON; they are replaced by `""`, 0 or false instead of being removed.
    Values,
    /// Lines of text.
    Lines,
    /// Words of text.
    Words,
    /// Characters of text and of JSON strings.
    Characters,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Requests => f.write_str("requests"),
            Self::Parts => f.write_str("parts of requests"),
            Self::Depth(depth) => write!(f, "JSON at depth {depth}"),
            Self::Values => f.write_str("values"),
            Self::Lines => f.write_str("lines"),
            Self::Words => f.write_str("words"),
            Self::Characters => f.write_str("characters"),
        }
    }
}

/// The units that can be removed at a stage.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Units {
    /// The number of units; each stands for a group of neighbours where there are too many.
    pub count: usize,
    /// Neighbours per unit; 1 where each stands for itself.
    pub group: usize,
    /// Dependencies as pairs: the first makes no sense without the second.
    pub needs: Vec<(usize, usize)>,
}

impl Units {
    fn grouped(single: usize, needs: Vec<(usize, usize)>) -> Self {
        let group = single.div_ceil(MAX_UNITS).max(1);
        let grouped = |(a, b): (usize, usize)| (a / group, b / group);
        let needs = needs.into_iter().map(grouped).filter(|(a, b)| a != b).collect();
        Self { count: single.div_ceil(group), group, needs }
    }

    /// Adds everything that a set needs.
    pub fn close(&self, set: &DeltaSet) -> DeltaSet {
        let mut closed = set.clone();
        loop {
            let missing: Vec<usize> = self
                .needs
                .iter()
                .filter(|(unit, needed)| closed.contains(*unit) && !closed.contains(*needed))
                .map(|(_, needed)| *needed)
                .collect();
            if missing.is_empty() {
                return closed;
            }
            for needed in missing {
                closed.insert(needed);
            }
        }
    }
}

impl Input {
    /// Parses the text of a file.
    pub fn read(format: InputFormat, text: &str) -> Result<Self, InvalidInput> {
        if text.len() > MAX_BYTES {
            return Err(InvalidInput(format!("it has {} bytes, more than {MAX_BYTES}", text.len())));
        }
        let kind = match format {
            InputFormat::Text => Kind::Document(Body::Text(text.to_owned())),
            InputFormat::Json => Kind::Document(Body::json(text).map_err(InvalidInput)?),
            InputFormat::Http => Kind::Http(http::read(text).map_err(InvalidInput)?),
        };
        Ok(Self { kind })
    }

    /// Takes the steps of a test as the input.
    pub fn from_steps(steps: &[Step]) -> Result<Self, InvalidInput> {
        let deepest = steps.iter().filter_map(|step| match &step.body {
            Some(StepBody::Json(json)) => Some(body::depth(json)),
            _ => None,
        });
        if deepest.max().is_some_and(|depth| depth > MAX_DEPTH) {
            return Err(InvalidInput(format!("its JSON is deeper than {MAX_DEPTH}")));
        }
        Ok(Self { kind: Kind::Steps(steps.to_vec()) })
    }

    /// The steps, if the input consists of steps.
    pub fn steps(&self) -> Option<&[Step]> {
        match &self.kind {
            Kind::Steps(steps) => Some(steps),
            _ => None,
        }
    }

    /// The stages of the reduction, coarse ones first.
    pub fn stages(&self) -> Vec<Stage> {
        let mut stages = Vec::new();
        if !matches!(self.kind, Kind::Document(_)) {
            stages.extend([Stage::Requests, Stage::Parts]);
        }
        let deepest = self.bodies().iter().map(|body| body.depth()).max().unwrap_or_default();
        stages.extend((1..=deepest).map(|depth| Stage::Depth(u16::try_from(depth).unwrap_or(u16::MAX))));
        stages.extend([Stage::Values, Stage::Lines, Stage::Words, Stage::Characters]);
        stages
    }

    /// The units that can be removed at a stage.
    pub fn units(&self, stage: Stage) -> Units {
        match (stage, &self.kind) {
            (Stage::Requests, Kind::Steps(steps)) => Units::grouped(steps.len(), http::needs(steps)),
            (Stage::Requests, Kind::Http(requests)) => Units::grouped(requests.len(), Vec::new()),
            (Stage::Parts, Kind::Steps(steps)) => {
                Units::grouped(steps.iter().map(http::step_parts).sum(), Vec::new())
            }
            (Stage::Parts, Kind::Http(list)) => {
                Units::grouped(list.iter().map(Request::parts).sum(), Vec::new())
            }
            (Stage::Requests | Stage::Parts, Kind::Document(_)) => Units::grouped(0, Vec::new()),
            _ => Units::grouped(self.bodies().iter().map(|body| body.units(stage)).sum(), Vec::new()),
        }
    }

    /// Builds the input with only these units of a stage.
    pub fn keep(&self, stage: Stage, kept: &DeltaSet) -> Self {
        let group = self.units(stage).group.max(1);
        let mut next = 0;
        let mut keeps = || {
            next += 1;
            kept.contains((next - 1) / group)
        };
        let kind = match (stage, &self.kind) {
            (Stage::Requests, Kind::Steps(steps)) => {
                Kind::Steps(steps.iter().filter(|_| keeps()).cloned().collect())
            }
            (Stage::Requests, Kind::Http(list)) => {
                Kind::Http(list.iter().filter(|_| keeps()).cloned().collect())
            }
            (Stage::Parts, Kind::Steps(steps)) => {
                Kind::Steps(steps.iter().map(|step| http::keep_step_parts(step, &mut keeps)).collect())
            }
            (Stage::Parts, Kind::Http(list)) => {
                Kind::Http(list.iter().map(|request| request.keep_parts(&mut keeps)).collect())
            }
            (Stage::Requests | Stage::Parts, Kind::Document(_)) => self.kind.clone(),
            (_, Kind::Document(body)) => Kind::Document(body.keep(stage, &mut keeps)),
            (_, Kind::Http(list)) => {
                Kind::Http(list.iter().map(|r| r.keep_in_body(stage, &mut keeps)).collect())
            }
            (_, Kind::Steps(steps)) => Kind::Steps(
                steps.iter().map(|step| http::keep_in_step_body(step, stage, &mut keeps)).collect(),
            ),
        };
        Self { kind }
    }

    /// The text of the file; steps are written as in an application file.
    pub fn render(&self) -> String {
        match &self.kind {
            Kind::Document(body) => body.render(),
            Kind::Http(requests) => http::render(requests),
            Kind::Steps(steps) => http::render_steps(steps),
        }
    }

    fn bodies(&self) -> Vec<Body> {
        match &self.kind {
            Kind::Document(body) => vec![body.clone()],
            Kind::Http(requests) => requests.iter().filter_map(|r| r.body.clone()).collect(),
            Kind::Steps(steps) => steps.iter().filter_map(|s| s.body.as_ref().map(Body::from_step)).collect(),
        }
    }
}

#[cfg(test)]
mod tests;
