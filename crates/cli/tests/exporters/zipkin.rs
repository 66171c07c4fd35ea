//! Zipkin's own server beside the tool: the same spans are sent to both, and what both answer is compared.

use std::collections::BTreeSet;
use std::path::Path;

use faultscope_testkit::{Faultscope, wait_until};
use serde_json::{Value, json};

use crate::corners::{BODIES, IDS, MANY_IDS, PATHS, SEARCHES, TIMES, corner_cases, endpoint, many_traces};
use crate::http::{Answer, get, post};
use crate::little::sorted;
use crate::peers::{Peer, zipkin};
use crate::server::Server;

/// What is answered otherwise on purpose: the beginning of the question, and the reason.
const KEPT: [(&str, &str); 12] = [
    (
        "GET /api/v2/dependencies?of=yelp&",
        "children that leave out their port still belong to the server of their service: Zipkin counts that call twice",
    ),
    (
        "GET /api/v2/dependencies?edge",
        "links count where a trace begins, as searches do; Zipkin also counts traces that only end within the time",
    ),
    ("GET /api/v2/trace/48485A3953BB6124", "ids in capitals cannot mean anything else"),
    ("GET /api/v2/traceMany?traceIds=%20abd", "spaces around ids cannot mean anything else"),
    (
        "GET /api/v2/traces?annotationQuery=%3D",
        "a term without a name asks for nothing, so it excludes nothing",
    ),
    (
        "GET /api/v2/traces?annotationQuery=+and+",
        "a term without a name asks for nothing, so it excludes nothing",
    ),
    ("GET /api/v2/traces?limit=&", "an empty limit is as good as none, as with every other parameter"),
    (
        "GET /api/v2/traces?limit=2147483648",
        "Zipkin's limit is a 32-bit number; ours is cut to what is given at most",
    ),
    ("POST blank", "a body of spaces holds nothing, as an empty one does"),
    ("POST capital id", "ids in capitals cannot mean anything else; OTLP's examples have them"),
    ("POST fraction", "JavaScript's clocks give fractions of microseconds; they are cut off"),
    ("POST zero id", "no span can be found or be a parent with the id 0"),
];

/// An hour ago: within every default.
fn start_us() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    (now.as_secs() - 3_600) * 1_000_000
}

/// The two servers.
struct Pair {
    zipkin: Peer,
    tool: Server,
    asked: usize,
    differences: Vec<String>,
}

impl Pair {
    #[track_caller]
    fn start() -> Self {
        let zipkin = zipkin("environment,late");
        let tool = Server::start(&["--autocomplete", "environment", "--autocomplete", "late"]);
        Self { zipkin, tool, asked: 0, differences: Vec::new() }
    }

    /// Sends spans to both.
    #[track_caller]
    fn put(&self, spans: &[u8]) {
        for url in [&self.zipkin.url, &self.tool.zipkin] {
            let answer = post(url, "/api/v2/spans", &[("content-type", "application/json")], spans);
            assert_eq!(answer.status, 202, "{url}: {}", answer.text());
        }
    }

    /// Asks both.
    fn ask(&mut self, path: &str) {
        let (theirs, ours) = (get(&self.zipkin.url, path), get(&self.tool.zipkin, path));
        self.compare(&format!("GET {path}"), &theirs, &ours);
    }

    fn post(&mut self, what: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) {
        let [theirs, ours] = [&self.zipkin.url, &self.tool.zipkin].map(|url| post(url, path, headers, body));
        self.compare(&format!("POST {what}"), &theirs, &ours);
    }

    fn compare(&mut self, question: &str, theirs: &Answer, ours: &Answer) {
        self.asked += 1;
        // What is wrong is said in words of one's own.
        let seen = |answer: &Answer| match answer.status {
            200 => (200, normal(question, &answer.value()), headers(answer)),
            status => (status, Value::Null, Vec::new()),
        };
        let (theirs_seen, ours_seen) = (seen(theirs), seen(ours));
        let is_kept = KEPT.iter().any(|(beginning, _)| question.starts_with(beginning));
        if (theirs_seen == ours_seen) == is_kept {
            let what = if is_kept { "is no longer different" } else { "differs" };
            self.differences.push(format!(
                "{question} {what}\n  zipkin {} {:?} {}\n  ours   {} {:?} {}",
                theirs.status,
                theirs_seen.2,
                theirs.text(),
                ours.status,
                ours_seen.2,
                ours.text(),
            ));
        }
    }

