//! Promises about what runs: starts, calls, ends, limits, tests.

use std::net::{IpAddr, Shutdown, TcpListener};
use std::time::Duration;

use faultscope_model::outcome::StartEnding;
use faultscope_model::plan::Reset;
use faultscope_model::{InstanceId, SlotId};
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_util::sync::CancellationToken;

use super::{Case, get};
use crate::{Action, LimitsBy, MeshPlace, PlatformErrorKind, PlatformEvent};

impl Case<'_> {
    pub(super) async fn runs_dials_and_logs(&self) {
        let plan = self.plan(
            vec![
                self.instance("order-1", 8080, &["say", "first line"]),
                self.instance("order-2", 8080, &[]),
                self.instance("stock-1", 8081, &[]),
            ],
            Reset::Restart,
        );
        let (reservation, _) = self.deploy(&plan).await;
        let callers: Vec<String> = reservation.callers.iter().map(|c| c.instance.to_string()).collect();
        assert_eq!(callers, ["order-1", "order-2", "stock-1", "test-1"]);
        for instance in &plan.instances {
            let port = instance.ports[0].port;
            assert_eq!(self.get(self.slot, &instance.id, port, "/health").await.expect("an answer"), "ok");
        }
        let log = self.platform.log(self.slot, &plan.instances[0].id).await.expect("a log");
        let lines: Vec<&str> = log.lines.iter().map(|line| line.text.as_str()).collect();
        assert_eq!((lines, log.dropped), (vec!["first line"], 0));
        let metrics = self.platform.metrics(self.slot).await.expect("metrics");
        assert_eq!(metrics.len(), 3);
        assert!(
            self.platform.dial(self.slot, &plan.instances[0].id, 1).await.is_err(),
            "no port, no connection"
        );
    }

    /// A call that a service makes by name arrives at the listener, and shows who made it.
    pub(super) async fn carries_calls_to_listeners(&self) {
        if self.platform.capabilities().mesh != MeshPlace::Local {
            return;
        }
        let mut front = self.instance("front-1", 8080, &[]);
        front.calls = vec!["back".parse().expect("a name")];
        front.env.insert("PEER".into(), "back:8080".into());
        let plan = self.plan(vec![front, self.instance("back-1", 8080, &[])], Reset::Restart);
        let (reservation, _) = self.deploy(&plan).await;
        let front: InstanceId = "front-1".parse().expect("an instance");
        let address = reservation.callers.iter().find(|c| c.instance == front).and_then(|c| c.address);
        let listener = reservation.listeners.into_iter().find(|l| {
            l.spec.callee.as_str() == "back" && l.spec.caller.as_ref().is_none_or(|caller| *caller == front)
        });
        let socket = listener.expect("a listener for back").socket;
        // Twice: a service that was away and came back is reached as before.
        for _ in 0..2 {
            self.check_refusal(&front, &socket).await;
            self.check_call(&front, address, socket.try_clone().expect("a listener")).await;
        }
    }

    /// Callers of a listener that does not listen are refused, and it keeps its port.
    async fn check_refusal(&self, front: &InstanceId, socket: &TcpListener) {
        let bound = socket.local_addr().expect("an address");
        let refusing = SockRef::from(socket);
        refusing.shutdown(Shutdown::Read).expect("a listener can stop");
        let _ = refusing.bind(&bound.into());
        // The service answers with an error that has what it met.
        let met =
            self.get(self.slot, front, 8080, "/peer/what").await.expect_err("no call arrives").to_string();
        assert!(met.contains("refused"), "{met}");
        refusing.listen(16).expect("a listener can begin again");
        assert_eq!(socket.local_addr().expect("an address"), bound, "the port is kept");
    }

    async fn check_call(&self, front: &InstanceId, address: Option<IpAddr>, socket: TcpListener) {
        let listener = tokio::net::TcpListener::from_std(socket).expect("a non-blocking listener");
        let serve = async {
            let (mut stream, peer) = listener.accept().await.expect("a call");
            if let Some(address) = address {
                assert_eq!(peer.ip(), address, "callers are known by their address");
            }
            let mut start = [0; 9];
            stream.read_exact(&mut start).await.expect("a request");
            assert_eq!(&start, b"GET /what");
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\nconnection: close\r\n\r\nmesh";
            stream.write_all(answer).await.expect("an answer is sent");
            // Closed only when the caller has read it: a reset would take the answer back.
            stream.shutdown().await.expect("the answer ends");
            let _ = stream.read_to_end(&mut Vec::new()).await;
        };
        let (answer, ()) = tokio::join!(self.get(self.slot, front, 8080, "/peer/what"), serve);
        assert_eq!(answer.expect("an answer"), "mesh");
    }

    pub(super) async fn says_why_a_service_died(&self) {
        let dying = self.instance("dying-1", 8080, &["say", "no configuration", "exit", "7"]);
        let kind = self.fails(&self.plan(vec![dying], Reset::Restart)).await;
        let PlatformErrorKind::NotReady { instance, ending, reason, last_lines } = kind else {
            panic!("{kind:?}")
        };
        assert_eq!((instance.to_string().as_str(), reason.as_str()), ("dying-1", "exited with 7"));
        assert_eq!(ending, StartEnding::Code(7));
        assert_eq!(last_lines, ["no configuration"]);

        let mut silent = self.instance("silent-1", 8080, &["say", "waiting"]);
        silent.ready.probe = faultscope_model::plan::Probe::Log { pattern: "^never$".into() };
        silent.ready.within = Duration::from_millis(1500);
        let kind = self.fails(&self.plan(vec![silent], Reset::Restart)).await;
        let PlatformErrorKind::NotReady { ending, reason, last_lines, .. } = kind else { panic!("{kind:?}") };
        assert_eq!(
            (ending, reason.as_str()),
            (StartEnding::Late, "not ready within 1.5s: no line matches ^never$")
        );
        assert_eq!(last_lines, ["waiting"]);

        let mut deaf = self.instance("deaf-1", 8080, &["say", "waiting"]);
        deaf.ready.probe = faultscope_model::plan::Probe::Tcp { port: 9 };
        deaf.ready.within = Duration::from_millis(1500);
        let kind = self.fails(&self.plan(vec![deaf], Reset::Restart)).await;
        let PlatformErrorKind::NotReady { reason, .. } = kind else { panic!("{kind:?}") };
        assert_eq!(reason, "not ready within 1.5s: port 9 refuses connections");

        let mut missing = self.instance("missing-1", 8080, &[]);
        missing.command = vec!["no-such-program-anywhere".into()];
        let kind = self.fails(&self.plan(vec![missing], Reset::Restart)).await;
        assert_eq!(kind, PlatformErrorKind::BadPlan, "a program that is not there is the plan's fault");
    }

    pub(super) async fn limits_memory(&self) {
        if self.platform.capabilities().limits == LimitsBy::Rlimit {
            return;
        }
        let mut hungry = self.instance("hungry-1", 8080, &["eat", "134217728"]);
        hungry.limits.memory = Some("32MiB".parse().expect("a size"));
        let kind = self.fails(&self.plan(vec![hungry], Reset::Restart)).await;
        let PlatformErrorKind::NotReady { ending, reason, .. } = kind else { panic!("{kind:?}") };
        assert_eq!(ending, StartEnding::OutOfMemory);
        assert_eq!(reason, "killed: out of memory (limit 32MiB)");
    }

    pub(super) async fn acts_on_instances(&self) {
        let plan = self.plan(vec![self.instance("order-1", 8080, &[])], Reset::Restart);
        self.deploy(&plan).await;
        let order = &plan.instances[0].id;
        if self.platform.capabilities().pause {
            self.platform.act(self.slot, order, Action::Pause).await.expect("it can be paused");
            let silent =
                tokio::time::timeout(Duration::from_millis(300), self.get(self.slot, order, 8080, "/health"));
            assert!(silent.await.is_err(), "a paused service says nothing");
            self.platform.act(self.slot, order, Action::Resume).await.expect("it can be resumed");
            assert_eq!(self.get(self.slot, order, 8080, "/health").await.expect("an answer"), "ok");
        }
        let mut events = self.platform.events(self.slot);
        self.platform.act(self.slot, order, Action::Kill).await.expect("it can be killed");
        assert!(self.get(self.slot, order, 8080, "/health").await.is_err(), "a killed service is down");
        self.platform.act(self.slot, order, Action::Restart).await.expect("it can be started again");
        assert_eq!(self.get(self.slot, order, 8080, "/health").await.expect("an answer"), "ok");
        let event = events.recv().await.expect("an event");
        assert_eq!(
            event,
            PlatformEvent::Ready { instance: order.clone() },
            "an end that was asked for is no event"
        );
    }

    pub(super) async fn bounds_tests(&self) {
        let never = CancellationToken::new();
        let exec = async |run: &crate::Execution, cancel: &CancellationToken| {
            self.platform.exec(self.slot, run, cancel).await
        };
        let exit = exec(&self.run(&["say", "hello", "exit", "3"]), &never).await.expect("a test runs");
        assert_eq!((exit.code, exit.stdout.as_str(), exit.timed_out), (Some(3), "hello\n", false));
        let flood =
            exec(&self.run(&["say", "begin", "flood", "10000000", "say", "end", "exit", "0"]), &never).await;
        let flood = flood.expect("a test runs");
        assert!(flood.stdout.starts_with("begin\n") && flood.stdout.ends_with("end\n"), "both ends are kept");
        assert!(flood.stdout.len() < 4096 + 100, "and no more than was asked for");
        let mut hanging = self.run(&["say", "started"]);
        hanging.within = Duration::from_millis(1500);
        let exit = exec(&hanging, &never).await.expect("a test runs");
        assert!(exit.timed_out && exit.stdout == "started\n", "{exit:?}");
        hanging.within = Duration::from_secs(30);
        let cancel = CancellationToken::new();
        cancel.cancel();
        let cancelled = exec(&hanging, &cancel).await.expect_err("a cancelled test has no outcome");
        assert_eq!(cancelled.kind, PlatformErrorKind::Cancelled);
    }

    /// Two slots with the same names and ports do not see each other.
    pub(super) async fn keeps_slots_apart(&self) {
        let other = SlotId(self.slot.0 + 1);
        self.platform.open_slot(&(self.application.slot)(other)).await.expect("a second slot opens");
        let mut order = self.instance("order-1", 8080, &[]);
        order.durable = vec!["data".into()];
        let plan = self.plan(vec![order], Reset::Restart);
        let order = &plan.instances[0].id;
        self.deploy(&plan).await;
        let cancel = CancellationToken::new();
        self.platform.reserve(other, &plan).await.expect("listeners can be reserved");
        self.platform.apply(other, &plan, &cancel).await.expect("the same plan runs twice");
        let here = self.get(self.slot, order, 8080, "/append/data/file").await;
        assert_eq!(here.expect("an answer"), "1");
        let stream = self.platform.dial(other, order, 8080).await.expect("the other one answers");
        assert_eq!(get(stream, "/size/data/file").await.expect("an answer"), "0", "data is not shared");
        self.platform.close_slot(other).await.expect("a slot closes");
        assert_eq!(self.get(self.slot, order, 8080, "/health").await.expect("the first one goes on"), "ok");
    }
}
