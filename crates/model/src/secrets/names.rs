//! Which names denote a secret. A name is split into words (`newPassword2`, `X-Vault-Token`, `data[api_key]`), and the
//! words decide: `passwordHash` is secret, `passwordLength` is not, and `key` depends on its value.

use std::collections::HashSet;
use std::sync::Arc;

use super::text::{Finder, has_name_stem};
use super::values::{
    is_code, is_connection, is_long_hex, is_number, is_pin, is_placeholder, is_seed_phrase, looks_random,
};
use super::vocabulary::{
    is_auth_prefix, is_code_of, is_continuation, is_harmless_after, is_harmless_before,
    is_harmless_before_token, is_key_of, is_pat_of, is_pepper_of, is_pin_of, is_possible_key_of,
};
use crate::SecretRules;

/// Longer names are never secret.
const MAX_NAME: usize = 128;

/// More words than this are no name of a value; the last ones decide.
const MAX_WORDS: usize = 8;

/// How much the name of a value says about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Suspicion {
    /// The name denotes nothing secret.
    None,
    /// The value is secret, whatever it is.
    Certain,
    /// The value is secret unless it is a number: `tokens` may be counted.
    UnlessNumber,
    /// The value is secret if it looks random: `key`, `code`, `session`.
    IfRandom,
    /// The value is secret if it looks random or like a one-time code.
    IfCode,
    /// The value is secret if it is a list of words, or random: `mnemonic`.
    IfPhrase,
    /// The value is secret if it has several parts or an address with a user: `connectionString`.
    IfConnection,
    /// The value is secret if it is a number of four to eight digits, as a text or not.
    IfPin,
}

/// Which names denote a secret: the built-in ones, and those of the application file.
#[derive(Debug, Clone, Default)]
pub struct SecretNames {
    headers: HashSet<String>,
    names: HashSet<String>,
    /// Paths from the root of a JSON body; `*` stands for any name or index.
    paths: Vec<Vec<String>>,
    /// The first word of each name of the application file: where a text may have one.
    stems: Vec<String>,
    finder: Option<Arc<Finder>>,
}

// === impl Suspicion ===

impl Suspicion {
    /// Whether a value of this name is secret and there is one: nothing, masks and references such as `${PASSWORD}`
    /// are shown.
    pub fn hides(self, value: &[u8]) -> bool {
        self != Self::None && !is_placeholder(value) && self.covers(value)
    }

    /// Whether a value of this name is secret.
    pub(super) fn covers(self, value: &[u8]) -> bool {
        match self {
            Self::None => false,
            Self::Certain => true,
            Self::UnlessNumber => !is_number(value),
            Self::IfRandom => looks_random(value),
            Self::IfCode => is_code(value) || looks_random(value),
            Self::IfPhrase => is_seed_phrase(value) || looks_random(value) || is_long_hex(value),
            Self::IfConnection => is_connection(value) || looks_random(value),
            Self::IfPin => is_pin(value),
        }
    }
}

// === impl SecretNames ===

impl SecretNames {
    /// The names of an application file, in addition to the built-in ones.
    pub fn new(rules: &SecretRules) -> Self {
        let mut own =
            Self { headers: rules.headers.iter().map(|h| h.to_lowercase()).collect(), ..Self::default() };
        for header in &rules.headers {
            own.add_stem(header);
        }
        for field in &rules.fields {
            let path = field.strip_prefix('$').unwrap_or(field);
            let steps = path.split(['.', '[', ']']).map(|step| step.trim_matches(['"', '\'']));
            let steps: Vec<String> = steps.filter(|step| !step.is_empty()).map(str::to_owned).collect();
            match steps.as_slice() {
                [name] if !field.starts_with('$') => {
                    own.names.insert(folded(name, &mut [0; MAX_NAME]).to_owned());
                    own.add_stem(name);
                }
                [] => {}
                _ => own.paths.push(steps),
            }
        }
        if !own.stems.is_empty() {
            own.finder = Some(Arc::new(Finder::build(&own.stems)));
        }
        own
    }

