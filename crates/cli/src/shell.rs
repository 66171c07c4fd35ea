//! Commands that people can paste.

use std::path::Path;

/// A word for a shell, in quotes where it needs them.
pub(crate) fn quote(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// An option with its value; one that begins like an option itself must not be taken for one.
pub(crate) fn option(name: &str, value: &str) -> String {
    let between = if value.starts_with('-') { "=" } else { " " };
    format!("{name}{between}{}", quote(value))
}

/// The option that leads `runs` and `report` to what an application file elsewhere left; nothing in its folder.
pub(crate) fn at(file: &Path) -> String {
    let folder = if file.is_dir() { file } else { file.parent().unwrap_or(Path::new("")) };
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let real = |path: &Path| std::fs::canonicalize(path).ok();
    if real(folder) == real(Path::new(".")) {
        return String::new();
    }
    format!(" --folder {}", quote(&folder.to_string_lossy()))
}

/// The command that this process was started with, so that it goes on with a campaign. A budget that is used up
/// is not part of it.
pub(crate) fn resume(campaign: &str) -> String {
    resumed(std::env::args().skip(1), campaign)
}

fn resumed(words: impl Iterator<Item = String>, campaign: &str) -> String {
    let mut kept = vec!["faultscope".to_owned()];
    let mut words = words.peekable();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--budget" => {
                words.next();
            }
            other
                if other == "--resume"
                    || other.starts_with("--resume=")
                    || other.starts_with("--budget=") => {}
            other => kept.push(quote(other)),
        }
    }
    kept.push(format!("--resume={campaign}"));
    kept.join(" ")
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
        assert_eq!(option("--test", "a b"), "--test 'a b'");
        assert_eq!(option("--test", "-x"), "--test=-x");
    }

    #[test]
    fn a_resumed_command_has_all_options_but_its_budget() {
        let words = ["debug", "--test", "a b", "--budget", "2 trials", "--resume", "--budget=1m", "--only"];
        let resumed = resumed(words.iter().map(ToString::to_string), "beb0");
        assert_eq!(resumed, "faultscope debug --test 'a b' --only --resume=beb0");
    }
}
