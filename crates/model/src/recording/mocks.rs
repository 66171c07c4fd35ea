//! Answers calls from a recording, in the place of services that are not deployed.
//!
//! A call is matched by its trace first: requests that are sent again begin traces of which the recorded ones are known,
//! so that calls of requests at the same time are never mixed up. Then come its operation, what it says, and the order:
//! the n-th call gets the n-th answer. Each answer is given once. What is not found is a [`MockMiss`].

mod distance;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use faultscope_probe_format::masked_operation;
use serde::{Deserialize, Serialize};

use super::Answer;
use crate::ids::{ServiceName, SpanId, TraceId};
use crate::secrets::REDACTED;
use crate::span::{Span, Wire};
use distance::distance;

/// A recorded call to a service that is not deployed.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedCall {
    /// The trace that it was part of.
    pub trace: TraceId,
    /// Its span.
    pub span: SpanId,
    /// The service that was called.
    pub callee: ServiceName,
    /// The port of the service.
    pub port: u16,
    /// The protocol.
    pub wire: Wire,
    /// The method.
    pub method: String,
    /// The path with its query.
    pub path: String,
    /// The beginning of the request's body, as far as it was recorded.
    pub body: Vec<u8>,
    /// When it was made, in microseconds since 1970.
    pub start_us: u64,
    /// Until the answer was there.
    pub duration_us: u64,
    /// The answer; none if only the timing was recorded.
    pub answer: Option<Answer>,
}

impl RecordedCall {
    /// A call as it was recorded. Secrets must be restored.
    pub fn from_call(call: Span) -> Self {
        let (mut body, mut answer) = (Vec::new(), None);
        // A call that got no answer needs no payload to be repeated.
        if call.payload.is_some() || call.error.is_some() {
            let payload = call.payload.map(|payload| *payload).unwrap_or_default();
            body = payload.request_body;
            answer = Some(Answer {
                status: call.status,
                grpc_status: call.grpc_status,
                error: call.error,
                headers: payload.response_headers,
                body: payload.response_body,
                bytes: call.response_bytes,
                decoded: None,
            });
        }
        Self {
            trace: call.trace,
            span: call.id,
            callee: call.callee,
            port: call.port,
            wire: call.wire,
            method: call.method,
            path: call.path,
            body,
            start_us: call.start_us,
            duration_us: call.duration_us,
            answer,
        }
    }

    /// Method and path without the query.
    pub fn operation(&self) -> String {
        operation_of(&self.method, &self.path)
    }

    fn usable_answer(&self) -> Result<&Answer, MissReason> {
        if !matches!(self.wire, Wire::Http1 | Wire::Http2) {
            return Err(MissReason::NotHttp);
        }
        let answer = self.answer.as_ref().ok_or(MissReason::NoPayload)?;
        if answer.error.is_some() {
            return Ok(answer);
        }
        // The answer to a HEAD request says how long a body would be.
        if !answer.is_whole() && self.method != "HEAD" {
            return Err(MissReason::CutAnswer { recorded: answer.body.len() as u64, size: answer.bytes });
        }
        let is_redacted = answer.headers.iter().any(|(_, value)| value == REDACTED);
        if is_redacted || answer.body == REDACTED.as_bytes() {
            return Err(MissReason::DiscardedSecret);
        }
        Ok(answer)
    }
}

/// A call that asks for a recorded answer.
#[derive(Debug, Clone, Copy)]
pub struct AskedCall<'a> {
    /// The trace that it is part of, in the replay.
    pub trace: TraceId,
    /// The service that is called.
    pub callee: &'a ServiceName,
    /// The method.
    pub method: &'a str,
    /// The path with its query.
    pub path: &'a str,
    /// The body.
    pub body: &'a [u8],
}

/// An answer that was found.
#[derive(Debug, Clone, PartialEq)]
pub struct MatchedAnswer {
    /// The answer.
    pub answer: Answer,
    /// How long it took when it was recorded.
    pub duration_us: u64,
    /// How it was found.
    pub by: MatchedBy,
}

/// How an answer was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MatchedBy {
    /// By the recorded trace; otherwise among all calls to the service.
    pub trace: bool,
    /// The request was the same byte by byte.
    pub same_request: bool,
    /// It was given before: all recorded calls outside of requests got this answer.
    pub repeated: bool,
}

