//! Services as closures: the contract, calls through a real mesh, and scripted trouble.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use faultscope_mesh::{Dialer, Hooks, Mesh, MeshSlot, Recorder, Restarter};
use faultscope_model::plan::{Plan, Probe, Reset};
use faultscope_model::span::{Span, Wire};
use faultscope_model::wiring::{RecordLevel, Wiring};
use faultscope_model::{InstanceId, RestartError, SlotId};
use faultscope_platform::contract::{ContractApp, contract};
use faultscope_platform::loopback::{Call, Ending, Instance, Loopback, Test};
use faultscope_platform::{Action, Platform, PlatformError, PlatformErrorKind, PlatformEvent};
use futures_util::future::BoxFuture;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::support::{id, instance, message, plan};

const SLOT: SlotId = SlotId(0);

/// The contract's service as a closure: what `contract::service_main` is as a process.
async fn obey(instance: Instance) -> Result<(), Ending> {
    for order in instance.plan().command[2..].chunks(2) {
        match (order[0].as_str(), order[1].as_str()) {
            ("say", text) => instance.print(text),
            ("exit", code) => return Err(Ending::Exit(code.parse().unwrap())),
            ("eat", bytes) => instance.allocate(bytes.parse().unwrap()).await,
            (order, _) => panic!("no such order: {order}"),
        }
    }
    Ok(())
}

async fn answer(call: Call) -> std::io::Result<String> {
    let file = |name: &str| {
        let is_durable = call.instance.plan().durable.iter().any(|d| name.starts_with(&format!("{d}/")));
        if is_durable { call.instance.durable() } else { call.instance.memory() }
    };
    let path = call.path().trim_start_matches('/');
    match path.split_once('/').unwrap_or((path, "")) {
        ("health", _) => Ok("ok".into()),
        ("append", name) => Ok(file(name).add(name, 1).to_string()),
        ("size", name) => Ok(file(name).get(name).unwrap_or_else(|| "0".into())),
        ("burn", millis) => {
            let until = Instant::now() + Duration::from_millis(millis.parse().unwrap());
            while Instant::now() < until {}
            Ok(String::new())
        }
        ("peer", path) => {
            let peer = call.instance.env("PEER").unwrap_or_default();
            let answer = call.client().get(&format!("http://{peer}/{path}")).await?;
            Ok(String::from_utf8_lossy(answer.body()).into_owned())
        }
        _ => Err(std::io::Error::other("no such path")),
    }
}

async fn run_orders(test: Test) -> i32 {
    for order in test.args()[1..].chunks(2) {
        match (order[0].as_str(), order[1].as_str()) {
            ("say", text) => test.print(text),
            ("exit", code) => return code.parse().unwrap(),
            ("flood", bytes) => {
                (0..bytes.parse::<usize>().unwrap() / 80).for_each(|_| test.print("x".repeat(79)));
            }
            (order, _) => panic!("no such order: {order}"),
        }
    }
    std::future::pending().await
}

#[tokio::test(flavor = "multi_thread")]
async fn keeps_the_contract() {
    let platform = Loopback::new()
        .service("contract", answer)
        .on_start("contract", obey)
        .program("contract", run_orders);
    let slot = Box::new(Loopback::slot_spec);
    contract(&platform, ContractApp { slot, service: vec!["contract".into()], image: None }).await;
}

/// A platform with a mesh between its instances.
struct Deployed {
    platform: Arc<Loopback>,
    mesh: MeshSlot,
    spans: Arc<Spans>,
    _mesh: Mesh,
}

#[derive(Default)]
struct Spans(Mutex<Vec<Span>>);

impl Recorder for Spans {
    fn record(&self, span: Span) {
        self.0.lock().unwrap().push(span);
    }
}

struct Owner(Arc<Loopback>);

impl Dialer for Owner {
    fn dial(
        &self,
        instance: &InstanceId,
        port: u16,
    ) -> BoxFuture<'static, std::io::Result<std::net::TcpStream>> {
        let (platform, instance) = (self.0.clone(), instance.clone());
        Box::pin(async move { platform.dial(SLOT, &instance, port).await?.into_std() })
    }
}

