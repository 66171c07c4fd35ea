//! Zipkin v1 spans, and their conversion to v2.
//!
//! In v1 one span has both sides of a call; annotations say what happened where: `cs`, `cr` at the
//! client, `sr`, `ss` at the server, `ms`, `mr` around a broker, `ws`, `wr` on the wire. Each side becomes
//! a span of its own here, by the rules of Zipkin's converter.

use std::borrow::Cow;

use faultscope_model::trace::{Endpoint, ReportedSpan, SpanKind};
use faultscope_model::{SpanId, TraceId};

use crate::interop::Limits;
use crate::interop::draft::Draft;

/// The most services in one v1 span.
const SIDES: usize = 64;

/// A v1 span as reported; zero means unknown.
#[derive(Debug, Default)]
pub(super) struct V1Span {
    pub(super) trace_high: u64,
    pub(super) trace_low: u64,
    pub(super) id: u64,
    pub(super) parent: u64,
    pub(super) name: String,
    pub(super) start_us: i64,
    pub(super) duration_us: i64,
    pub(super) debug: bool,
    /// The first problem.
    pub(super) problem: Option<String>,
    annotations: Vec<Annotation>,
    binary_annotations: Vec<BinaryAnnotation>,
}

/// An annotation of a v1 span.
#[derive(Debug)]
pub(super) struct Annotation {
    pub(super) us: i64,
    pub(super) value: String,
    pub(super) endpoint: Option<Endpoint>,
}

/// A tag, or an address if it has no value.
#[derive(Debug)]
pub(super) struct BinaryAnnotation {
    pub(super) key: String,
    pub(super) value: Option<String>,
    pub(super) endpoint: Option<Endpoint>,
}

impl V1Span {
    pub(super) fn annotate(&mut self, annotation: Annotation, limits: &Limits) {
        if self.annotations.len() < limits.annotations {
            self.annotations.push(annotation);
        } else {
            self.problem = Some(format!("it has more than {} annotations", limits.annotations));
        }
    }

    pub(super) fn annotate_binary(&mut self, annotation: BinaryAnnotation, limits: &Limits) {
        if self.binary_annotations.len() < limits.tags {
            self.binary_annotations.push(annotation);
        } else {
            self.problem = Some(format!("it has more than {} binary annotations", limits.tags));
        }
    }

    /// Converts it to one span per side.
    pub(super) fn convert(mut self, limits: &Limits) -> Result<Vec<ReportedSpan>, String> {
        if let Some(problem) = self.problem.take() {
            return Err(problem);
        }
        if self.trace_high == 0 && self.trace_low == 0 {
            return Err("traceId is missing or all zeros".to_owned());
        }
        if self.id == 0 {
            return Err("id is missing or all zeros".to_owned());
        }
        let mut sides = Sides { source: &self, limits, drafts: Vec::new(), n_refused: 0 };
        sides.fork(None);
        let mut marks = Marks::default();
        sides.read_annotations(&mut marks);
        sides.settle_calls(&mut marks);
        sides.settle_messages(&marks);
        sides.read_binary_annotations(&marks);
        if sides.n_refused > 0 {
            return Err(format!("more than {SIDES} services take part in it"));
        }
        sides.drafts.into_iter().map(Draft::finish).collect()
    }
}

/// A core annotation: its time and side.
#[derive(Clone, Copy)]
struct Mark<'s> {
    us: i64,
    at: &'s Endpoint,
}

#[derive(Default)]
struct Marks<'s> {
    cs: Option<Mark<'s>>,
    cr: Option<Mark<'s>>,
    sr: Option<Mark<'s>>,
    ss: Option<Mark<'s>>,
    ms: Option<Mark<'s>>,
    mr: Option<Mark<'s>>,
    ws: Option<Mark<'s>>,
    wr: Option<Mark<'s>>,
}

/// The spans of a v1 span; the first gets everything without an endpoint.
struct Sides<'s> {
    source: &'s V1Span,
    limits: &'s Limits,
    drafts: Vec<Draft<'s>>,
    n_refused: usize,
}

