//! What a Dockerfile says about the image: its ports, its environment and what it runs.

use std::collections::BTreeMap;

use crate::import::shell::split_words;

/// Longer files are not read; real ones have a hundredth of it.
const MAX_BYTES: usize = 1 << 20;

/// The most stages of a file, which bounds the work of stages that build on one another.
const MAX_STAGES: usize = 200;

/// The longest value that a variable may become.
const MAX_VALUE: usize = 16 << 10;

/// The most ports that one file may expose.
const MAX_PORTS: usize = 64;

/// What one stage of a Dockerfile leaves behind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::import) struct Dockerfile {
    /// Exposed TCP ports, in the order of the file.
    pub(in crate::import) ports: Vec<u16>,
    /// Variables of `ENV`.
    pub(in crate::import) env: BTreeMap<String, String>,
    /// `ENTRYPOINT` as words.
    pub(in crate::import) entrypoint: Vec<String>,
    /// `CMD` as words.
    pub(in crate::import) command: Vec<String>,
    /// The image that the first stage of this one's line starts from.
    pub(in crate::import) base: String,
}

impl Dockerfile {
    /// Reads a Dockerfile and returns what its `target` stage leaves behind, the last one by default.
    pub(in crate::import) fn parse(
        text: &str,
        arguments: &BTreeMap<String, String>,
        target: Option<&str>,
    ) -> Option<Self> {
        if text.len() > MAX_BYTES {
            return None;
        }
        let mut global: BTreeMap<String, String> = BTreeMap::new();
        let mut stages: Vec<(Option<String>, Stage)> = Vec::new();
        for line in instructions(text) {
            let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((&line, ""));
            let rest = rest.trim();
            match word.to_ascii_uppercase().as_str() {
                "FROM" if stages.len() < MAX_STAGES => {
                    let (image, alias) = split_from(rest);
                    let image = expand(&image, &|name| global.get(name).cloned());
                    let parent = stages.iter().rev().find(|(name, _)| {
                        name.as_deref().is_some_and(|name| name.eq_ignore_ascii_case(&image))
                    });
                    let stage = match parent {
                        Some((_, parent)) => Stage { arguments: BTreeMap::new(), ..parent.clone() },
                        None => Stage { result: Self { base: image, ..Self::default() }, ..Stage::default() },
                    };
                    stages.push((alias, stage));
                }
                "FROM" => return None,
                "ARG" => {
                    for (name, default) in assignments(rest, true) {
                        let stage = stages.last().map(|(_, stage)| stage);
                        let lookup = |name: &str| match stage {
                            Some(stage) => stage.value(name),
                            None => global.get(name).cloned(),
                        };
                        let value = arguments.get(&name).cloned();
                        let value = value.or_else(|| default.map(|text| expand(&text, &lookup)));
                        match stages.last_mut() {
                            Some((_, stage)) => {
                                if let Some(value) = value.or_else(|| global.get(&name).cloned()) {
                                    stage.arguments.insert(name, value);
                                }
                            }
                            None => {
                                global.extend(value.map(|value| (name, value)));
                            }
                        }
                    }
                }
                word => {
                    if let Some((_, stage)) = stages.last_mut() {
                        stage.apply(word, rest);
                    }
                }
            }
        }
        let wanted = match target {
            Some(target) => stages.iter().position(|(name, _)| {
                name.as_deref().is_some_and(|name| name.eq_ignore_ascii_case(target))
            })?,
            None => stages.len().checked_sub(1)?,
        };
        Some(stages.swap_remove(wanted).1.result)
    }

    /// The words that a container of the image runs.
    pub(in crate::import) fn words(&self) -> Vec<String> {
        self.entrypoint.iter().chain(&self.command).cloned().collect()
    }
}

#[derive(Debug, Clone, Default)]
struct Stage {
    arguments: BTreeMap<String, String>,
    result: Dockerfile,
}

impl Stage {
    fn value(&self, name: &str) -> Option<String> {
        // Variables win over arguments of the same name.
        self.result.env.get(name).or_else(|| self.arguments.get(name)).cloned()
    }

