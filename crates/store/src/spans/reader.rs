//! Reads spans from all slices: a trace may be spread over several.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use faultscope_model::TraceId;
use faultscope_model::metrics::{PointsBySeries, TimeSeries};
use faultscope_model::trace::{
    CallEdge, DependencyLink, Linker, ReportedSpan, TraceQuery, TraceTree, group_by_trace, trace_start_us,
};

use super::catalogue::{Catalogue, SliceEntry};
use super::points::{self, SeriesEntry};
use super::scan::{Part, Scan};
use super::search::search;
use super::seen;
use super::slice::{Piece, Slice, TIMELESS, is_gone, name_unreadable};
use super::trace_memory::{NoRoom, TraceMemory, TraceSpans};
use crate::campaigns::CampaignTraces;
use crate::error::{StoreError, StoreErrorKind};
use crate::sealed::ReadKey;
use crate::secrets::{Key, KeyPlace};
use crate::series_table::{SeriesFound, SeriesQuery};

/// How many slices stay open, each with the descriptions of its segments in memory.
const MAX_OPEN: usize = 48;

/// How many traces are used for one dependency graph, the latest first.
const MAX_LINKED: usize = 200_000;

/// Whether a trace matches a query; Zipkin and Jaeger differ in this.
pub(crate) type Matching<'m> = &'m dyn Fn(&TraceQuery, &[ReportedSpan]) -> bool;

/// Called with each trace of an answer; returns whether more are wanted.
pub(crate) type Visit<'v> = &'v mut dyn FnMut(Vec<ReportedSpan>) -> bool;

/// Reads the committed spans of a folder, even while another process writes. Its functions block on
/// the disk.
#[derive(Debug)]
pub struct SpanReader {
    folder: PathBuf,
    /// Whether a 64-bit trace id differs from a 128-bit id with the same lower half.
    strict: bool,
    key: ReadKey,
    open: Mutex<BTreeMap<u32, Arc<Slice>>>,
    /// Slices that could not be opened, with the state of their files then: each is named once.
    unreadable: Mutex<BTreeMap<u32, Unreadable>>,
    /// Spans of campaigns, which are joined with ingested ones.
    campaigns: CampaignTraces,
}

/// The size of a file and when it was changed.
type FileState = Option<(u64, std::time::SystemTime)>;

/// A slice that could not be opened.
#[derive(Debug, PartialEq, Eq)]
struct Unreadable {
    file: FileState,
    /// Whether only another file could be read. A missing key or permission may come back.
    is_final: bool,
}

impl Unreadable {
    fn new(error: &StoreError, path: &Path) -> Self {
        let is_final = matches!(error.kind, StoreErrorKind::Damaged | StoreErrorKind::Newer);
        Self { file: state_of(path), is_final }
    }
}

/// The slices at one moment, newest first.
pub(super) struct Snapshot(pub(super) Vec<(SliceEntry, Arc<Slice>)>);

impl SpanReader {
    /// A reader of a `.faultscope` folder, which may have no spans yet.
    pub fn open(state: &Path, strict: bool) -> Self {
        let campaigns = CampaignTraces::new(state);
        let (folder, key) = (state.join(super::FOLDER), ReadKey::default());
        Self { folder, strict, key, open: Mutex::default(), unreadable: Mutex::default(), campaigns }
    }

    /// The same with another key than the user's.
    pub fn with_key(mut self, place: KeyPlace) -> Self {
        self.key = ReadKey::new(Some(place));
        self.campaigns = self.campaigns.with_key(self.key.clone());
        self
    }

    /// All reports about the spans of a trace in the order of arrival; empty if it is unknown.
    pub fn trace(&self, id: TraceId) -> Result<Vec<ReportedSpan>, StoreError> {
        self.load_trace(id, &mut TraceMemory::unlimited())
    }

    /// As [`Self::trace`], within the memory of a query.
    pub(crate) fn load_trace(
        &self,
        id: TraceId,
        memory: &mut TraceMemory,
    ) -> Result<Vec<ReportedSpan>, StoreError> {
        self.load_from(&self.snapshot()?, id, memory)
    }

