//! Secrets in plain text: logs, test output, messages.

use std::borrow::Cow;
use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use regex::{Captures, Regex};

use super::REDACTED;
use super::rules::Rules;

/// Compiles one of the fixed patterns, which the tests cover.
fn pattern(text: &str) -> Regex {
    Regex::new(text).unwrap_or_else(|error| unreachable!("{error}"))
}

/// `scheme://user:password@host`.
static USER: LazyLock<Regex> = LazyLock::new(|| pattern(r#"([a-zA-Z][a-zA-Z0-9+.-]*://)[^/\s"'<>@?#]*@"#));
/// `Bearer abc`, `Basic abc`.
static SCHEME: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?i)\b(bearer|basic)(\s+)([a-z0-9._~+/=-]{6,})"));
/// `Authorization: anything to the end of the line`.
static HEADER: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r#"(?i)\b((?:proxy-)?authorization|(?:set-)?cookie|(?:x-)?[a-z-]*(?:api-key|auth-token|access-token|csrf-token|secret)[a-z-]*)(["']?\s*[:=]\s*["']?)([^\r\n"']+)"#,
    )
});
/// `"password": "abc"`.
static QUOTED: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r#"(["'])([A-Za-z0-9_.-]{1,64})(["']\s*:\s*)("(?:[^"\\]|\\.)*"?|'[^']*'?|[0-9]+)"#)
});
/// `password=abc`.
static PAIR: LazyLock<Regex> =
    LazyLock::new(|| pattern(r#"([A-Za-z0-9_.%\[\]-]{1,64})=("[^"]*"|'[^']*'|[^\s&;"',<>]+)"#));

/// A text without its secrets; none if it has none.
pub(super) fn redact(text: &str, rules: &Rules) -> Option<String> {
    let mut shown = Cow::Borrowed(text);
    addresses(&mut shown);
    let may_be = |c: char| shown.contains(c);
    let (pairs, quoted) = (may_be('='), may_be(':'));
    if pairs || quoted {
        replace(&mut shown, &HEADER, |found| {
            (!found[3].starts_with(REDACTED)).then(|| format!("{}{}{REDACTED}", &found[1], &found[2]))
        });
    }
    if quoted {
        replace(&mut shown, &QUOTED, |found| {
            let value = found[4].trim_matches(['"', '\'']);
            let is_secret = rules.is_field(&found[2]) && !value.is_empty() && value != REDACTED;
            is_secret.then(|| format!("{0}{1}{2}\"{REDACTED}\"", &found[1], &found[2], &found[3]))
        });
    }
    if pairs {
        replace(&mut shown, &PAIR, |found| {
            let is_secret = rules.is_field(&found[1]) && !found[2].starts_with(REDACTED);
            is_secret.then(|| format!("{}={REDACTED}", &found[1]))
        });
    }
    owned(shown)
}

/// Redacts users in URLs and credentials after their scheme, which are secret in any text.
pub(super) fn credentials(text: &str) -> Option<String> {
    let mut shown = Cow::Borrowed(text);
    addresses(&mut shown);
    owned(shown)
}

fn addresses(shown: &mut Cow<'_, str>) {
    // Every tag of every span comes here. A single character is found many times faster than a word, and most texts
    // do not even have that.
    if shown.contains(':') && shown.contains("://") {
        replace(shown, &USER, |found| {
            (!found[0].ends_with("//[redacted]@")).then(|| format!("{}{REDACTED}@", &found[1]))
        });
    }
    if names_scheme(shown.as_bytes()) {
        replace(shown, &SCHEME, |found| {
            is_credential(&found[1], &found[3]).then(|| format!("{}{}{REDACTED}", &found[1], &found[2]))
        });
    }
}

/// Whether `basic` or `bearer` occurs, in any case.
fn names_scheme(text: &[u8]) -> bool {
    let begins =
        |rest: &[u8], word: &[u8]| rest.get(..word.len()).is_some_and(|w| w.eq_ignore_ascii_case(word));
    let mut places = text.iter().enumerate().filter(|(_, byte)| byte.eq_ignore_ascii_case(&b'b'));
    places.any(|(at, _)| begins(&text[at..], b"bearer") || begins(&text[at..], b"basic"))
}

/// Whether the word after a scheme is a credential, unlike in "Basic authentication" and "bearer token".
fn is_credential(scheme: &str, text: &str) -> bool {
    if scheme.eq_ignore_ascii_case("basic") {
        let decoded = STANDARD.decode(text).or_else(|_| STANDARD_NO_PAD.decode(text));
        return decoded.is_ok_and(|bytes| bytes.contains(&b':'));
    }
    let is_odd = |c: char| c.is_ascii_digit() || c.is_ascii_uppercase() || matches!(c, '.' | '_' | '-');
    text.len() >= 8 && text.chars().skip(1).any(is_odd)
}

fn replace(shown: &mut Cow<'_, str>, pattern: &Regex, with: impl Fn(&Captures<'_>) -> Option<String>) {
    let mut any = false;
    let replaced = pattern.replace_all(shown, |found: &Captures<'_>| match with(found) {
        Some(text) => {
            any = true;
            text
        }
        None => found[0].to_owned(),
    });
    if let (true, Cow::Owned(text)) = (any, replaced) {
        *shown = Cow::Owned(text);
    }
}

fn owned(shown: Cow<'_, str>) -> Option<String> {
    match shown {
        Cow::Owned(text) => Some(text),
        Cow::Borrowed(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_in_lines_are_hidden_and_ordinary_words_stay() {
        let rules = Rules::default();
        for (text, expected) in [
            ("GET http://ann:pw@shop/x?token=abc&a=1", "GET http://[redacted]@shop/x?token=[redacted]&a=1"),
            ("Authorization: Bearer abc.def-1\nnext", "Authorization: [redacted]\nnext"),
            ("got 'Bearer abc12345' from it", "got 'Bearer [redacted]' from it"),
            ("Basic dXNlcjpwYXNz", "Basic [redacted]"),
            (r#"{"user": "ann", "password": "x\"y"}"#, r#"{"user": "ann", "password": "[redacted]"}"#),
            ("{'api_key': 'k1', 'n': 2}", "{'api_key': \"[redacted]\", 'n': 2}"),
            ("db password=abc host=h", "db password=[redacted] host=h"),
            ("Set-Cookie: sid=1; Path=/", "Set-Cookie: [redacted]"),
        ] {
            assert_eq!(redact(text, &rules).as_deref(), Some(expected));
            assert_eq!(redact(expected, &rules), None, "once is enough");
        }
        for plain in [
            "",
            "unexpected token: `}` at line 3",
            "use Basic authentication or a bearer token",
            "balance 90 != 100",
            "http://shop/a@b?x=1",
            "status=200 took=5ms",
        ] {
            assert_eq!(redact(plain, &rules), None, "{plain}");
        }
    }
}
