//! Time limits that do not depend on how busy the machine is.

use std::collections::HashMap;
use std::fs;
use std::time::Duration;

/// The interval between checks.
pub(crate) const LOOK: Duration = Duration::from_secs(1);
/// A program that ran, or waited to run, for less than this share of the time since the last check is idle. Timers
/// and samplers of a tool that hangs stay below it; whatever waits for its turn on a busy machine does not.
const IDLE_BELOW: f64 = 0.02;
/// No test takes this much CPU time: a program that does is in an endless loop.
const MAX_WORK: Duration = Duration::from_secs(1200);

/// Watches a program and its descendants. Only time in which none of them ran or waited for a processor counts.
#[derive(Debug)]
pub(crate) struct Patience {
    root: u32,
    within: Duration,
    idle: Duration,
    worked: Duration,
    /// By process: how long it ran, and how long it waited to run.
    seen: HashMap<u32, (Duration, Duration)>,
}

impl Patience {
    pub(crate) fn new(root: u32, within: Duration) -> Self {
        Self { root, within, idle: Duration::ZERO, worked: Duration::ZERO, seen: descendants(root) }
    }

    /// Starts again, after a sign of life.
    pub(crate) fn renew(&mut self) {
        self.idle = Duration::ZERO;
    }

    /// Checks the program after one more [`LOOK`]; the error says why it must be given up.
    pub(crate) fn look(&mut self) -> Result<(), String> {
        let now = descendants(self.root);
        let (mut worked, mut waited) = (Duration::ZERO, Duration::ZERO);
        for (pid, (ran, delayed)) in &now {
            let (ran_before, delayed_before) = self.seen.get(pid).copied().unwrap_or_default();
            worked += ran.saturating_sub(ran_before);
            waited += delayed.saturating_sub(delayed_before);
        }
        self.seen = now;
        self.worked += worked;
        if worked + waited < LOOK.mul_f64(IDLE_BELOW) {
            self.idle += LOOK;
        }
        if self.idle >= self.within {
            return Err(format!("was idle for {:?}", self.within));
        }
        if self.worked >= MAX_WORK {
            return Err(format!("worked for {MAX_WORK:?} of CPU time"));
        }
        Ok(())
    }
}

/// The CPU time and the waiting time of a process and its descendants.
fn descendants(root: u32) -> HashMap<u32, (Duration, Duration)> {
    let mut parents: HashMap<u32, u32> = HashMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        // It has ended meanwhile, or the line has no parent.
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let parent = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1)?.parse().ok());
        parents.extend(parent.map(|parent| (pid, parent)));
    }
    let is_below = |mut pid: u32| loop {
        if pid == root {
            return true;
        }
        match parents.get(&pid) {
            Some(parent) => pid = *parent,
            None => return false,
        }
    };
    parents.keys().copied().filter(|pid| is_below(*pid)).map(|pid| (pid, effort(pid))).collect()
}

/// How long the threads of a process ran, and how long they waited for a processor.
fn effort(pid: u32) -> (Duration, Duration) {
    let (mut ran, mut waited) = (0, 0);
    for thread in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
        let text = fs::read_to_string(thread.path().join("schedstat")).unwrap_or_default();
        let mut numbers = text.split_whitespace().map_while(|word| word.parse::<u64>().ok());
        ran += numbers.next().unwrap_or_default();
        waited += numbers.next().unwrap_or_default();
    }
    (Duration::from_nanos(ran), Duration::from_nanos(waited))
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use super::*;

    fn start(script: &str) -> Child {
        Command::new("sh").args(["-c", script]).spawn().unwrap()
    }

    fn end(mut child: Child) {
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn only_idle_time_counts() {
        let idle = start("exec sleep 600");
        let mut patience = Patience::new(idle.id(), LOOK);
        // Its start may still count.
        while patience.look().is_ok() {}
        assert_eq!(patience.look(), Err("was idle for 1s".to_owned()));
        patience.renew();
        end(idle);

        let busy = start("while :; do :; done");
        let mut patience = Patience::new(busy.id(), LOOK);
        let before = descendants(busy.id())[&busy.id()];
        let worked = |now: (Duration, Duration)| now.0 + now.1 - before.0 - before.1;
        while worked(descendants(busy.id())[&busy.id()]) < LOOK.mul_f64(IDLE_BELOW) {
            std::thread::yield_now();
        }
        assert_eq!(patience.look(), Ok(()));
        end(busy);
    }
}
