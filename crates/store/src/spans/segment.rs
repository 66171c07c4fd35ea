//! Describes about a thousand consecutive rows, so that most searches need not read them.

use std::collections::BTreeMap;

use faultscope_model::trace::ReportedSpan;

use super::hash::Terms;
use super::row::{Numbers, UNNUMBERED};
use super::scan::FAILED;

/// Rows per segment.
pub(super) const ROWS: usize = 1024;

/// A segment also ends with this many terms, however few its rows are.
const MAX_TERMS: usize = 1 << 17;

/// The part of a row that searches check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    /// 0 if the span has no start: then the rest of its trace decides whether it is in the time window.
    pub(super) start_us: u64,
    /// The lower half of the trace id.
    pub(super) trace_low: u64,
    /// 0 if the span has no duration; anything above an hour is stored as slightly more than an hour.
    pub(super) duration_us: u32,
    pub(super) numbers: Numbers,
}

impl Entry {
    const BYTES: usize = 26;

    pub(super) fn from_span(span: &ReportedSpan, numbers: Numbers) -> Self {
        Self {
            start_us: span.start_us.unwrap_or_default(),
            trace_low: span.trace.0 as u64,
            duration_us: short(span.duration_us.unwrap_or_default()),
            numbers,
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend(self.start_us.to_le_bytes());
        out.extend(self.trace_low.to_le_bytes());
        out.extend(self.duration_us.to_le_bytes());
        for number in [self.numbers.service, self.numbers.remote, self.numbers.name] {
            out.extend(number.to_le_bytes());
        }
    }

    fn read(bytes: &[u8; Self::BYTES]) -> Self {
        let two = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let eight = |at: usize| {
            let low = u64::from(two(at)) | u64::from(two(at + 2)) << 16;
            low | u64::from(two(at + 4)) << 32 | u64::from(two(at + 6)) << 48
        };
        Self {
            start_us: eight(0),
            trace_low: eight(8),
            duration_us: u32::from(two(16)) | u32::from(two(18)) << 16,
            numbers: Numbers { service: two(20), remote: two(22), name: two(24) },
        }
    }
}

/// A duration in the resolution of entries.
pub(super) fn short(duration_us: u64) -> u32 {
    u32::try_from(duration_us).unwrap_or(u32::MAX)
}

/// The entries of a segment, in the order of its rows.
pub(super) fn entries(columns: &[u8]) -> impl Iterator<Item = Entry> {
    columns.as_chunks::<{ Entry::BYTES }>().0.iter().map(Entry::read)
}

/// The rows of a trace, relative to the first row of the segment.
pub(super) fn rows_of(columns: &[u8], trace_low: u64) -> impl Iterator<Item = i64> {
    let wanted = trace_low.to_le_bytes();
    let rows = columns.as_chunks::<{ Entry::BYTES }>().0.iter().enumerate();
    rows.filter(move |(_, bytes)| bytes[8..16] == wanted).map(|(index, _)| index as i64)
}

/// The entries of a trace, with rows relative to the first row of the segment.
pub(super) fn entries_of(columns: &[u8], trace_low: u64) -> impl Iterator<Item = (i64, Entry)> {
    let wanted = trace_low.to_le_bytes();
    let rows = columns.as_chunks::<{ Entry::BYTES }>().0.iter().enumerate();
    let own = rows.filter(move |(_, bytes)| bytes[8..16] == wanted);
    own.map(|(index, bytes)| (index as i64, Entry::read(bytes)))
}

/// A segment whose rows are being written.
#[derive(Debug, Default)]
pub(super) struct Builder {
    first: i64,
    entries: Vec<Entry>,
    terms: Vec<u32>,
}

/// A segment as stored.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) first: i64,
    pub(super) last: i64,
    pub(super) min_us: u64,
    pub(super) max_us: u64,
    pub(super) services: Vec<u8>,
    pub(super) traces: Vec<u8>,
    pub(super) columns: Vec<u8>,
    pub(super) terms: Vec<u8>,
}

impl Builder {
    /// Adds the next row.
    pub(super) fn add(&mut self, row: i64, span: &ReportedSpan, numbers: Numbers, terms: &Terms) {
        if self.entries.is_empty() {
            self.first = row;
        }
        self.entries.push(Entry::from_span(span, numbers));
        for (key, value) in &span.tags {
            self.terms.extend(terms.tag(key, value));
        }
        if span.failed {
            self.terms.push(terms.word(FAILED));
        }
        self.terms.extend(span.annotations.iter().map(|(_, text)| terms.word(text)));
    }

    /// Whether it is complete.
    pub(super) fn is_full(&self) -> bool {
        self.entries.len() >= ROWS || self.terms.len() >= MAX_TERMS
    }