impl Restarter for Owner {
    fn restart(&self, instance: &InstanceId) -> BoxFuture<'static, Result<(), RestartError>> {
        let (platform, instance) = (self.0.clone(), instance.clone());
        let failed = |error| RestartError::Platform { message: message(&error) };
        Box::pin(async move { platform.act(SLOT, &instance, Action::Restart).await.map_err(failed) })
    }
}

impl Deployed {
    async fn new(platform: Loopback, plan: &Plan) -> Self {
        let platform = Arc::new(platform);
        platform.open_slot(&Loopback::slot_spec(SLOT)).await.unwrap();
        let reserved = platform.reserve(SLOT, plan).await.unwrap();
        let spans = Arc::new(Spans::default());
        let owner = Arc::new(Owner(platform.clone()));
        let mesh = Mesh::start_here().unwrap();
        let slot =
            mesh.open(SLOT, Hooks { dialer: owner.clone(), recorder: spans.clone(), restarter: owner });
        let mut endpoints = std::collections::BTreeMap::<_, Vec<_>>::new();
        for endpoint in reserved.endpoints {
            endpoints.entry(endpoint.instance.service.clone()).or_default().push(endpoint);
        }
        slot.configure(Wiring {
            slot: SLOT,
            seed: 1,
            campaign: 0,
            callers: reserved.callers,
            endpoints,
            balance: Default::default(),
            links: Vec::new(),
            rules: Vec::new(),
            targets: false,
            gates: Vec::new(),
            record: RecordLevel::default(),
            externals: Vec::new(),
            callers_by_context: false,
            record_rules: Vec::new(),
        });
        slot.listen_all(reserved.listeners.into_iter().map(|l| (l.spec, l.socket)));
        platform.apply(SLOT, plan, &CancellationToken::new()).await.unwrap();
        Self { platform, mesh: slot, spans, _mesh: mesh }
    }

    async fn exec(&self, command: &[&str]) -> faultscope_platform::Exit {
        let run = Loopback::execution(command);
        self.platform.exec(SLOT, &run, &CancellationToken::new()).await.unwrap()
    }
}

/// `front` calls `back`, which counts.
fn front_and_back() -> (Loopback, Plan) {
    let platform = Loopback::new()
        .service("front", |call: Call| async move {
            call.client().get(&format!("http://back:8080{}", call.path())).await
        })
        .service("back", |call: Call| async move {
            if call.path() == "/crash" {
                call.instance.exit(3).await
            }
            format!("{} {}", call.instance.memory().add("seen", 1), call.instance.durable().add("kept", 1))
        })
        .program("get", |test: Test| async move {
            let answer = test.client().get(&test.args()[0]).await?;
            test.print(String::from_utf8_lossy(answer.body()));
            Ok::<_, std::io::Error>(())
        });
    (platform, plan(vec![started("front-1", &["back"]), started("back-1", &[])], Reset::Restart))
}

fn started(name: &str, calls: &[&str]) -> faultscope_model::plan::InstancePlan {
    let mut instance = instance(name, 8080, &[]);
    instance.command = Vec::new();
    instance.calls = calls.iter().map(|callee| callee.parse().unwrap()).collect();
    instance.ready.probe = Probe::Started;
    instance
}