/// A call for which there was no recorded answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MockMiss {
    /// The service that was called.
    pub callee: ServiceName,
    /// Method and path without the query; the protocol of a connection.
    pub operation: String,
    /// The recorded trace of the request in which it was made, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<TraceId>,
    /// Why there is no answer.
    #[serde(flatten)]
    pub reason: MissReason,
    /// The recorded call that is most like it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nearest: Option<NearestCall>,
}

/// The recorded call that is most like one for which there was no answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NearestCall {
    /// Method and path without the query.
    pub operation: String,
    /// Its trace.
    pub trace: TraceId,
}

/// Why there is no recorded answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "reason")]
pub enum MissReason {
    /// No call to the service was recorded.
    NothingRecorded,
    /// The service was called, but not for this; of a known trace, not in that trace.
    OtherOperation,
    /// Every recorded answer has been given.
    AllGiven {
        /// The number of recorded answers.
        recorded: usize,
    },
    /// Only the beginning of the answer's body was recorded.
    CutAnswer {
        /// Bytes that were recorded.
        recorded: u64,
        /// The size of the body.
        size: u64,
    },
    /// Only the timing of the call was recorded.
    NoPayload,
    /// A secret in the answer was discarded.
    DiscardedSecret,
    /// The connection is not HTTP.
    NotHttp,
}

impl fmt::Display for MissReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NothingRecorded => f.write_str("no call to this service was recorded"),
            Self::OtherOperation => f.write_str("no such call was recorded here"),
            Self::AllGiven { recorded: 1 } => f.write_str("the only recorded answer has been given"),
            Self::AllGiven { recorded } => write!(f, "all {recorded} recorded answers have been given"),
            Self::CutAnswer { recorded, size } => {
                write!(f, "the answer has {size} bytes, of which {recorded} were recorded")
            }
            Self::NoPayload => f.write_str("the answer was recorded without headers and bodies"),
            Self::DiscardedSecret => f.write_str("the answer holds a secret that was discarded"),
            Self::NotHttp => f.write_str("the connection is not HTTP"),
        }
    }
}

/// Recorded answers, each of which is given once.
#[derive(Debug, Clone, Default)]
pub struct MockBook {
    services: BTreeMap<ServiceName, Shelf>,
    /// Recorded traces by those of the replay.
    replayed: BTreeMap<TraceId, TraceId>,
    /// Recorded traces of requests that are sent again.
    rooted: BTreeSet<TraceId>,
}

/// The calls to one service in the order of their start.
#[derive(Debug, Clone, Default)]
struct Shelf {
    entries: Vec<Entry>,
    by_trace: BTreeMap<TraceId, Vec<usize>>,
}

#[derive(Debug, Clone)]
struct Entry {
    call: RecordedCall,
    masked: String,
    is_given: bool,
}

impl MockBook {
    /// A book of these calls. Requests of the rooted traces are going to be sent again.
    pub fn new(calls: impl IntoIterator<Item = RecordedCall>, rooted: BTreeSet<TraceId>) -> Self {
        let mut calls: Vec<RecordedCall> = calls.into_iter().collect();
        calls.sort_by_key(|call| (call.start_us, call.span));
        let mut services: BTreeMap<ServiceName, Shelf> = BTreeMap::new();
        for call in calls {
            let shelf = services.entry(call.callee.clone()).or_default();
            shelf.by_trace.entry(call.trace).or_default().push(shelf.entries.len());
            let masked = masked_operation(&call.method, &call.path);
            shelf.entries.push(Entry { call, masked, is_given: false });
        }
        Self { services, replayed: BTreeMap::new(), rooted }
    }

    /// Says that a trace of the replay stands for a recorded one.
    pub fn expect_trace(&mut self, replayed: TraceId, recorded: TraceId) {
        self.replayed.insert(replayed, recorded);
    }