    /// What the name of a header says about its value.
    pub fn header_suspicion(&self, name: &str) -> Suspicion {
        if name.len() > MAX_NAME {
            return Suspicion::None;
        }
        let mut buffer = [0u8; MAX_NAME];
        let lower = lowered(name, &mut buffer);
        if self.headers.contains(lower) || is_auth_header(lower) {
            return Suspicion::Certain;
        }
        Words::split(name).suspicion(true)
    }

    /// What the name of a field says about its value.
    pub fn field_suspicion(&self, name: &str) -> Suspicion {
        if name.is_empty() || name.len() > MAX_NAME {
            return Suspicion::None;
        }
        let last = last_part(name);
        if !self.names.is_empty() {
            let (mut whole, mut part) = ([0u8; MAX_NAME], [0u8; MAX_NAME]);
            if self.names.contains(folded(name, &mut whole)) || self.names.contains(folded(last, &mut part)) {
                return Suspicion::Certain;
            }
        }
        Words::split(last).suspicion(false)
    }

    /// Whether there are rules with paths.
    pub fn has_paths(&self) -> bool {
        !self.paths.is_empty()
    }

    /// Whether the field at this path of a JSON body is secret.
    pub fn is_path(&self, path: &[String]) -> bool {
        let fits = |wanted: &Vec<String>| {
            wanted.len() == path.len() && wanted.iter().zip(path).all(|(w, found)| w == "*" || w == found)
        };
        self.paths.iter().any(fits)
    }

    /// What finds the names of the application file, too; none if it has none.
    pub(super) fn own_finder(&self) -> Option<&Finder> {
        self.finder.as_deref()
    }

    /// Whether the application file names this header or field.
    pub(super) fn is_own(&self, name: &str) -> bool {
        if name.is_empty() || name.len() > MAX_NAME || self.stems.is_empty() {
            return false;
        }
        let (mut whole, mut part, mut lower) = ([0u8; MAX_NAME], [0u8; MAX_NAME], [0u8; MAX_NAME]);
        self.names.contains(folded(name, &mut whole))
            || self.names.contains(folded(last_part(name), &mut part))
            || self.headers.contains(lowered(name, &mut lower))
    }

    fn add_stem(&mut self, name: &str) {
        // Spelled in another way, a name still begins with the same word.
        let words = Words::split(name);
        if let Some(first) = words.iter().next().filter(|word| word.len() > 1) {
            self.stems.push(first.to_owned());
        }
    }
}

/// `X-Auth-Key`, `X-Authentication-Token`, `X-Bearer`, but not `X-Author`.
fn is_auth_header(lower: &str) -> bool {
    let is_auth = |rest: &str| !rest.starts_with("or") || rest.starts_with("oriz");
    lower.strip_prefix("x-auth").is_some_and(is_auth) || matches!(lower, "x-bearer" | "bearer")
}

/// In `data[password]`, `user.password` and `tokens[0]` the last part counts that is no index.
fn last_part(name: &str) -> &str {
    let mut parts = name.rsplit(['.', '[']).map(|part| part.trim_end_matches(']'));
    parts.find(|part| part.bytes().any(|byte| !byte.is_ascii_digit())).unwrap_or(name)
}

/// The words of a name in lower case, without digits at their end. Built without allocating, since every tag of every
/// span is checked.
struct Words {
    letters: [u8; MAX_NAME],
    /// Where each word begins and ends.
    ranges: [(u8, u8); MAX_WORDS],
    count: usize,
}

impl Words {
    fn split(name: &str) -> Self {
        let mut words = Self { letters: [0; MAX_NAME], ranges: [(0, 0); MAX_WORDS], count: 0 };
        let bytes = name.as_bytes();
        let bytes = &bytes[..bytes.len().min(MAX_NAME)];
        let mut begin = 0;
        for (at, byte) in bytes.iter().enumerate() {
            words.letters[at] = byte.to_ascii_lowercase();
            let is_part = byte.is_ascii_alphanumeric() || !byte.is_ascii();
            // `newPassword`, `APIKey`.
            let is_hump = at > begin
                && byte.is_ascii_uppercase()
                && (!bytes[at - 1].is_ascii_uppercase()
                    || bytes.get(at + 1).is_some_and(u8::is_ascii_lowercase));
            if !is_part || is_hump {
                words.add(begin, at);
                begin = if is_part { at } else { at + 1 };
            }
        }
        words.add(begin, bytes.len());
        words
    }