#[tokio::test]
async fn the_mesh_sees_who_calls_and_why() {
    let (platform, plan) = front_and_back();
    let deployed = Deployed::new(platform, &plan).await;
    assert_eq!(deployed.exec(&["get", "http://front:8080/a"]).await.stdout, "1 1\n");
    assert!(deployed.mesh.quiet(Duration::from_secs(10)).await);
    let mut spans = std::mem::take(&mut *deployed.spans.0.lock().unwrap());
    spans.sort_by_key(|span| span.start_us);
    let calls: Vec<_> =
        spans.iter().map(|s| (s.caller.to_string(), s.callee.to_string(), s.status)).collect();
    let call = |caller: &str, callee: &str| (caller.to_owned(), callee.to_owned(), Some(200));
    assert_eq!(calls, [call("test-1", "front"), call("front-1", "back")]);
    assert_eq!(spans[1].parent, Some(spans[0].id), "the context was handed on");
    let unknown = deployed.exec(&["get", "http://nobody:8080/"]).await;
    assert_eq!((unknown.code, unknown.stderr.as_str()), (Some(1), "test-1 has no route to nobody:8080\n"));
}

#[tokio::test]
async fn a_restart_keeps_durable_data_and_an_exit_is_an_event() {
    let (platform, plan) = front_and_back();
    let deployed = Deployed::new(platform, &plan).await;
    let mut events = deployed.platform.events(SLOT);
    deployed.exec(&["get", "http://front:8080/a"]).await;
    deployed.platform.act(SLOT, &id("back-1"), Action::Restart).await.unwrap();
    assert_eq!(events.recv().await, Ok(PlatformEvent::Ready { instance: id("back-1") }));
    assert_eq!(deployed.exec(&["get", "http://front:8080/a"]).await.stdout, "1 2\n");
    assert_eq!(deployed.exec(&["get", "http://front:8080/crash"]).await.code, Some(0), "front answers 502");
    let exited =
        PlatformEvent::Exited { instance: id("back-1"), code: Some(3), signal: None, out_of_memory: false };
    assert_eq!(events.recv().await, Ok(exited));
    deployed.platform.end(SLOT, &id("front-1"), Ending::OutOfMemory).unwrap();
    let killed =
        PlatformEvent::Exited { instance: id("front-1"), code: None, signal: Some(9), out_of_memory: true };
    assert_eq!(events.recv().await, Ok(killed));
    assert!(deployed.platform.metrics(SLOT).await.unwrap().is_empty(), "nothing runs any more");
}

#[tokio::test]
async fn connections_and_http2_pass_too() {
    let platform = Loopback::new()
        .tcp_service("echo", |_, mut stream| async move {
            let (mut read, mut write) = stream.split();
            let _ = tokio::io::copy(&mut read, &mut write).await;
        })
        .service("web", |call: Call| async move { format!("{:?}", call.request.version()) })
        .program("both", |test: Test| async move {
            let mut stream = test.client().connect("echo", 8080).await?;
            stream.write_all(b"hello").await?;
            stream.shutdown().await?;
            let mut text = String::new();
            stream.read_to_string(&mut text).await?;
            test.print(text);
            let request = http::Request::builder().version(http::Version::HTTP_2).uri("http://web:8080/");
            let answer = test.client().send(request.body(Default::default()).unwrap()).await?;
            test.print(String::from_utf8_lossy(answer.body()));
            Ok::<_, std::io::Error>(())
        });
    let mut echo = started("echo-1", &[]);
    echo.ports[0].protocol = faultscope_model::Protocol::Tcp;
    let plan = plan(vec![echo, started("web-1", &[])], Reset::Restart);
    let deployed = Deployed::new(platform, &plan).await;
    let exit = deployed.exec(&["both"]).await;
    assert_eq!((exit.stdout.as_str(), exit.code), ("hello\nHTTP/2.0\n", Some(0)), "{}", exit.stderr);
    assert!(deployed.mesh.quiet(Duration::from_secs(10)).await);
    let spans = deployed.spans.0.lock().unwrap();
    assert!(spans.iter().any(|span| span.wire == Wire::Http2 && span.status == Some(200)), "{spans:?}");
}

