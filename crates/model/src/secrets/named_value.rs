//! The value behind a name: what separates the two, and where the value ends, in each of the forms that a text may have.

use std::ops::Range;

use super::REDACTED;
use super::names::Suspicion;
use super::text::{MAX_NAME, MAX_QUOTED, MAX_WORD};
use super::values::{find, is_ordinary_word, is_placeholder, looks_random};

/// A name in a text.
pub(super) struct Named<'t> {
    pub(super) text: &'t [u8],
    pub(super) name: Range<usize>,
    /// The name without the dashes of an option.
    pub(super) bare: &'t str,
    pub(super) is_own: bool,
    pub(super) suspicion: Suspicion,
}

/// A value in a text.
struct Value {
    range: Range<usize>,
    is_quoted: bool,
}

impl Named<'_> {
    pub(super) fn value(&self) -> Option<Range<usize>> {
        let quote = self.quote();
        let at = quote.map_or(self.name.end, |(_, after)| after);
        let is_option = self.text[self.name.start] == b'-';
        let gap = self.skip_blanks(at);
        match self.text.get(gap) {
            Some(b':' | b'=') => self.assigned(gap, quote.is_some()),
            Some(b'>') if self.is_element() => self.element(gap + 1),
            // `<name` and its `>` in the next line.
            Some(b'\r' | b'\n') if self.is_element() => self.element_with_attributes(gap),
            // `<entry key="password">abc</entry>`.
            Some(b'>') if quote.is_some() && self.is_named_by(&[b"name=", b"key="]) => self.element(gap + 1),
            Some(b',') if quote.is_some() => self.listed(gap + 1, is_option),
            Some(b'/') if quote.is_some() => None,
            Some(b'\r' | b'\n') if quote.is_some() && self.is_named_by(&[b"name:", b"key:"]) => {
                self.value_in_next_line(gap)
            }
            Some(_) if quote.is_some() => self.paired(gap),
            Some(b'(') => self.argument(gap + 1),
            Some(_) if is_option && gap > at => self.option(gap),
            Some(_) if gap > at && self.is_element() => self.element_with_attributes(gap),
            Some(b'\r' | b'\n') if self.is_named_by(&[b"name:", b"key:"]) => self.value_in_next_line(gap),
            Some(_) if gap > at => self.said(gap),
            _ => None,
        }
    }

    /// The quote around the name, `"name"` or `\"name\"`, and where it ends. A text that only begins with the name has
    /// none: `"password=abc"`.
    fn quote(&self) -> Option<(u8, usize)> {
        let quote = self.text[self.name.start.checked_sub(1)?];
        let slashes = self.text[self.name.end..].iter().take_while(|byte| **byte == b'\\').count();
        let end = self.name.end + slashes;
        (b"\"'`".contains(&quote) && self.text.get(end) == Some(&quote)).then_some((quote, end + 1))
    }

    /// The quote that a value lacks although its name has one.
    pub(super) fn missing_quote(&self, start: usize) -> Vec<u8> {
        match self.quote() {
            Some((b'"', end))
                if self.text.get(self.skip_blanks(end)) == Some(&b':')
                    && !b"\"'`".contains(&self.text[start - 1]) =>
            {
                self.text[self.name.end..end].to_vec()
            }
            _ => Vec::new(),
        }
    }

    /// Whether the name is that of an element: `<name`, `<prefix:name`.
    fn is_element(&self) -> bool {
        let before = &self.text[..self.name.start];
        let prefix = before.strip_suffix(b":").map_or(0, |rest| {
            1 + rest.iter().rev().take(MAX_NAME).take_while(|byte| byte.is_ascii_alphanumeric()).count()
        });
        before[..before.len() - prefix].ends_with(b"<")
    }

    /// `name: value`, `name = value`, `"name" => "value"`.
    fn assigned(&self, mark: usize, is_quoted: bool) -> Option<Range<usize>> {
        // `std::pass` and `http://`.
        if self.text[mark..].starts_with(b"::") || self.text[mark..].starts_with(b"://") {
            return None;
        }
        // "Unexpected token: '}'".
        if self.bare.eq_ignore_ascii_case("token") && self.follows(b"unexpected ") {
            return None;
        }
        let mut at = mark + 1;
        while self.text.get(at).is_some_and(|byte| b"=>:~".contains(byte)) {
            at += 1;
        }
        let line_start = at;
        at = self.skip_blanks(at);
        // `auth:8080/x`, `shop/token:17`.
        let is_port = |rest: &[u8]| {
            let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
            (1..=5).contains(&digits) && rest.get(digits).is_none_or(|byte| !byte.is_ascii_alphanumeric())
        };
        if self.text[mark] == b':' && at == mark + 1 && !is_quoted && is_port(&self.text[at..]) {
            return None;
        }
        // Over the end of a line only where quotes show that this is no sentence.
        if is_quoted {
            at += self.text[at..].iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        } else if self.text.get(at).is_none_or(|byte| b"\r\n".contains(byte)) {
            return None;
        }
        if self.is_whole_line() {
            return self.rest_of_line(at);
        }
        if self.text[mark] == b':' && self.text.get(at).is_some_and(|byte| b"|>".contains(byte)) {
            return self.yaml_block(at);
        }
        let value = self.value_at(at)?;
        let content = &self.text[value.range.clone()];
        if is_placeholder(content) || !self.suspicion.covers(content) || is_punctuation(content) {
            return None;
        }
        // `password:abc` is a pair, and so is everything with `=`. With a space it may be a sentence.
        let may_be_prose = !value.is_quoted && !is_quoted && self.text[mark] == b':' && at > line_start;
        if !value.is_quoted && self.is_ordinary(content) || may_be_prose && self.is_prose(&value.range) {
            return None;
        }
        // A service or a logger may have this name: `auth: ready`.
        let is_word = content.iter().all(|byte| byte.is_ascii_lowercase() || b"-_".contains(byte));
        if self.bare.eq_ignore_ascii_case("auth") && !value.is_quoted && is_word {
            return None;
        }
        Some(value.range)
    }

    /// Whether the value goes on to the end of its line: it has several parts.
    fn is_whole_line(&self) -> bool {
        let last = self.bare.rsplit(['.', '[', '_']).next().unwrap_or_default();
        let last = last.strip_prefix("x-").or_else(|| last.strip_prefix("X-")).unwrap_or(last);
        ["authorization", "proxy-authorization", "cookie", "set-cookie", "authentication"]
            .iter()
            .any(|name| last.eq_ignore_ascii_case(name))
    }

    fn rest_of_line(&self, start: usize) -> Option<Range<usize>> {
        let value = self.value_at(start)?;
        let content = &self.text[value.range.clone()];
        if is_placeholder(content) || self.is_ordinary_scheme(content) {
            return None;
        }
        if value.is_quoted {
            return Some(value.range);
        }
        let is_scheme = [&b"bearer"[..], b"basic", b"digest", b"negotiate", b"token", b"apikey", b"hmac"]
            .iter()
            .any(|scheme| content.eq_ignore_ascii_case(scheme));
        if !is_scheme && self.is_prose(&value.range) {
            return None;
        }
        let is_end = |byte: &u8| b"\r\n\"'\\`<".contains(byte);
        let end = self.text[start..].iter().position(is_end).map_or(self.text.len(), |at| start + at);
        // The end of a list or of a call around it.
        let line = self.text[start..end].trim_ascii_end();
        let line = match line.strip_suffix(b"}").or_else(|| line.strip_suffix(b"]")) {
            Some(inner) if !line.ends_with(REDACTED.as_bytes()) => inner,
            _ => line,
        };
        Some(start..start + line.len())
    }

    /// `authentication: basic`, but not `Authorization: Basic abc`.
    fn is_ordinary_scheme(&self, word: &[u8]) -> bool {
        let end = word.as_ptr() as usize - self.text.as_ptr() as usize + word.len();
        let rest = &self.text[end..];
        is_ordinary_word(word) && rest.first().is_none_or(|byte| b"\r\n,;)}]\"'.".contains(byte))
    }

    /// `<name>value</name>`.
    fn element(&self, start: usize) -> Option<Range<usize>> {
        let rest = &self.text[start..];
        let (start, rest) = match rest.strip_prefix(b"<![CDATA[") {
            Some(inner) => (start + 9, &inner[..find(inner, b"]]>").unwrap_or(inner.len())]),
            None => {
                let end = rest.iter().position(|byte| *byte == b'<');
                // "-u <user> -p <password>" has no end of an element. A body may be cut before it.
                if end.is_some_and(|end| rest.get(end + 1).is_some_and(|byte| *byte != b'/')) {
                    return None;
                }
                let inner = &rest[..end.unwrap_or(rest.len())];
                if end.is_none() && inner.trim_ascii().iter().any(u8::is_ascii_whitespace) {
                    return None;
                }
                (start, inner)
            }
        };
        let lead = rest.len() - rest.trim_ascii_start().len();
        let content = rest.trim_ascii();
        let is_secret = !content.is_empty() && !is_placeholder(content) && self.suspicion.covers(content);
        is_secret.then_some(start + lead..start + lead + content.len())
    }

    /// `<name attribute="x">value</name>`.
    fn element_with_attributes(&self, at: usize) -> Option<Range<usize>> {
        let rest = &self.text[at..];
        let end = rest.iter().take(512).position(|byte| b"<>".contains(byte))?;
        (rest[end] == b'>' && end > 0 && rest[end - 1] != b'/').then(|| self.element(at + end + 1))?
    }

    /// Whether one of these words stands before the name and its quote.
    fn is_named_by(&self, words: &[&[u8]]) -> bool {
        let before = &self.text[self.name.start.saturating_sub(8)..self.name.start];
        let before = before.iter().filter(|byte| !b"\"'` \\".contains(byte)).map(u8::to_ascii_lowercase);
        let before: Vec<u8> = before.collect();
        words.iter().any(|word| before.ends_with(word))
    }

    /// `name: PASSWORD` and `value: abc` in the next line.
    fn value_in_next_line(&self, at: usize) -> Option<Range<usize>> {
        let gap = self.text[at..].iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        let rest = self.text[at + gap..].strip_prefix(b"value:")?;
        let value = self.value_at(self.skip_blanks(self.text.len() - rest.len()))?;
        let content = &self.text[value.range.clone()];
        (!is_placeholder(content) && self.suspicion.covers(content)).then_some(value.range)
    }

    /// `name="password" value="abc"`, `{"name": "PASSWORD", "value": "abc"}`.
    fn paired(&self, at: usize) -> Option<Range<usize>> {
        let rest = &self.text[at..];
        let skipped = rest.iter().take_while(|byte| b" \t\r\n\\\"',".contains(byte)).count();
        // `content` is what attributes of HTML have; in JSON it may be anything.
        let words: [(&[u8], &[u8]); 2] = [(b"value", b":="), (b"content", b"=")];
        let (word, marks) = words.into_iter().find(|(word, _)| {
            rest.get(skipped..skipped + word.len()).is_some_and(|found| found.eq_ignore_ascii_case(word))
        })?;
        let mut at = at + skipped + word.len();
        at += self.text[at..].iter().take(8).take_while(|byte| b"\\\"' ".contains(byte)).count();
        if !self.text.get(at).is_some_and(|byte| marks.contains(byte)) {
            return None;
        }
        let value = self.value_at(self.skip_blanks(at + 1))?;
        let content = &self.text[value.range.clone()];
        (!is_placeholder(content) && self.suspicion.covers(content)).then_some(value.range)
    }

    /// `["--password", "abc"]`, `("Authorization", "Bearer abc")`, and a pair whose value comes next.
    fn listed(&self, at: usize, is_option: bool) -> Option<Range<usize>> {
        let next = at + self.text[at..].iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        let open = self.text[..self.name.start].trim_ascii_end();
        let open = open.strip_suffix(b"\"").or_else(|| open.strip_suffix(b"'")).unwrap_or(open);
        let open = open.strip_suffix(b"\\").unwrap_or(open).trim_ascii_end().last().copied();
        let value = self.value_at(next).filter(|value| value.is_quoted);
        match value {
            Some(value) if is_option => {
                let content = &self.text[value.range.clone()];
                let is_secret = !content.starts_with(b"-") && self.suspicion.hides(content);
                is_secret.then_some(value.range)
            }
            // A pair in a list; a list of names is longer or has no values that look like one.
            Some(value) if matches!(open, Some(b'[' | b'(')) => {
                let content = &self.text[value.range.clone()];
                let close = self.text[value.range.end..].iter().find(|byte| !b"\\\"' ".contains(byte));
                let is_odd = content.len() >= 6 && content.iter().any(|byte| !byte.is_ascii_lowercase());
                (is_odd && matches!(close, Some(b']' | b')')) && !is_placeholder(content))
                    .then_some(value.range)
            }
            _ => self.paired(at),
        }
    }

    /// `PASSWORD('abc')`, `password("abc")`.
    fn argument(&self, at: usize) -> Option<Range<usize>> {
        let value = self.value_at(self.skip_blanks(at)).filter(|value| value.is_quoted)?;
        let content = &self.text[value.range.clone()];
        // `auth("a", "b")` and `getToken("name")` are calls.
        let is_literal = self.is_password() && !self.bare.contains('.');
        (is_literal && !is_placeholder(content)).then_some(value.range)
    }

    /// `--password abc`.
    fn option(&self, at: usize) -> Option<Range<usize>> {
        if self.suspicion != Suspicion::Certain {
            return None;
        }
        let value = self.value_at(at)?;
        let content = &self.text[value.range.clone()];
        let is_other = content.starts_with(b"-") || content.starts_with(b"|") || content.starts_with(b"<");
        (!is_other && !is_placeholder(content) && !self.is_ordinary(content)).then_some(value.range)
    }

    /// `PASSWORD 'abc'`, `password is abc1`, `token 5f3b...`, `SET PASSWORD FOR x = 'abc'`.
    fn said(&self, at: usize) -> Option<Range<usize>> {
        if !matches!(self.suspicion, Suspicion::Certain | Suspicion::UnlessNumber) {
            return None;
        }
        let rest = &self.text[at..];
        let starts =
            |word: &[u8]| rest.get(..word.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(word));
        if starts(b"for ") && self.is_password() {
            let line = &rest[..rest
                .iter()
                .take(160)
                .position(|byte| b"\r\n;".contains(byte))
                .unwrap_or(rest.len().min(160))];
            let mark = at + line.iter().position(|byte| *byte == b'=')?;
            let value = self.value_at(self.skip_blanks(mark + 1)).filter(|value| value.is_quoted)?;
            return Some(value.range);
        }
        let words = [&b"is "[..], b"is: ", b"was ", b"was: ", b"-> ", b"of ", b"to ", b"with "];
        let said = words.into_iter().find(|word| starts(word));
        let value = self.value_at(self.skip_blanks(at + said.map_or(0, <[u8]>::len)))?;
        let content = &self.text[value.range.clone()];
        if is_placeholder(content) {
            return None;
        }
        let has = |is: fn(&u8) -> bool| content.iter().any(is);
        let is_mixed = has(u8::is_ascii_digit) && has(u8::is_ascii_alphabetic);
        let is_secret = if value.is_quoted {
            // `secret "db-credentials" not found` names one.
            self.is_password()
                && !self.bare.to_ascii_lowercase().ends_with("secret")
                && !is_punctuation(content)
        } else if self.is_password() {
            is_mixed && content.len() >= 6 && (said.is_some() || looks_random(content))
        } else {
            let lower = self.bare.to_ascii_lowercase();
            let is_shown_alone =
                ["token", "key", "secret", "sess", "cred", "jwt"].iter().any(|word| lower.contains(word));
            let is_one_word = !content.iter().any(|byte| b"/:=(@".contains(byte));
            is_shown_alone && is_mixed && is_one_word && content.len() >= 16
        };
        is_secret.then_some(value.range)
    }

    /// A text of several lines in YAML.
    fn yaml_block(&self, at: usize) -> Option<Range<usize>> {
        let line_end = |from: usize| {
            self.text[from..].iter().position(|byte| *byte == b'\n').map_or(self.text.len(), |end| from + end)
        };
        let first = line_end(at);
        let mark = self.text[at..first].trim_ascii();
        if mark.len() > 3 {
            return None;
        }
        let line =
            self.text[..self.name.start].iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let indent = |from: usize| self.text[from..].iter().take_while(|byte| **byte == b' ').count();
        let outer = indent(line);
        let (mut next, mut range) = (first + 1, None::<Range<usize>>);
        while next < self.text.len() {
            let end = line_end(next);
            let is_blank = self.text[next..end].trim_ascii().is_empty();
            if !is_blank && indent(next) <= outer {
                break;
            }
            if !is_blank {
                let start = range.as_ref().map_or(next + indent(next), |range| range.start);
                range = Some(start..end);
            }
            next = end + 1;
        }
        range
    }

    /// The value that begins at a place.
    fn value_at(&self, at: usize) -> Option<Value> {
        let text = self.text;
        // `b'abc'`, `Some("abc")`, `crypt('abc')`.
        let word = text[at..]
            .iter()
            .take(24)
            .take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_')
            .count();
        let inner = at + word + usize::from(word > 0 && text.get(at + word) == Some(&b'('));
        for place in [at, inner] {
            let n_slashes = text[place..].iter().take_while(|byte| **byte == b'\\').count();
            let quote = text.get(place + n_slashes).copied().filter(|byte| b"\"'`".contains(byte));
            let is_quote = place == at || inner > at + word || word == 1;
            if let (Some(quote), true) = (quote, is_quote) {
                let start = place + n_slashes + 1;
                if let Some(range) = block_text(text, place..start) {
                    return Some(Value { range, is_quoted: true });
                }
                return Some(Value {
                    range: start..quoted_end(text, start, quote, n_slashes),
                    is_quoted: true,
                });
            }
        }
        if let Some(open @ (b'[' | b'{' | b'(')) = text.get(at).copied() {
            return Some(Value { range: at..bracket_end(text, at, open), is_quoted: false })
                .filter(|value| !text[value.range.clone()].starts_with(REDACTED.as_bytes()));
        }
        let end = at + word_length(&text[at..]);
        (end > at).then_some(Value { range: at..end, is_quoted: false })
    }

    fn skip_blanks(&self, at: usize) -> usize {
        at + self.text[at..].iter().take(64).take_while(|byte| matches!(byte, b' ' | b'\t')).count()
    }

    fn follows(&self, words: &[u8]) -> bool {
        let start = self.name.start.saturating_sub(words.len());
        self.text[start..self.name.start].eq_ignore_ascii_case(words)
    }

    /// Whether it is a password or a secret, which is quoted in messages. Tokens of languages are quoted, too.
    fn is_password(&self) -> bool {
        let lower = self.bare.to_ascii_lowercase();
        self.is_own || ["pass", "pwd", "secret"].iter().any(|word| lower.contains(word))
    }

    fn is_ordinary(&self, content: &[u8]) -> bool {
        let content = content.strip_suffix(b".").unwrap_or(content);
        is_ordinary_word(content) || is_punctuation(content)
    }

    /// Whether a value is the beginning of a sentence: a word in lower case, and another one behind it.
    fn is_prose(&self, value: &Range<usize>) -> bool {
        let is_word = |word: &[u8]| word.len() > 1 && word.iter().all(u8::is_ascii_lowercase);
        let rest = &self.text[value.end..];
        let next = rest.strip_prefix(b" ").unwrap_or_default();
        let next = &next
            [..next.iter().take(24).take_while(|byte| byte.is_ascii_alphabetic() || **byte == b'\'').count()];
        let content = &self.text[value.clone()];
        let is_plain = content.iter().all(|byte| byte.is_ascii_alphabetic() || *byte == b'\'');
        is_plain && (is_word(next) || is_ordinary_word(next))
    }
}