    fn add(&mut self, begin: usize, mut end: usize) {
        while end > begin && self.letters[end - 1].is_ascii_digit() {
            end -= 1;
        }
        if end == begin {
            return;
        }
        if self.count == MAX_WORDS {
            self.ranges.copy_within(1.., 0);
            self.count -= 1;
        }
        // At most 128, see above.
        self.ranges[self.count] = (begin as u8, end as u8);
        self.count += 1;
    }

    fn get(&self, index: usize) -> &str {
        let (begin, end) = self.ranges[index];
        std::str::from_utf8(&self.letters[usize::from(begin)..usize::from(end)]).unwrap_or_default()
    }

    fn iter(&self) -> impl Iterator<Item = &str> {
        (0..self.count).map(|index| self.get(index))
    }

    fn suspicion(&self, is_header: bool) -> Suspicion {
        let (Some(first), Some(last)) = (self.ranges.first(), self.ranges[..self.count].last()) else {
            return Suspicion::None;
        };
        // Almost every name ends here: it has no part of any word below.
        if !has_name_stem(&self.letters[usize::from(first.0)..usize::from(last.1)]) {
            return Suspicion::None;
        }
        // The last secret word decides, since what precedes it says whose secret it is.
        for index in (0..self.count).rev() {
            if let Some(root) = self.root(index) {
                return self.judge(root, index, is_header);
            }
        }
        Suspicion::None
    }

    /// What the word at a place denotes, with the word before it.
    fn root(&self, index: usize) -> Option<Root> {
        let word = self.get(index);
        let before = || index.checked_sub(1).map_or("", |before| self.get(before));
        // `tokens`, but not `dbpass`.
        let single = word.strip_suffix('s').filter(|single| single.len() > 3 && !single.ends_with('s'));
        let (word, is_plural) = match single {
            Some(single) => (single, true),
            None => (word, false),
        };
        let kind = match word {
            "pass" | "pwd" | "psw" | "passwd" | "passwort" | "kennwort" | "passphrase" | "passcode"
            | "senha" | "contrasena" | "contraseña" | "dbpass" | "userpass" | "mypass" | "rootpass"
            | "adminpass" | "smtppass" | "mailpass" | "requirepass" | "masterauth" | "wachtwoord" => {
                Kind::Password
            }
            "cred" | "credential" => Kind::Secret,
            "jwt" | "jws" | "jwe" => Kind::Token,
            "cookie" => Kind::Cookie,
            "auth" | "authorization" | "authentication" => Kind::Auth,
            "csrf" | "xsrf" | "session" => Kind::Session,
            "sid" | "sessid" | "phpsessid" | "jsessionid" | "sessionid" => Kind::SessionId,
            "id" if matches!(before(), "session" | "sess") => Kind::SessionId,
            "sig" | "signature" => Kind::Signature,
            "hmac" => Kind::Digest,
            "otp" | "totp" | "hotp" => Kind::OneTime,
            "cvv" | "cvc" | "ssn" | "cardnumber" | "creditcard" => Kind::Card,
            "number" if before() == "card" => Kind::Card,
            "card" if before() == "credit" => Kind::Card,
            "assertion" if matches!(before(), "client" | "saml" | "jwt") => Kind::Assertion,
            "samlresponse" | "samlrequest" => Kind::Assertion,
            "response" | "request" if before() == "saml" => Kind::Assertion,
            "verifier" if matches!(before(), "code" | "oauth") => Kind::Assertion,
            "code" if is_code_of(before()) => Kind::OneTime,
            "code" if self.count == 1 => Kind::Bare,
            "key" if is_key_of(before()) => Kind::Key,
            // `X-Amz-Server-Side-Encryption-Customer-Key`; a `customer_key` alone is an id.
            "key" if before() == "customer" && index > 1 && self.get(index - 2) == "encryption" => Kind::Key,
            "answer" if matches!(before(), "security" | "secret") => Kind::Password,
            "phrase" if matches!(before(), "seed" | "recovery" | "secret" | "backup") => Kind::Password,
            "mnemonic" => Kind::Phrase,
            "seed" if matches!(before(), "wallet" | "recovery" | "master" | "hd" | "totp" | "otp") => {
                Kind::Password
            }
            "connectionstring" | "connstring" | "connstr" | "connectionuri" => Kind::Connection,
            "string" | "str" if matches!(before(), "connection" | "conn" | "connect") => Kind::Connection,
            "dsn" => Kind::Connection,
            "pin" if self.count == 1 || is_pin_of(before()) => Kind::Pin,
            "pincode" => Kind::Pin,
            "code" if before() == "pin" => Kind::Pin,
            // `kmsKey` may be the name of a key, too: `KMS_KEY=alias/orders`.
            "pat" if self.count == 1 || is_pat_of(before()) => Kind::Bare,
            "pepper" if self.count == 1 || is_pepper_of(before()) => Kind::Bare,
            // A name or an address of a key is no secret, the key itself is.
            "key" if is_possible_key_of(before()) => Kind::Bare,
            "key" if self.count == 1 => Kind::Bare,
            _ if word.ends_with("password") || word.ends_with("passwd") || word.ends_with("passphrase") => {
                Kind::Password
            }
            _ if word.starts_with("password") && word != "passwordless" => Kind::Password,
            _ if word.ends_with("secret") => Kind::Secret,
            _ if word.ends_with("token") => Kind::Token,
            _ => match word.strip_suffix("key") {
                Some(of) if is_key_of(of) => Kind::Key,
                Some(of) if is_possible_key_of(of) => Kind::Bare,
                _ => return None,
            },
        };
        // `pass` is what tests do, too, and `auth` may be a service. Their numbers are counts and states.
        Some(Root { kind, is_plural: is_plural || matches!(word, "pass" | "auth") })
    }

