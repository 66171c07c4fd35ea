//! Commands for people to paste: words, quoted for a shell in one place.

use std::fmt;

use faultscope_model::RunId;
use serde::{Serialize, Serializer};

/// A command of the tool as words; displayed and serialized as a line for a shell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandLine {
    /// The unquoted words, the program first.
    pub words: Vec<String>,
}

/// The `--folder` option for an application file elsewhere; empty for the current folder.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FolderOption(
    /// The folder, unless it is the current one.
    pub Option<String>,
);

impl CommandLine {
    /// A command of the tool.
    pub fn faultscope<W: Into<String>>(words: impl IntoIterator<Item = W>) -> Self {
        let words = words.into_iter().map(Into::into);
        Self { words: ["faultscope".to_owned()].into_iter().chain(words).collect() }
    }

    /// The command that shows a stored run.
    pub fn show_run(run: &RunId, folder: &FolderOption) -> Self {
        Self::faultscope(["runs", "show", run.as_str()]).at(folder)
    }

    /// The typed command, extended to resume a campaign. The budget is left out: it is used up.
    pub fn resume(typed: impl IntoIterator<Item = String>, campaign: &str) -> Self {
        let mut command = Self::faultscope([] as [String; 0]);
        let mut typed = typed.into_iter();
        while let Some(word) = typed.next() {
            match word.as_str() {
                "--budget" => drop(typed.next()),
                "--resume" => {}
                other if other.starts_with("--resume=") || other.starts_with("--budget=") => {}
                _ => command.words.push(word),
            }
        }
        command.words.push(format!("--resume={campaign}"));
        command
    }

    /// The typed command with another test and more words. `--resume` is left out: it is another question.
    pub fn with_test(typed: impl IntoIterator<Item = String>, test: &str, more: &[&str]) -> Self {
        let mut command = Self::faultscope([] as [String; 0]);
        let mut typed = typed.into_iter();
        while let Some(word) = typed.next() {
            match word.as_str() {
                "--test" => drop(typed.next()),
                "--resume" => {}
                other if other.starts_with("--resume=") || other.starts_with("--test=") => {}
                other if more.contains(&other) => {}
                _ => command.words.push(word),
            }
        }
        let mut command = command.option("--test", test);
        command.words.extend(more.iter().map(ToString::to_string));
        command
    }

    /// Adds an option; a value that looks like an option must not be taken for one.
    pub fn option(mut self, name: &str, value: &str) -> Self {
        if value.starts_with('-') {
            self.words.push(format!("{name}={value}"));
        } else {
            self.words.extend([name.to_owned(), value.to_owned()]);
        }
        self
    }

    /// Adds the option for an application elsewhere.
    pub fn at(mut self, folder: &FolderOption) -> Self {
        if let FolderOption(Some(folder)) = folder {
            self.words.extend(["--folder".to_owned(), folder.clone()]);
        }
        self
    }
}

impl fmt::Display for CommandLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quoted: Vec<String> = self.words.iter().map(|word| quote(word)).collect();
        f.write_str(&quoted.join(" "))
    }
}

impl Serialize for CommandLine {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// With a leading space, so that it can follow a command.
impl fmt::Display for FolderOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(folder) => write!(f, " --folder {}", quote(folder)),
            None => Ok(()),
        }
    }
}

/// Quotes a word for a shell if needed.
pub fn quote(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_where_they_must() {
        assert_eq!(quote("faultscope.yaml"), "faultscope.yaml");
        assert_eq!(quote("instance order"), "'instance order'");
        assert_eq!(quote("it's"), "'it'\\''s'");
        assert_eq!(quote(""), "''");
        let command = CommandLine::faultscope(["test"]).option("--test", "a b").option("--delta", "-x");
        assert_eq!(command.to_string(), "faultscope test --test 'a b' --delta=-x");
    }

    #[test]
    fn a_resumed_command_has_all_options_but_its_budget() {
        let words = ["debug", "--test", "a b", "--budget", "2 trials", "--resume", "--budget=1m", "--only"];
        let resumed = CommandLine::resume(words.iter().map(ToString::to_string), "beb0");
        assert_eq!(resumed.to_string(), "faultscope debug --test 'a b' --only --resume=beb0");
    }

    #[test]
    fn a_folder_elsewhere_is_an_option() {
        let run: RunId = "beef.1".parse().unwrap();
        let (here, there) = (FolderOption::default(), FolderOption(Some("my shop".into())));
        assert_eq!(CommandLine::show_run(&run, &here).to_string(), "faultscope runs show beef.1");
        let command = CommandLine::show_run(&run, &there);
        assert_eq!(command.to_string(), format!("faultscope runs show beef.1{there}"));
        assert_eq!(serde_json::to_value(&command).unwrap(), "faultscope runs show beef.1 --folder 'my shop'");
    }
}
