//! Attacks on the memory of a server, which runs in a process of its own so that its peak can be read.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use faultscope_store::serve::{ConnectionLimits, Connections, ServeOptions, Served, router, serve};
use faultscope_store::spans::{SpanStore, SpanStoreOptions};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

use crate::{TODAY, span};

const FOLDER: &str = "FAULTSCOPE_TEST_SERVED";

/// What no attack may exceed. The test build takes more than the tool itself.
const MAX_MIB: u64 = 512;

/// Not a test: what the attacked process runs.
#[test]
#[ignore = "run by other tests as a process of its own"]
fn child() {
    let folder = std::env::var_os(FOLDER).expect("another test starts this one and names a folder");
    let store = SpanStore::open(&folder, SpanStoreOptions::default()).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut out = std::io::stdout().lock();
        writeln!(out, "\nserves {}", listener.local_addr().unwrap()).unwrap();
        out.flush().unwrap();
        let routes = router(&Served::new(store, ServeOptions::default()));
        let connections = Connections::new(ConnectionLimits::default());
        serve(listener, routes, connections, std::future::pending()).await;
    });
}

struct Attacked {
    child: Child,
    address: SocketAddr,
    _folder: tempfile::TempDir,
}

impl Attacked {
    fn start() -> Self {
        Self::with(|_| {})
    }

    /// Starts a server whose store is filled before.
    fn with(fill: impl FnOnce(&SpanStore)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fill(&SpanStore::open(folder.path(), SpanStoreOptions::default()).unwrap());
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "memory::child", "--nocapture", "--test-threads", "1"])
            .env(FOLDER, folder.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let address = lines.find_map(|line| line.strip_prefix("serves ")?.parse().ok()).expect("it serves");
        Self { child, address, _folder: folder }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(600))).unwrap();
        stream
    }

    /// Sends a body and returns the status; none if the connection was cut.
    fn post(&self, path: &str, body: &[u8]) -> Option<u16> {
        let mut stream = self.connect();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n\
             content-encoding: gzip\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        // The server may answer and close before all is sent.
        let _ = stream.write_all(&[head.as_bytes(), body].concat());
        read_status(&mut stream)
    }

    /// Asks and returns status and length of the answer.
    fn get(&self, path: &str) -> (Option<u16>, usize) {
        let mut stream = self.ask(path);
        let status = read_status(&mut stream);
        let mut buffer = vec![0; 1 << 16];
        let mut length = 0;
        while let Ok(n @ 1..) = stream.read(&mut buffer) {
            length += n;
        }
        (status, length)
    }

    fn ask(&self, path: &str) -> TcpStream {
        let mut stream = self.connect();
        let head = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        stream
    }

    /// Asserts that it lives, answers and stayed below the limit.
    #[expect(clippy::print_stderr, reason = "peaks are read by people")]
    #[track_caller]
    fn check(&self, attack: &str) {
        assert_eq!(self.get("/health").0, Some(200), "{attack}");
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        let mib = line.split_whitespace().next().unwrap().parse::<u64>().unwrap() / 1024;
        eprintln!("peak of {attack}: {mib} MiB");
        assert!(mib < MAX_MIB, "{attack} took {mib} MiB");
    }
}

impl Drop for Attacked {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read_status(stream: &mut TcpStream) -> Option<u16> {
    let mut head = [0; 12];
    stream.read_exact(&mut head).ok()?;
    std::str::from_utf8(head.get(9..)?).ok()?.parse().ok()
}

fn gzip(value: &Value) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(value.to_string().as_bytes()).unwrap();
    encoder.finish().unwrap()
}

fn attributes(count: usize, bytes: usize) -> Vec<Value> {
    let value = "x".repeat(bytes);
    (0..count).map(|n| json!({"key": format!("key{n}"), "value": {"stringValue": value}})).collect()
}

/// Sends the same body many times at once; returns how often each status came.
fn flood(
    server: &Attacked,
    senders: usize,
    path: &str,
    body: &[u8],
) -> std::collections::BTreeMap<u16, usize> {
    let mut counts = std::collections::BTreeMap::new();
    std::thread::scope(|scope| {
        let senders: Vec<_> = (0..senders).map(|_| scope.spawn(|| server.post(path, body))).collect();
        for sender in senders {
            *counts.entry(sender.join().unwrap().expect("an answer")).or_default() += 1;
        }
    });
    counts
}