    #[track_caller]
    fn finish(self, least: usize) {
        assert!(self.differences.is_empty(), "{}", self.differences.join("\n"));
        assert!(self.asked >= least, "only {} questions were asked", self.asked);
        eprintln!("{} answers are the same as Zipkin's", self.asked);
    }
}

fn headers(answer: &Answer) -> Vec<Option<String>> {
    ["content-type", "cache-control"].map(|name| answer.header(name).map(str::to_owned)).to_vec()
}

/// Spans of a trace, and links, come in no order; traces do.
fn normal(question: &str, answer: &Value) -> Value {
    let is_flat = ["/api/v2/trace/", "/api/v2/dependencies"].iter().any(|path| question.contains(path));
    match answer.as_array() {
        Some(_) if is_flat => json!(sorted(answer)),
        Some(traces) if question.contains("/api/v2/trace") => {
            traces.iter().map(|trace| json!(sorted(trace))).collect()
        }
        _ => answer.clone(),
    }
}

#[test]
#[ignore = "run by ./test.sh exporters"]
fn questions_about_corner_cases_are_answered_as_zipkin_does() {
    let mut pair = Pair::start();
    let t = start_us();
    pair.put(corner_cases(t).to_string().as_bytes());
    let end = t / 1_000 + 60_000;
    let services = get(&pair.zipkin.url, "/api/v2/services").json();
    let services: Vec<_> =
        services.as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned()).collect();
    pair.ask("/api/v2/services");
    for service in services.iter().map(String::as_str).chain(["Front", "nobody", ""]) {
        pair.ask(&format!("/api/v2/spans?serviceName={service}"));
        pair.ask(&format!("/api/v2/remoteServices?serviceName={service}"));
        pair.ask(&format!("/api/v2/traces?serviceName={service}&limit=100&endTs={end}"));
    }
    for query in SEARCHES.split_whitespace() {
        pair.ask(&format!("/api/v2/traces?{query}&endTs={end}"));
    }
    let ms = t / 1_000;
    for (end, lookback) in [(ms, 1), (ms - 1, 1_000), (ms, 1_000), (ms + 1, 1_000), (end, end - ms)] {
        pair.ask(&format!("/api/v2/traces?endTs={end}&lookback={lookback}"));
        pair.ask(&format!("/api/v2/dependencies?endTs={end}&lookback={lookback}"));
    }
    pair.ask(&format!("/api/v2/traces?endTs={end}&lookback={}", end - ms - 1));
    pair.ask(&format!("/api/v2/dependencies?edge&endTs={end}&lookback={}", end - ms - 1));
    for query in TIMES.split_whitespace() {
        pair.ask(&format!("/api/v2/traces?{query}"));
    }
    for query in ["", "?endTs=x", "?endTs=0", "?endTs=-1", "?lookback=1"] {
        pair.ask(&format!("/api/v2/dependencies{query}"));
    }
    for lookback in ["", "&lookback=86400000", "&lookback=1000", "&lookback=0", "&lookback=x"] {
        pair.ask(&format!("/api/v2/dependencies?endTs={end}{lookback}"));
    }
    for id in IDS.split_whitespace() {
        pair.ask(&format!("/api/v2/trace/{id}"));
    }
    for ids in MANY_IDS.split_whitespace() {
        pair.ask(&format!("/api/v2/traceMany?traceIds={ids}"));
    }
    for path in PATHS.split_whitespace() {
        pair.ask(path);
    }
    pair.finish(150);
}