    /// Finds the answer to a call, and gives it away.
    pub fn take_answer(&mut self, asked: &AskedCall<'_>) -> Result<MatchedAnswer, Box<MockMiss>> {
        let trace = self.replayed.get(&asked.trace).copied();
        let rooted = &self.rooted;
        let missed = |reason, nearest| {
            let operation = operation_of(asked.method, asked.path);
            Box::new(MockMiss { callee: asked.callee.clone(), operation, trace, reason, nearest })
        };
        let Some(shelf) = self.services.get_mut(asked.callee) else {
            return Err(missed(MissReason::NothingRecorded, None));
        };
        let masked = masked_operation(asked.method, asked.path);
        let candidates = shelf.find_operation(trace, &masked);
        let rank = |index: &usize| {
            let Entry { call, .. } = &shelf.entries[*index];
            // A call outside of requests is rather answered by one that was made outside of requests.
            let is_elsewhere = trace.is_none() && rooted.contains(&call.trace);
            let is_masked = path_of(&call.path) != path_of(asked.path);
            (is_elsewhere, is_masked, distance(asked, call), *index)
        };
        let free = candidates.iter().copied().filter(|index| !shelf.entries[*index].is_given);
        let free = free.min_by_key(rank);
        // What belongs to a request is left to that request, if there is another answer.
        let is_wanted =
            |index: &usize| trace.is_some() || !rooted.contains(&shelf.entries[*index].call.trace);
        let constant = || shelf.find_constant(&candidates, trace, rooted).map(|index| (index, true));
        let found = free.filter(is_wanted).map(|index| (index, false)).or_else(constant);
        let Some((index, repeated)) = found.or(free.map(|index| (index, false))) else {
            let (reason, nearest) = match candidates.last() {
                None => (MissReason::OtherOperation, shelf.find_nearest(trace, asked)),
                Some(last) => {
                    let reason = MissReason::AllGiven { recorded: candidates.len() };
                    (reason, Some(shelf.entries[*last].nearest()))
                }
            };
            return Err(missed(reason, nearest));
        };
        let entry = &mut shelf.entries[index];
        entry.is_given = true;
        let answer =
            entry.call.usable_answer().map_err(|reason| missed(reason, Some(entry.nearest())))?.clone();
        let same_request = distance(asked, &entry.call) == 0 && entry.call.path == asked.path;
        let by = MatchedBy { trace: trace.is_some(), same_request, repeated };
        Ok(MatchedAnswer { answer, duration_us: entry.call.duration_us, by })
    }

    /// How many answers of each service were recorded, and how many of them were not asked for.
    pub fn count_unused(&self) -> BTreeMap<ServiceName, (usize, usize)> {
        let unused = |shelf: &Shelf| shelf.entries.iter().filter(|entry| !entry.is_given).count();
        self.services
            .iter()
            .map(|(name, shelf)| (name.clone(), (shelf.entries.len(), unused(shelf))))
            .collect()
    }
}

impl Shelf {
    /// All calls of an operation, given or not; of one trace if that is known.
    fn find_operation(&self, trace: Option<TraceId>, masked: &str) -> Vec<usize> {
        let is_it = |index: &usize| self.entries[*index].masked == masked;
        match trace {
            Some(trace) => self.by_trace.get(&trace).into_iter().flatten().copied().filter(is_it).collect(),
            None => (0..self.entries.len()).filter(is_it).collect(),
        }
    }

    /// An answer that may be given again. How often a service polls depends on how long it runs, so calls that were made
    /// outside of requests have no number; but only if all of them got the same.
    fn find_constant(
        &self,
        candidates: &[usize],
        trace: Option<TraceId>,
        rooted: &BTreeSet<TraceId>,
    ) -> Option<usize> {
        if trace.is_some() {
            return None;
        }
        let mut polled =
            candidates.iter().filter(|index| !rooted.contains(&self.entries[**index].call.trace));
        let first = *polled.next()?;
        let facts = |index: usize| {
            let answer = self.entries[index].call.answer.as_ref()?;
            Some((answer.status, answer.grpc_status, &answer.error, &answer.body))
        };
        polled.all(|index| facts(*index) == facts(first)).then_some(first)
    }

    /// The call that is most like this one: in its trace, or else anywhere.
    fn find_nearest(&self, trace: Option<TraceId>, asked: &AskedCall<'_>) -> Option<NearestCall> {
        let likeness = |entry: &&Entry| {
            let is_of_trace = Some(entry.call.trace) == trace;
            let (theirs, ours) = (path_of(&entry.call.path), path_of(asked.path));
            let common = theirs.split('/').zip(ours.split('/')).take_while(|(a, b)| a == b).count();
            let is_same_method = entry.call.method == asked.method;
            // The first of equals, which `max_by_key` alone would not give.
            (common, is_of_trace, is_same_method, std::cmp::Reverse(entry.call.start_us))
        };
        self.entries.iter().max_by_key(likeness).map(Entry::nearest)
    }
}

impl Entry {
    fn nearest(&self) -> NearestCall {
        NearestCall { operation: self.call.operation(), trace: self.call.trace }
    }
}

fn operation_of(method: &str, path: &str) -> String {
    format!("{method} {}", path_of(path))
}

fn path_of(path: &str) -> &str {
    path.split('?').next().unwrap_or_default()
}

#[cfg(test)]
mod tests;
