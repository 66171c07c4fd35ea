//! Secret fields of JSON bodies. Recorded bodies may be cut off, so the parser works on incomplete JSON and
//! keeps all other bytes as they are.

use faultscope_model::secrets::{SecretNames, Suspicion};

/// Deeper values are copied as they are.
const MAX_DEPTH: usize = 64;

const HIDDEN: &[u8] = b"\"[redacted]\"";

/// The body without its secrets; none if it has none. Secret values are passed to `found`.
pub(super) fn redact(body: &[u8], rules: &SecretNames, found: &mut dyn FnMut(&[u8])) -> Option<Vec<u8>> {
    let begin = body.len() - without_mark(body).len();
    let mut scan =
        Scan { bytes: body, at: begin, out: Vec::new(), copied: 0, rules, path: Vec::new(), found };
    // Several values may follow one another, one per line.
    while scan.skip_space().is_some() && scan.value(0).is_some() {}
    if scan.copied == 0 {
        return None;
    }
    scan.out.extend(&body[scan.copied.min(body.len())..]);
    Some(scan.out)
}

/// Whether a body looks like JSON. Some clients write a byte order mark before it.
pub(super) fn is_json(body: &[u8]) -> bool {
    matches!(without_mark(body).trim_ascii_start().first(), Some(b'{' | b'['))
}

fn without_mark(body: &[u8]) -> &[u8] {
    body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body)
}

struct Scan<'b> {
    bytes: &'b [u8],
    at: usize,
    out: Vec<u8>,
    /// The bytes before this offset have been copied.
    copied: usize,
    rules: &'b SecretNames,
    path: Vec<String>,
    found: &'b mut dyn FnMut(&[u8]),
}

/// Methods return none where the body ends or is not JSON.
impl Scan<'_> {
    /// The next byte that is not white space.
    fn skip_space(&mut self) -> Option<u8> {
        while self.bytes.get(self.at)?.is_ascii_whitespace() {
            self.at += 1;
        }
        self.bytes.get(self.at).copied()
    }

    fn value(&mut self, depth: usize) -> Option<()> {
        match self.skip_space()? {
            b'{' if depth < MAX_DEPTH => self.object(depth),
            b'[' if depth < MAX_DEPTH => self.list(depth),
            b'{' | b'[' => None,
            b'"' => self.text().map(|_| ()),
            _ => self.word(),
        }
    }

    fn object(&mut self, depth: usize) -> Option<()> {
        self.at += 1;
        loop {
            match self.skip_space()? {
                b'}' => {
                    self.at += 1;
                    return Some(());
                }
                b',' => self.at += 1,
                b'"' => {
                    let (start, end) = self.text()?;
                    let name = unescaped(&self.bytes[start..end]);
                    if self.skip_space()? != b':' {
                        return None;
                    }
                    self.at += 1;
                    self.field(name, depth)?;
                }
                _ => return None,
            }
        }
    }

    fn field(&mut self, name: String, depth: usize) -> Option<()> {
        let mut suspicion = self.rules.field_suspicion(&name);
        if self.rules.has_paths() {
            self.path.push(name);
            if self.rules.is_path(&self.path) {
                suspicion = Suspicion::Certain;
            }
        }
        let done = match suspicion {
            Suspicion::None => self.value(depth + 1),
            suspicion => self.hide(suspicion, depth),
        };
        if self.rules.has_paths() {
            self.path.pop();
        }
        done
    }

    fn list(&mut self, depth: usize) -> Option<()> {
        self.at += 1;
        for place in 0usize.. {
            loop {
                match self.skip_space()? {
                    b']' => {
                        self.at += 1;
                        return Some(());
                    }
                    b',' => self.at += 1,
                    _ => break,
                }
            }
            if self.rules.has_paths() {
                self.field(place.to_string(), depth)?;
            } else {
                self.value(depth + 1)?;
            }
        }
        None
    }

    /// Skips a value and writes a placeholder instead, if the value is secret.
    fn hide(&mut self, suspicion: Suspicion, depth: usize) -> Option<()> {
        let first = self.skip_space()?;
        let start = self.at;
        let is_container = matches!(first, b'{' | b'[');
        // `key` and `code` may name an object, whose fields have names of their own.
        if is_container && suspicion == Suspicion::IfRandom {
            return self.value(depth + 1);
        }
        let done = match first {
            b'"' => self.text().map(|_| ()),
            b'{' | b'[' => self.skip_container(),
            _ => self.word(),
        };
        let end = if done.is_some() { self.at } else { self.bytes.len() };
        let hidden = &self.bytes[start..end];
        let content =
            hidden.strip_prefix(b"\"").map_or(hidden, |text| text.strip_suffix(b"\"").unwrap_or(text));
        let is_secret = if is_container {
            // That there is none is no secret.
            hidden.iter().any(|byte| !b"{}[] \t\r\n".contains(byte))
        } else {
            suspicion.hides(content)
        };
        if is_secret {
            (self.found)(content);
            self.out.extend(&self.bytes[self.copied..start]);
            self.out.extend(HIDDEN);
            self.copied = end;
        }
        done
    }

    /// Skips an object or a list, whatever it contains.
    fn skip_container(&mut self) -> Option<()> {
        let mut depth = 0usize;
        loop {
            match self.skip_space()? {
                b'"' => {
                    self.text()?;
                }
                b'{' | b'[' => {
                    depth += 1;
                    self.at += 1;
                }
                b'}' | b']' => {
                    depth = depth.checked_sub(1)?;
                    self.at += 1;
                    if depth == 0 {
                        return Some(());
                    }
                }
                _ => self.at += 1,
            }
        }
    }

    /// Skips a string; returns the range of its content.
    fn text(&mut self) -> Option<(usize, usize)> {
        let start = self.at + 1;
        self.at = start;
        loop {
            match self.bytes.get(self.at)? {
                b'\\' => self.at += 2,
                b'"' => {
                    self.at += 1;
                    return Some((start, self.at - 1));
                }
                _ => self.at += 1,
            }
        }
    }

    /// Skips a number or a keyword.
    fn word(&mut self) -> Option<()> {
        let start = self.at;
        while self.bytes.get(self.at).is_some_and(|b| !b.is_ascii_whitespace() && !b",]}:\"".contains(b)) {
            self.at += 1;
        }
        (self.at > start).then_some(())
    }
}

