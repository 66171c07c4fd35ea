//! Services that go away and come back.

use std::io::ErrorKind;

use faultscope_model::wiring::OutageMode;
use faultscope_model::{CallError, Protocol};

use tokio::net::TcpStream;

use crate::kit::{OK, Raw, World, callee, service, soon, world};

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

async fn is_answered(raw: &mut Raw<TcpStream>) -> bool {
    raw.send("ping\n").await;
    raw.read_to("ping\n").await == "ping\n"
}

#[tokio::test]
async fn connections_are_cut_and_new_ones_refused_until_it_is_back() {
    for mode in [OutageMode::Refuse, OutageMode::Reset] {
        let world = world().service("db", &[echo().await]).protocol("db", Protocol::Redis).targets().start();
        let mut old = world.connect("db").await;
        assert!(is_answered(&mut old).await);
        assert_eq!(world.slot.called().len(), 1);
        away(&world, Some(mode));
        let cut = soon(old.rest()).await;
        assert_eq!(cut.text, "");
        assert_eq!(cut.error.is_some(), mode == OutageMode::Reset, "{mode:?}: {:?}", cut.error);
        let mut new = world.connect("db").await;
        if mode == OutageMode::Reset {
            new.send("ping\n").await;
        }
        let refused = soon(new.rest()).await;
        assert_eq!(
            (refused.text.as_str(), refused.error),
            ("", Some(ErrorKind::ConnectionReset)),
            "{mode:?}"
        );
        let spans = world.spans(2).await;
        assert_eq!(spans[1].error, Some(CallError::DroppedByRule));
        away(&world, None);
        assert!(is_answered(&mut world.connect("db").await).await, "{mode:?}: it is back");
    }
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
    let address = callee(|mut raw| async move {
        while raw.message().await.is_some() {
            raw.send(OK).await;
        }
    });
    let world = world().service("db", &[address.await]).targets().start();
    let mut old = world.connect("db").await;
    assert_eq!(old.get("/a").await.text, OK);
    away(&world, Some(OutageMode::Refuse));
    assert_eq!(soon(old.rest()).await.text, "", "also a connection that waits for its next request");
    away(&world, None);
    assert_eq!(world.connect("db").await.get("/a").await.text, OK);
}
