//! Secrets in any text: logs, messages, bodies, URLs, YAML, XML, SQL, command lines, JSON inside of strings.
//!
//! Works on bytes, since a body may be cut in the middle of a letter and need not be UTF-8. What is replaced begins
//! and ends at ASCII characters, so a text stays a text.

use std::ops::Range;
use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};

use super::named_value::Named;
use super::names::{SecretNames, Suspicion};
use super::stems::StemFinder;
use super::values::{SHAPES, Shape, jwt_end, pem_range};
use super::{REDACTED, command_line, sql};

/// Parts of all words that `names` takes for secret.
const NAME_STEMS: &[&str] = &[
    "pass",
    "pwd",
    "psw",
    "kennwort",
    "senha",
    "contrase",
    "woord",
    "secret",
    "token",
    "cred",
    "cookie",
    "auth",
    "key",
    "sess",
    "sid",
    "sig",
    "otp",
    "cvv",
    "cvc",
    "ssn",
    "card",
    "jw",
    "code",
    "assertion",
    "saml",
    "verifier",
    "srf",
    "hmac",
    "answer",
    "phrase",
    "mnemonic",
    "seed",
    "connectionuri",
    "dsn",
    "conn",
    "pin",
    "pat",
    "pepper",
];

/// Places where a secret without a name may begin.
const OTHER_STEMS: &[(&str, Place)] = &[
    ("://", Place::Address),
    ("@tcp(", Place::Source),
    ("@unix(", Place::Source),
    ("bearer", Place::Scheme),
    ("basic", Place::Scheme),
    ("negotiate", Place::Scheme),
    ("eyj", Place::Jwt),
    ("-----begin ", Place::Pem),
    ("insert into", Place::Insert),
    ("identified ", Place::Identified),
    (" -p", Place::Option),
    (" -a ", Place::Option),
    (" -u", Place::Option),
    (" -w ", Place::Option),
    ("\"-p", Place::Option),
    ("\"-u\"", Place::Option),
    (" --user", Place::Option),
    ("hooks.slack.com/services/", Place::Webhook),
    ("discord.com/api/webhooks/", Place::Webhook),
    (":aa", Place::BotToken),
];

/// The shortest text with a secret: `pwd=abc`.
const MIN_TEXT: usize = 7;

/// Longer words are no names.
pub(super) const MAX_NAME: usize = 64;

/// How far a value is read, without quotes and with them. Longer secrets are documents, and bodies have parsers of
/// their own; without a bound a hostile text could be read again and again.
pub(super) const MAX_WORD: usize = 4 << 10;
pub(super) const MAX_QUOTED: usize = 16 << 10;

#[derive(Debug, Clone, Copy)]
enum Place {
    Name,
    Address,
    Source,
    Scheme,
    Jwt,
    Pem,
    Insert,
    Identified,
    Option,
    Webhook,
    BotToken,
    Shape(&'static Shape),
}

/// Finds the places where secrets may be.
#[derive(Debug)]
pub(super) struct Finder {
    stems: StemFinder,
    places: Vec<Place>,
}

static FINDER: LazyLock<Finder> = LazyLock::new(|| Finder::build(&[]));

static NAME_FINDER: LazyLock<StemFinder> = LazyLock::new(|| StemFinder::new(NAME_STEMS.iter().copied()));

impl Finder {
    pub(super) fn build(own: &[String]) -> Self {
        let names = NAME_STEMS.iter().copied().chain(own.iter().map(String::as_str));
        let names = names.map(|stem| (stem, Place::Name));
        let shapes = SHAPES.iter().map(|shape| (shape.prefix, Place::Shape(shape)));
        let all: Vec<(&str, Place)> = names.chain(OTHER_STEMS.iter().copied()).chain(shapes).collect();
        let stems = StemFinder::new(all.iter().map(|(pattern, _)| *pattern));
        Self { stems, places: all.iter().map(|(_, place)| *place).collect() }
    }
}

/// Whether a name has part of a word that may make it secret.
pub(super) fn has_name_stem(name: &[u8]) -> bool {
    NAME_FINDER.is_in(name)
}

/// A text without its secrets; none if it has none.
pub fn redact_str(text: &str, names: &SecretNames) -> Option<String> {
    let redacted = redact_bytes(text.as_bytes(), names, &mut |_| {})?;
    Some(
        String::from_utf8(redacted)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()),
    )
}

