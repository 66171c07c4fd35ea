//! Process trees without a namespace: orphans are adopted by the root of the tree, which ends them all.

use std::collections::{HashMap, HashSet};
use std::fs;

use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper};

/// Asks the root of a tree to end the whole tree at once.
pub(super) const END: Signal = Signal::POWER;

/// Makes this process adopt the orphans among its descendants.
pub(super) fn adopt_orphans() -> rustix::io::Result<()> {
    set_child_subreaper(Some(getpid()))
}

/// Sends a signal to every descendant.
pub(super) fn signal_descendants(signal: Signal) {
    for pid in descendants() {
        let _ = kill_process(pid, signal);
    }
}

/// Ends every descendant and returns when none is left.
pub(super) fn end_descendants() {
    loop {
        signal_descendants(Signal::KILL);
        // Waits for one; those that were forked meanwhile are found in the next round.
        match rustix::process::wait(WaitOptions::empty()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return,
        }
    }
}

fn descendants() -> Vec<Pid> {
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse::<i32>().ok()) else {
            continue;
        };
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        // The name may contain anything, also brackets; state and parent follow the last bracket.
        let after = stat.rsplit_once(')').map(|(_, rest)| rest).unwrap_or_default();
        if let Some(parent) = after.split_whitespace().nth(1).and_then(|p| p.parse().ok()) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut found = HashSet::new();
    let mut open = vec![getpid().as_raw_nonzero().get()];
    while let Some(pid) = open.pop() {
        open.extend(children.get(&pid).into_iter().flatten().copied().filter(|child| found.insert(*child)));
    }
    found.into_iter().filter_map(Pid::from_raw).collect()
}
