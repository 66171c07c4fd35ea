//! Masks what differs between two runs of the same test.

use std::sync::LazyLock;

use regex::Regex;

/// Masks paths, ids, times, durations and ports that the kernel chose.
pub(crate) fn all(text: &str, known: &[(String, String)]) -> String {
    static MASKS: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
        let mask = |pattern: &str, to| (Regex::new(pattern).expect("a pattern"), to);
        vec![
            // Resource usage has its own tests; elsewhere it would only be in the way.
            mask(r"\n\nuse of \d+ instances[^\n]*(?:\n  [^\n]+)+", ""),
            mask(r"\b[0-9a-f]{32}\b", "<trace>"),
            mask(r"\b[0-9a-f]{4}-[0-9a-f]{10,}-[0-9a-f]+\b", "<campaign>"),
            mask(r"\b[0-9a-f]{4,8}\.(\d+|(?:check|confirm|sentinel)[a-z0-9-]*)\b", "<run>.$1"),
            // The widths of bars and time columns vary.
            mask(r" +▬[▬ ]*▬* *", " <bar> "),
            mask(r"▬[▬ ]*", "<bar> "),
            mask(r"\d+ (?:s|min|h) ago", "<ago>"),
            mask(r" *\b\d+(?:\.\d+)?(?:us|ms|s)\b", " <time>"),
            mask(r" *\b\d+m\d\ds\b", " <time>"),
            mask(r"127\.0\.0\.1:\d+", "127.0.0.1:<port>"),
            // How well an archive is packed depends on the ids in it.
            mask(r"\(\d+(?:\.\d+)?(?:[KM]i)?B, (\d+) files\)", "(<size>, $1 files)"),
        ]
    });
    let mut text = paths(text, known);
    for (pattern, to) in MASKS.iter() {
        text = pattern.replace_all(&text, *to).into_owned();
    }
    text.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

/// Masks paths.
pub(crate) fn paths(text: &str, known: &[(String, String)]) -> String {
    let text = known.iter().fold(text.to_owned(), |text, (path, name)| text.replace(path, name));
    text.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_what_differs() {
        let shown = all(
            "run de1e.1 pass: ready after 84ms, took 1.5s in /t/x/a\n  pass  hello      10ms\n",
            &[("/t/x".into(), "<folder>".into())],
        );
        assert_eq!(
            shown,
            "run <run>.1 pass: ready after <time>, took <time> in <folder>/a\n  pass  hello <time>\n"
        );
        let tree = all("  back-1 GET /b     1.4ms           ▬▬▬▬    200\n", &[]);
        assert_eq!(tree, "  back-1 GET /b <time> <bar> 200\n");
    }
}