/// Bytes without their secrets; none if they have none. Secret values are passed to `found`.
pub fn redact_bytes(text: &[u8], names: &SecretNames, found: &mut dyn FnMut(&[u8])) -> Option<Vec<u8>> {
    if text.len() < MIN_TEXT {
        return None;
    }
    let finder = names.own_finder().unwrap_or(&FINDER);
    // No list is made before something was found.
    let mut scan = Scan { text, names, hidden: Vec::new(), hidden_until: 0, name_end: 0 };
    for (number, stem) in finder.stems.find_all(text) {
        let start = stem.start;
        // Within what is hidden there is nothing to find. It also keeps a text of nothing but names from being read
        // once for each of them.
        if start < scan.hidden_until {
            continue;
        }
        match finder.places[number] {
            Place::Name => scan.name(stem),
            Place::Address => scan.address(start),
            Place::Source => scan.source(start),
            Place::Scheme => scan.scheme(stem),
            Place::Jwt => scan.hide(jwt_end(text, start).map(|end| start..end)),
            Place::Pem => scan.hide(pem_range(text, start).map(|(from, end)| from..end)),
            Place::Insert => {
                sql::inserted_values(text, stem.end, names).into_iter().for_each(|r| scan.hide(Some(r)))
            }
            Place::Identified => scan.hide(sql::identified_by(text, stem.end)),
            Place::Option => scan.hide(command_line::secret_option(text, start)),
            Place::Webhook => scan.hide(webhook(text, stem.end)),
            Place::BotToken => scan.hide(bot_token(text, start)),
            Place::Shape(shape) => scan.hide(shape.end(text, start).map(|end| start..end)),
        }
    }
    scan.finish(found)
}

/// What is replaced in a text.
struct Hidden {
    range: Range<usize>,
    /// The quotes around the replacement, so that JSON stays JSON where a number or a list is replaced.
    quote: Vec<u8>,
}

struct Scan<'t> {
    text: &'t [u8],
    names: &'t SecretNames,
    hidden: Vec<Hidden>,
    hidden_until: usize,
    /// Where the name that was looked at last ends: it may have several parts of secret words.
    name_end: usize,
}

impl Scan<'_> {
    fn hide(&mut self, range: Option<Range<usize>>) {
        self.hide_in_quotes(range, Vec::new());
    }

    fn hide_in_quotes(&mut self, range: Option<Range<usize>>, quote: Vec<u8>) {
        if let Some(range) = range
            && !range.is_empty()
            && !self.text[range.clone()].starts_with(REDACTED.as_bytes())
        {
            self.hidden_until = self.hidden_until.max(range.end);
            self.hidden.push(Hidden { range, quote });
        }
    }

    /// The text with everything replaced that was found.
    fn finish(mut self, found: &mut dyn FnMut(&[u8])) -> Option<Vec<u8>> {
        if self.hidden.is_empty() {
            return None;
        }
        self.hidden.sort_by_key(|hidden| (hidden.range.start, std::cmp::Reverse(hidden.range.end)));
        let mut out = Vec::with_capacity(self.text.len());
        let mut copied = 0;
        for Hidden { range, quote } in self.hidden {
            found(&self.text[range.clone()]);
            // Part of what is hidden already, as a token behind its scheme.
            if range.end <= copied {
                continue;
            }
            if range.start >= copied {
                out.extend_from_slice(&self.text[copied..range.start]);
                out.extend([&quote, REDACTED.as_bytes(), &quote].concat());
            }
            copied = range.end;
        }
        out.extend_from_slice(&self.text[copied..]);
        Some(out)
    }

    /// A name that may be secret, and its value.
    fn name(&mut self, stem: Range<usize>) {
        if stem.end <= self.name_end {
            return;
        }
        let Some(name) = name_around(self.text, &stem) else {
            self.name_end = stem.end;
            return;
        };
        self.name_end = name.end;
        let Ok(word) = std::str::from_utf8(&self.text[name.clone()]) else { return };
        let bare = word.trim_start_matches('-');
        let suspicion = match self.names.field_suspicion(bare) {
            Suspicion::None if self.names.is_own(bare) => Suspicion::Certain,
            // In a text that is no body, headers stand like fields.
            Suspicion::None if bare.contains('-') => self.names.header_suspicion(bare),
            suspicion => suspicion,
        };
        if suspicion == Suspicion::None {
            return;
        }
        let named = Named { text: self.text, name, bare, is_own: self.names.is_own(bare), suspicion };
        let value = named.value();
        let quote = value.as_ref().map(|range| named.missing_quote(range.start)).unwrap_or_default();
        self.hide_in_quotes(value, quote);
    }

    /// `scheme://user:password@host`.
    fn address(&mut self, start: usize) {
        let begin = start + 3;
        let is_end = |byte: &u8| byte.is_ascii_whitespace() || b"\"'<>\\`".contains(byte);
        let rest = &self.text[begin..];
        let rest = &rest[..rest.iter().take(1024).position(is_end).unwrap_or(rest.len().min(1024))];
        let authority = rest.iter().position(|byte| b"/?#".contains(byte)).unwrap_or(rest.len());
        let user = match rest[..authority].iter().rposition(|byte| *byte == b'@') {
            Some(at) => at,
            // Passwords may hold what should have been escaped. A port before the path is none.
            None => {
                let Some(colon) = rest[..authority].iter().position(|byte| *byte == b':') else { return };
                let is_port = rest[colon + 1..authority].iter().all(u8::is_ascii_digit);
                match rest.iter().position(|byte| *byte == b'@') {
                    Some(at) if !is_port => at,
                    _ => return,
                }
            }
        };
        // Everybody is `git` there.
        if user > 0 && &rest[..user] != b"git" {
            self.hide(Some(begin..begin + user));
        }
    }

    /// `user:password@tcp(host)`, as Go's drivers write it.
    fn source(&mut self, at: usize) {
        let is_end = |byte: &u8| byte.is_ascii_whitespace() || b"\"'<>=,;/`".contains(byte);
        let before = self.text[..at].iter().rev().take(MAX_WORD).take_while(|byte| !is_end(byte)).count();
        let begin = at - before;
        if self.text[begin..at].contains(&b':') && !self.text[begin..at].starts_with(b"//") {
            self.hide(Some(begin..at));
        }
    }

    /// `Bearer abc`, `Basic abc`.
    fn scheme(&mut self, word: Range<usize>) {
        if word.start > 0 && self.text[word.start - 1].is_ascii_alphanumeric() {
            return;
        }
        let rest = &self.text[word.end..];
        // In a query the space is `+` or `%20`.
        let gap = rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'+')).count();
        let gap = if gap == 0 && rest.starts_with(b"%20") { 3 } else { gap };
        if gap == 0 {
            return;
        }
        let is_part = |byte: &&u8| byte.is_ascii_alphanumeric() || b"._~+/=-".contains(byte);
        let length = rest[gap..].iter().take(MAX_WORD).take_while(is_part).count();
        let credential = &rest[gap..gap + length];
        if is_credential(&self.text[word.clone()], credential) {
            self.hide(Some(word.end + gap..word.end + gap + length));
        }
    }
}

