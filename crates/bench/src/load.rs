//! How busy the machine is with other work: a benchmark that shares its cores measures its neighbours.

use std::time::Duration;

use serde::Serialize;

use crate::usage;

/// Figures are invalid if others used more than this share of all CPU time during the run. An idle machine with
/// its usual background work stays below 0.05; from about 0.2 on, medians of repetitions drift visibly.
pub const MAX_OTHERS: f64 = 0.15;

/// How long the machine is observed before the first measurement.
const WATCH: Duration = Duration::from_millis(500);

/// The load of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct MachineLoad {
    /// The load average over one minute, before the first measurement.
    pub average_at_start: f64,
    /// The load average after the last measurement, including the benchmark's own work.
    pub average_at_end: f64,
    /// The share of all CPU time that others used just before the first measurement.
    pub others_before: f64,
    /// The share from the first measurement to the last.
    pub others_during: f64,
    /// The largest share with which figures are valid.
    pub most_others: f64,
    /// Whether the figures are valid.
    pub valid: bool,
}

impl MachineLoad {
    pub(crate) fn new(averages: [f64; 2], others_before: f64, others_during: f64) -> Self {
        let [average_at_start, average_at_end] = averages;
        Self {
            average_at_start,
            average_at_end,
            others_before,
            others_during,
            most_others: MAX_OTHERS,
            valid: others_during <= MAX_OTHERS,
        }
    }
}

/// Observes the machine from before the first measurement on.
#[derive(Debug)]
pub(crate) struct LoadWatch {
    average: f64,
    before: f64,
    start: Ticks,
}

impl LoadWatch {
    pub(crate) async fn start() -> Self {
        let first = Ticks::now();
        tokio::time::sleep(WATCH).await;
        let start = Ticks::now();
        Self { average: load_average(), before: start.others_since(first), start }
    }

    /// Whether others use too much already.
    pub(crate) fn is_busy(&self) -> bool {
        self.before > MAX_OTHERS
    }

    pub(crate) fn finish(self) -> MachineLoad {
        let during = Ticks::now().others_since(self.start);
        MachineLoad::new([self.average, load_average()], self.before, during)
    }
}

/// CPU time in ticks since the machine started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Ticks {
    /// All CPU time, idle or not.
    all: u64,
    /// What other processes used, and what other virtual machines stole.
    others: u64,
}

impl Ticks {
    fn now() -> Self {
        let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        let Stat { all, used, steal } = parse_stat(&stat).unwrap_or_default();
        // In a container other processes show only in what is left of the machine's time.
        let rest = || used.saturating_sub(usage::tree_ticks(std::process::id()));
        Self { all, others: usage::others_ticks().unwrap_or_else(rest) + steal }
    }

    /// The share of all CPU time since then that others used.
    fn others_since(self, before: Self) -> f64 {
        let all = self.all.saturating_sub(before.all).max(1);
        // Ticks of a process and of the machine are counted separately, so there can be slightly fewer than before.
        self.others.saturating_sub(before.others) as f64 / all as f64
    }
}

/// What the first line of `/proc/stat` tells, in ticks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Stat {
    all: u64,
    /// What processes used. Interrupts are excluded: those of a benchmark's own packets belong to no process.
    used: u64,
    steal: u64,
}

fn parse_stat(text: &str) -> Option<Stat> {
    let line = text.lines().next()?.strip_prefix("cpu ")?;
    let fields: Vec<u64> = line.split_whitespace().filter_map(|field| field.parse().ok()).collect();
    // user, nice, system, idle, iowait, irq, softirq, steal; guests are already in user and nice.
    Some(Stat {
        all: fields.iter().take(8).sum(),
        used: fields.iter().take(3).sum(),
        steal: fields.get(7).copied().unwrap_or_default(),
    })
}

fn load_average() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_of_proc_stat_is_all_cores() {
        let text = "cpu  100 20 30 800 5 7 8 40 9 9\ncpu0 1 1 1 1 1 1 1 1 0 0\n";
        assert_eq!(parse_stat(text), Some(Stat { all: 1010, used: 150, steal: 40 }));
        assert_eq!(parse_stat("cpu 1 2 3 4\n"), Some(Stat { all: 10, used: 6, steal: 0 }));
        assert_eq!(parse_stat("intr 1"), None);
    }

    #[test]
    fn the_share_of_others_is_of_all_cpu_time() {
        let before = Ticks { all: 1000, others: 100 };
        assert!((Ticks { all: 2000, others: 150 }.others_since(before) - 0.05).abs() < 1e-9);
        assert_eq!(Ticks { all: 2000, others: 90 }.others_since(before), 0.0);
    }

    #[test]
    fn a_machine_that_others_use_makes_figures_invalid() {
        assert!(MachineLoad::new([0.1, 1.9], 0.9, 0.04).valid);
        assert!(!MachineLoad::new([0.1, 1.9], 0.0, 0.3).valid);
    }
}
