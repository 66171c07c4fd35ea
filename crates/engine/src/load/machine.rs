//! How busy the machine and this process are.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::time::Instant;

/// How long the machine is observed before the load.
const OBSERVED: Duration = Duration::from_millis(300);

/// CPU times before and during a load.
#[derive(Debug)]
pub(super) struct MachineWatch {
    others_before: f64,
    cores: f64,
    began: Option<(Instant, Duration)>,
    cpu_share: f64,
}

impl MachineWatch {
    /// Observes what others use.
    pub(super) async fn start() -> Self {
        let (before, own) = (read_stat(), own_cpu());
        tokio::time::sleep(OBSERVED).await;
        let (after, own) = (read_stat(), own_cpu() - own);
        let cores = std::thread::available_parallelism().map_or(1, usize::from) as f64;
        // Linux counts in hundredths of a second on every architecture.
        let used = (after.used.saturating_sub(before.used)) as f64 / 100.0 - own.as_secs_f64();
        let all = (after.all.saturating_sub(before.all)) as f64 / 100.0;
        let others_before = if all > 0.0 { (used / all).max(0.0) } else { 0.0 };
        // The runtime of the tool has two threads, so it can use no more.
        Self { others_before, cores: cores.min(2.0), began: None, cpu_share: 0.0 }
    }

    pub(super) fn is_measuring(&self) -> bool {
        self.began.is_some()
    }

    /// The ramp is over.
    pub(super) fn begin_measuring(&mut self) {
        self.began = Some((Instant::now(), own_cpu()));
    }

    /// The load is over.
    pub(super) fn finish(&mut self) {
        if let Some((since, before)) = self.began {
            let wall = since.elapsed().as_secs_f64().max(1e-3);
            self.cpu_share = (own_cpu() - before).as_secs_f64() / (wall * self.cores);
        }
    }

    pub(super) fn cpu_share(&self) -> f64 {
        self.cpu_share
    }

    pub(super) fn others_before(&self) -> f64 {
        self.others_before
    }
}

fn own_cpu() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or_default())
}

#[derive(Debug, Default)]
struct Stat {
    all: u64,
    used: u64,
}

fn read_stat() -> Stat {
    parse_stat(&std::fs::read_to_string("/proc/stat").unwrap_or_default()).unwrap_or_default()
}

fn parse_stat(text: &str) -> Option<Stat> {
    let line = text.lines().next()?.strip_prefix("cpu ")?;
    let fields: Vec<u64> = line.split_whitespace().filter_map(|field| field.parse().ok()).collect();
    // user, nice, system, idle, iowait, irq, softirq, steal.
    let steal = fields.get(7).copied().unwrap_or_default();
    Some(Stat { all: fields.iter().take(8).sum(), used: fields.iter().take(3).sum::<u64>() + steal })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_is_not_used() {
        let stat = parse_stat("cpu  100 20 30 800 5 7 8 40 9 9\ncpu0 1 1 1 1\n").unwrap();
        assert_eq!((stat.all, stat.used), (1010, 190));
        assert!(parse_stat("intr 1").is_none());
    }
}
