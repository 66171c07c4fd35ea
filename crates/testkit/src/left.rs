//! Finds what a tool left behind: processes, control groups, mounts, folders.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

/// How often to check, and how long between; killed processes need a moment to end.
const LOOKS: u32 = 1200;
const BETWEEN: Duration = Duration::from_millis(25);

/// Everything on this machine that belongs to the tool with this process id, as text.
///
/// Every process of a slot names its owner in its environment, and so do control groups and folders.
pub fn left_over(tool: u32, folder: &Path) -> Vec<String> {
    let mut found = processes(tool);
    let prefix = format!("faultscope-{tool}.");
    groups(Path::new("/sys/fs/cgroup"), &prefix, 0, &mut found);
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let inside = folder.display().to_string();
    found.extend(mounts.lines().filter(|line| line.contains(&inside)).map(|line| format!("mount {line}")));
    for entry in fs::read_dir(folder.join(".faultscope/slots")).into_iter().flatten().flatten() {
        let owner = fs::read_to_string(entry.path().join("owner")).unwrap_or_default();
        if owner.starts_with(&format!("{tool}.")) {
            found.push(format!("folder {}", entry.path().display()));
        }
    }
    found
}

/// Waits until nothing of the tool is left; panics with what remains.
#[track_caller]
pub fn nothing_left(tool: u32, folder: &Path) {
    until(|| left_over(tool, folder));
}

/// Waits until no process of the tool is left: groups and folders of a killed tool stay until the next start.
#[track_caller]
pub fn no_process_left(tool: u32) {
    until(|| processes(tool));
}

/// Waits until a condition holds that no output shows.
#[track_caller]
pub fn wait_until(what: &str, true_now: impl FnMut() -> bool) {
    wait_longer_until(1, what, true_now);
}

/// As [`wait_until`], but more patient by a factor: for third-party programs that start slowly.
#[track_caller]
pub fn wait_longer_until(times: u32, what: &str, mut true_now: impl FnMut() -> bool) {
    for _ in 0..times * LOOKS {
        if true_now() {
            return;
        }
        thread::sleep(BETWEEN);
    }
    panic!("timed out waiting until {what}");
}

#[track_caller]
fn until(look: impl Fn() -> Vec<String>) {
    let mut left = look();
    for _ in 0..LOOKS {
        if left.is_empty() {
            return;
        }
        thread::sleep(BETWEEN);
        left = look();
    }
    panic!("left behind:\n{}", left.join("\n"));
}

fn processes(tool: u32) -> Vec<String> {
    let marker = format!("FAULTSCOPE_OWNER={tool}.");
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse::<u32>().ok()) else {
            continue;
        };
        // A process that is just ending has no environment any more.
        let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
        let mine = environment.split(|b| *b == 0).any(|v| v.starts_with(marker.as_bytes()));
        if mine && pid != tool {
            let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            found.push(format!("process {pid} {line}"));
        }
    }
    found
}

fn groups(folder: &Path, prefix: &str, depth: usize, found: &mut Vec<String>) {
    if depth > 6 {
        return;
    }
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if !entry.file_type().is_ok_and(|t| t.is_dir()) {
            continue;
        }
        if entry.file_name().to_string_lossy().starts_with(prefix) {
            found.push(format!("control group {}", entry.path().display()));
        } else {
            groups(&entry.path(), prefix, depth + 1, found);
        }
    }
}
