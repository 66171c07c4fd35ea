//! Zipkin's contracts for dependencies, names, ids and choices, restated over HTTP: what is sent in however many
//! pieces, batches and slices is answered as one.

use faultscope_store::serve::ServeOptions;
use faultscope_store::spans::SpanStoreOptions;
use serde_json::{Value, json};

use crate::TODAY;
use crate::server::Server;

const END: u64 = TODAY / 1000 + 60_000;

/// Spans, one on each line: `trace id parent kind local>remote words`; `-` stands for nothing. Words: `shared`,
/// `error`, `+SECONDS` for a later start, `untimed`.
fn spans(text: &str) -> Vec<Value> {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).map(span).collect()
}

fn span(line: &str) -> Value {
    let words: Vec<_> = line.split_whitespace().collect();
    let [trace, id, parent, kind, sides, ref more @ ..] = words[..] else { panic!("{line}") };
    let mut span =
        json!({"traceId": trace, "id": id, "name": format!("op{id}"), "timestamp": TODAY, "duration": 10});
    let (local, remote) = sides.split_once('>').unwrap_or((sides, "-"));
    let mut set = |key: &str, value: Value| span[key] = value;
    if parent != "-" {
        set("parentId", json!(parent));
    }
    if kind != "-" {
        set("kind", json!(kind.to_uppercase()));
    }
    for (key, service) in [("localEndpoint", local), ("remoteEndpoint", remote)] {
        if service != "-" {
            set(key, json!({ "serviceName": service }));
        }
    }
    for word in more {
        match *word {
            "shared" => set("shared", json!(true)),
            "error" => set("tags", json!({"error": ""})),
            "untimed" => set("timestamp", Value::Null),
            later => set("timestamp", json!(TODAY + later[1..].parse::<u64>().unwrap() * 1_000_000)),
        }
    }
    span
}

/// The links of what was sent: `parent>child calls/errors`, sorted.
fn links(server: &Server, window: &str) -> Vec<String> {
    let answer = server.get(&format!("/api/v2/dependencies?{window}")).json();
    let text = |link: &Value| {
        let (parent, child) = (link["parent"].as_str().unwrap(), link["child"].as_str().unwrap());
        format!("{parent}>{child} {}/{}", link["callCount"], link["errorCount"].as_u64().unwrap_or_default())
    };
    let mut links: Vec<_> = answer.as_array().unwrap().iter().map(text).collect();
    links.sort();
    links
}

/// However spans are cut into batches, sent again, or spread over slices, the links are the same.
#[track_caller]
fn check_links(what: &str, text: &str, expected: &[&str]) {
    let all = spans(text);
    let window = format!("endTs={END}");
    let small = || SpanStoreOptions { slice_spans: 1, ..SpanStoreOptions::default() };
    for (how, store) in [("at once", SpanStoreOptions::default()), ("in slices", small())] {
        let server = Server::with(store, ServeOptions::default());
        if how == "at once" {
            server.put(&json!(all));
        } else {
            // Children first, as reporters often send them.
            all.iter().rev().for_each(|span| server.put(&json!([span])));
        }
        assert_eq!(links(&server, &window), expected, "{what}, {how}");
        server.put(&json!(all));
        assert_eq!(links(&server, &window), expected, "{what}, {how}, sent again");
    }
}

