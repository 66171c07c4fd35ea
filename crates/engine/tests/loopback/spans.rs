//! What is recorded of a trial: its calls and their causes, samples, reports of services, and no secrets.

use std::io;
use std::sync::{Arc, Mutex};

use faultscope_model::metrics::{History, Metric};
use faultscope_model::span::Parentage;
use faultscope_model::{Run, Span};
use faultscope_platform::loopback::{Call, Loopback, Reply, Test};
use faultscope_store::spans::SeriesQuery;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream as Stream;
use tokio::sync::Barrier;
use tokio_util::sync::CancellationToken;

use crate::bed::{Bed, calls, close, request, run, text};
use crate::greeter::greeter;

#[tokio::test]
async fn causes_are_handed_on_or_inferred() {
    let tested = greeter(
        r#"tests:
  - { name: hands on, http: { get: "http://front:8080/hello" } }
  - { name: hands on nothing, http: { get: "http://front:8080/alone" } }
"#,
    )
    .test(&[])
    .await;
    assert_eq!(
        tested.calls(),
        [
            "test-1 -> front-1 GET /hello 200 root",
            "front-1 -> back-1 GET /word 200 propagated",
            "test-1 -> front-1 GET /alone 200 root",
            "front-1 -> back-1 GET /word 200 inferred",
        ]
    );
    let parents: Vec<_> = tested.spans.iter().map(|span| span.parent).collect();
    assert_eq!(parents, [None, Some(tested.spans[0].id), None, Some(tested.spans[2].id)]);
    assert_ne!(tested.spans[0].trace, tested.spans[2].trace);
}

/// Both handlings of `front` are under way when either asks `back`.
#[tokio::test]
async fn nobody_guesses_between_two_requests() {
    let both = Arc::new(Barrier::new(2));
    let platform = Loopback::new()
        .service("front", move |call: Call| {
            let both = both.clone();
            async move {
                both.wait().await;
                let client = if call.path() == "/alone" { call.instance.client() } else { call.client() };
                client.get("http://back:8081/word").await
            }
        })
        .service("back", |_| async { "world" })
        .program("both", |test: Test| async move {
            let url = format!("http://front:8080{}", test.args()[0]);
            tokio::try_join!(test.client().get(&url), test.client().get(&url)).map(|_| ())
        });
    let file = "name: two
services:
  front: { command: [front], ports: [8080] }
  back: { command: [back], ports: [8081] }
tests: [ { name: alone, run: [both, /alone] }, { name: hello, run: [both, /hello] } ]
";
    let tested = Bed::new(file, platform).test(&[]).await;
    assert_eq!(tested.outcome(), "pass");
    let of_front = |span: &&Span| span.caller.service.as_str() == "front";
    let known: Vec<_> =
        tested.spans.iter().filter(of_front).map(|span| (span.parentage, span.parent.is_some())).collect();
    let (unknown, propagated) = ((Parentage::Unknown, false), (Parentage::Propagated, true));
    assert_eq!(known, [unknown, unknown, propagated, propagated]);
}

