//! Questions over HTTP: Zipkin's storage contract restated, the server's pages, and Jaeger's clients.

use faultscope_store::serve::ServeOptions;
use faultscope_store::spans::SpanStoreOptions;
use serde_json::{Value, json};

use crate::TODAY;
use crate::server::Server;

/// The end of searches, in milliseconds, with all spans before it.
const NOW_MS: u64 = TODAY / 1000 + 60_000;

/// A client and its server, which share an id, and a database that tells nothing of itself.
fn shop() -> Value {
    json!([
        {"traceId": "48485a3953bb6124", "id": "1", "name": "GET ", "kind": "CLIENT", "timestamp": TODAY, "duration": 200_000,
         "localEndpoint": {"serviceName": "Front", "ipv4": "10.0.0.1"}, "remoteEndpoint": {"serviceName": "back"},
         "annotations": [{"timestamp": TODAY + 5, "value": "wire send"}], "tags": {"http.path": "/pay"}},
        {"traceId": "48485a3953bb6124", "id": "1", "name": "get /pay", "kind": "SERVER", "timestamp": TODAY + 10_000,
         "duration": 150_000, "localEndpoint": {"serviceName": "back", "ipv4": "10.0.0.2"}},
        {"traceId": "48485a3953bb6124", "id": "2", "parentId": "1", "name": "query", "kind": "CLIENT",
         "timestamp": TODAY + 20_000, "duration": 100_000, "localEndpoint": {"serviceName": "back"},
         "remoteEndpoint": {"serviceName": "db"}, "tags": {"error": "deadlock", "lc": "sql"}}
    ])
}

fn now(more: &str) -> String {
    format!("endTs={NOW_MS}&{more}")
}

#[test]
fn an_empty_store_answers_everything_with_nothing() {
    let server = Server::start();
    for path in [
        "/api/v2/traces",
        "/api/v2/services",
        "/api/v2/spans?serviceName=x",
        "/api/v2/dependencies?endTs=1",
        "/api/v2/remoteServices?serviceName=x",
        "/api/v2/autocompleteKeys",
        "/api/v2/autocompleteValues?key=x",
    ] {
        assert_eq!(server.get(path).json(), json!([]), "{path}");
    }
    let answer = server.get("/api/v2/trace/abc");
    assert_eq!((answer.status, answer.text().trim()), (404, "abc not found"));
}

#[test]
fn wrong_questions_are_400_and_say_what_is_wrong() {
    let server = Server::start();
    for (path, word) in [
        ("/api/v2/trace/0", "zeros"),
        ("/api/v2/trace/0000000000000000000000000000000000", "long"),
        ("/api/v2/trace/xyz", "hexadecimal"),
        ("/api/v2/traceMany", "traceIds"),
        ("/api/v2/traceMany?traceIds=a", "fewer than two"),
        ("/api/v2/traceMany?traceIds=a,b,0a", "twice"),
        ("/api/v2/spans", "serviceName"),
        ("/api/v2/remoteServices", "serviceName"),
        ("/api/v2/dependencies", "endTs"),
        ("/api/v2/autocompleteValues", "key"),
        ("/api/v2/traces?limit=0", "limit"),
        ("/api/v2/traces?lookback=-1", "lookback"),
        ("/api/v2/traces?endTs=soon", "endTs"),
        ("/api/v2/traces?minDuration=10&maxDuration=5", "maxDuration"),
    ] {
        let answer = server.get(path);
        assert_eq!(answer.status, 400, "{path}: {}", answer.text());
        assert!(answer.text().contains(word), "{path}: {}", answer.text());
    }
    assert_eq!(server.get("/api/v2/nothing").status, 404);
    assert_eq!(server.send("POST", "/api/v2/traces", &[], b"").status, 405);
}

