//! What counts as a secret: values with secret names, and values that look like credentials wherever they are.
//!
//! One pass finds the places where a secret may be, and most texts have none. Only there the text is
//! read: what is the name, what separates it from its value, where does the value end? Everything else keeps its bytes.

mod command_line;
mod named_value;
mod names;
mod sql;
mod stems;
mod text;
mod values;
mod vocabulary;

pub use names::{SecretNames, Suspicion};
pub use text::{redact_bytes, redact_str};

/// Replaces a secret.
pub const REDACTED: &str = "[redacted]";

impl SecretNames {
    /// Whether the value of a field is secret, by its name and by what it looks like.
    pub fn is_secret_field(&self, name: &str, value: &[u8]) -> bool {
        self.field_suspicion(name).hides(value)
    }

    /// The same for a pair of a query or a form, where keys in hexadecimal are common.
    pub fn is_secret_pair(&self, name: &str, value: &[u8]) -> bool {
        let suspicion = self.field_suspicion(name);
        suspicion.hides(value) || suspicion == Suspicion::IfRandom && values::is_long_hex(value)
    }

    /// The same for a header.
    pub fn is_secret_header(&self, name: &str, value: &[u8]) -> bool {
        self.header_suspicion(name).hides(value)
    }

    /// A setting as it may be shown: `env.DB_PASSWORD` by its name, anything else by what it looks like.
    pub fn redact_setting(&self, name: &str, value: &str) -> String {
        if self.is_secret_field(name, value.as_bytes()) {
            return REDACTED.to_owned();
        }
        redact_str(value, self).unwrap_or_else(|| value.to_owned())
    }
}
