//! Services that go away and come back.

use std::io::ErrorKind;

use faultscope_mesh::ArmedOutage;
use faultscope_model::wiring::OutageMode;
use faultscope_model::{CallError, Protocol};

use tokio::net::TcpStream;

use crate::control::beside;
use crate::kit::{OK, Raw, World, answering, callee, service, soon, world};

const MODES: [OutageMode; 3] = [OutageMode::Refuse, OutageMode::Reset, OutageMode::Hang];

/// Answers each line with itself.
async fn echo() -> std::net::SocketAddr {
    callee(|mut raw| async move {
        loop {
            let line = raw.read_to("\n").await;
            if !line.ends_with('\n') {
                return;
            }
            raw.send(&line).await;
        }
    })
    .await
}

fn away(world: &World, mode: Option<OutageMode>) {
    world.slot.set_outages(mode.map(|mode| (service("db"), mode)).into_iter().collect());
}

/// Makes `db` go away with its n-th call.
fn arm(world: &World, at_call: u32, mode: OutageMode) {
    world.slot.begin_counting(vec![ArmedOutage { service: service("db"), at_call, mode }]);
}

async fn is_answered(raw: &mut Raw<TcpStream>) -> bool {
    raw.send("ping\n").await;
    raw.read_to("ping\n").await == "ping\n"
}

async fn try_connect(world: &World, caller: &str) -> Result<Raw<TcpStream>, ErrorKind> {
    TcpStream::connect(world.address(caller, "db")).await.map(Raw::new).map_err(|error| error.kind())
}

/// Connects when that is possible again, which a listener that refused needs a moment for.
async fn connect_again(world: &World) -> Raw<TcpStream> {
    soon(async {
        loop {
            match try_connect(world, "web-1").await {
                Ok(raw) => return raw,
                Err(_) => tokio::task::yield_now().await,
            }
        }
    })
    .await
}

#[tokio::test]
async fn connections_end_and_new_ones_are_refused_until_it_is_back() {
    let world = world().service("db", &[echo().await]).protocol("db", Protocol::Redis).targets().start();
    // Twice, as a listener that has refused must be able to do so again.
    for _ in 0..2 {
        let mut old = connect_again(&world).await;
        assert!(is_answered(&mut old).await);
        assert_eq!(world.slot.called().len(), 1);
        away(&world, Some(OutageMode::Refuse));
        let cut = old.rest().await;
        assert_eq!((cut.text.as_str(), cut.error), ("", None), "closed, as by a process that ends");
        assert_eq!(try_connect(&world, "web-1").await.err(), Some(ErrorKind::ConnectionRefused));
        let lost: Vec<String> = world
            .slot
            .lost_connections()
            .iter()
            .map(|(caller, callee)| format!("{caller} {callee}"))
            .collect();
        assert_eq!(lost, ["web-1 db"]);
        away(&world, None);
        assert!(is_answered(&mut connect_again(&world).await).await, "it is back");
        assert!(world.slot.lost_connections().is_empty(), "it is connected again");
    }
    let spans = world.spans(2).await;
    assert_eq!(spans[0].error, Some(CallError::ServiceAway));
    assert!(world.slot.reports().unrefused.is_empty());
}

#[tokio::test]
async fn connections_are_reset_until_it_is_back() {
    let world = world().service("db", &[echo().await]).protocol("db", Protocol::Redis).targets().start();
    let mut old = world.connect("db").await;
    assert!(is_answered(&mut old).await);
    away(&world, Some(OutageMode::Reset));
    assert_eq!(old.rest().await.error, Some(ErrorKind::ConnectionReset));
    let mut new = world.connect("db").await;
    new.send("ping\n").await;
    let refused = new.rest().await;
    assert_eq!((refused.text.as_str(), refused.error), ("", Some(ErrorKind::ConnectionReset)));
    assert_eq!(world.spans(2).await[1].error, Some(CallError::ServiceAway));
    away(&world, None);
    assert!(is_answered(&mut world.connect("db").await).await, "it is back");
}

#[tokio::test]
async fn a_service_that_hangs_answers_when_it_is_over() {
    let world = world().service("db", &[echo().await]).protocol("db", Protocol::Tcp).targets().start();
    let mut old = world.connect("db").await;
    assert!(is_answered(&mut old).await);
    away(&world, Some(OutageMode::Hang));
    old.send("late\n").await;
    let mut answer = std::pin::pin!(old.read_to("late\n"));
    for _ in 0..100 {
        assert!(futures_util::poll!(answer.as_mut()).is_pending());
        tokio::task::yield_now().await;
    }
    away(&world, None);
    assert_eq!(answer.await, "late\n", "nothing was lost");
}

#[tokio::test]
async fn requests_meet_it_as_well() {
    let (address, _) = answering(OK).await;
    let world = world().service("db", &[address]).targets().start();
    let mut old = world.connect("db").await;
    assert_eq!(old.get("/a").await.text, OK);
    away(&world, Some(OutageMode::Refuse));
    assert_eq!(soon(old.rest()).await.text, "", "also a connection that waits for its next request");
    away(&world, None);
    assert_eq!(connect_again(&world).await.get("/a").await.text, OK);
    assert!(world.slot.lost_connections().is_empty(), "a client of HTTP connects when it has a request");
}

#[tokio::test]
async fn the_test_itself_is_spared() {
    let (address, _) = answering(OK).await;
    let world = world().caller("test-1", 0).service("db", &[address]).targets().start();
    for mode in MODES {
        away(&world, Some(mode));
        let mut by_listener = try_connect(&world, "test-1").await.unwrap();
        assert_eq!(by_listener.get("/a").await.text, OK, "{mode:?}");
        let mut within = Raw::new(world.slot.connect(&service("db"), crate::kit::PORT).unwrap());
        assert_eq!(within.get("/a").await.text, OK, "{mode:?}");
    }
}