    fn load_from(
        &self,
        snapshot: &Snapshot,
        id: TraceId,
        memory: &mut TraceMemory,
    ) -> Result<Vec<ReportedSpan>, StoreError> {
        let mut trace = memory.begin();
        snapshot.read_spans(id.0 as u64, &mut trace)?;
        for span in self.campaigns.trace(id)? {
            if !trace.add(span) {
                break;
            }
        }
        let spans = trace.finish().map_err(|NoRoom| self.no_room())?;
        let is_it = |trace: &Vec<ReportedSpan>| trace.iter().any(|span| self.is_same(span.trace, id));
        Ok(group_by_trace(spans, self.strict).into_iter().find(is_it).unwrap_or_default())
    }

    fn no_room(&self) -> StoreError {
        StoreError::new(StoreErrorKind::NoRoom, "read", &self.folder, "other queries have the memory for it")
    }

    /// The spans of a trace with secrets restored, for a replay on this machine. Discarded secrets stay
    /// redacted.
    pub fn restored_trace(&self, id: TraceId, key: &Key) -> Result<Vec<ReportedSpan>, StoreError> {
        let mut spans = Vec::new();
        for (_, slice) in self.snapshot()?.0.iter().rev() {
            slice.restored_spans_of(id.0 as u64, key, &mut spans)?;
        }
        spans.retain(|span| self.is_same(span.trace, id));
        Ok(spans)
    }

    /// Several traces; unknown ones are left out.
    pub fn traces(&self, ids: &[TraceId]) -> Result<Vec<Vec<ReportedSpan>>, StoreError> {
        collect(|visit| self.visit_traces(ids, &mut TraceMemory::unlimited(), visit))
    }

    /// As [`Self::traces`], one after the other.
    pub(crate) fn visit_traces(
        &self,
        ids: &[TraceId],
        memory: &mut TraceMemory,
        visit: Visit<'_>,
    ) -> Result<(), StoreError> {
        let snapshot = self.snapshot()?;
        let mut done = HashSet::new();
        for id in ids {
            let key = if self.strict { id.0 } else { u128::from(id.0 as u64) };
            if !done.insert(key) {
                continue;
            }
            let spans = self.load_from(&snapshot, *id, memory)?;
            if !spans.is_empty() && !visit(spans) {
                break;
            }
        }
        Ok(())
    }

    /// The traces that match a query, the latest first. The query finds the candidates, and `matching` decides.
    pub fn search(
        &self,
        query: &TraceQuery,
        matching: impl Fn(&TraceQuery, &[ReportedSpan]) -> bool,
    ) -> Result<Vec<Vec<ReportedSpan>>, StoreError> {
        collect(|visit| self.visit_search(query, &matching, &mut TraceMemory::unlimited(), visit))
    }

    /// As [`Self::search`], one trace after the other. Large traces are read a second time for this, so that never
    /// more than one of them is in memory.
    pub(crate) fn visit_search(
        &self,
        query: &TraceQuery,
        matching: Matching<'_>,
        memory: &mut TraceMemory,
        visit: Visit<'_>,
    ) -> Result<(), StoreError> {
        let snapshot = self.snapshot()?;
        let mut best =
            search(&snapshot, self.strict, query, matching, memory)?.ok_or_else(|| self.no_room())?;
        self.campaigns.visit_traces(query.end_us, &mut |mut spans| {
            let Some(id) = spans.first().map(|span| span.trace) else { return Ok(()) };
            // A trace may have spans in both: a result always has all of them.
            best.remove(id);
            let mut ingested = memory.begin();
            snapshot.read_spans(id.0 as u64, &mut ingested)?;
            let ingested = ingested.finish().map_err(|NoRoom| self.no_room())?;
            spans.extend(ingested.into_iter().filter(|span| self.is_same(span.trace, id)));
            if matching(query, &spans) {
                best.add(spans, memory);
            }
            Ok(())
        })?;
        for (id, kept) in best.into_latest_first() {
            let spans = match kept {
                Some(spans) => spans,
                None => self.load_from(&snapshot, id, memory)?,
            };
            // Retention may have been faster.
            if !spans.is_empty() && !visit(spans) {
                break;
            }
        }
        Ok(())
    }

