//! One user: chooses requests, sends them on its connection, checks and remembers answers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use faultscope_model::application::{fill_path, fill_placeholders, placeholders};
use faultscope_model::random::{Random, mix};
use faultscope_model::workload::{Arrivals, LoadRequest, RequestBody, RequestFailure};
use http::Request;
use http_body_util::Full;
use serde_json::Value;
use tokio::time::Instant;

use super::Shared;
use super::connection::{Connection, Received};
use super::recorder::Sample;

/// The pause after a connection that failed: without it, a target that refuses is asked many thousand times a second.
const AFTER_FAILURE: Duration = Duration::from_millis(100);

/// The most bytes of a saved value; longer ones are not ids but documents.
const MAX_VALUE: usize = 64 << 10;

pub(super) struct User {
    shared: Arc<Shared>,
    number: u32,
    random: Random,
    /// The request that was sent last.
    at: usize,
    values: BTreeMap<String, String>,
    connection: Option<Connection>,
}

impl User {
    pub(super) fn new(shared: Arc<Shared>, number: u32) -> Self {
        // A stream of its own for each user, so that one user more changes nothing for the others.
        let random = Random::new(mix(shared.options.seed ^ mix(u64::from(number) + 1)));
        let at = shared.options.scenario.matrix.len() - 1;
        Self { shared, number, random, at, values: BTreeMap::new(), connection: None }
    }

    pub(super) async fn run(mut self) {
        let cancel = self.shared.cancel.clone();
        let sending = async {
            match self.shared.options.arrivals.clone() {
                Arrivals::Closed { spawn_rate, think, .. } => {
                    let after = spawn_rate.map_or(0.0, |rate| f64::from(self.number) / rate);
                    self.shared.sleep_until(self.shared.started + Duration::from_secs_f64(after)).await;
                    self.shared.users.fetch_add(1, Ordering::Relaxed);
                    while !self.shared.is_over() {
                        let has_failed = self.send_next(Instant::now(), None).await;
                        let pause = think.draw(&mut self.random);
                        let pause = if has_failed { pause.max(AFTER_FAILURE) } else { pause };
                        if !pause.is_zero() {
                            self.shared.sleep_until(Instant::now() + pause).await;
                        }
                    }
                }
                Arrivals::Open { rate, spacing, .. } => {
                    self.shared.users.fetch_add(1, Ordering::Relaxed);
                    while let Some(due) = self.shared.next_arrival(rate, spacing) {
                        let is_early = Instant::now() < due;
                        self.shared.sleep_until(due).await;
                        if self.shared.over.is_cancelled() {
                            break;
                        }
                        if self.shared.is_over() {
                            // Sending it would make the load as long as the target is slow; leaving it out would hide
                            // that the target did not keep up.
                            self.give_up(due);
                            continue;
                        }
                        // Only a user that waited for its time can be late by the generator's fault.
                        let lag = is_early.then(|| due.elapsed());
                        self.send_next(due, lag).await;
                    }
                }
            }
        };
        tokio::select! {
            () = sending => {}
            () = cancel.cancelled() => {}
        }
    }

    /// Sends the next request of the chain; tells whether its connection failed.
    async fn send_next(&mut self, due: Instant, lag: Option<Duration>) -> bool {
        let shared = Arc::clone(&self.shared);
        let options = &shared.options;
        self.at = options.scenario.matrix.draw_next(self.at, &mut self.random);
        let request = &options.scenario.requests[self.at];
        let sent = Instant::now();
        let within = request.within.unwrap_or(options.within);
        let outcome = match tokio::time::timeout(within, self.exchange(request)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(RequestFailure::TimedOut),
        };
        let failure = outcome.err();
        let has_failed = matches!(
            failure,
            Some(
                RequestFailure::Refused
                    | RequestFailure::Closed
                    | RequestFailure::Malformed
                    | RequestFailure::TimedOut
                    | RequestFailure::Local
            )
        );
        if has_failed {
            // What comes on it may belong to an earlier request.
            self.connection = None;
        }
        let sample = Sample { request: self.at, due, sent, ended: Instant::now(), failure, lag };
        shared.recorder.add(self.number, sample);
        has_failed
    }

