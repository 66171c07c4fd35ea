//! What a search checks in each row, so that few traces have to be loaded as a whole.
//!
//! The conditions of a query may hold for different spans of a trace, so rows are checked for one condition only.

use faultscope_model::trace::{ReportedSpan, TraceQuery};

use super::hash::Terms;
use super::intern::{NameList, same};
use super::row::UNNUMBERED;
use super::segment::{Described, Entry, short};

/// The term of spans whose status alone says that they failed.
pub(super) const FAILED: &str = "error";

/// One condition of a query: every matching trace has a span of the service that satisfies it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part<'q> {
    /// Any span.
    Any,
    /// A span whose duration lies between two.
    Duration(u64, u64),
    /// A span with this name.
    Name(&'q str),
    /// A span with this service on the other side.
    Remote(&'q str),
    /// A span with this tag and value, or this annotation or tag key.
    Term(&'q str, Option<&'q str>),
}

impl<'q> Part<'q> {
    /// All conditions of a query except service and time.
    pub(super) fn all(query: &'q TraceQuery) -> Vec<Self> {
        let terms = query.terms.iter().map(|(key, value)| Self::Term(key, value.as_deref()));
        let duration = query.least_us.is_some() || query.most_us.is_some();
        let duration = duration
            .then(|| Self::Duration(query.least_us.unwrap_or_default(), query.most_us.unwrap_or(u64::MAX)));
        let others = [duration, query.name.as_deref().map(Self::Name)];
        let others = others.into_iter().chain([query.remote_service.as_deref().map(Self::Remote)]);
        terms.chain(others.flatten()).collect()
    }

    /// Whether a span satisfies it.
    pub(super) fn holds(&self, span: &ReportedSpan) -> bool {
        match *self {
            Self::Any => true,
            Self::Duration(least, most) => {
                span.duration_us.is_some_and(|duration| (least..=most).contains(&duration))
            }
            Self::Name(name) => same(name, &span.name),
            Self::Remote(name) => span.remote.service.as_deref().is_some_and(|found| same(name, found)),
            Self::Term(key, Some(value)) => span.tag(key) == Some(value),
            Self::Term(key, None) => {
                span.tag(key).is_some()
                    || span.annotations.iter().any(|(_, text)| text == key)
                    || (key == FAILED && span.failed)
            }
        }
    }
}

/// A search as each slice runs it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scan<'q> {
    pub(super) service: Option<&'q str>,
    pub(super) part: Part<'q>,
    pub(super) from_us: u64,
    pub(super) to_us: u64,
}

/// A search with names replaced by the numbers of one slice.
#[derive(Debug, Clone)]
pub(super) struct Numbered<'q> {
    pub(super) scan: Scan<'q>,
    service: Option<Vec<u16>>,
    /// The numbers of the requested name.
    name: Vec<u16>,
}

/// What an entry reveals about its row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    No,
    Yes,
    /// The row itself must be read.
    Ask,
}

impl<'q> Scan<'q> {
    pub(super) fn numbered(self, names: &NameList) -> Numbered<'q> {
        let name = match self.part {
            Part::Name(name) | Part::Remote(name) => names.numbers(name),
            _ => Vec::new(),
        };
        Numbered { scan: self, service: self.service.map(|service| names.numbers(service)), name }
    }

    /// Whether a span matches.
    pub(super) fn holds(&self, span: &ReportedSpan) -> bool {
        let is_service =
            |service: &str| span.local.service.as_deref().is_some_and(|found| same(service, found));
        self.service.is_none_or(is_service) && self.part.holds(span)
    }
}

impl Numbered<'_> {
    /// Whether a segment may contain a matching row; its terms are checked separately.
    pub(super) fn may_be_in(&self, segment: &Described) -> bool {
        let Scan { from_us, to_us, part, .. } = self.scan;
        if segment.min_us > to_us || (segment.min_us > 0 && segment.max_us < from_us) {
            return false;
        }
        match (segment.longest(self.service.as_deref()), part) {
            (None, _) => false,
            (Some(longest), Part::Duration(least, _)) => longest >= short(least),
            _ => true,
        }
    }

    /// The term that a segment must have, in the terms of its slice.
    pub(super) fn term(&self, terms: &Terms) -> Option<u32> {
        match self.scan.part {
            Part::Term(key, Some(value)) => Some(terms.tag(key, value)[1]),
            Part::Term(key, None) => Some(terms.word(key)),
            _ => None,
        }
    }

    /// Whether the row of an entry matches.
    pub(super) fn test(&self, entry: &Entry) -> Answer {
        let Scan { from_us, to_us, part, .. } = self.scan;
        if entry.start_us > 0 && (entry.start_us < from_us || entry.start_us > to_us) {
            return Answer::No;
        }
        let service = self.service.as_deref().map_or(Answer::Yes, |own| named(own, entry.numbers.service));
        if service == Answer::No {
            return Answer::No;
        }
        let answer = match part {
            Part::Any => Answer::Yes,
            Part::Name(_) => named(&self.name, entry.numbers.name),
            Part::Remote(_) => named(&self.name, entry.numbers.remote),
            Part::Duration(..) if entry.duration_us == u32::MAX => Answer::Ask,
            Part::Duration(least, most) => {
                let fits = (least..=most).contains(&u64::from(entry.duration_us));
                if fits && entry.duration_us > 0 { Answer::Yes } else { Answer::No }
            }
            Part::Term(..) => Answer::Ask,
        };
        if answer == Answer::Yes { service } else { answer }
    }
}

/// A name without a number is only in its row.
fn named(wanted: &[u16], found: u16) -> Answer {
    match found {
        UNNUMBERED => Answer::Ask,
        _ if wanted.contains(&found) => Answer::Yes,
        _ => Answer::No,
    }
}
