//! What values look like: random, a one-time code, nothing at all; and credentials with a shape of their own, such as
//! the keys of clouds. The rule set of gitleaks was the model for the shapes.

use super::text::has_name_stem;

/// Shorter values do not show whether they are random.
const MIN_RANDOM: usize = 16;

/// Longer ones are documents or pictures.
const MAX_RANDOM: usize = 512;

/// Whether a value is a plain number.
pub(super) fn is_number(value: &[u8]) -> bool {
    !value.is_empty()
        && value.len() < 12
        && value.iter().all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'-' | b'+'))
}

/// Whether a value looks like a code that someone types: four to ten digits, or a few capitals with digits.
pub(super) fn is_code(value: &[u8]) -> bool {
    let plain = value.iter().filter(|byte| !matches!(byte, b'-' | b' '));
    let n_digits = plain.clone().filter(|byte| byte.is_ascii_digit()).count();
    let n_other = plain.clone().count() - n_digits;
    let is_mixed =
        n_digits > 0 && plain.clone().all(|byte| byte.is_ascii_digit() || byte.is_ascii_uppercase());
    (4..=10).contains(&n_digits) && n_other == 0
        || is_mixed && n_other > 0 && (6..=16).contains(&(n_digits + n_other))
}

/// Whether a value looks as if it was drawn by chance from letters of both cases and digits. Names, paths, UUIDs and
/// digests in hexadecimal do not.
pub(super) fn looks_random(value: &[u8]) -> bool {
    if !(MIN_RANDOM..=MAX_RANDOM).contains(&value.len()) {
        return false;
    }
    let is_allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-+/=.~%".contains(byte);
    if !value.iter().all(is_allowed) {
        return false;
    }
    let has = |is: fn(&u8) -> bool| value.iter().any(is);
    if !(has(u8::is_ascii_lowercase) && has(u8::is_ascii_uppercase) && has(u8::is_ascii_digit)) {
        return false;
    }
    let kind = |byte: u8| match byte {
        b'a'..=b'z' => 0,
        b'A'..=b'Z' => 1,
        b'0'..=b'9' => 2,
        _ => 3,
    };
    let (mut n_changes, mut n_humps) = (0, 0);
    for pair in value.windows(2) {
        let (first, second) = (kind(pair[0]), kind(pair[1]));
        if first != second && first != 3 && second != 3 {
            n_changes += 1;
            // A capital at the beginning of a word begins no second one.
            n_humps += usize::from((first, second) != (1, 0));
        }
    }
    let n_letters = value.iter().filter(|byte| kind(**byte) != 3).count();
    // Two random letters are of different kinds in 62 of 100 cases. In names such as `GetOrderByIdRequest2`, words have
    // three letters or more on average.
    n_changes * 100 >= n_letters * 52 || (n_humps + 1) * 27 >= n_letters * 10
}

/// Whether a value is a list of words as wallets are made from: twelve or more, of small letters.
pub(super) fn is_seed_phrase(value: &[u8]) -> bool {
    let mut words =
        value.split(|byte| matches!(byte, b' ' | b',' | b'-' | b'_')).filter(|word| !word.is_empty());
    let is_word = |word: &[u8]| (3..=8).contains(&word.len()) && word.iter().all(u8::is_ascii_lowercase);
    let n_words = words.clone().count();
    (12..=48).contains(&n_words) && words.all(is_word)
}

/// Whether a value says how to connect and who does: `Server=db;User Id=sa;Pwd=x`, `host=db password=x`,
/// `https://key@host/1`. A name of a connection does not.
pub(super) fn is_connection(value: &[u8]) -> bool {
    let n_pairs = value.iter().filter(|byte| **byte == b'=').count();
    // Of `user:password@host` only the user is hidden, by its shape, so that the host is still shown.
    let rest = value.windows(3).position(|three| three == b"://").map(|at| &value[at + 3..]);
    let user = rest.and_then(|rest| Some(&rest[..rest.iter().position(|byte| *byte == b'@')?]));
    n_pairs >= 2
        || user.is_some_and(|user| {
            // What is hidden already must stay as it is: texts pass here more than once.
            !user.is_empty() && !user.contains(&b':') && user != super::REDACTED.as_bytes()
        })
}

/// Whether a value is a number that someone types at a card reader.
pub(super) fn is_pin(value: &[u8]) -> bool {
    (4..=8).contains(&value.len()) && value.iter().all(u8::is_ascii_digit)
}

/// Whether a value is a digest or a key in hexadecimal.
pub(super) fn is_long_hex(value: &[u8]) -> bool {
    value.len() >= 32 && value.len() <= 256 && value.iter().all(u8::is_ascii_hexdigit)
}

