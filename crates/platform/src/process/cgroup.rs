//! Control groups, without a library: version 2 if it has the controllers, else version 1, else none.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use faultscope_model::plan::Limits;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::reap::this_owner;
use super::usage::Usage;
use crate::types::LimitsBy;

/// The prefix of all groups of the tool.
pub(crate) const PREFIX: &str = "faultscope-";
const V1: [&str; 5] = ["memory", "cpu", "cpuacct", "pids", "freezer"];
const PERIOD_MICROS: u64 = 100_000;
/// The subgroup of a slot for its agent, and for all that it starts outside of instances: tests, listers.
const AGENT: &str = "agent";
/// How often, and how many times, to check whether a group is empty: ten seconds in all.
const CLEAR_PAUSE: Duration = Duration::from_millis(10);
const CLEAR_TRIES: usize = 1000;

/// What enforces limits on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Limiter {
    by: LimitsBy,
    /// The folder of the tool's own group, by controller; one unnamed for version 2.
    bases: Vec<(String, PathBuf)>,
}

/// The group of one instance.
#[derive(Debug)]
pub(crate) struct Group {
    v2: bool,
    folders: Vec<(String, PathBuf)>,
}

impl Limiter {
    /// Determines by trying what is available; the notes say what is missing and why.
    pub(crate) fn find() -> (Self, Vec<String>) {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let mut notes = Vec::new();
        match version_2(&mounts, &own) {
            Ok(base) => {
                return (Self { by: LimitsBy::CgroupV2, bases: vec![(String::new(), base)] }, notes);
            }
            Err(reason) => notes.push(format!("no control groups of version 2: {reason}")),
        }
        let bases: Vec<_> =
            V1.iter().filter_map(|c| Some(((*c).to_owned(), version_1(&mounts, &own, c)?))).collect();
        if bases.iter().any(|(controller, _)| controller == "memory") {
            return (Self { by: LimitsBy::CgroupV1, bases }, Vec::new());
        }
        notes.push("memory is limited as address space, CPU and processes are not limited".into());
        (Self { by: LimitsBy::Rlimit, bases: Vec::new() }, notes)
    }

    /// What enforces the limits.
    pub(crate) fn by(&self) -> LimitsBy {
        self.by
    }

    /// Folders in which groups of the tool lie.
    pub(crate) fn bases(&self) -> impl Iterator<Item = &Path> {
        self.bases.iter().map(|(_, base)| base.as_path())
    }

    /// Creates the group of one instance; none where there are no groups.
    pub(crate) fn group(&self, label: &str, name: &str, limits: &Limits) -> io::Result<Option<Group>> {
        if self.bases.is_empty() {
            return Ok(None);
        }
        let v2 = self.by == LimitsBy::CgroupV2;
        let mut group = Group { v2, folders: Vec::new() };
        for (controller, base) in &self.bases {
            let slot = base.join(slot_group(label));
            make(&slot)?;
            if v2 {
                fs::write(slot.join("cgroup.subtree_control"), "+memory +cpu +pids")?;
            }
            let folder = slot.join(name);
            make(&folder)?;
            group.folders.push((controller.clone(), folder));
        }
        group.limit(limits)?;
        Ok(Some(group))
    }

    /// Creates the group that a slot's agent joins; returns the groups of the slot, one for each controller.
    pub(crate) fn agent_groups(&self, label: &str) -> io::Result<Vec<PathBuf>> {
        let folders: Vec<PathBuf> = self.bases().map(|base| base.join(slot_group(label))).collect();
        for folder in &folders {
            make(folder)?;
            make(&folder.join(AGENT))?;
        }
        Ok(folders)
    }

    /// Removes the empty groups of a slot; returns whether all are gone.
    pub(crate) fn remove_slot(&self, label: &str) -> bool {
        let folders: Vec<PathBuf> = self.bases().map(|base| base.join(slot_group(label))).collect();
        for folder in &folders {
            remove_groups(folder);
        }
        !folders.iter().any(|folder| folder.exists())
    }
}

