//! What instances printed in a trial, line by line, with the time at which each line arrived.

use serde::{Deserialize, Serialize};

use crate::ids::InstanceId;

/// What one instance printed: stdout and stderr in the order in which their lines arrived.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceLog {
    /// The instance.
    pub instance: InstanceId,
    /// Its lines, oldest first.
    pub lines: Vec<LogLine>,
    /// Lines before the first one that were not kept.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub dropped: u64,
}

/// A line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLine {
    /// Microseconds since 1970 at which it arrived.
    pub at_us: u64,
    /// Its text without the end of the line.
    pub text: String,
}

impl InstanceLog {
    /// Leaves only the lines that arrived from this moment on.
    pub fn keep_since(&mut self, since_us: u64) {
        let earlier = self.lines.iter().take_while(|line| line.at_us < since_us).count();
        if earlier > 0 {
            // The oldest lines go first: where one from before is left, none of later was dropped.
            self.dropped = 0;
        }
        self.lines.drain(..earlier);
    }

    /// Drops the oldest lines until the rest has at most this many bytes.
    pub fn keep_last(&mut self, bytes: usize) {
        let mut left = self.bytes();
        let mut surplus = 0;
        while left > bytes && surplus < self.lines.len() {
            left -= weigh(&self.lines[surplus]);
            surplus += 1;
        }
        self.lines.drain(..surplus);
        self.dropped += surplus as u64;
    }

    /// Bytes of all its lines.
    pub fn bytes(&self) -> usize {
        self.lines.iter().map(weigh).sum()
    }
}

/// Drops the oldest lines of the longest logs until all of them together have at most this many bytes: a service that
/// floods must not cost the few lines of its neighbours.
pub fn bound_logs(logs: &mut [InstanceLog], bytes: usize) {
    let mut sizes: Vec<usize> = logs.iter().map(InstanceLog::bytes).collect();
    sizes.sort_unstable();
    let mut left = bytes;
    for (index, size) in sizes.iter().enumerate() {
        let share = left / (sizes.len() - index);
        if *size > share {
            logs.iter_mut().for_each(|log| log.keep_last(share));
            return;
        }
        left -= size;
    }
}

fn weigh(line: &LogLine) -> usize {
    line.text.len() + 1
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(lines: &[(u64, &str)]) -> InstanceLog {
        let line = |(at_us, text): &(u64, &str)| LogLine { at_us: *at_us, text: (*text).to_owned() };
        let instance = InstanceId::new("order".parse().unwrap(), 1);
        InstanceLog { instance, lines: lines.iter().map(line).collect(), dropped: 0 }
    }

    #[test]
    fn lines_of_an_earlier_trial_are_left_out() {
        let mut kept = InstanceLog { dropped: 9, ..log(&[(1, "a"), (5, "b"), (6, "c")]) };
        kept.keep_since(5);
        assert_eq!(kept, log(&[(5, "b"), (6, "c")]));
        let mut flooded = InstanceLog { dropped: 9, ..log(&[(5, "b")]) };
        flooded.keep_since(5);
        assert_eq!(flooded.dropped, 9);
    }

    #[test]
    fn a_flood_is_cut_and_its_neighbours_are_not() {
        let flood: Vec<(u64, &str)> = (0..100).map(|at| (at, "xxxxxxxxx")).collect();
        let mut logs = [log(&[(1, "one"), (2, "two")]), log(&flood), log(&flood)];
        bound_logs(&mut logs, 108);
        assert_eq!(logs[0], log(&[(1, "one"), (2, "two")]));
        for cut in &logs[1..] {
            assert_eq!((cut.lines.len(), cut.dropped, cut.lines[0].at_us), (5, 95, 95));
        }
        let before = logs.clone();
        bound_logs(&mut logs, 108);
        assert_eq!(logs, before);
    }
}