#[tokio::test]
async fn calls_land_in_the_run_of_their_trial() {
    let words: Vec<String> = (0..6).map(|n| format!("w{n}")).collect();
    let platform = Loopback::new()
        .service("front", |call: Call| async move {
            let word = call.instance.env("WORD").unwrap_or("none");
            call.client().get(&format!("http://back:8081/{word}")).await
        })
        .service("back", |call: Call| async move { call.path().to_owned() });
    let file = "name: words
services:
  front: { command: [front], ports: [8080] }
  back: { command: [back], ports: [8081] }
tests: [ { name: t, http: { get: \"http://front:8080/\" } } ]
";
    let bed = Bed::new(file, platform).with(|options| options.slots = 3);
    let session = bed.open().await;
    let of = |word: &String| {
        let mut asked = request(&session, &[]);
        let front = asked.circumstance.config.entry("front".parse().unwrap()).or_default();
        front.insert("env.WORD".into(), word.clone());
        asked
    };
    let done = run(&session, words.iter().map(of).collect(), &CancellationToken::new()).await;
    assert_eq!(done.runs.len(), words.len());
    let mut traces = Vec::new();
    for (run, word) in done.runs.iter().zip(&words) {
        let spans = session.spans_of(run.trial).await.unwrap();
        let wanted = [
            "test-1 -> front-1 GET / 200 root".to_owned(),
            format!("front-1 -> back-1 GET /{word} 200 propagated"),
        ];
        assert_eq!((calls(&spans), run.evidence.spans), (wanted.to_vec(), 2), "{}", run.id);
        assert_eq!(session.edges_of(run.trial).await.unwrap().len(), 2);
        traces.push(spans[0].trace);
    }
    traces.sort();
    traces.dedup();
    assert_eq!(traces.len(), words.len(), "every request has a trace of its own");
    close(session).await;
}

#[tokio::test]
async fn instances_are_balanced_and_nodes_have_links() {
    let steps = "{ get: \"http://back:8081/word\" }, ".repeat(6);
    let file = format!(
        "links: [ {{ latency: 20ms }} ]
tests: [ {{ name: six, steps: [ {steps} ] }}, {{ name: hello, http: {{ get: \"http://front:8080/hello\" }} }} ]
failing: {{ nodes: 2, instances: {{ back: 3 }} }}
"
    );
    let bed = greeter(&file);
    let tested = bed.test(&["instance back"]).await;
    for number in 1..=3 {
        let name = format!("back-{number}");
        let is_it = |span: &&Span| {
            span.caller.to_string() == "test-1"
                && span.callee_instance.as_ref().is_some_and(|id| id.to_string() == name)
        };
        assert_eq!(tested.spans.iter().filter(is_it).count(), 2, "{name}: {:#?}", tested.calls());
    }
    let tested = bed.test(&["node"]).await;
    let word = tested.spans.iter().find(|span| span.caller.service.as_str() == "front").unwrap();
    assert_ne!(word.caller_node, word.callee_node, "neighbours land on different nodes");
    // Twenty each way; how long the call itself takes is left to the machine.
    assert!(word.duration_us >= 40_000, "{} us", word.duration_us);
}

#[tokio::test]
async fn as_much_is_recorded_as_is_wanted() {
    let tests = "tests: [ { name: hello, http: { get: \"http://front:8080/hello\" } } ]\n";
    let of = async |record: &str| {
        let tested =
            greeter(&format!("{tests}record: {{ tracing: off, secrets: drop, {record} }}\n")).test(&[]).await;
        tested.spans[1].payload.clone()
    };
    assert!(of("level: timing").await.is_none());
    let headers = of("level: headers").await.unwrap();
    assert!(headers.request_headers.iter().any(|(name, _)| name == "traceparent"), "{headers:?}");
    assert!(headers.response_body.is_empty());
    assert_eq!(of("level: bodies").await.unwrap().response_body, b"world");
    assert_eq!(of("level: bodies, most: 2").await.unwrap().response_body, b"wo");
}

#[tokio::test]
async fn no_result_holds_a_secret() {
    let platform = Loopback::new()
        .service("order", |call: Call| async move {
            let key = call
                .request
                .headers()
                .get("x-api-key")
                .map(|key| String::from_utf8_lossy(key.as_bytes()).into_owned());
            let key = key.unwrap_or_default();
            call.instance.print(format!("login with {key}"));
            if call.path() == "/end" {
                call.instance.exit(1).await
            }
            Reply::from((418, format!("{{\"you\":\"{key}\"}}")))
        })
        .program("asks", |test: Test| async move {
            let request =
                http::Request::builder().uri("http://order:8080/pay").header("x-api-key", "QSECRET-1234");
            let answer = test.client().send(request.body(Default::default()).unwrap()).await.unwrap();
            test.print(text(&answer));
            Err::<(), _>(format!("refused {}", text(&answer)))
        });
    let file = "name: telling
services: { order: { command: [order], ports: [8080] } }
tests:
  - { name: asks, run: [asks] }
  - { name: step, http: { get: \"http://order:8080/pay?token=QSECRET-5678\", headers: { x-api-key: QSECRET-1234 }, expect: { body: nothing } } }
  - { name: ends, http: { get: \"http://order:8080/end\", headers: { x-api-key: QSECRET-1234 } } }
record: { tracing: off, secrets: { drop: true } }
";
    let bed = Bed::new(file, platform);
    let tested = bed.test(&[]).await;
    assert_eq!((tested.outcome(), tested.exits()), ("fail", vec!["order-1 exited with 1".to_owned()]));
    let stored = serde_json::to_string(&tested.run).unwrap();
    assert!(!stored.contains("QSECRET-1234"), "{stored}");
    assert!(tested.signature().contains("[redacted]"), "{}", tested.signature());
    assert!(tested.run.evidence.logs.values().flatten().all(|line| line.ends_with("[redacted]")));
    assert!(!serde_json::to_string(&tested.spans).unwrap().contains("QSECRET"), "{:#?}", tested.spans);
}

#[tokio::test]
async fn instances_are_measured_and_asked_for_their_own_metrics() {
    let platform = Loopback::new().service("worker", |call: Call| async move {
        match call.path() {
            "/metrics" => {
                let jobs = call.instance.memory().get("jobs").unwrap_or_else(|| "0".into());
                format!("# TYPE jobs_total counter\njobs_total{{kind=\"hard\"}} {jobs}\nbroken line here\n")
            }
            _ => {
                call.instance.memory().add("jobs", 1);
                call.instance.allocate(1 << 20).await;
                "x".repeat(1000)
            }
        }
    });
    let file = "name: measured
services: { worker: { command: [worker], ports: [8080], metrics: { path: /metrics } } }
tests: [ { name: work, http: { get: \"http://worker:8080/work\" } } ]
simplest: { config: { worker: { memory: 256MiB } } }
record: { tracing: off, metrics: 1h, secrets: drop }
";
    let bed = Bed::new(file, platform);
    let session = bed.open().await;
    let done = run(&session, vec![request(&session, &[])], &CancellationToken::new()).await;
    let trial = done.runs[0].trial;
    let reader = session.campaign().reader().unwrap();
    let history = History::new(reader.samples_of(Some(trial)).unwrap());
    let summaries = history.summaries();
    let [used] = &summaries[..] else { panic!("{summaries:?}") };
    assert_eq!(
        (used.instance.to_string().as_str(), used.samples),
        ("worker-1", 2),
        "at its start and at its end"
    );
    let memory = history.points(&used.instance, Metric::MemoryWorkingSet);
    assert!(memory[1].1 >= memory[0].1 + f64::from(1 << 20), "{memory:?}");
    assert!(used.network_sent.is_some_and(|bytes| bytes >= 1000.0), "the mesh knows what it sent: {used:?}");
    let services = std::collections::BTreeSet::from(["worker".to_owned()]);
    let query =
        SeriesQuery { services: &services, names: &|name| name == "jobs_total", between: (0, u64::MAX >> 1) };
    let told = reader.exported_points(trial, &query).unwrap();
    let values: Vec<f64> = told.series.values().flat_map(|points| points.values().copied()).collect();
    assert_eq!(values, [0.0, 1.0], "before the work and after it");
    // Nothing that asks for metrics is a call of the application.
    assert_eq!(calls(&session.spans_of(trial).await.unwrap()), ["test-1 -> worker-1 GET /work 200 root"]);
    close(session).await;
}

/// A service that reports a span of its own, as Zipkin's libraries do, before it answers.
#[tokio::test]
async fn what_services_report_belongs_to_the_run_and_to_its_trace() {
    let platform = Loopback::new().service("front", |call: Call| async move {
        let context = call.request.headers()["traceparent"].to_str().unwrap().to_owned();
        let words: Vec<&str> = context.split('-').collect();
        let body = serde_json::json!([{
            "traceId": words[1], "id": "00000000000000aa", "parentId": words[2], "kind": "SERVER", "name": "answer",
            "timestamp": 1_700_000_000_000_000u64, "duration": 5, "localEndpoint": { "serviceName": "front" },
        }]);
        let url = call.instance.env("ZIPKIN_ENDPOINT").expect("services get the address of the collector").to_owned();
        let request = http::Request::post(url).header("content-type", "application/json");
        let body = bytes::Bytes::from(body.to_string());
        let length = body.len();
        let request = request.header("content-length", length).body(body).unwrap();
        call.instance.client().send(request).await
    });
    let file = "name: reporting
services: { front: { command: [front], ports: [8080] } }
tests: [ { name: hello, http: { get: \"http://front:8080/hello\", expect: { status: 202 } } } ]
record: { metrics: off, secrets: drop }
";
    let bed = Bed::new(file, platform).with(|options| options.slots = 2);
    let session = bed.open().await;
    let asked = (0..3).map(|_| request(&session, &[])).collect();
    let done = run(&session, asked, &CancellationToken::new()).await;
    let reader = session.campaign().reader().unwrap();
    for Run { trial, outcome, .. } in &done.runs {
        assert_eq!(outcome.word(), "pass");
        let spans = session.spans_of(*trial).await.unwrap();
        assert_eq!(calls(&spans), ["test-1 -> front-1 GET /hello 202 root"], "reports are no calls");
        let reported = reader.reported_in(*trial).unwrap();
        let [own] = &reported[..] else { panic!("{reported:?}") };
        assert_eq!((own.trial, own.span.trace.to_string()), (*trial, spans[0].trace.to_string()));
    }
    close(session).await;
}

/// As a pool of database connections: nobody closes them, so each ends with its deployment.
#[tokio::test]
async fn a_connection_that_outlives_its_trial_belongs_to_it() {
    let pool = Arc::new(Mutex::new(Vec::new()));
    let platform = Loopback::new()
        .tcp_service("database", |_, mut stream| async move {
            let (mut read, mut write) = stream.split();
            let _ = tokio::io::copy(&mut read, &mut write).await;
        })
        .service("front", move |call: Call| {
            let pool = pool.clone();
            async move {
                let mut stream = call.client().connect("database", 5432).await?;
                stream.write_all(b"hello").await?;
                stream.read_exact(&mut [0; 5]).await?;
                pool.lock().unwrap().push(stream);
                io::Result::Ok("connected")
            }
        });
    let file = "name: pool
services:
  front: { command: [front], ports: [80] }
  database: { command: [database], ports: [5432], protocol: tcp }
tests: [ { name: t, http: { get: \"http://front/\" } } ]
";
    let bed = Bed::new(file, platform);
    let session = bed.open().await;
    let asked = (0..3).map(|_| request(&session, &[])).collect();
    let done = run(&session, asked, &CancellationToken::new()).await;
    // Before the session ends: evidence is read as soon as there is a run.
    let reader = session.campaign().reader().unwrap();
    for run in &done.runs {
        let kinds: Vec<_> = reader.spans_of(run.trial).unwrap().iter().map(Span::operation).collect();
        assert_eq!((kinds.join(", "), run.evidence.spans), ("GET /, connection".into(), 2), "{}", run.id);
    }
    close(session).await;
}

/// With `reset: keep` the pool goes on, and so do its connections: each trial has its own part of them.
#[tokio::test]
async fn a_connection_that_goes_on_is_continued_in_the_next_trial() {
    let pool: Arc<tokio::sync::Mutex<Option<Stream>>> = Arc::default();
    let platform = Loopback::new()
        .tcp_service("database", |_, mut stream| async move {
            let (mut read, mut write) = stream.split();
            let _ = tokio::io::copy(&mut read, &mut write).await;
        })
        .service("front", move |call: Call| {
            let pool = pool.clone();
            async move {
                let mut pooled = pool.lock().await;
                if pooled.is_none() {
                    *pooled = Some(call.client().connect("database", 5432).await?);
                }
                let stream = pooled.as_mut().expect("connected");
                stream.write_all(b"hello").await?;
                stream.read_exact(&mut [0; 5]).await?;
                io::Result::Ok("asked")
            }
        });
    let file = "name: kept
services:
  front: { command: [front], ports: [80] }
  database: { command: [database], ports: [5432], protocol: tcp }
tests: [ { name: t, http: { get: \"http://front/\" } } ]
reset: keep
";
    let bed = Bed::new(file, platform);
    let session = bed.open().await;
    let asked = (0..3).map(|_| request(&session, &[])).collect();
    let done = run(&session, asked, &CancellationToken::new()).await;
    let reader = session.campaign().reader().unwrap();
    let mut extents = Vec::new();
    for run in &done.runs {
        assert_eq!(run.outcome.word(), "pass");
        let spans = reader.spans_of(run.trial).unwrap();
        let connection = spans.iter().find(|span| span.callee.as_str() == "database").unwrap();
        assert_eq!((connection.request_bytes, connection.response_bytes), (5, 5), "only of this trial");
        assert!(connection.start_us >= run.started_us, "it belongs to {}", run.id);
        extents.push((connection.extent.continued, connection.extent.open));
    }
    assert_eq!(extents, [(false, true), (true, true), (true, true)]);
    close(session).await;
}

#[tokio::test]
async fn services_get_the_collector_address_unless_the_file_says_otherwise() {
    let told = async |record: &str| {
        let platform = Loopback::new().service("front", |call: Call| async move {
            let names = call.instance.plan().env.keys().filter(|name| name.contains("ENDPOINT"));
            names.cloned().collect::<Vec<_>>().join(" ")
        });
        let file = format!(
            "name: told\nservices: {{ front: {{ command: [front], ports: [80] }} }}\n\
             tests: [ {{ name: t, http: {{ get: \"http://front/\" }} }} ]\nrecord: {{ secrets: drop, {record} }}\n"
        );
        Bed::new(&file, platform).test(&[]).await.run.evidence.tests.remove(0).output
    };
    assert_eq!(told("tracing: off").await, "");
    let both = told("tracing: on").await;
    assert!(
        both.contains("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") && both.contains("OTLP_METRICS_ENDPOINT"),
        "{both}"
    );
    let spans_only = told("tracing: on, metrics: off").await;
    assert!(spans_only.contains("OTLP_TRACES_ENDPOINT") && !spans_only.contains("METRICS"), "{spans_only}");
}

/// As a service that reports to a Zipkin of its own: most of what such an application sends.
#[tokio::test]
async fn reports_to_a_collector_of_the_application_are_no_calls() {
    let platform = Loopback::new()
        .service("front", |call: Call| async move {
            let request = http::Request::post("http://zipkin:9411/api/v2/spans").header("content-length", 2);
            call.client().send(request.body(bytes::Bytes::from_static(b"[]")).unwrap()).await
        })
        .service("zipkin", |_| async { Reply::from((202, String::new())) });
    let file = "name: exporting
services:
  front: { command: [front], ports: [8080] }
  zipkin: { command: [zipkin], ports: [9411] }
tests: [ { name: hello, http: { get: \"http://front:8080/hello\", expect: { status: 202 } } } ]
record: { tracing: on, metrics: off, secrets: drop }
";
    let tested = Bed::new(file, platform).test(&[]).await;
    assert_eq!(tested.outcome(), "pass", "the report arrived");
    assert_eq!(tested.calls(), ["test-1 -> front-1 GET /hello 202 root"]);
    assert_eq!(tested.run.evidence.spans, 1);
}

#[tokio::test]
async fn a_service_without_instances_refuses_connections() {
    let platform = Loopback::new()
        .service("front", |call: Call| async move {
            match call.client().connect("back", 8081).await {
                Ok(_) => "connected".to_owned(),
                Err(error) => error.kind().to_string(),
            }
        })
        .service("back", |_| async { "world" });
    let file = "name: refusing
services:
  front: { command: [front], ports: [8080] }
  back: { command: [back], ports: [8081] }
tests: [ { name: t, http: { get: \"http://front:8080/\", expect: { body: connection refused } } } ]
";
    let bed = Bed::new(file, platform);
    let session = bed.open().await;
    let of = |instances: u32| {
        let mut asked = request(&session, &[]);
        asked.circumstance.instances.insert("back".parse().unwrap(), instances);
        asked
    };
    let done = run(&session, vec![of(0), of(1), of(0)], &CancellationToken::new()).await;
    let outcomes: Vec<_> = done.runs.iter().map(|run| run.outcome.word()).collect();
    assert_eq!(outcomes, ["pass", "fail", "pass"]);
    close(session).await;
}
