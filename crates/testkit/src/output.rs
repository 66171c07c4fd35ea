//! The output of a tool that has ended.

use crate::masks;

/// The output of a tool that has ended.
#[derive(Debug)]
pub struct Output {
    name: String,
    /// The exit code; none if it was killed by a signal.
    pub code: Option<i32>,
    /// The signal that killed it.
    pub signal: Option<i32>,
    /// The results.
    pub stdout: String,
    /// The messages.
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

    /// Asserts the exit code.
    #[track_caller]
    pub fn expect(self, code: i32) -> Self {
        assert_eq!(
            self.code,
            Some(code),
            "`faultscope {}` ended with another code (signal {:?})\n{}\n{}",
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

    /// As [`Self::shown`], with only paths masked, if everything else is deterministic.
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