#[test]
#[ignore = "run by ./test.sh exporters"]
fn bodies_are_taken_and_refused_as_zipkin_does() {
    let mut pair = Pair::start();
    let json_type = [("content-type", "application/json")];
    pair.post("nothing", "/api/v2/spans", &json_type, b"");
    pair.post("blank", "/api/v2/spans", &json_type, b" ");
    for (what, body) in BODIES.lines().filter_map(|line| line.split_once(" | ")) {
        pair.post(what, "/api/v2/spans", &json_type, body.as_bytes());
    }
    let good = br#"[{"traceId":"e1","id":"1","name":"ok","localEndpoint":{"serviceName":"posts"}}]"#;
    pair.post("no type", "/api/v2/spans", &[], good);
    pair.post("plain text", "/api/v2/spans", &[("content-type", "text/plain")], good);
    pair.post("form", "/api/v2/spans", &[("content-type", "application/x-www-form-urlencoded")], good);
    pair.post("JSON as protobuf", "/api/v2/spans", &[("content-type", "application/x-protobuf")], good);
    pair.post(
        "nonsense as protobuf",
        "/api/v2/spans",
        &[("content-type", "application/x-protobuf")],
        &[b'x'; 100],
    );
    pair.post("not compressed", "/api/v2/spans", &[("content-encoding", "gzip")], b"not gzip");
    pair.post("nothing as version 1", "/api/v1/spans", &json_type, b"[]");
    pair.post("version 2 as version 1", "/api/v1/spans", &json_type, good);
    let thrift = [("content-type", "application/x-thrift")];
    pair.post("empty Thrift", "/api/v1/spans", &thrift, &[12, 0, 0, 0, 0]);
    pair.post("cut off Thrift", "/api/v1/spans", &thrift, &[12, 0, 0, 0, 1]);
    for id in ["f3", "f6", "f7", "f9", "fa", "fb", "fc", "fd", "fe", "e1"] {
        pair.ask(&format!("/api/v2/trace/{id}"));
    }
    pair.finish(55);
}

#[test]
#[ignore = "run by ./test.sh exporters"]
fn searches_find_what_zipkin_finds() {
    let mut pair = Pair::start();
    let t = start_us();
    let spans = many_traces(7, t);
    pair.put(spans.to_string().as_bytes());
    let end = t / 1_000 + 130_000;
    pair.ask("/api/v2/services");
    for service in 0..6 {
        for more in [
            "",
            "&spanName=op1",
            "&remoteServiceName=svc2",
            "&annotationQuery=error",
            "&annotationQuery=cache+miss",
            "&annotationQuery=http.method%3DGET+and+error%3Dtimeout",
            "&minDuration=500",
            "&minDuration=20&maxDuration=900",
            "&limit=3",
            "&limit=200",
            "&spanName=op2&minDuration=100&limit=50",
            "&lookback=60000&limit=100",
        ] {
            pair.ask(&format!("/api/v2/traces?serviceName=svc{service}&endTs={end}{more}"));
        }
        pair.ask(&format!("/api/v2/spans?serviceName=svc{service}"));
        pair.ask(&format!("/api/v2/remoteServices?serviceName=svc{service}"));
    }
    for lookback in [1, 1_000, 20_000, 65_000, 131_000, 86_400_000] {
        pair.ask(&format!("/api/v2/traces?endTs={end}&lookback={lookback}&limit=200"));
        pair.ask(&format!("/api/v2/dependencies?endTs={end}&lookback={lookback}"));
    }
    for trace in 0..120 {
        pair.ask(&format!("/api/v2/trace/{:x}", 0x1000 + trace));
    }
    pair.finish(200);
}