/// Whether a value cannot be a secret, whatever its name: nothing, a mask, a reference to something elsewhere.
pub(super) fn is_placeholder(value: &[u8]) -> bool {
    let value = value.trim_ascii();
    let is_mask = |byte: &u8| b"*.-_?!#\xe2\x80\xa2".contains(byte);
    value.iter().all(is_mask)
        || value.starts_with(super::REDACTED.as_bytes())
        || value.starts_with(b"${")
        || value.starts_with(b"{{")
        || value.starts_with(b"$(")
        || value.starts_with(b"<") && value.ends_with(b">")
        || matches!(
            value,
            b"%s" | b"%v" | b"%r" | b"{}" | b"[]" | b"()" | b"xxx" | b"xxxx" | b"XXX" | b"XXXX"
        )
        || is_variable(value)
        || NOTHING.iter().any(|word| value.eq_ignore_ascii_case(word.as_bytes()))
}

const NOTHING: [&str; 10] =
    ["null", "none", "nil", "true", "false", "undefined", "n/a", "[hidden]", "[filtered]", "nan"];

/// `$PASSWORD`, `$1`, `:token`, `@p1`, `$password`, but not `$2b$10$...` or `$ecret1`.
fn is_variable(value: &[u8]) -> bool {
    let Some((b'$' | b':' | b'@', name)) = value.split_first() else { return false };
    let is_name = !name.is_empty() && name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    let is_loud = name.iter().all(|byte| !byte.is_ascii_lowercase());
    is_name && (is_loud || name.len() <= 3 || has_name_stem(name))
}

/// Words that stand behind the name of a secret in ordinary messages: what is the matter with it, or its type.
pub(super) fn is_ordinary_word(word: &[u8]) -> bool {
    let Ok(word) = std::str::from_utf8(word) else { return false };
    word.len() <= 16 && ORDINARY.iter().any(|ordinary| word.eq_ignore_ascii_case(ordinary))
}

const ORDINARY: [&str; 86] = [
    "required",
    "invalid",
    "missing",
    "expired",
    "wrong",
    "incorrect",
    "empty",
    "unset",
    "set",
    "unknown",
    "optional",
    "string",
    "str",
    "text",
    "varchar",
    "bytes",
    "number",
    "integer",
    "boolean",
    "bool",
    "object",
    "array",
    "yes",
    "no",
    "ok",
    "failed",
    "failure",
    "denied",
    "enabled",
    "disabled",
    "changed",
    "updated",
    "reset",
    "accepted",
    "rejected",
    "valid",
    "revoked",
    "refreshed",
    "absent",
    "present",
    "mismatch",
    "unauthorized",
    "forbidden",
    "basic",
    "bearer",
    "digest",
    "oauth",
    "oauth2",
    "ldap",
    "saml",
    "jwt",
    "password",
    "token",
    "sso",
    "default",
    "anonymous",
    "error",
    "the",
    "a",
    "an",
    "is",
    "was",
    "must",
    "should",
    "cannot",
    "not",
    "has",
    "for",
    "from",
    "of",
    "and",
    "or",
    "to",
    "in",
    "at",
    "with",
    "this",
    "that",
    "your",
    "you",
    "please",
    "can",
    "too",
    "hidden",
    "only",
    "expected",
];

/// Longer than any credential with a shape.
const MAX_SHAPE: usize = 8 << 10;

/// A credential that is known by how it begins.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    pub(super) prefix: &'static str,
    /// The fewest letters behind the prefix.
    least: usize,
    letters: Letters,
}

#[derive(Debug, Clone, Copy)]
enum Letters {
    /// Capitals and digits.
    Capitals,
    Hex,
    Alnum,
    /// Also `_` and `-`.
    Word,
    /// Also `.`.
    Dotted,
    /// Also `+`, `/` and `=`.
    Base64,
    /// What hashes of passwords consist of.
    Crypt,
}

const fn shape(prefix: &'static str, least: usize, letters: Letters) -> Shape {
    Shape { prefix, least, letters }
}

