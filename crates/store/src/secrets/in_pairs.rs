//! Secrets in names with values: URL queries, forms and multipart fields.

use super::REDACTED;
use super::rules::Rules;

/// A URL or path without its secrets; none if it has none.
pub(super) fn address(text: &str, rules: &Rules, found: &mut dyn FnMut(&[u8])) -> Option<String> {
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
pub(super) fn form(text: &str, rules: &Rules, found: &mut dyn FnMut(&[u8])) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut any = false;
    for piece in text.split_inclusive(['&', ';']) {
        let end = piece.trim_end_matches(['&', ';']).len();
        let (pair, mark) = piece.split_at(end);
        match pair.split_once('=') {
            Some((name, value))
                if !value.is_empty() && value != REDACTED && rules.is_field(&decoded(name)) =>
            {
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

/// Whether a body looks like a form: names and values without spaces or brackets.
pub(super) fn is_form(text: &str) -> bool {
    text.contains('=') && !text.contains(|c: char| c.is_whitespace() || matches!(c, '<' | '{' | '"'))
}

/// A multipart body without the content of its secret fields; none if it has none.
pub(super) fn multipart(text: &str, rules: &Rules, found: &mut dyn FnMut(&[u8])) -> Option<String> {
    let boundary =
        text.trim_start().lines().next().filter(|line| line.starts_with("--") && line.len() > 2)?;
    let mut out = String::with_capacity(text.len());
    let mut any = false;
    for (number, part) in text.split(boundary).enumerate() {
        if number > 0 {
            out += boundary;
        }
        let name =
            part.split_once("name=\"").and_then(|(_, rest)| rest.split_once('"')).map(|(name, _)| name);
        let content = part.find("\r\n\r\n").map(|at| at + 4).or_else(|| part.find("\n\n").map(|at| at + 2));
        match content {
            Some(at) if name.is_some_and(|name| rules.is_field(name)) && part[at..].trim() != REDACTED => {
                let value = part[at..].trim_end_matches(['\r', '\n']);
                any = true;
                found(value.as_bytes());
                out += &part[..at];
                out += REDACTED;
                out += &part[at + value.len()..];
            }
            _ => out += part,
        }
    }
    any.then_some(out)
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
        let rules = Rules::default();
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
            multipart("--b\r\ncontent-disposition: form-data; name=\"password\"\r\n\r\npw1\r\n--b\r\nname=\"x\"\r\n\r\n1\r\n--b--", &rules, &mut found)
                .unwrap(),
            "--b\r\ncontent-disposition: form-data; name=\"password\"\r\n\r\n[redacted]\r\n--b\r\nname=\"x\"\r\n\r\n1\r\n--b--"
        );
        assert_eq!(seen, ["x/y", "z", "q", "p w", "pw1"]);
        for plain in ["", "/a", "/a?", "/a?page=2", "/a?token=", "/a?token", "/token=1", "?token=[redacted]"]
        {
            assert_eq!(address(plain, &rules, &mut |_| {}), None, "{plain}");
        }
    }
}
