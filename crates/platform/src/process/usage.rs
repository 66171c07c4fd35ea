//! Resource usage of instances: from their control groups, or from `/proc` where there are no groups.
//!
//! The network is left out. An instance has only a loopback interface, its own or the host's, and on
//! a loopback interface every byte is both sent and received; the mesh knows what it carried for whom.

use std::collections::HashMap;
use std::fs;
use std::sync::Arc;
use std::time::Duration;

use faultscope_model::metrics::{Metric, Sample, Values};

use super::cgroup::Group;
use super::life::Life;
use crate::now_us;

/// The kernel exposes times in hundredths of a second (USER_HZ) on all platforms we run on.
const TICKS_PER_SECOND: u64 = 100;

/// The usage of some processes; what cannot be read is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Usage {
    pub(crate) cpu: Option<Duration>,
    pub(crate) working_set: Option<u64>,
    pub(crate) resident: Option<u64>,
    pub(crate) processes: Option<u64>,
    pub(crate) threads: Option<u64>,
}

/// Measures instances of the slot with this label.
pub(super) fn measure(lives: &[Arc<Life>], label: &str) -> Vec<Sample> {
    // Read once for all instances, and only if some have no group.
    let table = lives.iter().any(|life| life.group.is_none()).then(|| Processes::read_table(Some(label)));
    let one = |life: &Arc<Life>| {
        let at_us = now_us();
        let by_table = || table.as_ref().map(|table| table.of_instance(&life.plan.id.to_string()));
        let usage = life.group.as_ref().map(Group::usage).or_else(by_table).unwrap_or_default();
        let limits = &life.plan.limits;
        let number = |value: Option<u64>| value.map(|value| value as f64);
        let values = Values::default()
            .with(Metric::CpuSeconds, usage.cpu.map(|cpu| cpu.as_secs_f64()))
            .with(Metric::CpuLimit, limits.cpu)
            .with(Metric::MemoryWorkingSet, number(usage.working_set))
            .with(Metric::MemoryResident, number(usage.resident))
            .with(Metric::MemoryLimit, number(limits.memory.map(|bytes| bytes.0)))
            .with(Metric::Processes, number(usage.processes))
            .with(Metric::Threads, number(usage.threads))
            .with(Metric::StartTime, Some(life.started_us as f64 / 1e6))
            .with(Metric::Restarts, Some(life.restarts.into()))
            .with(Metric::OutOfMemoryKills, number(life.group.as_ref().map(|_| life.all_kills())));
        Sample { instance: life.plan.id.clone(), at_us, values }
    };
    lives.iter().map(one).collect()
}

/// Whether all processes of an instance are stopped, in the slot with this label.
pub(super) fn is_stopped(instance: &str, label: &str) -> bool {
    let table = Processes::read_table(Some(label));
    table.inits.get(instance).is_none_or(|init| table.descendants(*init).iter().all(|p| p.is_still))
}

/// A snapshot of the process table.
#[derive(Debug, Default)]
struct Processes {
    children: HashMap<u32, Vec<Process>>,
    /// The inits of instances, by the name of the instance.
    inits: HashMap<String, Process>,
}

/// One process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Process {
    pid: u32,
    parent: u32,
    /// CPU ticks of its own.
    own: u64,
    /// CPU ticks of children that it has waited for.
    waited: u64,
    threads: u64,
    /// Whether it is stopped by a signal, or has ended.
    is_still: bool,
}

impl Processes {
    /// Reads the process table; with a label also finds the inits of that slot's instances.
    fn read_table(label: Option<&str>) -> Self {
        let mut table = Self::default();
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            // It has ended meanwhile.
            let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
            let Some(process) = read_stat(pid, &stat) else { continue };
            if let Some(label) = label
                && let Ok(command) = fs::read(entry.path().join("cmdline"))
                && let Some(name) = init_of(&command, label)
            {
                table.inits.insert(name, process);
            }
            table.children.entry(process.parent).or_default().push(process);
        }
        table
    }

    fn of_instance(&self, name: &str) -> Usage {
        self.inits.get(name).map(|init| self.below(*init)).unwrap_or_default()
    }

    fn descendants(&self, root: Process) -> Vec<Process> {
        let mut found: Vec<Process> = self.children.get(&root.pid).cloned().unwrap_or_default();
        let mut next = 0;
        while let Some(process) = found.get(next) {
            found.extend_from_slice(self.children.get(&process.pid).map_or(&[], Vec::as_slice));
            next += 1;
        }
        found
    }

    /// The usage of all descendants of a process, including those that have ended.
    fn below(&self, root: Process) -> Usage {
        let (mut ticks, mut threads, mut processes, mut resident) = (root.waited, 0, 0, 0);
        for process in self.descendants(root) {
            ticks += process.own + process.waited;
            threads += process.threads;
            processes += 1;
            resident += resident_bytes(process.pid);
        }
        Usage {
            cpu: Some(Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND)),
            // The working set is only known to a control group.
            working_set: None,
            resident: Some(resident),
            processes: Some(processes),
            threads: Some(threads),
        }
    }
}