#[test]
fn links_of_calls() {
    for (what, text, expected) in [
        ("a server alone knows nobody", "1 1 - server a", &[][..]),
        ("a server that knows its client", "1 1 - server b>a", &["a>b 1/0"]),
        ("a client alone", "1 1 - client a>b", &["a>b 1/0"]),
        ("a client that knows nobody", "1 1 - client a", &[]),
        ("both sides with ids of their own", "1 1 - client a\n1 2 1 server b", &["a>b 1/0"]),
        ("both sides share an id", "1 1 - client a>b\n1 1 - server b shared", &["a>b 1/0"]),
        ("both sides share an id and do not say so", "1 1 - client a>b\n1 1 - server b", &["a>b 1/0"]),
        ("the server's own name counts", "1 1 - client a>x\n1 2 1 server b", &["a>b 1/0"]),
        (
            "a chain",
            "1 1 - server a\n1 2 1 client a>b\n1 3 2 server b>a\n1 4 3 client b>c",
            &["a>b 1/0", "b>c 1/0"],
        ),
        ("a local span lies between", "1 1 - server a\n1 2 1 - a\n1 3 2 client a>b", &["a>b 1/0"]),
        ("a missing span lies between", "1 1 - server a\n1 3 2 server b>a", &["a>b 1/0"]),
        ("whoever calls itself", "1 1 - client a>a\n1 2 1 server a", &["a>a 1/0"]),
        ("two calls", "1 1 - server a\n1 2 1 client a>b\n1 3 1 client a>b", &["a>b 2/0"]),
        ("two traces", "1 1 - client a>b\n2 1 - client a>b", &["a>b 2/0"]),
        ("no kind, both names", "1 1 - - a>b", &["a>b 1/0"]),
        ("no kind, one name", "1 1 - - a", &[]),
        ("names in capitals", "1 1 - client A>B\n1 2 1 server b", &["a>b 1/0"]),
        ("without times it is not seen", "1 1 - client a>b untimed", &[]),
    ] {
        check_links(what, text, expected);
    }
}

#[test]
fn links_of_messages_and_errors() {
    for (what, text, expected) in [
        ("a message", "1 1 - producer a>kafka\n1 2 1 consumer b>kafka", &["a>kafka 1/0", "kafka>b 1/0"][..]),
        ("a producer alone", "1 1 - producer a>kafka", &["a>kafka 1/0"]),
        ("a consumer alone", "1 1 - consumer b>kafka", &["kafka>b 1/0"]),
        ("nobody knows the broker", "1 1 - producer a\n1 2 1 consumer b", &[]),
        ("a failed server", "1 1 - client a>b\n1 2 1 server b error", &["a>b 1/1"]),
        ("a failed client", "1 1 - client a>b error\n1 2 1 server b", &["a>b 1/1"]),
        ("both say so", "1 1 - client a>b error\n1 2 1 server b error", &["a>b 1/1"]),
        ("both say so and share an id", "1 1 - client a>b error\n1 1 - server b shared error", &["a>b 1/1"]),
        ("a failed client alone", "1 1 - client a>b error", &["a>b 1/1"]),
        ("a failed local span", "1 1 - server a\n1 2 1 - a error\n1 3 2 client a>b", &["a>b 1/0"]),
        ("one of two", "1 1 - client a>b error\n2 1 - client a>b", &["a>b 2/1"]),
        (
            "a failed message",
            "1 1 - producer a>kafka error\n1 2 1 consumer b>kafka",
            &["a>kafka 1/1", "kafka>b 1/0"],
        ),
    ] {
        check_links(what, text, expected);
    }
}

#[test]
fn links_count_where_the_trace_begins() {
    let server = Server::start();
    server.put(&json!(spans("1 1 - server a\n1 2 1 client a>b +50\n2 1 - client c>d +10")));
    let at = |seconds: u64, lookback_ms: u64| {
        links(&server, &format!("endTs={}&lookback={lookback_ms}", TODAY / 1000 + seconds * 1000))
    };
    assert_eq!(at(0, 1), ["a>b 1/0"]);
    assert_eq!(at(10, 10_000), ["a>b 1/0", "c>d 1/0"]);
    assert_eq!(at(10, 9_999), ["c>d 1/0"]);
    assert_eq!(at(50, 30_000), Vec::<String>::new());
    assert_eq!(at(60, 86_400_000), ["a>b 1/0", "c>d 1/0"]);
}

