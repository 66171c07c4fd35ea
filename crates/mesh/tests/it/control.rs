//! Sidecars and their tool, over real streams.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use faultscope_mesh::control::{ControlAddress, SidecarListener, SidecarOptions, sidecar};
use faultscope_model::Protocol;
use faultscope_model::rule::{Effect, Occurrence, Selector};
use faultscope_model::series::GateOutcome;
use faultscope_model::wiring::ListenerSpec;
use futures_util::future::join_all;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::kit::{Heard, Known, OK, PORT, Raw, World, answering, callee, header, service, soon, world};

const TOKEN: &str = "only for us";

/// A sidecar beside one caller, with a listener for each callee.
pub(crate) struct Beside {
    pub(crate) addresses: Vec<SocketAddr>,
    sidecar: JoinHandle<()>,
    attached: JoinHandle<()>,
}

pub(crate) async fn beside(world: &World, caller: &str, callees: &[&str]) -> Beside {
    let control = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let instance = caller.parse().unwrap();
    let options = SidecarOptions {
        control: ControlAddress::Tcp(control.local_addr().unwrap()),
        instance,
        token: TOKEN.to_owned(),
    };
    let listener = |callee: &&str| SidecarListener {
        spec: ListenerSpec {
            callee: service(callee),
            port: PORT,
            protocol: Protocol::Http,
            caller: Some(caller.parse().unwrap()),
        },
        bind: "127.0.0.1:0".parse().unwrap(),
    };
    let listeners = callees.iter().map(listener).collect();
    let sidecar = tokio::spawn(async move { sidecar(options).await.unwrap() });
    let (stream, _) = control.accept().await.unwrap();
    let slot = world.slot.clone();
    let (bound, mut seen) = watch::channel(None);
    let attached = tokio::spawn(async move {
        let _ = slot.attach(stream, TOKEN, listeners, bound).await;
    });
    let addresses = soon(seen.wait_for(Option::is_some)).await.unwrap().clone().unwrap();
    Beside { addresses, sidecar, attached }
}

pub(crate) async fn get(address: SocketAddr, path: &str) -> String {
    Raw::new(TcpStream::connect(address).await.unwrap()).get(path).await.text
}

#[tokio::test]
async fn rules_are_counted_over_all_sidecars() {
    let (address, _) = answering(OK).await;
    let select = Selector { occurrence: Occurrence::Nth(2), ..Selector::default() };
    let effect = Effect::Abort { status: 503, grpc_status: None };
    let world = world().caller("web-2", 0).service("stock", &[address]).rule_for(select, effect).start();
    let first = beside(&world, "web-1", &["stock"]).await;
    let second = beside(&world, "web-2", &["stock"]).await;
    assert_eq!(get(first.addresses[0], "/1").await, OK);
    assert!(get(second.addresses[0], "/2").await.starts_with("HTTP/1.1 503"));
    assert_eq!(get(first.addresses[0], "/3").await, OK);
    let spans = world.spans(3).await;
    let callers: Vec<_> = spans.iter().map(|span| (span.caller.to_string(), span.rules.len())).collect();
    assert_eq!(callers, [("web-1".to_owned(), 0), ("web-2".to_owned(), 1), ("web-1".to_owned(), 0)]);
    assert!(world.slot.quiet(Duration::from_secs(5)).await);
    let reports = world.slot.reports();
    assert_eq!((reports.rules[0].matched, reports.rules[0].applied, reports.lost), (1, 1, 0));
    // A new trial reaches them too.
    let mut wiring = world.wiring.clone();
    wiring.rules.clear();
    world.slot.configure(wiring);
    for path in ["/4", "/5"] {
        assert_eq!(get(second.addresses[0], path).await, OK);
    }
}

/// A world where `order` has a sidecar of its own and makes two calls at once.
async fn paying() -> (World, Beside, Beside, Heard) {
    let known = Known::default();
    let (stock, heard) = answering(OK).await;
    let calls = known.clone();
    let order = callee(move |mut raw| {
        let calls = calls.clone();
        async move {
            while let Some(request) = raw.message().await {
                let context = header(&request, "traceparent").unwrap();
                join_all(["a", "b"].map(|callee| {
                    let (calls, context) = (calls.clone(), context.clone());
                    async move {
                        let mut raw = calls.connect("order-1", callee).await;
                        raw.ask(&format!(
                            "PUT /{callee} HTTP/1.1\r\nHost: x\r\ntraceparent: {context}\r\n\r\n"
                        ))
                        .await;
                    }
                }))
                .await;
                raw.send(OK).await;
            }
        }
    })
    .await;
    let world = world()
        .caller("order-1", 0)
        .service("order", &[order])
        .service("a", &[stock])
        .service("b", &[stock])
        .gate("order", "GET /pay", &["b PUT /b", "a PUT /a"], Duration::from_secs(5))
        .start();
    let web = beside(&world, "web-1", &["order"]).await;
    let inner = beside(&world, "order-1", &["a", "b"]).await;
    let way =
        |callee: &str, place: usize| (("order-1".to_owned(), callee.to_owned()), inner.addresses[place]);
    known.tell(BTreeMap::from([way("a", 0), way("b", 1)]));
    (world, web, inner, heard)
}

#[tokio::test]
async fn gates_span_sidecars() {
    let (world, web, _inner, heard) = paying().await;
    assert_eq!(get(web.addresses[0], "/pay").await, OK);
    world.spans(3).await;
    assert!(world.slot.quiet(Duration::from_secs(5)).await);
    let outcomes: Vec<_> = world.slot.reports().gates.into_iter().map(|report| report.outcome).collect();
    assert_eq!(outcomes, [GateOutcome::Completed]);
    let paths: Vec<_> = heard.requests().iter().map(|request| request[4..6].to_owned()).collect();
    assert_eq!(paths, ["/b", "/a"]);
}

#[tokio::test]
async fn a_sidecar_that_goes_makes_the_trial_invalid() {
    let (world, _web, inner, _) = paying().await;
    inner.sidecar.abort();
    soon(inner.attached).await.unwrap();
    let reports = world.slot.reports();
    assert_eq!(reports.lost, 1);
    assert_eq!(
        reports.gates.into_iter().map(|report| report.outcome).collect::<Vec<_>>(),
        [GateOutcome::ReportLost]
    );
}

#[tokio::test]
async fn strangers_are_refused() {
    let world = world().start();
    let (mut ours, theirs) = tokio::io::duplex(4096);
    let hello = "{\"hello\":{\"version\":1,\"instance\":\"web-1\",\"token\":\"guessed\"}}\n";
    tokio::io::AsyncWriteExt::write_all(&mut ours, hello.as_bytes()).await.unwrap();
    let (bound, _) = watch::channel(None);
    assert!(soon(world.slot.attach(theirs, TOKEN, Vec::new(), bound)).await.is_err());
    assert_eq!(world.slot.reports().lost, 0, "it was never part of the trial");
}
