//! An application that is kept up for people: a true run that ends when they say so.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;

use faultscope_engine::testing::keep_up;
use faultscope_engine::{People, Published, PublishedPort, Session, TrialRequest};
use faultscope_model::event::Event;
use faultscope_model::{Run, ServiceName};
use faultscope_platform::loopback::{Ending, Instance};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::bed::{Bed, calls, close, request, wait_for};
use crate::greeter::{greeter, platform};

pub(crate) struct Up {
    pub(crate) session: Arc<Session>,
    pub(crate) opened: oneshot::Receiver<Vec<Published>>,
    pub(crate) until: CancellationToken,
    cancel: CancellationToken,
    pub(crate) running: JoinHandle<Option<Run>>,
}

/// Brings `front` up for people.
pub(crate) async fn up(bed: &Bed) -> Up {
    let session = bed.open().await;
    let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    socket.set_nonblocking(true).unwrap();
    let service: ServiceName = "front".parse().unwrap();
    let (tell, opened) = oneshot::channel();
    let (until, cancel) = (CancellationToken::new(), CancellationToken::new());
    let people =
        People::new(vec![PublishedPort { service, port: 8080, socket }], tell, until.clone()).unwrap();
    let asked = TrialRequest { drive: Arc::new(people), ..request(&session, &[]) };
    let running = tokio::spawn({
        let (session, cancel) = (session.clone(), cancel.clone());
        async move { keep_up(&session, asked, &cancel).await.unwrap() }
    });
    Up { session, opened, until, cancel, running }
}

pub(crate) async fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn what_people_do_is_a_run() {
    let bed = greeter("");
    let mut up = up(&bed).await;
    let mut events = up.session.events().subscribe();
    let published = (&mut up.opened).await.unwrap();
    let [front] = &published[..] else { panic!("{published:?}") };
    assert_eq!((front.service.as_str(), front.port), ("front", 8080));
    let answer = get(front.address, "/hello").await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with(r#"{"said":"hello world"}"#), "{answer}");
    assert_eq!(get(front.address, "/end").await, "");
    wait_for(&mut events, |event| matches!(event, Event::InstanceExited { .. })).await;
    assert!(!up.running.is_finished(), "people say when it ends");
    up.until.cancel();
    let run = up.running.await.unwrap().expect("a run");
    assert_eq!((run.outcome.word(), run.evidence.spans), ("pass", 3));
    assert!(run.started_us > 1_700_000_000_000_000, "{}", run.started_us);
    assert_eq!((run.cost.created, run.cost.deploy.is_zero(), run.cost.tests.is_zero()), (2, false, false));
    assert!(run.cost.total >= run.cost.deploy + run.cost.tests);
    let exits: Vec<_> =
        run.evidence.exits.iter().map(|exit| format!("{} {}", exit.instance, exit.reason)).collect();
    assert_eq!(exits, ["front-1 exited with 7"]);
    let spans = up.session.spans_of(run.trial).await.unwrap();
    assert_eq!(
        calls(&spans),
        [
            "user-1 -> front-1 GET /hello 200 root",
            "front-1 -> back-1 GET /word 200 propagated",
            "user-1 -> front-1 GET /end closed by callee root",
        ]
    );
    close(up.session).await;
    let stored =
        faultscope_engine::stored::runs(&bed.store().campaigns().unwrap()[0].reader().unwrap()).unwrap();
    assert_eq!(stored.len(), 1, "and it is stored");
}

#[tokio::test]
async fn cancelling_before_it_is_up_stores_no_run() {
    let file = "name: stuck\nservices: { front: { command: [front], ports: [8080] } }\n";
    let bed = Bed::new(file, platform().on_start("front", |_| std::future::pending()));
    let up = up(&bed).await;
    let mut events = up.session.events().subscribe();
    // It may have begun before anybody listened.
    if !bed.events().iter().any(|event| matches!(event, Event::TrialStarted { .. })) {
        wait_for(&mut events, |event| matches!(event, Event::TrialStarted { .. })).await;
    }
    up.cancel.cancel();
    assert!(up.running.await.unwrap().is_none());
    assert!(up.opened.await.is_err(), "nothing was ever open");
    close(up.session).await;
}

#[tokio::test]
async fn what_does_not_come_up_says_why() {
    let file = "name: broken\nservices: { front: { command: [front], ports: [8080] } }\n";
    let bed = Bed::new(
        file,
        platform().on_start("front", |instance: Instance| async move {
            instance.print("no database");
            Err(Ending::Exit(4))
        }),
    );
    let up = up(&bed).await;
    let run = up.running.await.unwrap().expect("a run");
    assert_eq!(run.outcome.word(), "unresolved");
    assert_eq!(run.evidence.logs.values().flatten().collect::<Vec<_>>(), ["no database"]);
    assert!(up.opened.await.is_err());
    close(up.session).await;
}
