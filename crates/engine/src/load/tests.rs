//! Loads on targets of this process, good and bad.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use faultscope_model::workload::{Expected, LoadRequest, Matrix, RequestBody, Think};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 11\r\n\r\n{\"id\":\"x7\"}";

/// A target that treats each connection in the same way, and the most connections that it had at once.
async fn target<F>(serve: impl Fn(TcpStream) -> F + Send + 'static) -> (LoadTarget, Arc<AtomicUsize>)
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let connections = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&connections);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            counter.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(serve(stream));
        }
    });
    let authority = address.to_string();
    (LoadTarget { address, authority, prefix: String::new(), protocol: LoadProtocol::Http1 }, connections)
}

/// Reads requests without a body, or with one in the same packet, and answers each.
async fn answer_each(mut stream: TcpStream, answer: impl Fn(&str) -> String) {
    let mut buffer = vec![0; 4096];
    while let Ok(read @ 1..) = stream.read(&mut buffer).await {
        let request = String::from_utf8_lossy(&buffer[..read]).into_owned();
        if stream.write_all(answer(&request).as_bytes()).await.is_err() {
            return;
        }
    }
}

fn options(target: LoadTarget, arrivals: Arrivals) -> LoadOptions {
    LoadOptions {
        target,
        scenario: Scenario::single(LoadRequest::new("GET", "/")),
        arrivals,
        duration: Duration::from_millis(300),
        within: Duration::from_secs(5),
        thresholds: Vec::new(),
        stop_after: None,
        seed: 7,
    }
}

fn closed(users: u32) -> Arrivals {
    Arrivals::Closed { users, spawn_rate: None, think: Think::None }
}

async fn run(options: LoadOptions) -> LoadReport {
    run_load(options, mpsc::unbounded_channel().0, &CancellationToken::new()).await
}

#[tokio::test]
async fn users_keep_their_connections_and_there_are_never_more_of_them() {
    let (target, connections) = target(|stream| answer_each(stream, |_| OK.to_owned())).await;
    let report = run(options(target, closed(3))).await;
    assert!(report.counts.requests > 10, "{report:?}");
    assert_eq!((report.counts.n_failed(), connections.load(Ordering::Relaxed)), (0, 3));
    assert_eq!(report.windows.iter().map(|window| window.users).max(), Some(3));
}

#[tokio::test]
async fn values_of_answers_reach_later_requests_of_the_same_user() {
    let serve = |stream| {
        answer_each(stream, |request| match request.starts_with("GET /new") {
            true => OK.to_owned(),
            false if request.contains("/use/x7") && request.ends_with("{\"id\":\"x7\"}") => OK.to_owned(),
            false => "HTTP/1.1 400 Bad\r\ncontent-length: 0\r\n\r\n".to_owned(),
        })
    };
    let (target, _) = target(serve).await;
    let make = LoadRequest {
        save: BTreeMap::from([("id".to_owned(), "id".to_owned())]),
        ..LoadRequest::new("GET", "/new")
    };
    let take = LoadRequest {
        body: Some(RequestBody::Json(serde_json::json!({"id": "${id}"}))),
        expect: Expected { status: vec![200], contains: Some("${id}".to_owned()) },
        ..LoadRequest::new("POST", "/use/${id}")
    };
    let scenario = Scenario { requests: vec![make, take], matrix: Matrix::in_turn(2) };
    let report = run(LoadOptions { scenario, ..options(target, closed(2)) }).await;
    assert!(report.requests.iter().all(|request| request.counts.requests > 3), "{report:?}");
    assert_eq!(report.counts.n_failed(), 0, "{report:?}");
}

/// A target that stalls once is asked as often as before in the statistics: no coordinated omission.
#[tokio::test]
async fn requests_that_wait_for_a_stalled_target_count_from_their_time() {
    let stalled = Arc::new(AtomicUsize::new(0));
    let serve = move |mut stream: TcpStream| {
        let stalled = Arc::clone(&stalled);
        async move {
            let mut buffer = vec![0; 4096];
            while let Ok(1..) = stream.read(&mut buffer).await {
                if stalled.fetch_add(1, Ordering::Relaxed) == 10 {
                    tokio::time::sleep(Duration::from_millis(150)).await;
                }
                if stream.write_all(OK.as_bytes()).await.is_err() {
                    return;
                }
            }
        }
    };
    let (target, _) = target(serve).await;
    let arrivals = Arrivals::Open { rate: 200.0, spacing: Spacing::Constant, most: 1 };
    let report = run(options(target, arrivals)).await;
    assert_eq!(report.counts.requests, 60, "one each 5 ms, whatever the target does");
    let (latency, service) = (report.latency.unwrap(), report.service_time.unwrap());
    // 30 requests were due during the stall; only one was sent in it.
    assert!(latency.quantile(0.75).unwrap() > 20_000.0, "{latency:?}");
    assert!(latency.mean_us > 3.0 * service.mean_us, "{latency:?} {service:?}");
}

