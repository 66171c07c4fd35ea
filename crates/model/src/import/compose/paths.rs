//! Paths of a Compose project, as texts: always relative to the project, with `/`.

/// A path that stands in a file of the directory `directory`, seen from the project.
pub(super) fn join(directory: &str, path: &str) -> String {
    if is_elsewhere(path) {
        return path.to_owned();
    }
    let mut parts: Vec<&str> = Vec::new();
    let absolute = directory.starts_with('/');
    for part in directory.split('/').chain(path.split('/')) {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    match (absolute, parts.is_empty()) {
        (true, _) => format!("/{}", parts.join("/")),
        (false, true) => ".".to_owned(),
        (false, false) => parts.join("/"),
    }
}

/// How many folders above the project a joined path starts.
pub(super) fn count_ups(path: &str) -> usize {
    path.split('/').take_while(|part| *part == "..").count()
}

/// The directory of a file, as [`join`] wants it.
pub(super) fn parent(file: &str) -> &str {
    file.rsplit_once('/').map_or("", |(parent, _)| parent)
}

/// Whether a path does not depend on where it is written: absolute, below home, or an address.
pub(super) fn is_elsewhere(path: &str) -> bool {
    path.starts_with(['/', '~']) || path.contains("://") || path.starts_with("git@")
}

/// What is left of `path` below `directory`; empty when they are the same.
pub(super) fn below<'a>(path: &'a str, directory: &str) -> Option<&'a str> {
    let path = path.trim_end_matches('/');
    let directory = directory.trim_end_matches('/');
    if directory == "." && !path.starts_with('/') && !path.starts_with("..") {
        return Some(if path == "." { "" } else { path });
    }
    let rest = path.strip_prefix(directory)?;
    if rest.is_empty() { Some(rest) } else { rest.strip_prefix('/') }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joined_and_below() {
        for (directory, path, expected) in [
            ("", ".", "."),
            ("", "./a/", "a"),
            ("common", "./a", "common/a"),
            ("common", "../a", "a"),
            ("a/b", "../../..", ".."),
            ("", "../x", "../x"),
            ("a", "/etc/x", "/etc/x"),
            ("a", "https://example/x.git", "https://example/x.git"),
            ("/srv/p", "../x", "/srv/x"),
        ] {
            assert_eq!(join(directory, path), expected, "{directory} {path}");
        }
        assert_eq!(below("/app/data", "/app"), Some("data"));
        assert_eq!(below("/app", "/app/"), Some(""));
        assert_eq!(below("/application", "/app"), None);
        assert_eq!(below("order/data", "."), Some("order/data"));
        assert_eq!(below("/x", "/"), Some("x"));
        assert_eq!(below("../x", "."), None);
    }
}