#[test]
fn names_are_listed_once_with_their_services() {
    let server = Server::start();
    assert_eq!(server.get("/api/v2/services").json(), json!([]));
    server.put(&json!(spans(
        "1 1 - client B>db\n1 2 1 client b>DB\n1 3 1 client a>cache\n1 4 1 - -\n1 5 1 - c untimed"
    )));
    let get = |path: &str| server.get(path).json();
    assert_eq!(get("/api/v2/services"), json!(["a", "b", "c"]));
    assert_eq!(get("/api/v2/spans?serviceName=b"), json!(["op1", "op2"]));
    assert_eq!(get("/api/v2/spans?serviceName=B"), json!(["op1", "op2"]));
    assert_eq!(get("/api/v2/spans?serviceName=c"), json!(["op5"]));
    assert_eq!(get("/api/v2/spans?serviceName=db"), json!([]));
    assert_eq!(get("/api/v2/spans?serviceName="), json!([]));
    assert_eq!(get("/api/v2/remoteServices?serviceName=b"), json!(["db"]));
    assert_eq!(get("/api/v2/remoteServices?serviceName=a"), json!(["cache"]));
    assert_eq!(get("/api/v2/remoteServices?serviceName=c"), json!([]));
    assert_eq!(get("/api/v2/remoteServices?serviceName="), json!([]));
    // While there are few services, every new one matters at once.
    let kept = |path: &str| server.get(path).header("cache-control").map(str::to_owned);
    let names = ["/api/v2/services", "/api/v2/spans?serviceName=a", "/api/v2/remoteServices?serviceName=a"];
    assert_eq!(names.map(kept), [None, None, None]);
    server.put(&json!(spans("2 1 - - d")));
    for path in names {
        assert_eq!(kept(path).as_deref(), Some("max-age=300, must-revalidate"), "{path}");
    }
}

#[test]
fn values_of_chosen_tags_are_listed_once_and_no_others() {
    let keys = vec!["environment".to_owned(), "region".to_owned()];
    let store = SpanStoreOptions { tag_values: keys.clone(), ..SpanStoreOptions::default() };
    let server = Server::with(store, ServeOptions { tag_values: keys, ..ServeOptions::default() });
    let values = |key: &str| server.get(&format!("/api/v2/autocompleteValues?key={key}")).json();
    assert_eq!(server.get("/api/v2/autocompleteKeys").json(), json!(["environment", "region"]));
    assert_eq!(values("environment"), json!([]));
    let tagged = |id: u32, tags: Value| json!({"traceId": "1", "id": id.to_string(), "tags": tags});
    server.put(&json!([
        tagged(1, json!({"environment": "test", "other": "x"})),
        tagged(2, json!({"environment": "live"})),
        tagged(3, json!({"environment": "test", "region": "Süd"})),
    ]));
    assert_eq!(values("environment"), json!(["live", "test"]));
    assert_eq!(values("region"), json!(["Süd"]));
    assert_eq!((values("other"), values("unknown")), (json!([]), json!([])));
    assert_eq!(server.get("/api/v2/autocompleteValues").status, 400);
    assert_eq!(server.get("/api/v2/autocompleteValues?key=").status, 400);
}

#[test]
fn ids_of_64_and_128_bits_strict_and_not() {
    let (short, long, other) = ("48485a3953bb6124", "463ac35c9f6413ad48485a3953bb6124", "148485a3953bb6124");
    let all = spans(&format!("{short} 1 - client a>b\n{long} 2 1 server b\n{other} 3 - server c"));
    let count = |server: &Server, id: &str| {
        let answer = server.get(&format!("/api/v2/trace/{id}"));
        if answer.status == 404 { 0 } else { answer.json().as_array().unwrap().len() }
    };
    let strict = Server::start();
    strict.put(&json!(all));
    assert_eq!([short, long, other].map(|id| count(&strict, id)), [1, 1, 1]);
    assert_eq!(count(&strict, &format!("0000000000000000{short}")), 1);
    assert_eq!(count(&strict, "48485a3953bb612"), 0);
    assert_eq!(strict.search(&format!("endTs={END}")).len(), 3);
    // A server that cut its id cannot be linked to its client.
    assert_eq!(links(&strict, &format!("endTs={END}")), ["a>b 1/0"]);
    let many = |server: &Server, ids: &str| {
        server.get(&format!("/api/v2/traceMany?traceIds={ids}")).json().as_array().unwrap().len()
    };
    assert_eq!(many(&strict, &format!("{short},{long}")), 2);
    assert_eq!(many(&strict, &format!("{short},abc")), 1);

    let loose =
        Server::with(SpanStoreOptions::default(), ServeOptions { strict: false, ..ServeOptions::default() });
    loose.put(&json!(all));
    assert_eq!([short, long, other].map(|id| count(&loose, id)), [3, 3, 3]);
    assert_eq!(loose.search(&format!("endTs={END}")).len(), 1);
    assert_eq!(loose.search(&format!("endTs={END}&serviceName=c&spanName=op3")).len(), 1);
    // A second root hangs below the first.
    assert_eq!(links(&loose, &format!("endTs={END}")), ["a>b 1/0", "a>c 1/0"]);
}