#[test]
fn ids_are_found_however_they_are_written() {
    let server = Server::start();
    server.put(&json!([{"traceId": "463ac35c9f6413ad48485a3953bb6124", "id": "a"}, {"traceId": "00000000000000000000000000000abc", "id": "b"}]));
    for id in ["abc", "0000000000000abc", "00000000000000000000000000000abc", "ABC"] {
        let trace = server.get(&format!("/api/v2/trace/{id}")).json();
        assert_eq!(trace[0]["traceId"], "0000000000000abc", "{id}");
    }
    assert_eq!(server.get("/api/v2/trace/48485a3953bb6124").status, 404);
    let both = server.get("/api/v2/traceMany?traceIds=abc,463ac35c9f6413ad48485a3953bb6124,dead").json();
    assert_eq!(both.as_array().unwrap().len(), 2);
}

#[test]
fn loose_ids_join_64_and_128_bits() {
    let options = ServeOptions { strict: false, ..ServeOptions::default() };
    let server = Server::with(SpanStoreOptions::default(), options);
    server.put(&json!([
        {"traceId": "463ac35c9f6413ad48485a3953bb6124", "id": "1", "timestamp": TODAY, "localEndpoint": {"serviceName": "a"}},
        {"traceId": "48485a3953bb6124", "id": "2", "parentId": "1", "timestamp": TODAY + 1, "localEndpoint": {"serviceName": "b"}}
    ]));
    for id in ["48485a3953bb6124", "463ac35c9f6413ad48485a3953bb6124", "148485a3953bb6124"] {
        assert_eq!(server.get(&format!("/api/v2/trace/{id}")).json().as_array().unwrap().len(), 2, "{id}");
    }
    assert_eq!(server.search(&now("serviceName=b")).len(), 1);
    assert_eq!(
        server
            .get("/api/v2/traceMany?traceIds=148485a3953bb6124,248485a3953bb6124")
            .json()
            .as_array()
            .unwrap()
            .len(),
        1
    );
}

#[test]
fn names_are_lower_case_and_sorted() {
    let server = Server::start();
    server.put(&shop());
    assert_eq!(server.get("/api/v2/services").json(), json!(["back", "front"]));
    assert_eq!(server.get("/api/v2/spans?serviceName=BACK").json(), json!(["get /pay", "query"]));
    assert_eq!(server.get("/api/v2/remoteServices?serviceName=back").json(), json!(["db"]));
    assert_eq!(server.get("/api/v2/remoteServices?serviceName=front").json(), json!(["back"]));
    let few = server.get("/api/v2/services");
    assert_eq!(few.header("cache-control"), None);
    let more =
        ["c", "d"].map(|name| json!({"traceId": "9", "id": "9", "localEndpoint": {"serviceName": name}}));
    server.put(&json!(more));
    for path in
        ["/api/v2/services", "/api/v2/spans?serviceName=back", "/api/v2/remoteServices?serviceName=back"]
    {
        assert_eq!(server.get(path).header("cache-control"), Some("max-age=300, must-revalidate"), "{path}");
    }
}

#[test]
fn every_parameter_of_a_search_counts() {
    let server = Server::start();
    server.put(&shop());
    let (hit, miss) = (vec!["48485a3953bb6124".to_owned()], Vec::<String>::new());
    for (parameters, found) in [
        ("", &hit),
        ("serviceName=front", &hit),
        ("serviceName=FRONT", &hit),
        ("serviceName=db", &miss),
        ("remoteServiceName=db", &hit),
        ("serviceName=front&remoteServiceName=db", &miss),
        ("spanName=query", &hit),
        ("spanName=all", &hit),
        ("serviceName=front&spanName=query", &miss),
        ("serviceName=back&spanName=query", &hit),
        ("annotationQuery=error", &hit),
        ("annotationQuery=error%3Ddeadlock", &hit),
        ("annotationQuery=error%3Dtimeout", &miss),
        ("annotationQuery=wire+send", &hit),
        ("annotationQuery=wire+send+and+error", &hit),
        ("serviceName=front&annotationQuery=wire+send+and+error", &miss),
        ("annotationQuery=http.path%3D/pay+and+wire+send", &hit),
        ("minDuration=200000", &hit),
        ("minDuration=200001", &miss),
        ("serviceName=back&minDuration=150001", &miss),
        ("serviceName=back&minDuration=90000&maxDuration=110000", &hit),
        ("minDuration=101000&maxDuration=149000", &miss),
        ("lookback=60000", &hit),
        ("lookback=59999", &miss),
    ] {
        assert_eq!(&server.search(&now(parameters)), found, "{parameters}");
    }
    let at = |ms: u64| server.search(&format!("endTs={ms}&lookback=1000"));
    assert_eq!((at(TODAY / 1000), at(TODAY / 1000 - 1)), (hit, miss));
}

