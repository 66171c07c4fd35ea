//! Processes that are kept apart by ports only.

use std::collections::BTreeMap;

use faultscope_model::plan::{InstancePlan, Plan, Reset};
use faultscope_model::{InstanceId, SlotId};
use faultscope_platform::{Platform, ProcessPlatform, WantedIsolation};
use tokio_util::sync::CancellationToken;

use crate::support::{App, id, instance, plan, platform};

const SLOT: SlotId = SlotId(0);

/// The port on which each caller reaches `stock`, after the plan was applied.
async fn stock_ports(platform: &ProcessPlatform, plan: &Plan) -> BTreeMap<InstanceId, u16> {
    let reservation = platform.reserve(SLOT, plan).await.unwrap();
    platform.apply(SLOT, plan, &CancellationToken::new()).await.unwrap();
    let to_stock = reservation.listeners.iter().filter(|listener| listener.spec.callee.as_str() == "stock");
    let port = |socket: &std::net::TcpListener| socket.local_addr().unwrap().port();
    to_stock.map(|listener| (listener.spec.caller.clone().unwrap(), port(&listener.socket))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kept_instance_finds_others_where_it_was_told() {
    let (app, platform) = (App::new(), platform(WantedIsolation::Ports));
    platform.open_slot(&app.slot(0)).await.unwrap();
    let service = |name: &str, port: u16| {
        let mut command = instance(name, port, &[]).command;
        *command.last_mut().unwrap() = "${port}".into();
        let calls = vec!["stock".parse().unwrap()];
        InstancePlan { command, calls, ..instance(name, port, &[]) }
    };
    let mut wanted = plan(vec![service("order-1", 8080), service("stock-1", 8081)], Reset::Keep);
    wanted.instances[1].reset = Reset::Restart;
    let first = stock_ports(&platform, &wanted).await;
    let second = stock_ports(&platform, &wanted).await;
    assert_eq!(first[&id("order-1")], second[&id("order-1")], "it runs on, with the port in its environment");
    // An instance that starts anew is told anew, and its earlier listener is closed.
    wanted.instances[0].env.insert("MODE".into(), "other".into());
    let third = stock_ports(&platform, &wanted).await;
    let closed = std::net::TcpStream::connect(("127.0.0.1", first[&id("order-1")]));
    assert!(third[&id("order-1")] == first[&id("order-1")] || closed.is_err(), "{first:?} {third:?}");
    platform.close_slot(SLOT).await.unwrap();
}
