//! HTTP/1.1 as both sides see it.

use std::io::ErrorKind;
use std::time::Duration;

use faultscope_model::CallError;
use faultscope_model::span::{Parentage, Wire};
use faultscope_model::wiring::RecordLevel;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::kit::{OK, answering, callee, header, soon, world};

#[tokio::test]
async fn keeps_connections_and_tells_all_in_spans() {
    let (address, heard) = answering(OK).await;
    let world = world().service("stock", &[address]).start();
    let mut raw = world.connect("stock").await;
    assert_eq!(raw.get("/a?x=1").await.text, OK);
    let posted = raw.ask("POST /b HTTP/1.1\r\nHOST: stock:81\r\nContent-Length: 4\r\n\r\nbody").await;
    assert_eq!(posted.text, OK);
    assert_eq!(heard.connections(), 1);
    assert!(
        heard.requests()[1]
            .starts_with("POST /b HTTP/1.1\r\nHOST: stock:81\r\nContent-Length: 4\r\ntraceparent: 00-")
    );

    let spans = world.spans(2).await;
    let first = &spans[0];
    assert_eq!((first.caller.to_string(), first.callee.as_str()), ("web-1".to_owned(), "stock"));
    assert_eq!(first.callee_instance.as_ref().unwrap().to_string(), "stock-1");
    assert_eq!((first.wire, first.method.as_str(), first.path.as_str()), (Wire::Http1, "GET", "/a?x=1"));
    assert_eq!((first.status, first.request_bytes, first.response_bytes), (Some(200), 0, 2));
    assert_eq!((first.parentage, first.error.clone()), (Parentage::Root, None));
    assert!(first.first_byte_us.unwrap() <= first.duration_us);
    assert!(first.start_us + first.duration_us <= spans[1].start_us + 1);
    let payload = spans[1].payload.as_ref().unwrap();
    assert_eq!(
        (payload.request_body.as_slice(), payload.response_body.as_slice()),
        (&b"body"[..], &b"hi"[..])
    );
    assert_eq!(payload.request_headers[0], ("HOST".to_owned(), "stock:81".to_owned()));
    assert_eq!(payload.response_headers, [("Content-Length".to_owned(), "2".to_owned())]);
}

#[tokio::test]
async fn records_no_more_than_told() {
    let (address, _) = answering(OK).await;
    let world = world().service("stock", &[address]).record(RecordLevel::Timing).start();
    world.get("stock", "/").await;
    assert_eq!(world.spans(1).await[0].payload, None);
    let mut wiring = world.wiring.clone();
    wiring.record = RecordLevel::Bodies { most: 1 };
    world.slot.configure(wiring);
    world.get("stock", "/").await;
    assert_eq!(world.spans(2).await[1].payload.as_ref().unwrap().response_body, b"h");
}

#[tokio::test]
async fn answers_without_bodies() {
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n";
    for (method, answer) in [
        ("HEAD", head),
        ("GET", "HTTP/1.1 204 No Content\r\n\r\n"),
        ("GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n"),
    ] {
        let (address, _) = answering(answer).await;
        let world = world().service("stock", &[address]).start();
        let mut raw = world.connect("stock").await;
        for _ in 0..2 {
            raw.send(&format!("{method} / HTTP/1.1\r\nHost: a\r\n\r\n")).await;
            assert_eq!(raw.read_to("\r\n\r\n").await, answer);
        }
        assert!(world.spans(2).await.iter().all(|span| span.error.is_none() && span.response_bytes == 0));
    }
}

#[tokio::test]
async fn chunks_and_trailers_go_through_untouched() {
    let answer = "HTTP/1.1 200 OK\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n3;q=1\r\nabc\r\n0\r\nX-Sum: 6\r\n\r\n";
    let body = "2\r\nhi\r\n0\r\nX-Up: 1\r\n\r\n";
    let address = callee(move |mut raw| async move {
        let head = raw.read_to("\r\n\r\n").await;
        assert!(head.contains("Transfer-Encoding: chunked"));
        assert_eq!(raw.read_to("X-Up: 1\r\n\r\n").await, body);
        raw.send(answer).await;
        assert_eq!(raw.message().await, None, "closed with the caller");
    })
    .await;
    let world = world().service("stock", &[address]).start();
    let mut raw = world.connect("stock").await;
    raw.send(&format!("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{body}")).await;
    assert_eq!(raw.read_to("X-Sum: 6\r\n\r\n").await, answer);
    let span = &world.spans(1).await[0];
    assert_eq!((span.request_bytes, span.response_bytes), (2, 3));
}

