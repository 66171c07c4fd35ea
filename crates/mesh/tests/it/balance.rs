//! Which instance gets a call.

use faultscope_model::wiring::Balance;
use tokio::net::TcpStream;

use crate::kit::{OK, Raw, World, answering, world};

async fn chosen(world: &World, callers: &[&str]) -> Vec<u32> {
    for caller in callers {
        let address = world.address(caller, "stock");
        Raw::new(TcpStream::connect(address).await.unwrap()).get("/").await;
    }
    let spans = world.spans(callers.len()).await;
    spans.iter().map(|span| span.callee_instance.as_ref().unwrap().ordinal).collect()
}

async fn three(balance: Balance) -> World {
    let (address, _) = answering(OK).await;
    world().caller("web-2", 0).service("stock", &[address; 3]).balance("stock", balance).start()
}

#[tokio::test]
async fn round_robin_goes_over_all_callers() {
    let world = three(Balance::RoundRobin).await;
    assert_eq!(chosen(&world, &["web-1", "web-2", "web-1", "web-2"]).await, [1, 2, 3, 1]);
}

#[tokio::test]
async fn pinned_and_sticky() {
    let world = three(Balance::Pinned { ordinal: 3 }).await;
    assert_eq!(chosen(&world, &["web-1", "web-2"]).await, [3, 3]);
    let world = three(Balance::StickyCaller).await;
    let of_callers = chosen(&world, &["web-1", "web-2", "web-1", "web-2"]).await;
    assert_eq!(of_callers[..2], of_callers[2..]);
    assert_ne!(of_callers[0], of_callers[1]);
}

#[tokio::test]
async fn one_connection_reaches_all_instances() {
    let (first, heard_first) = answering(OK).await;
    let (second, heard_second) = answering(OK).await;
    let world = world().service("stock", &[first, second]).start();
    let mut raw = world.connect("stock").await;
    for _ in 0..4 {
        assert_eq!(raw.get("/").await.text, OK);
    }
    for heard in [heard_first, heard_second] {
        assert_eq!((heard.connections(), heard.requests().len()), (1, 2), "and each connection is kept");
    }
}