pub(super) const SHAPES: &[Shape] = {
    use Letters::{Alnum, Base64, Capitals, Crypt, Dotted, Hex, Word};
    &[
        // Clouds.
        shape("AKIA", 16, Capitals),
        shape("ASIA", 16, Capitals),
        shape("ABIA", 16, Capitals),
        shape("ACCA", 16, Capitals),
        shape("AIza", 35, Word),
        shape("ya29.", 20, Dotted),
        shape("GOCSPX-", 20, Word),
        shape("LTAI", 16, Alnum),
        shape("AKID", 24, Alnum),
        shape("dop_v1_", 32, Hex),
        shape("doo_v1_", 32, Hex),
        shape("dor_v1_", 32, Hex),
        shape("HRKU-", 24, Word),
        shape("sbp_", 32, Hex),
        shape("sb_secret_", 20, Word),
        shape("tskey-", 20, Word),
        // Code and packages.
        shape("ghp_", 20, Alnum),
        shape("gho_", 20, Alnum),
        shape("ghu_", 20, Alnum),
        shape("ghs_", 20, Alnum),
        shape("ghr_", 20, Alnum),
        shape("github_pat_", 20, Word),
        shape("glpat-", 16, Dotted),
        shape("gldt-", 16, Word),
        shape("glrt-", 16, Word),
        shape("glptt-", 16, Word),
        shape("glcbt-", 16, Word),
        shape("glsoat-", 16, Word),
        shape("GR1348941", 16, Word),
        shape("npm_", 30, Alnum),
        shape("pypi-", 40, Word),
        shape("rubygems_", 32, Hex),
        shape("dckr_pat_", 20, Word),
        shape("CLOJARS_", 40, Alnum),
        shape("ATATT3", 40, Base64),
        shape("ATBB", 24, Alnum),
        shape("bkua_", 32, Hex),
        shape("CCIPAT_", 30, Word),
        shape("sgp_", 32, Word),
        shape("figd_", 30, Word),
        // Infrastructure.
        shape("hvs.", 20, Word),
        shape("hvb.", 20, Word),
        shape("hvr.", 20, Word),
        shape("dp.pt.", 32, Alnum),
        shape("dp.st.", 32, Dotted),
        shape("dt0c01.", 40, Dotted),
        shape("NRAK-", 20, Capitals),
        shape("glsa_", 24, Word),
        shape("glc_", 30, Base64),
        shape("sntrys_", 30, Base64),
        shape("sntryu_", 30, Hex),
        shape("pul-", 32, Hex),
        shape("AGE-SECRET-KEY-1", 40, Capitals),
        shape("PMAK-", 30, Word),
        shape("ops_eyJ", 40, Base64),
        // Payment, mail and messages.
        shape("sk_live_", 16, Alnum),
        shape("sk_test_", 16, Alnum),
        shape("rk_live_", 16, Alnum),
        shape("rk_test_", 16, Alnum),
        shape("whsec_", 20, Base64),
        shape("sq0atp-", 20, Word),
        shape("sq0csp-", 30, Word),
        shape("EAAA", 56, Word),
        shape("shpat_", 30, Hex),
        shape("shpca_", 30, Hex),
        shape("shppa_", 30, Hex),
        shape("shpss_", 30, Hex),
        shape("SG.", 40, Dotted),
        shape("xkeysib-", 40, Word),
        shape("key-", 32, Hex),
        shape("xoxb-", 16, Word),
        shape("xoxp-", 16, Word),
        shape("xoxa-", 16, Word),
        shape("xoxr-", 16, Word),
        shape("xoxs-", 16, Word),
        shape("xoxe.", 16, Dotted),
        shape("xapp-", 16, Word),
        shape("EZAK", 50, Alnum),
        shape("FLWSECK", 20, Word),
        shape("duffel_live_", 30, Word),
        shape("ntn_", 36, Alnum),
        shape("lin_api_", 30, Alnum),
        // Models.
        shape("sk-ant-", 20, Word),
        shape("sk-proj-", 20, Word),
        shape("sk-svcacct-", 20, Word),
        shape("sk-", 40, Alnum),
        shape("hf_", 30, Alnum),
        shape("gsk_", 40, Alnum),
        shape("r8_", 30, Alnum),
        shape("xai-", 60, Alnum),
        shape("nvapi-", 40, Word),
        shape("pplx-", 40, Alnum),
        // Hashes of passwords.
        shape("$2a$", 50, Crypt),
        shape("$2b$", 50, Crypt),
        shape("$2y$", 50, Crypt),
        shape("$argon2", 40, Crypt),
        shape("$6$", 60, Crypt),
        shape("$pbkdf2", 40, Crypt),
    ]
};

impl Shape {
    /// Where a credential of this shape ends that begins at `start`; none if there is none.
    pub(super) fn end(&self, text: &[u8], start: usize) -> Option<usize> {
        // The search for prefixes does not look at their case.
        let body = text.get(start..)?.strip_prefix(self.prefix.as_bytes())?;
        // In the middle of a word it is part of something else.
        if start > 0 && (text[start - 1].is_ascii_alphanumeric() || text[start - 1] == b'_') {
            return None;
        }
        let fits = |byte: &u8| match self.letters {
            Letters::Capitals => byte.is_ascii_uppercase() || byte.is_ascii_digit(),
            Letters::Hex => byte.is_ascii_hexdigit(),
            Letters::Alnum => byte.is_ascii_alphanumeric(),
            Letters::Word => byte.is_ascii_alphanumeric() || b"_-".contains(byte),
            Letters::Dotted => byte.is_ascii_alphanumeric() || b"_-.".contains(byte),
            Letters::Base64 => byte.is_ascii_alphanumeric() || b"_-+/=".contains(byte),
            Letters::Crypt => byte.is_ascii_alphanumeric() || b"./$=,+-".contains(byte),
        };
        let length = body.iter().take(MAX_SHAPE).take_while(|byte| fits(byte)).count();
        let body = &body[..length];
        let is_random = body.iter().any(u8::is_ascii_digit) && body.iter().any(u8::is_ascii_alphabetic);
        (length >= self.least && is_random).then_some(start + self.prefix.len() + length)
    }
}

