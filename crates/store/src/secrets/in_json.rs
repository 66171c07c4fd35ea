//! Secret fields of JSON bodies. Recorded bodies may be cut off, so the parser works on incomplete JSON and
//! keeps all other bytes as they are.

use super::rules::Rules;

/// Deeper values are copied as they are.
const MAX_DEPTH: usize = 64;

const HIDDEN: &[u8] = b"\"[redacted]\"";

/// The body without its secrets; none if it has none. Secret values are passed to `found`.
pub(super) fn redact(body: &[u8], rules: &Rules, found: &mut dyn FnMut(&[u8])) -> Option<Vec<u8>> {
    let mut scan = Scan { bytes: body, at: 0, out: Vec::new(), copied: 0, rules, path: Vec::new(), found };
    // Several values may follow one another, one per line.
    while scan.skip_space().is_some() && scan.value(0).is_some() {}
    if scan.copied == 0 {
        return None;
    }
    scan.out.extend(&body[scan.copied.min(body.len())..]);
    Some(scan.out)
}

/// Whether a body looks like JSON.
pub(super) fn is_json(body: &[u8]) -> bool {
    matches!(body.trim_ascii_start().first(), Some(b'{' | b'['))
}

struct Scan<'b> {
    bytes: &'b [u8],
    at: usize,
    out: Vec<u8>,
    /// The bytes before this offset have been copied.
    copied: usize,
    rules: &'b Rules,
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
        let is_secret = self.rules.is_field(&name);
        if !self.rules.has_paths() {
            return if is_secret { self.hide(depth) } else { self.value(depth + 1) };
        }
        self.path.push(name);
        let done = if is_secret || self.rules.is_path(&self.path) {
            self.hide(depth)
        } else {
            self.value(depth + 1)
        };
        self.path.pop();
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

    /// Skips a value and writes a placeholder instead.
    fn hide(&mut self, depth: usize) -> Option<()> {
        let first = self.skip_space()?;
        // Empty values stay visible: that there was none is no secret.
        let rest = &self.bytes[self.at..];
        if [&b"null"[..], b"\"\"", b"true", b"false"].iter().any(|empty| rest.starts_with(empty)) {
            return self.value(depth + 1);
        }
        let start = self.at;
        let done = match first {
            b'"' => self.text().map(|_| ()),
            b'{' | b'[' => self.skip_container(),
            _ => self.word(),
        };
        let end = if done.is_some() { self.at } else { self.bytes.len() };
        let hidden = &self.bytes[start..end];
        if hidden == HIDDEN {
            return done;
        }
        (self.found)(
            hidden.strip_prefix(b"\"").map_or(hidden, |text| text.strip_suffix(b"\"").unwrap_or(text)),
        );
        self.out.extend(&self.bytes[self.copied..start]);
        self.out.extend(HIDDEN);
        self.copied = end;
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

    fn of(body: &str, fields: &[&str]) -> Option<String> {
        let fields = fields.iter().map(|f| (*f).to_owned()).collect();
        let rules = Rules::new(&SecretRules { fields, ..SecretRules::default() });
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
            assert_eq!(of(body, &[]).as_deref().unwrap_or(body), expected);
        }
        for plain in ["", "{", r#"{"a":"password"}"#, r#"{"token":null,"secret":""}"#, "nonsense", "[[["] {
            assert_eq!(of(plain, &[]), None, "{plain}");
        }
    }

    #[test]
    fn paths_are_followed() {
        let body = r#"{"card":{"number":4711,"kind":"x"},"number":1,"list":[{"code":2},{"code":3}]}"#;
        assert_eq!(
            of(body, &["$.card.number", "list[*].code"]).unwrap(),
            r#"{"card":{"number":"[redacted]","kind":"x"},"number":1,"list":[{"code":"[redacted]"},{"code":"[redacted]"}]}"#
        );
        assert_eq!(of("[7, 8]", &["$[1]"]).unwrap(), r#"[7, "[redacted]"]"#);
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(body in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = redact(&body, &Rules::default(), &mut |_| {});
        }

        #[test]
        fn nothing_of_a_secret_is_left_wherever_it_is_cut(cut in 0usize..80, deep in 0usize..4) {
            let mut body = r#"{"a": {"password": "SECRETSECRET", "b": [1, 2]}, "c": "d"}"#.to_owned();
            for _ in 0..deep {
                body = format!("[{body}, 1]");
            }
            body.truncate(cut);
            let shown = of(&body, &[]).unwrap_or(body);
            prop_assert!(!shown.contains("SECR"), "{}", shown);
        }
    }
}