#[test]
fn durations_limits_and_times_over_several_slices() {
    let store = SpanStoreOptions { slice_spans: 7, ..SpanStoreOptions::default() };
    let server = Server::with(store, ServeOptions::default());
    for n in 1..=40u64 {
        server.put(&json!([
            {"traceId": format!("{n:x}"), "id": "1", "timestamp": TODAY + n * 1_000, "duration": n * 100, "localEndpoint": {"serviceName": "a"}},
            {"traceId": format!("{n:x}"), "id": "2", "parentId": "1", "timestamp": TODAY + n * 1_000 + 1, "duration": n,
             "localEndpoint": {"serviceName": "b"}, "tags": {"even": (n % 2 == 0).to_string()}},
        ]));
    }
    let found = |query: &str| -> Vec<u64> {
        let ids = server.search(&format!("endTs={END}&{query}"));
        ids.iter().map(|id| u64::from_str_radix(id, 16).unwrap()).collect()
    };
    let down = |from: u64, to: u64| (to..=from).rev().collect::<Vec<_>>();
    for (query, expected) in [
        ("", down(40, 31)),
        ("limit=1", vec![40]),
        ("limit=40", down(40, 1)),
        ("limit=1000", down(40, 1)),
        ("serviceName=a&minDuration=3900&limit=100", vec![40, 39]),
        ("serviceName=b&minDuration=39&limit=100", vec![40, 39]),
        ("serviceName=b&minDuration=3&maxDuration=5&limit=100", vec![5, 4, 3]),
        ("minDuration=100&maxDuration=300&limit=100", vec![3, 2, 1]),
        ("minDuration=20&maxDuration=21&limit=100", vec![21, 20]),
        ("serviceName=b&annotationQuery=even%3Dtrue&limit=3", vec![40, 38, 36]),
        ("serviceName=a&annotationQuery=even%3Dtrue", vec![]),
        ("spanName=nothing", vec![]),
    ] {
        assert_eq!(found(query), expected, "{query}");
    }
    let between = |end: u64, lookback: u64| {
        server.search(&format!("endTs={}&lookback={lookback}&limit=100", TODAY / 1000 + end)).len()
    };
    assert_eq!(
        [between(40, 39), between(40, 1), between(10, 2), between(1, 100), between(0, 100)],
        [40, 2, 3, 1, 0]
    );
}

#[test]
fn what_was_sent_twice_is_there_once() {
    let server = Server::start();
    let all = spans("a 1 - client a>b\na 1 - server b shared\na 2 1 - b");
    for _ in 0..3 {
        server.put(&json!(all));
    }
    let trace = server.get("/api/v2/trace/a").json();
    assert_eq!(trace.as_array().unwrap().len(), 3, "{trace}");
    assert_eq!(server.get(&format!("/api/v2/traces?endTs={END}")).json()[0].as_array().unwrap().len(), 3);
    assert_eq!(server.get("/api/traces/a").json()["data"][0]["spans"].as_array().unwrap().len(), 3);
    // A piece that says something else is another piece.
    server.put(&json!([{"traceId": "a", "id": "2", "tags": {"more": "1"}}]));
    assert_eq!(server.get("/api/v2/trace/a").json().as_array().unwrap().len(), 4);
}

#[test]
fn unknown_routes_and_methods_are_rejected() {
    let server = Server::start();
    for (method, path, status) in [
        ("GET", "/api/v2/nothing", 404),
        ("GET", "/api/v1/traces", 404),
        ("GET", "/api/v2/trace/", 404),
        ("POST", "/api/v2/traces", 405),
        ("GET", "/v1/traces", 405),
        ("DELETE", "/api/v2/spans", 405),
        ("PUT", "/api/v2/spans", 405),
        ("HEAD", "/api/v2/services", 200),
    ] {
        assert_eq!(server.send(method, path, &[], b"").status, status, "{method} {path}");
    }
}