/// Parses `/proc/<pid>/stat`. The name in brackets may contain anything, also brackets.
fn read_stat(pid: u32, text: &str) -> Option<Process> {
    let (_, rest) = text.rsplit_once(") ")?;
    // From the third field on: state, parent, ...
    let fields: Vec<&str> = rest.split(' ').collect();
    let number = |field: usize| fields.get(field - 3)?.trim().parse::<u64>().ok();
    Some(Process {
        pid,
        parent: u32::try_from(number(4)?).ok()?,
        own: number(14)? + number(15)?,
        waited: number(16)? + number(17)?,
        threads: number(20)?,
        is_still: fields.first().is_some_and(|state| matches!(*state, "T" | "t" | "Z" | "X")),
    })
}

/// The instance whose init has this command line, in the slot with this label.
fn init_of(command: &[u8], label: &str) -> Option<String> {
    let mut words = command.split(|byte| *byte == 0).map(String::from_utf8_lossy).skip(1);
    let is_init = words.next()? == "launch" && words.next()? == "instance" && words.next()? == label;
    is_init.then(|| words.next().map(std::borrow::Cow::into_owned)).flatten()
}

fn resident_bytes(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let kibibytes = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kibibytes.unwrap_or_default() << 10
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn reads_the_kernels_line() {
        let line = "7 (a) b (x)) S 3 7 7 0 -1 4194560 1 2 3 4 50 6 7 8 20 0 9 0 100 1 2 3";
        let process = Process { pid: 7, parent: 3, own: 56, waited: 15, threads: 9, is_still: false };
        assert_eq!(read_stat(7, line), Some(process));
        let stopped = Process { is_still: true, ..process };
        assert_eq!(read_stat(7, &line.replace(") S ", ") T ")), Some(stopped));
        for bad in ["", "7 (a", "7 (a) S", "7 (a) S x 7 7 0 -1 0 1 2 3 4 50 6 7 8 20 0 9"] {
            assert_eq!(read_stat(7, bad), None, "{bad}");
        }
    }

    #[test]
    fn knows_inits_by_their_command_line() {
        let command = b"faultscope\0launch\0instance\0label-0\0order-1\0";
        assert_eq!(init_of(command, "label-0"), Some("order-1".to_owned()));
        for (command, label) in [(&command[..], "other"), (b"sh\0-c\0x\0", "label-0"), (b"", "label-0")] {
            assert_eq!(init_of(command, label), None);
        }
    }

    #[test]
    fn sees_children_and_their_children() {
        // Something follows, so that the shell does not replace itself by its child.
        let mut shell = Command::new("sh")
            .args(["-c", "echo up; sleep 600; true"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut heard = [0; 3];
        std::io::Read::read_exact(shell.stdout.as_mut().unwrap(), &mut heard).unwrap();
        // It prints this just before it starts the other one.
        let table = std::iter::repeat_with(|| Processes::read_table(None))
            .find(|table| table.children.get(&shell.id()).is_some_and(|children| !children.is_empty()))
            .unwrap();
        let own = std::process::id();
        let root = Process { pid: own, parent: 1, own: 0, waited: 0, threads: 1, is_still: false };
        let shell_only = table.children[&own].iter().copied().filter(|c| c.pid == shell.id()).collect();
        let sleeper = table.children[&shell.id()][0].pid;
        let mut children = table.children;
        children.insert(own, shell_only);
        let used = Processes { children, inits: HashMap::new() }.below(root);
        rustix::process::kill_process(
            rustix::process::Pid::from_raw(sleeper.cast_signed()).unwrap(),
            rustix::process::Signal::KILL,
        )
        .unwrap();
        shell.wait().unwrap();
        assert_eq!((used.processes, used.threads), (Some(2), Some(2)));
        assert!(used.resident.is_some_and(|bytes| bytes > 0) && used.cpu.is_some());
    }
}