impl<'s> Sides<'s> {
    fn read_annotations(&mut self, marks: &mut Marks<'s>) {
        for annotation in &self.source.annotations {
            let side = self.side(annotation.endpoint.as_ref());
            // Without an endpoint a core annotation belongs to no side.
            let mark = annotation.endpoint.as_ref().map(|at| Mark { us: annotation.us, at });
            let (slot, kind) = match (annotation.value.as_str(), mark.is_some()) {
                ("cs", true) => (&mut marks.cs, Some(SpanKind::Client)),
                ("cr", true) => (&mut marks.cr, Some(SpanKind::Client)),
                ("sr", true) => (&mut marks.sr, Some(SpanKind::Server)),
                ("ss", true) => (&mut marks.ss, Some(SpanKind::Server)),
                ("ms", true) => (&mut marks.ms, Some(SpanKind::Producer)),
                ("mr", true) => (&mut marks.mr, Some(SpanKind::Consumer)),
                ("ws", true) => (&mut marks.ws, None),
                ("wr", true) => (&mut marks.wr, None),
                _ => {
                    self.draft(side).annotation(annotation.us, Cow::Borrowed(&annotation.value));
                    continue;
                }
            };
            *slot = mark;
            if kind.is_some() {
                self.draft(side).span.kind = kind;
            }
        }
    }

    fn settle_calls(&mut self, marks: &mut Marks<'s>) {
        // Bridges between models may leave out the start; then the end annotation marks the span.
        marks.cs = marks.cs.or_else(|| self.start_by_end(marks.cr));
        marks.sr = marks.sr.or_else(|| self.start_by_end(marks.ss));
        match (marks.cs, marks.cr, marks.sr, marks.ss) {
            (Some(cs), cr, Some(sr), ss) => {
                // The client's annotations define the times of the span.
                self.time(cs, cr);
                let client = self.side(Some(cs.at));
                let server = if cs.at.service == sr.at.service {
                    // A service that calls itself still has two sides.
                    self.draft(client).span.kind = Some(SpanKind::Client);
                    let server = self.fork(Some(sr.at));
                    self.draft(server).span.kind = Some(SpanKind::Server);
                    server
                } else {
                    self.side(Some(sr.at))
                };
                let draft = self.draft(server);
                draft.span.shared = true;
                draft.start(sr.us);
                if let Some(ss) = ss {
                    draft.duration(ss.us.saturating_sub(sr.us));
                }
                if cr.is_none() && self.source.duration_us == 0 {
                    self.draft(client).duration(0);
                }
            }
            (Some(begin), Some(end), ..) | (.., Some(begin), Some(end)) => self.time(begin, Some(end)),
            _ => self.settle_incomplete(marks),
        }
        // v1 has no flag: a server without the span's own times did not start it.
        if let (None, Some(sr)) = (marks.cs, marks.sr)
            && (self.source.start_us == 0 || (marks.ss.is_some() && self.source.duration_us == 0))
        {
            let server = self.side(Some(sr.at));
            self.draft(server).span.shared = true;
        }
    }

    fn settle_incomplete(&mut self, marks: &Marks<'s>) {
        for draft in &mut self.drafts {
            let (begin, end, name) = match draft.span.kind {
                Some(SpanKind::Client) => (marks.cs, marks.cr, "cr"),
                Some(SpanKind::Server) => (marks.sr, marks.ss, "ss"),
                _ => continue,
            };
            if let Some(begin) = begin {
                draft.start(begin.us);
            }
            if let Some(end) = end {
                draft.annotation(end.us, Cow::Borrowed(name));
            }
        }
        if self.source.start_us != 0 {
            let (start, duration) = (self.source.start_us, self.source.duration_us);
            let first = self.draft(0);
            first.start(start);
            first.duration(duration);
        }
    }

    fn settle_messages(&mut self, marks: &Marks<'s>) {
        match (marks.ms, marks.mr) {
            (Some(ms), Some(mr)) => {
                let producer = self.side(Some(ms.at));
                let consumer = if ms.at.service == mr.at.service {
                    self.draft(producer).span.kind = Some(SpanKind::Producer);
                    let consumer = self.fork(Some(mr.at));
                    self.draft(consumer).span.kind = Some(SpanKind::Consumer);
                    consumer
                } else {
                    self.side(Some(mr.at))
                };
                let draft = self.draft(consumer);
                draft.span.shared = true;
                draft.start(marks.wr.unwrap_or(mr).us);
                if let Some(wr) = marks.wr {
                    draft.duration(mr.us.saturating_sub(wr.us));
                }
                let draft = self.draft(producer);
                draft.start(ms.us);
                draft.duration(marks.ws.map_or(0, |ws| ws.us.saturating_sub(ms.us)));
            }
            (Some(ms), None) => self.time(ms, marks.ws),
            (None, Some(mr)) => match marks.wr {
                Some(wr) => self.time(wr, Some(mr)),
                None => self.time(mr, None),
            },
            (None, None) => {
                for (mark, name) in [(marks.ws, "ws"), (marks.wr, "wr")] {
                    if let Some(mark) = mark {
                        let side = self.side(Some(mark.at));
                        self.draft(side).annotation(mark.us, Cow::Borrowed(name));
                    }
                }
            }
        }
    }