    fn apply(&mut self, instruction: &str, rest: &str) {
        match instruction {
            "ENV" => {
                for (name, value) in assignments(rest, false) {
                    let value = expand(&value.unwrap_or_default(), &|name| self.value(name));
                    self.result.env.insert(name, value);
                }
            }
            "EXPOSE" => {
                let rest = expand(rest, &|name| self.value(name));
                for port in rest.split_whitespace().flat_map(exposed) {
                    if !self.result.ports.contains(&port) && self.result.ports.len() < MAX_PORTS {
                        self.result.ports.push(port);
                    }
                }
            }
            "ENTRYPOINT" => {
                self.result.entrypoint = self.words(rest);
                // Docker forgets the base image's CMD as well.
                self.result.command.clear();
            }
            "CMD" => self.result.command = self.words(rest),
            _ => {}
        }
    }

    fn words(&self, text: &str) -> Vec<String> {
        match serde_json::from_str::<Vec<String>>(text) {
            Ok(words) => words,
            // The shell form sees the variables of the image when it runs.
            Err(_) => {
                let text = expand(text, &|name| self.value(name));
                split_words(&text).unwrap_or_else(|_| vec![text])
            }
        }
    }
}

/// Instructions without comments, continued lines joined, here-documents left out.
fn instructions(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut current = String::new();
    let mut ends: Option<String> = None;
    for line in text.lines() {
        let trimmed = line.trim();
        if let Some(end) = &ends {
            if trimmed == end {
                ends = None;
            }
            continue;
        }
        if trimmed.starts_with('#') || (trimmed.is_empty() && current.is_empty()) {
            continue;
        }
        match trimmed.strip_suffix('\\').or_else(|| trimmed.strip_suffix('`')) {
            Some(part) => {
                current.push_str(part);
                current.push(' ');
            }
            None => {
                current.push_str(trimmed);
                ends = here_document(&current);
                found.push(std::mem::take(&mut current));
            }
        }
    }
    if !current.is_empty() {
        found.push(current);
    }
    found
}

/// The word that ends the here-document that `RUN <<EOF` starts.
fn here_document(line: &str) -> Option<String> {
    let upper = line.get(..5)?.to_ascii_uppercase();
    if !(upper.starts_with("RUN ") || upper.starts_with("COPY ")) {
        return None;
    }
    let (_, after) = line.split_once("<<")?;
    let word: String = after
        .trim_start_matches('-')
        .trim_start_matches(['"', '\''])
        .chars()
        .take_while(|c| c.is_ascii_alphanumeric() || *c == '_')
        .collect();
    (!word.is_empty()).then_some(word)
}

/// Image and alias of `FROM [--platform=...] image [AS alias]`.
fn split_from(rest: &str) -> (String, Option<String>) {
    let mut words = rest.split_whitespace().filter(|word| !word.starts_with("--"));
    let image = words.next().unwrap_or_default().to_owned();
    let alias = words.next().filter(|word| word.eq_ignore_ascii_case("as")).and_then(|_| words.next());
    (image, alias.map(str::to_owned))
}

/// `A=1 B="x y"`, the old `A some text` of `ENV`, and names without a value of `ARG`.
fn assignments(rest: &str, bare_names: bool) -> Vec<(String, Option<String>)> {
    let words = split_words(rest).unwrap_or_default();
    match words.first() {
        Some(first) if bare_names || first.contains('=') => words
            .iter()
            .map(|word| match word.split_once('=') {
                Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
                None => (word.clone(), None),
            })
            .collect(),
        Some(name) => {
            let value = rest.trim_start().strip_prefix(name.as_str()).unwrap_or_default().trim();
            vec![(name.clone(), Some(value.to_owned()))]
        }
        None => Vec::new(),
    }
}

fn exposed(text: &str) -> Vec<u16> {
    let (numbers, protocol) = text.split_once('/').unwrap_or((text, "tcp"));
    if !protocol.eq_ignore_ascii_case("tcp") {
        return Vec::new();
    }
    // `80:80` is a common mistake; the second one is the container's.
    let numbers = numbers.rsplit(':').next().unwrap_or(numbers);
    let (first, last) = numbers.split_once('-').unwrap_or((numbers, numbers));
    match (first.parse::<u16>(), last.parse::<u16>()) {
        (Ok(first), Ok(last)) if first > 0 && first <= last => (first..=last).take(MAX_PORTS).collect(),
        _ => Vec::new(),
    }
}