    /// All services, sorted.
    pub fn services(&self) -> Result<Vec<String>, StoreError> {
        let mut services = self.gather(|slice, out| slice.services(out))?;
        self.gather_seen(&mut services, |span| span.local.service.as_deref())?;
        Ok(services.into_iter().collect())
    }

    /// The names of a service's spans, sorted.
    pub fn span_names(&self, service: &str) -> Result<Vec<String>, StoreError> {
        let mut names = self.gather(|slice, out| slice.texts(seen::NAME, service, out))?;
        self.gather_seen(&mut names, |span| Some(span.name.as_str()).filter(|_| is_of(span, service)))?;
        Ok(names.into_iter().collect())
    }

    /// The services on the other side of a service's spans, sorted.
    pub fn remote_services(&self, service: &str) -> Result<Vec<String>, StoreError> {
        let mut remotes = self.gather(|slice, out| slice.texts(seen::REMOTE, service, out))?;
        self.gather_seen(&mut remotes, |span| {
            span.remote.service.as_deref().filter(|_| is_of(span, service))
        })?;
        Ok(remotes.into_iter().collect())
    }

    /// The operations that callers of a service know, sorted.
    pub fn called_names(&self, service: &str) -> Result<Vec<String>, StoreError> {
        let is_called = |span: &ReportedSpan| {
            span.remote.service.as_deref().is_some_and(|remote| remote.eq_ignore_ascii_case(service))
        };
        let mut names = BTreeSet::new();
        self.gather_seen(&mut names, |span| Some(span.name.as_str()).filter(|_| is_called(span)))?;
        Ok(names.into_iter().collect())
    }

    /// The values of a tag that is configured for autocompletion, sorted.
    pub fn tag_values(&self, key: &str) -> Result<Vec<String>, StoreError> {
        Ok(self.gather(|slice, out| slice.texts(seen::TAG, key, out))?.into_iter().collect())
    }

    /// Calls between services in traces that start within a time window.
    pub fn dependencies(&self, end_us: u64, lookback_us: u64) -> Result<Vec<DependencyLink>, StoreError> {
        Ok(self.linked(end_us, lookback_us)?.links())
    }

    /// As [`Self::dependencies`], with rates and durations.
    pub fn edges(&self, end_us: u64, lookback_us: u64) -> Result<Vec<CallEdge>, StoreError> {
        Ok(self.linked(end_us, lookback_us)?.edges())
    }

    fn linked(&self, end_us: u64, lookback_us: u64) -> Result<Linker, StoreError> {
        let snapshot = self.snapshot()?;
        let from_us = end_us.saturating_sub(lookback_us);
        let scan = Scan { service: None, part: Part::Any, from_us, to_us: end_us };
        let mut linker = Linker::default();
        let mut seen = HashSet::new();
        let in_time = |spans: &[ReportedSpan]| {
            trace_start_us(spans).is_some_and(|start| (from_us..=end_us).contains(&start))
        };
        let mut memory = TraceMemory::unlimited();
        self.campaigns.visit_traces(end_us, &mut |mut spans| {
            let Some(id) = spans.first().map(|span| span.trace) else { return Ok(()) };
            seen.insert(id.0 as u64);
            let ingested = snapshot.spans_of(id.0 as u64, &mut memory)?.unwrap_or_default();
            spans.extend(ingested.into_iter().filter(|span| self.is_same(span.trace, id)));
            if in_time(&spans) {
                linker.add(&TraceTree::new(spans));
            }
            Ok(())
        })?;
        for (slice, scan, piece) in snapshot.pieces(scan)? {
            for (start_us, trace_low) in slice.or_nothing(slice.search(&scan, piece))? {
                if start_us == TIMELESS || seen.len() >= MAX_LINKED || !seen.insert(trace_low) {
                    continue;
                }
                let spans = snapshot.spans_of(trace_low, &mut memory)?.unwrap_or_default();
                for spans in group_by_trace(spans, self.strict) {
                    if in_time(&spans) {
                        linker.add(&TraceTree::new(spans));
                    }
                }
            }
        }
        Ok(linker)
    }

