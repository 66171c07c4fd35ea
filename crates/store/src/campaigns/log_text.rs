//! How a log is stored: a first line with counts and times, then the lines as they were printed.
//!
//! The lines stay together, because secrets of several lines are recognized only then. The times stay apart, because
//! a redactor must not take them for something else.

use faultscope_model::InstanceId;
use faultscope_model::log::{InstanceLog, LogLine};

/// What the first line begins with: a name and a version.
const MARK: &str = "log 1";

/// The first line and the lines of a log.
pub(super) fn split_log(log: &InstanceLog) -> (String, String) {
    let mut head = format!("{MARK} {}", log.dropped);
    let mut last = 0;
    for line in &log.lines {
        // Each time is written as its distance from the one before.
        head.push_str(&format!(" {}", line.at_us.saturating_sub(last)));
        last = last.max(line.at_us);
    }
    let lines: Vec<&str> = log.lines.iter().map(|line| line.text.as_str()).collect();
    (head, lines.join("\n"))
}

/// Reads a log back. Lines at the front may be missing, since long texts are cut there, and so may lines between,
/// since a secret may have had several.
pub(super) fn read_log(instance: InstanceId, stored: &str) -> InstanceLog {
    let (head, text) = stored.split_once('\n').unwrap_or((stored, ""));
    let Some(numbers) = head.strip_prefix(MARK) else {
        // Before there were times.
        let line = |text: &str| LogLine { at_us: 0, text: text.to_owned() };
        return InstanceLog { instance, lines: stored.lines().map(line).collect(), dropped: 0 };
    };
    let mut numbers = numbers.split(' ').filter_map(|number| number.parse::<u64>().ok());
    let dropped = numbers.next().unwrap_or_default();
    let mut last = 0_u64;
    let absolute = |distance: u64| {
        last = last.saturating_add(distance);
        last
    };
    let times: Vec<u64> = numbers.map(absolute).collect();
    let texts: Vec<&str> = if times.is_empty() { Vec::new() } else { text.split('\n').collect() };
    let missing = times.len().saturating_sub(texts.len());
    let line = |(index, text): (usize, &&str)| LogLine {
        at_us: times.get(missing + index).or(times.last()).copied().unwrap_or_default(),
        text: (*text).to_owned(),
    };
    let lines = texts.iter().enumerate().map(line).collect();
    InstanceLog { instance, lines, dropped: dropped + missing as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(lines: &[(u64, &str)], dropped: u64) -> InstanceLog {
        let line = |(at_us, text): &(u64, &str)| LogLine { at_us: *at_us, text: (*text).to_owned() };
        InstanceLog { instance: "order-1".parse().unwrap(), lines: lines.iter().map(line).collect(), dropped }
    }

    #[test]
    fn a_log_comes_back_as_it_was() {
        for log in [log(&[], 0), log(&[(7, "")], 0), log(&[(5, "a"), (5, ""), (9_000_000, "log 1 2")], 3)] {
            let (head, text) = split_log(&log);
            assert_eq!(read_log(log.instance.clone(), &format!("{head}\n{text}")), log);
        }
    }

    #[test]
    fn a_text_that_was_cut_keeps_the_times_of_its_end() {
        let (head, _) = split_log(&log(&[(5, "a"), (6, "b"), (8, "c")], 1));
        let cut = read_log("order-1".parse().unwrap(), &format!("{head}\nb\nc"));
        assert_eq!(cut, log(&[(6, "b"), (8, "c")], 2));
        assert_eq!(
            read_log("order-1".parse().unwrap(), "hostile\ntext"),
            log(&[(0, "hostile"), (0, "text")], 0)
        );
    }
}
