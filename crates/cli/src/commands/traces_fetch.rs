//! `faultscope traces import http://…`: spans from another Zipkin or Jaeger.
//!
//! Neither has pagination, only a limit: a time window with too many traces is halved until they fit.

use std::collections::BTreeSet;
use std::time::Duration;

use faultscope_model::TraceId;
use faultscope_model::trace::ReportedSpan;
use faultscope_store::interop::{DecodeError, Decoded, Limits, jaeger, zipkin};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::{Request, Uri};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use tokio::net::TcpStream;

use crate::error::CommandError;
use crate::exit::Exit;

/// Traces per request.
const TRACES: usize = 500;

/// Traces per request if they lie within one millisecond, which cannot be halved.
const MAX_TRACES: usize = 10_000;

/// The largest response that is read.
const ANSWER_BYTES: usize = 512 << 20;

/// The time limit of a request.
const PATIENCE: Duration = Duration::from_secs(60);

/// What to fetch from another server.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    /// The URL as typed.
    pub(super) url: String,
    /// Begin and end in milliseconds since 1970.
    pub(super) from_ms: u64,
    pub(super) until_ms: u64,
    /// Only traces with a span of this service.
    pub(super) service: Option<String>,
    /// Headers of each request.
    pub(super) headers: Vec<String>,
}

/// The API that the other server has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Zipkin,
    Jaeger,
    JaegerV3,
}

/// A time window of one service, or of all, that is still to be fetched.
#[derive(Debug)]
struct Window {
    from_ms: u64,
    until_ms: u64,
    service: Option<String>,
}

/// Another server, and what is still to be fetched.
#[derive(Debug)]
pub(super) struct Remote {
    wanted: Wanted,
    uri: Uri,
    kind: Kind,
    windows: Vec<Window>,
    known: BTreeSet<TraceId>,
    /// Milliseconds with more traces than one response can have.
    pub(super) cut: usize,
}

impl Remote {
    /// Detects the API of the server.
    pub(super) async fn open(wanted: Wanted) -> Result<Self, CommandError> {
        let wrong = |why: &str| {
            CommandError::usage(format!("`{}` {why}", wanted.url))
                .hint("the address of a Zipkin or Jaeger: http://127.0.0.1:9411, http://127.0.0.1:16686")
        };
        let uri: Uri = wanted.url.parse().map_err(|_| wrong("is not a URL"))?;
        if uri.scheme_str() != Some("http") || uri.host().is_none() {
            return Err(wrong("is not an http:// address"));
        }
        let (kind, services) = detect_api(&uri, &wanted).await?;
        let window = |service| Window { from_ms: wanted.from_ms, until_ms: wanted.until_ms, service };
        let windows = match (kind, &wanted.service) {
            (_, Some(service)) => vec![window(Some(service.clone()))],
            (Kind::Zipkin, None) => vec![window(None)],
            // Jaeger finds traces only by service.
            (_, None) => services.into_iter().rev().map(|service| window(Some(service))).collect(),
        };
        Ok(Self { wanted, uri, kind, windows, known: BTreeSet::new(), cut: 0 })
    }

    /// The spans of the next traces; none if there are no more. No trace is returned twice.
    pub(super) async fn next(&mut self, limits: &Limits) -> Result<Option<Decoded>, CommandError> {
        while let Some(window) = self.windows.pop() {
            let is_short = window.until_ms - window.from_ms <= 1;
            let limit = if is_short { MAX_TRACES } else { TRACES };
            let mut decoded = self.fetch_window(&window, limit, limits).await?;
            let traces: BTreeSet<_> = decoded.items.iter().map(|span| span.trace).collect();
            if traces.len() >= limit {
                if !is_short {
                    // Both halves include the middle millisecond, which the resolution cannot split.
                    let Window { from_ms, until_ms, service } = window;
                    let middle = from_ms.midpoint(until_ms);
                    self.windows.push(Window { from_ms, until_ms: middle, service: service.clone() });
                    self.windows.push(Window { from_ms: middle, until_ms, service });
                    continue;
                }
                self.cut += 1;
            }
            decoded.items.retain(|span: &ReportedSpan| !self.known.contains(&span.trace));
            self.known.extend(traces);
            if !decoded.items.is_empty() || decoded.n_rejected > 0 {
                return Ok(Some(decoded));
            }
        }
        Ok(None)
    }

    async fn fetch_window(
        &self,
        window: &Window,
        limit: usize,
        limits: &Limits,
    ) -> Result<Decoded, CommandError> {
        let Window { from_ms, until_ms, service } = window;
        let service = service.as_deref().map(encoded);
        let path = match self.kind {
            Kind::Zipkin => {
                let lookback = (until_ms - from_ms).max(1);
                let service = service.map(|name| format!("&serviceName={name}")).unwrap_or_default();
                format!("/api/v2/traces?endTs={until_ms}&lookback={lookback}&limit={limit}{service}")
            }
            Kind::Jaeger => format!(
                "/api/traces?service={}&start={}&end={}&limit={limit}",
                service.unwrap_or_default(),
                from_ms * 1_000,
                until_ms * 1_000 + 999,
            ),
            // Parameter names that all its versions know.
            Kind::JaegerV3 => format!(
                "/api/v3/traces?query.service_name={}&query.start_time_min={}&query.start_time_max={}\
                 &query.num_traces={limit}&query.search_depth={limit}",
                service.unwrap_or_default(),
                rfc3339(*from_ms, 0),
                rfc3339(*until_ms, 999),
            ),
        };
        let (status, body) =
            get(&self.uri, &path, &self.wanted.headers).await.map_err(|why| self.failed(why))?;
        // The newer Jaeger answers 404 if it finds nothing.
        if self.kind == Kind::JaegerV3 && status == 404 {
            return Ok(Decoded::default());
        }
        if status != 200 {
            return Err(self.failed(format!("status {status} for {path}: {}", excerpt(&body))));
        }
        let decoded = match self.kind {
            Kind::Zipkin => zipkin::v2_traces(&body, limits),
            Kind::Jaeger => jaeger::read_v1(&body, limits),
            Kind::JaegerV3 => jaeger::read_v3(&body, limits),
        };
        decoded.map_err(|error: DecodeError| self.failed(error.to_string()))
    }