    /// The points of a metric between two times, of one service or all.
    pub fn points(
        &self,
        name: &str,
        service: Option<&str>,
        between: (u64, u64),
    ) -> Result<PointsBySeries, StoreError> {
        let mut found: BTreeMap<TimeSeries, BTreeMap<u64, f64>> = BTreeMap::new();
        for (_, slice) in self.snapshot()?.0.iter().rev() {
            let mut take = |series, at_us, value| {
                found.entry(series).or_default().insert(at_us, value);
            };
            slice.or_nothing(slice.read(|connection, opener| {
                points::read(connection, opener, name, service, between, &mut take)
            }))?;
        }
        Ok(found.into_iter().map(|(series, points)| (series, points.into_iter().collect())).collect())
    }

    /// The points of many series, up to a limit.
    pub fn many(&self, query: &SeriesQuery<'_>) -> Result<SeriesFound, StoreError> {
        let mut found = SeriesFound::default();
        for (_, slice) in self.snapshot()?.0.iter().rev() {
            slice.or_nothing(
                slice.read(|connection, opener| points::read_many(connection, opener, query, &mut found)),
            )?;
        }
        Ok(found)
    }

    /// All series with their extents, sorted.
    pub fn series(&self) -> Result<Vec<SeriesEntry>, StoreError> {
        let mut found: BTreeMap<TimeSeries, SeriesEntry> = BTreeMap::new();
        for (_, slice) in self.snapshot()?.0.iter().rev() {
            let mut take = |entry: SeriesEntry| {
                let Some(known) = found.get_mut(&entry.series) else {
                    found.insert(entry.series.clone(), entry);
                    return;
                };
                known.points += entry.points;
                known.first_us = known.first_us.min(entry.first_us);
                if entry.last_us >= known.last_us {
                    (known.last_us, known.last) = (entry.last_us, entry.last);
                }
            };
            slice.or_nothing(slice.read(|connection, opener| points::list(connection, opener, &mut take)))?;
        }
        Ok(found.into_values().collect())
    }

    /// The number of spans.
    pub fn count(&self) -> Result<u64, StoreError> {
        Ok(self.snapshot()?.0.iter().map(|(_, slice)| slice.count()).sum())
    }

    /// The slices, oldest first; bounds and counts of the active one are current.
    pub fn slices(&self) -> Result<Vec<SliceEntry>, StoreError> {
        let mut snapshot = self.snapshot()?;
        for (listed, slice) in &mut snapshot.0 {
            if listed.closed_us.is_none() {
                listed.spans = slice.count();
                listed.last_us = slice.last_us();
                listed.bytes = listed.size(&self.folder);
            }
        }
        Ok(snapshot.0.into_iter().rev().map(|(listed, _)| listed).collect())
    }

    fn is_same(&self, found: TraceId, asked: TraceId) -> bool {
        found == asked || !self.strict && found.0 as u64 == asked.0 as u64
    }

    fn gather(
        &self,
        add: impl Fn(&Slice, &mut BTreeSet<String>) -> Result<(), StoreError>,
    ) -> Result<BTreeSet<String>, StoreError> {
        let mut all = BTreeSet::new();
        for (_, slice) in &self.snapshot()?.0 {
            slice.or_nothing(add(slice, &mut all))?;
        }
        Ok(all)
    }

    /// Adds names from spans of campaigns.
    fn gather_seen(
        &self,
        all: &mut BTreeSet<String>,
        text: impl Fn(&ReportedSpan) -> Option<&str>,
    ) -> Result<(), StoreError> {
        self.campaigns.visit_traces(0, &mut |spans| {
            all.extend(spans.iter().filter_map(&text).filter(|text| !text.is_empty()).map(str::to_owned));
            Ok(())
        })
    }

