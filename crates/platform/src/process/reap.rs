//! Ownership of what slots create, and removal of what a killed tool left behind.
//!
//! Every process, control group and folder of a slot names its owner: the tool's process id, when that
//! process started, and the namespace its id belongs to. What a living tool owns is never touched.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::mount::UnmountFlags;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::cgroup::{PREFIX, clear_groups};
use super::files;
use crate::Reaped;

/// The environment variable that names the owner.
pub(crate) const OWNER: &str = "FAULTSCOPE_OWNER";
/// How long a killed process may take to end.
const PATIENCE: Duration = Duration::from_secs(10);
/// How many times to look for processes of dead tools; more than one is needed only where they fork.
const MAX_ROUNDS: usize = 20;

/// The name of this process as an owner.
pub(crate) fn this_owner() -> String {
    let pid = std::process::id();
    format!("{pid}.{}.{}", started_at(pid).unwrap_or_default(), pid_namespace())
}

/// Creates the folder of a slot and writes its owner into it.
pub(crate) fn claim(folder: &Path) -> io::Result<()> {
    let owner = folder.join("owner");
    if let Ok(other) = fs::read_to_string(&owner) {
        if other != this_owner() && !is_dead(&other) {
            return Err(io::Error::other(format!("another faultscope process uses {}", folder.display())));
        }
        files::remove_tree(folder)?;
    }
    fs::create_dir_all(folder.join("lives"))?;
    fs::write(owner, this_owner())
}

/// Removes the folder of a slot; a background removal inside it may still be running.
pub(crate) fn remove_slot_folder(folder: &Path) -> io::Result<()> {
    for _ in 0..3 {
        if files::remove_tree(folder).is_ok() {
            return Ok(());
        }
    }
    files::remove_tree(folder)
}

/// Removes leftovers of dead tools: processes everywhere, groups below `bases`, folders below `states`.
///
/// Processes are found by their control group, by their environment, and as descendants of those: a service may have
/// changed its environment, and there may be no groups.
pub(crate) fn reap(bases: &[PathBuf], states: &BTreeSet<PathBuf>) -> Reaped {
    let mut reaped = Reaped::default();
    for base in bases {
        for entry in fs::read_dir(base).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let owner =
                name.strip_prefix(PREFIX).and_then(|rest| rest.split_once('-')).map(|(owner, _)| owner);
            if owner.is_some_and(is_dead) {
                let (processes, groups) = clear_groups(&entry.path());
                reaped.processes += processes;
                reaped.cgroups += groups;
            }
        }
    }
    for _ in 0..MAX_ROUNDS {
        let ended = end_processes();
        reaped.processes += ended;
        // Those that were forked meanwhile are found in the next round.
        if ended == 0 {
            break;
        }
    }
    for state in states {
        for entry in fs::read_dir(state.join("slots")).into_iter().flatten().flatten() {
            let folder = entry.path();
            if fs::read_to_string(folder.join("owner")).is_ok_and(|owner| is_dead(&owner)) {
                reaped.mounts += undo_mounts(&folder);
                reaped.folders += usize::from(files::remove_tree(&folder).is_ok());
            }
        }
    }
    reaped
}

/// Whether an owner is certainly dead. In doubt it counts as alive.
pub(crate) fn is_dead(owner: &str) -> bool {
    let mut parts = owner.trim().split('.');
    let (Some(pid), Some(start), Some(namespace)) = (parts.next(), parts.next(), parts.next()) else {
        return false;
    };
    let (Ok(pid), Ok(start)) = (pid.parse::<u32>(), start.parse::<u64>()) else {
        return false;
    };
    namespace == pid_namespace().to_string() && started_at(pid) != Some(start)
}

fn started_at(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // A zombie has ended, even if its parent has not waited for it.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    (state != "Z").then(|| fields.nth(18)?.parse().ok())?
}

fn pid_namespace() -> u64 {
    fs::metadata("/proc/self/ns/pid").map_or(0, |m| m.ino())
}

fn end_processes() -> usize {
    let mut ended = Vec::new();
    for pid in find_processes() {
        let Some(pid) = Pid::from_raw(pid) else { continue };
        let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else {
            continue;
        };
        if pidfd_send_signal(&process, Signal::KILL).is_ok() {
            ended.push(process);
        }
    }
    let patience = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
    for process in &ended {
        let mut polled = [PollFd::new(process, PollFlags::IN)];
        let _ = rustix::event::poll(&mut polled, Some(&patience));
    }
    ended.len()
}

/// Processes whose environment names a dead owner, and all their descendants; zombies are not among them.
fn find_processes() -> BTreeSet<i32> {
    let marker = format!("{OWNER}=");
    let mut open = Vec::new();
    let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse::<i32>().ok()) else {
            continue;
        };
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        // State and parent follow the name, which may contain anything.
        let mut fields = stat.rsplit_once(')').map(|(_, rest)| rest.split_whitespace()).into_iter().flatten();
        let (state, parent) = (fields.next(), fields.next().and_then(|parent| parent.parse().ok()));
        if state == Some("Z") {
            continue;
        }
        if let Some(parent) = parent {
            children.entry(parent).or_default().push(pid);
        }
        let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
        let mut variables = environment.split(|b| *b == 0).filter_map(|v| std::str::from_utf8(v).ok());
        if variables.find_map(|v| v.strip_prefix(&marker)).is_some_and(is_dead) {
            open.push(pid);
        }
    }
    let mut found: BTreeSet<i32> = open.iter().copied().collect();
    while let Some(pid) = open.pop() {
        let below = children.get(&pid).into_iter().flatten().copied();
        open.extend(below.filter(|child| found.insert(*child)));
    }
    found
}

fn undo_mounts(folder: &Path) -> usize {
    let table = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let below = table
        .lines()
        .filter_map(|line| line.split(' ').nth(1))
        .filter(|path| Path::new(path).starts_with(folder));
    // In reverse order of mounting.
    let mut below: Vec<&str> = below.collect();
    below.reverse();
    below.iter().filter(|path| rustix::mount::unmount(**path, UnmountFlags::DETACH).is_ok()).count()
}