/// What is between three quotes and the next three, as GraphQL and TOML have it; none if there is one quote only.
fn block_text(text: &[u8], quote: Range<usize>) -> Option<Range<usize>> {
    let fence = text[quote.clone()].repeat(3);
    let start = quote.start + fence.len();
    let rest = text[quote.start..].strip_prefix(fence.as_slice())?;
    let rest = &rest[..rest.len().min(MAX_QUOTED)];
    Some(start..start + find(rest, &fence).unwrap_or(rest.len()))
}

/// Whether there is nothing but punctuation: what is between two other values, if a text ends with `token="`.
fn is_punctuation(content: &[u8]) -> bool {
    content.iter().all(|byte| byte.is_ascii_punctuation() || byte.is_ascii_whitespace())
}

/// The end of a quoted value whose quote has so many backslashes before it: a JSON text in a JSON text has one.
fn quoted_end(text: &[u8], start: usize, quote: u8, n_slashes: usize) -> usize {
    let mut at = start;
    let mut slashes = 0;
    let text = &text[..text.len().min(start + MAX_QUOTED)];
    while let Some(&byte) = text.get(at) {
        if byte == b'\\' {
            slashes += 1;
        } else {
            // Without a backslash of its own, an even number of them escapes nothing.
            let is_end =
                byte == quote && if n_slashes == 0 { slashes % 2 == 0 } else { slashes <= n_slashes };
            if is_end {
                return at - slashes.min(n_slashes);
            }
            // A line break ends a text that was never closed.
            if byte == b'\n' && quote != b'"' {
                return at;
            }
            slashes = 0;
        }
        at += 1;
    }
    text.len()
}