#[tokio::test(start_paused = true)]
async fn starts_take_their_time_or_fail() {
    let platform = ["slow", "stuck", "hungry"].into_iter().fold(Loopback::new(), |platform, name| {
        platform.service(name, |_| async { "" }).on_start(name, move |instance: Instance| async move {
            match name {
                "slow" => tokio::time::sleep(Duration::from_secs(5)).await,
                "stuck" => std::future::pending().await,
                _ => instance.allocate(1 << 30).await,
            }
            instance.print("up");
            Ok(())
        })
    });
    platform.open_slot(&Loopback::slot_spec(SLOT)).await.unwrap();
    let start = async |name: &str| {
        let mut instance = started(name, &[]);
        // No socket is waited for, so the paused clock tells the time.
        instance.ready.probe = Probe::Log { pattern: "^up$".into() };
        instance.ready.within = Duration::from_millis(7500);
        instance.limits.memory = Some("64MiB".parse().unwrap());
        platform.apply(SLOT, &plan(vec![instance], Reset::Restart), &CancellationToken::new()).await
    };
    assert_eq!(start("slow-1").await.unwrap().instances[0].ready_after, Duration::from_secs(5));
    let reason = |error: PlatformError| match error.kind {
        PlatformErrorKind::NotReady { reason, .. } => reason,
        kind => panic!("{kind:?}"),
    };
    let late = reason(start("stuck-1").await.unwrap_err());
    assert_eq!(late, "not ready within 7.5s: no line matches ^up$");
    let killed = reason(start("hungry-1").await.unwrap_err());
    assert_eq!(killed, "killed: out of memory (limit 64MiB)");
}

#[tokio::test]
async fn a_slot_has_one_user_at_a_time() {
    let (at_work, cleared) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (working, clearing) = (at_work.clone(), cleared.clone());
    let (platform, plan) = front_and_back();
    let platform = platform
        .program("hang", move |_| {
            working.notify_one();
            std::future::pending::<i32>()
        })
        .on_clear(move |_| {
            let clearing = clearing.clone();
            async move { clearing.notified().await }
        });
    let (platform, plan) = (Arc::new(platform), Arc::new(plan));
    let never = CancellationToken::new();
    platform.open_slot(&Loopback::slot_spec(SLOT)).await.unwrap();
    platform.reserve(SLOT, &plan).await.unwrap();
    platform.apply(SLOT, &plan, &never).await.unwrap();
    let first = tokio::spawn({
        let platform = platform.clone();
        async move { platform.exec(SLOT, &Loopback::execution(&["hang"]), &CancellationToken::new()).await }
    });
    at_work.notified().await;
    let refused = |error: &PlatformError, why: &str| {
        assert_eq!(error.kind, PlatformErrorKind::Infrastructure);
        assert!(message(error).ends_with(why), "{}", message(error));
    };
    refused(&platform.apply(SLOT, &plan, &never).await.unwrap_err(), "another trial still uses the slot");
    refused(&platform.reserve(SLOT, &plan).await.unwrap_err(), "another trial still uses the slot");
    let clear = tokio::spawn({
        let platform = platform.clone();
        async move { platform.clear_slot(SLOT).await }
    });
    refused(&first.await.unwrap().unwrap_err(), "the slot's agent is gone");
    // Until the slot is clear, nothing can begin in it.
    let run = Loopback::execution(&["get", "http://front:8080/"]);
    refused(&platform.exec(SLOT, &run, &never).await.unwrap_err(), "the slot's agent is gone");
    refused(&platform.apply(SLOT, &plan, &never).await.unwrap_err(), "the slot's agent is gone");
    cleared.notify_one();
    clear.await.unwrap().unwrap();
    platform.intact(SLOT).await.unwrap();
    platform.reserve(SLOT, &plan).await.unwrap();
    assert_eq!(platform.apply(SLOT, &plan, &never).await.unwrap().created, 2);

    platform.lose_agent(SLOT).unwrap();
    refused(&platform.intact(SLOT).await.unwrap_err(), "its agent is gone");
    refused(&platform.exec(SLOT, &run, &never).await.unwrap_err(), "the slot's agent is gone");
    let unknown = platform.exec(SLOT, &Loopback::execution(&["no-such"]), &never).await.unwrap_err();
    assert_eq!(unknown.kind, PlatformErrorKind::BadPlan);
}
