//! A tool that is killed takes its slots with it, and the next one clears away what it left on disk.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use faultscope_model::plan::{Probe, Reset};
use faultscope_platform::{Platform, ProcessOptions, ProcessPlatform, WantedIsolation};
use tokio::time::Instant;

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

/// A service and a test that leave their process groups, forget their environment, and fork while they are ended.
fn restless(mark: &str) -> String {
    format!(
        "(setsid sleep {mark} &); (setsid env -i /bin/sleep {mark} &); \
         (while :; do (setsid sleep {mark} &); sleep 0.05; done &); echo up; exec sleep {mark}"
    )
}

/// A generator of moments that a seed repeats.
struct Moments(u64);

impl Moments {
    fn below(&mut self, limit: u64) -> u64 {
        // Xorshift: good enough for moments, and the same everywhere.
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit.max(1)
    }
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Living processes of this machine whose command line has the word.
fn with_word(word: &str) -> usize {
    let alive = |folder: &Path| {
        let stat = fs::read_to_string(folder.join("stat")).unwrap_or_default();
        stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
    };
    let has_word = |folder: &Path| {
        let command = fs::read(folder.join("cmdline")).unwrap_or_default();
        command.split(|byte| *byte == 0).any(|w| w == word.as_bytes())
    };
    let folders = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    folders.filter(|folder| has_word(folder) && alive(folder)).count()
}

/// Control groups, mounts, folders and files in shared memory that a killed tool has left.
fn left_over(tool: u32, application: &Path) -> Vec<String> {
    let mut found = Vec::new();
    groups(Path::new("/sys/fs/cgroup"), &format!("faultscope-{tool}."), &mut found);
    let inside = application.display().to_string();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    found.extend(mounts.lines().filter(|line| line.contains(&inside)).map(ToOwned::to_owned));
    for folder in [application.join(".faultscope/slots"), "/dev/shm".into()] {
        let names = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
        let names = names.map(|path| path.display().to_string());
        found.extend(
            names.filter(|name| !name.starts_with("/dev/shm") || name.contains(&format!("-{tool}-"))),
        );
    }
    found
}

fn groups(folder: &Path, prefix: &str, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            if entry.file_name().to_string_lossy().starts_with(prefix) {
                found.push(entry.path().display().to_string());
            }
            groups(&entry.path(), prefix, found);
        }
    }
}

/// Kills tools at random moments, and at those at which they have just started another process. Nothing of any may
/// live on, and the next start removes their groups and folders. `FAULTSCOPE_TEST_KILLS=250` for a long run.
async fn kill_at_any_moment(isolation: WantedIsolation, mode: &str) {
    let (kills, seed) = (number("FAULTSCOPE_TEST_KILLS", 10), number("FAULTSCOPE_TEST_SEED", 20_261_118));
    let mut moments = Moments(seed);
    let app = App::new();
    let mark = format!("{}.375", 100_000 + app.number());
    let up = Probe::Log { pattern: "^up$".into() };
    let instances = ["order-1", "order-2", "stock-1"];
    let instances = instances.map(|name| shell(name, &restless(&mark), up.clone())).into();
    let file = app.path().join("plan.json");
    fs::write(&file, serde_json::to_vec(&plan(instances, Reset::Restart)).unwrap()).unwrap();
    let state = app.path().join(".faultscope");
    let options = ProcessOptions { isolation, program: program(), state: Some(state) };
    let platform = ProcessPlatform::new(options).unwrap();
    let mut until_ready = Duration::ZERO;
    for kill in 0..=kills {
        let label = format!("it-moment-{mark}-{kill}");
        let started = Instant::now();
        let mut command = Command::new(program());
        command.arg("tool").arg(app.path()).args([&label, mode]).arg(&file).arg(restless(&mark));
        let mut tool = Tool(command.stdout(Stdio::piped()).spawn().unwrap());
        let moment = match kill {
            // Shows how long a start takes here.
            0 => {
                let mut line = String::new();
                BufReader::new(tool.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
                assert_eq!(line, "ready\n");
                until_ready = started.elapsed();
                "when it is ready".to_owned()
            }
            _ if kill % 2 == 0 => {
                let after = moments.below(u64::try_from(until_ready.as_micros()).unwrap() * 5 / 4);
                // The moment itself is what is tested.
                tokio::time::sleep(Duration::from_micros(after)).await;
                format!("after {after} us")
            }
            _ => {
                let count = 1 + moments.below(10) as usize;
                let patience = started + 4 * until_ready;
                // The tool has the label as an argument, too.
                while with_word(&label) <= count && Instant::now() < patience {
                    tokio::task::yield_now().await;
                }
                format!("at {count} processes")
            }
        };
        let id = tool.0.id();
        drop(tool);
        let gone = async {
            while with_word(&mark) + with_word(&label) > 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let context = format!("kill {kill} of {kills} {moment}, seed {seed}");
        let is_gone = tokio::time::timeout(Duration::from_secs(20), gone).await.is_ok();
        assert!(is_gone, "{context}: {} and {} processes live", with_word(&mark), with_word(&label));
        platform.reap_orphans().await.unwrap();
        assert_eq!(left_over(id, app.path()), [] as [&str; 0], "{context}");
    }
}

/// One after the other: their services fork without end, which other tests would notice.
#[tokio::test(flavor = "multi_thread")]
async fn at_any_moment() {
    kill_at_any_moment(WantedIsolation::Netns, "netns").await;
    kill_at_any_moment(WantedIsolation::Ports, "ports").await;
}

/// What a tool without control groups, or an earlier version, left: found although only its parent names an owner.
#[tokio::test(flavor = "multi_thread")]
async fn descendants_that_forgot_their_owner_are_found() {
    let app = App::new();
    let mark = format!("{}.625", 100_000 + app.number());
    let dead = {
        let mut ended = Command::new("true").spawn().unwrap();
        ended.wait().unwrap();
        let namespace = std::os::unix::fs::MetadataExt::ino(&fs::metadata("/proc/self/ns/pid").unwrap());
        format!("{}.1.{namespace}", ended.id())
    };
    let script = format!("env -i sleep {mark} & wait");
    let mut command = Command::new("sh");
    let mut left = Tool(command.args(["-c", &script]).env("FAULTSCOPE_OWNER", dead).spawn().unwrap());
    until_processes(&mark, 1).await;
    let options = ProcessOptions { isolation: WantedIsolation::Ports, program: program(), state: None };
    let reaped = ProcessPlatform::new(options).unwrap().reap_orphans().await.unwrap();
    assert!(reaped.processes >= 2, "{reaped:?}");
    until_processes(&mark, 0).await;
    left.0.wait().unwrap();
}