#[test]
fn metrics_do_not_multiply_their_resource() {
    let server = Attacked::start();
    let bounds: Vec<f64> = (0..10).map(f64::from).collect();
    let counts: Vec<String> = (0..11).map(|n: u32| n.to_string()).collect();
    let metric = |n: usize| {
        let point = json!({"timeUnixNano": "1700000000000000000", "count": "9", "sum": 1.0, "min": 0.0, "max": 1.0,
            "explicitBounds": bounds, "bucketCounts": counts});
        json!({"name": format!("metric{n}"), "histogram": {"aggregationTemporality": 2, "dataPoints": [point]}})
    };
    let metrics: Vec<_> = (0..400).map(metric).collect();
    let body = gzip(&json!({"resourceMetrics": [{"resource": {"attributes": attributes(4, 200_000)},
        "scopeMetrics": [{"metrics": metrics}]}]}));
    assert!(body.len() < 100_000, "{}", body.len());
    let counts = flood(&server, 2, "/v1/metrics", &body);
    assert!(counts.keys().all(|status| matches!(status, 200 | 429)), "{counts:?}");
    assert!(counts.contains_key(&200), "{counts:?}");
    server.check("metrics with large resources");
}

#[test]
fn what_is_decoded_is_held_until_it_is_written() {
    let server = Attacked::start();
    let spans: Vec<_> = (1..=700)
        .map(|n| json!({"traceId": format!("{n:032x}"), "spanId": format!("{n:016x}"), "name": "a"}))
        .collect();
    let body = gzip(&json!({"resourceSpans": [{"resource": {"attributes": attributes(20, 1_000)},
        "scopeSpans": [{"spans": spans}]}]}));
    assert!(body.len() < 120_000, "{}", body.len());
    let counts = flood(&server, 24, "/v1/traces", &body);
    assert!(counts.keys().all(|status| matches!(status, 200 | 429 | 503)), "{counts:?}");
    assert!(counts.contains_key(&200), "{counts:?}");
    // One that grows beyond all measure.
    let endless = vec![b' '; 200 << 20];
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(&endless).unwrap();
    drop(endless);
    let counts = flood(&server, 16, "/v1/traces", &encoder.finish().unwrap());
    assert!(counts.keys().all(|status| matches!(status, 413 | 429)), "{counts:?}");
    server.check("bodies that grow");
}

fn with_large_traces() -> Attacked {
    Attacked::with(|store| {
        for trace in 1..=4 {
            for part in 0..4 {
                let spans = (1..=500).map(|id| {
                    let mut span = span(trace, part * 1000 + id, TODAY + trace);
                    span.tags.push(("text".into(), "y".repeat(8_000)));
                    span
                });
                store.put(spans.collect()).unwrap().committed_blocking().unwrap();
            }
        }
    })
}

#[test]
fn large_traces_are_answered_one_at_a_time() {
    let server = with_large_traces();
    let search = format!("endTs={}&lookback=3600000", TODAY / 1000 + 1000);
    let paths = [
        format!("/api/v2/traces?limit=10&{search}"),
        "/api/v2/traceMany?traceIds=1,2,3,4".to_owned(),
        "/api/v2/trace/1".to_owned(),
        format!("/api/traces?service=front&limit=10&end={}&lookback=1h", TODAY + 1_000_000),
        "/api/v3/traces/2".to_owned(),
    ];
    let one = &server;
    std::thread::scope(|scope| {
        let asking = paths.iter().cycle().take(10);
        let asking: Vec<_> = asking.map(|path| (path, scope.spawn(move || one.get(path)))).collect();
        for (path, asked) in asking {
            let (status, length) = asked.join().unwrap();
            assert!(matches!(status, Some(200 | 503)), "{path}: {status:?}");
            assert!(status == Some(503) || length > 4_000_000, "{path}: {length}");
        }
    });
    assert!(server.get(&paths[0]).1 > 16 << 20, "all four are found");
    server.check("queries of large traces");
    // Nobody reads these answers.
    let readers: Vec<_> = paths.iter().cycle().take(60).map(|path| server.ask(path)).collect();
    server.check("readers that do not read");
    drop(readers);
}

#[test]
fn half_sent_requests_do_not_silence_the_server() {
    let server = Attacked::start();
    let parts = [
        "",
        "GET /hea",
        "POST /api/v2/spans HTTP/1.1\r\nhost: localhost\r\ncontent-length: 500\r\n\r\n[",
        "PRI * HT",
    ];
    let open: Vec<_> = (0..1010)
        .map(|n: usize| {
            let mut stream = server.connect();
            // The oldest ones are closed for the newest.
            let _ = stream.write_all(parts[n % parts.len()].as_bytes());
            stream
        })
        .collect();
    server.check("half-sent requests");
    drop(open);
}