#[tokio::test]
async fn bad_targets_are_failures_by_their_kind() {
    let garbage = |mut stream: TcpStream| async move {
        let _ = stream.read(&mut [0; 100]).await;
        let _ = stream.write_all(b"SSH-2.0-nobody\r\n\r\n").await;
    };
    let closes = |mut stream: TcpStream| async move {
        let _ = stream.read(&mut [0; 100]).await;
    };
    let half = |mut stream: TcpStream| async move {
        let _ = stream.read(&mut [0; 100]).await;
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\nhalf").await;
    };
    let hangs =
        |mut stream: TcpStream| async move { while let Ok(1..) = stream.read(&mut [0; 100]).await {} };
    let broken = |stream| answer_each(stream, |_| "HTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n".to_owned());
    let refused = {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        LoadTarget {
            address,
            authority: address.to_string(),
            prefix: String::new(),
            protocol: LoadProtocol::Http1,
        }
    };
    let cases = [
        (target(garbage).await.0, RequestFailure::Malformed),
        (target(closes).await.0, RequestFailure::Closed),
        (target(half).await.0, RequestFailure::Closed),
        (target(hangs).await.0, RequestFailure::TimedOut),
        (target(broken).await.0, RequestFailure::Status),
        (refused, RequestFailure::Refused),
    ];
    for (target, expected) in cases {
        let within = Duration::from_millis(50);
        let report = run(LoadOptions { within, ..options(target, closed(1)) }).await;
        assert_eq!(report.counts.failed.keys().collect::<Vec<_>>(), [&expected], "{report:?}");
        assert_eq!(report.counts.n_failed(), report.counts.requests);
        assert!(
            report.counts.requests < 20 || expected == RequestFailure::Status,
            "{expected:?} is asked too often"
        );
    }
}

#[tokio::test]
async fn a_load_stops_when_a_threshold_stays_broken() {
    let (target, _) =
        target(|stream| answer_each(stream, |_| "HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n".to_owned()))
            .await;
    let report = run(LoadOptions {
        duration: Duration::from_secs(60),
        thresholds: vec!["errors<10%".parse().unwrap()],
        stop_after: Some(1),
        arrivals: Arrivals::Closed {
            users: 1,
            spawn_rate: None,
            think: Think::Constant(Duration::from_millis(20)),
        },
        ..options(target, closed(1))
    })
    .await;
    assert!(report.stopped_early && report.windows.len() < 10, "{:?}", report.windows);
    assert!(!report.thresholds[0].is_kept);
}

#[tokio::test]
async fn a_load_ends_when_it_is_interrupted() {
    let hangs =
        |mut stream: TcpStream| async move { while let Ok(1..) = stream.read(&mut [0; 100]).await {} };
    let (target, _) = target(hangs).await;
    let cancel = CancellationToken::new();
    let long = LoadOptions { duration: Duration::from_secs(600), ..options(target, closed(2)) };
    let (windows, mut receiver) = mpsc::unbounded_channel();
    let (report, ()) = tokio::join!(run_load(long, windows, &cancel), async {
        receiver.recv().await;
        cancel.cancel();
    });
    assert!(report.stopped_early);
    assert!(report.self_check.invalid.contains(&Invalidity::NothingMeasured));
}

/// A target that hangs makes a load no longer than its duration and one answer.
#[tokio::test]
async fn an_open_load_ends_in_time_and_counts_what_it_could_not_send() {
    let hangs =
        |mut stream: TcpStream| async move { while let Ok(1..) = stream.read(&mut [0; 100]).await {} };
    let (target, _) = target(hangs).await;
    let arrivals = Arrivals::Open { rate: 100.0, spacing: Spacing::Constant, most: 2 };
    let within = Duration::from_millis(100);
    let report = run(LoadOptions { within, ..options(target, arrivals) }).await;
    assert_eq!(report.counts.requests, 30, "all that were due");
    assert!(report.counts.failed[&RequestFailure::NotSent] > 15, "{:?}", report.counts);
    assert!(report.measured_s < 5.0, "{}", report.measured_s);
}