    fn failed(&self, why: String) -> CommandError {
        failed(&self.wanted.url, why)
    }
}

fn failed(url: &str, why: String) -> CommandError {
    CommandError::new(Exit::Environment, format!("cannot read traces from {url}")).because(why)
}

/// Detects the API, and lists the services.
async fn detect_api(uri: &Uri, wanted: &Wanted) -> Result<(Kind, Vec<String>), CommandError> {
    #[derive(Deserialize)]
    struct Old {
        data: Option<Vec<String>>,
    }
    #[derive(Deserialize)]
    struct New {
        services: Option<Vec<String>>,
    }
    let mut answers = Vec::new();
    for (kind, path) in [
        (Kind::Zipkin, "/api/v2/services"),
        (Kind::Jaeger, "/api/services"),
        (Kind::JaegerV3, "/api/v3/services"),
    ] {
        let (status, body) = get(uri, path, &wanted.headers).await.map_err(|why| failed(&wanted.url, why))?;
        let services = match kind {
            _ if status != 200 => None,
            Kind::Zipkin => serde_json::from_slice::<Vec<String>>(&body).ok(),
            // Null if there are no services.
            Kind::Jaeger => serde_json::from_slice::<Old>(&body).ok().map(|old| old.data.unwrap_or_default()),
            Kind::JaegerV3 => {
                serde_json::from_slice::<New>(&body).ok().map(|new| new.services.unwrap_or_default())
            }
        };
        match services {
            Some(services) => return Ok((kind, services)),
            None => answers.push(format!("{path}: status {status}, {}", excerpt(&body))),
        }
    }
    let hint = "neither Zipkin's nor Jaeger's API answers there; a path before /api belongs to the address, \
                as in http://127.0.0.1:9411/zipkin";
    Err(failed(&wanted.url, answers.join("; ")).hint(hint))
}

async fn get(base: &Uri, path: &str, headers: &[String]) -> Result<(u16, Bytes), String> {
    tokio::time::timeout(PATIENCE, exchange(base, path, headers)).await.map_err(|_| "no answer in time")?
}

async fn exchange(base: &Uri, path: &str, headers: &[String]) -> Result<(u16, Bytes), String> {
    let host = base.host().unwrap_or_default().trim_matches(['[', ']']);
    let port = base.port_u16().unwrap_or(80);
    let stream = TcpStream::connect((host, port)).await.map_err(|e| format!("{host}:{port}: {e}"))?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|e| e.to_string())?;
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(async move { drop(connection.await) });
    let authority = base.authority().map(ToString::to_string).unwrap_or_default();
    let target = format!("{}{path}", base.path().trim_end_matches('/'));
    let mut request = Request::get(target).header("host", authority).header("accept", "application/json");
    for header in headers {
        let (name, value) =
            header.split_once(':').ok_or_else(|| format!("`{header}` is not `name: value`"))?;
        request = request.header(name.trim(), value.trim());
    }
    let request = request.body(Empty::<Bytes>::new()).map_err(|e| e.to_string())?;
    let response = sender.send_request(request).await.map_err(|e| e.to_string())?;
    let status = response.status().as_u16();
    let body = Limited::new(response.into_body(), ANSWER_BYTES).collect().await.map_err(|e| e.to_string())?;
    Ok((status, body.to_bytes()))
}

/// The beginning of a response for messages, without control characters.
fn excerpt(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body.get(..400).unwrap_or(body)).into_owned();
    text.chars().filter(|c| !c.is_control()).take(120).collect()
}

/// Escapes a query parameter.
fn encoded(text: &str) -> String {
    let encode = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(encode).collect()
}

/// A time in RFC 3339, with additional microseconds.
fn rfc3339(ms: u64, us: u64) -> String {
    let (days, second) = (ms / 86_400_000, ms / 1_000 % 86_400);
    // Years begin in March and come in groups of 400, so that leap days are at the end.
    let day = days + 719_468;
    let (era, of_era) = (day / 146_097, day % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let date = of_year - (153 * month + 2) / 5 + 1;
    let (month, carry) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    format!(
        "{:04}-{month:02}-{date:02}T{:02}:{:02}:{:02}.{:03}{us:03}Z",
        year + era * 400 + carry,
        second / 3_600,
        second / 60 % 60,
        second % 60,
        ms % 1_000,
    )
}

#[cfg(test)]
mod tests {
    use faultscope_store::interop::query::rfc3339_us;

    use super::*;

    #[test]
    fn moments_are_read_again_as_they_were() {
        assert_eq!(rfc3339(1_700_000_000_123, 45), "2023-11-14T22:13:20.123045Z");
        // Leap days, ends of years and of centuries, every few days over four hundred years.
        for day in (0..146_097).step_by(3) {
            let ms = day * 86_400_000 + 3_723_004;
            assert_eq!(rfc3339_us(&rfc3339(ms, 5)), Some(ms * 1_000 + 5), "day {day}");
        }
    }

    #[test]
    fn names_fit_into_addresses() {
        assert_eq!(encoded("a b&c=d/ü"), "a%20b%26c%3Dd%2F%C3%BC");
    }
}