    fn judge(&self, root: Root, index: usize, is_header: bool) -> Suspicion {
        let mut after = (index + 1..self.count).map(|at| self.get(at));
        let mut before = (0..index).map(|at| self.get(at));
        if after.clone().any(is_harmless_after) || before.clone().any(is_harmless_before) {
            return Suspicion::None;
        }
        let is_last = index + 1 == self.count;
        let goes_on = is_last || after.all(is_continuation);
        let certain = if root.is_plural { Suspicion::UnlessNumber } else { Suspicion::Certain };
        match root.kind {
            Kind::Password => certain,
            Kind::Secret | Kind::Key | Kind::Assertion => certain,
            Kind::Token if goes_on && !before.any(is_harmless_before_token) => certain,
            Kind::Cookie | Kind::SessionId | Kind::Card | Kind::Signature if goes_on => certain,
            Kind::Auth if is_header && goes_on => certain,
            Kind::Digest if is_header && goes_on => certain,
            // In a body it may be an algorithm, too: `hmac: sha256`.
            Kind::Digest if goes_on => Suspicion::IfRandom,
            // `auth` and `proxy_authorization`, but not `needsAuth` and `oauth.authorization.endpoint`.
            Kind::Auth if goes_on && before.all(is_auth_prefix) => certain,
            Kind::OneTime if goes_on => Suspicion::IfCode,
            Kind::Session if is_last => Suspicion::IfRandom,
            // Twelve words or more; `keyboard mnemonic` and `mnemonic: mov` are ordinary.
            Kind::Phrase if goes_on => Suspicion::IfPhrase,
            Kind::Connection if goes_on => Suspicion::IfConnection,
            Kind::Pin if goes_on => Suspicion::IfPin,
            Kind::Bare if !root.is_plural => Suspicion::IfRandom,
            _ => Suspicion::None,
        }
    }
}

