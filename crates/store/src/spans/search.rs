//! Finds the newest traces that match a query, loading as few traces as possible.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use faultscope_model::TraceId;
use faultscope_model::trace::{ReportedSpan, TraceQuery, group_by_trace, trace_start_us};

use super::reader::{Matching, Snapshot};
use super::scan::{Answer, Numbered, Part, Scan};
use super::slice::{Slice, TIMELESS};
use super::trace_memory::TraceMemory;
use crate::error::StoreError;
use crate::weight::weigh_span;

/// How many rows are sampled to estimate which condition is the most selective.
const SAMPLE: i64 = 256;

/// The cost of reading a row, relative to loading a trace; checking an entry costs next to nothing.
const ROW_COST: f64 = 0.15;

/// How far before the end of the time window a trace may start and still be found by its later spans.
const ACROSS_US: u64 = 10_000_000;

/// How many traces one search checks before it returns what it has.
const MAX_SEEN: usize = 200_000;

/// How many spans without a start one search checks: the rest of their trace decides.
const MAX_TIMELESS: usize = 1000;

/// The most bytes of found traces that are kept for the answer; others are read again for it.
const MAX_KEPT: usize = 4 << 20;

/// Finds the latest traces that match a query; none if other queries have the memory for it.
pub(super) fn search(
    snapshot: &Snapshot,
    strict: bool,
    query: &TraceQuery,
    matching: Matching<'_>,
    memory: &mut TraceMemory,
) -> Result<Option<Best>, StoreError> {
    let scan = Scan {
        service: query.service.as_deref(),
        part: cheapest(snapshot, query)?,
        from_us: query.end_us.saturating_sub(query.lookback_us),
        to_us: query.end_us,
    };
    let others = Others::new(snapshot, query, scan.part);
    let mut best = Best { limit: query.limit, traces: BTreeMap::new(), kept: 0 };
    let mut seen = HashSet::new();
    let mut timeless = 0;
    let mut look = |trace_low: u64, best: &mut Best| -> Result<bool, StoreError> {
        if seen.len() < MAX_SEEN && seen.insert(trace_low) && others.may_hold(trace_low)? {
            let Some(spans) = snapshot.spans_of(trace_low, memory)? else { return Ok(false) };
            for spans in group_by_trace(spans, strict).into_iter().filter(|spans| matching(query, spans)) {
                best.add(spans, memory);
            }
        }
        Ok(true)
    };
    for trace_low in across_the_end(snapshot, scan)? {
        if !look(trace_low, &mut best)? {
            return Ok(None);
        }
    }
    for (slice, scan, piece) in snapshot.pieces(scan)? {
        // A trace starts no later than any of its spans, so no remaining one can be among the latest.
        if piece.max_us < best.floor() {
            break;
        }
        for (start_us, trace_low) in slice.or_nothing(slice.search(&scan, piece))? {
            if start_us < best.floor() {
                break;
            }
            timeless += usize::from(start_us == TIMELESS);
            if (start_us != TIMELESS || timeless <= MAX_TIMELESS) && !look(trace_low, &mut best)? {
                return Ok(None);
            }
        }
    }
    Ok(Some(best))
}

/// Traces with a span before the end of the time window and a match soon after it.
fn across_the_end(snapshot: &Snapshot, scan: Scan<'_>) -> Result<Vec<u64>, StoreError> {
    let lows = |scan: Scan<'_>| -> Result<HashSet<u64>, StoreError> {
        let mut lows = HashSet::new();
        for (slice, scan, piece) in snapshot.pieces(scan)? {
            let found = slice.or_nothing(slice.search(&scan, piece))?.into_iter();
            lows.extend(found.filter(|(start, _)| *start != TIMELESS).map(|(_, trace_low)| trace_low));
        }
        Ok(lows)
    };
    let end = scan.to_us;
    let after = Scan { from_us: end.saturating_add(1), to_us: end.saturating_add(ACROSS_US), ..scan };
    let after = lows(after)?;
    if after.is_empty() {
        return Ok(Vec::new());
    }
    let from_us = end.saturating_sub(ACROSS_US);
    let before = lows(Scan { service: None, part: Part::Any, from_us, to_us: end })?;
    Ok(after.intersection(&before).copied().collect())
}

/// The condition for which the fewest rows and traces must be read, estimated from the latest spans.
fn cheapest<'q>(snapshot: &Snapshot, query: &'q TraceQuery) -> Result<Part<'q>, StoreError> {
    let parts = Part::all(query);
    if parts.len() < 2 {
        return Ok(parts.first().copied().unwrap_or(Part::Any));
    }
    let mut sample = Vec::new();
    for (_, slice) in snapshot.0.iter().take(2) {
        sample.extend(slice.or_nothing(slice.sample(SAMPLE))?);
    }
    let cost = |part: &Part<'_>| {
        let rows = if matches!(part, Part::Term(..)) { ROW_COST } else { 0.0 };
        let found = sample.iter().filter(|span| part.holds(span)).count();
        rows + found as f64 / sample.len().max(1) as f64
    };
    Ok(parts.into_iter().min_by(|a, b| cost(a).total_cmp(&cost(b))).unwrap_or(Part::Any))
}

