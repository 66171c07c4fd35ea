//! Joins spans that were reported in pieces.
//!
//! A span may come in several pieces, and the two sides of a call may share an id. Pieces of one side are
//! joined; sides stay apart, and a server's missing `shared` flag or parent is filled in from its client.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::mem::take;

use super::{Endpoint, ReportedSpan, SpanKind};
use crate::ids::{SpanId, TraceId};

/// Groups spans by trace, in the order in which traces first appear.
///
/// Unless `strict`, a 64-bit id equals any 128-bit id with the same low half. Duplicates, which senders produce
/// when they miss a response, are dropped.
pub fn group_by_trace(spans: Vec<ReportedSpan>, strict: bool) -> Vec<Vec<ReportedSpan>> {
    let mut places: HashMap<u128, usize> = HashMap::new();
    let mut traces: Vec<Vec<ReportedSpan>> = Vec::new();
    for span in spans {
        let id = if strict { span.trace.0 } else { span.trace.0 & u128::from(u64::MAX) };
        let place = *places.entry(id).or_insert_with(|| {
            traces.push(Vec::new());
            traces.len() - 1
        });
        if let Some(trace) = traces.get_mut(place) {
            trace.push(span);
        }
    }
    traces.into_iter().map(unique).collect()
}

/// A span is compared with this many earlier ones of its id. Only hostile senders send more, and comparing with
/// all of them would take quadratic time.
const MAX_COMPARED: usize = 16;

fn unique(spans: Vec<ReportedSpan>) -> Vec<ReportedSpan> {
    let mut latest: HashMap<SpanId, usize> = HashMap::with_capacity(spans.len());
    // For each kept span, the index of the previous one with its id.
    let mut before: Vec<Option<usize>> = Vec::with_capacity(spans.len());
    let mut kept: Vec<ReportedSpan> = Vec::with_capacity(spans.len());
    for span in spans {
        let last = latest.get(&span.id).copied();
        let mut earlier =
            std::iter::successors(last, |at| before.get(*at).copied().flatten()).take(MAX_COMPARED);
        if earlier.any(|at| kept.get(at) == Some(&span)) {
            continue;
        }
        latest.insert(span.id, kept.len());
        before.push(last);
        kept.push(span);
    }
    kept
}

/// Joins the pieces of the spans of one trace; the result is sorted by id, clients first.
pub fn merge_pieces(mut spans: Vec<ReportedSpan>) -> Vec<ReportedSpan> {
    spans.sort_by(order);
    // Where ids of both lengths occur, the longest is shown.
    let longest = spans.iter().map(|span| span.trace).find(|trace| is_long(*trace));
    let mut joined: Vec<ReportedSpan> = Vec::with_capacity(spans.len());
    let mut pieces = spans.into_iter().peekable();
    while let Some(mut span) = pieces.next() {
        if let Some(trace) = longest.filter(|_| !is_long(span.trace)) {
            span.trace = trace;
        }
        let mut local = span.local.clone();
        while let Some(piece) = pieces.next_if(|next| {
            next.id == span.id
                && next.shared == span.shared
                && same_side(span.kind, next.kind)
                && try_join(&mut local, &next.local)
        }) {
            join(&mut span, piece);
        }
        if let Some(before) = joined.last().filter(|before| before.id == span.id) {
            if before.kind == Some(SpanKind::Client) && span.kind == Some(SpanKind::Server) {
                span.shared = true;
            }
            if span.shared && span.parent.is_none() {
                span.parent = before.parent;
            }
        }
        span.normalize();
        joined.push(span);
    }
    joined
}

fn is_long(trace: TraceId) -> bool {
    trace.0 >> 64 != 0
}

/// Clients before servers before shared ids; unknown endpoints first, so that they are joined to known ones.
fn order(left: &ReportedSpan, right: &ReportedSpan) -> Ordering {
    let side = |span: &ReportedSpan| match (span.shared, span.kind) {
        (true, _) => 2,
        (false, Some(SpanKind::Client)) => 0,
        (false, _) => 1,
    };
    left.id.cmp(&right.id).then_with(|| side(left).cmp(&side(right))).then_with(|| {
        let (left, right) = (&left.local, &right.local);
        match (left.is_empty(), right.is_empty()) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
            (false, false) => unknown_last(left.service.as_ref(), right.service.as_ref())
                .then_with(|| unknown_last(left.ipv4.as_ref(), right.ipv4.as_ref()))
                .then_with(|| unknown_last(left.ipv6.as_ref(), right.ipv6.as_ref())),
        }
    })
}

fn unknown_last<T: Ord>(left: Option<&T>, right: Option<&T>) -> Ordering {
    left.is_none().cmp(&right.is_none()).then_with(|| left.cmp(&right))
}

/// Whether two pieces may be of one side. A client is never a piece of a server, even if a service calls itself and
/// forgets the flag.
fn same_side(left: Option<SpanKind>, right: Option<SpanKind>) -> bool {
    match (left, right) {
        (Some(left), Some(right)) => left == right,
        _ => true,
    }
}

/// Fills in missing parts of an endpoint; returns false and changes nothing if the two contradict each other.
fn try_join(known: &mut Endpoint, more: &Endpoint) -> bool {
    fn differ<T: PartialEq>(left: Option<&T>, right: Option<&T>) -> bool {
        matches!((left, right), (Some(left), Some(right)) if left != right)
    }
    if differ(known.service.as_ref(), more.service.as_ref())
        || differ(known.ipv4.as_ref(), more.ipv4.as_ref())
        || differ(known.ipv6.as_ref(), more.ipv6.as_ref())
        || differ(known.port.as_ref(), more.port.as_ref())
    {
        return false;
    }
    fill(known, more);
    true
}

fn fill(known: &mut Endpoint, more: &Endpoint) {
    if known.service.is_none() {
        known.service.clone_from(&more.service);
    }
    known.ipv4 = known.ipv4.or(more.ipv4);
    known.ipv6 = known.ipv6.or(more.ipv6);
    known.port = known.port.or(more.port);
}

fn join(span: &mut ReportedSpan, mut piece: ReportedSpan) {
    span.parent = span.parent.or(piece.parent);
    span.kind = span.kind.or(piece.kind);
    if span.name.is_empty() {
        span.name = take(&mut piece.name);
    }
    span.start_us = span.start_us.or(piece.start_us);
    span.duration_us = span.duration_us.or(piece.duration_us);
    fill(&mut span.local, &piece.local);
    fill(&mut span.remote, &piece.remote);
    span.shared |= piece.shared;
    span.debug |= piece.debug;
    span.failed |= piece.failed;
    span.annotations.append(&mut piece.annotations);
    join_tags(&mut span.tags, piece.tags);
}

fn join_tags(tags: &mut Vec<(String, String)>, more: Vec<(String, String)>) {
    if tags.is_empty() {
        *tags = more;
        return;
    }
    let mut places: HashMap<String, usize> =
        tags.iter().enumerate().map(|(at, (key, _))| (key.clone(), at)).collect();
    for (key, value) in more {
        match places.get(&key).and_then(|at| tags.get_mut(*at)) {
            Some((_, earlier)) => *earlier = value,
            None => {
                places.insert(key.clone(), tags.len());
                tags.push((key, value));
            }
        }
    }
}
