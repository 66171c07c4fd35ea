//! Servers of others, started on the loopback and ended with the test.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use faultscope_testkit::{free_port, wait_longer_until};

use crate::http::try_send;
use crate::{installed, source};

/// A program that runs until it is dropped.
pub(crate) struct Peer {
    child: Child,
    log: PathBuf,
    _folder: tempfile::TempDir,
    /// The address that is asked.
    pub(crate) url: String,
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!(
                "what {} printed:\n{}",
                self.url,
                std::fs::read_to_string(&self.log).unwrap_or_default()
            );
        }
    }
}

impl Peer {
    /// Starts a program and waits until a path of its address answers.
    #[track_caller]
    fn start(mut command: Command, port: u16, ready: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let output = File::create(&log).unwrap();
        let child = command
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(output.try_clone().unwrap())
            .stderr(output)
            .spawn()
            .unwrap_or_else(|e| panic!("cannot start {command:?}: {e}"));
        let mut peer = Self { child, log, _folder: folder, url: format!("http://127.0.0.1:{port}") };
        // Java takes its time where others work too.
        wait_longer_until(5, &format!("port {port} answers"), || {
            if let Some(status) = peer.child.try_wait().unwrap() {
                panic!("it ended with {status}:\n{}", std::fs::read_to_string(&peer.log).unwrap());
            }
            try_send(&peer.url, "GET", ready, &[], b"").is_ok_and(|answer| answer.status == 200)
        });
        peer
    }
}

/// Zipkin's own server, with its store in memory.
#[track_caller]
pub(crate) fn zipkin(tags: &str) -> Peer {
    let port = free_port();
    let mut command = Command::new("java");
    command.args(["-Xmx256m", "-XX:TieredStopAtLevel=1", "-jar"]).arg(installed("zipkin.jar"));
    command.arg("--armeria.ports[0].ip=127.0.0.1").arg(format!("--armeria.ports[0].port={port}"));
    command.args(["--armeria.ports[0].protocols[0]=http", "--logging.level.root=WARN"]);
    command.env("STORAGE_TYPE", "mem").env("AUTOCOMPLETE_KEYS", tags);
    Peer::start(command, port, "/health")
}

/// Jaeger with its store in memory, and where it takes OTLP over HTTP and gRPC.
#[track_caller]
pub(crate) fn jaeger() -> (Peer, String, String) {
    let mut ports = std::iter::repeat_with(|| format!("127.0.0.1:{}", free_port()));
    let (query, http, grpc) = (free_port(), ports.next().unwrap(), ports.next().unwrap());
    let mut command = Command::new(installed("jaeger/all-in-one"));
    command.env("SPAN_STORAGE_TYPE", "memory").arg("--log-level=warn");
    command.arg(format!("--query.http-server.host-port=127.0.0.1:{query}"));
    command.arg(format!("--collector.otlp.http.host-port={http}"));
    command.arg(format!("--collector.otlp.grpc.host-port={grpc}"));
    for other in ["query.grpc-server", "collector.grpc-server", "collector.http-server", "admin.http"] {
        command.arg(format!("--{other}.host-port={}", ports.next().unwrap()));
    }
    (Peer::start(command, query, "/api/services"), format!("http://{http}"), format!("grpc://{grpc}"))
}

/// A collector of OpenTelemetry's own messages that answers as it is told, over HTTP or gRPC.
#[track_caller]
pub(crate) fn collector(protocol: &str, answers: &str) -> (Peer, String) {
    let (port, control) = (free_port(), free_port());
    let mut command = Command::new(installed("python/bin/python"));
    command.arg(source("python/collector.py")).arg(protocol);
    command.args([port.to_string(), control.to_string()]).arg(answers);
    let scheme = if protocol == "grpc" { "grpc" } else { "http" };
    (Peer::start(command, control, "/"), format!("{scheme}://127.0.0.1:{port}"))
}
