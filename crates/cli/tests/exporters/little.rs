//! The little trace that every client sends, and what must come out of it.
//!
//! ```text
//! front  GET /pay    SERVER  |--------|        http.path=/pay
//! front  PUT /stock  CLIENT   |------|         calls stock
//! stock  PUT /stock  SERVER    |-!--|          item=pear, error=out of stock; "cache miss" at the !
//! ```

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use serde::Deserialize;
use serde_json::{Value, json};

use crate::server::Server;

/// A sixty-fourth of a second, which every way of counting time can hold; in microseconds.
const TICK: u64 = 15_625;

/// What the client chose.
#[derive(Debug, Deserialize)]
pub(crate) struct Little {
    pub(crate) trace: String,
    /// Microseconds since 1970.
    start: u64,
    root: String,
    call: String,
    served: String,
}

/// What a client leaves out or says in its own way.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ways {
    /// Whether the call says whom it calls; else only the trace shows it.
    pub(crate) names_the_other_side: bool,
    /// How it writes an event.
    pub(crate) event: &'static str,
}

pub(crate) const USUAL: Ways = Ways { names_the_other_side: true, event: "cache miss" };

/// Runs a client to its end.
#[track_caller]
pub(crate) fn send(command: &mut Command) -> Little {
    let output = command.stdin(Stdio::null()).output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}\n{out}\n{err}");
    serde_json::from_str(&out).unwrap_or_else(|e| panic!("{command:?}: {e}\n{out}\n{err}"))
}

impl Little {
    /// Looks at everything that can be asked about it.
    #[track_caller]
    pub(crate) fn check(&self, server: &Server, ways: Ways) {
        let spans = server.get(&format!("/api/v2/trace/{}", self.trace)).json();
        self.check_zipkin(&spans, ways);
        assert_eq!(sorted(&server.shown(&self.trace)), sorted(&spans));
        self.check_jaeger(&server.get(&format!("/api/traces/{}", self.trace)).json(), ways);
        self.check_jaeger_v3(&server.get(&format!("/api/v3/traces/{}", self.trace)).json());
        for query in [
            "serviceName=stock&annotationQuery=error",
            "serviceName=stock&annotationQuery=item%3Dpear+and+error%3Dout+of+stock",
            "serviceName=front&spanName=put+/stock&minDuration=93750&maxDuration=93750",
        ] {
            let found = server.get(&format!("/api/v2/traces?limit=100&{query}")).json();
            let is_it = |trace: &Value| trace[0]["traceId"] == *self.trace;
            assert!(found.as_array().unwrap().iter().any(is_it), "{query}: {found}");
        }
    }

    /// What Zipkin's API says.
    #[track_caller]
    pub(crate) fn check_zipkin(&self, spans: &Value, ways: Ways) {
        let spans = spans.as_array().unwrap();
        assert_eq!(spans.len(), 3, "{spans:#?}");
        let find = |id: &str, kind: &str| {
            let found = spans.iter().find(|span| span["id"] == *id && span["kind"] == *kind);
            let found = found.unwrap_or_else(|| panic!("no {kind} {id} in {spans:#?}"));
            assert_eq!(found["traceId"], *self.trace);
            assert!(found.get("shared").is_none_or(|shared| *shared == true));
            found
        };
        let check = |span: &Value, name: &str, service: &str, parent: Option<&str>, at: u64, lasts: u64| {
            assert_eq!(span["name"], name);
            assert_eq!(span["localEndpoint"]["serviceName"], service);
            assert_eq!(span["parentId"].as_str(), parent, "{span}");
            assert_eq!(span["timestamp"], self.start + at * TICK, "{span}");
            assert_eq!(span["duration"], lasts * TICK, "{span}");
        };
        let root = find(&self.root, "SERVER");
        check(root, "get /pay", "front", None, 0, 8);
        assert_eq!(root["tags"]["http.path"], "/pay");
        assert_eq!(root["tags"]["error"], Value::Null);
        let call = find(&self.call, "CLIENT");
        check(call, "put /stock", "front", Some(&self.root), 1, 6);
        if ways.names_the_other_side {
            assert_eq!(call["remoteEndpoint"]["serviceName"], "stock");
        }
        let served = find(&self.served, "SERVER");
        check(served, "put /stock", "stock", Some(self.served_parent()), 2, 4);
        assert_eq!(
            (&served["tags"]["item"], &served["tags"]["error"]),
            (&json!("pear"), &json!("out of stock"))
        );
        assert_eq!(
            served["annotations"],
            json!([{"timestamp": self.start + 3 * TICK, "value": ways.event}]),
            "{served}"
        );
    }

    /// Where both sides share an id, they share the parent too.
    fn served_parent(&self) -> &str {
        if self.served == self.call { &self.root } else { &self.call }
    }

