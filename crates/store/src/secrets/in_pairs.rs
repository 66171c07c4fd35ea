//! Secrets in names with values: URL queries, forms and multipart fields.

use faultscope_model::secrets::{SecretNames, Suspicion};

use super::REDACTED;

/// A URL or path without its secrets; none if it has none.
pub(super) fn address(text: &str, rules: &SecretNames, found: &mut dyn FnMut(&[u8])) -> Option<String> {
    let (before, rest) = text.split_at(text.find(['?', '#'])?);
    let mut out = before.to_owned();
    let mut any = false;
    // Query and fragment have the same syntax.
    for part in rest.split_inclusive(['?', '#']) {
        let (pairs, mark) = match part.char_indices().next_back() {
            Some((at, mark @ ('?' | '#'))) => (&part[..at], Some(mark)),
            _ => (part, None),
        };
        match form(pairs, rules, found) {
            Some(redacted) => {
                any = true;
                out += &redacted;
            }
            None => out += pairs,
        }
        out.extend(mark);
    }
    any.then_some(out)
}

/// `a=b&c=d` without its secrets; none if it has none.
pub(super) fn form(text: &str, rules: &SecretNames, found: &mut dyn FnMut(&[u8])) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut any = false;
    for piece in text.split_inclusive(['&', ';']) {
        let end = piece.trim_end_matches(['&', ';']).len();
        let (pair, mark) = piece.split_at(end);
        match pair.split_once('=') {
            Some((name, value)) if is_secret(rules, name, value) => {
                any = true;
                found(decoded(value).as_bytes());
                out += name;
                out += "=";
                out += REDACTED;
            }
            _ => out += pair,
        }
        out += mark;
    }
    any.then_some(out)
}

fn is_secret(rules: &SecretNames, name: &str, value: &str) -> bool {
    // A name without a secret word needs no decoding of its value.
    let name = decoded(name);
    rules.field_suspicion(&name) != Suspicion::None && rules.is_secret_pair(&name, decoded(value).as_bytes())
}

/// Whether a body looks like a form: names and values without spaces or brackets.
pub(super) fn is_form(text: &str) -> bool {
    text.contains('=') && !text.contains(|c: char| c.is_whitespace() || matches!(c, '<' | '{' | '"'))
}

/// A multipart body without the content of its secret fields; none if it has none. Bytes, since files may be among the
/// parts.
pub(super) fn multipart(body: &[u8], rules: &SecretNames, found: &mut dyn FnMut(&[u8])) -> Option<Vec<u8>> {
    let begin = body.trim_ascii_start();
    let line = &begin[..begin.iter().take(128).position(|byte| b"\r\n".contains(byte))?];
    if !line.starts_with(b"--") || line.len() < 3 {
        return None;
    }
    let mut out = Vec::with_capacity(body.len());
    let (mut at, mut copied) = (0, 0);
    while let Some(place) = find(&body[at..], line) {
        let part = at + place + line.len();
        let end = find(&body[part..], line).map_or(body.len(), |next| part + next);
        at = end;
        let Some(start) = find(&body[part..end], b"\r\n\r\n")
            .map(|gap| part + gap + 4)
            .or_else(|| find(&body[part..end], b"\n\n").map(|gap| part + gap + 2))
        else {
            continue;
        };
        let head = String::from_utf8_lossy(&body[part..start]);
        let name = head
            .split_once(" name=")
            .or_else(|| head.split_once(";name="))
            .or_else(|| head.split_once("name="));
        let Some(name) = name.map(|(_, rest)| field_name(rest)) else { continue };
        let content = &body[start..end];
        let content = content.strip_suffix(b"\n").unwrap_or(content);
        let content = content.strip_suffix(b"\r").unwrap_or(content);
        if rules.is_secret_pair(name, content) {
            found(content);
            out.extend_from_slice(&body[copied..start]);
            out.extend_from_slice(REDACTED.as_bytes());
            copied = start + content.len();
        }
    }
    if copied == 0 {
        return None;
    }
    out.extend_from_slice(&body[copied..]);
    Some(out)
}

/// A name with or without quotes.
fn field_name(text: &str) -> &str {
    match text.strip_prefix('"') {
        Some(quoted) => quoted.split('"').next().unwrap_or_default(),
        None => text.split([';', '\r', '\n', ' ']).next().unwrap_or_default(),
    }
}

fn find(text: &[u8], word: &[u8]) -> Option<usize> {
    text.windows(word.len()).position(|window| window == word)
}

/// Decodes the escapes of a form.
fn decoded(text: &str) -> String {
    if !text.contains(['%', '+']) {
        return text.to_owned();
    }
    let mut out = Vec::with_capacity(text.len());
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let digits =
            bytes.get(at + 1..at + 3).filter(|_| byte == b'%').and_then(|d| std::str::from_utf8(d).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(escaped) => {
                out.push(escaped);
                at += 3;
            }
            None => {
                out.push(if byte == b'+' { b' ' } else { byte });
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_secret_names_are_hidden() {
        let rules = SecretNames::default();
        let mut seen = Vec::new();
        let mut found = |value: &[u8]| seen.push(String::from_utf8_lossy(value).into_owned());
        assert_eq!(
            address("/a?token=x%2Fy&page=2&access%5Ftoken=z#id_token=q", &rules, &mut found).unwrap(),
            "/a?token=[redacted]&page=2&access%5Ftoken=[redacted]#id_token=[redacted]"
        );
        assert_eq!(
            form("user=ann&password=p+w&x", &rules, &mut found).unwrap(),
            "user=ann&password=[redacted]&x"
        );
        assert_eq!(
            multipart(b"--b\r\ncontent-disposition: form-data; name=\"password\"\r\n\r\npw1\r\n--b\r\nname=\"x\"\r\n\r\n1\r\n--b--", &rules, &mut found)
                .unwrap(),
            b"--b\r\ncontent-disposition: form-data; name=\"password\"\r\n\r\n[redacted]\r\n--b\r\nname=\"x\"\r\n\r\n1\r\n--b--"
        );
        assert_eq!(seen, ["x/y", "z", "q", "p w", "pw1"]);
        for plain in ["", "/a", "/a?", "/a?page=2", "/a?token=", "/a?token", "/token=1", "?token=[redacted]"]
        {
            assert_eq!(address(plain, &rules, &mut |_| {}), None, "{plain}");
        }
    }
}