/// Whether the word after a scheme is a credential, unlike in "Basic authentication" and "bearer token".
fn is_credential(scheme: &[u8], text: &[u8]) -> bool {
    if text.len() < 6 {
        return false;
    }
    if scheme.eq_ignore_ascii_case(b"basic") {
        let decoded = STANDARD.decode(text).or_else(|_| STANDARD_NO_PAD.decode(text));
        return decoded.is_ok_and(|bytes| bytes.contains(&b':'));
    }
    let is_odd = |byte: &u8| byte.is_ascii_digit() || byte.is_ascii_uppercase() || b"._-".contains(byte);
    text.len() >= 8 && text.iter().skip(1).any(is_odd) && text.iter().any(u8::is_ascii_alphanumeric)
}

/// The part of an address that lets anybody post.
fn webhook(text: &[u8], start: usize) -> Option<Range<usize>> {
    let is_part = |byte: &&u8| byte.is_ascii_alphanumeric() || b"/_-".contains(byte);
    let length = text[start..].iter().take_while(is_part).count();
    (length >= 16).then_some(start..start + length)
}

/// `12345678:AAabc...`, as bots of Telegram have it.
fn bot_token(text: &[u8], colon: usize) -> Option<Range<usize>> {
    let n_digits = text[..colon].iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let is_part = |byte: &&u8| byte.is_ascii_alphanumeric() || b"_-".contains(byte);
    let length = text[colon + 1..].iter().take_while(is_part).count();
    ((8..=10).contains(&n_digits) && length >= 33 && text[colon + 1..].starts_with(b"AA"))
        .then_some(colon - n_digits..colon + 1 + length)
}

/// The word around a stem that may be a name; none if it is too long for one.
fn name_around(text: &[u8], stem: &Range<usize>) -> Option<Range<usize>> {
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-.[]".contains(byte) || !byte.is_ascii();
    let before = text[..stem.start].iter().rev().take(MAX_NAME + 1).take_while(|byte| is_part(byte)).count();
    let after = text[stem.end..].iter().take(MAX_NAME + 1).take_while(|byte| is_part(byte)).count();
    if before > MAX_NAME || after > MAX_NAME {
        return None;
    }
    let (mut start, mut end) = (stem.start - before, stem.end + after);
    // A bracket that is not closed belongs to what is around the name, and so does the end of a sentence.
    let opened = |range: &Range<usize>| {
        text[range.clone()]
            .iter()
            .fold(0i32, |depth, byte| depth + i32::from(*byte == b'[') - i32::from(*byte == b']'))
    };
    while end > stem.end
        && (b".-".contains(&text[end - 1]) || text[end - 1] == b']' && opened(&(start..end)) < 0)
    {
        end -= 1;
    }
    while start < stem.start
        && (b".]".contains(&text[start]) || text[start] == b'[' && opened(&(start..end)) > 0)
    {
        start += 1;
    }
    Some(start..end)
}
