//! A slot as its owner sees it.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::time::Duration;

use faultscope_mesh::{Mesh, MeshOptions};
use faultscope_model::wiring::{Caller, Endpoint, ListenerSpec};
use faultscope_model::{CallError, NodeId, Protocol};

use crate::kit::{OK, PORT, Raw, answering, callee, service, soon, world};

#[tokio::test]
async fn the_test_calls_from_within() {
    let (address, _) = answering(OK).await;
    let world = world().service("stock", &[address]).start();
    let mut raw = Raw::new(world.slot.connect(&service("stock"), PORT).unwrap());
    assert_eq!(raw.get("/").await.text, OK);
    assert_eq!(raw.get("/").await.text, OK);
    let span = &world.spans(2).await[0];
    assert_eq!(span.caller.to_string(), "test-1");
    let calls: Vec<_> = world.slot.reports().calls.into_iter().collect();
    assert_eq!(calls, [((service("test"), service("stock")), 2)]);
    assert!(world.slot.reports().calls.is_empty(), "reports are taken");
}

#[tokio::test]
async fn endpoints_can_move() {
    let (old, _) = answering(OK).await;
    let (new, heard) = answering(OK).await;
    let world = world().service("stock", &[old]).start();
    let mut raw = world.connect("stock").await;
    raw.get("/").await;
    let endpoint = |address, instance: &str| Endpoint {
        instance: instance.parse().unwrap(),
        node: NodeId(0),
        addresses: BTreeMap::from([(PORT, address)]),
    };
    world.slot.set_endpoints(BTreeMap::from([(service("stock"), vec![endpoint(new, "stock-2")])]));
    assert_eq!(raw.get("/").await.text, OK);
    assert_eq!(heard.requests().len(), 1);
}

#[tokio::test]
async fn the_platform_dials_where_there_is_no_address() {
    let (address, _) = answering(OK).await;
    let world = world().service("stock", &[address]).start();
    let endpoint =
        Endpoint { instance: "stock-1".parse().unwrap(), node: NodeId(0), addresses: BTreeMap::new() };
    world.slot.set_endpoints(BTreeMap::from([(service("stock"), vec![endpoint.clone()])]));
    assert_eq!(world.get("stock", "/").await.error, Some(ErrorKind::ConnectionReset));
    assert_eq!(world.spans(1).await[0].error, Some(CallError::ConnectRefused));
    world.platform.reachable.lock().unwrap().insert(endpoint.instance, address);
    assert_eq!(world.get("stock", "/").await.text, OK);
}

#[tokio::test]
async fn callers_are_told_apart_by_address() {
    let (address, _) = answering(OK).await;
    let world = world().service("stock", &[address]).start();
    let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let shared = socket.local_addr().unwrap();
    let spec = ListenerSpec { callee: service("stock"), port: PORT, protocol: Protocol::Http, caller: None };
    world.slot.listen(spec, socket);
    let mut raw = Raw::new(tokio::net::TcpStream::connect(shared).await.unwrap());
    raw.get("/").await;
    let mut wiring = world.wiring.clone();
    let address = Some(IpAddr::from([127, 0, 0, 1]));
    wiring.callers.push(Caller { instance: "shop-3".parse().unwrap(), node: NodeId(2), address });
    world.slot.configure(wiring);
    raw.get("/").await;
    let callers: Vec<_> =
        world.spans(2).await.iter().map(|span| (span.caller.to_string(), span.caller_node.0)).collect();
    assert_eq!(callers, [("unknown-1".to_owned(), 0), ("shop-3".to_owned(), 2)]);
}

#[tokio::test]
async fn connections_can_be_dropped_at_once() {
    let (asked, mut asks) = tokio::sync::mpsc::channel(1);
    let address = callee(move |mut raw| {
        let asked = asked.clone();
        async move {
            raw.message().await;
            asked.send(()).await.unwrap();
            raw.rest().await;
        }
    })
    .await;
    let world = world().service("stock", &[address]).start();
    let mut raw = world.connect("stock").await;
    raw.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    soon(asks.recv()).await.unwrap();
    assert_eq!(world.slot.in_flight(), 1);
    assert!(!world.slot.quiet(Duration::from_millis(20)).await);
    world.slot.reset_connections().await;
    assert_eq!(world.slot.in_flight(), 0, "whoever waited for it finds everything recorded");
    assert_eq!(raw.rest().await.text, "");
    assert_eq!(world.spans(1).await[0].error, Some(CallError::ConnectionDropped));
    world.slot.close_listeners();
    tokio::task::yield_now().await;
}