/// A word that denotes a secret.
#[derive(Debug, Clone, Copy)]
struct Root {
    kind: Kind,
    is_plural: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Password,
    Secret,
    Token,
    Key,
    Cookie,
    Auth,
    Session,
    SessionId,
    Signature,
    /// A keyed digest, which is the signature of a webhook.
    Digest,
    OneTime,
    Card,
    Assertion,
    /// Words from which a wallet is made.
    Phrase,
    /// What a client of a database needs to connect, mostly with a password.
    Connection,
    /// A short number that someone types.
    Pin,
    /// `key` or `code`, and nothing else.
    Bare,
}

fn lowered<'b>(name: &str, buffer: &'b mut [u8; MAX_NAME]) -> &'b str {
    let bytes = name.as_bytes();
    let place = &mut buffer[..bytes.len()];
    place.copy_from_slice(bytes);
    place.make_ascii_lowercase();
    std::str::from_utf8(place).unwrap_or_default()
}

/// A name without case, spaces, dashes and underscores, as names of application files are compared.
fn folded<'b>(name: &str, buffer: &'b mut [u8; MAX_NAME]) -> &'b str {
    let mut length = 0;
    for byte in name.bytes().filter(|byte| !matches!(byte, b'-' | b'_' | b' ')).take(MAX_NAME) {
        buffer[length] = byte.to_ascii_lowercase();
        length += 1;
    }
    std::str::from_utf8(&buffer[..length]).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RANDOM: &[u8] = b"SplxlOBeZQQYbYS6WxSbIA";

    #[test]
    fn headers_are_secret_by_their_words() {
        let names =
            SecretNames::new(&SecretRules { headers: vec!["X-Tenant".into()], ..SecretRules::default() });
        for name in [
            "Authorization",
            "proxy-authorization",
            "Authentication",
            "Cookie",
            "SET-COOKIE",
            "X-Api-Key",
            "x-tenant",
            "X-Auth",
            "X-Auth-Key",
            "X-Auth-User",
            "X-Authorization",
            "X-Authentication-Info",
            "X-Access-Key",
            "X-Session-Id",
            "X-Session-Token",
            "X-Vault-Token",
            "X-Hub-Signature",
            "X-Hub-Signature-256",
            "Stripe-Signature",
            "X-Amz-Security-Token",
            "X-CSRF-Token",
            "X-Goog-Api-Key",
            "apikey",
            "PRIVATE-TOKEN",
            "Ocp-Apim-Subscription-Key",
            "x-functions-key",
            "X-Client-Secret",
            "X-Otp-Password",
            "Api-Token",
        ] {
            assert!(names.is_secret_header(name, b"hunter2"), "{name}");
        }
        for name in [
            "accept",
            "x-request-id",
            "sec-websocket-key",
            ":authority",
            "etag",
            "traceparent",
            "X-Author",
            "www-authenticate",
            "x-token-type",
            "idempotency-key",
            "x-ratelimit-limit",
            "x-correlation-id",
            "content-length",
            "x-cache-key",
            "x-keyspace",
            "if-none-match",
            "x-amz-content-sha256",
            "digest",
            "vary",
            "x-session-duration",
            "key",
            "monkey",
        ] {
            assert!(!names.is_secret_header(name, b"hunter2"), "{name}");
        }
    }

    #[test]
    fn fields_are_secret_by_their_words() {
        let fields = vec!["pin".into(), "$.card.number".into(), "items[*].code".into(), "tax_id".into()];
        let names = SecretNames::new(&SecretRules { fields, ..SecretRules::default() });
        for name in [
            "password",
            "new_Password",
            "password2",
            "newPassword",
            "passwordHash",
            "password_confirmation",
            "PGPASSWORD",
            "secrets",
            "tokens",
            "accessToken",
            "access_key_id",
            "AWS_SECRET_ACCESS_KEY",
            "client-secret",
            "user[password]",
            "PIN",
            "a.pin",
            "TaxID",
            "tokens[0]",
            "client_assertion",
            "X-Amz-Signature",
            "X-Amz-Credential",
            "sig",
            "Signature",
            "dbPass",
            "DB_PWD",
            "apiKey",
            "APIKey",
            "authtoken",
            "privateKey",
            "credentials",
            "id_token",
            "refresh_token",
            "cvv",
            "cardNumber",
            "session_id",
            "sid",
            "auth",
            "_auth",
            "jwt",
            "SAMLResponse",
            "code_verifier",
            "accountKey",
            "SharedAccessKey",
            "secretKey",
            "passphrase",
            "userPassword",
            "requirepass",
            "secret_key_base",
            "webhookSecret",
            "encryption_key",
            "oauth_token_secret",
            "data.api_key",
            "passwd1",
        ] {
            assert!(names.is_secret_field(name, b"hunter2"), "{name}");
        }
        for name in ["code", "key", "csrf", "session"] {
            assert!(
                names.is_secret_field(name, RANDOM) && !names.is_secret_field(name, b"hunter2"),
                "{name}"
            );
        }
        for name in ["otp", "otpCode", "totp", "mfa_code", "verification_code", "backupCodes", "otp2"] {
            assert!(
                names.is_secret_field(name, b"481516") && !names.is_secret_field(name, b"email"),
                "{name}"
            );
        }
        let phrase = b"legal winner thank year wave sausage worth useful legal winner thank yellow";
        for name in ["mnemonic", "walletMnemonic", "wallet_mnemonic"] {
            assert!(names.is_secret_field(name, phrase) && !names.is_secret_field(name, b"mov"), "{name}");
        }
        for name in ["connectionString", "ConnStr", "DB_CONNECTION_STRING", "sentryDsn"] {
            let server = b"Server=db;User=sa;Pwd=x";
            assert!(names.is_secret_field(name, server) && !names.is_secret_field(name, b"orders"), "{name}");
        }
        for name in ["pinCode", "pin_code", "cardPin", "pincode", "newPin"] {
            assert!(names.is_secret_field(name, b"4711") && !names.is_secret_field(name, b"GPIO"), "{name}");
        }
        for name in ["kmsKey", "KMS_KEY", "pat", "GITHUB_PAT", "azurePat", "pepper", "dataKey", "hashKey"] {
            assert!(
                names.is_secret_field(name, RANDOM) && !names.is_secret_field(name, b"alias/orders"),
                "{name}"
            );
        }
        for name in
            ["pinned", "pins", "compat", "patch", "path", "spat", "pattern", "seed", "mapPin", "dsnCount"]
        {
            assert!(!names.is_secret_field(name, RANDOM), "{name}");
        }
        for name in [
            "",
            "nextPageToken",
            "tokens_used",
            "path",
            "passenger",
            "design",
            "side",
            "number",
            "tokenType",
            "token_type",
            "max_tokens",
            "totalTokens",
            "statusCode",
            "countryCode",
            "postal_code",
            "primaryKey",
            "cache_key",
            "keys",
            "routing-key",
            "passwordLength",
            "password_changed_at",
            "has_password",
            "secretName",
            "cookieConsent",
            "publicKey",
            "expires_in",
            "tokenizer",
            "author",
            "authority",
            "authors",
            "sidebar",
            "signal",
            "assigned",
            "compass",
            "bypass",
            "keyboard",
            "monkey",
            "turkey",
            "hotkey",
            "secretary",
            "passport",
            "sessionDuration",
            "authentication_methods",
            "needsAuth",
            "client_assertion_type",
            "code_challenge",
            "response_code",
            "keyword",
            "POSTGRES_PASSWORD_FILE",
            "token_endpoint",
            "cardType",
            "cards",
            "signed",
            "design_tokens",
            "pass_rate",
        ] {
            assert!(!names.is_secret_field(name, RANDOM), "{name}");
        }
        assert!(names.is_secret_field("tokens", b"abc") && !names.is_secret_field("tokens", b"512"));
        let path = |steps: &[&str]| names.is_path(&steps.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>());
        assert!(path(&["card", "number"]) && path(&["items", "7", "code"]));
        assert!(!path(&["number"]) && !path(&["x", "card", "number"]));
    }
}