    /// The segment of all rows so far, none without rows; the next row begins another one.
    pub(super) fn finish(&mut self) -> Option<Segment> {
        let rows = i64::try_from(self.entries.len()).ok().filter(|rows| *rows > 0)?;
        let starts = || self.entries.iter().map(|entry| entry.start_us);
        let mut longest: BTreeMap<u16, u32> = BTreeMap::new();
        let mut traces = Vec::with_capacity(self.entries.len() / 4);
        let mut columns = Vec::with_capacity(self.entries.len() * Entry::BYTES);
        for entry in &self.entries {
            let known = longest.entry(entry.numbers.service).or_default();
            *known = entry.duration_us.max(*known);
            let key = trace_key(entry.trace_low);
            // Spans of a trace arrive close together, so most repetitions are caught here.
            if traces.last() != Some(&key) {
                traces.push(key);
            }
            entry.write(&mut columns);
        }
        let segment = Segment {
            first: self.first,
            last: self.first + rows - 1,
            min_us: starts().min().unwrap_or_default(),
            max_us: starts().max().unwrap_or_default(),
            services: longest
                .into_iter()
                .flat_map(|(service, longest)| {
                    let ([a, b], [c, d, e, f]) = (service.to_le_bytes(), longest.to_le_bytes());
                    [a, b, c, d, e, f]
                })
                .collect(),
            traces: sorted(&mut traces),
            columns,
            terms: sorted(&mut self.terms),
        };
        self.entries.clear();
        self.terms.clear();
        Some(segment)
    }
}

/// The part of a trace id that segments store.
pub(super) fn trace_key(trace_low: u64) -> u32 {
    trace_low as u32
}

fn sorted(values: &mut Vec<u32>) -> Vec<u8> {
    values.sort_unstable();
    values.dedup();
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// Reads numbers sorted by [`Builder::finish`].
pub(super) fn numbers(bytes: &[u8]) -> impl Iterator<Item = u32> {
    bytes.as_chunks::<4>().0.iter().map(|bytes| u32::from_le_bytes(*bytes))
}

/// Whether a number is among those sorted by [`Builder::finish`].
pub(super) fn contains(bytes: &[u8], number: u32) -> bool {
    bytes.as_chunks::<4>().0.binary_search_by_key(&number, |bytes| u32::from_le_bytes(*bytes)).is_ok()
}

/// What a reader keeps of a segment in memory.
#[derive(Debug)]
pub(super) struct Described {
    /// The number of the segment in its slice.
    pub(super) id: i64,
    pub(super) first: i64,
    pub(super) last: i64,
    /// 0 if some span has no start.
    pub(super) min_us: u64,
    pub(super) max_us: u64,
    /// Each service with its longest span.
    services: Box<[(u16, u32)]>,
}

impl Described {
    pub(super) fn read(row: &rusqlite::Row<'_>) -> rusqlite::Result<Self> {
        let services = row.get_ref(5)?.as_blob()?.as_chunks::<6>().0;
        let service = |[a, b, c, d, e, f]: &[u8; 6]| {
            (u16::from_le_bytes([*a, *b]), u32::from_le_bytes([*c, *d, *e, *f]))
        };
        Ok(Self {
            id: row.get(0)?,
            first: row.get(1)?,
            last: row.get(2)?,
            min_us: row.get::<_, i64>(3)?.cast_unsigned(),
            max_us: row.get::<_, i64>(4)?.cast_unsigned(),
            services: services.iter().map(service).collect(),
        })
    }

    /// The longest span of a service, or of any; none if the service has no span here.
    pub(super) fn longest(&self, service: Option<&[u16]>) -> Option<u32> {
        let is_of =
            |number: u16| number == UNNUMBERED || service.is_none_or(|numbers| numbers.contains(&number));
        self.services.iter().filter(|(number, _)| is_of(*number)).map(|(_, longest)| *longest).max()
    }
}

#[cfg(test)]
mod tests {
    use faultscope_model::{SpanId, TraceId};

    use super::*;

    #[test]
    fn a_segment_describes_its_rows() {
        for terms in [Terms::Plain, Terms::Keyed(3, 4)] {
            check_segment(terms);
        }
    }

    fn check_segment(terms: Terms) {
        let mut builder = Builder::default();
        assert!(builder.finish().is_none());
        for n in 0..10u16 {
            let mut span = ReportedSpan::new(TraceId(u128::from(n / 5) + 7), SpanId(1));
            span.start_us = (n != 3).then_some(1000 + u64::from(n));
            span.duration_us = Some(u64::MAX >> n);
            span.tags.push(("k".into(), format!("v{n}")));
            span.annotations.push((5, "cache miss".into()));
            builder.add(
                i64::from(n) + 100,
                &span,
                Numbers { service: n % 2 + 1, remote: 0, name: 9 },
                &terms,
            );
        }
        let segment = builder.finish().unwrap();
        assert_eq!((segment.first, segment.last, segment.min_us, segment.max_us), (100, 109, 0, 1009));
        assert_eq!(numbers(&segment.traces).collect::<Vec<_>>(), [7, 8]);
        assert_eq!(rows_of(&segment.columns, 8).collect::<Vec<_>>(), [5, 6, 7, 8, 9]);
        let third = entries(&segment.columns).nth(3).unwrap();
        assert_eq!((third.start_us, third.duration_us, third.numbers.service), (0, u32::MAX, 2));
        for (term, there) in [
            (terms.word("k"), true),
            (terms.tag("k", "v9")[0], true),
            (terms.tag("k", "v9")[1], true),
            (terms.word("cache miss"), true),
            (terms.tag("k", "v10")[1], false),
        ] {
            assert_eq!(contains(&segment.terms, term), there);
        }
        assert!(builder.finish().is_none());
    }
}