#[tokio::test]
async fn hosts_outside_can_be_away() {
    let world = world().external("payments", "payments.example", false).protocol("payments", Protocol::Tcp);
    let world = world.targets().start();
    let outages = |mode: OutageMode| [(service("payments"), mode)].into_iter().collect();
    world.slot.set_outages(outages(OutageMode::Refuse));
    let address = world.address("web-1", "payments");
    soon(async {
        // Until its listener has heard of it.
        while TcpStream::connect(address).await.map_err(|error| error.kind()).err()
            != Some(ErrorKind::ConnectionRefused)
        {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn it_can_begin_with_a_request() {
    for mode in MODES {
        let (address, heard) = answering(OK).await;
        let world = world().service("db", &[address]).targets().start();
        arm(&world, 2, mode);
        let mut raw = world.connect("db").await;
        assert_eq!(raw.get("/1").await.text, OK);
        assert_eq!(world.slot.outage(&service("db")), None);
        raw.send("GET /2 HTTP/1.1\r\nHost: db\r\n\r\n").await;
        soon(world.slot.until_away(&service("db"))).await;
        assert_eq!(world.slot.outage(&service("db")), Some(mode));
        if mode == OutageMode::Hang {
            assert_eq!(heard.requests().len(), 1);
            world.slot.end_outage(&service("db"));
            assert_eq!(soon(raw.message()).await.unwrap(), OK, "the request is served when it is over");
        } else {
            let ended = raw.rest().await;
            let error = (mode == OutageMode::Reset).then_some(ErrorKind::ConnectionReset);
            assert_eq!((ended.text.as_str(), ended.error), ("", error));
            assert_eq!(heard.requests().len(), 1, "the second one never arrived");
            let spans = world.spans(2).await;
            assert_eq!(
                (spans[1].path.as_str(), spans[1].error.clone()),
                ("/2", Some(CallError::ServiceAway))
            );
        }
        if mode == OutageMode::Refuse {
            // Whoever was cut off finds nobody at once.
            assert_eq!(try_connect(&world, "web-1").await.err(), Some(ErrorKind::ConnectionRefused));
        }
        world.slot.end_outage(&service("db"));
        assert_eq!(connect_again(&world).await.get("/3").await.text, OK);
        assert_eq!(world.slot.stop_counting().into_iter().collect::<Vec<_>>(), [(service("db"), 3)]);
    }
}

#[tokio::test]
async fn it_can_begin_with_an_exchange_of_any_protocol() {
    for mode in MODES {
        let world = world().service("db", &[echo().await]).protocol("db", Protocol::Redis).targets().start();
        // A pool's connection is older than the test.
        let mut pooled = world.connect("db").await;
        assert!(is_answered(&mut pooled).await);
        arm(&world, 2, mode);
        // In two pieces, which are one call all the same.
        pooled.send("pi").await;
        pooled.send("ng\n").await;
        assert_eq!(pooled.read_to("ping\n").await, "ping\n");
        assert_eq!(world.slot.outage(&service("db")), None);
        pooled.send("again\n").await;
        soon(world.slot.until_away(&service("db"))).await;
        if mode == OutageMode::Hang {
            world.slot.end_outage(&service("db"));
            assert_eq!(pooled.read_to("again\n").await, "again\n");
            continue;
        }
        let ended = pooled.rest().await;
        let error = (mode == OutageMode::Reset).then_some(ErrorKind::ConnectionReset);
        assert_eq!((ended.text.as_str(), ended.error), ("", error));
        world.slot.end_outage(&service("db"));
        assert!(is_answered(&mut connect_again(&world).await).await);
    }
}

#[tokio::test]
async fn calls_of_the_test_do_not_count() {
    let (address, _) = answering(OK).await;
    let world = world().caller("test-1", 0).service("db", &[address]).targets().start();
    arm(&world, 1, OutageMode::Refuse);
    assert_eq!(try_connect(&world, "test-1").await.unwrap().get("/a").await.text, OK);
    assert_eq!(world.slot.outage(&service("db")), None);
    assert!(world.slot.stop_counting().is_empty());
    assert_eq!(world.connect("db").await.get("/a").await.text, OK, "it is no longer armed");
}

#[tokio::test]
async fn sidecars_count_and_refuse_as_well() {
    let (address, heard) = answering(OK).await;
    let world = world().caller("web-2", 0).service("db", &[address]).targets().start();
    let first = beside(&world, "web-1", &["db"]).await;
    let second = beside(&world, "web-2", &["db"]).await;
    arm(&world, 2, OutageMode::Refuse);
    let connect = async |address| TcpStream::connect(address).await.map(Raw::new);
    assert_eq!(connect(first.addresses[0]).await.unwrap().get("/1").await.text, OK);
    let mut raw = connect(second.addresses[0]).await.unwrap();
    assert_eq!(raw.get("/2").await.text, "", "the second call of all");
    assert_eq!(connect(second.addresses[0]).await.err().unwrap().kind(), ErrorKind::ConnectionRefused);
    assert_eq!(world.slot.outage(&service("db")), Some(OutageMode::Refuse));
    world.slot.end_outage(&service("db"));
    let answered = soon(async {
        loop {
            match connect(first.addresses[0]).await {
                Ok(mut raw) => {
                    let answered = raw.get("/3").await.text;
                    if !answered.is_empty() {
                        return answered;
                    }
                }
                Err(_) => tokio::task::yield_now().await,
            }
        }
    });
    assert_eq!(answered.await, OK);
    assert!(heard.requests().iter().all(|request| !request.starts_with("GET /2")));
}
