//! Variables in texts, as Compose replaces them: `$NAME`, `${NAME:-default}`, `${NAME:?error}`, `$$`.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

/// The most bytes one value may become: no operating system hands over a longer variable.
const MAX_VALUE: usize = 128 << 10;

/// The most bytes all values of an import may become together; ten lines could otherwise fill the memory.
const MAX_TOTAL: usize = 32 << 20;

/// How deep defaults may nest.
const MAX_DEPTH: usize = 32;

/// Replaces variables, counts what it made and remembers what was missing.
#[derive(Debug, Default)]
pub(super) struct Interpolation {
    made: Cell<usize>,
    missing: RefCell<BTreeSet<String>>,
}

impl Interpolation {
    /// Replaces all variables of a text by what `lookup` says.
    pub(super) fn expand(
        &self,
        text: &str,
        lookup: &dyn Fn(&str) -> Option<String>,
    ) -> Result<String, String> {
        self.expand_nested(text, lookup, 0)
    }

    /// Names that were used without a default and had no value.
    pub(super) fn missing(&self) -> Vec<String> {
        self.missing.borrow().iter().cloned().collect()
    }

    fn expand_nested(
        &self,
        text: &str,
        lookup: &dyn Fn(&str) -> Option<String>,
        depth: usize,
    ) -> Result<String, String> {
        if depth > MAX_DEPTH {
            return Err(format!("defaults nest deeper than {MAX_DEPTH}"));
        }
        // The default may be the hash of a password, `$2a$14$...`, which nobody escapes.
        if depth > 0 && has_digit_after_dollar(text) {
            return Ok(text.to_owned());
        }
        let mut out = String::new();
        let mut rest = text;
        while let Some(dollar) = rest.find('$') {
            out.push_str(&rest[..dollar]);
            rest = &rest[dollar + 1..];
            if let Some(after) = rest.strip_prefix('$') {
                out.push('$');
                rest = after;
            } else if let Some(after) = rest.strip_prefix('{') {
                let end =
                    closing_brace(after).ok_or_else(|| format!("`${{{}` is not closed", short(after)))?;
                out.push_str(&self.braced(&after[..end], lookup, depth)?);
                rest = &after[end + 1..];
            } else {
                let name = &rest[..name_length(rest)];
                // Compose leaves `$(date)`, `$1` and a lonely dollar sign as they are.
                if name.is_empty() {
                    out.push('$');
                } else {
                    out.push_str(&self.value_or_missing(name, lookup));
                }
                rest = &rest[name.len()..];
            }
            if out.len() > MAX_VALUE {
                return Err(format!("the value becomes longer than {MAX_VALUE} bytes"));
            }
        }
        out.push_str(rest);
        self.made.set(self.made.get() + out.len());
        if self.made.get() > MAX_TOTAL {
            return Err(format!("all values together become longer than {MAX_TOTAL} bytes"));
        }
        Ok(out)
    }

    /// What stands between `${` and `}`.
    fn braced(
        &self,
        inner: &str,
        lookup: &dyn Fn(&str) -> Option<String>,
        depth: usize,
    ) -> Result<String, String> {
        let name = &inner[..name_length(inner)];
        if name.is_empty() {
            return Err(format!("`${{{}}}` names no variable", short(inner)));
        }
        let operation = &inner[name.len()..];
        if operation.is_empty() {
            return Ok(self.value_or_missing(name, lookup));
        }
        // With a colon an empty value counts as none.
        let (empty_is_none, operation) = match operation.strip_prefix(':') {
            Some(operation) => (true, operation),
            None => (false, operation),
        };
        let value = lookup(name).filter(|value| !(empty_is_none && value.is_empty()));
        let mut characters = operation.chars();
        let operator = characters.next();
        let word = characters.as_str();
        match (operator, value) {
            (Some('-' | '?'), Some(value)) => Ok(value),
            (Some('-'), None) | (Some('+'), Some(_)) => self.expand_nested(word, lookup, depth + 1),
            (Some('+'), None) => Ok(String::new()),
            (Some('?'), None) => {
                let message = self.expand_nested(word, lookup, depth + 1)?;
                let message = if message.is_empty() { "a value is required".to_owned() } else { message };
                Err(format!("variable `{name}` is not set: {message}"))
            }
            _ => Err(format!("`${{{}}}` is not a form of Compose", short(inner))),
        }
    }

