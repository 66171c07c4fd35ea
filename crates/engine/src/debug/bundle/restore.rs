//! Restores what a bundle leaves out, such as installed packages, on the machine that unpacked it.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use super::shown_command;
use crate::host_command::{HostCommand, HostError, HostOutput};

/// Installing packages and building takes minutes; a command that hangs must end at last.
const WITHIN: Duration = Duration::from_secs(30 * 60);
/// Bytes of the output that are read, and lines of its end that are shown.
const MAX_OUTPUT: u64 = 1 << 20;
const SHOWN_LINES: usize = 20;

/// Why nothing was restored.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The command cannot be started.
    #[error("cannot start `{command}`")]
    Start {
        /// The command in one line.
        command: String,
        /// The cause.
        source: std::io::Error,
    },
    /// It failed.
    #[error("`{command}` ended with {ending}")]
    Failed {
        /// The command in one line.
        command: String,
        /// Its exit code, or a signal.
        ending: String,
        /// The end of its output.
        last_lines: Vec<String>,
    },
    /// It was killed.
    #[error("`{command}` took longer than {} minutes", within.as_secs() / 60)]
    Late {
        /// The command in one line.
        command: String,
        /// The time limit.
        within: Duration,
    },
}

/// Runs the command that restores what a bundle leaves out, in the folder of its application. It runs with all
/// rights of the user: ask before.
pub async fn restore(words: &[String], folder: &Path) -> Result<(), RestoreError> {
    let Some((program, rest)) = words.split_first() else { return Ok(()) };
    let command = || shown_command(words);
    let env = BTreeMap::new();
    let run = HostCommand { program, words: rest, env: &env, folder, within: WITHIN, max_output: MAX_OUTPUT };
    let HostOutput { status, stdout, stderr } = run.run().await.map_err(|error| match error {
        HostError::Start(source) => RestoreError::Start { command: command(), source },
        HostError::Unreadable(source) => {
            let last_lines = vec![source.to_string()];
            RestoreError::Failed { command: command(), ending: "unreadable output".into(), last_lines }
        }
        HostError::Late => RestoreError::Late { command: command(), within: WITHIN },
    })?;
    if status.success() {
        return Ok(());
    }
    let ending = status.code().map_or("a signal".to_owned(), |code| format!("code {code}"));
    // What went wrong is usually on stderr; what led to it on stdout.
    let lines: Vec<&str> =
        stdout.lines().chain(stderr.lines()).filter(|line| !line.trim().is_empty()).collect();
    let last_lines =
        lines[lines.len().saturating_sub(SHOWN_LINES)..].iter().map(|line| (*line).to_owned()).collect();
    Err(RestoreError::Failed { command: command(), ending, last_lines })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(script: &str) -> Vec<String> {
        ["sh", "-c", script].map(str::to_owned).into()
    }

    #[tokio::test]
    async fn a_command_runs_in_the_folder_and_says_why_it_failed() {
        let folder = tempfile::tempdir().unwrap();
        restore(&words("echo x > made"), folder.path()).await.unwrap();
        assert!(folder.path().join("made").exists());
        let error = restore(&words("echo fetching; echo no network >&2; exit 7"), folder.path()).await;
        let Err(RestoreError::Failed { ending, last_lines, .. }) = error else { panic!("{error:?}") };
        assert_eq!((ending.as_str(), last_lines), ("code 7", vec!["fetching".into(), "no network".into()]));
        let error = restore(&["no-such-program-here".to_owned()], folder.path()).await;
        assert!(matches!(error, Err(RestoreError::Start { .. })), "{error:?}");
    }
}