    /// An id means one span to Jaeger, so of two sides that share one the called side gets another.
    #[track_caller]
    fn check_served_id(&self, id: &str) {
        assert_eq!(id == self.served, self.served != self.call, "{id}");
    }

    #[track_caller]
    fn check_jaeger(&self, answer: &Value, ways: Ways) {
        let trace = &answer["data"][0];
        assert_eq!(trace["traceID"], format!("{:0>32}", self.trace));
        let spans = trace["spans"].as_array().unwrap();
        assert_eq!(spans.len(), 3);
        let tag = |span: &Value, key: &str| {
            let tags = span["tags"].as_array().unwrap();
            tags.iter().find(|tag| tag["key"] == *key).map_or(Value::Null, |tag| tag["value"].clone())
        };
        let service =
            |span: &Value| trace["processes"][span["processID"].as_str().unwrap()]["serviceName"].clone();
        let find = |of: &str, kind: &str| {
            let found = spans.iter().find(|span| service(span) == *of && tag(span, "span.kind") == *kind);
            found.unwrap_or_else(|| panic!("no {kind} of {of} in {spans:#?}"))
        };
        let parent = |span: &Value| span["references"][0]["spanID"].clone();
        let name = |span: &Value| span["operationName"].as_str().unwrap().to_lowercase();
        let (root, call, served) =
            (find("front", "server"), find("front", "client"), find("stock", "server"));
        assert_eq!((&root["spanID"], &call["spanID"]), (&json!(self.root), &json!(self.call)));
        self.check_served_id(served["spanID"].as_str().unwrap());
        assert_eq!((name(root), name(served)), ("get /pay".to_owned(), "put /stock".to_owned()));
        assert_eq!((parent(root), parent(call)), (Value::Null, self.root.clone().into()));
        assert_eq!(parent(served), self.call);
        assert_eq!(
            (&served["startTime"], &served["duration"]),
            (&json!(self.start + 2 * TICK), &json!(4 * TICK))
        );
        assert_eq!((tag(root, "error"), tag(served, "error")), (Value::Null, true.into()));
        assert_eq!(tag(served, "item"), "pear");
        let log = &served["logs"][0];
        assert_eq!(log["timestamp"], self.start + 3 * TICK);
        assert_eq!(log["fields"][0]["value"], ways.event);
    }

    #[track_caller]
    fn check_jaeger_v3(&self, answer: &Value) {
        let resources = answer["result"]["resourceSpans"].as_array().unwrap();
        let mut found = Vec::new();
        for resource in resources {
            let attributes = resource["resource"]["attributes"].as_array().unwrap();
            let service = attributes.iter().find(|a| a["key"] == "service.name").unwrap();
            for scope in resource["scopeSpans"].as_array().unwrap() {
                for span in scope["spans"].as_array().unwrap() {
                    assert_eq!(span["traceId"], format!("{:0>32}", self.trace));
                    found.push((
                        service["value"]["stringValue"].as_str().unwrap().to_owned(),
                        span["spanId"].as_str().unwrap().to_owned(),
                        span["parentSpanId"].as_str().unwrap_or_default().to_owned(),
                        span["kind"].as_u64().unwrap(),
                        span["status"]["code"].as_u64().unwrap_or_default(),
                        span["startTimeUnixNano"].as_str().unwrap().to_owned(),
                    ));
                }
            }
        }
        found.sort_by_key(|span| span.5.clone());
        let served = found[2].1.clone();
        self.check_served_id(&served);
        let at = |ticks: u64| ((self.start + ticks * TICK) * 1_000).to_string();
        let text = str::to_owned;
        assert_eq!(
            found,
            [
                (text("front"), self.root.clone(), String::new(), 2, 0, at(0)),
                (text("front"), self.call.clone(), self.root.clone(), 3, 0, at(1)),
                (text("stock"), served, self.call.clone(), 2, 2, at(2)),
            ]
        );
    }
}

/// Spans in an order of their own, and so are their fields, for comparing.
pub(crate) fn sorted(spans: &Value) -> Vec<String> {
    let mut all: Vec<_> = spans.as_array().unwrap().iter().map(|span| ordered(span).to_string()).collect();
    all.sort();
    all
}

fn ordered(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let sorted: BTreeMap<_, _> =
                map.iter().map(|(key, value)| (key.clone(), ordered(value))).collect();
            sorted.into_iter().collect()
        }
        // The anonymous addresses of the real traces have zeros in front, which Zipkin gives back.
        Value::String(text) if text.contains('.') && text.parse::<std::net::Ipv4Addr>().is_err() => {
            let numbers: Option<Vec<u8>> = text.split('.').map(|part| part.parse().ok()).collect();
            let numbers = numbers.and_then(|numbers| <[u8; 4]>::try_from(numbers).ok());
            numbers.map_or_else(|| value.clone(), |ip| std::net::Ipv4Addr::from(ip).to_string().into())
        }
        other => other.clone(),
    }
}
