//! A cell as a process of its own: small, and it ends when it is told to.

use std::io::Write;
use std::process::{Child, Command, Stdio};

use bytes::Bytes;
use http::Request;
use tokio::net::TcpStream;

use crate::support::send;

/// Largest resident memory of an idle cell.
const MAXIMUM_RESIDENT: u64 = 8 << 20;
/// Largest part of it that no other cell shares.
const MAXIMUM_PRIVATE: u64 = 3 << 20;

/// Ends the process also when the test fails.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A spec as large as the ticketing sample: 42 services, each with several operations.
fn large_spec() -> String {
    let mut spec = "version: 1\nservices:\n".to_owned();
    for service in 0..42 {
        spec += &format!("  s{service}:\n    port: {}\n    operations:\n", 9000 + service);
        for operation in 0..6 {
            spec += &format!("      \"GET /o{operation}/{{id}}\":\n        steps:\n");
            for step in 0..12 {
                spec += &format!(
                    "          - call: {{ service: s{}, path: \"/o{operation}/{{path.id}}\", as: a{step}, timeout: 2s }}\n",
                    (service + step) % 42
                );
            }
        }
    }
    spec
}

async fn answers(address: &str) {
    while TcpStream::connect(address).await.is_err() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_process_is_small_and_ends_when_asked() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("spec.yaml");
    std::fs::File::create(&path).unwrap().write_all(large_spec().as_bytes()).unwrap();
    // Nobody else takes it in between: the port was just given to this process and ports are handed out in turn.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let child = Command::new(env!("CARGO_BIN_EXE_faultscope-cell"))
        .args([path.to_str().unwrap(), "s7", &port.to_string()])
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let mut process = Process(child);
    let address = format!("127.0.0.1:{port}");
    answers(&address).await;
    for _ in 0..50 {
        send(&address, Request::get("/health").body(Bytes::new()).unwrap()).await;
    }
    let shown = send(&address, Request::get("/_cell").body(Bytes::new()).unwrap()).await.body;
    let private = shown["private_memory"].as_u64().unwrap();
    assert!(private < MAXIMUM_PRIVATE, "{private} bytes");
    // Without optimisation the code alone takes more; it is mapped once for all cells.
    let resident = shown["resident_memory"].as_u64().unwrap();
    assert!(cfg!(debug_assertions) || resident < MAXIMUM_RESIDENT, "{resident} bytes");
    let pid = rustix::process::Pid::from_child(&process.0);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(process.0.wait().unwrap().success());
}
