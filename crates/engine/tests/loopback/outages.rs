//! Services that go away and come back, before a test and during it: who gets over it, and what is said of who does
//! not.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use faultscope_engine::resilience::{
    self, Finding, ResilienceOptions, ResilienceReport, Shown, TestReport, Verdict,
};
use faultscope_engine::views::{describe_finding, describe_outage};
use faultscope_model::CampaignKind;
use faultscope_model::Outcome;
use faultscope_model::perturbation::Kind;
use faultscope_platform::loopback::{Call, Instance, Loopback, Reply};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use crate::bed::{Bed, close, defects};

/// `web` keeps one connection to `store`, which speaks lines over TCP.
const FILE: &str = r#"name: todo
services:
  store: { command: [store], ports: [{ port: 6379, protocol: redis }], ready: { tcp: 6379 } }
  web: { command: [web], ports: [80], env: { WEB: "" }, ready: { http: /health }, after: [store] }
tests:
  - { name: list, steps: [ { get: "http://web/a" }, { get: "http://web/b" } ] }
resilience:
  outage: { how: refuse, for: 100ms, recovery: 30s }
"#;

fn todo(changes: &[(&str, &str)]) -> Bed {
    let mut file = FILE.to_owned();
    for (from, to) in changes {
        assert!(file.contains(from), "`{from}` is not in the file");
        file = file.replace(from, to);
    }
    let pool: Arc<Mutex<Option<TcpStream>>> = Arc::default();
    let (opened, used) = (Arc::clone(&pool), pool);
    let platform = Loopback::new()
        .tcp_service("store", |_, mut stream: TcpStream| async move {
            let (reader, mut writer) = stream.split();
            let mut lines = BufReader::new(reader).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                if writer.write_all(format!("{line}\n").as_bytes()).await.is_err() {
                    return;
                }
            }
        })
        .on_start("web", move |web: Instance| {
            let pool = Arc::clone(&opened);
            async move {
                let connected = web.client().connect("store", 6379).await;
                *pool.lock().await = connected.ok();
                Ok(())
            }
        })
        .service("web", move |call: Call| {
            let pool = Arc::clone(&used);
            async move { list(call, pool).await }
        });
    Bed::new(&file, platform)
}

/// Asks the store over the one connection. What happens when that is broken depends on the environment.
async fn list(call: Call, pool: Arc<Mutex<Option<TcpStream>>>) -> Reply {
    if call.path() == "/health" {
        return "up".into();
    }
    let how = call.instance.env("WEB").unwrap_or_default().to_owned();
    let runs = call.instance.memory();
    if how == "counts" && runs.add("calls", 1) > 2 {
        return (409, "it is there already").into();
    }
    let mut pool = pool.lock().await;
    let mut asked = match &mut *pool {
        Some(stream) => ask(stream).await,
        None => Err(io::ErrorKind::NotConnected.into()),
    };
    if asked.is_err() && how != "stuck" {
        *pool = None;
        if how == "dies" {
            call.instance.exit(3).await
        }
        asked = async {
            let mut stream = call.client().connect("store", 6379).await?;
            let answer = ask(&mut stream).await?;
            *pool = Some(stream);
            Ok(answer)
        }
        .await;
    }
    match asked {
        Ok(answer) => answer.into(),
        Err(error) => (503, format!("the store: {error}")).into(),
    }
}

async fn ask(stream: &mut TcpStream) -> io::Result<String> {
    stream.write_all(b"ping\n").await?;
    let mut answer = [0; 5];
    stream.read_exact(&mut answer).await?;
    Ok(String::from_utf8_lossy(&answer).trim().to_owned())
}

fn outages() -> ResilienceOptions {
    ResilienceOptions { kinds: vec![Kind::Outage], ..ResilienceOptions::default() }
}

/// Each outage with what the test showed, and whether it passed again.
fn results(test: &TestReport) -> Vec<(String, Shown, bool)> {
    let result = |o: &resilience::OutageResult| {
        (o.outage.perturbation.to_string(), o.shown, o.outage.recovered_after.is_some())
    };
    test.outages.iter().map(result).collect()
}

fn failure(report: &ResilienceReport) -> String {
    report.tests[0].defects[0].signature.as_ref().unwrap().to_string()
}

