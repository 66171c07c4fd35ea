//! Values that must not be seen: found by name, shown as `[redacted]`, kept encrypted or forgotten.
//!
//! Everything that is written passes a [`Redactor`] first, on the writer's thread, so that neither the
//! files nor anything read from them holds a secret. What was replaced is sealed with a [`Key`] that stays
//! on the machine, outside of the store, and only a replay puts it back.

mod in_json;
mod in_pairs;
mod in_spans;
mod in_text;
mod key;
mod known;
mod rules;
mod seal;

use std::sync::{Arc, Mutex, PoisonError};

use faultscope_model::{SecretRules, Span, trace::ReportedSpan};

pub use key::{Key, KeyPlace};
pub use seal::UnsealError;

pub(crate) use in_spans::{restore, restore_reported};
use known::Known;
use rules::Rules;
pub(crate) use seal::{Original, unseal};

/// What stands where a secret was.
pub const REDACTED: &str = "[redacted]";

/// What is secret, and where the key to what is kept lies.
#[derive(Debug, Clone, Default)]
pub struct SecretOptions {
    /// Which values are secret, and whether they are kept.
    pub rules: SecretRules,
    /// The file of the key; the user's own when none.
    pub key: Option<KeyPlace>,
}

/// Takes secrets out of what is about to be written or shown. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Redactor {
    rules: Arc<Rules>,
    /// Values that were seen in secret places, so that they are found elsewhere too.
    known: Arc<Mutex<Known>>,
}

impl Default for Redactor {
    fn default() -> Self {
        Self::new(&SecretRules::default())
    }
}

impl Redactor {
    /// A redactor with the rules of an application beside those that always hold.
    pub fn new(rules: &SecretRules) -> Self {
        Self { rules: Arc::new(Rules::new(rules)), known: Arc::default() }
    }

    /// A text for people or files; none when there is nothing to hide.
    pub fn text(&self, text: &str) -> Option<String> {
        let known = self.lock().replace(text.as_bytes()).map(|b| String::from_utf8_lossy(&b).into_owned());
        let plain = in_text::redact(known.as_deref().unwrap_or(text), &self.rules);
        plain.or(known)
    }

    /// Redacts a text in place.
    pub fn redact(&self, text: &mut String) {
        if let Some(redacted) = self.text(text) {
            *text = redacted;
        }
    }

    /// Redacts every text in a JSON value; says whether there was one.
    pub fn redact_json(&self, value: &mut serde_json::Value) -> bool {
        use serde_json::Value;
        match value {
            Value::String(text) => match self.text(text) {
                Some(redacted) => {
                    *text = redacted;
                    true
                }
                None => false,
            },
            // All of them, not only until the first is found.
            Value::Array(items) => items.iter_mut().fold(false, |any, item| self.redact_json(item) | any),
            Value::Object(fields) => {
                fields.values_mut().fold(false, |any, field| self.redact_json(field) | any)
            }
            _ => false,
        }
    }

    /// A text of JSON, which it stays; none when there is nothing to hide.
    pub fn json_text(&self, text: &str) -> Option<String> {
        let mut value = serde_json::from_str(text).ok()?;
        if self.redact_json(&mut value) { serde_json::to_string(&value).ok() } else { None }
    }

    /// A span as a tracer reported it, without its secrets.
    pub fn reported(&self, span: &mut ReportedSpan) {
        if let Some((redacted, _)) = in_spans::reported(&self.rules, span) {
            *span = redacted;
        }
    }

    /// Takes the secrets out of calls that are written together; what was replaced comes out for each.
    pub(crate) fn take(&self, spans: &mut [&mut Span]) -> Vec<Vec<Original>> {
        let mut known = self.lock();
        let mut found = |value: &[u8]| known.add(value);
        let mut all: Vec<_> =
            spans.iter_mut().map(|span| in_spans::take(&self.rules, span, &mut found)).collect();
        // Only now are all values known that came together with the others.
        for (span, originals) in spans.iter_mut().zip(&mut all) {
            in_spans::sweep(&mut known, span, originals);
        }
        all
    }

    /// Takes the secrets out of a reported span; none when it has none, which is quick to see.
    pub(crate) fn take_reported(&self, span: &ReportedSpan) -> Option<(ReportedSpan, Vec<Original>)> {
        in_spans::reported(&self.rules, span)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Encrypts what was taken out, or forgets it.
#[derive(Debug)]
pub(crate) struct Sealer {
    drop: bool,
    place: Option<KeyPlace>,
    sealing: Option<seal::Sealing>,
    has_warned: bool,
}

impl Sealer {
    /// A key that is there and cannot be used is an error at once, not when the first secret comes.
    pub(crate) fn new(options: &SecretOptions) -> Result<Self, crate::StoreError> {
        let mut sealer =
            Self { drop: options.rules.drop, place: options.key.clone(), sealing: None, has_warned: false };
        if !sealer.drop
            && let Ok(place) = sealer.place()
            && let Some(key) = Key::load(&place)?
        {
            sealer.sealing = Some(seal::Sealing::new(key));
        }
        Ok(sealer)
    }

    /// The sealed form of what was taken out; none when secrets are forgotten.
    pub(crate) fn seal(&mut self, originals: &[Original]) -> Option<Vec<u8>> {
        if self.drop || originals.is_empty() {
            return None;
        }
        match self.sealing() {
            Ok(sealing) => Some(sealing.seal(originals)),
            Err(error) => {
                if !std::mem::replace(&mut self.has_warned, true) {
                    tracing::warn!(%error, cause = %error.source, "secrets are forgotten: there is no key to keep them");
                }
                None
            }
        }
    }

    /// As [`Self::seal`], but a key that cannot be had is an error.
    pub(crate) fn try_seal(&mut self, originals: &[Original]) -> Result<Vec<u8>, crate::StoreError> {
        Ok(self.sealing()?.seal(originals))
    }

    fn place(&self) -> Result<KeyPlace, crate::StoreError> {
        self.place.clone().map_or_else(KeyPlace::of_user, Ok)
    }

    fn sealing(&mut self) -> Result<&mut seal::Sealing, crate::StoreError> {
        let place = self.place()?;
        Ok(match &mut self.sealing {
            Some(sealing) => sealing,
            none => none.insert(seal::Sealing::new(Key::load_or_make(&place)?)),
        })
    }
}
