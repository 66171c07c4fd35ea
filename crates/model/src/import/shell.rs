//! Words as a POSIX shell splits them, without expanding anything.

/// Splits a text into words by blanks, quotes and backslashes. Nothing is expanded.
pub(crate) fn split_words(text: &str) -> Result<Vec<String>, &'static str> {
    let mut words = Vec::new();
    // None between words, so that `''` is a word of its own.
    let mut word: Option<String> = None;
    let mut characters = text.chars();
    while let Some(c) = characters.next() {
        match c {
            ' ' | '\t' | '\n' | '\r' => words.extend(word.take()),
            '\'' => {
                let target = word.get_or_insert_default();
                loop {
                    match characters.next() {
                        Some('\'') => break,
                        Some(c) => target.push(c),
                        None => return Err("a single quote is not closed"),
                    }
                }
            }
            '"' => {
                let target = word.get_or_insert_default();
                loop {
                    match characters.next() {
                        Some('"') => break,
                        Some('\\') => match characters.next() {
                            Some(c @ ('"' | '\\' | '$' | '`')) => target.push(c),
                            Some('\n') => {}
                            Some(c) => target.extend(['\\', c]),
                            None => return Err("a double quote is not closed"),
                        },
                        Some(c) => target.push(c),
                        None => return Err("a double quote is not closed"),
                    }
                }
            }
            '\\' => match characters.next() {
                Some('\n') => {}
                Some(c) => word.get_or_insert_default().push(c),
                None => return Err("a backslash ends the text"),
            },
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    Ok(words)
}

/// Whether a text means something to a shell beyond its words: variables, pipes, redirections, globs.
pub(crate) fn needs_shell(text: &str) -> bool {
    let mut quoted = false;
    let mut characters = text.chars();
    let mut at_word_start = true;
    let mut first_word = true;
    while let Some(c) = characters.next() {
        match c {
            '\'' => quoted = !quoted,
            _ if quoted => {}
            '\\' => {
                characters.next();
            }
            '$' | '`' | '|' | '&' | ';' | '<' | '>' | '(' | ')' | '*' | '?' | '[' | '{' => return true,
            '~' | '#' if at_word_start => return true,
            // `NAME=value program` sets a variable for the program.
            '=' if first_word => return true,
            _ => {}
        }
        at_word_start = c.is_whitespace();
        first_word &= !c.is_whitespace();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words() {
        for (text, expected) in [
            ("", &[] as &[&str]),
            ("a b  c", &["a", "b", "c"]),
            ("a 'b c' \"d e\"", &["a", "b c", "d e"]),
            ("a\\ b", &["a b"]),
            ("x='1 2'", &["x=1 2"]),
            ("'' \"\"", &["", ""]),
            (r#""\"\n""#, &[r#""\n"#]),
            ("a \\\n b", &["a", "b"]),
            ("$HOME *", &["$HOME", "*"]),
        ] {
            assert_eq!(split_words(text).unwrap(), expected, "{text}");
        }
        for bad in ["'a", "\"a", "a\\", "\"a\\"] {
            assert!(split_words(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn shells() {
        for text in ["a $B", "a | b", "a && b", "X=1 a", "a > b", "~/a", "a *.txt", "a \"$B\""] {
            assert!(needs_shell(text), "{text}");
        }
        for text in ["a b", "a '$B'", "a --x=1", "a \\$B", "a b~"] {
            assert!(!needs_shell(text), "{text}");
        }
    }
}
