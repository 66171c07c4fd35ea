//! Secrets in SQL: values of columns with secret names, and those of users.

use std::ops::Range;

use super::names::SecretNames;

/// More columns or rows are not looked at.
const MAX_COLUMNS: usize = 256;
const MAX_ROWS: usize = 256;
/// The longest list in brackets that is read.
const MAX_STATEMENT: usize = 16 << 10;

/// The values that an `INSERT INTO` writes to columns with secret names; `at` is behind these words.
pub(super) fn inserted_values(text: &[u8], at: usize, names: &SecretNames) -> Vec<Range<usize>> {
    collect(text, at, names).unwrap_or_default()
}

fn collect(text: &[u8], at: usize, names: &SecretNames) -> Option<Vec<Range<usize>>> {
    let open = at + text[at..].iter().take(256).position(|byte| *byte == b'(')?;
    let (columns, end) = elements(text, open)?;
    let is_secret = |column: &Range<usize>, value: &[u8]| {
        let name = String::from_utf8_lossy(&text[column.clone()]);
        let name = name.trim_matches(|c: char| c.is_whitespace() || "`\"'[]\\".contains(c));
        names.is_secret_field(name, value)
    };
    let mut found = Vec::new();
    let mut next = end;
    for _ in 0..MAX_ROWS {
        // `VALUES` before the first row, a comma before each other one.
        let Some(gap) = text[next..].iter().take(64).position(|byte| *byte == b'(') else { break };
        let (values, end) = elements(text, next + gap)?;
        for (column, value) in columns.iter().zip(values) {
            if let Some(literal) = literal(text, value)
                && is_secret(column, &text[literal.clone()])
            {
                found.push(literal);
            }
        }
        next = end;
        if text[next..].trim_ascii_start().first() != Some(&b',') {
            break;
        }
    }
    Some(found)
}

/// The parts between commas in brackets, and where the brackets end. The last part may be cut off.
fn elements(text: &[u8], open: usize) -> Option<(Vec<Range<usize>>, usize)> {
    let mut parts = Vec::new();
    let (mut start, mut depth, mut quote) = (open + 1, 0usize, None);
    let text = &text[..text.len().min(open + MAX_STATEMENT)];
    for (at, &byte) in text.iter().enumerate().skip(open + 1) {
        match (quote, byte) {
            (Some(mark), _) if byte == mark => quote = None,
            (Some(_), _) => {}
            (None, b'\'') => quote = Some(byte),
            (None, b'(') => depth += 1,
            (None, b')') if depth > 0 => depth -= 1,
            (None, b',') if depth == 0 => {
                parts.push(start..at);
                start = at + 1;
            }
            (None, b')') => {
                parts.push(start..at);
                return Some((parts, at + 1));
            }
            _ => {}
        }
        if parts.len() > MAX_COLUMNS {
            return None;
        }
    }
    parts.push(start..text.len());
    Some((parts, text.len()))
}

/// What is between the quotes of a literal.
fn literal(text: &[u8], part: Range<usize>) -> Option<Range<usize>> {
    let content = &text[part.clone()];
    let open = content.iter().position(|byte| *byte == b'\'')?;
    let start = part.start + open + 1;
    let close =
        content[open + 1..].iter().rposition(|byte| *byte == b'\'').unwrap_or(content.len() - open - 1);
    Some(start..start + close)
}

/// The password in `IDENTIFIED BY 'x'` and `IDENTIFIED WITH plugin BY 'x'`; `at` is behind the first word.
pub(super) fn identified_by(text: &[u8], at: usize) -> Option<Range<usize>> {
    let rest = &text[at..text.len().min(at + 128)];
    let quote = rest.iter().position(|byte| b"'\"".contains(byte))?;
    let before = rest[..quote].to_ascii_lowercase();
    let before = before.strip_suffix(b"\\").unwrap_or(&before).trim_ascii_end();
    let has_word = [&b"by"[..], b"as", b"by password"].iter().any(|word| before.ends_with(word));
    let start = at + quote + 1;
    let end =
        start + text[start..].iter().position(|byte| *byte == rest[quote]).unwrap_or(text.len() - start);
    has_word.then_some(start..end)
}