#[tokio::test]
async fn who_comes_back_by_itself_may_say_that_it_cannot_work_meanwhile() {
    let started = tokio::time::Instant::now();
    let report = todo(&[]).resilience(outages()).await;
    assert_eq!((report.verdict.clone(), defects(&report)), (Verdict::Clean, vec![]), "{report:#?}");
    let test = &report.tests[0];
    let wanted = [
        ("outage store".to_owned(), Shown::Passed, true),
        ("outage store at call 1".to_owned(), Shown::Degraded, true),
        ("outage store at call 2".to_owned(), Shown::Degraded, true),
    ];
    assert_eq!(results(test), wanted, "{report:#?}");
    assert_eq!((test.tally.passed, test.tally.degraded, test.tally.carried_out()), (1, 2, 3));
    let said: Vec<String> = test.outages.iter().map(describe_outage).collect();
    assert!(said[0].starts_with("outage store (refuse for 1"), "{said:?}");
    assert!(said[0].contains("before the test): passed, also "), "{said:?}");
    assert!(said[1].contains("): degraded, and passed "), "{said:?}");
    assert!(started.elapsed() < Duration::from_secs(30), "nobody waits when everybody is well");
}

#[tokio::test]
async fn a_service_that_ends_is_named() {
    let report = todo(&[("WEB: \"\"", "WEB: dies")]).resilience(outages()).await;
    assert_eq!(report.verdict, Verdict::Defects, "{report:#?}");
    assert_eq!(defects(&report), ["outage store"], "one service, one defect: {report:#?}");
    let defect = &report.tests[0].defects[0];
    assert_eq!(defect.exits, ["web-1 exited with 3"]);
    assert!(failure(&report).ends_with("web-1 exited with 3 after outage store"), "{}", failure(&report));
    let also: Vec<String> = defect.also.iter().flatten().map(ToString::to_string).collect();
    assert_eq!(also, ["outage store at call 1", "outage store at call 2"]);
}

#[tokio::test]
async fn who_does_not_come_back_is_a_defect() {
    let bed = todo(&[("WEB: \"\"", "WEB: stuck"), ("recovery: 30s", "recovery: 300ms")]);
    let report = bed.resilience(outages()).await;
    assert_eq!(report.verdict, Verdict::Defects, "{report:#?}");
    // A connection that is broken before the test breaks every run of it.
    let first = defects(&report);
    assert_eq!(first[0], "outage store", "{report:#?}");
    let during = report.tests[0].defects.iter().flat_map(|defect| {
        std::iter::once(&defect.perturbations).chain(&defect.also).flatten().map(ToString::to_string)
    });
    assert!(during.into_iter().any(|name| name == "outage store at call 1"), "{report:#?}");

    let session = bed.open_for(bed.application(), CampaignKind::Resilience, None).await;
    let asked = vec!["outage store at call 2".parse().unwrap()];
    let never = CancellationToken::new();
    let run = resilience::reproduce(&session, "list", asked, None, &never).await.unwrap().unwrap();
    close(session).await;
    let Outcome::Fail { signature } = &run.outcome else { panic!("{run:#?}") };
    let said = signature.to_string();
    assert!(said.contains("does not work again after outage store at call 2: "), "{said}");
    assert!(said.ends_with("status 503"), "{said}");
}

#[tokio::test]
async fn a_store_that_hangs_is_waited_for() {
    let report = todo(&[("how: refuse", "how: hang")]).resilience(outages()).await;
    assert_eq!(report.verdict, Verdict::Clean, "{report:#?}");
    let shown: Vec<Shown> = report.tests[0].outages.iter().map(|outage| outage.shown).collect();
    assert_eq!(shown, [Shown::Passed; 3], "the answers come late: {report:#?}");
}

#[tokio::test]
async fn a_test_that_does_not_pass_twice_is_judged_by_its_errors() {
    // The third request of a deployment is refused, whatever happened before.
    let bed = todo(&[("WEB: \"\"", "WEB: counts"), ("recovery: 30s", "recovery: 500ms")]);
    let report = bed.resilience(outages()).await;
    assert_eq!(report.verdict, Verdict::Clean, "{report:#?}");
    let notes = report.tests[0].notes.join("\n");
    assert!(notes.contains("does not pass twice in one deployment"), "{notes}");
}