#[tokio::test]
async fn interim_answers_come_before_the_body_is_asked_for() {
    let address = callee(|mut raw| async move {
        raw.read_to("\r\n\r\n").await;
        raw.send("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n").await;
        raw.read_to("body").await;
        raw.send(OK).await;
    })
    .await;
    let world = world().service("stock", &[address]).start();
    let mut raw = world.connect("stock").await;
    raw.send("PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n").await;
    assert_eq!(raw.read_to("\r\n\r\n").await, "HTTP/1.1 100 Continue\r\n\r\n");
    assert_eq!(raw.read_to("\r\n\r\n").await, "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n");
    raw.send("body").await;
    assert_eq!(raw.read_to("hi").await, OK);
}

#[tokio::test]
async fn interim_answers_without_end_end_the_call() {
    for head in [
        "HTTP/1.1 100 Continue\r\n\r\n".to_owned(),
        format!("HTTP/1.1 103 x\r\nA: {}\r\n\r\n", "x".repeat(4000)),
    ] {
        let address = callee(move |mut raw| {
            let head = head.clone();
            async move {
                raw.read_to("\r\n\r\n").await;
                // Until the mesh has had enough.
                while raw.stream.write_all(head.as_bytes()).await.is_ok() {}
            }
        })
        .await;
        let world = world().service("stock", &[address]).start();
        let mut raw = world.connect("stock").await;
        raw.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        let rest = raw.rest().await;
        assert!(rest.text.len() <= 64 * 1024, "{} bytes were passed on", rest.text.len());
        let span = &world.spans(1).await[0];
        assert_eq!((span.error.as_ref(), span.status), (Some(&CallError::EndlessInterimAnswers), None));
    }
}

#[tokio::test]
async fn a_close_of_the_callee_is_one_for_the_caller() {
    let address = callee(|mut raw| async move {
        raw.message().await;
        raw.send("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi").await;
    })
    .await;
    let world = world().service("stock", &[address]).start();
    let mut raw = world.connect("stock").await;
    let answered = raw.get("/").await;
    assert_eq!(header(&answered.text, "connection").as_deref(), Some("close"));
    let rest = raw.rest().await;
    assert_eq!((rest.text.as_str(), rest.error), ("", None));
}

#[tokio::test]
async fn an_answer_can_end_with_its_connection() {
    let address = callee(|mut raw| async move {
        raw.message().await;
        raw.send("HTTP/1.1 200 OK\r\n\r\nuntil the end").await;
    })
    .await;
    let world = world().service("stock", &[address]).start();
    let mut raw = world.connect("stock").await;
    raw.send("GET / HTTP/1.0\r\n\r\n").await;
    let rest = raw.rest().await;
    assert!(rest.text.ends_with("until the end") && rest.error.is_none());
    assert_eq!(world.spans(1).await[0].response_bytes, 13);
}

#[tokio::test]
async fn an_idle_close_is_mirrored() {
    let address = callee(|mut raw| async move {
        raw.message().await;
        raw.send(OK).await;
    })
    .await;
    let world = world().service("stock", &[address]).start();
    let mut raw = world.connect("stock").await;
    raw.get("/").await;
    let rest = raw.rest().await;
    assert_eq!((rest.text.as_str(), rest.error), ("", None));
}

