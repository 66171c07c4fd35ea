//! Resource usage of processes and threads.

use std::time::Duration;

/// CPU time of a process, user and system, all threads.
pub(crate) fn cpu(pid: u32) -> Duration {
    let [user, system, ..] = ticks(pid);
    // Linux reports these in hundredths of a second on every architecture.
    Duration::from_millis((user + system) * 10)
}

/// CPU time in ticks of a process and its descendants, including those that have ended and were waited for.
pub(crate) fn tree_ticks(root: u32) -> u64 {
    let below = descendants(root).into_iter().map(|(pid, _)| pid);
    std::iter::once(root).chain(below).flat_map(ticks).sum()
}

/// CPU time in ticks of all processes but this one, its descendants and the threads of the kernel; none where the
/// processes of the machine are not to be seen, as in a container.
///
/// What the machine used less what this process and its descendants used would be more than that: the kernel discards
/// the times of processes that are killed with their namespace, as those of trials are.
pub(crate) fn others_ticks() -> Option<u64> {
    /// The parent of all threads of the kernel. They take apart namespaces and control groups of trials, and what they
    /// do for other processes shows in those.
    const KTHREADD: u32 = 2;
    let name = std::fs::read_to_string(format!("/proc/{KTHREADD}/comm")).unwrap_or_default();
    if name.trim_end() != "kthreadd" {
        return None;
    }
    let processes = processes();
    let mut excluded = below(&processes, std::process::id());
    excluded.extend(below(&processes, KTHREADD));
    let others = processes.iter().map(|process| process.pid).filter(|pid| !excluded.contains(pid));
    Some(others.flat_map(ticks).sum())
}

/// User and system time of a process, and of its ended children, in ticks.
fn ticks(pid: u32) -> [u64; 4] {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name may contain spaces and brackets; fields count from behind it.
    let fields: Vec<&str> =
        text.rsplit_once(')').map(|(_, rest)| rest.split_whitespace().collect()).unwrap_or_default();
    let at = |index: usize| fields.get(index).and_then(|f| f.parse::<u64>().ok()).unwrap_or_default();
    [at(11), at(12), at(13), at(14)]
}

/// CPU time of the current thread, which other work on the machine does not distort.
pub(crate) fn own_thread() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or_default())
}

/// CPU time of this process, all threads.
pub(crate) fn own_process() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or_default())
}

/// Resident memory of a process in bytes.
pub(crate) fn resident(pid: u32) -> u64 {
    status_kib(pid, "VmRSS:") * 1024
}

/// Memory of a process in bytes, shared pages counted proportionally.
pub(crate) fn proportional(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    field_kib(&text, "Pss:") * 1024
}

fn status_kib(pid: u32, name: &str) -> u64 {
    field_kib(&std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default(), name)
}

fn field_kib(text: &str, name: &str) -> u64 {
    let line = text.lines().find(|line| line.starts_with(name));
    line.and_then(|line| line.split_whitespace().nth(1)).and_then(|n| n.parse().ok()).unwrap_or_default()
}

/// All descendants of a process, with their command lines.
pub(crate) fn descendants(root: u32) -> Vec<(u32, String)> {
    let processes = processes();
    let found = below(&processes, root);
    let wanted = processes.iter().filter(|process| process.pid != root && found.contains(&process.pid));
    wanted.map(|process| (process.pid, command_line(process.pid))).collect()
}

/// A process and who started it.
struct Process {
    pid: u32,
    parent: u32,
}

fn processes() -> Vec<Process> {
    let mut processes = Vec::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let parent =
            stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1)?.parse::<u32>().ok());
        processes.push(Process { pid, parent: parent.unwrap_or_default() });
    }
    processes
}

/// A process and its descendants.
fn below(processes: &[Process], root: u32) -> Vec<u32> {
    let mut found = vec![root];
    let mut index = 0;
    while index < found.len() {
        let here = found[index];
        let children = processes.iter().filter(|process| process.parent == here && process.pid != here);
        found.extend(children.map(|process| process.pid));
        index += 1;
    }
    found
}

fn command_line(pid: u32) -> String {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).replace('\0', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_belongs_to_its_parent_and_not_to_others() {
        let processes = [(1, 0), (2, 0), (10, 1), (11, 10), (12, 11), (20, 1), (21, 2)]
            .map(|(pid, parent)| Process { pid, parent });
        let mut found = below(&processes, 10);
        found.sort_unstable();
        assert_eq!(found, [10, 11, 12]);
    }
}
