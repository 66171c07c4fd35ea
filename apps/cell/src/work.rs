//! Work that costs something real: processor time, memory, files.
//!
//! All of it runs on blocking threads, so that a cell with several threads is busy on several cores.

use std::fs::OpenOptions;
use std::hint::black_box;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

const PAGE: usize = 4096;

/// Burns processor time of this thread; time in which the thread does not run does not count.
pub(crate) fn burn(time: Duration) {
    let end = thread_time() + time;
    let mut value = 1_u64;
    while thread_time() < end {
        for _ in 0..2000 {
            value = black_box(value.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        }
    }
}

/// Allocates memory and writes to each of its pages; `None` if the system refuses.
pub(crate) fn allocate(size: usize, touch: bool) -> Option<Vec<u8>> {
    let mut memory = Vec::new();
    memory.try_reserve_exact(size).ok()?;
    if touch {
        memory.resize(size, 0);
        for page in memory.chunks_mut(PAGE) {
            page[0] = black_box(1);
        }
    }
    Some(memory)
}

/// Overwrites a file with so many bytes.
pub(crate) fn write_file(path: &Path, size: usize, fsync: bool) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(path)?;
    let block = [b'm'; PAGE];
    let mut left = size;
    while left > 0 {
        let length = left.min(PAGE);
        file.write_all(&block[..length])?;
        left -= length;
    }
    if fsync { file.sync_all() } else { Ok(()) }
}

/// Resident memory of this process in bytes, if the system tells.
pub fn resident_memory() -> Option<u64> {
    status("VmRSS:")
}

/// The part of the resident memory that is not a mapped file; the rest is shared by all cells of a binary.
pub fn private_memory() -> Option<u64> {
    status("RssAnon:")
}

fn status(key: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(key))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{allocate, burn, resident_memory, thread_time, write_file};

    #[test]
    fn burning_costs_thread_time() {
        let before = thread_time();
        burn(Duration::from_millis(3));
        assert!(thread_time() - before >= Duration::from_millis(3));
    }

    #[test]
    fn touched_memory_is_resident() {
        let before = resident_memory().unwrap();
        let memory = allocate(32 << 20, true).unwrap();
        assert!(resident_memory().unwrap() > before + (24 << 20));
        assert_eq!(memory.len(), 32 << 20);
        assert!(allocate(usize::MAX / 2, false).is_none());
    }

    #[test]
    fn files_have_the_size() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b");
        write_file(&path, 5000, true).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 5000);
    }
}