/// Replaces `$NAME`, `${NAME}`, `${NAME:-default}` and `${NAME:+other}`; what is unknown becomes empty.
fn expand(text: &str, lookup: &dyn Fn(&str) -> Option<String>) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(dollar) = rest.find('$') {
        out.push_str(&rest[..dollar]);
        rest = &rest[dollar + 1..];
        if out.ends_with('\\') {
            out.pop();
            out.push('$');
            continue;
        }
        if let Some((inner, after)) = rest.strip_prefix('{').and_then(|braced| braced.split_once('}')) {
            rest = after;
            let length = name_length(inner);
            let (name, operation) = inner.split_at(length);
            let value = lookup(name).filter(|value| !value.is_empty());
            match (operation.get(..2), value) {
                (Some(":-"), None) => out.push_str(&operation[2..]),
                (Some(":+"), Some(_)) => out.push_str(&operation[2..]),
                (Some(":+"), None) | (_, None) => {}
                (_, Some(value)) => out.push_str(&value),
            }
        } else {
            let (name, after) = rest.split_at(name_length(rest));
            rest = after;
            if name.is_empty() {
                out.push('$');
            }
            out.push_str(&lookup(name).unwrap_or_default());
        }
        if out.len() > MAX_VALUE {
            return String::new();
        }
    }
    out.push_str(rest);
    out
}

fn name_length(text: &str) -> usize {
    text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str, arguments: &[(&str, &str)], target: Option<&str>) -> Option<Dockerfile> {
        let arguments = arguments.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        Dockerfile::parse(text, &arguments, target)
    }

    #[test]
    fn ports_of_the_last_stage_or_the_target() {
        let text = "\
# syntax=docker/dockerfile:1
ARG NODE=20
FROM --platform=$BUILDPLATFORM node:${NODE} AS base
ENV PORT=3000 \\
    # a comment inside
    HOST=0.0.0.0
EXPOSE $PORT
FROM base AS dev
EXPOSE 9229/tcp 53/udp
CMD [\"npm\", \"run\", \"dev\"]
FROM base
ARG ADMIN=8081
RUN <<EOF
EXPOSE 1
EOF
EXPOSE ${ADMIN} 7000-7001
ENTRYPOINT [\"docker-entrypoint.sh\"]
CMD node server.js --port $PORT
";
        let last = read(text, &[], None).unwrap();
        assert_eq!(last.ports, [3000, 8081, 7000, 7001]);
        assert_eq!(last.words(), ["docker-entrypoint.sh", "node", "server.js", "--port", "3000"]);
        assert_eq!(last.base, "node:20");
        assert_eq!(read(text, &[("ADMIN", "9000")], None).unwrap().ports, [3000, 9000, 7000, 7001]);
        let dev = read(text, &[("NODE", "22")], Some("dev")).unwrap();
        assert_eq!((dev.ports.as_slice(), dev.base.as_str()), (&[3000, 9229][..], "node:22"));
        assert_eq!(read(text, &[], Some("none")), None);
        assert_eq!(read("# nothing\n", &[], None), None);
    }

    #[test]
    fn odd_forms() {
        for (text, expected) in [
            ("FROM a\nENV PORT 80\nEXPOSE $PORT", vec![80]),
            ("from a\nexpose 80 80 443", vec![80, 443]),
            ("FROM a\nEXPOSE 8080:8080", vec![8080]),
            ("FROM a\nEXPOSE $UNKNOWN", vec![]),
            ("FROM a\nEXPOSE ${UNKNOWN:-90}", vec![90]),
            ("FROM a\nEXPOSE 99999 0 x 5-1", vec![]),
            ("FROM a\nENV P=\"1\" Q='2'\nEXPOSE ${P}${Q}", vec![12]),
            ("EXPOSE 80\nFROM a", vec![]),
        ] {
            assert_eq!(read(text, &[], None).unwrap().ports, expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,80}", dense in "(FROM a|ENV A=|ARG |EXPOSE |CMD |[$\\{\\}:+\"'\\\\ \n0-9-]){0,30}") {
            let _ = read(&text, &[], None);
            let _ = read(&format!("FROM x\n{dense}"), &[("A", "$A")], Some("a"));
        }
    }
}
