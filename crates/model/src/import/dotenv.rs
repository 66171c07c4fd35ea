//! Environment files: `NAME=value` lines, as Compose reads `.env` and `env_file`.

use super::interpolate::Interpolation;

/// How values are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reading {
    /// Quotes are taken away and variables replaced, as in Compose.
    Expanding,
    /// Quotes are taken away, as foreman does.
    Literal,
    /// Everything after `=` is the value.
    Raw,
}

/// Names with their values, in the order of the file.
pub(super) type Entries = Vec<(String, Option<String>)>;

/// Reads an environment file. A name without `=` has no value: it is to be taken from the environment.
///
/// `outer` is asked before the file's own earlier lines, as Compose does.
pub(super) fn parse(
    text: &str,
    reading: Reading,
    interpolation: &Interpolation,
    outer: &dyn Fn(&str) -> Option<String>,
) -> Result<Entries, (u32, String)> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut entries: Vec<(String, Option<String>)> = Vec::new();
    let mut rest = text;
    let mut line: u32 = 0;
    while !rest.is_empty() {
        line = line.saturating_add(1);
        let at = |message: String| (line, message);
        let (current, mut after) = rest.split_once('\n').unwrap_or((rest, ""));
        let current = current.trim();
        rest = after;
        if current.is_empty() || current.starts_with('#') {
            continue;
        }
        let current = match current.strip_prefix("export") {
            Some(name) if name.starts_with([' ', '\t']) => name.trim_start(),
            _ => current,
        };
        let length = current.find(['=', ':', ' ', '\t', '#']).unwrap_or(current.len());
        let name = &current[..length];
        // Dots and dashes occur in the wild; a space inside does not make sense.
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-' | '[' | ']' | '/');
        if name.is_empty() || !name.chars().all(plain) {
            return Err(at(format!(
                "`{}` is not a variable name",
                name.chars().take(40).collect::<String>()
            )));
        }
        let tail = current[length..].trim_start();
        let Some(value) = tail.strip_prefix(['=', ':']) else {
            if !tail.is_empty() && !tail.starts_with('#') {
                return Err(at(format!("`{name}` is not followed by `=`")));
            }
            entries.push((name.to_owned(), None));
            continue;
        };
        let value = value.trim_start();
        let value = if reading == Reading::Raw {
            value.to_owned()
        } else if let Some(quote) = value.chars().next().filter(|c| matches!(c, '"' | '\'')) {
            // A quoted value may go on over lines; take it from where it starts in the whole text.
            let start = value.as_ptr() as usize - text.as_ptr() as usize + 1;
            let end = quote_end(&text[start..], quote)
                .ok_or_else(|| at(format!("the quote of `{name}` is not closed")))?;
            let quoted = &text[start..start + end];
            line = line.saturating_add(u32::try_from(quoted.matches('\n').count()).unwrap_or(0));
            after = text[start + end + 1..].split_once('\n').map_or("", |(_, after)| after);
            rest = after;
            match quote {
                '\'' => quoted.to_owned(),
                _ if reading == Reading::Literal => unescape(quoted, "$"),
                // The interpolation reads two dollar signs as one.
                _ => {
                    expand(&entries, &unescape(quoted, "$$"), interpolation, outer).map_err(|m| (line, m))?
                }
            }
        } else {
            let end = comment_start(value);
            let value = value[..end].trim_end();
            match reading {
                Reading::Expanding => expand(&entries, value, interpolation, outer).map_err(at)?,
                Reading::Literal | Reading::Raw => value.to_owned(),
            }
        };
        entries.push((name.to_owned(), Some(value)));
    }
    Ok(entries)
}

fn expand(
    earlier: &[(String, Option<String>)],
    value: &str,
    interpolation: &Interpolation,
    outer: &dyn Fn(&str) -> Option<String>,
) -> Result<String, String> {
    if !value.contains('$') {
        return Ok(value.to_owned());
    }
    interpolation.expand(value, &|name| {
        outer(name).or_else(|| earlier.iter().rev().find(|(n, _)| n == name).and_then(|(_, v)| v.clone()))
    })
}

fn quote_end(text: &str, quote: char) -> Option<usize> {
    let mut escaped = false;
    for (index, c) in text.char_indices() {
        if c == quote && !escaped {
            return Some(index);
        }
        escaped = c == '\\' && !escaped && quote == '"';
    }
    None
}

/// Where an unquoted value ends: at a `#` after a blank.
fn comment_start(value: &str) -> usize {
    if value.starts_with('#') {
        return 0;
    }
    value.find(" #").or_else(|| value.find("\t#")).unwrap_or(value.len())
}

fn unescape(text: &str, dollar: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(c) = characters.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match characters.next() {
            Some('n') => out.push('\n'),
            Some('r') => out.push('\r'),
            Some('t') => out.push('\t'),
            Some(c @ ('"' | '\\')) => out.push(c),
            Some('$') => out.push_str(dollar),
            Some(c) => out.extend(['\\', c]),
            None => out.push('\\'),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Entries, (u32, String)> {
        parse(text, Reading::Expanding, &Interpolation::default(), &|name| {
            (name == "OUT").then(|| "outer".to_owned())
        })
    }

    #[test]
    fn forms() {
        for (text, expected) in [
            ("A=1", Some("1")),
            ("A = 1 ", Some("1")),
            ("export A=1", Some("1")),
            ("A: 1", Some("1")),
            ("A=", Some("")),
            ("A", None),
            ("A=1 # note", Some("1")),
            ("A=1#2", Some("1#2")),
            ("A='$OUT # x'", Some("$OUT # x")),
            ("A=\"$OUT # x\\n\" # y", Some("outer # x\n")),
            ("A=\"1\n2\"", Some("1\n2")),
            ("A=$OUT-${NONE:-d}", Some("outer-d")),
            ("A=\"\\$OUT\"", Some("$OUT")),
            ("# c\n\nA=x=y\r\n", Some("x=y")),
        ] {
            let entries = read(text).unwrap();
            assert_eq!(entries, [("A".to_owned(), expected.map(str::to_owned))], "{text}");
        }
        let entries = read("A=1\nB=\"x\ny\"\nC=$A").unwrap();
        assert_eq!(entries[2], ("C".to_owned(), Some("1".to_owned())));
    }

    #[test]
    fn refusals_name_the_line() {
        for (text, line) in [("A=1\n=2", 2), ("A=\"x", 1), ("\n\nA B=1", 3), ("A=\"1\n2\"\nB=${}", 3)] {
            assert_eq!(read(text).unwrap_err().0, line, "{text}");
        }
    }

    #[test]
    fn foreman_replaces_nothing() {
        let read =
            |text| parse(text, Reading::Literal, &Interpolation::default(), &|_| None).unwrap()[0].1.clone();
        assert_eq!(read("A=a$ $B # y").as_deref(), Some("a$ $B"));
        assert_eq!(read(r#"A="\$B\n""#).as_deref(), Some("$B\n"));
    }

    #[test]
    fn raw_keeps_everything() {
        let entries = parse("A=\"$X\" # y", Reading::Raw, &Interpolation::default(), &|_| None).unwrap();
        assert_eq!(entries[0].1.as_deref(), Some("\"$X\" # y"));
    }
}
