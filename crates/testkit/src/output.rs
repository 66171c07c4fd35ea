//! What a tool that has ended printed.

use crate::masks;

/// What a tool that has ended printed.
#[derive(Debug)]
pub struct Output {
    name: String,
    /// The exit code; none when a signal ended it.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Results.
    pub stdout: String,
    /// Talk.
    pub stderr: String,
    paths: Vec<(String, String)>,
}

impl Output {
    pub(crate) fn new(
        name: String,
        code: Option<i32>,
        signal: Option<i32>,
        stdout: String,
        stderr: String,
        paths: Vec<(String, String)>,
    ) -> Self {
        Self { name, code, signal, stdout, stderr, paths }
    }

    /// Expects an exit code.
    #[track_caller]
    pub fn expect(self, code: i32) -> Self {
        assert_eq!(
            self.code,
            Some(code),
            "`faultscope {}` ended otherwise (signal {:?})\n{}\n{}",
            self.name,
            self.signal,
            self.stdout,
            self.stderr
        );
        self
    }

    /// Standard output as JSON.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|e| panic!("`faultscope {}` printed no JSON: {e}\n{}", self.name, self.stdout))
    }

    /// Exit code and both outputs for a snapshot: ids, times, durations and paths are masked.
    pub fn shown(&self) -> String {
        self.with(&|text| masks::all(text, &self.paths))
    }

    /// The same with only paths masked, where all else is the same each time.
    pub fn exact(&self) -> String {
        self.with(&|text| masks::paths(text, &self.paths))
    }

    fn with(&self, mask: &dyn Fn(&str) -> String) -> String {
        let end = match (self.code, self.signal) {
            (Some(code), _) => format!("exit code {code}"),
            (None, signal) => format!("signal {}", signal.unwrap_or_default()),
        };
        let mut text = end;
        for (heading, part) in [("stdout", &self.stdout), ("stderr", &self.stderr)] {
            if !part.trim().is_empty() {
                text += &format!("\n--- {heading}\n{}", mask(part).trim_end());
            }
        }
        text
    }
}
