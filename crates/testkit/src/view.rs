//! A stored run in a form that suits tests.

use serde_json::Value;

/// A stored run with its calls, as `runs show --json` prints them.
#[derive(Debug, Clone)]
pub struct RunView {
    /// The whole document.
    pub json: Value,
}

impl RunView {
    pub(crate) fn new(json: Value) -> Self {
        Self { json }
    }

    /// `pass`, `fail` or `unresolved`.
    pub fn outcome(&self) -> &str {
        self.json["run"]["outcome"]["kind"].as_str().unwrap_or_default()
    }

    /// Why it could not be judged.
    pub fn reason(&self) -> &str {
        self.json["run"]["outcome"]["reason"].as_str().unwrap_or_default()
    }

    /// The names of the tests that failed.
    pub fn failed(&self) -> Vec<&str> {
        let tests = self.json["run"]["evidence"]["tests"].as_array();
        tests
            .into_iter()
            .flatten()
            .filter(|t| !t["failure"].is_null())
            .filter_map(|t| t["test"].as_str())
            .collect()
    }

    /// The output of a test.
    #[track_caller]
    pub fn output(&self, test: &str) -> &str {
        let tests = self.json["run"]["evidence"]["tests"].as_array().expect("tests");
        let found = tests.iter().find(|t| t["test"] == test);
        found.expect("the test ran")["output"].as_str().unwrap_or_default()
    }

    /// All calls, as they were recorded.
    pub fn spans(&self) -> &[Value] {
        self.json["spans"].as_array().map_or(&[], Vec::as_slice)
    }

    /// All calls to a service.
    pub fn spans_to(&self, callee: &str) -> Vec<&Value> {
        self.spans().iter().filter(|s| s["callee"] == callee).collect()
    }

    /// Each call on a line of its own, sorted by start: caller, callee, operation, wire, status, parentage.
    pub fn calls(&self) -> Vec<String> {
        let mut spans: Vec<&Value> = self.spans().iter().collect();
        spans.sort_by_key(|s| s["start_us"].as_u64());
        spans.into_iter().map(line_of).collect()
    }

    /// The same lines, sorted, for calls in random order.
    pub fn sorted_calls(&self) -> Vec<String> {
        let mut lines = self.calls();
        lines.sort();
        lines
    }
}

fn line_of(span: &Value) -> String {
    let text = |key: &str| span[key].as_str().unwrap_or_default();
    let number =
        |key: &str, prefix: &str| span[key].as_u64().map(|n| format!(" {prefix}{n}")).unwrap_or_default();
    let error = span["error"].as_str().map(|e| format!(" ({e})")).unwrap_or_default();
    let callee = span["callee_instance"].as_str().unwrap_or(text("callee"));
    let what = format!("{} {}", text("method"), text("path"));
    let what = if what == " " { String::new() } else { format!(" {what}") };
    format!(
        "{} -> {callee}{what} {}{}{}{error} {}",
        text("caller"),
        text("wire"),
        number("status", ""),
        number("grpc_status", "grpc "),
        text("parentage"),
    )
}