impl Group {
    /// Files to which a process writes `0` to join.
    pub(crate) fn join_files(&self) -> Vec<PathBuf> {
        self.folders.iter().map(|(_, folder)| folder.join("cgroup.procs")).collect()
    }

    /// How many processes the kernel killed here because memory ran out.
    pub(crate) fn out_of_memory_kills(&self) -> u64 {
        let text = if self.v2 {
            self.read("memory", "memory.events")
        } else {
            self.read("memory", "memory.oom_control")
        };
        field(&text.unwrap_or_default(), "oom_kill")
    }

    /// Freezes or thaws all processes; returns whether that is possible.
    pub(crate) fn freeze(&self, frozen: bool) -> bool {
        let (file, value) = match (self.v2, frozen) {
            (true, true) => ("cgroup.freeze", "1"),
            (true, false) => ("cgroup.freeze", "0"),
            (false, true) => ("freezer.state", "FROZEN"),
            (false, false) => ("freezer.state", "THAWED"),
        };
        self.write("freezer", file, value).is_ok()
    }

    /// Whether all its processes are frozen by now: the kernel stops each one when it is next scheduled.
    pub(crate) fn is_frozen(&self) -> bool {
        match self.v2 {
            true => self.read("freezer", "cgroup.events").is_ok_and(|text| find(&text, "frozen") == Some(1)),
            false => self.read("freezer", "freezer.state").is_ok_and(|text| text.trim() == "FROZEN"),
        }
    }

    /// Its current resource usage. Counts leave out the init of the instance, which is ours.
    pub(crate) fn usage(&self) -> Usage {
        let stat = self.read("memory", "memory.stat").unwrap_or_default();
        let (cpu, charged, anonymous, mapped) = if self.v2 {
            let cpu = self.read("cpu", "cpu.stat").ok().and_then(|text| find(&text, "usage_usec"));
            (
                cpu.map(Duration::from_micros),
                self.number("memory", "memory.current"),
                find(&stat, "anon"),
                find(&stat, "file_mapped"),
            )
        } else {
            (
                self.number("cpuacct", "cpuacct.usage").map(Duration::from_nanos),
                self.number("memory", "memory.usage_in_bytes"),
                find(&stat, "rss"),
                find(&stat, "mapped_file"),
            )
        };
        // As Kubernetes counts: inactive file pages are reclaimed first when memory gets scarce.
        let idle = find(&stat, "inactive_file").unwrap_or_default();
        let processes = self.read("memory", "cgroup.procs").ok().map(|text| text.lines().count() as u64);
        let without_init = |n: u64| n.saturating_sub(1);
        Usage {
            cpu,
            working_set: charged.map(|bytes| bytes.saturating_sub(idle)),
            resident: anonymous.map(|bytes| bytes + mapped.unwrap_or_default()),
            processes: processes.map(without_init),
            threads: self.number("pids", "pids.current").map(without_init),
        }
    }

    /// Removes the group; false if it is still busy, as it is for a moment after the last process has ended.
    pub(crate) fn remove(&self) -> bool {
        let removed =
            self.folders.iter().filter(|(_, folder)| fs::remove_dir(folder).is_ok() || !folder.exists());
        removed.count() == self.folders.len()
    }

    fn limit(&self, limits: &Limits) -> io::Result<()> {
        if let Some(memory) = limits.memory {
            let bytes = memory.0.to_string();
            if self.v2 {
                self.write("memory", "memory.max", &bytes)?;
                let _ = self.write("memory", "memory.swap.max", "0");
            } else {
                self.write("memory", "memory.limit_in_bytes", &bytes)?;
                // Absent without swap accounting; then there is usually no swap either.
                let _ = self.write("memory", "memory.memsw.limit_in_bytes", &bytes);
            }
        }
        if let Some(cores) = limits.cpu {
            let quota = ((cores * PERIOD_MICROS as f64) as u64).max(1000);
            if self.v2 {
                self.write("cpu", "cpu.max", &format!("{quota} {PERIOD_MICROS}"))?;
            } else {
                self.write("cpu", "cpu.cfs_period_us", &PERIOD_MICROS.to_string())?;
                self.write("cpu", "cpu.cfs_quota_us", &quota.to_string())?;
            }
        }
        if let Some(pids) = limits.pids {
            // One more for the init.
            self.write("pids", "pids.max", &(u64::from(pids) + 1).to_string())?;
        }
        Ok(())
    }