/// The end of a list or a map, or of the line it is on.
fn bracket_end(text: &[u8], start: usize, open: u8) -> usize {
    let close = match open {
        b'[' => b']',
        b'{' => b'}',
        _ => b')',
    };
    let mut depth = 0usize;
    for (at, &byte) in text.iter().enumerate().skip(start).take(4096) {
        if byte == open {
            depth += 1;
        } else if byte == close {
            depth -= 1;
            if depth == 0 {
                return at + 1;
            }
        }
    }
    start + word_length(&text[start..]).max(1)
}

/// The length of a value without quotes.
fn word_length(text: &[u8]) -> usize {
    let is_name = |text: &[u8]| {
        let length = text
            .iter()
            .take(MAX_NAME)
            .take_while(|byte| byte.is_ascii_alphanumeric() || b"_-. ".contains(byte))
            .count();
        length > 0 && text.get(length).is_some_and(|byte| b"=:".contains(byte))
    };
    let text = &text[..text.len().min(MAX_WORD)];
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        let rest = &text[at + 1..];
        let next = rest.first().copied();
        let is_end = match byte {
            b'"' | b'\'' | b'`' | b'<' | b'\\' => true,
            _ if byte.is_ascii_whitespace() || byte.is_ascii_control() => true,
            // Passwords may hold these, unless another pair begins.
            b',' | b';' | b'&' => {
                next.is_none_or(|next| next.is_ascii_whitespace() || b"\"'}])".contains(&next))
                    || is_name(rest)
            }
            b')' | b'}' | b']' | b'>' | b'|' => {
                next.is_none_or(|next| next.is_ascii_whitespace() || b"\"',;){}].:|\\".contains(&next))
            }
            b'#' | b'?' => next.is_some() && is_name(rest),
            _ => false,
        };
        if is_end {
            break;
        }
        at += 1;
    }
    at
}
