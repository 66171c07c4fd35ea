//! Checks what the file says about reproduction bundles.

use super::BundleOptions;
use super::raw::RawBundle;
use super::read::{Reader, SpecError};

/// Patterns of one file, and characters of a pattern: people write a handful, and each is tried on every file.
const MAX_PATTERNS: usize = 200;
const MAX_PATTERN: usize = 1_000;

impl Reader<'_> {
    pub(super) fn bundle(&self, raw: RawBundle) -> Result<BundleOptions, SpecError> {
        let hint =
            || Some("write `bundle: { exclude: [node_modules, \"*.log\"], restore: [npm, ci] }`".to_owned());
        if raw.exclude.len() > MAX_PATTERNS {
            return Err(self.error(&["bundle", "exclude"], format!("more than {MAX_PATTERNS} patterns")));
        }
        for (index, pattern) in raw.exclude.iter().enumerate() {
            let problem = match pattern.trim() {
                "" | "!" => "a pattern is empty",
                _ if pattern.len() > MAX_PATTERN => "a pattern is too long",
                _ if pattern.contains(['\n', '\r', '\0']) => "a pattern is one line",
                other if other.split('/').any(|part| part == "..") => {
                    "a pattern holds below the folder, without `..`"
                }
                _ => continue,
            };
            let at = index.to_string();
            return Err(SpecError { hint: hint(), ..self.error(&["bundle", "exclude", &at], problem) });
        }
        if raw.restore.as_ref().is_some_and(|words| words.first().is_none_or(String::is_empty)) {
            return Err(SpecError {
                hint: hint(),
                ..self.error(&["bundle", "restore"], "the command is empty")
            });
        }
        Ok(BundleOptions { exclude: raw.exclude, restore: raw.restore })
    }
}

#[cfg(test)]
mod tests {
    use crate::Application;

    fn read(bundle: &str) -> Result<super::BundleOptions, String> {
        let file = format!("services:\n  web:\n    command: [web]\nbundle: {bundle}\n");
        Application::read_alone(&file, "f.yaml").map(|read| read.bundle).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_left_out_and_restored() {
        let options = read("{ exclude: [node_modules, \"*.log\", \"!dist\"], restore: npm ci }").unwrap();
        assert_eq!(options.exclude, ["node_modules", "*.log", "!dist"]);
        assert_eq!(options.restore.unwrap(), ["npm", "ci"]);
        assert_eq!(read("{}"), Ok(super::BundleOptions::default()));
    }

    #[test]
    fn mistakes_are_named_with_their_lines() {
        for (bundle, problem) in [
            ("{ exclude: [a, \" \"] }", "f.yaml:4: bundle.exclude.1: a pattern is empty"),
            (
                "{ exclude: [../a] }",
                "f.yaml:4: bundle.exclude.0: a pattern holds below the folder, without `..`",
            ),
            ("{ exclude: [\"a\\nb\"] }", "f.yaml:4: bundle.exclude.0: a pattern is one line"),
            ("{ restore: [] }", "f.yaml:4: bundle.restore: the command is empty"),
            ("{ excludes: [a] }", "f.yaml:4: excludes: unknown key"),
        ] {
            assert_eq!(read(bundle), Err(problem.to_owned()), "{bundle}");
        }
    }

    #[test]
    fn resuming_does_not_depend_on_it() {
        let json = |bundle: &str| {
            let file = format!("services:\n  web:\n    command: [web]\n{bundle}");
            serde_json::to_value(Application::read_alone(&file, "f.yaml").unwrap()).unwrap()
        };
        assert_eq!(json(""), json("bundle: { exclude: [a] }\n"));
    }
}
