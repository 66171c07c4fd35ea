//! A tool that is killed takes its slots with it, and the next one clears away what it left on disk.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use faultscope_model::plan::{Probe, Reset};
use faultscope_platform::{Platform, ProcessOptions, ProcessPlatform, WantedIsolation};

use crate::support::{App, plan, processes, program, shell, until_processes};

/// Killed at the end, also at the end of a failing test.
struct Tool(Child);

impl Drop for Tool {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn check(isolation: WantedIsolation, mode: &str) {
    let app = App::new();
    let mark = format!("{}.125", 100_000 + app.number());
    let script = format!("(setsid sleep {mark} &) ; echo up; exec sleep {mark}");
    let wanted = plan(vec![shell("order-1", &script, Probe::Log { pattern: "^up$".into() })], Reset::Restart);
    let file = app.path().join("plan.json");
    fs::write(&file, serde_json::to_vec(&wanted).unwrap()).unwrap();
    let tool = Command::new(program())
        .arg("tool")
        .arg(app.path())
        .args([&format!("it-killed-{mark}"), mode])
        .arg(&file)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut tool = Tool(tool);
    let mut line = String::new();
    BufReader::new(tool.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    until_processes(&mark, 2).await;
    let state = app.path().join(".faultscope");
    let options = ProcessOptions { isolation, program: program(), state: Some(state.clone()) };
    let platform = ProcessPlatform::new(options).unwrap();
    platform.reap_orphans().await.unwrap();
    assert_eq!(processes(&mark), 2, "what a living tool has is not touched");
    drop(tool);
    let reaped = platform.reap_orphans().await.unwrap();
    assert_eq!((processes(&mark), reaped.folders), (0, 1), "{reaped:?}");
    assert!(fs::read_dir(state.join("slots")).unwrap().next().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn netns() {
    check(WantedIsolation::Netns, "netns").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ports() {
    check(WantedIsolation::Ports, "ports").await;
}