#[test]
fn the_latest_come_first_and_no_more_than_asked_for() {
    let server = Server::start();
    let spans: Vec<Value> = (1..=30)
        .map(|n| {
            json!({"traceId": format!("{n:x}"), "id": "1", "timestamp": TODAY + (n * 7 % 30) * 1000,
                        "localEndpoint": {"serviceName": "a"}})
        })
        .collect();
    server.put(&json!(spans));
    let all = server.search(&now("limit=100"));
    assert_eq!(all.len(), 30);
    assert_eq!(server.search(&now("")), all[..10]);
    assert_eq!(server.search(&now("limit=3&serviceName=a")), all[..3]);
    let first = u64::from_str_radix(&all[0], 16).unwrap();
    assert_eq!(first * 7 % 30, 29);
}

#[test]
fn spans_in_pieces_without_times_and_shared_ones() {
    let server = Server::start();
    server.put(&json!([{"traceId": "a", "id": "1", "name": "late", "localEndpoint": {"serviceName": "a"}}]));
    assert_eq!(server.search(&now("")), Vec::<String>::new());
    assert_eq!(server.get("/api/v2/trace/a").json().as_array().unwrap().len(), 1);
    assert_eq!(server.get("/api/v2/spans?serviceName=a").json(), json!(["late"]));
    // The rest comes later: with it the trace is found.
    server.put(&json!([{"traceId": "a", "id": "1", "timestamp": TODAY, "duration": 0.5, "localEndpoint": {"serviceName": "a"}}]));
    assert_eq!(server.search(&now("serviceName=a&spanName=late")).len(), 1);
    let trace = server.get("/api/v2/trace/a").json();
    assert_eq!(trace[1]["duration"], 1);
    server.put(&shop());
    let kinds: Vec<_> = server
        .get("/api/v2/trace/48485a3953bb6124")
        .json()
        .as_array()
        .unwrap()
        .iter()
        .filter(|span| span["id"] == "0000000000000001")
        .map(|span| span["kind"].clone())
        .collect();
    assert_eq!(kinds, ["CLIENT", "SERVER"]);
}

#[test]
fn a_trace_is_found_by_what_lies_after_the_end() {
    let server = Server::start();
    server.put(&shop());
    let end = TODAY / 1000 + 5;
    assert_eq!(server.search(&format!("endTs={end}&lookback=1000&serviceName=back")).len(), 1);
    assert_eq!(server.search(&format!("endTs={}&lookback=1000&serviceName=back", TODAY / 1000 - 5)).len(), 0);
}

#[test]
fn dependencies_count_calls_and_errors_within_the_time() {
    let server = Server::start();
    server.put(&shop());
    let links = server.get(&format!("/api/v2/dependencies?endTs={NOW_MS}")).json();
    let mut links = links.as_array().unwrap().clone();
    links.sort_by_key(|link| link["parent"].to_string());
    assert_eq!(
        links,
        [
            json!({"parent": "back", "child": "db", "callCount": 1, "errorCount": 1}),
            json!({"parent": "front", "child": "back", "callCount": 1}),
        ]
    );
    assert_eq!(server.get(&format!("/api/v2/dependencies?endTs={NOW_MS}&lookback=1000")).json(), json!([]));
}