    /// Opens new slices, drops removed ones, and reads what was committed since.
    fn snapshot(&self) -> Result<Snapshot, StoreError> {
        let catalogue = Catalogue::read_or_list(&self.folder)?;
        let mut unreadable = self.unreadable.lock().unwrap_or_else(PoisonError::into_inner);
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|number, _| catalogue.slices.iter().any(|listed| listed.number == *number));
        let mut slices = Vec::new();
        for listed in catalogue.slices.into_iter().rev() {
            let known = open.get(&listed.number).cloned();
            let slice = match known {
                Some(slice) => slice,
                None => {
                    let path = listed.path(&self.folder);
                    let known = unreadable.get(&listed.number);
                    if known.is_some_and(|known| known.is_final && known.file == state_of(&path)) {
                        continue;
                    }
                    match Slice::open(path.clone(), &self.key) {
                        Ok(Some(slice)) => Arc::new(slice),
                        Ok(None) => continue,
                        // One slice that cannot be read must not hide the others.
                        Err(error) if error.is_local() => {
                            let found = Unreadable::new(&error, &path);
                            if unreadable.get(&listed.number) != Some(&found) {
                                name_unreadable(&error);
                            }
                            unreadable.insert(listed.number, found);
                            continue;
                        }
                        Err(error) => return Err(error),
                    }
                }
            };
            match slice.refresh(&listed) {
                Ok(()) => {}
                // Retention was faster.
                Err(error) if is_gone(&error) => continue,
                Err(error) if error.is_local() => {
                    let found = Unreadable::new(&error, &listed.path(&self.folder));
                    slice.or_nothing(Err::<(), _>(error))?;
                    open.remove(&listed.number);
                    unreadable.insert(listed.number, found);
                    continue;
                }
                Err(error) => return Err(error),
            }
            if open.len() < MAX_OPEN {
                open.insert(listed.number, Arc::clone(&slice));
            }
            slices.push((listed, slice));
        }
        Ok(Snapshot(slices))
    }
}

fn collect(
    visit_all: impl FnOnce(Visit<'_>) -> Result<(), StoreError>,
) -> Result<Vec<Vec<ReportedSpan>>, StoreError> {
    let mut all = Vec::new();
    visit_all(&mut |spans| {
        all.push(spans);
        true
    })?;
    Ok(all)
}

fn state_of(path: &Path) -> FileState {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.len(), metadata.modified().ok()?))
}

/// Whether a span is reported by a service, ignoring case.
fn is_of(span: &ReportedSpan, service: &str) -> bool {
    span.local.service.as_deref().is_some_and(|own| own.eq_ignore_ascii_case(service))
}

impl Snapshot {
    /// The spans of all traces whose id has this lower half, in the order of arrival; none if there is no memory for
    /// them now.
    pub(super) fn spans_of(
        &self,
        trace_low: u64,
        memory: &mut TraceMemory,
    ) -> Result<Option<Vec<ReportedSpan>>, StoreError> {
        let mut trace = memory.begin();
        self.read_spans(trace_low, &mut trace)?;
        Ok(trace.finish().ok())
    }

    /// Adds the spans of all traces whose id has this lower half, in the order of arrival.
    fn read_spans(&self, trace_low: u64, trace: &mut TraceSpans<'_>) -> Result<(), StoreError> {
        for (_, slice) in self.0.iter().rev() {
            slice.or_nothing(slice.spans_of(trace_low, trace))?;
        }
        Ok(())
    }

    /// All segments of all slices that may match, those with the latest spans first.
    #[expect(clippy::type_complexity, reason = "used once, taken apart at once")]
    pub(super) fn pieces<'q>(
        &self,
        scan: Scan<'q>,
    ) -> Result<Vec<(Arc<Slice>, Arc<super::scan::Numbered<'q>>, Piece)>, StoreError> {
        let mut all = Vec::new();
        for (_, slice) in &self.0 {
            let (numbered, pieces) = slice.pieces(scan)?;
            let numbered = Arc::new(numbered);
            let with = |piece| (Arc::clone(slice), Arc::clone(&numbered), piece);
            all.extend(pieces.into_iter().map(with));
        }
        all.sort_by_key(|(_, _, piece)| std::cmp::Reverse(piece.max_us));
        Ok(all)
    }
}