    fn read_binary_annotations(&mut self, marks: &Marks<'s>) {
        let (mut ca, mut sa, mut ma) = (None, None, None);
        for BinaryAnnotation { key, value, endpoint } in &self.source.binary_annotations {
            match (key.as_str(), value) {
                ("ca", None) => ca = endpoint.clone(),
                ("sa", None) => sa = endpoint.clone(),
                ("ma", None) => ma = endpoint.clone(),
                (_, None) => {}
                (key, Some(value)) => {
                    let side = self.side(endpoint.as_ref());
                    // An empty `lc` only names the service of a local span.
                    if key != "lc" || !value.is_empty() {
                        self.draft(side).tag(Cow::Borrowed(key), Cow::Borrowed(value));
                    }
                }
            }
        }
        let server = marks.sr.or(marks.ss);
        let client = marks.cs.or(marks.cr);
        if server.is_none() && client.is_none() && (ca.is_some() || sa.is_some()) {
            self.place_bare_addresses(ca, sa);
            return;
        }
        if let (Some(mut ca), Some(server)) = (ca, server)
            && ca != *server.at
        {
            // Finagle gives the client's socket the server's name, which would look like a call to itself.
            if ca.service == server.at.service {
                ca.service = None;
            }
            self.set_remote(server.at, ca);
        }
        if let (Some(sa), Some(client)) = (sa, client) {
            self.set_remote(client.at, sa);
        }
        if let Some(ma) = ma {
            for mark in [marks.ms, marks.mr].into_iter().flatten() {
                self.set_remote(mark.at, ma.clone());
            }
        }
    }

    /// Assigns the addresses of a span without core annotations.
    fn place_bare_addresses(&mut self, ca: Option<Endpoint>, sa: Option<Endpoint>) {
        match (ca, sa) {
            (Some(ca), Some(sa)) => self.set_remote(&ca, sa),
            (None, Some(sa)) => self.draft(0).span.remote = sa,
            (Some(ca), None) => {
                let first = self.draft(0);
                first.span.kind = Some(SpanKind::Server);
                first.span.remote = ca;
            }
            (None, None) => {}
        }
    }

    fn set_remote(&mut self, at: &Endpoint, remote: Endpoint) {
        let side = self.side(Some(at));
        self.draft(side).span.remote = remote;
    }

    /// The start that an end annotation implies, if it coincides with the end of the span.
    fn start_by_end(&self, end: Option<Mark<'s>>) -> Option<Mark<'s>> {
        let V1Span { start_us, duration_us, .. } = *self.source;
        end.filter(|end| {
            start_us != 0 && duration_us != 0 && start_us.checked_add(duration_us) == Some(end.us)
        })
        .map(|end| Mark { us: start_us, at: end.at })
    }

    /// Sets the times of a side: those of the span if it has both, otherwise those of the annotations.
    fn time(&mut self, begin: Mark<'s>, end: Option<Mark<'s>>) {
        let V1Span { start_us, duration_us, .. } = *self.source;
        let side = self.side(Some(begin.at));
        let draft = self.draft(side);
        if start_us != 0 && duration_us != 0 {
            draft.start(start_us);
            draft.duration(duration_us);
        } else {
            draft.start(begin.us);
            if let Some(end) = end {
                draft.duration(end.us.saturating_sub(begin.us));
            }
        }
    }

    /// The side of an endpoint; sides are distinguished by service.
    fn side(&mut self, endpoint: Option<&Endpoint>) -> usize {
        let Some(endpoint) = endpoint else { return 0 };
        for (index, draft) in self.drafts.iter_mut().enumerate() {
            if draft.span.local.is_empty() {
                draft.span.local = endpoint.clone();
                return index;
            }
            if draft.span.local.service == endpoint.service {
                return index;
            }
        }
        self.fork(Some(endpoint))
    }

    /// Adds a side.
    fn fork(&mut self, endpoint: Option<&Endpoint>) -> usize {
        if self.drafts.len() >= SIDES {
            self.n_refused += 1;
            return 0;
        }
        let source = self.source;
        let mut draft = Draft::new(self.limits);
        draft.span.trace = TraceId(u128::from(source.trace_high) << 64 | u128::from(source.trace_low));
        draft.span.id = SpanId(source.id);
        draft.span.parent = Some(SpanId(source.parent)).filter(|parent| parent.0 != 0);
        draft.name(Cow::Borrowed(&source.name));
        draft.span.debug = source.debug;
        draft.span.local = endpoint.cloned().unwrap_or_default();
        self.drafts.push(draft);
        self.drafts.len() - 1
    }

    fn draft(&mut self, side: usize) -> &mut Draft<'s> {
        &mut self.drafts[side]
    }
}