#[tokio::test]
async fn hosts_outside_are_refused_or_reached() {
    let (address, _) = answering(OK).await;
    let world =
        world().external("payments", "payments.example", false).external("near", "localhost", true).start();
    assert_eq!(world.get("payments", "/").await.error, Some(ErrorKind::ConnectionReset));
    let span = &world.spans(1).await[0];
    assert_eq!((span.callee.as_str(), span.error.clone()), ("payments", Some(CallError::ExternalRefused)));
    let refused: Vec<_> = world.slot.reports().externals_refused.into_iter().collect();
    assert_eq!(refused, [(service("payments"), 1)]);
    // Reached under the host's own name and the port that callers mean.
    let mut raw = Raw::new(world.slot.connect(&service("near"), address.port()).unwrap());
    assert_eq!(raw.get("/").await.text, OK);
}

#[tokio::test]
async fn workers_have_threads_of_their_own() {
    let (address, _) = answering(OK).await;
    let here = world().service("stock", &[address]).start();
    let mesh = Mesh::start(MeshOptions { workers: 2 }).unwrap();
    let hooks = faultscope_mesh::Hooks {
        dialer: here.platform.clone(),
        recorder: here.spans.clone(),
        restarter: here.platform.clone(),
    };
    let slot = mesh.open(here.wiring.slot, hooks);
    slot.configure(here.wiring.clone());
    for _ in 0..4 {
        let mut raw = Raw::new(slot.connect(&service("stock"), PORT).unwrap());
        assert_eq!(raw.get("/").await.text, OK);
    }
    here.spans(4).await;
    let mut raw = Raw::new(slot.connect(&service("stock"), PORT).unwrap());
    mesh.shutdown();
    assert_eq!(raw.get("/").await.text, "", "nothing outlives the mesh");
}

#[tokio::test]
async fn a_service_without_instances_refuses() {
    let (address, _) = answering(OK).await;
    let world = world().service("stock", &[]).start();
    let listener = world.address("web-1", "stock");
    let refused = |error: std::io::Error| error.kind() == ErrorKind::ConnectionRefused;
    assert!(tokio::net::TcpStream::connect(listener).await.is_err_and(refused));
    assert!(world.slot.connect(&service("stock"), PORT).is_err_and(refused));
    let span = world.spans(1).await.remove(0);
    assert_eq!((span.caller.to_string().as_str(), span.error), ("test-1", Some(CallError::NoInstance)));

    // In the next trial the platform hands over the same socket, and the service is there.
    let mut wiring = world.wiring.clone();
    let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (again, shared) = (socket.try_clone().unwrap(), socket.try_clone().unwrap());
    let spec = || ListenerSpec {
        callee: service("stock"),
        port: PORT,
        protocol: Protocol::Http,
        caller: Some("web-1".parse().unwrap()),
    };
    let place = socket.local_addr().unwrap();
    world.slot.listen(spec(), socket);
    assert!(tokio::net::TcpStream::connect(place).await.is_err_and(refused));
    // A socket that is shut down twice gives its later connections an end at once.
    world.slot.configure(wiring.clone());
    world.slot.listen(spec(), again);
    assert!(tokio::net::TcpStream::connect(place).await.is_err_and(refused));
    assert!(world.slot.reports().unrefused.is_empty());
    let endpoint = Endpoint {
        instance: "stock-1".parse().unwrap(),
        node: NodeId(0),
        addresses: BTreeMap::from([(PORT, address)]),
    };
    wiring.endpoints.insert(service("stock"), vec![endpoint]);
    world.slot.configure(wiring);
    world.slot.listen(spec(), shared);
    for _ in 0..3 {
        let stream = tokio::net::TcpStream::connect(place).await.unwrap();
        assert_eq!(Raw::new(stream).get("/").await.text, OK);
    }
}

#[tokio::test]
async fn a_lack_of_descriptors_is_reported() {
    let (address, _) = answering(OK).await;
    let world = world().service("stock", &[address]).start();
    let instance: faultscope_model::InstanceId = "stock-1".parse().unwrap();
    world.platform.reachable.lock().unwrap().insert(instance.clone(), address);
    let endpoint = Endpoint { instance, node: NodeId(0), addresses: BTreeMap::new() };
    world.slot.set_endpoints(BTreeMap::from([(service("stock"), vec![endpoint])]));
    assert_eq!(world.get("stock", "/").await.text, OK);
    assert!(!world.slot.reports().exhausted);
    world.platform.is_full.store(true, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(world.get("stock", "/").await.error, Some(ErrorKind::ConnectionReset));
    world.spans(2).await;
    assert!(world.slot.reports().exhausted);
    assert!(!world.slot.reports().exhausted, "it is reported once");
}