/// The other conditions of a query, with the numbers of each slice.
struct Others<'q> {
    parts: Vec<Part<'q>>,
    slices: Vec<(Arc<Slice>, Vec<Numbered<'q>>)>,
}

impl<'q> Others<'q> {
    fn new(snapshot: &Snapshot, query: &'q TraceQuery, done: Part<'q>) -> Self {
        let is_open = |part: &Part<'_>| *part != done && *part != Part::Any;
        let parts: Vec<_> = Part::all(query).into_iter().filter(is_open).collect();
        let scan = |part| Scan { service: query.service.as_deref(), part, from_us: 0, to_us: u64::MAX };
        let slices = snapshot.0.iter().filter(|_| !parts.is_empty()).map(|(_, slice)| {
            let numbered = parts.iter().map(|part| slice.numbered(scan(*part))).collect();
            (Arc::clone(slice), numbered)
        });
        let slices = slices.collect();
        Self { parts, slices }
    }

    /// Whether each condition may hold for some span of a trace: most can be decided from the entries alone,
    /// and for a tag only rows of the service are read. Loading the trace would read them all.
    fn may_hold(&self, trace_low: u64) -> Result<bool, StoreError> {
        let mut open: Vec<bool> = vec![true; self.parts.len()];
        let mut to_ask = Vec::new();
        for (at, (slice, numbered)) in self.slices.iter().enumerate() {
            let looked = slice.entries_of(trace_low, |row, entry| {
                for (place, part) in numbered.iter().enumerate() {
                    match (part.test(entry), self.parts[place]) {
                        (Answer::No, _) => {}
                        (_, Part::Term(..)) => to_ask.push((place, at, row, *entry)),
                        _ => open[place] = false,
                    }
                }
            });
            slice.or_nothing(looked)?;
        }
        let is_term = |part: &Part<'_>| matches!(part, Part::Term(..));
        if self.parts.iter().zip(&open).any(|(part, open)| *open && !is_term(part)) {
            return Ok(false);
        }
        for (place, at, row, entry) in to_ask {
            let (slice, numbered) = &self.slices[at];
            if open[place] && slice.or_nothing(slice.check_row(&numbered[place], row, &entry))? {
                open[place] = false;
            }
        }
        Ok(!open.contains(&true))
    }
}

/// The latest traces so far, by start and id.
pub(super) struct Best {
    limit: usize,
    traces: BTreeMap<(u64, u128), Candidate>,
    /// The bytes of all spans in it.
    kept: usize,
}

/// A trace of the answer.
struct Candidate {
    /// None if there was no room to keep them: they are read again.
    spans: Option<Vec<ReportedSpan>>,
    bytes: usize,
}

impl Best {
    /// Traces that start before this cannot be among the latest.
    fn floor(&self) -> u64 {
        if self.traces.len() < self.limit {
            return 0;
        }
        self.traces.keys().next().map_or(u64::MAX, |(start, _)| *start)
    }

    /// Adds a trace that was just read.
    pub(super) fn add(&mut self, spans: Vec<ReportedSpan>, memory: &mut TraceMemory) {
        let start = trace_start_us(&spans).unwrap_or_default();
        let id = spans.first().map_or(0, |span| span.trace.0);
        let bytes = spans.iter().map(weigh_span).sum();
        let fits = self.kept + bytes <= MAX_KEPT;
        let candidate = Candidate { spans: fits.then_some(spans), bytes: if fits { bytes } else { 0 } };
        self.kept += candidate.bytes;
        if let Some(earlier) = self.traces.insert((start, id), candidate) {
            self.kept -= earlier.bytes;
        }
        if self.traces.len() > self.limit
            && let Some((_, last)) = self.traces.pop_first()
        {
            self.kept -= last.bytes;
        }
        memory.keep(self.kept);
    }

    /// Removes a trace.
    pub(super) fn remove(&mut self, id: TraceId) {
        for (_, gone) in self.traces.extract_if(.., |(_, known), _| *known == id.0) {
            self.kept -= gone.bytes;
        }
    }

    /// The traces, with their spans if they were kept.
    pub(super) fn into_latest_first(self) -> impl Iterator<Item = (TraceId, Option<Vec<ReportedSpan>>)> {
        self.traces.into_iter().rev().map(|((_, id), candidate)| (TraceId(id), candidate.spans))
    }
}