#[test]
fn chosen_tags_complete_themselves() {
    let keys = vec!["http.path".to_owned()];
    let store = SpanStoreOptions { tag_values: keys.clone(), ..SpanStoreOptions::default() };
    let server = Server::with(store, ServeOptions { tag_values: keys, ..ServeOptions::default() });
    server.put(&shop());
    assert_eq!(server.get("/api/v2/autocompleteKeys").json(), json!(["http.path"]));
    assert_eq!(server.get("/api/v2/autocompleteValues?key=http.path").json(), json!(["/pay"]));
    assert_eq!(server.get("/api/v2/autocompleteValues?key=error").json(), json!([]));
}

#[test]
fn pages_about_the_server_itself() {
    let server = Server::start();
    assert_eq!(server.get("/health").json()["status"], "UP");
    assert!(server.get("/info").json()["zipkin"]["version"].is_string());
    for path in ["/config.json", "/zipkin/config.json"] {
        let config = server.get(path).json();
        assert_eq!((&config["searchEnabled"], &config["queryLimit"]), (&json!(true), &json!(10)));
        assert_eq!(config["dependency"]["enabled"], true);
    }
    assert!(server.get("/").text().contains("/api/v2/spans"));
    assert!(server.get("/prometheus").text().contains("faultscope_spans_waiting 0"));
}

#[test]
fn jaegers_clients_are_answered_in_both_versions() {
    let server = Server::start();
    server.put(&shop());
    assert_eq!(server.get("/api/services").json()["data"], json!(["back", "front"]));
    assert_eq!(server.get("/api/services/back/operations").json()["data"], json!(["get /pay", "query"]));
    let (start, end) = (TODAY - 1, TODAY + 60_000_000);
    let found = server
        .get(&format!("/api/traces?service=back&operation=query&start={start}&end={end}&minDuration=50ms"))
        .json();
    assert_eq!(found["data"][0]["spans"].as_array().unwrap().len(), 3);
    let none = server
        .get(&format!(
            "/api/traces?service=front&tags=%7B%22error%22%3A%22true%22%7D&start={start}&end={end}"
        ))
        .json();
    assert_eq!(none["data"], json!([]));
    assert_eq!(
        server.get("/api/traces/48485a3953bb6124").json()["data"][0]["traceID"],
        "000000000000000048485a3953bb6124"
    );
    let missing = server.get("/api/traces/dead");
    let body: Value = serde_json::from_slice(&missing.body).unwrap();
    assert_eq!((missing.status, &body["errors"][0]["code"]), (404, &json!(404)));
    let links = server.get(&format!("/api/dependencies?endTs={NOW_MS}&lookback=86400000")).json();
    assert_eq!(links["data"].as_array().unwrap().len(), 2);

    assert_eq!(server.get("/api/v3/services").json(), json!({"services": ["back", "front"]}));
    let operations = server.get("/api/v3/operations?service=front").json();
    assert_eq!(operations["operations"][0]["name"], "get ");
    let time = "query.startTimeMin=2023-11-14T22:13:19Z&query.startTimeMax=2023-11-14T23:13:20Z";
    let found = server.get(&format!("/api/v3/traces?query.serviceName=back&{time}")).json();
    assert!(found["result"]["resourceSpans"].as_array().is_some_and(|list| !list.is_empty()), "{found}");
    let wrong = server.get("/api/v3/traces?query.serviceName=back");
    let body: Value = serde_json::from_slice(&wrong.body).unwrap();
    assert_eq!((wrong.status, &body["error"]["httpCode"]), (400, &json!(400)));
    let one = server.get("/api/v3/traces/48485a3953bb6124").json();
    assert!(one["result"]["resourceSpans"].is_array(), "{one}");
}