    fn file(&self, controller: &str, name: &str) -> io::Result<PathBuf> {
        let found = self.folders.iter().find(|(c, _)| c.is_empty() || c == controller);
        let missing =
            || io::Error::new(io::ErrorKind::Unsupported, format!("no `{controller}` controller here"));
        found.map(|(_, folder)| folder.join(name)).ok_or_else(missing)
    }

    fn read(&self, controller: &str, name: &str) -> io::Result<String> {
        fs::read_to_string(self.file(controller, name)?)
    }

    fn number(&self, controller: &str, name: &str) -> Option<u64> {
        self.read(controller, name).ok()?.trim().parse().ok()
    }

    fn write(&self, controller: &str, name: &str, value: &str) -> io::Result<()> {
        let path = self.file(controller, name)?;
        fs::write(&path, value)
            .map_err(|e| io::Error::new(e.kind(), format!("cannot write {value} to {}: {e}", path.display())))
    }
}

/// The group of a slot names its owner, so that those of dead owners can be recognized.
fn slot_group(label: &str) -> String {
    format!("{PREFIX}{}-{label}", this_owner())
}

/// Moves this process into the agent's group of a slot.
pub(crate) fn join_as_agent(slot: &Path) -> io::Result<()> {
    fs::write(slot.join(AGENT).join("cgroup.procs"), "0")
}

/// Lets all processes of a group and its subgroups go on: frozen ones do not die.
pub(crate) fn thaw(folder: &Path) {
    for group in with_subgroups(folder) {
        let _ = write_existing(&group.join("cgroup.freeze"), "0");
        let _ = write_existing(&group.join("freezer.state"), "THAWED");
    }
}

/// Ends all processes of a group and its subgroups and removes the groups; returns how many of each.
pub(crate) fn clear_groups(folder: &Path) -> (usize, usize) {
    thaw(folder);
    let (mut processes, mut groups) = (0, 0);
    for _ in 0..CLEAR_TRIES {
        // One write kills even what forks meanwhile, where the kernel has it (5.14, version 2).
        let _ = write_existing(&folder.join("cgroup.kill"), "1");
        for pid in with_subgroups(folder).iter().flat_map(|group| members(group)) {
            processes += usize::from(kill_member(pid, folder));
        }
        groups += remove_groups(folder);
        if !folder.exists() {
            break;
        }
        std::thread::sleep(CLEAR_PAUSE);
    }
    (processes, groups)
}

fn with_subgroups(folder: &Path) -> Vec<PathBuf> {
    let mut found = vec![folder.to_owned()];
    let mut next = 0;
    while let Some(group) = found.get(next) {
        let entries = fs::read_dir(group).into_iter().flatten().flatten();
        let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        let mut below: Vec<PathBuf> = folders.map(|entry| entry.path()).collect();
        found.append(&mut below);
        next += 1;
    }
    found
}