#[tokio::test]
async fn a_refused_connection_is_a_reset() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let world = world().service("stock", &[free]).service("gone", &[free]).start();
    let answered = world.get("stock", "/").await;
    assert_eq!((answered.text.as_str(), answered.error), ("", Some(ErrorKind::ConnectionReset)));
    assert_eq!(world.spans(1).await[0].error, Some(CallError::ConnectRefused));
    // One that goes away during a trial is refused as soon as its listener knows.
    let mut endpoints = world.wiring.endpoints.clone();
    endpoints.insert(crate::kit::service("gone"), Vec::new());
    world.slot.set_endpoints(endpoints);
    let address = world.address("web-1", "gone");
    soon(async {
        while TcpStream::connect(address).await.map_err(|error| error.kind()).err()
            != Some(ErrorKind::ConnectionRefused)
        {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn resets_and_closes_stay_what_they_are() {
    let part = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhal";
    for (answer, reset, error) in [
        ("", true, CallError::ResetByCallee),
        (part, true, CallError::ResetByCallee),
        ("", false, CallError::ClosedByCallee),
        (part, false, CallError::ClosedByCallee),
    ] {
        let address = callee(move |mut raw| async move {
            raw.read_to("\r\n\r\n").await;
            raw.send(answer).await;
            // The caller has the first bytes when it asks for the end.
            raw.read_to("!").await;
            if reset {
                raw.reset();
            }
        })
        .await;
        let world = world().service("stock", &[address]).start();
        let mut raw = world.connect("stock").await;
        raw.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n").await;
        if !answer.is_empty() {
            raw.read_to("hal").await;
        }
        raw.send("!").await;
        let rest = raw.rest().await;
        assert_eq!(rest.error, reset.then_some(ErrorKind::ConnectionReset), "{answer:?} {reset}");
        assert_eq!(world.spans(1).await[0].error, Some(error));
    }
}

#[tokio::test]
async fn a_caller_that_goes_takes_the_callee_along() {
    let (ended, mut seen) = tokio::sync::mpsc::channel(1);
    let address = callee(move |mut raw| {
        let ended = ended.clone();
        async move {
            raw.message().await;
            ended.send("asked".to_owned()).await.unwrap();
            let rest = raw.rest().await;
            ended.send(format!("{:?}", rest.error)).await.unwrap();
        }
    })
    .await;
    let world = world().service("stock", &[address]).start();
    let mut raw = world.connect("stock").await;
    raw.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert_eq!(soon(seen.recv()).await.unwrap(), "asked");
    raw.reset();
    assert_eq!(soon(seen.recv()).await.unwrap(), "Some(ConnectionReset)");
    assert_eq!(world.spans(1).await[0].error, Some(CallError::CallerGone));
}

#[tokio::test]
async fn a_caller_that_closes_its_half_still_gets_its_answer() {
    let address = callee(|mut raw| async move {
        raw.message().await;
        let rest = raw.rest().await;
        assert_eq!(rest.error, None, "the half-close came through");
        raw.send(OK).await;
    })
    .await;
    let world = world().service("stock", &[address]).start();
    let mut raw = world.connect("stock").await;
    raw.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    raw.stream.shutdown().await.unwrap();
    assert_eq!(raw.rest().await.text, OK);
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let (address, heard) = answering(OK).await;
    let world = world().service("stock", &[address]).start();
    let mut raw = world.connect("stock").await;
    raw.send("GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n").await;
    raw.read_to("hi").await;
    raw.read_to("hi").await;
    let paths: Vec<_> = heard.requests().iter().map(|request| request[..6].to_owned()).collect();
    assert_eq!(paths, ["GET /1", "GET /2"]);
}

#[tokio::test]
async fn what_is_no_http_is_left_to_the_callee() {
    let address = callee(|mut raw| async move {
        raw.read_to("hello?\r\n").await;
        raw.send("HTTP/1.1 400 Bad Request\r\n\r\n").await;
    })
    .await;
    let world = world().service("stock", &[address]).start();
    let mut raw = world.connect("stock").await;
    raw.send("\x01\x02 hello?\r\n").await;
    assert!(raw.rest().await.text.starts_with("HTTP/1.1 400"));
    drop(raw);
    assert_eq!(world.spans(1).await[0].wire, Wire::Tcp);
}

#[tokio::test(start_paused = true)]
async fn a_half_sent_head_is_not_waited_for_forever() {
    let (address, heard) = answering(OK).await;
    let world = world().service("stock", &[address]).start();
    let mut raw = world.connect("stock").await;
    let began = tokio::time::Instant::now();
    raw.send("GET / HT").await;
    assert_eq!(raw.rest().await.error, Some(ErrorKind::ConnectionReset));
    assert!(began.elapsed() >= Duration::from_secs(30));
    assert_eq!(world.spans(1).await[0].error, Some(CallError::TimedOut));
    assert_eq!(heard.connections(), 0);
}

#[tokio::test]
async fn heads_are_bounded() {
    let (address, heard) = answering(OK).await;
    let world = world().service("stock", &[address]).start();
    for long in [format!("X-Long: {}\r\n", "x".repeat(70_000)), "X: y\r\n".repeat(200)] {
        let mut raw = world.connect("stock").await;
        let answered = raw.ask(&format!("GET / HTTP/1.1\r\n{long}\r\n")).await;
        assert_eq!((answered.text.as_str(), answered.error), ("", Some(ErrorKind::ConnectionReset)));
    }
    assert!(world.spans(2).await.iter().all(|span| span.error == Some(CallError::HeadTooLarge)));
    assert_eq!(heard.connections(), 0);
}

#[tokio::test]
async fn a_callee_that_does_not_read_stops_the_caller() {
    let (stopped, wait) = tokio::sync::oneshot::channel::<()>();
    let mut wait = Some(wait);
    let address = callee(move |mut raw| {
        let wait = wait.take().unwrap();
        async move {
            raw.read_to("\r\n\r\n").await;
            wait.await.unwrap();
            let mut taken = raw.input.len();
            let mut buffer = vec![0; 65_536];
            while taken < 200_000_000 {
                taken += raw.stream.read(&mut buffer).await.unwrap();
            }
            raw.send(OK).await;
        }
    })
    .await;
    let world = world().service("stock", &[address]).start();
    let mut raw = world.connect("stock").await;
    raw.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 200000000\r\n\r\n").await;
    let piece = vec![b'x'; 100_000];
    let mut sent = 0;
    // The sockets' own buffers take some megabytes; what the mesh adds is bounded.
    while let Ok(Ok(count)) = tokio::time::timeout(Duration::from_millis(300), raw.stream.write(&piece)).await
    {
        sent += count;
        assert!(sent < 40_000_000, "nothing held the caller back");
    }
    stopped.send(()).unwrap();
    while sent < 200_000_000 {
        let count = piece.len().min(200_000_000 - sent);
        sent += soon(raw.stream.write(&piece[..count])).await.unwrap();
    }
    raw.read_to("hi").await;
    assert_eq!(world.spans(1).await[0].request_bytes, 200_000_000);
}

#[tokio::test]
async fn upgraded_connections_become_tunnels() {
    let address = callee(|mut raw| async move {
        let request = raw.message().await.unwrap();
        assert_eq!(header(&request, "upgrade").as_deref(), Some("websocket"));
        raw.send(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nwelcome",
        )
        .await;
        let frame = raw.read_to("frame!").await;
        raw.send(&frame).await;
    })
    .await;
    let world = world().service("stock", &[address]).start();
    let mut raw = world.connect("stock").await;
    raw.send("GET /ws HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\r\n")
        .await;
    assert!(raw.read_to("welcome").await.starts_with("HTTP/1.1 101"));
    assert!(soon(world.slot.quiet(Duration::from_secs(5))).await, "a tunnel is no call in flight");
    raw.send("frame!").await;
    assert_eq!(raw.rest().await.text, "frame!");
    drop(raw);
    let span = &world.spans(1).await[0];
    assert_eq!((span.wire, span.status, span.path.as_str()), (Wire::WebSocket, Some(101), "/ws"));
    assert_eq!((span.request_bytes, span.response_bytes, &span.error), (6, 13, &None));
    let payload = span.payload.as_deref().unwrap();
    assert!(payload.request_body.is_empty() && payload.response_body.is_empty(), "{payload:?}");
}

#[tokio::test]
async fn connect_becomes_a_tunnel() {
    let address = callee(|mut raw| async move {
        raw.message().await;
        raw.send("HTTP/1.1 200 OK\r\n\r\n").await;
        raw.read_to("ping").await;
        raw.send("pong").await;
    })
    .await;
    let world = world().service("stock", &[address]).start();
    let mut raw = world.connect("stock").await;
    raw.send("CONNECT db:5432 HTTP/1.1\r\nHost: db:5432\r\n\r\nping").await;
    assert!(raw.rest().await.text.ends_with("pong"));
}

#[tokio::test]
async fn levels_are_those_of_service_and_operation() {
    let (order, _) = answering(OK).await;
    let (stock, _) = answering(OK).await;
    let world = world()
        .service("order", &[order])
        .service("stock", &[stock])
        .record(RecordLevel::Timing)
        .record_of("stock", Some("GET /health"), RecordLevel::Timing)
        .record_of("stock", None, RecordLevel::Bodies { most: 1 })
        .start();
    for (service, path) in [("order", "/a"), ("stock", "/health"), ("stock", "/a")] {
        world.get(service, path).await;
    }
    let bodies: Vec<_> = world
        .spans(3)
        .await
        .into_iter()
        .map(|span| span.payload.map(|payload| payload.response_body))
        .collect();
    assert_eq!(bodies, [None, None, Some(b"h".to_vec())]);
}

/// A step of a test that runs out of time drops its connection; the service that then gives up is not to blame.
#[tokio::test]
async fn a_callee_that_closes_because_its_caller_left_is_not_to_blame() {
    // Answers nothing, and closes when there is nobody any more.
    let address = callee(|mut raw| async move { while raw.message().await.is_some() {} }).await;
    let world = world().service("stock", &[address]).start();
    let mut raw = world.connect("stock").await;
    raw.send("GET /slow HTTP/1.1\r\nhost: stock\r\n\r\n").await;
    drop(raw);
    assert_eq!(world.spans(1).await[0].error, Some(CallError::CallerGone));
}