    fn value_or_missing(&self, name: &str, lookup: &dyn Fn(&str) -> Option<String>) -> String {
        lookup(name).unwrap_or_else(|| {
            self.missing.borrow_mut().insert(name.to_owned());
            String::new()
        })
    }
}

fn has_digit_after_dollar(text: &str) -> bool {
    text.as_bytes().windows(2).any(|pair| pair[0] == b'$' && pair[1].is_ascii_digit())
}

/// How many bytes at the start of a text are a variable's name.
fn name_length(text: &str) -> usize {
    if text.starts_with(|c: char| c.is_ascii_digit()) {
        return 0;
    }
    text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(text.len())
}

/// Where the brace that was opened before `text` closes. Braces of a default, such as JSON, come in pairs.
fn closing_brace(text: &str) -> Option<usize> {
    let mut open = 1_usize;
    for (index, byte) in text.bytes().enumerate() {
        match byte {
            b'{' => open += 1,
            b'}' => open -= 1,
            _ => {}
        }
        if open == 0 {
            return Some(index);
        }
    }
    None
}

fn short(text: &str) -> String {
    text.chars().take(30).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lookup(name: &str) -> Option<String> {
        match name {
            "SET" => Some("set".to_owned()),
            "EMPTY" => Some(String::new()),
            "_X1" => Some("x".to_owned()),
            _ => None,
        }
    }

    #[test]
    fn the_table_of_compose() {
        for (text, expected) in [
            ("plain", "plain"),
            ("$SET", "set"),
            ("${SET}", "set"),
            ("a${SET}b$SET-c", "asetbset-c"),
            ("$_X1.", "x."),
            ("$NONE|${NONE}|", "||"),
            ("${SET:-x}", "set"),
            ("${EMPTY:-x}", "x"),
            ("${NONE:-x}", "x"),
            ("${SET-x}", "set"),
            ("${EMPTY-x}", ""),
            ("${NONE-x}", "x"),
            ("${NONE:-}", ""),
            ("${SET:?no}", "set"),
            ("${SET?no}", "set"),
            ("${EMPTY?no}", ""),
            ("${SET:+y}", "y"),
            ("${EMPTY:+y}", ""),
            ("${EMPTY+y}", "y"),
            ("${NONE+y}", ""),
            ("${NONE:-${SET}}", "set"),
            ("${NONE:-${EMPTY:-${NONE-deep}}}", "deep"),
            ("${NONE:-a $SET b}", "a set b"),
            ("${SET:-${NONE:?never asked}}", "set"),
            ("${NONE:-{\"a\": 1}}", "{\"a\": 1}"),
            ("${NONE:-http://x:80/?a=b}", "http://x:80/?a=b"),
            ("$$SET", "$SET"),
            ("$$$SET", "$set"),
            ("$${SET}", "${SET}"),
            ("100 %{x}", "100 %{x}"),
            ("$", "$"),
            ("$ x", "$ x"),
            ("$1 $(date) '$' $SET", "$1 $(date) '$' set"),
            ("${NONE:-$2a$14$abc.DEF/}", "$2a$14$abc.DEF/"),
        ] {
            assert_eq!(Interpolation::default().expand(text, &lookup).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn refusals() {
        for (text, part) in [
            ("${NONE:?give it}", "variable `NONE` is not set: give it"),
            ("${EMPTY:?}", "a value is required"),
            ("${NONE?}", "a value is required"),
            ("${NONE:?use ${SET}}", "use set"),
            ("${}", "names no variable"),
            ("${SET", "is not closed"),
            ("${SET!x}", "not a form"),
            ("${SET:}", "not a form"),
        ] {
            let error = Interpolation::default().expand(text, &lookup).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
        let deep = "${N:-".repeat(100) + &"}".repeat(100);
        assert!(Interpolation::default().expand(&deep, &lookup).is_err());
    }

    #[test]
    fn missing_ones_are_remembered_and_growth_is_bounded() {
        let interpolation = Interpolation::default();
        interpolation.expand("$B $A ${C:-x} $A", &lookup).unwrap();
        assert_eq!(interpolation.missing(), ["A", "B"]);
        let large = |_: &str| Some("x".repeat(100 << 10));
        assert!(interpolation.expand("$A$A", &large).is_err());
        assert!((0..1000).any(|_| interpolation.expand("$A", &large).is_err()));
    }
}