fn unescaped(text: &[u8]) -> String {
    let plain = || String::from_utf8_lossy(text).into_owned();
    if !text.contains(&b'\\') {
        return plain();
    }
    let quoted = [b"\"", text, b"\""].concat();
    serde_json::from_slice(&quoted).unwrap_or_else(|_| plain())
}

#[cfg(test)]
mod tests {
    use faultscope_model::SecretRules;
    use proptest::prelude::*;

    use super::*;

    fn redacted(body: &str, fields: &[&str]) -> Option<String> {
        let fields = fields.iter().map(|f| (*f).to_owned()).collect();
        let rules = SecretNames::new(&SecretRules { fields, ..SecretRules::default() });
        redact(body.as_bytes(), &rules, &mut |_| {}).map(|bytes| String::from_utf8(bytes).unwrap())
    }

    #[test]
    fn fields_are_hidden_and_the_rest_keeps_its_bytes() {
        for (body, expected) in [
            (
                r#"{"user": "ann", "password" : "p\"w", "n":1}"#,
                r#"{"user": "ann", "password" : "[redacted]", "n":1}"#,
            ),
            (
                r#"[{"a":[{"token":17}]},{"token":{"x":[1,"}"]}, "b":2}]"#,
                r#"[{"a":[{"token":"[redacted]"}]},{"token":"[redacted]", "b":2}]"#,
            ),
            (r#"{"password":"#, r#"{"password":"#),
            (r#"{"password":"cut o"#, r#"{"password":"[redacted]""#),
            (r#"{"pass\u0077ord":"x"}"#, r#"{"pass\u0077ord":"[redacted]"}"#),
            (
                r#"{"token":"a"}
{"token":"b"}"#,
                "{\"token\":\"[redacted]\"}\n{\"token\":\"[redacted]\"}",
            ),
        ] {
            assert_eq!(redacted(body, &[]).as_deref().unwrap_or(body), expected);
        }
        for plain in ["", "{", r#"{"a":"password"}"#, r#"{"token":null,"secret":""}"#, "nonsense", "[[["] {
            assert_eq!(redacted(plain, &[]), None, "{plain}");
        }
    }

    #[test]
    fn paths_are_followed() {
        let body = r#"{"card":{"number":4711,"kind":"x"},"number":1,"list":[{"code":2},{"code":3}]}"#;
        assert_eq!(
            redacted(body, &["$.card.number", "list[*].code"]).unwrap(),
            r#"{"card":{"number":"[redacted]","kind":"x"},"number":1,"list":[{"code":"[redacted]"},{"code":"[redacted]"}]}"#
        );
        assert_eq!(redacted("[7, 8]", &["$[1]"]).unwrap(), r#"[7, "[redacted]"]"#);
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(body in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = redact(&body, &SecretNames::default(), &mut |_| {});
        }

        #[test]
        fn nothing_of_a_secret_is_left_wherever_it_is_cut(cut in 0usize..80, deep in 0usize..4) {
            let mut body = r#"{"a": {"password": "SECRETSECRET", "b": [1, 2]}, "c": "d"}"#.to_owned();
            for _ in 0..deep {
                body = format!("[{body}, 1]");
            }
            body.truncate(cut);
            let shown = redacted(&body, &[]).unwrap_or(body);
            prop_assert!(!shown.contains("SECR"), "{}", shown);
        }
    }
}