    /// Counts a request that nobody was free for.
    fn give_up(&mut self, due: Instant) {
        let shared = Arc::clone(&self.shared);
        self.at = shared.options.scenario.matrix.draw_next(self.at, &mut self.random);
        let now = Instant::now();
        let failure = Some(RequestFailure::NotSent);
        shared
            .recorder
            .add(self.number, Sample { request: self.at, due, sent: now, ended: now, failure, lag: None });
    }

    async fn exchange(&mut self, request: &LoadRequest) -> Result<(), RequestFailure> {
        let message = self.message(request)?;
        let needs_body = !request.save.is_empty() || request.expect.contains.is_some();
        // Taken out, so that a request that is given up takes its connection with it.
        let mut connection = match self.connection.take().filter(Connection::is_usable) {
            Some(connection) => connection,
            None => Connection::open(&self.shared.options.target).await?,
        };
        let received = connection.send(message, needs_body).await?;
        self.connection = connection.is_usable().then_some(connection);
        self.check(request, &received)
    }

    fn message(&self, request: &LoadRequest) -> Result<Request<Full<Bytes>>, RequestFailure> {
        let target = &self.shared.options.target;
        let path = self.fill(&request.path)?;
        let mut message = Request::builder()
            .method(request.method.as_str())
            .uri(target.uri(&path))
            .header("host", target.authority.as_str());
        for (name, value) in &request.headers {
            message = message.header(name, self.fill(value)?);
        }
        let body = match &request.body {
            None => Bytes::new(),
            Some(RequestBody::Text(text)) => Bytes::from(self.fill(text)?),
            Some(RequestBody::Json(json)) => {
                if !request.headers.keys().any(|name| name.eq_ignore_ascii_case("content-type")) {
                    message = message.header("content-type", "application/json");
                }
                Bytes::from(self.fill_json(json)?.to_string())
            }
        };
        // A saved value may be no part of a path or header.
        message.body(Full::new(body)).map_err(|_| RequestFailure::MissingValue)
    }

    fn fill(&self, text: &str) -> Result<String, RequestFailure> {
        if !text.contains("${") {
            return Ok(text.to_owned());
        }
        if placeholders(text).iter().any(|name| !self.values.contains_key(*name)) {
            return Err(RequestFailure::MissingValue);
        }
        Ok(fill_placeholders(text, |name| self.values.get(name).cloned()))
    }

    fn fill_json(&self, json: &Value) -> Result<Value, RequestFailure> {
        Ok(match json {
            Value::String(text) => Value::String(self.fill(text)?),
            Value::Array(items) => {
                items.iter().map(|item| self.fill_json(item)).collect::<Result<Vec<_>, _>>()?.into()
            }
            Value::Object(map) => {
                let filled = map.iter().map(|(key, value)| Ok((self.fill(key)?, self.fill_json(value)?)));
                Value::Object(filled.collect::<Result<_, _>>()?)
            }
            other => other.clone(),
        })
    }

    /// Compares an answer with what is expected, and saves its values.
    fn check(&mut self, request: &LoadRequest, received: &Received) -> Result<(), RequestFailure> {
        let expect = &request.expect;
        let is_expected = match expect.status.as_slice() {
            [] => received.status < 400,
            statuses => statuses.contains(&received.status),
        };
        if !is_expected {
            return Err(RequestFailure::Status);
        }
        if let Some(wanted) = &expect.contains {
            let wanted = self.fill(wanted)?;
            if !String::from_utf8_lossy(&received.body).contains(&wanted) {
                return Err(RequestFailure::Body);
            }
        }
        if request.save.is_empty() {
            return Ok(());
        }
        let json: Value = serde_json::from_slice(&received.body).map_err(|_| RequestFailure::Body)?;
        for (name, path) in &request.save {
            let segments = fill_path(path, |name| self.values.get(name).cloned());
            let found = segments.iter().try_fold(&json, |here, segment| match here {
                Value::Object(map) => map.get(segment),
                Value::Array(items) => items.get(segment.parse::<usize>().ok()?),
                _ => None,
            });
            let text = match found.ok_or(RequestFailure::Body)? {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            if text.len() > MAX_VALUE {
                return Err(RequestFailure::Body);
            }
            self.values.insert(name.clone(), text);
        }
        Ok(())
    }
}
