//! Links between nodes.

use std::io::ErrorKind;
use std::time::Duration;

use faultscope_model::wiring::Balance;
use faultscope_model::{CallError, Protocol};
use tokio::time::Instant;

use crate::kit::{OK, answering, callee, world};

#[tokio::test(start_paused = true)]
async fn both_directions_take_their_time() {
    let (address, _) = answering(OK).await;
    let latency = Duration::from_secs(3);
    let world = world().service("stock", &[address, address]).link(latency, latency, 0.0).start();
    let mut took = Vec::new();
    for _ in 0..2 {
        let began = Instant::now();
        world.get("stock", "/").await;
        took.push(began.elapsed().as_secs());
    }
    assert_eq!(took[0], 0, "the same node");
    assert!((6..12).contains(&took[1]), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn connections_take_their_time_too() {
    let address = callee(|mut raw| async move {
        while let Ok(count) = tokio::io::AsyncReadExt::read_buf(&mut raw.stream, &mut raw.input).await {
            if count == 0 {
                break;
            }
            let heard = String::from_utf8(std::mem::take(&mut raw.input)).unwrap();
            raw.send(&heard).await;
        }
    })
    .await;
    let latency = Duration::from_secs(2);
    let world = world()
        .service("db", &[address, address])
        .balance("db", Balance::Pinned { ordinal: 2 })
        .protocol("db", Protocol::Redis)
        .link(latency, Duration::ZERO, 0.0)
        .start();
    let mut raw = world.connect("db").await;
    raw.send("a").await;
    raw.read_to("a").await;
    let began = Instant::now();
    raw.send("b").await;
    raw.read_to("b").await;
    assert_eq!(began.elapsed().as_secs(), 4, "there and back for each message");
}

#[tokio::test]
async fn losses_come_from_the_seed() {
    let (address, _) = answering(OK).await;
    let run = async |seed: u64| {
        let world = world()
            .service("stock", &[address, address])
            .balance("stock", Balance::Pinned { ordinal: 2 })
            .link(Duration::ZERO, Duration::ZERO, 0.5)
            .start();
        let mut wiring = world.wiring.clone();
        wiring.seed = seed;
        world.slot.configure(wiring);
        let mut lost = Vec::new();
        for _ in 0..16 {
            lost.push(world.get("stock", "/").await.error == Some(ErrorKind::ConnectionReset));
        }
        let spans = world.spans(16).await;
        let by_span: Vec<_> = spans.iter().map(|span| span.error == Some(CallError::LostOnLink)).collect();
        assert_eq!(lost, by_span);
        lost
    };
    let first = run(1).await;
    assert_eq!(first, run(1).await);
    assert_ne!(first, run(2).await);
    assert!(first.contains(&true) && first.contains(&false));
}