#[tokio::test]
async fn what_an_interrupted_run_leaves_is_a_finding() {
    // The test cleans up at its end, so a run that was interrupted leaves something behind.
    let file = "name: rooms
services:
  rooms: { command: [rooms], ports: [80] }
  log: { command: [log], ports: [80] }
tests:
  - name: book
    steps:
      - { post: \"http://rooms/book\" }
      - { post: \"http://rooms/leave\" }
resilience: { outage: { for: 100ms, recovery: 200ms } }
";
    let platform =
        Loopback::new().service("log", |_| async { "noted" }).service("rooms", |call: Call| async move {
            let memory = call.instance.memory();
            if call.path() == "/book" {
                if memory.get("guest").is_some_and(|guest| !guest.is_empty()) {
                    return Reply::from((409, "it is taken"));
                }
                memory.set("guest", "a");
            }
            if call.client().post("http://log/", "x").await.is_err() {
                return (503, "no log").into();
            }
            if call.path() == "/leave" {
                memory.set("guest", "");
            }
            "fine".into()
        });
    let report = Bed::new(file, platform).resilience(outages()).await;
    assert_eq!(report.verdict, Verdict::Clean, "{report:#?}");
    let findings = &report.tests[0].findings;
    assert!(matches!(findings[0], Finding::FailsAfterOutage { .. }), "{findings:#?}");
    let said = describe_finding(&findings[0]);
    assert!(said.starts_with("the test still fails after outage log at call "), "{said}");
    assert!(said.ends_with("step 1: POST http://rooms/book: status 409"), "{said}");
}

#[tokio::test]
async fn hosts_outside_go_away_as_well() {
    let file = "name: pay
services: { web: { command: [web], ports: [80] } }
external: [ { host: payments.example, ports: [443], allow: false } ]
tests: [ { name: pays, http: { get: \"http://web/\" } } ]
resilience: { outage: { for: 100ms, recovery: 5s } }
";
    // It does not need its payments, and says how it found them.
    let platform = Loopback::new().service("web", |call: Call| async move {
        let connected = call.client().connect("payments.example", 443).await;
        let refused = connected.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused);
        call.instance.print(format!("refused: {refused}"));
        let Ok(mut stream) = call.client().connect("payments.example", 443).await else {
            return "later".to_owned();
        };
        let _ = stream.write_all(b"hello").await;
        let _ = stream.read_u8().await;
        "now".to_owned()
    });
    let report = Bed::new(file, platform).resilience(outages()).await;
    assert_eq!(report.verdict, Verdict::Clean, "{report:#?}");
    let names: Vec<String> = results(&report.tests[0]).into_iter().map(|(name, ..)| name).collect();
    assert!(names.iter().all(|name| name.starts_with("outage ")) && !names.is_empty(), "{report:#?}");
}

#[tokio::test]
async fn hosts_outside_that_are_allowed_are_reached_but_not_meanwhile() {
    let outside = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = outside.local_addr().unwrap().port();
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let serving = tokio::spawn(async move {
        while let Ok((mut stream, _)) = outside.accept().await {
            counted.fetch_add(1, Ordering::Relaxed);
            let mut request = [0; 1024];
            let _ = stream.read(&mut request).await;
            let _ = stream
                .write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 4\r\n\r\npaid")
                .await;
        }
    });
    let file = format!(
        "name: pay
services: {{ web: {{ command: [web], ports: [80] }} }}
external: [ {{ host: localhost, ports: [{port}], allow: true }} ]
tests: [ {{ name: pays, http: {{ get: \"http://web/\" }} }} ]
resilience: {{ outage: {{ how: refuse, for: 100ms, recovery: 5s }} }}
"
    );
    let platform = Loopback::new().service("web", move |call: Call| async move {
        match call.client().get(&format!("http://localhost:{port}/")).await {
            Ok(answer) => Reply::from((200, String::from_utf8_lossy(answer.body()).into_owned())),
            Err(_) => Reply::from((503, "payments are away")),
        }
    });
    let report = Bed::new(&file, platform).resilience(outages()).await;
    serving.abort();
    assert_eq!(report.verdict, Verdict::Clean, "{report:#?}");
    let wanted = [("outage localhost at call 1".to_owned(), Shown::Degraded, true)];
    assert_eq!(results(&report.tests[0]), wanted, "{report:#?}");
    assert!(asked.load(Ordering::Relaxed) >= 3, "asked by the baseline and after the outage");
}