#[test]
#[ignore = "run by ./test.sh exporters"]
fn the_real_traces_are_answered_as_zipkin_does() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/zipkin");
    let Ok(files) = std::fs::read_dir(&folder) else {
        eprintln!("LEFT OUT: the ten real traces are not here ({})", folder.display());
        return;
    };
    let mut pair = Pair::start();
    let mut count = 0;
    for file in files {
        let path = file.unwrap().path();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let bytes = std::fs::read(path).unwrap();
        let spans: Vec<Value> = serde_json::from_slice(&bytes).unwrap();
        pair.put(&bytes);
        count += 1;
        // Zipkin remembers from the last such question how many there are.
        pair.ask("/api/v2/services");
        let texts = |of: fn(&Value) -> &Value| -> BTreeSet<String> {
            spans.iter().filter_map(|span| of(span).as_str()).map(str::to_lowercase).collect()
        };
        let first = spans.iter().filter_map(|span| span["timestamp"].as_u64()).min().unwrap();
        let last = spans.iter().filter_map(|span| span["timestamp"].as_u64()).max().unwrap();
        let (end, lookback) = (last / 1_000 + 1_000, (last - first) / 1_000 + 3_600_000);
        let window = format!("endTs={end}&lookback={lookback}");
        pair.ask(&format!("/api/v2/trace/{}", spans[0]["traceId"].as_str().unwrap()));
        pair.ask(&format!("/api/v2/dependencies?of={name}&{window}"));
        for service in texts(|span| &span["localEndpoint"]["serviceName"]) {
            pair.ask(&format!("/api/v2/spans?serviceName={service}"));
            pair.ask(&format!("/api/v2/remoteServices?serviceName={service}"));
            pair.ask(&format!("/api/v2/traces?{window}&serviceName={service}&minDuration=1000"));
            pair.ask(&format!("/api/v2/traces?{window}&serviceName={service}&annotationQuery=error"));
        }
        for name in texts(|span| &span["name"]).into_iter().take(20) {
            let name: String = name.bytes().map(|byte| format!("%{byte:02X}")).collect();
            pair.ask(&format!("/api/v2/traces?{window}&spanName={name}"));
        }
    }
    pair.ask("/api/v2/services");
    assert_eq!(count, 10);
    pair.finish(100);
}

#[test]
#[ignore = "run by ./test.sh exporters"]
fn traces_are_read_from_zipkin() {
    let peer = zipkin("");
    let t = start_us();
    let all = [corner_cases(t), many_traces(3, t + 20_000_000)];
    for spans in &all {
        let headers = [("content-type", "application/json")];
        assert_eq!(post(&peer.url, "/api/v2/spans", &headers, spans.to_string().as_bytes()).status, 202);
    }
    // More than are given at once, a few within the same millisecond.
    let crowd: Value = (0..1_300u64)
        .map(|n| json!({"traceId": format!("{:x}", 0x9000 + n), "id": "1", "name": "crowd", "timestamp": t + n / 3 * 900, "localEndpoint": endpoint("crowd")}))
        .collect();
    assert_eq!(post(&peer.url, "/api/v2/spans", &[], crowd.to_string().as_bytes()).status, 202);
    let tool = Faultscope::new(env!("CARGO_BIN_EXE_faultscope"));
    let imported = tool.json(["traces", "import", &peer.url, "--since", "2h"], 0);
    let ids: BTreeSet<_> = all
        .iter()
        .flat_map(|spans| spans.as_array().unwrap())
        .map(|span| span["traceId"].to_string())
        .collect();
    // What has no time is found by no search.
    let sent = all.iter().map(|spans| spans.as_array().unwrap().len()).sum::<usize>() - 1 + 1_300;
    assert_eq!((&imported["spans"], &imported["rejected"]), (&json!(sent), &json!(0)), "{imported}");
    for id in ids.iter().map(|id| id.trim_matches('"')).filter(|id| *id != "abc") {
        let theirs = get(&peer.url, &format!("/api/v2/trace/{id}")).json();
        let mut ours = tool.json(["traces", "show", id], 0);
        let known: BTreeSet<_> = ours.as_array().unwrap().iter().map(|span| span["id"].to_string()).collect();
        for span in ours.as_array_mut().unwrap() {
            // Beyond Zipkin's fields, and so not in its answer.
            let marked = span.as_object_mut().unwrap().remove("parentMissing");
            let orphan = span.get("parentId").is_some_and(|parent| !known.contains(&parent.to_string()));
            assert_eq!(marked, orphan.then_some(json!(true)), "{span}");
        }
        assert_eq!(sorted(&ours), sorted(&theirs), "{id}");
    }
    let again = tool.json(["traces", "import", &peer.url, "--since", "2h", "--service", "back"], 0);
    assert_eq!((&again["spans"], &again["known"]), (&json!(0), &json!(3)));
    // Whoever is not there, or is something else, is told apart.
    let url = peer.url.clone();
    drop(peer);
    wait_until("it is gone", || tool.run(["traces", "import", &url]).code != Some(0));
    let gone = tool.run(["traces", "import", &url]).expect(6);
    assert!(gone.stderr.contains("cannot read traces from"), "{}", gone.stderr);
}