/// Where a JSON Web Token ends that begins at `start`: three parts, the first two of which are JSON in Base64.
pub(super) fn jwt_end(text: &[u8], start: usize) -> Option<usize> {
    let rest = text.get(start..)?.strip_prefix(b"eyJ")?;
    if start > 0 && (text[start - 1].is_ascii_alphanumeric() || text[start - 1] == b'_') {
        return None;
    }
    let is_part = |byte: &&u8| byte.is_ascii_alphanumeric() || b"_-".contains(byte);
    let head = rest.iter().take(MAX_SHAPE).take_while(is_part).count();
    let second = &rest[head..];
    let body = second.strip_prefix(b".")?.iter().take_while(is_part).count();
    if head < 8 || body < 4 {
        return None;
    }
    let mut end = start + 3 + head + 1 + body;
    // Encrypted tokens have five parts. A body may be cut anywhere.
    for _ in 0..3 {
        if text.get(end) == Some(&b'.') {
            let part = text[end + 1..].iter().take_while(is_part).count();
            end += if part > 0 { 1 + part } else { 0 };
        }
    }
    Some(end)
}

/// Where the secret part of a PEM block begins and ends whose first line begins at `start`; public parts are no secret.
pub(super) fn pem_range(text: &[u8], start: usize) -> Option<(usize, usize)> {
    let rest = text.get(start..)?.strip_prefix(b"-----BEGIN ")?;
    let label = rest.iter().take(64).position(|byte| *byte == b'-')?;
    let is_private = rest[..label].windows(7).any(|word| word == b"PRIVATE");
    let begin = start + "-----BEGIN ".len() + label + "-----".len();
    if !is_private || begin > text.len() {
        return None;
    }
    let end = find(&text[begin..], b"-----END ").map_or(text.len(), |at| begin + at);
    // In a string the lines end with `\n`.
    let is_gap = |byte: &u8| byte.is_ascii_whitespace();
    let mut from = begin + text[begin..end].iter().take_while(|byte| is_gap(byte)).count();
    if text[from..end].starts_with(b"\\n") {
        from += 2;
    }
    (from < end && !text[from..end].starts_with(super::REDACTED.as_bytes())).then_some((from, end))
}

/// The first place of a word in a text.
pub(super) fn find(text: &[u8], word: &[u8]) -> Option<usize> {
    text.windows(word.len()).position(|window| window == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_values_are_told_from_words() {
        for value in [
            "SplxlOBeZQQYbYS6WxSbIA",
            "4/0AY0e-g7xQm3TzKpV9cRw2LsN8uYb",
            "aB3dE5fG7hJ9kL1mN2pQ",
            "Xk9mQ2vL7tR4wZ8nB3cF",
        ] {
            assert!(looks_random(value.as_bytes()), "{value}");
        }
        for value in [
            "",
            "hunter2",
            "color",
            "user:1234:profile",
            "images/2024/01/photo-1234.jpg",
            "homePageBanner2Title",
            "3fa85f64-5717-4562-b3fc-2c963f66afa6",
            "9f86d081884c7d659a2feaa0c55ad015",
            "PRD-2024-000171-XL",
            "ECONNREFUSED",
            "ORDER_NOT_FOUND_404",
            "checkout.step2.titleText",
            "GetOrderByIdRequest2",
            "Mozilla/5.0 (X11; Linux x86_64)",
            "2024-01-01T10:00:00Z",
            "Order-2024-Summary-Report",
        ] {
            assert!(!looks_random(value.as_bytes()), "{value}");
        }
        assert!(is_code(b"481516") && is_code(b"123-456") && is_code(b"ABCD-1234"));
        assert!(!is_code(b"email") && !is_code(b"17") && !is_code(b"") && !is_code(b"12345678901"));
    }

    #[test]
    fn placeholders_are_no_secrets() {
        for value in [
            "",
            "***",
            "null",
            "None",
            "${DB_PASSWORD}",
            "$DB_PASSWORD",
            "{{ secret }}",
            "<password>",
            "[redacted]",
            "%s",
        ] {
            assert!(is_placeholder(value.as_bytes()), "{value}");
        }
        for value in ["hunter2", "$2b$10$abc", "x", "pa$$word", "$ecret"] {
            assert!(!is_placeholder(value.as_bytes()), "{value}");
        }
    }
}