fn members(group: &Path) -> Vec<i32> {
    let text = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

/// Kills a process if it is still in the group: its number may belong to somebody else by now.
fn kill_member(pid: i32, folder: &Path) -> bool {
    let Some(process) = Pid::from_raw(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()) else {
        return false;
    };
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    let is_member = fs::read_to_string(format!("/proc/{pid}/cgroup"))
        .is_ok_and(|groups| groups.lines().any(|line| line.contains(&format!("/{name}"))));
    is_member && pidfd_send_signal(&process, Signal::KILL).is_ok()
}

fn write_existing(file: &Path, value: &str) -> io::Result<()> {
    io::Write::write_all(&mut File::options().write(true).open(file)?, value.as_bytes())
}

/// Removes a group and its subgroups; returns how many were removed.
pub(crate) fn remove_groups(folder: &Path) -> usize {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let folders = entries.filter(|e| e.file_type().is_ok_and(|t| t.is_dir()));
    let inner: usize = folders.map(|e| remove_groups(&e.path())).sum();
    inner + usize::from(fs::remove_dir(folder).is_ok())
}

fn make(folder: &Path) -> io::Result<()> {
    match fs::create_dir(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(io::Error::new(
            error.kind(),
            format!("cannot make the control group {}: {error}", folder.display()),
        )),
        _ => Ok(()),
    }
}

fn version_1(mounts: &str, own: &str, controller: &str) -> Option<PathBuf> {
    let mount = mounts.lines().find_map(|line| {
        let mut words = line.split(' ');
        let (_, path, kind, options) = (words.next()?, words.next()?, words.next()?, words.next()?);
        (kind == "cgroup" && options.split(',').any(|o| o == controller)).then_some(path)
    })?;
    let path = own.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        parts.next()?.split(',').any(|c| c == controller).then_some(parts.next()?)
    })?;
    // A container may show the path of its group outside; then the mount itself is the group.
    [Path::new(mount).join(path.trim_start_matches('/')), PathBuf::from(mount)]
        .into_iter()
        .find(|b| try_group(b).is_ok())
}

fn version_2(mounts: &str, own: &str) -> Result<PathBuf, String> {
    let mount = mounts.lines().find_map(|line| {
        let mut words = line.split(' ').skip(1);
        let (path, kind) = (words.next()?, words.next()?);
        (kind == "cgroup2").then_some(path)
    });
    let mount = mount.ok_or("it is not mounted")?;
    let path = own.lines().find_map(|l| l.strip_prefix("0::")).ok_or("this process is in none")?;
    let base = Path::new(mount).join(path.trim_start_matches('/'));
    let has = fs::read_to_string(base.join("cgroup.controllers")).unwrap_or_default();
    if !["memory", "cpu", "pids"].iter().all(|c| has.split_whitespace().any(|h| h == *c)) {
        return Err("it lacks the controllers memory, cpu and pids".into());
    }
    let control = base.join("cgroup.subtree_control");
    if fs::write(&control, "+memory +cpu +pids").is_err() {
        // A group with processes of its own cannot limit subgroups: move into one, if alone here.
        step_down(&base).map_err(|e| {
            format!("its group is not delegated ({e}); try `systemd-run --user --scope -p Delegate=yes`")
        })?;
        fs::write(&control, "+memory +cpu +pids").map_err(|e| e.to_string())?;
    }
    try_group(&base).map_err(|e| e.to_string())?;
    Ok(base)
}

fn step_down(base: &Path) -> io::Result<()> {
    let procs = fs::read_to_string(base.join("cgroup.procs"))?;
    let own = std::process::id().to_string();
    if procs.lines().any(|pid| pid != own) {
        return Err(io::Error::other("other processes are in it"));
    }
    // Named like the groups of slots, so that the next start removes it.
    let leaf = base.join(format!("{PREFIX}{}-tool", this_owner()));
    make(&leaf)?;
    fs::write(leaf.join("cgroup.procs"), own)
}

fn try_group(base: &Path) -> io::Result<()> {
    let folder = base.join(format!("{PREFIX}{}-try", this_owner()));
    make(&folder)?;
    let joinable = File::options().write(true).open(folder.join("cgroup.procs")).map(|_| ());
    // Another platform of this process may have tried at the same time.
    let _ = fs::remove_dir(&folder);
    joinable
}

fn field(text: &str, name: &str) -> u64 {
    find(text, name).unwrap_or_default()
}

fn find(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}
