//! About how many bytes spans and points take in memory, for budgets and bounds.
//!
//! The figures are on the high side: a text costs its bytes, the pointer to them and the allocator's own head, and
//! lists have room for more than they hold.

use faultscope_model::metrics::Point;
use faultscope_model::trace::ReportedSpan;

/// What a pair of texts in a list costs besides its characters.
const PAIR: usize = 112;

/// What a text with a number in a list costs besides its characters.
const NOTE: usize = 64;

/// The bytes of a span.
pub(crate) fn weigh_span(span: &ReportedSpan) -> usize {
    let notes: usize = span.annotations.iter().map(|(_, text)| text.len() + NOTE).sum();
    let service = |name: &Option<String>| name.as_ref().map_or(0, String::len);
    let names = span.name.len() + service(&span.local.service) + service(&span.remote.service);
    size_of::<ReportedSpan>() + names + weigh_pairs(&span.tags) + notes
}

/// The bytes of a point with its labels.
pub(crate) fn weigh_point(point: &Point) -> usize {
    let series = &point.series;
    let names = series.name.len() + series.service.len() + series.unit.len();
    size_of::<Point>() + names + weigh_pairs(&series.about)
}

/// The bytes of tags or labels.
pub(crate) fn weigh_pairs(pairs: &[(String, String)]) -> usize {
    pairs.iter().map(|(key, value)| key.len() + value.len() + PAIR).sum()
}
