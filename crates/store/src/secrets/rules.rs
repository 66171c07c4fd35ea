//! Which names denote a secret.

use std::collections::HashSet;

use faultscope_model::SecretRules;

/// Headers whose name contains one of these are secret.
const HEADERS: [&str; 12] = [
    "authorization",
    "cookie",
    "api-key",
    "api_key",
    "apikey",
    "token",
    "secret",
    "password",
    "passwd",
    "credential",
    "private-key",
    "subscription-key",
];

/// Secret fields; compared without case, spaces, dashes and underscores.
const FIELDS: [&str; 18] = [
    "auth",
    "authorization",
    "cookie",
    "setcookie",
    "pass",
    "passphrase",
    "pwd",
    "jwt",
    "sig",
    "signature",
    "sessionid",
    "sid",
    "credentials",
    "cardnumber",
    "creditcard",
    "cvv",
    "cvc",
    "ssn",
];

/// Fields whose name ends in one of these are secret, too.
const ENDS: [&str; 9] =
    ["password", "passwd", "secret", "token", "apikey", "accesskey", "secretkey", "privatekey", "credential"];

/// Endings that only look secret.
const HARMLESS: [&str; 2] = ["pagetoken", "continuationtoken"];

/// Longer names are never secret.
const LONGEST: usize = 128;

/// Which names denote a secret: the built-in ones, and those of the application file.
#[derive(Debug, Clone, Default)]
pub(super) struct Rules {
    headers: HashSet<String>,
    names: HashSet<String>,
    /// Paths from the root of a JSON body; `*` stands for any name or index.
    paths: Vec<Vec<String>>,
}

impl Rules {
    pub(super) fn new(rules: &SecretRules) -> Self {
        let mut own =
            Self { headers: rules.headers.iter().map(|h| h.to_lowercase()).collect(), ..Self::default() };
        for field in &rules.fields {
            let path = field.strip_prefix('$').unwrap_or(field);
            let steps = path.split(['.', '[', ']']).map(|step| step.trim_matches(['"', '\'']));
            let steps: Vec<String> = steps.filter(|step| !step.is_empty()).map(str::to_owned).collect();
            match steps.as_slice() {
                [name] if !field.starts_with('$') => {
                    own.names.insert(folded(name, &mut [0; LONGEST]).to_owned());
                }
                [] => {}
                _ => own.paths.push(steps),
            }
        }
        own
    }

    /// Whether the value of a header is secret.
    pub(super) fn is_header(&self, name: &str) -> bool {
        if name.len() > LONGEST {
            return false;
        }
        let mut lower = [0u8; LONGEST];
        let lower = lowered(name, &mut lower);
        HEADERS.iter().any(|part| lower.contains(part)) || self.headers.contains(lower)
    }

    /// Whether a field of this name is secret, wherever it occurs.
    pub(super) fn is_field(&self, name: &str) -> bool {
        if name.is_empty() || name.len() > LONGEST {
            return false;
        }
        let mut buffer = [0u8; LONGEST];
        let name = folded(name, &mut buffer);
        // In `data[password]` and `user.password` the last part counts.
        let last = name.rsplit(['.', '[']).next().unwrap_or(name).trim_end_matches(']');
        let looks_so = FIELDS.contains(&last) || ENDS.iter().any(|end| last.ends_with(end));
        looks_so && !HARMLESS.iter().any(|end| last.ends_with(end))
            || !self.names.is_empty() && (self.names.contains(name) || self.names.contains(last))
    }

    /// Whether there are rules with paths.
    pub(super) fn has_paths(&self) -> bool {
        !self.paths.is_empty()
    }

    /// Whether the field at this path of a JSON body is secret.
    pub(super) fn is_path(&self, path: &[String]) -> bool {
        let fits = |wanted: &Vec<String>| {
            wanted.len() == path.len() && wanted.iter().zip(path).all(|(w, found)| w == "*" || w == found)
        };
        self.paths.iter().any(fits)
    }
}

fn lowered<'b>(name: &str, buffer: &'b mut [u8; LONGEST]) -> &'b str {
    let bytes = name.as_bytes();
    let place = &mut buffer[..bytes.len()];
    place.copy_from_slice(bytes);
    place.make_ascii_lowercase();
    std::str::from_utf8(place).unwrap_or_default()
}

/// A name without case, spaces, dashes and underscores; built without allocating, since every tag of every
/// span is checked.
fn folded<'b>(name: &str, buffer: &'b mut [u8; LONGEST]) -> &'b str {
    let mut length = 0;
    for byte in name.bytes().filter(|byte| !matches!(byte, b'-' | b'_' | b' ')).take(LONGEST) {
        buffer[length] = byte.to_ascii_lowercase();
        length += 1;
    }
    std::str::from_utf8(&buffer[..length]).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell() {
        let rules = Rules::new(&SecretRules {
            drop: false,
            headers: vec!["X-Tenant".into()],
            fields: vec!["pin".into(), "$.card.number".into(), "items[*].code".into()],
        });
        for name in ["Authorization", "proxy-authorization", "Cookie", "SET-COOKIE", "X-Api-Key", "x-tenant"]
        {
            assert!(rules.is_header(name), "{name}");
        }
        for name in ["accept", "x-request-id", "sec-websocket-key", ":authority", "etag", "traceparent"] {
            assert!(!rules.is_header(name), "{name}");
        }
        for name in
            ["password", "new_Password", "accessToken", "client-secret", "user[password]", "PIN", "a.pin"]
        {
            assert!(rules.is_field(name), "{name}");
        }
        for name in ["", "nextPageToken", "tokens_used", "path", "passenger", "design", "side", "number"] {
            assert!(!rules.is_field(name), "{name}");
        }
        let path = |steps: &[&str]| rules.is_path(&steps.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>());
        assert!(path(&["card", "number"]) && path(&["items", "7", "code"]));
        assert!(!path(&["number"]) && !path(&["x", "card", "number"]));
    }
}
