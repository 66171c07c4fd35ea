//! The part of a command's output that says how its test failed: test runners end theirs with something else.

use regex::Regex;

/// The most lines of an excerpt.
const MAX_LINES: usize = 8;

/// Marks the line of a Rust panic.
const PANIC: &str = "panicked at ";

/// Lines after a panic that are not part of its message.
const BELOW: [&str; 2] = ["note: run with `RUST_BACKTRACE", "stack backtrace:"];

/// How a test failed, in its own words: a line that blames someone, a Rust panic, or the errors of pytest.
pub(super) fn failure_excerpt(stdout: &str, stderr: &str, blame: Option<&Regex>) -> Option<String> {
    let both = || [stderr, stdout].into_iter();
    let blames = |line: &str| blame.is_some_and(|blame| blame.is_match(line));
    let panics: Vec<String> = both().flat_map(panics).collect();
    if let Some(panic) = panics.iter().find(|panic| panic.lines().any(blames)) {
        return Some(panic.clone());
    }
    if let Some(line) = both().flat_map(str::lines).find(|line| blames(line)) {
        return Some(line.trim().to_owned());
    }
    panics.into_iter().next().or_else(|| both().find_map(pytest))
}

/// Panics with their messages. Names and ids of threads are removed, since they change from run to run.
fn panics(text: &str) -> Vec<String> {
    let mut found: Vec<Vec<&str>> = Vec::new();
    let mut inside = false;
    for line in text.lines() {
        if let Some(at) = line.find(PANIC) {
            found.push(vec![&line[at..]]);
            inside = true;
        } else if line.trim().is_empty() || BELOW.iter().any(|below| line.starts_with(below)) {
            inside = false;
        } else if let Some(last) = found.last_mut().filter(|last| inside && last.len() < MAX_LINES) {
            last.push(line.trim_end());
        }
    }
    found.into_iter().map(|lines| lines.join("\n")).collect()
}

/// The lines that pytest marks with `E`, and the location after them.
fn pytest(text: &str) -> Option<String> {
    let is_error = |line: &str| line.starts_with("E  ");
    let mut lines = text.lines().skip_while(|line| !is_error(line)).peekable();
    lines.peek()?;
    let mut told: Vec<&str> = Vec::new();
    while let Some(line) = lines.next_if(|line| is_error(line)) {
        if told.len() < MAX_LINES {
            told.push(line[1..].trim());
        }
    }
    let place = lines.find(|line| !line.trim().is_empty()).filter(|line| line.contains(".py:"));
    Some(told.into_iter().chain(place.map(str::trim)).collect::<Vec<_>>().join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn excerpt(stdout: &str, stderr: &str) -> Option<String> {
        failure_excerpt(stdout, stderr, Some(&Regex::new(r"error@\[([^\]]+)\]").unwrap()))
    }

    #[test]
    fn panics_of_cargo_test_are_excerpted_without_backtraces() {
        let stdout = "running 1 test\nF\nfailures:\n\n---- r stdout ----\n\n\
            thread 'r' (4711) panicked at tests/r.rs:20:5:\nassertion `left == right` failed\n  left: 7\n right: 8\n\
            stack backtrace:\n   0: __rustc::rust_begin_unwind\n             at /rustc/x/library/std/src/panicking.rs:698:5\n\
            note: run with `RUST_BACKTRACE=full`\n\ntest result: FAILED. 0 passed; 1 failed\n";
        let stderr = "error: test failed, to rerun pass `--test r`\n";
        let panic = "panicked at tests/r.rs:20:5:\nassertion `left == right` failed\n  left: 7\n right: 8";
        assert_eq!(excerpt(stdout, stderr).as_deref(), Some(panic));
        let blamed = stdout.replace(
            "\n\ntest result",
            "\n\nthread 'r' panicked at a.rs:1:1:\nerror@[stock] 7 != 8\n\ntest result",
        );
        assert_eq!(excerpt(&blamed, stderr).as_deref(), Some("panicked at a.rs:1:1:\nerror@[stock] 7 != 8"));
    }

    #[test]
    fn lines_that_blame_and_errors_of_pytest() {
        assert_eq!(excerpt("error@[b] 7 != 8\n", "Traceback\n").as_deref(), Some("error@[b] 7 != 8"));
        let pytest = "    def test_buy():\n>       assert 503 == 200\nE       assert 503 == 200\nE        +  where\n\n\
            tests/test_shop.py:7: AssertionError\n=== short test summary info ===\nFAILED tests/test_shop.py::test_buy\n";
        let expected = "assert 503 == 200\n+  where\ntests/test_shop.py:7: AssertionError";
        assert_eq!(excerpt(pytest, "").as_deref(), Some(expected));
        assert_eq!(excerpt("all is well\n", "warning\n"), None);
    }
}
